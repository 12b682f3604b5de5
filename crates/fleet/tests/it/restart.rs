//! Guests restart for what waits for it, as their policy says.

use std::time::Duration;

use fleet::{
    Outcome,
    intent::{Agent, Bios, EfiDisk, Update},
};
use pve::{ConfigChange, GuestConfig, api::guest::ConfigView};

use crate::{
    change::settled,
    harness::{Bench, machine},
};

const TEMPLATE: &str = "ubuntu-24-04";

async fn has_four_cores(bench: &Bench, owner: &fleet::Owner, qemu: &pve::Qemu) {
    assert_eq!(
        bench.progress(owner).facts.pending,
        Vec::<String>::new(),
        "{}",
        bench.matters[owner].story.join("\n")
    );
    let config = qemu.config(ConfigView::Current).await.unwrap();
    assert_eq!(config.get("cores"), Some("4"));
}

#[tokio::test(start_paused = true)]
async fn more_cores_stay_pending_until_a_restart_that_the_policy_must_allow() {
    let (mut bench, owner, qemu) = settled().await;
    let mut intent = machine("web", TEMPLATE);
    intent.hardware.cpu.cores = Some(4);
    bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    assert_eq!(
        bench.progress(&owner).facts.pending,
        vec!["cores".to_owned()]
    );
    intent.policy.update = Update::RestartIfNeeded;
    bench.want(intent);
    bench.run().await;
    has_four_cores(&bench, &owner, &qemu).await;
}

#[tokio::test(start_paused = true)]
async fn what_waited_for_a_restart_is_done_with_when_somebody_else_restarts_the_guest() {
    for starts_it_too in [false, true] {
        let (mut bench, owner, qemu) = settled().await;
        let mut intent = machine("web", TEMPLATE);
        intent.hardware.cpu.cores = Some(4);
        bench.want(intent.clone());
        bench.run().await;
        assert_eq!(bench.progress(&owner).facts.pending, ["cores"]);
        bench.run_for(Duration::from_mins(1)).await;
        let stop = pve::api::guest::power::Stop::default();
        let task = qemu.stop(stop).await.unwrap();
        bench.client().wait(&task).await.unwrap();
        if starts_it_too {
            let task = qemu.start().await.unwrap();
            bench.client().wait(&task).await.unwrap();
        }
        bench.run_for(Duration::from_mins(2)).await;
        has_four_cores(&bench, &owner, &qemu).await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    }
}

