//! Images by address: downloaded, imported, made a template, shared, collected.

use std::{fmt::Write as _, time::Duration};

use fleet::{
    ImageProgress, ImageRecord, Outcome, StepKind, StorageId,
    intent::{Checksum, ChecksumKind, CloneMode, ImageIntent, Source, TemplateRef, VmidRange},
    record::ReplicaStage,
};
use pve::api::guest::ConfigView;
use pve_sim::{Action, Fault};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::harness::{Bench, cluster_name, machine, owner};

mod failing;
mod nodes;

const CONTENT: &[u8] = b"not really a disk, but nobody looks";

/// Serves one file to whoever asks.
async fn web() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0u8; 2048];
            let _ = stream.read(&mut request).await;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                CONTENT.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(CONTENT).await;
        }
    });
    format!("http://{address}/noble.img")
}

pub(crate) fn image(name: &str, url: &str) -> ImageIntent {
    let digest = Sha256::digest(CONTENT);
    ImageIntent {
        owner: owner(name),
        cluster: cluster_name(),
        name: "noble".to_owned(),
        url: url.to_owned(),
        checksum: Some(Checksum {
            kind: ChecksumKind::Sha256,
            hex: digest.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            }),
        }),
        storage: StorageId::new("local-lvm").expect("a storage"),
        download_storage: None,
        nodes: Vec::new(),
        vmids: VmidRange::default(),
        pool: None,
        uefi: false,
        tags: Vec::new(),
    }
}

/// Calls until the image rests, as a controller would. Crashes once when `crash_after` requests were made.
pub(crate) async fn drive(
    bench: &mut Bench,
    intent: &ImageIntent,
    record: &mut ImageRecord,
    gone: bool,
) -> ImageProgress {
    let mut last = None;
    for _ in 0..2000 {
        let progress = if gone {
            bench.fleet.delete_image(intent, record).await
        } else {
            bench.fleet.image(intent, record).await
        };
        if bench
            .crash_after
            .is_some_and(|n| bench.cluster().control().total() >= n)
        {
            bench.crash_after = None;
            bench.restart();
            continue;
        }
        record.clone_from(&progress.record);
        match &progress.outcome {
            Outcome::Settled | Outcome::Gone | Outcome::Failed { .. } => return progress,
            Outcome::Persist => {}
            _ => bench.run_for(Duration::from_secs(1)).await,
        }
        last = Some(progress.outcome);
    }
    panic!("the image does not come to rest: {last:?} {record:?}");
}

#[tokio::test(start_paused = true)]
async fn an_image_becomes_a_template_that_machines_are_made_from_and_leaves_no_download() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let before = bench.inventory().await;
    let (intent, mut record) = (image("noble", &url), ImageRecord::default());
    let progress = drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(progress.outcome, Outcome::Settled, "{progress:?}");
    bench.run_for(Duration::from_secs(15)).await;
    let templates = drive(&mut bench, &intent, &mut record, false)
        .await
        .facts
        .templates;
    let (_, vmid) = templates.first().cloned().expect("a template");
    let volumes = bench.inventory().await.volumes;
    assert!(
        !volumes
            .iter()
            .any(|volume| volume.contains("import/oxmox-"))
    );

    let mut web = machine("web", "unused");
    web.source = Source::Template {
        from: TemplateRef::AnyOf(vec![vmid]),
        mode: CloneMode::Auto,
        snapshot: None,
    };
    let guest = bench.want(web);
    bench.run().await;
    assert_eq!(bench.progress(&guest).outcome, Outcome::Settled);

    // What links to a template keeps it.
    let progress = bench.fleet.delete_image(&intent, &record).await;
    assert!(!progress.outcome.is_done(), "{:?}", progress.outcome);
    bench.delete(&guest);
    bench.run().await;
    let progress = drive(&mut bench, &intent, &mut record, true).await;
    assert_eq!(progress.outcome, Outcome::Gone);
    let after = bench.inventory().await;
    assert_eq!(after.volumes, before.volumes);
    assert_eq!(after.guests.len(), before.guests.len());
}

