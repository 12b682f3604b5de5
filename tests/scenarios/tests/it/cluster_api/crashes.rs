//! Crashes at every single change.
//!
//! A crash at a read is a crash before the next change, so only changes count: of Proxmox VE and of the Kubernetes API. Each is
//! tried twice, before it was sent and after it was carried out. One bed serves all points of a flow; what one of them left
//! behind would be seen by the next.

use std::time::Duration;

use api::cluster_api::Machine;
use api::infrastructure::v1beta1::ProxmoxMachine;
use scenarios::{Bed, CrashPoint, Guest, Wish};
use serde_json::json;

use super::contract::{put, take};

/// A flow that is crashed at each of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Create,
    Delete,
    /// A machine comes from another API server, with nothing but its spec.
    Adopt,
}

/// No change is this one.
const NEVER: CrashPoint = CrashPoint {
    call: u64::MAX,
    carried_out: false,
};

/// Lets a machine come as if from another API server: the same spec, another identity, no status.
async fn come_from_elsewhere(bed: &mut Bed, name: &str) {
    bed.pause(true).await;
    bed.until_reason::<ProxmoxMachine>(name, "Paused", "Paused")
        .await;
    bed.crash_operator().await;
    let ours = take::<ProxmoxMachine>(bed, name).await;
    let machine = take::<Machine>(bed, name).await;
    let uid = put::<Machine>(bed, machine, None).await;
    put::<ProxmoxMachine>(bed, ours, Some(("Machine", uid))).await;
    bed.join(name).await;
    bed.start_operator();
    bed.until_reason::<ProxmoxMachine>(name, "Paused", "Paused")
        .await;
}

/// Runs a flow once, crashing at a change; says whether it came that far.
async fn crash_once(bed: &mut Bed, foreign: &[Guest], flow: Flow, point: CrashPoint) -> bool {
    let name = format!("w-{}-{}", point.call, u8::from(point.carried_out));
    let dhcp = json!({"network": {"networkDevices": [{"name": "net0", "dhcp4": true}]}});
    let wish = match flow {
        Flow::Adopt => Wish::new(&name).with(&dhcp),
        Flow::Create | Flow::Delete => Wish::new(&name),
    };
    if flow != Flow::Create {
        bed.make_machine(wish.clone()).await;
        bed.until_provisioned(&name).await;
    }
    if flow == Flow::Adopt {
        bed.join(&name).await;
        bed.sleep(Duration::from_mins(1)).await;
        come_from_elsewhere(bed, &name).await;
    }
    bed.line().crash_at(point);
    match flow {
        Flow::Create => bed.make_machine(wish).await,
        Flow::Delete => {
            let now = kube::api::DeleteParams::default();
            bed.api::<ProxmoxMachine>()
                .delete(&name, &now)
                .await
                .unwrap();
        }
        Flow::Adopt => bed.pause(false).await,
    }
    // Long enough for the whole flow: if the change never comes, the flow has no so many.
    let limit = Duration::from_mins(3);
    let reached = tokio::time::timeout(limit, bed.line().crashed())
        .await
        .is_ok();
    let journal = bed.line().journal();
    bed.line().crash_at(NEVER);
    if reached {
        bed.crash_operator().await;
        bed.start_operator();
    }
    if flow != Flow::Delete {
        bed.until_provisioned(&name).await;
        bed.join(&name).await;
        bed.sleep(Duration::from_mins(2)).await;
        let wrong = bed.check(foreign).await;
        assert!(
            wrong.is_empty(),
            "{flow:?} crashed at {point:?}: {wrong:#?}\ncalls: {journal:#?}"
        );
        bed.api::<ProxmoxMachine>()
            .delete(&name, &kube::api::DeleteParams::default())
            .await
            .unwrap();
    }
    bed.until_gone::<ProxmoxMachine>(&name).await;
    let wrong = bed.check(foreign).await;
    assert!(
        wrong.is_empty(),
        "{flow:?} crashed at {point:?}: {wrong:#?}\ncalls: {journal:#?}"
    );
    reached
}

/// Crashes a flow at every change, before and after it; returns the number of crash points.
async fn crash_everywhere(flow: Flow) -> u64 {
    let mut bed = Bed::builder().start().await;
    bed.install_cluster_api().await;
    let _player = bed.play_cluster_api();
    let foreign = bed.foreign().await;
    bed.make_cluster(&json!({})).await;
    bed.line().count_changes_only();
    let mut points = 0;
    for call in 1..100 {
        let mut reached = false;
        for carried_out in [false, true] {
            let point = CrashPoint { call, carried_out };
            reached = crash_once(&mut bed, &foreign, flow, point).await;
            points += u64::from(reached);
        }
        if !reached {
            return points;
        }
    }
    points
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_change_of_a_machines_creation_is_survived() {
    let points = crash_everywhere(Flow::Create).await;
    assert!(points >= 24, "{points}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_change_of_a_machines_deletion_is_survived() {
    let points = crash_everywhere(Flow::Delete).await;
    assert!(points >= 8, "{points}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_change_of_a_machines_adoption_is_survived() {
    let points = crash_everywhere(Flow::Adopt).await;
    assert!(points >= 6, "{points}");
}
