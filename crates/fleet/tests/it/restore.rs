//! Machines made from a backup, and what becomes of restores that fail or are not heard of.

use std::{collections::BTreeSet, time::Duration};

use fleet::{
    GuestIntent, Outcome, Owner,
    intent::{BackupMode, Power, Source},
};
use pve::{ConfigChange, CreateQemu, GuestConfig, Vmid};
use pve_sim::{Action, Fault, Latency, Simulator, Spread, Step};

use crate::{
    harness::{Bench, machine},
    sources::config_of,
    tokens,
};

const TEMPLATE: &str = "ubuntu-24-04";
const MAKE: &str = "POST /nodes/{node}/qemu";

/// A machine with a backup, and what makes another one from it.
async fn backed_up(bench: &mut Bench) -> (Owner, GuestIntent) {
    bench.ready().await;
    let first = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let vmid = bench.record(&first).identity.as_ref().unwrap().vmid;
    bench.cluster().fill_disk(vmid.get(), 1 << 30).unwrap();
    let volume = bench.back_up(&first, BackupMode::Snapshot).await;
    let mut again = machine("again", TEMPLATE);
    again.source = Source::Backup { volume };
    again.init = None;
    again.power = Power::On;
    (first, again)
}

/// A small real cluster on which a restore takes minutes.
fn slow() -> Bench {
    let mut latency = Latency::real();
    let copy = Spread {
        median_ms: 120_000.0,
        p95_ms: 130_000.0,
    };
    latency.steps.insert(Step::BackupGib, copy);
    Bench::with(Simulator::builder().seed(7).latency(latency).build())
}

async fn machines(bench: &Bench) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for node in bench.cluster().nodes() {
        let node = bench.client().node(&node.parse().unwrap());
        let list = node.qemu_list(false).await.unwrap();
        found.extend(list.iter().filter_map(|row| row.vmid).map(fleet::Vmid::get));
    }
    found
}

fn failures(bench: &Bench) -> u64 {
    let hits = bench.cluster().control().hits();
    hits.get("fail-task").copied().unwrap_or_default()
}

fn failing() -> Fault {
    let exit = "unable to restore VM - command 'vma extract' failed: exit code 133".to_owned();
    Fault::every(MAKE, Action::FailTask { exit })
}

