//! One Kubernetes cluster over several Proxmox VE clusters.

use std::collections::BTreeSet;
use std::time::Duration;

use api::cluster_api::IPAddressClaim;
use api::infrastructure::v1beta1::{FailureDomain, ProxmoxCluster, ProxmoxMachine};
use api::vm::condition;
use controllers::GlobalCredentials;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use pve_sim::{Action, Fault};
use scenarios::{Bed, Wish};
use serde_json::json;

use super::{bed, named, on, two, until_instance_is};

#[tokio::test(start_paused = true)]
async fn machines_made_all_at_once_spread_evenly() {
    let (bed, _player) = bed(2).await;
    bed.make_cluster(&two("MultiInstance")).await;
    for number in 0..10 {
        bed.make_machine(Wish::new(&format!("w-{number}"))).await;
    }
    for number in 0..10 {
        bed.until_provisioned(&format!("w-{number}")).await;
    }
    assert_eq!(on(&bed, 0, "w-").await.len(), 5);
    assert_eq!(on(&bed, 1, "w-").await.len(), 5);
    let cluster = bed
        .until::<ProxmoxCluster>("prod", "counted", |cluster| {
            let status = cluster.status.as_ref().unwrap();
            status.instances.iter().all(|i| i.machines == Some(5))
        })
        .await;
    let status = cluster.status.unwrap();
    let domains: Vec<_> = status
        .failure_domains
        .iter()
        .map(|d| d.name.as_str())
        .collect();
    assert_eq!(domains, ["txl", "fra"]);
    assert_eq!(status.node_locations.unwrap().workers.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn weights_say_who_gets_how_many_and_zero_only_takes_who_is_sent() {
    let (bed, _player) = bed(2).await;
    let mut settings = two("MultiInstance");
    settings["settings"]["instances"][0]["weight"] = json!(3);
    bed.make_cluster(&settings).await;
    for number in 0..8 {
        bed.make_machine(Wish::new(&format!("w-{number}"))).await;
    }
    for number in 0..8 {
        bed.until_provisioned(&format!("w-{number}")).await;
    }
    assert_eq!(
        (on(&bed, 0, "w-").await.len(), on(&bed, 1, "w-").await.len()),
        (6, 2)
    );
    settings["settings"]["instances"][1]["weight"] = json!(0);
    bed.change::<ProxmoxCluster>("prod", settings).await;
    bed.sleep(Duration::from_secs(5)).await;
    for number in 0..3 {
        bed.make_machine(Wish::new(&format!("x-{number}"))).await;
    }
    bed.make_machine(Wish::new("sent").with(&json!({"instance": "fra"})))
        .await;
    for name in ["x-0", "x-1", "x-2", "sent"] {
        bed.until_provisioned(name).await;
    }
    assert_eq!(on(&bed, 0, "x-").await.len(), 3);
    assert_eq!(on(&bed, 1, "sent").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_down_keeps_its_machines_and_gets_no_new_ones() {
    let (bed, _player) = bed(2).await;
    bed.make_cluster(&two("MultiInstance")).await;
    for name in ["a", "b"] {
        bed.make_machine(Wish::new(name)).await;
    }
    for name in ["a", "b"] {
        bed.until_provisioned(name).await;
        bed.join(name).await;
    }
    bed.sleep(Duration::from_mins(3)).await;
    let before = bed.guests_of(1).await;
    let held: BTreeSet<String> = bed.names::<ProxmoxMachine>().await.into_iter().collect();

    let fault = bed
        .cluster(1)
        .control()
        .inject(Fault::every("*", Action::DropRequest));
    let cluster = until_instance_is(&bed, "fra", false).await;
    let status = cluster.status.unwrap();
    assert_eq!(status.initialization.unwrap().provisioned, Some(true));
    // Whoever divides a control plane among failure domains must not send one of it there either.
    let open = |domains: &[FailureDomain], name: &str| {
        let domain = domains.iter().find(|domain| domain.name == name);
        domain.unwrap().control_plane
    };
    assert_eq!(open(&status.failure_domains, "fra"), Some(false));
    assert_eq!(open(&status.failure_domains, "txl"), Some(true));
    for number in 0..4 {
        bed.make_machine(Wish::new(&format!("w-{number}"))).await;
    }
    for number in 0..4 {
        bed.until_provisioned(&format!("w-{number}")).await;
    }
    assert_eq!(on(&bed, 0, "w-").await.len(), 4);
    bed.cluster(1).control().remove(fault);
    let cluster = until_instance_is(&bed, "fra", true).await;
    let domains = cluster.status.unwrap().failure_domains;
    assert_eq!(open(&domains, "fra"), Some(true));
    assert_eq!(bed.guests_of(1).await, before, "left alone");
    for name in held {
        let machine: ProxmoxMachine = bed.get(&name).await;
        let status = machine.status.unwrap();
        assert_eq!(
            status.initialization.unwrap().provisioned,
            Some(true),
            "{name}"
        );
    }
    // What was missed is made up for: the next ones go where there are fewer.
    for number in 0..2 {
        bed.make_machine(Wish::new(&format!("late-{number}"))).await;
    }
    for number in 0..2 {
        bed.until_provisioned(&format!("late-{number}")).await;
    }
    assert_eq!(on(&bed, 1, "late-").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_same_vmid_on_two_instances_is_two_machines() {
    let (bed, _player) = bed(2).await;
    bed.make_cluster(&two("MultiInstance")).await;
    let same = json!({"vmIDRange": {"start": 500, "end": 500}});
    for (name, instance) in [("a", "txl"), ("b", "fra")] {
        let wish = Wish::new(name)
            .with(&same)
            .with(&json!({"instance": instance}));
        bed.make_machine(wish).await;
    }
    let a = bed.until_provisioned("a").await;
    let b = bed.until_provisioned("b").await;
    assert_eq!(
        (a.spec.virtual_machine_id, b.spec.virtual_machine_id),
        (Some(500), Some(500))
    );
    assert_ne!(a.spec.provider_id, b.spec.provider_id);
    let guest = named(&bed.guests_of(1).await, "b").unwrap().clone();
    bed.delete::<ProxmoxMachine>("a").await;
    assert_eq!(named(&bed.guests_of(1).await, "b"), Some(&guest));
}

#[tokio::test(start_paused = true)]
async fn each_instance_has_its_own_network_storage_and_vmids() {
    let (bed, _player) = bed(2).await;
    let pool = "k8s".parse().unwrap();
    bed.root_of(1).pools().create(&pool, None).await.unwrap();
    let mut settings = two("MultiInstance");
    let fra = &mut settings["settings"]["instances"][1];
    fra["network"] = json!({
        "bridge": "vmbr1", "vlan": 30, "dnsServers": ["10.9.0.53"],
        "ipv4Config": {"addresses": ["10.9.0.10-10.9.0.99"], "prefix": 24, "gateway": "10.9.0.1"},
    });
    fra["storage"] = json!("ceph");
    fra["isoStorage"] = json!("nfs");
    fra["pool"] = json!("k8s");
    fra["vmIDRange"] = json!({"start": 700, "end": 799});
    bed.make_cluster(&settings).await;
    for (name, instance) in [("a", "txl"), ("b", "fra")] {
        let wish = Wish::new(name).with(&json!({"instance": instance, "full": true}));
        bed.make_machine(wish).await;
    }
    bed.until_provisioned("a").await;
    let machine = bed.until_provisioned("b").await;
    let guests = bed.guests_of(1).await;
    let guest = named(&guests, "b").unwrap();
    assert!((700..800).contains(&guest.vmid), "{}", guest.vmid);
    let net = guest.key("net0");
    assert!(
        net.contains("bridge=vmbr1") && net.contains("tag=30"),
        "{net}"
    );
    assert!(
        guest.key("scsi0").starts_with("ceph:"),
        "{}",
        guest.key("scsi0")
    );
    assert!(
        guest.config.values().any(|v| v.starts_with("nfs:iso/")),
        "{:?}",
        guest.config
    );
    let members = bed.root_of(1).pools().get(&pool).await.unwrap().members;
    assert!(
        format!("{members:?}").contains(&guest.vmid.to_string()),
        "{members:?}"
    );
    let claim: IPAddressClaim = bed.get("b-net0-00-inet").await;
    assert_eq!(claim.spec.pool_ref.name, "prod-fra-v4-icip");
    let claim: IPAddressClaim = bed.get("a-net0-00-inet").await;
    assert_eq!(claim.spec.pool_ref.name, "prod-v4-icip");
    assert_eq!(
        machine.status.unwrap().failure_domain.as_deref(),
        Some("fra")
    );
}

#[tokio::test(start_paused = true)]
async fn one_instance_is_picked_once_and_remembered() {
    let (mut bed, _player) = bed(2).await;
    bed.make_cluster(&two("SingleInstance")).await;
    let first: ProxmoxCluster = bed.get("prod").await;
    let picked = first.status.unwrap().selected_instance.unwrap();
    let number = usize::from(picked == "fra");
    for round in 0..3 {
        let name = format!("w-{round}");
        bed.make_machine(Wish::new(&name)).await;
        assert_eq!(
            bed.until_provisioned(&name).await.spec.instance.as_ref(),
            Some(&picked)
        );
        bed.crash_operator().await;
        bed.start_operator();
    }
    assert_eq!(on(&bed, number, "w-").await.len(), 3);
    // That it does not answer for a while is no reason to pick another.
    let fault = bed
        .cluster(number)
        .control()
        .inject(Fault::every("*", Action::DropRequest));
    bed.sleep(Duration::from_mins(5)).await;
    bed.make_machine(Wish::new("w-3")).await;
    bed.sleep(Duration::from_mins(2)).await;
    bed.cluster(number).control().remove(fault);
    bed.until_provisioned("w-3").await;
    assert_eq!(on(&bed, number, "w-").await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn machines_remember_the_one_instance_when_the_status_was_lost() {
    let (mut bed, _player) = bed(2).await;
    bed.make_cluster(&two("SingleInstance")).await;
    let picked = |cluster: &ProxmoxCluster| {
        let status = cluster.status.as_ref().unwrap();
        status.selected_instance.clone().unwrap()
    };
    let first = picked(&bed.get("prod").await);
    let other = if first == "txl" { "fra" } else { "txl" };
    // Another throw of the dice would have been as good; now it is how the machines live.
    let select = async |bed: &Bed, name: Option<&str>| {
        let status = json!({"status": {"selectedInstance": name}});
        bed.api::<ProxmoxCluster>()
            .patch_status("prod", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    };
    bed.crash_operator().await;
    select(&bed, Some(other)).await;
    bed.start_operator();
    bed.make_machine(Wish::new("w-0")).await;
    let machine = bed.until_provisioned("w-0").await;
    assert_eq!(machine.spec.instance.as_deref(), Some(other));
    bed.crash_operator().await;
    select(&bed, None).await;
    bed.start_operator();
    bed.make_machine(Wish::new("w-1")).await;
    let machine = bed.until_provisioned("w-1").await;
    assert_eq!(machine.spec.instance.as_deref(), Some(other));
    let cluster = bed
        .until::<ProxmoxCluster>("prod", "remembering", |cluster| {
            let status = cluster.status.as_ref().unwrap();
            status.selected_instance.is_some()
        })
        .await;
    assert_eq!(picked(&cluster), other);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_the_mode_does_not_use_is_refused_with_the_way_out() {
    let (bed, _player) = bed(2).await;
    bed.make_cluster(&two("Default")).await;
    for (name, instance, word) in [("a", "fra", "MultiInstance"), ("b", "muc", "is not in")] {
        bed.make_machine(Wish::new(name).with(&json!({"instance": instance})))
            .await;
        let machine = bed
            .until_reason::<ProxmoxMachine>(name, "Ready", "WaitingForInstance")
            .await;
        let said = machine.status.unwrap().conditions;
        let message = &condition(&said, "Ready").unwrap().message;
        assert!(message.contains(word), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_nearest_credentials_win() {
    let (mut bed, _player) = bed(2).await;
    let secret: Secret = bed.get("pve-1-credentials").await;
    let entry = |key: &str| {
        let data = secret.data.as_ref().unwrap();
        String::from_utf8(data[key].0.clone()).unwrap()
    };
    let global = GlobalCredentials {
        url: entry("url"),
        token: entry("token"),
        secret: entry("secret"),
        ..GlobalCredentials::default()
    };
    bed.stop_operator().await;
    bed.options(|options| options.capi_credentials = Some(global));
    bed.start_operator();
    // Nobody names any: those of the process.
    bed.make_cluster(&json!({"credentialsRef": null})).await;
    bed.make_machine(Wish::new("global")).await;
    bed.until_provisioned("global").await;
    assert_eq!(on(&bed, 1, "global").await.len(), 1);
    bed.delete::<ProxmoxMachine>("global").await;
    // The cluster's own go before them.
    let own = json!({"credentialsRef": {"name": "pve-credentials"}});
    bed.change::<ProxmoxCluster>("prod", own).await;
    bed.make_machine(Wish::new("own")).await;
    bed.until_provisioned("own").await;
    assert_eq!(on(&bed, 0, "own").await.len(), 1);
    bed.delete::<ProxmoxMachine>("own").await;
    // An instance's before the cluster's, which are for those that name none.
    let settings = json!({"settings": {"mode": "MultiInstance", "instances": [
        {"name": "fra", "credentialsRef": {"name": "pve-1-credentials"}}, {"name": "txl"},
    ]}});
    bed.change::<ProxmoxCluster>("prod", settings).await;
    for (name, number) in [("fra", 1), ("txl", 0)] {
        bed.make_machine(Wish::new(name).with(&json!({"instance": name})))
            .await;
        bed.until_provisioned(name).await;
        assert_eq!(on(&bed, number, name).await.len(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn mode_default_uses_the_first_instance() {
    let (bed, _player) = bed(2).await;
    bed.make_cluster(&two("Default")).await;
    for name in ["w-0", "w-1"] {
        bed.make_machine(Wish::new(name)).await;
        bed.until_provisioned(name).await;
    }
    assert_eq!(on(&bed, 0, "w-").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn failure_domains_are_honoured_down_to_groups_of_nodes() {
    let (bed, _player) = bed(2).await;
    let mut settings = two("MultiInstance");
    settings["nodeGroups"] = json!([
        {"name": "rack-1", "instance": "txl", "nodes": ["pve1"]},
        {"name": "rack-2", "instance": "txl", "nodes": ["pve2", "pve3"]},
    ]);
    let cluster = bed.make_cluster(&settings).await;
    let domains = cluster.status.unwrap().failure_domains;
    let names: Vec<_> = domains.iter().map(|d| d.name.as_str()).collect();
    // An instance that is divided is as many domains as it has groups.
    assert_eq!(names, ["fra", "rack-1", "rack-2"]);
    for (name, domain) in [("a", "rack-1"), ("b", "rack-2"), ("c", "fra")] {
        bed.make_machine(Wish::new(name).failure_domain(domain))
            .await;
    }
    for (name, domain) in [("a", "rack-1"), ("b", "rack-2"), ("c", "fra")] {
        let machine = bed.until_provisioned(name).await;
        assert_eq!(
            machine.status.unwrap().failure_domain.as_deref(),
            Some(domain)
        );
    }
    let guests = bed.guests_of(0).await;
    assert_eq!(named(&guests, "a").unwrap().node, "pve1");
    assert_ne!(named(&guests, "b").unwrap().node, "pve1");
    assert!(named(&bed.guests_of(1).await, "c").is_some());
}

#[tokio::test(start_paused = true)]
async fn groups_of_nodes_are_failure_domains_without_instances_too() {
    let (bed, _player) = bed(1).await;
    let cluster = bed
        .make_cluster(&json!({"nodeGroups": [
            {"name": "rack-1", "nodes": ["pve3"]}, {"name": "rack-2", "nodes": ["pve2"]},
        ]}))
        .await;
    assert_eq!(cluster.status.unwrap().failure_domains.len(), 2);
    for (name, domain) in [("a", "rack-1"), ("b", "rack-2"), ("c", "rack-3")] {
        bed.make_machine(Wish::new(name).failure_domain(domain))
            .await;
    }
    bed.until_provisioned("a").await;
    bed.until_provisioned("b").await;
    let machine = bed
        .until_reason::<ProxmoxMachine>("c", "Ready", "WaitingForInstance")
        .await;
    let said = machine.status.unwrap().conditions;
    let message = &condition(&said, "Ready").unwrap().message;
    assert!(message.contains("\"rack-3\" is not in"), "{message}");
    let guests = bed.guests().await;
    assert_eq!(named(&guests, "a").unwrap().node, "pve3");
    assert_eq!(named(&guests, "b").unwrap().node, "pve2");
}

#[tokio::test(start_paused = true)]
async fn an_instance_names_its_own_template_by_vmid_or_tags() {
    let (bed, _player) = bed(2).await;
    bed.tag_template(1, 9000, "capi;v1.30.5").await;
    let mut settings = two("MultiInstance");
    settings["settings"]["instances"][0]["template"] =
        json!({"sourceNode": "pve1", "templateID": 9000});
    settings["settings"]["instances"][1]["template"] =
        json!({"templateSelector": {"matchTags": ["capi", "v1.30.5"]}});
    bed.make_cluster(&settings).await;
    for (name, instance) in [("a", "txl"), ("b", "fra")] {
        bed.make_machine(Wish::new(name).with(&json!({"instance": instance, "template": null})))
            .await;
    }
    bed.until_provisioned("a").await;
    bed.until_provisioned("b").await;
}
