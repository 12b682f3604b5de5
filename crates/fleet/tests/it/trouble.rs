//! Nodes, clusters and credentials that fail.

use std::time::Duration;

use fleet::{
    ClusterName, Fleet, GuestIntent, GuestRecord, Identity, NodeName, Options, Outcome, Owner,
    PowerFact, StepKind, StorageId, Waiting,
    intent::{Power, Readiness, Source},
    record::Leftover,
};
use pve::{
    ConfigChange, GuestConfig, VolumeId,
    api::{guest::ConfigView, storage::upload::Upload},
    task::TaskFilter,
};
use pve_sim::{Action, Fault, Latency, Simulator, Spread, Step};

use crate::harness::{Bench, cluster_name, machine};

const TEMPLATE: &str = "ubuntu-24-04";

fn waits_for(outcome: &Outcome) -> Option<Waiting> {
    match outcome {
        Outcome::Waiting { what, .. } => Some(*what),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_whose_node_is_down_is_waited_for_and_not_forgotten() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    let node = bench.progress(&owner).facts.node.clone().unwrap();
    bench.answer_from(&bench.other_than(&node));
    bench.cluster().kill_node(node.as_str());
    bench.run_for(Duration::from_mins(2)).await;
    let outcome = bench.progress(&owner).outcome.clone();
    assert_eq!(waits_for(&outcome), Some(Waiting::NodeDown), "{outcome:?}");

    // Deleting it means waiting, too: "not to be seen" is not "gone".
    bench.delete(&owner);
    bench.run_for(Duration::from_mins(5)).await;
    let last = bench.call_now(&owner).await;
    assert!(!last.outcome.is_done(), "{last:?}");

    bench.cluster().revive_node(node.as_str());
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
    assert!(bench.inventory().await.of(&owner).is_empty());
}

/// A machine that does not hear that it shall go down, while its node is lost.
async fn lost_while_going_down() -> (Bench, Owner, Identity) {
    let mut bench = Bench::life_like(7);
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    let owner = bench.want(intent.clone());
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let other = bench.other_than(&identity.node);
    bench.answer_from(&other);
    bench.run_for(Duration::from_mins(1)).await;
    let vmid = identity.vmid.get();
    bench.cluster().hang_guest(vmid).unwrap();
    intent.power = Power::Off;
    bench.want(intent);
    bench.call_now(&owner).await;
    let record = bench.record(&owner);
    assert!(!record.in_flight.is_empty(), "{record:?}");
    bench.cluster().kill_node(identity.node.as_str());
    (bench, owner, identity)
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_lost_node_is_given_up_once_its_guest_is_elsewhere() {
    let (mut bench, owner, identity) = lost_while_going_down().await;
    bench.run_for(Duration::from_mins(5)).await;
    let waits = bench.call_now(&owner).await;
    assert!(!waits.outcome.is_done(), "{waits:?}");
    let other = bench.other_than(&identity.node);
    let vmid = identity.vmid.get();
    bench.cluster().rescue_guest(vmid, &other).unwrap();
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let facts = &bench.progress(&owner).facts;
    assert_eq!(facts.node.as_ref().map(NodeName::as_str), Some(&*other));
    assert_eq!(facts.power, PowerFact::Stopped);
}

/// How long ten machines take on one node while another is down, perhaps in the middle of a task of ours.
async fn ten_beside_a_dead_node(in_the_middle: bool) -> Duration {
    let mut bench = Bench::life_like(7);
    bench.ready().await;
    let on = |name: &str, node: &str| {
        let mut intent = machine(name, TEMPLATE);
        intent.placement.nodes = vec![NodeName::new(node).unwrap()];
        intent
    };
    let lost = on("lost", "pve2");
    let owner = bench.want(lost.clone());
    bench.run().await;
    let vmid = bench.record(&owner).identity.clone().unwrap().vmid;
    bench.run_for(Duration::from_mins(1)).await;
    if in_the_middle {
        bench.cluster().hang_guest(vmid.get()).unwrap();
        bench.want(GuestIntent {
            power: Power::Off,
            ..lost
        });
        bench.call_now(&owner).await;
        assert!(!bench.record(&owner).in_flight.is_empty());
    }
    bench.cluster().kill_node("pve2");
    bench.run_for(Duration::from_secs(30)).await;
    let asked = Fault::every("GET /nodes/pve2/tasks*", Action::delay(Duration::ZERO));
    bench.cluster().control().inject(asked);
    let began = tokio::time::Instant::now();
    let ten: Vec<_> = (0..10)
        .map(|n| bench.want(on(&format!("web-{n}"), "pve1")))
        .collect();
    for owner in &ten {
        bench.call_now(owner).await;
    }
    while !ten.iter().all(|it| bench.progress(it).outcome.is_done()) {
        bench.run_for(Duration::from_millis(100)).await;
        assert!(
            began.elapsed() < Duration::from_hours(1),
            "{}",
            bench.stories()
        );
    }
    let took = began.elapsed();
    let outcome = &bench.progress(&owner).outcome;
    if in_the_middle {
        assert_eq!(waits_for(outcome), Some(Waiting::NodeDown), "{outcome:?}");
        assert!(format!("{outcome:?}").contains("shutting the guest down"));
    }
    assert_eq!(bench.cluster().control().hits().get("delay"), None);
    bench.cluster().revive_node("pve2");
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    took
}

#[tokio::test(start_paused = true)]
async fn a_task_on_a_node_that_died_holds_up_nobody() {
    let without = ten_beside_a_dead_node(false).await;
    let with = ten_beside_a_dead_node(true).await;
    assert!(
        with < without + Duration::from_secs(5),
        "{with:?}, {without:?} without"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_while_it_is_shown_online_delays_the_others_by_seconds() {
    let mut bench = Bench::life_like(7);
    bench.ready().await;
    let mut intent = machine("lost", TEMPLATE);
    intent.placement.nodes = vec![NodeName::new("pve2").unwrap()];
    let lost = bench.want(intent.clone());
    bench.run().await;
    let vmid = bench.record(&lost).identity.clone().unwrap().vmid;
    bench.cluster().hang_guest(vmid.get()).unwrap();
    let hangs = Fault::every("GET /nodes/pve2/tasks*", Action::Hang);
    bench.cluster().control().inject(hangs);
    intent.power = Power::Off;
    bench.want(intent);
    bench.call_now(&lost).await;
    bench.cluster().control().reset_counts();
    bench.run_for(Duration::from_mins(5)).await;
    let looks = bench.cluster().control().counts()["GET /cluster/resources"];
    assert!(looks >= 20, "{}", bench.counts());
}

#[tokio::test(start_paused = true)]
async fn a_guest_whose_node_left_the_cluster_is_waited_for_until_somebody_rescues_it() {
    let (mut bench, owner, identity) = lost_while_going_down().await;
    bench.cluster().remove_node(identity.node.as_str());
    bench.run_for(Duration::from_mins(5)).await;
    let waits = bench.call_now(&owner).await;
    assert!(!waits.outcome.is_done(), "{waits:?}");
    bench.delete(&owner);
    bench.cluster().control().reset_counts();
    bench.run_for(Duration::from_mins(5)).await;
    assert!(bench.own_requests() <= 10, "{}", bench.counts());
    let waits = bench.call_now(&owner).await;
    assert!(!waits.outcome.is_done(), "PVE still has it: {waits:?}");
    let other = bench.other_than(&identity.node);
    let vmid = identity.vmid.get();
    bench.cluster().rescue_guest(vmid, &other).unwrap();
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
async fn an_image_left_on_a_node_that_is_down_hinders_nobody_and_goes_when_it_is_back() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    bench.answer_from(identity.node.as_str());
    let down = NodeName::new(bench.other_than(&identity.node)).unwrap();
    let storage = StorageId::new("local").unwrap();
    let storage = bench.client().node(&down).storage(&storage);
    let upload = Upload::iso("oxmox-left.iso", 4);
    let task = storage.upload_bytes(&upload, "left".into()).await.unwrap();
    bench.client().wait(&task).await.unwrap();
    let volume = "local:iso/oxmox-left.iso".to_owned();
    let left = Leftover {
        node: down.clone(),
        volume: volume.clone(),
    };
    let matter = bench.matters.get_mut(&owner).unwrap();
    matter.record.leftovers.push(left.clone());

    bench.cluster().kill_node(down.as_str());
    bench.run_for(Duration::from_mins(2)).await;
    assert_eq!(bench.call_now(&owner).await.outcome, Outcome::Settled);
    assert_eq!(bench.record(&owner).leftovers, [left]);
    bench.cluster().revive_node(down.as_str());
    bench.run_for(Duration::from_mins(2)).await;
    assert_eq!(bench.call_now(&owner).await.outcome, Outcome::Settled);
    assert!(bench.record(&owner).leftovers.is_empty());
    assert!(!bench.inventory().await.volumes.contains(&volume));
}

#[tokio::test(start_paused = true)]
async fn a_copy_left_locked_by_a_node_that_died_is_told_of_and_made_under_another_vmid() {
    let mut bench = Bench::life_like(7);
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    let is_cloning = |bench: &Bench| {
        let record = bench.record(&owner);
        let task = record.in_flight.iter().find(|t| t.step == StepKind::Clone);
        task.map(|task| task.upid.node().clone())
    };
    bench.call_now(&owner).await;
    let mut node = None;
    for _ in 0..600 {
        node = is_cloning(&bench);
        if node.is_some() {
            break;
        }
        bench.run_for(Duration::from_millis(100)).await;
        bench.call_now(&owner).await;
    }
    let node = node.expect("a copy is made");
    let first = bench.record(&owner).identity.clone().unwrap().vmid;
    let copy = bench.client().node(&node).qemu(first);
    while copy.config(ConfigView::Next).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bench.answer_from(&bench.other_than(&node));
    bench.cluster().kill_node(node.as_str());
    bench.run_for(Duration::from_mins(1)).await;
    bench.cluster().revive_node(node.as_str());
    bench.run().await;
    let second = bench.record(&owner).identity.clone().unwrap().vmid;
    let inventory = bench.inventory().await;
    assert_eq!(inventory.of(&owner), [second.get()]);
    let story = bench.matters[&owner].story.join("\n");
    assert_ne!(first, second, "{story}");
    assert!(inventory.guests.contains_key(&first.get()), "never removed");
    assert!(story.contains("qm unlock"), "{story}");
}

/// A node that dies while it copies a guest with several disks has written our mark by then, and its lock.
#[tokio::test(start_paused = true)]
async fn a_copy_of_ours_that_nobody_makes_any_more_is_told_of_and_seldom_looked_at() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.call(&owner).await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let config = GuestConfig::new()
        .with("name", "web")
        .with("description", fleet::mark::describe("", &owner));
    let node = bench.client().node(&identity.node);
    let create = pve::api::qemu::CreateQemu::new(identity.vmid, config);
    let task = node.create_qemu(&create).await.unwrap();
    bench.client().wait(&task).await.unwrap();
    let lock = ConfigChange::set(GuestConfig::new().with("lock", "clone"));
    node.qemu(identity.vmid).configure(&lock).await.unwrap();
    let matter = bench.matters.get_mut(&owner).unwrap();
    matter.record.stage = fleet::record::Stage::Making;
    bench.restart();
    bench.ready().await;
    bench.call_now(&owner).await;
    bench.run_for(Duration::from_mins(10)).await;
    let outcome = bench.progress(&owner).outcome.clone();
    assert_eq!(waits_for(&outcome), Some(Waiting::Locked), "{outcome:?}");
    assert!(format!("{outcome:?}").contains("qm unlock"), "{outcome:?}");
    assert!(bench.own_requests() < 60, "{}", bench.counts());
}

#[tokio::test(start_paused = true)]
async fn without_quorum_nothing_is_tried_and_everything_goes_on_when_it_is_back() {
    let mut bench = Bench::new();
    bench.ready().await;
    bench.cluster().lose_quorum();
    bench.run_for(Duration::from_mins(6)).await;
    let facts = bench.fleet.facts(&cluster_name()).unwrap();
    assert_eq!(facts.quorate, Some(false));
    bench.cluster().control().reset_counts();
    let owner = bench.want(machine("web", TEMPLATE));
    let progress = bench.call_now(&owner).await;
    assert_eq!(
        waits_for(&progress.outcome),
        Some(Waiting::Quorum),
        "{progress:?}"
    );
    assert_eq!(bench.requests(), 0, "{}", bench.counts());
    bench.cluster().heal();
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_know_of_the_others_says_nothing_of_their_guests() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let other = bench.other_than(&identity.node);
    bench.answer_from(&other);
    bench.run_for(Duration::from_mins(1)).await;
    bench.cluster().blind_node(&other);
    bench.run_for(Duration::from_mins(5)).await;
    let facts = bench.fleet.facts(&cluster_name()).unwrap();
    assert_eq!(facts.nodes.len(), 3, "{facts:?}");
    bench.delete(&owner);
    bench.run_for(Duration::from_mins(30)).await;
    let waits = bench.call_now(&owner).await;
    assert!(!waits.outcome.is_done(), "{waits:?}");

    bench.cluster().heal();
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
    assert!(bench.inventory().await.of(&owner).is_empty());
}

#[tokio::test(start_paused = true)]
async fn credentials_are_replaced_without_losing_what_is_under_way() {
    let mut bench = Bench::new();
    bench.ready().await;
    let wrong = pve::Credentials::password("root@pam", "changed").unwrap();
    assert!(bench.fleet.set_credentials(&cluster_name(), wrong));
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run_for(Duration::from_mins(1)).await;
    let progress = bench.call_now(&owner).await;
    assert!(!progress.outcome.is_done());
    let right = pve::Credentials::password("root@pam", "oxmox").unwrap();
    assert!(bench.fleet.set_credentials(&cluster_name(), right));
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    assert_eq!(bench.inventory().await.of(&owner).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_clusters_use_the_same_vmids_and_do_not_disturb_each_other() {
    let fleet = Fleet::new();
    let mut wakes = fleet.wakes();
    let names = ["east", "west"].map(|name| ClusterName::new(name).unwrap());
    let sims = [1, 2].map(|seed| Simulator::builder().seed(seed).build());
    for (name, sim) in names.iter().zip(&sims) {
        let cluster = sim.clusters().next().unwrap();
        let client = pve::Client::builder()
            .endpoint("https://pve1:8006")
            .service(cluster.endpoint("pve1"))
            .credentials(pve::Credentials::password("root@pam", "oxmox").unwrap())
            .build()
            .unwrap();
        fleet.connect(name.clone(), client, Options::default());
    }
    let mut matters: Vec<_> = names
        .iter()
        .map(|name| {
            let mut intent = machine(name.as_str(), TEMPLATE);
            intent.cluster = name.clone();
            (intent, GuestRecord::default(), false)
        })
        .collect();
    let deadline = tokio::time::Instant::now() + Duration::from_mins(30);
    while !matters.iter().all(|(_, _, done)| *done) {
        for (intent, record, done) in &mut matters {
            loop {
                let progress = fleet.guest(intent, record).await;
                *record = progress.record;
                *done = progress.outcome == Outcome::Settled;
                if progress.outcome != Outcome::Persist {
                    break;
                }
            }
        }
        let _ = tokio::time::timeout(Duration::from_secs(5), wakes.next_owner()).await;
        assert!(tokio::time::Instant::now() < deadline, "{matters:?}");
    }
    let identities: Vec<_> = matters
        .iter()
        .map(|(_, record, _)| record.identity.clone().unwrap())
        .collect();
    assert_eq!(identities[0].vmid, identities[1].vmid);
    assert_ne!(identities[0].uuid, identities[1].uuid);
    assert_ne!(identities[0].nics["lan"].mac, identities[1].nics["lan"].mac);
}

#[tokio::test(start_paused = true)]
async fn lock_timeouts_slow_down_and_fail_nobody() {
    let mut bench = Bench::new();
    bench.ready().await;
    let busy =
        Action::die("can't lock file '/var/lock/pve-manager/pve-storage-ceph' - got timeout");
    bench.cluster().control().inject(Fault {
        times: Some(12),
        ..Fault::sometimes("POST /nodes/{node}/qemu/{vmid}/clone", 0.5, busy)
    });
    let owners: Vec<_> = (0..20)
        .map(|n| bench.want(machine(&format!("web-{n}"), TEMPLATE)))
        .collect();
    bench.run().await;
    for owner in &owners {
        assert_eq!(bench.progress(owner).outcome, Outcome::Settled);
        assert_eq!(bench.progress(owner).facts.power, PowerFact::Running);
        assert_eq!(bench.inventory().await.of(owner).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_scrape_tells_clusters_guests_and_tasks_without_naming_guests() {
    let mut bench = Bench::new();
    bench.ready().await;
    bench.want(machine("web", TEMPLATE));
    bench.run().await;
    bench.run_for(Duration::from_secs(15)).await;
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(bench.fleet.metrics()));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "oxmox_pve_reachable{cluster=\"lab\"} 1",
        "oxmox_pve_nodes{cluster=\"lab\",state=\"online\"} 3",
        "oxmox_pve_kept_guests{cluster=\"lab\"} 1",
        "oxmox_pve_tasks_running{cluster=\"lab\"} 0",
        "oxmox_pve_tasks_total{cluster=\"lab\",step=\"Clone\",result=\"ok\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("web"), "{text}");
}

/// The times of a small host whose storage takes three seconds for a copy.
fn sluggish() -> Latency {
    let mut latency = Latency::real();
    let copy = Spread {
        median_ms: 3_000.0,
        p95_ms: 3_300.0,
    };
    latency.steps.insert(Step::CloneLinked, copy);
    latency
}

/// How many of the last copies were under way at once, at most.
async fn copies_at_once(bench: &Bench, last: usize) -> usize {
    let mut spans = Vec::new();
    for node in bench.cluster().nodes() {
        let filter = TaskFilter {
            kind: Some("qmclone".to_owned()),
            limit: Some(500),
            ..TaskFilter::default()
        };
        let node = bench.client().node(&node.parse().unwrap());
        let ended = node.tasks(&filter).await.unwrap();
        spans.extend(
            ended
                .iter()
                .map(|task| (task.starttime.unwrap(), task.endtime.unwrap())),
        );
    }
    spans.sort_unstable();
    let spans = &spans[spans.len() - last..];
    let at_once = |second: u64| {
        let under_way = |span: &&(u64, u64)| span.0 <= second && second < span.1;
        spans.iter().filter(under_way).count()
    };
    spans.iter().map(|span| at_once(span.0)).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_became_slow_is_given_less_to_do_at_once() {
    let run = async |before: Latency| {
        let mut bench = Bench::with(Simulator::builder().seed(3).latency(before).build());
        bench.ready().await;
        for n in 0..6 {
            bench.want(machine(&format!("known-{n}"), TEMPLATE));
            bench.run().await;
        }
        bench.cluster().set_latency(sluggish());
        for n in 0..60 {
            bench.want(machine(&format!("web-{n}"), TEMPLATE));
        }
        bench.run().await;
        copies_at_once(&bench, 20).await
    };
    let (always, became) = (run(sluggish()).await, run(Latency::real()).await);
    println!(
        "copies at once: {always} on a host that was always slow, {became} on one that became slow"
    );
    assert!(became < always, "{became} of {always}");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_again_and_again_is_tried_more_and_more_seldom() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.power = Power::Off;
    let owner = bench.want(intent.clone());
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let node = bench.client().node(&identity.node);
    let config = node.qemu(identity.vmid).config(ConfigView::Next).await;
    let disk = config.unwrap().get("scsi0").unwrap().to_owned();
    let volume = VolumeId::new(disk.split(',').next().unwrap()).unwrap();
    let storage = node.storage(&volume.storage());
    storage.delete_volume(&volume, Some(30)).await.unwrap();
    bench.cluster().control().reset_counts();
    intent.power = Power::On;
    bench.want(intent);
    bench.call_now(&owner).await;
    bench.run_for(Duration::from_mins(10)).await;
    let outcome = bench.progress(&owner).outcome.clone();
    assert_eq!(waits_for(&outcome), Some(Waiting::Error), "{outcome:?}");
    let counts = bench.cluster().control().counts();
    let starts = counts.get("POST /nodes/{node}/qemu/{vmid}/status/start");
    assert!(
        starts.is_some_and(|n| (3..15).contains(n)),
        "{}",
        bench.counts()
    );
}

/// A file is sent by the node that was asked.
#[tokio::test(start_paused = true)]
async fn an_upload_through_a_node_that_died_is_sent_again_through_another() {
    let mut bench = Bench::life_like(7);
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.source = Source::Empty;
    intent.policy.readiness = Readiness::Running;
    intent.placement.nodes = vec![NodeName::new("pve2").unwrap()];
    let owner = bench.want(intent);
    let uploads = |bench: &Bench| {
        let flying = &bench.record(&owner).in_flight;
        flying.iter().any(|task| task.step == StepKind::UploadSeed)
    };
    while !uploads(&bench) {
        bench.call_now(&owner).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let upload = bench.record(&owner).in_flight.iter();
    let mut upload = upload.filter(|task| task.step == StepKind::UploadSeed);
    assert_eq!(upload.next().unwrap().upid.node().as_str(), "pve1");
    bench.cluster().kill_node("pve1");
    bench.answer_from("pve2");
    bench.run_for(Duration::from_mins(3)).await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
}
