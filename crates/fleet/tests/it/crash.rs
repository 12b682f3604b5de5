//! The process dies at every single request, in two ways: the request did its work and the answer was lost, or the
//! request never arrived. Then it starts again from what was stored, and everything must come to rest as if
//! nothing had happened.

use fleet::{
    Outcome,
    intent::{CloneMode, Source, TemplateRef},
};
use pve_sim::{Action, Fault};

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";
/// Templates on local storage, one on each node; copied in full, in one call.
const LOCAL_FULL: &str = "ubuntu-24-04-local";

/// Runs `create` then, if `delete`, its removal, with a crash at the nth request of the last of the two.
/// False when there were fewer requests than that.
async fn crash_at(n: u64, action: Action, template: &str, delete: bool) -> bool {
    let mut bench = Bench::new();
    bench.ready().await;
    let before = bench.inventory().await;
    let mut intent = machine("web", template);
    if template == LOCAL_FULL {
        let from = TemplateRef::Name(template.to_owned());
        intent.source = Source::Template {
            from,
            mode: CloneMode::Full,
            snapshot: None,
        };
    }
    let owner = bench.want(intent);
    if delete {
        bench.run().await;
        bench.delete(&owner);
    }
    bench.cluster().control().reset_counts();
    bench
        .cluster()
        .control()
        .inject(Fault::nth("*", n, action.clone()));
    bench.crash_after = Some(n);
    bench.run().await;
    let hit = bench.crash_after.is_none();
    bench.cluster().control().clear();
    let after = bench.inventory().await;
    let story = || {
        format!(
            "request {n}, {action:?}:\n{}",
            bench.matters[&owner].story.join("\n")
        )
    };
    for (vmid, guest) in &before.guests {
        assert_eq!(
            after.guests.get(vmid),
            Some(guest),
            "guest {vmid} was touched, {}",
            story()
        );
    }
    assert_eq!(after.seeds(), Vec::<&String>::new(), "{}", story());
    if delete {
        assert_eq!(bench.progress(&owner).outcome, Outcome::Gone, "{}", story());
        assert_eq!(after.volumes, before.volumes, "{}", story());
        assert_eq!(after.guests.len(), before.guests.len(), "{}", story());
    } else {
        assert_eq!(
            bench.progress(&owner).outcome,
            Outcome::Settled,
            "{}",
            story()
        );
        assert_eq!(after.of(&owner).len(), 1, "{}", story());
        assert_eq!(after.guests.len(), before.guests.len() + 1, "{}", story());
        let vmid = bench
            .record(&owner)
            .identity
            .as_ref()
            .map(|identity| identity.vmid.get());
        assert_eq!(vmid, after.of(&owner).first().copied(), "{}", story());
    }
    hit
}

async fn every_point(template: &str, delete: bool) {
    for action in [Action::DropAnswer, Action::DropRequest] {
        let mut points = 0;
        for n in 1.. {
            if !crash_at(n, action.clone(), template, delete).await {
                break;
            }
            points = n;
            assert!(n <= 60, "more than sixty requests for one machine");
        }
        assert!(points >= 3, "only {points} points were tried");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_request_of_a_linked_creation_leaves_one_machine() {
    every_point(TEMPLATE, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_request_of_a_full_copy_leaves_one_machine() {
    every_point(LOCAL_FULL, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_request_of_a_removal_leaves_nothing() {
    every_point(TEMPLATE, true).await;
}