#[tokio::test(start_paused = true)]
async fn a_backup_becomes_a_guest_with_an_identity_of_its_own() {
    let mut bench = Bench::new();
    let (first, again) = backed_up(&mut bench).await;
    let second = bench.want(again);
    bench.run().await;
    assert_eq!(
        bench.progress(&second).outcome,
        Outcome::Settled,
        "{}",
        bench.stories()
    );
    let (a, b) = (
        config_of(&bench, &first).await,
        config_of(&bench, &second).await,
    );
    assert_eq!(b.name(), Some("again"));
    assert_ne!(a.get("smbios1"), b.get("smbios1"));
    assert_ne!(a.get("net0"), b.get("net0"));
    assert_eq!(bench.inventory().await.of(&first).len(), 1);
    assert_eq!(bench.inventory().await.of(&second).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restore_that_fails_is_tried_again_under_its_vmid_ever_more_seldom() {
    let mut bench = Bench::life_like(7);
    let (_, again) = backed_up(&mut bench).await;
    let before = machines(&bench).await;
    bench.cluster().control().inject(Fault {
        times: Some(5),
        ..failing()
    });
    let second = bench.want(again);
    let begun = tokio::time::Instant::now();
    bench.call_now(&second).await;
    let vmid = bench.record(&second).identity.as_ref().unwrap().vmid;
    while bench.progress(&second).outcome != Outcome::Settled {
        bench.run_for(Duration::from_millis(500)).await;
        let new = &machines(&bench).await - &before;
        assert!(new.len() <= 1, "{new:?} {}", bench.stories());
        let late = begun.elapsed() > Duration::from_mins(30);
        assert!(!late, "{}", bench.stories());
    }
    assert_eq!(failures(&bench), 5);
    assert!(begun.elapsed() > Duration::from_secs(2 + 4 + 8 + 16 + 32));
    assert_eq!(bench.progress(&second).facts.vmid, Some(vmid));
    bench.delete(&second);
    bench.run().await;
    assert_eq!(machines(&bench).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_restore_failed_leaves_nothing_when_it_is_deleted() {
    for restarts in [false, true] {
        let mut bench = Bench::life_like(7);
        let (_, again) = backed_up(&mut bench).await;
        let before = machines(&bench).await;
        let fault = bench.cluster().control().inject(failing());
        let second = bench.want(again);
        bench.call_now(&second).await;
        while failures(&bench) < 2 || !bench.record(&second).in_flight.is_empty() {
            bench.run_for(Duration::from_millis(500)).await;
        }
        assert_eq!(machines(&bench).await.len(), before.len() + 1);
        bench.cluster().control().remove(fault);
        if restarts {
            bench.restart();
        }
        bench.delete(&second);
        bench.run().await;
        assert_eq!(bench.progress(&second).outcome, Outcome::Gone);
        assert_eq!(machines(&bench).await, before, "{}", bench.stories());
    }
}

#[tokio::test(start_paused = true)]
async fn a_restore_of_somebody_elses_keeps_no_guest_waiting_that_was_left_half_made() {
    let mut bench = slow();
    let (_, again) = backed_up(&mut bench).await;
    let Source::Backup { volume } = again.source else {
        panic!("{again:?}");
    };
    let mut intent = machine("third", TEMPLATE);
    intent.power = Power::Off;
    let third = bench.want(intent);
    bench.call(&third).await;
    let identity = bench.record(&third).identity.clone().unwrap();
    let node = bench.client().node(&identity.node);
    // Somebody's copy died under its VMID before anything was written of it but the lock.
    let left = CreateQemu::new(identity.vmid, GuestConfig::new());
    let task = node.create_qemu(&left).await.unwrap();
    bench.client().wait(&task).await.unwrap();
    let lock = ConfigChange::set(GuestConfig::new().with("lock", "clone"));
    node.qemu(identity.vmid).configure(&lock).await.unwrap();
    let mut theirs = CreateQemu::new(Vmid::new(700).unwrap(), GuestConfig::new());
    theirs.archive = Some(volume);
    theirs.unique = true;
    let theirs = node.create_qemu(&theirs).await.unwrap();
    let matter = bench.matters.get_mut(&third).unwrap();
    matter.record.stage = fleet::record::Stage::Making;
    matter.last = None;
    bench.restart();
    bench.ready().await;
    bench.run().await;
    let story = bench.matters[&third].story.join("\n");
    assert_eq!(bench.progress(&third).outcome, Outcome::Settled, "{story}");
    assert_ne!(bench.progress(&third).facts.vmid, Some(identity.vmid));
    let status = bench.client().task_status(&theirs).await.unwrap();
    assert!(status.end().is_none(), "it is restored still: {story}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_restore_answer_does_not_make_a_second_vm() {
    let mut bench = slow();
    let (_, again) = backed_up(&mut bench).await;
    let before = machines(&bench).await;
    let control = bench.cluster().control();
    control.reset_counts();
    control.inject(Fault::once(MAKE, Action::DropAnswer));
    let second = bench.want(again);
    bench.call_now(&second).await;
    bench.run_for(Duration::from_secs(20)).await;
    let outcome = &bench.progress(&second).outcome;
    let waits =
        matches!(outcome, Outcome::Waiting { message, .. } if message.contains("being restored"));
    assert!(waits, "{}", bench.stories());
    bench.run().await;
    assert_eq!(bench.progress(&second).outcome, Outcome::Settled);
    assert_eq!(bench.cluster().control().counts()[MAKE], 1);
    assert_eq!((&machines(&bench).await - &before).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_deleted_while_an_unheard_restore_runs_goes_when_it_has_ended() {
    let mut bench = slow();
    let (_, again) = backed_up(&mut bench).await;
    let before = machines(&bench).await;
    let control = bench.cluster().control();
    control.inject(Fault::once(MAKE, Action::DropAnswer));
    let second = bench.want(again);
    bench.call_now(&second).await;
    bench.delete(&second);
    bench.run().await;
    assert_eq!(bench.progress(&second).outcome, Outcome::Gone);
    assert_eq!(machines(&bench).await, before, "{}", bench.stories());
}

/// Somebody makes a machine of their own of what a failed restore left.
#[tokio::test(start_paused = true)]
async fn a_machine_with_a_name_or_a_disk_is_not_taken_for_what_a_restore_left() {
    for (key, value) in [("name", "theirs"), ("scsi0", "local-lvm:1")] {
        let mut bench = Bench::life_like(7);
        let (_, again) = backed_up(&mut bench).await;
        let before = machines(&bench).await;
        let fault = bench.cluster().control().inject(failing());
        let second = bench.want(again);
        bench.call_now(&second).await;
        while !bench.record(&second).in_flight.is_empty() {
            bench.run_for(Duration::from_millis(100)).await;
        }
        bench.cluster().control().remove(fault);
        let identity = bench.record(&second).identity.clone().unwrap();
        let theirs = bench.client().node(&identity.node).qemu(identity.vmid);
        let change = ConfigChange::set(GuestConfig::new().with(key, value));
        theirs.configure(&change).await.unwrap();
        bench.run().await;
        assert_eq!(bench.progress(&second).outcome, Outcome::Settled);
        assert_ne!(bench.progress(&second).facts.vmid, Some(identity.vmid));
        bench.delete(&second);
        bench.run().await;
        let left = &machines(&bench).await - &before;
        assert_eq!(left, BTreeSet::from([identity.vmid.get()]), "{key}");
    }
}

/// Whose token may see what others do on some nodes only does not know that they restore something under the same number.
#[tokio::test(start_paused = true)]
async fn what_somebody_else_restores_under_a_vmid_that_was_chosen_is_not_removed() {
    for deleted in [false, true] {
        let world = tokens::WORLD.replace("path: /nodes", "path: /nodes/pve1");
        let world = pve_sim::WorldFile::parse(&world).unwrap();
        let mut latency = Latency::real();
        let copy = Spread {
            median_ms: 18_000.0,
            p95_ms: 18_500.0,
        };
        latency.steps.insert(Step::BackupGib, copy);
        let sim = Simulator::builder().seed(7).world(world).latency(latency);
        let mut bench = Bench::with(sim.build());
        let (_, mut again) = backed_up(&mut bench).await;
        again.placement.nodes = vec!["pve1".parse().unwrap()];
        let before = machines(&bench).await;
        tokens::connect(&mut bench).await;
        let second = bench.want(again.clone());
        assert!(bench.call(&second).await, "{}", bench.stories());
        let identity = bench.record(&second).identity.clone().unwrap();

        let Source::Backup { volume } = again.source else {
            unreachable!("it is made from a backup")
        };
        let mut theirs = pve::CreateQemu::new(identity.vmid, GuestConfig::new());
        theirs.archive = Some(volume);
        theirs.unique = true;
        let node = bench.client().node(&"pve2".parse().unwrap());
        node.create_qemu(&theirs).await.unwrap();
        // PVE lets who removes a guest wait ten seconds for whoever holds it, and then removes what is there.
        tokio::time::sleep(Duration::from_secs(10)).await;
        tokens::connect(&mut bench).await;
        bench.matters.get_mut(&second).unwrap().last = None;
        if deleted {
            bench.delete(&second);
        }
        bench.run().await;
        let settled = bench.progress(&second).outcome == Outcome::Settled;
        assert_eq!(settled, !deleted, "{}", bench.stories());
        bench.run_for(Duration::from_mins(5)).await;
        let left = &machines(&bench).await - &before;
        assert!(left.contains(&identity.vmid.get()), "{left:?}");
        assert_eq!(left.len(), if deleted { 1 } else { 2 });
    }
}
