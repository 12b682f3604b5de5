//! The cloud-init drive PVE writes from a VM's options: `user-data`, `network-config`, `meta-data`.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use sha1::{Digest, Sha1};

use super::config::Options;
use super::formats::{IPCONFIG, NET};
use super::seed::Seed;

/// What the host contributes: its resolver, used when the guest has none of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    pub(crate) nameservers: Vec<String>,
    pub(crate) searchdomain: Option<String>,
}

/// Custom files (`cicustom`) that replace generated ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Custom {
    pub(crate) user: Option<String>,
    pub(crate) network: Option<String>,
    pub(crate) meta: Option<String>,
    pub(crate) vendor: Option<String>,
}

/// All files of the drive.
pub(crate) fn seed(vmid: u32, options: &Options, host: &Host, custom: Custom) -> Seed {
    let user_data = custom
        .user
        .unwrap_or_else(|| user_data(vmid, options, host));
    let network = custom
        .network
        .unwrap_or_else(|| network_config(options, host));
    let meta_data = custom
        .meta
        .unwrap_or_else(|| meta_data(&user_data, &network));
    Seed {
        user_data,
        meta_data,
        network_config: Some(network),
        vendor_data: custom.vendor,
    }
}

fn text<'a>(options: &'a Options, option: &str) -> Option<&'a str> {
    options.get(option).map(String::as_str)
}

fn search_domain<'a>(options: &'a Options, host: &'a Host) -> Option<&'a str> {
    text(options, "searchdomain").or(host.searchdomain.as_deref())
}

/// The generated `#cloud-config`.
pub(crate) fn user_data(vmid: u32, options: &Options, host: &Host) -> String {
    let name = text(options, "name").map_or_else(|| format!("VM{vmid}"), str::to_owned);
    let hostname = name.split('.').next().unwrap_or_default();
    let fqdn = match search_domain(options, host) {
        _ if name.contains('.') => name.clone(),
        Some(search) => format!("{name}.{search}"),
        None => name.clone(),
    };
    let user = text(options, "ciuser");
    let mut out = String::from("#cloud-config\n");
    let _ = write!(
        out,
        "hostname: {hostname}\nmanage_etc_hosts: true\nfqdn: {fqdn}\n"
    );
    if let Some(user) = user {
        let _ = writeln!(out, "user: {user}");
        if user == "root" {
            out.push_str("disable_root: False\n");
        }
    }
    if let Some(password) = text(options, "cipassword") {
        let _ = writeln!(out, "password: {password}");
    }
    if let Some(keys) = text(options, "sshkeys") {
        out.push_str("ssh_authorized_keys:\n");
        for key in decode(keys).lines().filter(|line| !line.trim().is_empty()) {
            let _ = writeln!(out, "  - {key}");
        }
    }
    out.push_str("chpasswd:\n  expire: False\n");
    if user != Some("root") {
        out.push_str("users:\n  - default\n");
    }
    if text(options, "ciupgrade").is_none_or(|value| value == "1") {
        out.push_str("package_upgrade: true\n");
    }
    out
}

/// The generated network configuration (version 1); cards without `ipconfigN` are left out.
pub(crate) fn network_config(options: &Options, host: &Host) -> String {
    let mut out = String::from("version: 1\nconfig:\n");
    for index in 0..32 {
        let Some(net) = options.get(&format!("net{index}")) else {
            continue;
        };
        let Some(ipconfig) = options.get(&format!("ipconfig{index}")) else {
            continue;
        };
        let mac = NET
            .parse(net)
            .get("macaddr")
            .map(|mac| mac.to_ascii_lowercase());
        let _ = write!(
            out,
            "    - type: physical\n      name: eth{index}\n      mac_address: '{}'\n      subnets:\n",
            mac.unwrap_or_default()
        );
        subnets(&mut out, ipconfig);
    }
    let servers = text(options, "nameserver").map_or_else(
        || host.nameservers.clone(),
        |list| {
            crate::params::split_list(list)
                .into_iter()
                .map(str::to_owned)
                .collect()
        },
    );
    let search = search_domain(options, host);
    if !servers.is_empty() || search.is_some() {
        out.push_str("    - type: nameserver\n");
        if !servers.is_empty() {
            out.push_str("      address:\n");
            for server in servers {
                let _ = writeln!(out, "      - '{server}'");
            }
        }
        if let Some(search) = search {
            out.push_str("      search:\n");
            for domain in crate::params::split_list(search) {
                let _ = writeln!(out, "      - '{domain}'");
            }
        }
    }
    out
}

fn subnets(out: &mut String, ipconfig: &str) {
    let ip = IPCONFIG.parse(ipconfig);
    match ip.get("ip").map(String::as_str) {
        None | Some("manual") => {}
        Some("dhcp") => out.push_str("      - type: dhcp4\n"),
        Some(cidr) => {
            let (address, prefix) = cidr.split_once('/').unwrap_or((cidr, "32"));
            let _ = write!(
                out,
                "      - type: static\n        address: '{address}'\n        netmask: '{}'\n",
                netmask(prefix)
            );
            if let Some(gateway) = ip.get("gw") {
                let _ = writeln!(out, "        gateway: '{gateway}'");
            }
        }
    }
    match ip.get("ip6").map(String::as_str) {
        None | Some("manual") => {}
        Some("dhcp") => out.push_str("      - type: dhcp6\n"),
        Some("auto") => out.push_str("      - type: ipv6_slaac\n"),
        Some(cidr) => {
            let _ = write!(out, "      - type: static6\n        address: '{cidr}'\n");
            if let Some(gateway) = ip.get("gw6") {
                let _ = writeln!(out, "        gateway: '{gateway}'");
            }
        }
    }
}

