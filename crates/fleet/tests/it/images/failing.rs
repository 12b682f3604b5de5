//! Images that something is wrong with: their template, their address, their VMID.

use std::time::Duration;

use fleet::{ImageRecord, Outcome};
use pve::api::guest::ConfigView;
use pve_sim::{Action, Fault};

use super::{drive, image, web};
use crate::harness::Bench;

#[tokio::test(start_paused = true)]
async fn a_template_whose_vmid_is_anothers_by_now_is_made_again_under_another_one() {
    let url = web().await;
    for container in [false, true] {
        let mut bench = Bench::new();
        bench.ready().await;
        let (intent, mut record) = (image("noble", &url), ImageRecord::default());
        drive(&mut bench, &intent, &mut record, false).await;
        let (node, replica) = record.replicas.first_key_value().expect("a template");
        let (node, vmid) = (bench.client().node(node), replica.vmid);
        let also = pve::api::guest::DeleteGuest::default();
        let gone = node.qemu(vmid).delete(also).await.unwrap();
        bench.client().wait(&gone).await.unwrap();
        let theirs = pve::GuestConfig::new().with("description", "theirs");
        let made = if container {
            let files = node.storage(&"local".parse().unwrap());
            let files = files.content(Some("vztmpl"), None).await.unwrap();
            let template = files.first().expect("a container template");
            let theirs = theirs.with("rootfs", "local-lvm:1");
            let theirs = pve::CreateLxc::new(vmid, template.volid.to_string(), theirs);
            node.create_lxc(&theirs).await
        } else {
            let theirs = pve::CreateQemu::new(vmid, theirs.with("name", "theirs"));
            node.create_qemu(&theirs).await
        };
        bench.client().wait(&made.unwrap()).await.unwrap();
        bench.run_for(Duration::from_mins(1)).await;
        let again = drive(&mut bench, &intent, &mut record, false).await;
        assert_eq!(again.outcome, Outcome::Settled, "{again:?}");
        assert!(record.replicas.values().all(|it| it.vmid != vmid));
        let theirs = if container {
            node.lxc(vmid).config(ConfigView::Next).await
        } else {
            node.qemu(vmid).config(ConfigView::Next).await
        };
        let theirs = theirs.unwrap();
        assert!(theirs.description().unwrap().starts_with("theirs"));
        assert!(!theirs.is_template());
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_fetched_is_asked_for_ever_more_seldom() {
    let mut bench = Bench::new();
    bench.ready().await;
    let intent = image("noble", "http://127.0.0.1:9/noble.img");
    let mut record = ImageRecord::default();
    let mut last = None;
    for _ in 0..360 {
        let progress = bench.fleet.image(&intent, &record).await;
        record = progress.record;
        last = Some(progress.outcome);
        bench.run_for(Duration::from_secs(10)).await;
    }
    assert!(matches!(last, Some(Outcome::Waiting { .. })), "{last:?}");
    let counts = bench.cluster().control().counts();
    let fetches = counts
        .iter()
        .filter(|(route, _)| route.ends_with("/download-url"));
    let fetches: u64 = fetches.map(|(_, n)| n).sum();
    assert!(
        (3..=10).contains(&fetches),
        "{fetches} downloads in an hour"
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_with_a_broken_address_keeps_no_other_of_its_checksum_waiting() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let before = bench.inventory().await.guests.len();
    let broken = image("broken", "http://127.0.0.1:9/noble.img");
    let intents = [broken, image("good", &url)];
    let mut records = [ImageRecord::default(), ImageRecord::default()];
    let mut outcomes = [Outcome::Persist, Outcome::Persist];
    for _ in 0..600 {
        for at in 0..2 {
            let progress = bench.fleet.image(&intents[at], &records[at]).await;
            records[at] = progress.record;
            outcomes[at] = progress.outcome;
        }
        bench.run_for(Duration::from_secs(1)).await;
    }
    assert_eq!(outcomes, [Outcome::Settled, Outcome::Settled]);
    let replicas = records.map(|record| record.replicas.into_values().next().unwrap());
    assert_eq!(replicas[0].vmid, replicas[1].vmid, "one template for both");
    let inventory = bench.inventory().await;
    assert_eq!(inventory.guests.len(), before + 1);
    let mut volumes = inventory.volumes.iter();
    assert!(!volumes.any(|volume| volume.contains("import/oxmox-")));
}

/// The process that sent it died before it was answered, and the next one is told to remove the image at once.
#[tokio::test(start_paused = true)]
async fn a_template_whose_call_takes_effect_late_goes_with_its_image() {
    let url = "https://images.example.com/noble.img";
    let mut bench = Bench::new();
    bench.ready().await;
    let before = bench.inventory().await;
    bench.cluster().control().serve(url, vec![7; 1 << 20]);
    let mut intent = image("noble", url);
    intent.checksum = None;
    let late = Action::Delay { ms: 5_000 };
    let late = Fault::once("POST /nodes/{node}/qemu", late);
    bench.cluster().control().inject(late);
    let mut record = ImageRecord::default();
    let sent = loop {
        let (fleet, wish, known) = (bench.fleet.clone(), intent.clone(), record.clone());
        let mut pass = tokio::spawn(async move { fleet.image(&wish, &known).await });
        match tokio::time::timeout(Duration::from_secs(1), &mut pass).await {
            Ok(done) => record = done.unwrap().record,
            Err(_) => break pass,
        }
        bench.run_for(Duration::from_millis(200)).await;
    };
    bench.restart();
    bench.ready().await;
    let gone = drive(&mut bench, &intent, &mut record, true).await;
    assert_eq!(gone.outcome, Outcome::Gone);
    sent.await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let after = bench.inventory().await;
    assert_eq!(after.guests, before.guests);
    assert_eq!(after.volumes, before.volumes);
}

/// A full storage is a reason to look for large files that nobody seems to need.
#[tokio::test(start_paused = true)]
async fn a_download_that_somebody_has_removed_before_it_was_imported_is_fetched_again() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let full = Action::FailTask {
        exit: "no space left".to_owned(),
    };
    let full = Fault::once("POST /nodes/{node}/qemu", full);
    bench.cluster().control().inject(full);
    let (intent, mut record) = (image("noble", &url), ImageRecord::default());
    let has_failed = |record: &ImageRecord| {
        let mut replicas = record.replicas.values();
        replicas.any(|it| it.attempts > 0 && it.in_flight.is_empty())
    };
    while !has_failed(&record) {
        record = bench.fleet.image(&intent, &record).await.record;
        bench.run_for(Duration::from_secs(1)).await;
    }
    let (node, replica) = record.replicas.first_key_value().expect("a template");
    let volume = pve::VolumeId::new(replica.volume.clone()).unwrap();
    let storage = bench.client().node(node).storage(&volume.storage());
    let removed = storage.delete_volume(&volume, Some(15)).await.unwrap();
    assert_eq!(removed, None);
    let made = drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(made.outcome, Outcome::Settled, "{made:?}");
}
