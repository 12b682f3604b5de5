//! Calls whose answer was lost and that take effect later.

use std::time::Duration;

use fleet::{
    NodeName, Outcome, Owner, StepKind,
    intent::{CloneMode, Readiness, Source, TemplateRef},
    mark,
};
use pve::{CreateQemu, GuestConfig};
use pve_sim::{Action, Fault, Latency, Simulator, Spread, Step};
use tokio::time::Instant;

use crate::harness::{Bench, machine};

const CREATE: &str = "POST /nodes/{node}/qemu";

/// A machine whose creation was sent once, and nothing was heard of it.
async fn sent_in_vain(bench: &mut Bench) -> Owner {
    bench.ready().await;
    let lost = Fault::once(CREATE, Action::DropRequest);
    bench.cluster().control().inject(lost);
    let mut intent = machine("web", "unused");
    intent.source = Source::Empty;
    intent.policy.readiness = Readiness::Running;
    let owner = bench.want(intent);
    while !bench.cluster().control().counts().contains_key(CREATE) {
        bench.call(&owner).await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    owner
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_takes_long_and_was_not_heard_of_is_looked_for_ever_more_seldom() {
    const CLONE: &str = "POST /nodes/{node}/qemu/{vmid}/clone";
    let mut latency = Latency::real();
    let copy = Spread {
        median_ms: 900_000.0,
        p95_ms: 910_000.0,
    };
    latency.steps.insert(Step::CopyGib, copy);
    let mut bench = Bench::with(Simulator::builder().seed(7).latency(latency).build());
    bench.ready().await;
    let lost = Fault::once(CLONE, Action::DropAnswer);
    bench.cluster().control().inject(lost);
    let mut intent = machine("web", "ubuntu-24-04");
    intent.source = Source::Template {
        from: TemplateRef::Name("ubuntu-24-04".to_owned()),
        mode: CloneMode::Full,
        snapshot: None,
    };
    intent.placement.nodes = vec![NodeName::new("pve2").unwrap()];
    let began = Instant::now();
    let owner = bench.want(intent);
    bench.run().await;
    let story = bench.matters[&owner].story.join("\n");
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled, "{story}");
    assert_eq!(bench.cluster().control().counts()[CLONE], 1);
    assert!(began.elapsed() > Duration::from_mins(8), "it took long");
    assert!(bench.own_requests() < 200, "{}", bench.counts());
}

/// The call that was lost takes effect.
async fn takes_effect(bench: &Bench, owner: &Owner) {
    let identity = bench.record(owner).identity.clone().unwrap();
    let config = GuestConfig::new()
        .with("name", "web")
        .with("memory", 2048)
        .with("smbios1", format!("uuid={}", identity.uuid))
        .with("description", mark::describe("", owner));
    let node = bench.client().node(&identity.node);
    let create = CreateQemu::new(identity.vmid, config);
    let task = node.create_qemu(&create).await.unwrap();
    bench.client().wait(&task).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_effect_after_a_look_found_nothing_makes_no_second_guest() {
    let mut bench = Bench::new();
    let owner = sent_in_vain(&mut bench).await;
    let first = bench.record(&owner).identity.clone().unwrap();
    // It is looked for and not there, and something else comes first before it is tried again.
    let mut intent = bench.matters[&owner].intent.clone();
    intent.init.as_mut().unwrap().user_data = Some("#cloud-config\npackages: [caddy]\n".into());
    bench.want(intent);
    bench.call_now(&owner).await;
    let flying = &bench.record(&owner).in_flight;
    assert_eq!(
        flying.first().map(|task| task.step),
        Some(StepKind::UploadSeed)
    );
    takes_effect(&bench, &owner).await;
    bench.run().await;
    let story = bench.matters[&owner].story.join("\n");
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled, "{story}");
    assert_eq!(
        bench.inventory().await.of(&owner),
        [first.vmid.get()],
        "{story}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_comes_to_be_while_it_is_deleted_is_deleted_too() {
    for crashes in [false, true] {
        let mut bench = Bench::new();
        let owner = sent_in_vain(&mut bench).await;
        if crashes {
            bench.restart();
            bench.ready().await;
        }
        bench.delete(&owner);
        let progress = bench.call_now(&owner).await;
        assert!(!progress.outcome.is_done(), "{progress:?}");
        takes_effect(&bench, &owner).await;
        bench.run().await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
        let left = bench.inventory().await;
        assert!(
            left.of(&owner).is_empty(),
            "{:?}",
            bench.matters[&owner].story
        );
        assert!(left.seeds().is_empty());
    }
}
