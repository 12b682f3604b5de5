use std::time::Duration;

use fleet::{
    Outcome, Waiting,
    intent::{CloneMode, Deletion, Power, Source},
};
use pve::{ConfigChange, GuestConfig, NodeName, Vmid, api::guest::ConfigView};
use pve_sim::{Action, Fault};

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";

#[tokio::test(start_paused = true)]
async fn a_removed_machine_leaves_nothing_behind() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
    assert!(
        bench
            .client()
            .cluster()
            .is_free(identity.vmid)
            .await
            .unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_goes_when_its_protection_is_no_longer_declared() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut wish = machine("web", TEMPLATE);
    wish.options.protection = Some(true);
    wish.policy.protected = true;
    let owner = bench.want(wish.clone());
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    bench.delete(&owner);
    bench.run_for(Duration::from_mins(2)).await;
    let waits = bench.call_now(&owner).await.outcome;
    let what = |outcome: &Outcome| match outcome {
        Outcome::Waiting { what, .. } => Some(*what),
        _ => None,
    };
    assert_eq!(what(&waits), Some(Waiting::Protected), "{waits:?}");
    wish.options.protection = Some(false);
    wish.policy.protected = false;
    bench.want(wish);
    bench.run().await;
    let cluster = bench.client().cluster();
    assert!(cluster.is_free(identity.vmid).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_somebody_else_protects_stays() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let guest = bench.client().node(&identity.node).qemu(identity.vmid);
    let protect = GuestConfig::new().with("protection", 1);
    guest.configure(&ConfigChange::set(protect)).await.unwrap();
    bench.delete(&owner);
    bench.run_for(Duration::from_mins(5)).await;
    let cluster = bench.client().cluster();
    assert!(!cluster.is_free(identity.vmid).await.unwrap());
}

/// A machine whose guest somebody has removed.
async fn removed_by_hand() -> (Bench, fleet::Owner, pve::Vmid) {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    bench.run_for(Duration::from_mins(10)).await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let stopped = qemu.stop(pve::api::guest::power::Stop::default()).await;
    bench.client().wait(&stopped.unwrap()).await.unwrap();
    let removed = qemu.delete(pve::api::guest::DeleteGuest::default()).await;
    bench.client().wait(&removed.unwrap()).await.unwrap();
    (bench, owner, identity.vmid)
}

/// Who has rights to some guests only is refused those that do not exist.
#[tokio::test(start_paused = true)]
async fn a_machine_that_somebody_removed_is_gone_also_for_who_may_not_ask_for_it() {
    let (mut bench, owner, vmid) = removed_by_hand().await;
    let denied = Action::Error {
        status: 403,
        message: format!("Permission check failed (/vms/{vmid}, VM.Audit)"),
    };
    let route = format!("GET /nodes/*/qemu/{vmid}/config");
    bench
        .cluster()
        .control()
        .inject(Fault::every(route, denied));
    bench.restart();
    bench.ready().await;
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_node_has_left_the_cluster_is_gone_when_its_vmid_is_free() {
    let (mut bench, owner, _) = removed_by_hand().await;
    let matter = bench.matters.get_mut(&owner).unwrap();
    matter.record.identity.as_mut().unwrap().node = pve::NodeName::new("gone9").unwrap();
    bench.restart();
    bench.ready().await;
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_guest_is_released_once_it_is_resumed() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.policy.deletion = Deletion::Orphan;
    intent.power = Power::Suspended;
    let mut running = intent.clone();
    running.power = Power::On;
    let owner = bench.want(running);
    bench.run().await;
    bench.want(intent);
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    bench.delete(&owner);
    let progress = bench.call_now(&owner).await;
    let Outcome::Waiting { message, .. } = &progress.outcome else {
        panic!("{:?}", progress.outcome);
    };
    assert!(message.starts_with("suspended: resume it"), "{message}");
    let node = bench.client().node(progress.facts.node.as_ref().unwrap());
    let qemu = node.qemu(progress.facts.vmid.unwrap());
    qemu.start().await.unwrap();
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
}

/// PVE copies a template's protection; with it a copy could not even be rid of the template's drives.
#[tokio::test(start_paused = true)]
async fn copies_of_a_protected_template_are_configured_and_removed_and_it_stays() {
    for mode in [CloneMode::Auto, CloneMode::Full] {
        for finished in [true, false] {
            let mut bench = Bench::new();
            bench.ready().await;
            let node = bench.client().node(&NodeName::new("pve1").unwrap());
            let template = node.qemu(Vmid::new(9000).unwrap());
            let theirs = GuestConfig::new()
                .with("ide0", "ceph:cloudinit")
                .with("protection", 1);
            template
                .configure(&ConfigChange::set(theirs))
                .await
                .unwrap();
            let before = template.config(ConfigView::Next).await.unwrap();
            let mut intent = machine("web", TEMPLATE);
            if let Source::Template { mode: how, .. } = &mut intent.source {
                *how = mode;
            }
            let owner = bench.want(intent);
            if finished {
                bench.run().await;
                let progress = bench.progress(&owner);
                assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
                let node = bench.client().node(progress.facts.node.as_ref().unwrap());
                let copy = node.qemu(progress.facts.vmid.unwrap());
                let copy = copy.config(ConfigView::Next).await.unwrap();
                assert!(!copy.is_protected());
                assert_eq!(copy.get("ide0"), None);
            } else {
                while bench.record(&owner).in_flight.is_empty() {
                    bench.call_now(&owner).await;
                    bench.run_for(Duration::from_millis(100)).await;
                }
            }
            bench.delete(&owner);
            bench.run().await;
            let outcome = &bench.progress(&owner).outcome;
            assert_eq!(outcome, &Outcome::Gone, "{mode:?} {}", bench.stories());
            assert_eq!(template.config(ConfigView::Next).await.unwrap(), before);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_protection_that_somebody_sets_on_a_copy_is_respected() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    let facts = &bench.progress(&owner).facts;
    let node = bench.client().node(facts.node.as_ref().unwrap());
    let qemu = node.qemu(facts.vmid.unwrap());
    let theirs = GuestConfig::new().with("protection", 1);
    qemu.configure(&ConfigChange::set(theirs)).await.unwrap();
    bench.delete(&owner);
    bench.run_for(Duration::from_mins(5)).await;
    let outcome = bench.call_now(&owner).await.outcome;
    let waits = matches!(
        outcome,
        Outcome::Waiting {
            what: Waiting::Protected,
            ..
        }
    );
    assert!(waits, "{outcome:?}");
}

/// PVE removes no disk that another one is linked to, and says so only in the end of the task.
#[tokio::test(start_paused = true)]
async fn a_removal_that_fails_is_tried_ever_more_seldom_and_ends_when_it_can() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.power = Power::Off;
    let owner = bench.want(intent);
    bench.run().await;
    let facts = bench.progress(&owner).facts.clone();
    let client = bench.client();
    let node = client.node(facts.node.as_ref().unwrap());
    let qemu = node.qemu(facts.vmid.unwrap());
    let task = qemu.make_template().await.unwrap();
    client.wait(&task.unwrap()).await.unwrap();
    let copy = Vmid::new(8000).unwrap();
    let task = qemu.clone_to(&pve::CloneGuest::new(copy)).await.unwrap();
    client.wait(&task).await.unwrap();

    bench.delete(&owner);
    bench.cluster().control().reset_counts();
    bench.run_for(Duration::from_mins(10)).await;
    let counts = bench.cluster().control().counts();
    let tries = counts.get("DELETE /nodes/{node}/qemu/{vmid}");
    let tries = tries.copied().unwrap_or_default();
    assert!((3..15).contains(&tries), "{}", bench.counts());

    let copy = node.qemu(copy);
    let delete = pve::api::guest::DeleteGuest::default();
    let task = copy.delete(delete).await.unwrap();
    client.wait(&task).await.unwrap();
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_guest_with_the_vmid_of_a_lost_one_is_looked_after_when_that_one_is_deleted() {
    let (mut bench, lost, freed) = removed_by_hand().await;
    bench.run_for(Duration::from_mins(1)).await;
    assert!(matches!(
        bench.progress(&lost).outcome,
        Outcome::Failed { .. }
    ));
    let owner = bench.want(machine("next", TEMPLATE));
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    assert_eq!(identity.vmid, freed);
    let qemu = bench.client().node(&identity.node).qemu(freed);
    bench.delete(&lost);
    bench.run().await;
    assert_eq!(bench.progress(&lost).outcome, Outcome::Gone);
    let stop = pve::api::guest::power::Stop::default();
    qemu.stop(stop).await.unwrap();
    bench.run_for(Duration::from_secs(30)).await;
    assert!(qemu.status().await.unwrap().is_running());
}