#[tokio::test(start_paused = true)]
async fn two_owners_share_a_template_and_the_last_one_takes_it_away() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let before = bench.inventory().await.guests.len();
    let (first, second) = (image("first", &url), image("second", &url));
    let (mut one, mut two) = (ImageRecord::default(), ImageRecord::default());
    drive(&mut bench, &first, &mut one, false).await;
    bench.run_for(Duration::from_secs(15)).await;
    drive(&mut bench, &second, &mut two, false).await;
    assert_eq!(bench.inventory().await.guests.len(), before + 1);

    assert_eq!(
        drive(&mut bench, &first, &mut one, true).await.outcome,
        Outcome::Gone
    );
    bench.run_for(Duration::from_secs(15)).await;
    assert_eq!(bench.inventory().await.guests.len(), before + 1);
    let still = drive(&mut bench, &second, &mut two, false).await;
    assert_eq!(still.outcome, Outcome::Settled);
    assert_eq!(still.facts.templates.len(), 1);

    assert_eq!(
        drive(&mut bench, &second, &mut two, true).await.outcome,
        Outcome::Gone
    );
    assert_eq!(bench.inventory().await.guests.len(), before);
}

/// What was sent last before a crash is in no record.
#[tokio::test(start_paused = true)]
async fn a_template_that_was_begun_before_a_crash_is_not_forgotten_for_another_one_made_since() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let before = bench.inventory().await.guests.len();
    let (first, second) = (image("first", &url), image("second", &url));
    let mut one = ImageRecord::default();
    loop {
        let progress = bench.fleet.image(&first, &one).await;
        let flying = progress.record.replicas.values();
        let mut flying = flying.flat_map(|replica| &replica.in_flight);
        if flying.any(|task| task.step == StepKind::Create) {
            break;
        }
        one = progress.record;
        if progress.outcome != Outcome::Persist {
            bench.run_for(Duration::from_secs(1)).await;
        }
    }
    bench.restart();
    bench.ready().await;
    let mut two = ImageRecord::default();
    drive(&mut bench, &second, &mut two, false).await;
    bench.run_for(Duration::from_secs(15)).await;
    for (intent, record) in [(&first, &mut one), (&second, &mut two)] {
        let kept = drive(&mut bench, intent, record, false).await;
        assert_eq!(kept.outcome, Outcome::Settled);
        let gone = drive(&mut bench, intent, record, true).await;
        assert_eq!(gone.outcome, Outcome::Gone);
    }
    assert_eq!(bench.inventory().await.guests.len(), before);
}

/// PVE copies tags and notes along.
#[tokio::test(start_paused = true)]
async fn a_template_that_somebody_made_of_an_images_template_is_neither_used_nor_removed() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let (first, mut one) = (image("first", &url), ImageRecord::default());
    drive(&mut bench, &first, &mut one, false).await;
    let (node, replica) = one.replicas.first_key_value().unwrap();
    let (node, original) = (node.clone(), replica.vmid);
    let theirs = pve::Vmid::new(555).unwrap();
    let copy = pve::CloneGuest {
        full: Some(true),
        ..pve::CloneGuest::new(theirs)
    };
    let handle = bench.client().node(&node);
    handle.qemu(original).clone_to(&copy).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    handle.qemu(theirs).make_template().await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let gone = drive(&mut bench, &first, &mut one, true).await;
    assert_eq!(gone.outcome, Outcome::Gone);
    bench.run_for(Duration::from_mins(1)).await;
    let (second, mut two) = (image("first", &url), ImageRecord::default());
    let made = drive(&mut bench, &second, &mut two, false).await;
    assert_eq!(made.outcome, Outcome::Settled);
    assert!(two.replicas.values().all(|it| it.vmid != theirs), "{two:?}");
    let gone = drive(&mut bench, &second, &mut two, true).await;
    assert_eq!(gone.outcome, Outcome::Gone);
    let config = handle.qemu(theirs).config(ConfigView::Next).await;
    assert!(config.unwrap().is_template(), "theirs stays");
}

