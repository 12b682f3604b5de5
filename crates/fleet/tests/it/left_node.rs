//! Guests that were to be made on a node that has left the cluster.

use std::time::Duration;

use fleet::{
    NodeName, Outcome, StepKind,
    intent::{CloneMode, Source, TemplateRef},
};

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";

#[tokio::test(start_paused = true)]
async fn a_guest_that_was_not_made_when_its_node_left_the_cluster_is_made_on_another() {
    // By a process that knows nothing; by the one that chose the node, and has seen it leave or not.
    for (restarts, looks) in [(true, true), (false, true), (false, false)] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = machine("web", TEMPLATE);
        intent.placement.nodes = vec![NodeName::new("pve3").unwrap()];
        let owner = bench.want(intent.clone());
        bench.call(&owner).await;
        let chosen = bench.record(&owner).identity.as_ref();
        assert_eq!(chosen.map(|it| it.node.as_str()), Some("pve3"));
        bench.cluster().remove_node("pve3");
        if restarts {
            bench.restart();
            bench.ready().await;
        } else if looks {
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        intent.placement.nodes.clear();
        bench.want(intent);
        bench.run().await;
        let story = bench.matters[&owner].story.join("\n");
        let progress = bench.progress(&owner);
        assert_eq!(progress.outcome, Outcome::Settled, "{story}");
        assert_eq!(bench.inventory().await.of(&owner).len(), 1, "{story}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_node_left_the_cluster_before_it_came_there_stays_where_it_is() {
    let mut bench = Bench::new();
    bench.ready().await;
    crate::sources::with_disc(&mut bench, "local-lvm:cloudinit").await;
    let mut intent = machine("web", TEMPLATE);
    intent.source = Source::Template {
        from: TemplateRef::Name("with-disc".to_owned()),
        mode: CloneMode::Full,
        snapshot: None,
    };
    intent.placement.nodes = vec![NodeName::new("pve3").unwrap()];
    let owner = bench.want(intent);
    let is_copied = |bench: &Bench| {
        let mut flying = bench.record(&owner).in_flight.iter();
        flying.any(|task| task.step == StepKind::Clone)
    };
    while !is_copied(&bench) {
        bench.call_now(&owner).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bench.cluster().remove_node("pve3");
    tokio::time::sleep(Duration::from_secs(30)).await;
    bench.call_now(&owner).await;
    bench.run().await;
    let story = bench.matters[&owner].story.join("\n");
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{story}");
    assert_ne!(progress.facts.node, Some(NodeName::new("pve3").unwrap()));
    assert_eq!(bench.inventory().await.of(&owner).len(), 1, "{story}");
    assert!(story.contains("NodeLeft"), "{story}");
}
