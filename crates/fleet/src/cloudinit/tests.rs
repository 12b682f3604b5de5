use std::collections::BTreeMap;

use super::*;
use crate::{
    ClusterName, NodeName, Owner, Vmid,
    intent::{Addressing, Dynamic, InitMode, Nic, Route, Source},
    record::NicIdentity,
};

fn nic(name: &str) -> Nic {
    Nic {
        name: name.to_owned(),
        bridge: "vmbr0".to_owned(),
        ..Nic::default()
    }
}

fn guest(nics: Vec<Nic>) -> (GuestIntent, Identity) {
    let cluster = ClusterName::new("one").unwrap();
    let mut intent = GuestIntent::new(
        Owner::new("o").unwrap(),
        cluster.clone(),
        "web",
        Source::Empty,
    );
    let known = nics
        .iter()
        .enumerate()
        .map(|(i, nic)| {
            let index = u8::try_from(i).unwrap();
            let mac = crate::intent::Mac::proxmox([0, 0, index]);
            (nic.name.clone(), NicIdentity { index, mac })
        })
        .collect();
    intent.nics = nics;
    let identity = Identity {
        cluster,
        node: NodeName::new("pve1").unwrap(),
        vmid: Vmid::new(100).unwrap(),
        uuid: Uuid::nil(),
        nics: known,
        disks: BTreeMap::new(),
        mounts: BTreeMap::new(),
        brought: std::collections::BTreeSet::new(),
        origin: None,
        adopted: false,
    };
    (intent, identity)
}

#[test]
fn user_data_is_passed_on_byte_for_byte() {
    let (intent, identity) = guest(vec![]);
    let text = "#cloud-config\nruncmd: [ 'echo  hi' ]\n# end";
    let init = Init {
        user_data: Some(text.into()),
        ..Init::default()
    };
    let files = SeedFiles::render(&intent, &init, &identity).unwrap();
    assert_eq!(files.user_data.expose(), text.as_bytes());
    assert_eq!(
        files.meta_data,
        "instance-id: \"00000000-0000-0000-0000-000000000000\"\nlocal-hostname: \"web\"\n"
    );
}

#[test]
fn fields_beside_user_data_become_vendor_data_which_user_data_overrides() {
    let (intent, identity) = guest(vec![]);
    let init = Init {
        user_data: Some("#!/bin/sh\n".into()),
        ssh_keys: vec!["ssh-ed25519 AAAA me".to_owned()],
        ..Init::default()
    };
    let files = SeedFiles::render(&intent, &init, &identity).unwrap();
    let vendor = files.vendor_data.unwrap();
    assert!(
        vendor
            .as_text()
            .unwrap()
            .starts_with("#cloud-config\nssh_authorized_keys:\n")
    );
}

#[test]
fn fields_with_both_user_and_vendor_data_are_refused() {
    let (intent, identity) = guest(vec![]);
    let init = Init {
        user_data: Some("a".into()),
        vendor_data: Some("b".into()),
        user: Some("me".to_owned()),
        ..Init::default()
    };
    assert!(SeedFiles::render(&intent, &init, &identity).is_err());
}

