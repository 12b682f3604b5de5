//! An instance is chosen, and chosen again where that harms nobody.

use std::time::Duration;

use api::cluster_api::IPAddressClaim;
use api::infrastructure::v1beta1::{ProxmoxCluster, ProxmoxMachine};
use api::vm::condition;
use kube::api::DeleteParams;
use pve_sim::{Action, Fault};
use scenarios::{Bed, Wish};
use serde_json::{Value, json};

use super::{bed, on, two, until_instance_is};

const NAMES: [&str; 2] = ["txl", "fra"];

/// Two instances, each with addresses of its own.
fn two_networks() -> Value {
    let mut settings = two("MultiInstance");
    for (number, net) in ["10.8.0", "10.9.0"].iter().enumerate() {
        settings["settings"]["instances"][number]["network"] = json!({"ipv4Config": {
            "addresses": [format!("{net}.10-{net}.99")], "prefix": 24, "gateway": format!("{net}.1"),
        }});
    }
    settings
}

/// The number of the instance that a machine was given, once it has one.
async fn given(bed: &Bed, name: &str) -> usize {
    let machine = bed
        .until::<ProxmoxMachine>(name, "given an instance", |machine| {
            machine.spec.instance.is_some()
        })
        .await;
    usize::from(machine.spec.instance.as_deref() == Some(NAMES[1]))
}

/// What a machine says it waits for.
fn message(machine: &ProxmoxMachine) -> String {
    let said = &machine.status.as_ref().unwrap().conditions;
    condition(said, "Ready").unwrap().message.clone()
}

