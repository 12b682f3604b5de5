//! Random lives, and crashes at every single call.

use api::vm::{Provider, VirtualMachine};
use scenarios::{Bed, CrashPoint, simulate};
use serde_json::json;

use crate::{manifest, prepare};

#[test]
#[ignore = "takes minutes: run with --ignored, or `cargo xtask simulate`"]
fn random_lives_under_faults_and_crashes_end_well() {
    for seed in 0..12 {
        let story = simulate(seed);
        assert!(story.wrong.is_empty(), "{}", story.tell());
    }
}

/// A flow that is crashed at each of its calls.
#[derive(Clone, Copy)]
enum Flow {
    Create,
    Reconfigure,
    Delete,
}

/// Runs a flow once, crashing at a call; says whether it came that far.
async fn crash_once(flow: Flow, point: CrashPoint) -> bool {
    let mut bed = Bed::new().await;
    prepare(&bed).await;
    bed.until_ready::<Provider>("proxmox-prod").await;
    let foreign = bed.foreign().await;
    if !matches!(flow, Flow::Create) {
        bed.apply(manifest!("machine")).await;
        bed.until_ready::<VirtualMachine>("web-server").await;
    }
    bed.line().crash_at(point);
    match flow {
        Flow::Create => bed.apply(manifest!("machine")).await,
        Flow::Reconfigure => {
            let spec = json!({
                "cpus": 4, "updatePolicy": "RestartIfNeeded",
                "disks": [{ "name": "root", "size": "50Gi" }, { "name": "data", "size": "5Gi", "storage": "local-lvm" }],
            });
            bed.change::<VirtualMachine>("web-server", spec).await;
        }
        Flow::Delete => {
            let api = bed.api::<VirtualMachine>();
            api.delete("web-server", &kube::api::DeleteParams::default())
                .await
                .unwrap();
        }
    }
    // Long enough for the whole flow: if the call never comes, the flow has no so many.
    let limit = std::time::Duration::from_mins(5);
    let reached = tokio::time::timeout(limit, bed.line().crashed())
        .await
        .is_ok();
    let journal = bed.line().journal();
    if reached {
        bed.crash_operator().await;
        bed.start_operator();
    }
    match flow {
        Flow::Delete => bed.until_gone::<VirtualMachine>("web-server").await,
        _ => drop(bed.until_ready::<VirtualMachine>("web-server").await),
    }
    bed.sleep(std::time::Duration::from_mins(2)).await;
    let wrong = bed.check(&foreign).await;
    assert!(
        wrong.is_empty(),
        "crashed at {point:?}: {wrong:#?}\ncalls: {journal:#?}"
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
#[ignore = "takes minutes: run with --ignored, or `cargo xtask simulate`"]
fn a_crash_at_any_call_of_a_creation_is_survived() {
    assert!(crash_everywhere(Flow::Create) > 20);
}

#[test]
#[ignore = "takes minutes: run with --ignored, or `cargo xtask simulate`"]
fn a_crash_at_any_call_of_a_reconfiguration_is_survived() {
    assert!(crash_everywhere(Flow::Reconfigure) > 10);
}

#[test]
#[ignore = "takes minutes: run with --ignored, or `cargo xtask simulate`"]
fn a_crash_at_any_call_of_a_deletion_is_survived() {
    assert!(crash_everywhere(Flow::Delete) > 10);
}
