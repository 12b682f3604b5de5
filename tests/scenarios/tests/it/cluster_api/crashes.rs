//! Crashes at every single call, and random lives under faults and crashes.

use std::time::Duration;

use api::infrastructure::v1beta1::ProxmoxMachine;
use scenarios::{Bed, CrashPoint, Wish};
use serde_json::json;

use super::contract::begin_move;

/// A flow that is crashed at each of its calls.
#[derive(Clone, Copy, Debug)]
enum Flow {
    Create,
    Delete,
    /// A machine comes from another API server, with nothing but its spec.
    Adopt,
}

/// Runs a flow once, crashing at a call; says whether it came that far.
async fn crash_once(flow: Flow, point: CrashPoint) -> bool {
    let mut bed = Bed::builder().start().await;
    bed.install_cluster_api().await;
    let _player = bed.play_cluster_api();
    let foreign = bed.foreign().await;
    match flow {
        Flow::Create => drop(bed.make_cluster(&json!({})).await),
        Flow::Delete => {
            bed.make_cluster(&json!({})).await;
            bed.make_machine(Wish::new("worker-1")).await;
            bed.until_provisioned("worker-1").await;
        }
        Flow::Adopt => begin_move(&mut bed).await,
    }
    bed.line().crash_at(point);
    match flow {
        Flow::Create => bed.make_machine(Wish::new("worker-1")).await,
        Flow::Delete => {
            let now = kube::api::DeleteParams::default();
            bed.api::<ProxmoxMachine>()
                .delete("worker-1", &now)
                .await
                .unwrap();
        }
        Flow::Adopt => bed.pause(false).await,
    }
    // Long enough for the whole flow: if the call never comes, the flow has no so many.
    let limit = Duration::from_mins(5);
    let reached = tokio::time::timeout(limit, bed.line().crashed())
        .await
        .is_ok();
    let journal = bed.line().journal();
    if reached {
        bed.crash_operator().await;
        bed.start_operator();
    }
    match flow {
        Flow::Delete => bed.until_gone::<ProxmoxMachine>("worker-1").await,
        Flow::Create | Flow::Adopt => {
            bed.cluster_provisioned().await;
            bed.until_provisioned("worker-1").await;
            bed.join("worker-1").await;
        }
    }
    bed.sleep(Duration::from_mins(3)).await;
    let wrong = bed.check(&foreign).await;
    assert!(
        wrong.is_empty(),
        "{flow:?} crashed at {point:?}: {wrong:#?}\ncalls: {journal:#?}"
    );
    reached
}

/// Crashes a flow at every call, before and after it; returns the number of crash points.
fn crash_everywhere(flow: Flow) -> u64 {
    let mut points = 0;
    for call in 1..200 {
        let mut reached = false;
        for carried_out in [false, true] {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            reached = runtime.block_on(crash_once(flow, CrashPoint { call, carried_out }));
            points += u64::from(reached);
        }
        if !reached {
            return points;
        }
    }
    points
}

#[test]
fn a_crash_at_any_call_of_a_machines_creation_is_survived() {
    assert!(crash_everywhere(Flow::Create) > 30);
}

#[test]
fn a_crash_at_any_call_of_a_machines_deletion_is_survived() {
    assert!(crash_everywhere(Flow::Delete) > 10);
}

#[test]
fn a_crash_at_any_call_of_a_machines_adoption_is_survived() {
    assert!(crash_everywhere(Flow::Adopt) > 6);
}

#[test]
fn random_lives_of_clusters_end_well() {
    for seed in 0..20 {
        let story = scenarios::simulate_clusters(seed);
        assert!(story.wrong.is_empty(), "{}", story.tell());
    }
}
