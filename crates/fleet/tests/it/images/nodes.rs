//! Nodes that die or are not needed any more while they have, or make, the template of an image.

use std::time::Duration;

use fleet::{ImageRecord, NodeName, Outcome, StepKind, StorageId, intent::ImageIntent};
use pve::api::guest::ConfigView;

use super::{drive, image};
use crate::harness::Bench;

const URL: &str = "https://images.example.com/noble.img";

/// An image, large enough for everything to take its time, on a storage that all nodes see.
async fn shared() -> (Bench, ImageIntent) {
    let mut bench = Bench::life_like(5);
    bench.ready().await;
    bench.cluster().control().serve(URL, vec![7; 8 << 20]);
    let mut intent = image("noble", URL);
    intent.checksum = None;
    intent.storage = StorageId::new("ceph").unwrap();
    (bench, intent)
}

/// Calls until a task of this kind is under way; returns its node.
async fn until(
    bench: &mut Bench,
    intent: &ImageIntent,
    record: &mut ImageRecord,
    step: StepKind,
) -> NodeName {
    for _ in 0..2000 {
        let progress = bench.fleet.image(intent, record).await;
        record.clone_from(&progress.record);
        for (node, replica) in &record.replicas {
            if replica.in_flight.iter().any(|task| task.step == step) {
                return node.clone();
            }
        }
        if progress.outcome != Outcome::Persist {
            bench.run_for(Duration::from_millis(50)).await;
        }
    }
    panic!("no {step:?}: {record:?}");
}

/// Looks as often as a controller does, for so long; returns what was told.
async fn look(
    bench: &mut Bench,
    intent: &ImageIntent,
    record: &mut ImageRecord,
    time: Duration,
) -> String {
    let end = tokio::time::Instant::now() + time;
    let mut told = String::new();
    while tokio::time::Instant::now() < end {
        let progress = bench.fleet.image(intent, record).await;
        record.clone_from(&progress.record);
        for event in &progress.events {
            told.push_str(&event.message);
        }
        if progress.outcome != Outcome::Persist {
            bench.run_for(Duration::from_secs(2)).await;
        }
    }
    told
}

fn die(bench: &mut Bench, node: &NodeName) {
    let other = bench.other_than(node);
    bench.answer_from(&other);
    bench.cluster().kill_node(node.as_str());
}

#[tokio::test(start_paused = true)]
async fn an_image_whose_node_dies_over_the_download_is_made_on_another() {
    let (mut bench, intent) = shared().await;
    let before = bench.inventory().await;
    let mut record = ImageRecord::default();
    let node = until(&mut bench, &intent, &mut record, StepKind::Download).await;
    die(&mut bench, &node);
    look(&mut bench, &intent, &mut record, Duration::from_mins(15)).await;
    let made = drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(made.outcome, Outcome::Settled, "{record:?}");
    assert_eq!(made.facts.templates.len(), 1);
    assert_ne!(made.facts.templates[0].0, node);

    bench.cluster().revive_node(node.as_str());
    look(&mut bench, &intent, &mut record, Duration::from_mins(10)).await;
    assert!(!record.replicas.contains_key(&node), "{record:?}");
    let gone = drive(&mut bench, &intent, &mut record, true).await;
    assert_eq!(gone.outcome, Outcome::Gone);
    assert_eq!(bench.inventory().await, before);
}

#[tokio::test(start_paused = true)]
async fn a_template_whose_node_is_down_for_long_is_made_on_another_and_both_go() {
    let (mut bench, intent) = shared().await;
    let before = bench.inventory().await;
    let mut record = ImageRecord::default();
    drive(&mut bench, &intent, &mut record, false).await;
    bench.run_for(Duration::from_secs(15)).await;
    let (node, _) = record.replicas.first_key_value().expect("a template");
    let node = node.clone();
    die(&mut bench, &node);
    look(&mut bench, &intent, &mut record, Duration::from_mins(3)).await;
    assert_eq!(record.replicas.len(), 1, "it may be back soon: {record:?}");
    look(&mut bench, &intent, &mut record, Duration::from_mins(15)).await;
    let made = drive(&mut bench, &intent, &mut record, false).await;
    let mut there = made.facts.templates.iter().map(|(node, _)| node);
    assert!(there.any(|on| *on != node), "{record:?}");

    bench.cluster().revive_node(node.as_str());
    look(&mut bench, &intent, &mut record, Duration::from_mins(2)).await;
    assert_eq!(record.replicas.len(), 2, "{record:?}");
    let gone = drive(&mut bench, &intent, &mut record, true).await;
    assert_eq!(gone.outcome, Outcome::Gone);
    assert_eq!(bench.inventory().await, before);
}

#[tokio::test(start_paused = true)]
async fn an_import_left_locked_by_a_node_that_died_is_told_of_and_made_under_another_vmid() {
    let (mut bench, intent) = shared().await;
    let mut record = ImageRecord::default();
    let node = until(&mut bench, &intent, &mut record, StepKind::Create).await;
    let first = record.replicas[&node].vmid;
    let half = bench.client().node(&node).qemu(first);
    while half.config(ConfigView::Next).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    die(&mut bench, &node);
    look(&mut bench, &intent, &mut record, Duration::from_mins(1)).await;
    bench.cluster().revive_node(node.as_str());
    let told = look(&mut bench, &intent, &mut record, Duration::from_mins(15)).await;
    assert!(told.contains("qm unlock"), "{told}");
    let made = drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(made.outcome, Outcome::Settled, "{record:?}");
    assert!(made.facts.templates.iter().all(|(_, vmid)| *vmid != first));
    let guests = bench.inventory().await.guests;
    assert!(guests.contains_key(&first.get()), "never removed");
    let gone = drive(&mut bench, &intent, &mut record, true).await;
    assert_eq!(gone.outcome, Outcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_download_for_a_node_that_nobody_needs_it_on_any_more_goes() {
    let (mut bench, mut intent) = shared().await;
    let before = bench.inventory().await;
    intent.storage = StorageId::new("local-lvm").unwrap();
    let [first, second] = ["pve1", "pve2"].map(|name| NodeName::new(name).unwrap());
    intent.nodes = vec![first];
    let mut record = ImageRecord::default();
    until(&mut bench, &intent, &mut record, StepKind::Download).await;
    intent.nodes = vec![second.clone()];
    let made = drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(made.outcome, Outcome::Settled);
    let nodes: Vec<_> = record.replicas.keys().collect();
    assert_eq!(nodes, [&second]);
    let volumes = bench.inventory().await.volumes;
    let mut left = volumes.iter().filter(|it| it.contains("import/oxmox-"));
    assert_eq!(left.next(), None);
    drive(&mut bench, &intent, &mut record, true).await;
    assert_eq!(bench.inventory().await, before);
}