#[tokio::test(start_paused = true)]
async fn a_download_with_another_checksum_is_never_imported() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let before = bench.inventory().await;
    let mut intent = image("noble", &url);
    if let Some(sum) = &mut intent.checksum {
        sum.hex = "0".repeat(64);
    }
    let mut record = ImageRecord::default();
    for _ in 0..40 {
        record = bench.fleet.image(&intent, &record).await.record;
        bench.run_for(Duration::from_secs(5)).await;
    }
    let after = bench.inventory().await;
    assert_eq!(after.guests.len(), before.guests.len());
    assert_eq!(after.volumes, before.volumes);
}

/// PVE refuses a second download of the same name, unless it can compare the file.
#[tokio::test(start_paused = true)]
async fn a_download_whose_answer_is_lost_is_used_though_it_has_no_checksum() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = image("noble", &url);
    intent.checksum = None;
    let fault = Fault::once("POST */download-url", Action::DropAnswer);
    bench.cluster().control().inject(fault);
    let mut record = ImageRecord::default();
    let made = drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(made.outcome, Outcome::Settled, "{made:?}");
}

/// Somebody makes a guest of the chosen number on another node while the image is fetched.
#[tokio::test(start_paused = true)]
async fn an_image_whose_vmid_is_taken_on_another_node_gets_another_one() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let (intent, mut record) = (image("noble", &url), ImageRecord::default());
    let chosen = bench.fleet.image(&intent, &record).await;
    assert_eq!(chosen.outcome, Outcome::Persist);
    record = chosen.record;
    let (node, taken) = record
        .replicas
        .iter()
        .map(|(node, replica)| (node.clone(), replica.vmid))
        .next()
        .unwrap();
    let nodes = bench.cluster().nodes();
    let other = nodes.into_iter().find(|name| *name != node.to_string());
    let other = bench
        .client()
        .node(&pve::NodeName::new(other.unwrap()).unwrap());
    let foreign = pve::CreateQemu::new(taken, pve::GuestConfig::new().with("name", "theirs"));
    other.create_qemu(&foreign).await.unwrap();
    let made = drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(made.outcome, Outcome::Settled, "{made:?}");
    assert_ne!(record.replicas[&node].vmid, taken);
    let volumes = bench.inventory().await.volumes;
    assert!(
        !volumes
            .iter()
            .any(|volume| volume.contains("import/oxmox-"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_goes_though_the_vmid_of_its_template_to_be_is_anothers_by_now() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let (intent, mut record) = (image("noble", &url), ImageRecord::default());
    let busy = Fault::every("POST /nodes/{node}/qemu", Action::die("got no worker"));
    bench.cluster().control().inject(busy);
    let replica = loop {
        record = bench.fleet.image(&intent, &record).await.record;
        let (node, replica) = match record.replicas.first_key_value() {
            Some((node, replica)) => (node.clone(), replica.clone()),
            None => continue,
        };
        if replica.stage >= ReplicaStage::Downloaded {
            break (node, replica.vmid);
        }
        bench.run_for(Duration::from_secs(1)).await;
    };
    bench.cluster().control().clear();
    let (node, vmid) = replica;
    let nodes = bench.cluster().nodes();
    let other = nodes.into_iter().find(|other| other != node.as_str());
    let other = pve::NodeName::new(other.unwrap()).unwrap();
    let theirs = pve::api::qemu::CreateQemu::new(vmid, pve::GuestConfig::new());
    let made = bench.client().node(&other).create_qemu(&theirs).await;
    bench.client().wait(&made.unwrap()).await.unwrap();
    bench.restart();
    bench.ready().await;
    let gone = drive(&mut bench, &intent, &mut record, true).await;
    assert_eq!(gone.outcome, Outcome::Gone);
    let inventory = bench.inventory().await;
    assert!(inventory.guests.contains_key(&vmid.get()));
    let mut volumes = inventory.volumes.iter();
    assert!(!volumes.any(|volume| volume.contains("import/oxmox-")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_keeps_no_other_from_having_the_image() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = image("noble", &url);
    let [down, up] = ["pve1", "pve2"].map(|name| pve::NodeName::new(name).unwrap());
    intent.nodes = vec![down, up.clone()];
    bench.answer_from("pve2");
    bench.cluster().kill_node("pve1");
    bench.run_for(Duration::from_mins(2)).await;
    let mut record = ImageRecord::default();
    for _ in 0..60 {
        let progress = bench.fleet.image(&intent, &record).await;
        record = progress.record;
        if progress.outcome != Outcome::Persist {
            bench.run_for(Duration::from_secs(2)).await;
        }
    }
    let there = bench.fleet.image(&intent, &record).await;
    assert!(
        matches!(
            there.outcome,
            Outcome::Waiting {
                what: fleet::Waiting::NodeDown,
                ..
            }
        ),
        "{:?}",
        there.outcome
    );
    let on: Vec<_> = there
        .facts
        .templates
        .into_iter()
        .map(|(node, _)| node)
        .collect();
    assert_eq!(on, [up]);
}

/// Prepares and removes an image with a crash at the nth request; false when there were fewer.
async fn crash_at(n: u64, action: &Action, remove: bool) -> bool {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let before = bench.inventory().await;
    let (intent, mut record) = (image("noble", &url), ImageRecord::default());
    if remove {
        drive(&mut bench, &intent, &mut record, false).await;
    }
    bench.cluster().control().reset_counts();
    bench
        .cluster()
        .control()
        .inject(Fault::nth("*", n, action.clone()));
    bench.crash_after = Some(n);
    let progress = drive(&mut bench, &intent, &mut record, remove).await;
    assert!(progress.outcome.is_done(), "request {n}, {action:?}");
    let hit = bench.crash_after.is_none();
    bench.crash_after = None;
    bench.cluster().control().clear();
    drive(&mut bench, &intent, &mut record, true).await;
    let after = bench.inventory().await;
    assert_eq!(after.guests, before.guests, "request {n}, {action:?}");
    assert_eq!(after.volumes, before.volumes, "request {n}, {action:?}");
    hit
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_request_of_an_image_leaves_one_template_and_then_none() {
    for remove in [false, true] {
        for action in [Action::DropAnswer, Action::DropRequest] {
            let mut points = 0;
            while crash_at(points + 1, &action, remove).await {
                points += 1;
                assert!(points < 100, "a hundred requests for one image");
            }
            println!("image, remove: {remove}, {action:?}: {points} points");
            assert!(points >= 2, "only {points} points were tried");
        }
    }
}

#[tokio::test]
async fn a_guest_that_has_got_the_number_of_an_image_does_not_become_a_template() {
    let mut bench = Bench::new();
    bench.ready().await;
    let url = web().await;
    let (intent, mut record) = (image("noble", &url), ImageRecord::default());
    let fault = bench.cluster().control().inject(Fault::sometimes(
        "POST /nodes/{node}/qemu/{vmid}/template",
        1.0,
        Action::die("not now"),
    ));
    let (node, imported) = loop {
        let progress = bench.fleet.image(&intent, &record).await;
        record = progress.record;
        let done = |it: &&fleet::record::ReplicaRecord| it.stage == ReplicaStage::Imported;
        let mut replicas = record.replicas.iter();
        if let Some((node, replica)) = replicas.find(|(_, it)| done(it)) {
            break (node.clone(), replica.vmid);
        }
        bench.run_for(Duration::from_millis(20)).await;
    };
    let qemu = bench.client().node(&node).qemu(imported);
    bench.cluster().control().remove(fault);
    let notes = pve::GuestConfig::new().with("description", "somebody else's");
    qemu.configure(&pve::ConfigChange::set(notes))
        .await
        .unwrap();
    let progress = drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(progress.outcome, Outcome::Settled);
    let config = qemu.config(pve::api::guest::ConfigView::Next).await;
    assert!(!config.unwrap().is_template());
    assert!(record.replicas.values().all(|it| it.vmid != imported));
}

/// PVE writes no mark on a guest before it is complete, so for that long it looks like anybody's.
#[tokio::test(start_paused = true)]
async fn an_import_whose_answer_is_lost_is_waited_for_and_makes_no_second_guest() {
    let mut bench = Bench::life_like(5);
    bench.ready().await;
    let before = bench.inventory().await;
    let url = "https://images.example.com/noble.img";
    // Large enough for the import to take its time.
    bench.cluster().control().serve(url, vec![7; 8 << 20]);
    let mut intent = image("noble", url);
    intent.checksum = None;
    let lost = Fault::once("POST /nodes/{node}/qemu", Action::DropAnswer);
    bench.cluster().control().inject(lost);
    let mut record = ImageRecord::default();
    let made = drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(made.outcome, Outcome::Settled);
    assert_eq!(made.facts.templates.len(), 1);
    let guests = bench.inventory().await.guests.len();
    assert_eq!(guests, before.guests.len() + 1);
    drive(&mut bench, &intent, &mut record, true).await;
    let after = bench.inventory().await;
    assert_eq!(after.guests, before.guests);
    assert_eq!(after.volumes, before.volumes);
}

#[tokio::test(start_paused = true)]
async fn a_template_that_somebody_has_moved_goes_with_its_image() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let before = bench.inventory().await;
    let mut intent = image("noble", &url);
    intent.storage = StorageId::new("ceph").unwrap();
    let mut record = ImageRecord::default();
    drive(&mut bench, &intent, &mut record, false).await;
    let (node, replica) = record.replicas.first_key_value().unwrap();
    let other = if node.as_str() == "pve3" {
        "pve2"
    } else {
        "pve3"
    };
    let other = pve::NodeName::new(other).unwrap();
    let qemu = bench.client().node(node).qemu(replica.vmid);
    let to = pve::api::guest::migrate::MigrateQemu {
        online: false,
        ..pve::api::guest::migrate::MigrateQemu::online(other)
    };
    let moved = qemu.migrate(&to).await.unwrap();
    bench.client().wait(&moved).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    drive(&mut bench, &intent, &mut record, true).await;
    assert_eq!(bench.inventory().await.guests, before.guests);
}

/// Who joins a template reads its tags and writes them with its own; somebody else may write others in between.
#[tokio::test(start_paused = true)]
async fn tags_that_somebody_writes_while_an_image_joins_a_template_stay() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let (first, mut record) = (image("noble", &url), ImageRecord::default());
    drive(&mut bench, &first, &mut record, false).await;
    bench.run_for(Duration::from_secs(15)).await;
    let (node, replica) = record.replicas.first_key_value().expect("a template");
    let template = bench.client().node(node).qemu(replica.vmid);

    let second = image("mirror", &url);
    let late = Action::Delay { ms: 5_000 };
    let write = "PUT /nodes/{node}/qemu/{vmid}/config";
    bench.cluster().control().inject(Fault::once(write, late));
    let join = async {
        let mut record = ImageRecord::default();
        for _ in 0..4 {
            record = bench.fleet.image(&second, &record).await.record;
        }
        record
    };
    let meddle = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let config = template.config(ConfigView::Next).await.unwrap();
        let tags = format!("{};theirs", config.get("tags").unwrap());
        let change = pve::ConfigChange::set(pve::GuestConfig::new().with("tags", tags));
        template.configure(&change).await.unwrap();
    };
    let (mut record, ()) = tokio::join!(join, meddle);
    let joined = drive(&mut bench, &second, &mut record, false).await;
    assert_eq!(joined.outcome, Outcome::Settled);
    let config = template.config(ConfigView::Next).await.unwrap();
    let tags: Vec<&str> = config.get("tags").unwrap().split(';').collect();
    assert!(tags.contains(&"theirs"), "{tags:?}");
}

/// PVE marks a guest as a template before it turns its disks into base volumes.
#[tokio::test(start_paused = true)]
async fn a_template_whose_making_stopped_half_way_is_made_whole() {
    let url = web().await;
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = image("noble", &url);
    intent.uefi = true;
    let exit = "lvchange error".to_owned();
    let convert = "POST /nodes/{node}/qemu/{vmid}/template";
    let fault = Fault::once(convert, Action::FailTask { exit });
    bench.cluster().control().inject(fault);
    let mut record = ImageRecord::default();
    let progress = drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(progress.outcome, Outcome::Settled);
    let (node, replica) = record.replicas.first_key_value().expect("a template");
    let template = bench.client().node(node).qemu(replica.vmid);
    let config = template.config(ConfigView::Next).await.unwrap();
    for disk in ["scsi0", "efidisk0"] {
        let volume = config.get(disk).expect("a disk");
        assert!(volume.contains(":base-"), "{disk}: {volume}");
    }
}