fn netmask(prefix: &str) -> Ipv4Addr {
    let bits = prefix.parse::<u32>().unwrap_or(32).min(32);
    Ipv4Addr::from(u32::MAX.checked_shl(32 - bits).unwrap_or(0))
}

/// The instance id is a hash of the other files, so that any change makes a new instance.
pub(crate) fn meta_data(user_data: &str, network: &str) -> String {
    let mut id = String::new();
    for byte in Sha1::digest(format!("{user_data}{network}").as_bytes()) {
        let _ = write!(id, "{byte:02x}");
    }
    format!("instance-id: {id}\n")
}

/// Undoes percent-encoding.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A password as PVE stores it: hashed with SHA-256 crypt's shape and a salt of its own.
pub(crate) fn looks_hashed(password: &str) -> bool {
    ["$1$", "$5$", "$6$", "$y$", "$2b$"]
        .iter()
        .any(|prefix| password.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn host() -> Host {
        Host {
            nameservers: vec!["10.255.255.53".to_owned()],
            searchdomain: None,
        }
    }

    #[test]
    fn user_data_is_what_pve_renders() {
        let vm = options(&[
            ("name", "tmpl"),
            ("ciuser", "bob"),
            ("cipassword", "secret"),
            ("sshkeys", "ssh-ed25519%20AAAA%2B9bKD%20me%40x"),
        ]);
        assert_eq!(
            user_data(100, &vm, &host()),
            "#cloud-config\nhostname: tmpl\nmanage_etc_hosts: true\nfqdn: tmpl\nuser: bob\npassword: secret\nssh_authorized_keys:\n  - ssh-ed25519 AAAA+9bKD me@x\nchpasswd:\n  expire: False\nusers:\n  - default\npackage_upgrade: true\n"
        );
        let vm = options(&[("name", "bbb"), ("searchdomain", "a.b")]);
        assert!(user_data(100, &vm, &host()).contains("fqdn: bbb.a.b\n"));
    }

    #[test]
    fn network_configuration_is_what_pve_renders() {
        let vm = options(&[
            ("net0", "virtio=BC:24:11:78:1F:B0,bridge=vmbr0,firewall=1"),
            ("net1", "virtio=BC:24:11:78:1F:B1,bridge=vmbr0"),
            ("ipconfig0", "ip=10.0.0.5/24,gw=10.0.0.1"),
        ]);
        assert_eq!(
            network_config(&vm, &host()),
            "version: 1\nconfig:\n    - type: physical\n      name: eth0\n      mac_address: 'bc:24:11:78:1f:b0'\n      subnets:\n      - type: static\n        address: '10.0.0.5'\n        netmask: '255.255.255.0'\n        gateway: '10.0.0.1'\n    - type: nameserver\n      address:\n      - '10.255.255.53'\n"
        );
        let vm = options(&[
            ("net0", "virtio=BC:24:11:38:0C:9E,bridge=vmbr0"),
            ("ipconfig0", "ip=dhcp,ip6=auto"),
            ("nameserver", "1.1.1.1 8.8.8.8"),
            ("searchdomain", "a.b"),
        ]);
        assert_eq!(
            network_config(&vm, &host()),
            "version: 1\nconfig:\n    - type: physical\n      name: eth0\n      mac_address: 'bc:24:11:38:0c:9e'\n      subnets:\n      - type: dhcp4\n      - type: ipv6_slaac\n    - type: nameserver\n      address:\n      - '1.1.1.1'\n      - '8.8.8.8'\n      search:\n      - 'a.b'\n"
        );
    }

    #[test]
    fn a_guest_reads_back_what_pve_wrote() {
        let vm = options(&[
            ("name", "node-1"),
            ("net0", "virtio=BC:24:11:78:1F:B0,bridge=vmbr0"),
            ("ipconfig0", "ip=10.0.0.5/24,gw=10.0.0.1,ip6=2001:db8::5/64"),
        ]);
        let seed = seed(100, &vm, &host(), Custom::default());
        assert_eq!(seed.hostname().unwrap(), "node-1");
        assert_eq!(seed.instance_id().unwrap().len(), 40);
        let links = seed.links().unwrap().unwrap();
        assert_eq!(links[0].addresses.len(), 2);
    }

    #[test]
    fn a_changed_option_makes_a_new_instance() {
        let one = options(&[("name", "a")]);
        let two = options(&[("name", "b")]);
        let id = |vm: &Options| {
            seed(100, vm, &host(), Custom::default())
                .instance_id()
                .unwrap()
        };
        assert_ne!(id(&one), id(&two));
        assert_eq!(id(&one), id(&one));
    }
}