#[tokio::test(start_paused = true)]
async fn a_machine_turns_to_another_instance_while_nothing_was_begun() {
    let (mut bed, player) = bed(2).await;
    bed.make_cluster(&two_networks()).await;
    // Nobody gives out addresses, so the machine gets no further than its place.
    drop(player);
    bed.make_machine(Wish::new("a")).await;
    let first = given(&bed, "a").await;
    let second = 1 - first;
    let control = bed.cluster(first).control();
    let fault = control.inject(Fault::every("*", Action::DropRequest));
    until_instance_is(&bed, NAMES[first], false).await;
    bed.until::<ProxmoxMachine>("a", "sent elsewhere", |machine| {
        machine.spec.instance.as_deref() == Some(NAMES[second])
    })
    .await;
    // What it claimed of the first network it gives back.
    let pool = format!("prod-{}-v4-icip", NAMES[second]);
    bed.until::<IPAddressClaim>("a-net0-00-inet", "asking the other pool", |claim| {
        claim.spec.pool_ref.name == pool
    })
    .await;
    // Who starts now believes what is written.
    bed.crash_operator().await;
    bed.start_operator();
    let _player = bed.play_cluster_api();
    bed.until_provisioned("a").await;
    bed.cluster(first).control().remove(fault);
    until_instance_is(&bed, NAMES[first], true).await;
    bed.sleep(Duration::from_mins(2)).await;
    assert_eq!(on(&bed, second, "a").await.len(), 1);
    assert!(on(&bed, first, "a").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_guest_may_exist_waits_for_its_instance_and_says_why() {
    let (bed, _player) = bed(2).await;
    bed.make_cluster(&two("MultiInstance")).await;
    for number in 0..2 {
        let lost = Fault::every("POST /nodes/*/qemu/*/clone", Action::DropAnswer);
        bed.cluster(number).control().inject(lost);
    }
    bed.make_machine(Wish::new("a")).await;
    let first = given(&bed, "a").await;
    bed.until::<ProxmoxMachine>("a", "begun", |machine| {
        machine.spec.virtual_machine_id.is_some()
    })
    .await;
    let fault = Fault::every("*", Action::DropRequest);
    let fault = bed.cluster(first).control().inject(fault);
    until_instance_is(&bed, NAMES[first], false).await;
    let machine = bed
        .until::<ProxmoxMachine>("a", "saying why it waits", |machine| {
            message(machine).contains("no other instance is chosen")
        })
        .await;
    assert_eq!(machine.spec.instance.as_deref(), Some(NAMES[first]));
    bed.sleep(Duration::from_mins(10)).await;
    bed.cluster(first).control().remove(fault);
    bed.until_provisioned("a").await;
    assert_eq!(on(&bed, first, "a").await.len(), 1);
    assert!(on(&bed, 1 - first, "a").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_asked_for_is_waited_for() {
    let (bed, _player) = bed(2).await;
    bed.make_cluster(&two("MultiInstance")).await;
    let fault = Fault::every("*", Action::DropRequest);
    let fault = bed.cluster(1).control().inject(fault);
    until_instance_is(&bed, "fra", false).await;
    bed.make_machine(Wish::new("sent").with(&json!({"instance": "fra"})))
        .await;
    bed.make_machine(Wish::new("domain").failure_domain("fra"))
        .await;
    for name in ["sent", "domain"] {
        bed.until_reason::<ProxmoxMachine>(name, "Ready", "PveUnreachable")
            .await;
    }
    bed.sleep(Duration::from_mins(5)).await;
    bed.cluster(1).control().remove(fault);
    for name in ["sent", "domain"] {
        let machine = bed.until_provisioned(name).await;
        assert_eq!(machine.spec.instance.as_deref(), Some("fra"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_lacks_the_template_is_passed_over() {
    let (bed, _player) = bed(2).await;
    bed.tag_template(1, 9000, "capi;v1.30.5").await;
    bed.make_cluster(&two("MultiInstance")).await;
    bed.sleep(Duration::from_mins(1)).await;
    let tags = json!({"templateSelector": {"matchTags": ["capi", "v1.30.5"]}, "template": null});
    for name in ["w-0", "w-1", "w-2"] {
        bed.make_machine(Wish::new(name).with(&tags)).await;
    }
    for name in ["w-0", "w-1", "w-2"] {
        bed.until_provisioned(name).await;
    }
    assert_eq!(on(&bed, 1, "w-").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_asked_for_goes_before_the_failure_domain() {
    let (bed, _player) = bed(2).await;
    let mut settings = two("MultiInstance");
    settings["nodeGroups"] = json!([{"name": "rack", "instance": "fra", "nodes": ["pve2"]}]);
    bed.make_cluster(&settings).await;
    // A control plane whose template names an instance is divided among all domains nevertheless.
    for (name, domain) in [("a", "txl"), ("b", "rack")] {
        let wish = Wish::new(name).failure_domain(domain);
        bed.make_machine(wish.with(&json!({"instance": "txl", "nodeName": "pve1"})))
            .await;
        let machine = bed.until_provisioned(name).await;
        let domain = machine.status.unwrap().failure_domain;
        assert_eq!(domain.as_deref(), Some("txl"), "{name}");
        assert_eq!(on(&bed, 0, name).await, [name]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_where_none_is_listed_is_refused_with_the_way_out() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("a").with(&json!({"instance": "txl"})))
        .await;
    let machine = bed
        .until_reason::<ProxmoxMachine>("a", "Ready", "WaitingForInstance")
        .await;
    assert!(message(&machine).contains("settings.instances"));
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_an_instance_that_was_left_out_can_be_removed_once_it_is_listed_again() {
    let (mut bed, _player) = bed(2).await;
    let settings = two("MultiInstance");
    bed.make_cluster(&settings).await;
    bed.make_machine(Wish::new("a").with(&json!({"instance": "fra"})))
        .await;
    bed.until_provisioned("a").await;
    let mut fewer = settings.clone();
    fewer["settings"]["instances"].as_array_mut().unwrap().pop();
    bed.change::<ProxmoxCluster>("prod", fewer).await;
    bed.until_reason::<ProxmoxMachine>("a", "Ready", "WaitingForInstance")
        .await;
    // Who starts now has never heard of it.
    bed.crash_operator().await;
    bed.start_operator();
    let machines = bed.api::<ProxmoxMachine>();
    let asked = machines.delete("a", &DeleteParams::default()).await;
    assert!(asked.unwrap().is_left());
    bed.until::<ProxmoxMachine>("a", "saying what to do", |machine| {
        message(machine).contains("list it in the ProxmoxCluster again")
    })
    .await;
    assert_eq!(on(&bed, 1, "a").await.len(), 1);
    bed.change::<ProxmoxCluster>("prod", settings).await;
    bed.until_gone::<ProxmoxMachine>("a").await;
    assert!(on(&bed, 1, "a").await.is_empty());
}