#[test]
fn static_addresses_routes_and_dns_are_rendered_by_hardware_address() {
    let mut lan = nic("lan");
    lan.addressing = Addressing {
        addresses: vec![
            "192.168.1.100/24".parse().unwrap(),
            "fd00::5/64".parse().unwrap(),
        ],
        gateway4: Some("192.168.1.1".parse().unwrap()),
        gateway6: Some("fd00::1".parse().unwrap()),
        dns: vec!["8.8.8.8".parse().unwrap()],
        routes: vec![Route {
            to: "10.0.0.0/8".parse().unwrap(),
            via: "192.168.1.2".parse().unwrap(),
            metric: Some(50),
        }],
        ..Addressing::default()
    };
    let mut v6 = nic("v6");
    v6.addressing.ipv6 = Dynamic::Auto;
    let (intent, identity) = guest(vec![lan, nic("plain"), v6]);
    let init = Init {
        search: vec!["example.org".to_owned()],
        ..Init::default()
    };
    insta::assert_snapshot!(network_config(&intent.nics, &init, &identity.nics), @r#"
    ethernets:
      nic0:
        addresses:
          - "192.168.1.100/24"
          - "fd00::5/64"
        dhcp4: false
        match:
          macaddress: "bc:24:11:00:00:00"
        nameservers:
          addresses:
            - "8.8.8.8"
          search:
            - "example.org"
        routes:
          -
            to: "0.0.0.0/0"
            via: "192.168.1.1"
          -
            to: "::/0"
            via: "fd00::1"
          -
            metric: 50
            to: "10.0.0.0/8"
            via: "192.168.1.2"
      nic1:
        dhcp4: true
        match:
          macaddress: "bc:24:11:00:00:01"
      nic2:
        accept-ra: true
        dhcp4: false
        match:
          macaddress: "bc:24:11:00:00:02"
    version: 2
    "#);
}

#[test]
fn a_gateway_outside_of_the_subnet_is_on_link() {
    let mut lan = nic("lan");
    lan.addressing.addresses = vec!["203.0.113.7/32".parse().unwrap()];
    lan.addressing.gateway4 = Some("203.0.113.1".parse().unwrap());
    let (intent, identity) = guest(vec![lan]);
    let text = network_config(&intent.nics, &Init::default(), &identity.nics);
    assert!(text.contains("on-link: true"), "{text}");
}

#[test]
fn interfaces_that_nobody_declared_are_left_to_the_guest() {
    let (intent, identity) = guest(vec![]);
    let files = SeedFiles::render(&intent, &Init::default(), &identity).unwrap();
    assert!(files.network_config.is_none());
    let image = files.image().unwrap();
    let names = |name: &[u8]| image.windows(name.len()).any(|part| part == name);
    assert!(names(b"meta-data") && !names(b"network-config"));
    let given = Init {
        network_data: Some("version: 2\n".into()),
        ..Init::default()
    };
    let files = SeedFiles::render(&intent, &given, &identity).unwrap();
    assert_eq!(files.network_config, given.network_data);
    let native = Init {
        mode: InitMode::Native,
        ..Init::default()
    };
    let keys = native_keys(&intent, &native, &identity.nics).unwrap();
    assert_eq!(keys["ipconfig0"], "ip=dhcp");
}

#[test]
fn the_digest_changes_with_every_file() {
    let (intent, identity) = guest(vec![nic("a")]);
    let base = SeedFiles::render(&intent, &Init::default(), &identity).unwrap();
    let mut other = base.clone();
    other.user_data = "x".into();
    assert_ne!(base.glance(), other.glance());
    let mut other = base.clone();
    other.vendor_data = Some("x".into());
    assert_ne!(base.glance(), other.glance());
    let mut other = base.clone();
    other.network_config = None;
    assert_ne!(base.glance(), other.glance());
    assert_eq!(base.glance().len(), 4, "a guess cannot be tried on it");
    let mut seed = crate::record::Seed {
        volume: "local:iso/oxmox.iso".to_owned(),
        glance: base.glance(),
        state: crate::record::SeedState::Uploaded,
    };
    assert!(seed.holds(&base) && !seed.holds(&other));
    // As an earlier release wrote it.
    seed.glance.push_str("0123456789abcdef0123456789ab");
    assert!(seed.holds(&base) && !seed.holds(&other));
    assert!(base.image().unwrap().len() > 20 * 2048);
}

#[test]
fn native_mode_renders_pve_keys_and_refuses_what_pve_cannot_take() {
    let mut lan = nic("lan");
    lan.addressing.addresses = vec!["10.0.0.5/24".parse().unwrap()];
    lan.addressing.gateway4 = Some("10.0.0.1".parse().unwrap());
    lan.addressing.ipv6 = Dynamic::Auto;
    let (intent, identity) = guest(vec![lan, nic("b")]);
    let init = Init {
        mode: InitMode::Native,
        user: Some("me".to_owned()),
        ssh_keys: vec!["ssh-rsa A B".to_owned()],
        dns: vec!["1.1.1.1".parse().unwrap()],
        ..Init::default()
    };
    let keys = native_keys(&intent, &init, &identity.nics).unwrap();
    assert_eq!(keys["ipconfig0"], "ip=10.0.0.5/24,gw=10.0.0.1,ip6=auto");
    assert_eq!(keys["ipconfig1"], "ip=dhcp");
    assert_eq!(keys["sshkeys"], "ssh-rsa%20A%20B");
    assert_eq!(keys["nameserver"], "1.1.1.1");
    let refused = Init {
        user_data: Some("x".into()),
        ..init
    };
    assert!(native_keys(&intent, &refused, &identity.nics).is_err());
}