#[tokio::test(start_paused = true)]
async fn staged_changes_are_told_as_waiting_and_are_written_by_the_restart_that_is_asked_for() {
    let (mut bench, owner, qemu) = settled().await;
    let mut intent = machine("web", TEMPLATE);
    intent.policy.update = Update::Staged;
    intent.hardware.cpu.cores = Some(4);
    bench.want(intent.clone());
    bench.run().await;
    let facts = &bench.progress(&owner).facts;
    assert_eq!(facts.pending, ["cores"]);
    assert_eq!(facts.drift, []);
    let config = qemu.config(ConfigView::Next).await.unwrap();
    assert_eq!(config.get("cores"), Some("2"), "nothing is touched");
    intent.restarts = 1;
    bench.want(intent);
    bench.run().await;
    has_four_cores(&bench, &owner, &qemu).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_the_policy_allows_follows_the_change() {
    let (mut bench, owner, qemu) = settled().await;
    let mut intent = machine("web", TEMPLATE);
    intent.hardware.cpu.cores = Some(4);
    intent.policy.update = Update::RestartIfNeeded;
    bench.want(intent);
    bench.run().await;
    has_four_cores(&bench, &owner, &qemu).await;
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_left_pending_is_told_and_restarts_nothing() {
    const REBOOT: &str = "POST /nodes/{node}/qemu/{vmid}/status/reboot";
    let (mut bench, owner, qemu) = settled().await;
    let by_hand = GuestConfig::new().with("vga", "qxl");
    qemu.configure(&ConfigChange::set(by_hand)).await.unwrap();
    let mut intent = machine("web", TEMPLATE);
    intent.policy.update = Update::RestartIfNeeded;
    intent.options.tags = Some(vec!["x".to_owned()]);
    bench.want(intent.clone());
    bench.run().await;
    let restarts = |bench: &Bench| bench.cluster().control().counts().get(REBOOT).copied();
    assert_eq!(restarts(&bench), None);
    assert_eq!(bench.progress(&owner).facts.pending, ["vga"]);
    let told = "RestartRequired: waiting for a restart: vga";
    let times = |bench: &Bench| {
        let story = bench.matters[&owner].story.iter();
        story.filter(|line| line.contains(told)).count()
    };
    assert_eq!(times(&bench), 1);

    // Who comes after a crash knows it, and has no news.
    bench.restart();
    bench.run_for(Duration::from_mins(1)).await;
    bench.call_now(&owner).await;
    assert_eq!(bench.progress(&owner).facts.pending, ["vga"]);
    assert_eq!((times(&bench), restarts(&bench)), (1, None));

    intent.hardware.cpu.cores = Some(4);
    bench.want(intent);
    bench.run().await;
    assert_eq!(restarts(&bench), Some(1));
    has_four_cores(&bench, &owner, &qemu).await;
    let config = qemu.config(ConfigView::Current).await.unwrap();
    assert_eq!(config.get("vga"), Some("qxl"), "it came with the restart");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_hear_is_restarted_by_force_once() {
    let (mut bench, owner, qemu) = settled().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    bench.cluster().hang_guest(identity.vmid.get()).unwrap();
    let mut intent = machine("web", TEMPLATE);
    intent.restarts = 1;
    bench.want(intent);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let told = |story: &[String], what: &str| story.iter().filter(|it| it.contains(what)).count();
    let story = &bench.matters[&owner].story;
    assert_eq!(told(story, "RestartForced"), 1, "{}", story.join("\n"));
    assert_eq!(told(story, "Restarting"), 1, "{}", story.join("\n"));
    let status = qemu.status().await.unwrap();
    assert!(status.uptime.unwrap_or_default() < 60, "{status:?}");
    bench.run_for(Duration::from_mins(30)).await;
    assert_eq!(told(&bench.matters[&owner].story, "Restarting"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_task_left_pending_is_told_as_well() {
    let (mut bench, owner, _) = settled().await;
    let mut intent = machine("web", TEMPLATE);
    intent.hardware.machine = Some("q35".to_owned());
    intent.hardware.bios = Some(Bios::Ovmf);
    // A disk for its variables is made with it, which takes PVE a task.
    intent.hardware.efi = Some(EfiDisk {
        storage: None,
        secure_boot: None,
    });
    bench.want(intent);
    bench.run().await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(
        progress.facts.pending,
        ["bios", "efidisk0", "machine"],
        "{}",
        bench.matters[&owner].story.join("\n")
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_written_before_a_crash_and_waits_for_a_restart_is_told() {
    let (mut bench, owner, _) = settled().await;
    let mut intent = machine("web", TEMPLATE);
    intent.hardware.cpu.cores = Some(4);
    bench.want(intent);
    // The configuration is read and written, and nobody lives to read what is pending.
    bench.crash_after = Some(bench.requests() + 2);
    bench.run().await;
    assert!(bench.crash_after.is_none(), "it crashed");
    assert_eq!(bench.progress(&owner).facts.pending, ["cores"]);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_gets_its_agent_with_a_restart_tells_its_addresses_then() {
    for by_hand in [false, true] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = machine("web", TEMPLATE);
        intent.hardware.agent = Some(Agent {
            enabled: false,
            fstrim: None,
        });
        let owner = bench.want(intent.clone());
        bench.run().await;
        bench.run_for(Duration::from_mins(5)).await;
        intent.hardware.agent = Some(Agent {
            enabled: true,
            fstrim: None,
        });
        bench.want(intent.clone());
        bench.run().await;
        let facts = bench.progress(&owner).facts.clone();
        assert_eq!(facts.pending, ["agent"]);
        assert!(!facts.agent && facts.nics[0].addresses.is_empty());
        if by_hand {
            let node = bench.client().node(facts.node.as_ref().unwrap());
            let qemu = node.qemu(facts.vmid.unwrap());
            qemu.reboot(Some(60)).await.unwrap();
        } else {
            intent.restarts += 1;
            bench.want(intent);
            bench.run().await;
        }
        bench.run_for(Duration::from_mins(5)).await;
        let facts = &bench.progress(&owner).facts;
        assert!(facts.agent, "by hand: {by_hand} {}", bench.stories());
        assert!(!facts.nics[0].addresses.is_empty(), "by hand: {by_hand}");
        assert_eq!(facts.pending, Vec::<String>::new());
    }
}
