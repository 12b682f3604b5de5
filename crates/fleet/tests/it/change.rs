//! Guests change: by declaration, by hand, by loss.

use std::time::Duration;

use fleet::{
    Failure, Outcome, PowerFact, Size,
    intent::{
        Agent, Bios, CloneMode, EfiDisk, Init, InitMode, Loss, Power, Source, TemplateRef, Tpm,
        TpmVersion, Update,
    },
};
use pve::{ConfigChange, GuestConfig, api::guest::ConfigView};

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";

pub(crate) async fn settled() -> (Bench, fleet::Owner, pve::Qemu) {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().expect("an identity");
    let node = bench.progress(&owner).facts.node.clone().expect("a node");
    let qemu = bench.client().node(&node).qemu(identity.vmid);
    (bench, owner, qemu)
}

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
async fn an_option_that_is_no_longer_declared_is_taken_back_and_others_are_left() {
    let (mut bench, owner, qemu) = settled().await;
    let by_hand = GuestConfig::new().with("cpuunits", 200);
    qemu.configure(&ConfigChange::set(by_hand)).await.unwrap();
    let mut intent = machine("web", TEMPLATE);
    intent.options.tags = Some(vec!["shop".to_owned()]);
    intent.options.onboot = Some(true);
    intent.options.description = Some("the shop".to_owned());
    intent.hardware.cpu.limit = Some(1.5);
    bench.want(intent);
    bench.run().await;
    let config = qemu.config(ConfigView::Next).await.unwrap();
    assert_eq!(config.get("tags"), Some("shop"));
    assert_eq!(config.get("cpulimit"), Some("1.5"));
    assert!(config.description().unwrap().starts_with("the shop"));

    bench.want(machine("web", TEMPLATE));
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let config = qemu.config(ConfigView::Next).await.unwrap();
    for key in ["tags", "cpulimit", "onboot"] {
        assert_eq!(config.get(key), None, "{key}");
    }
    assert_eq!(config.get("cpuunits"), Some("200"), "it was never ours");
    let mark = config.description().unwrap().to_owned();
    assert_eq!(mark, fleet::mark::describe("", &owner));
    // It is done with: what somebody puts there now is theirs.
    let notes = format!("call Anna\n\n{mark}");
    let by_hand = GuestConfig::new().with("tags", "theirs");
    let by_hand = by_hand.with("description", notes.as_str());
    qemu.configure(&ConfigChange::set(by_hand)).await.unwrap();
    bench.run_for(Duration::from_mins(2)).await;
    let config = qemu.config(ConfigView::Next).await.unwrap();
    assert_eq!(config.get("tags"), Some("theirs"));
    assert_eq!(config.description(), Some(notes.as_str()));
}

#[tokio::test(start_paused = true)]
async fn what_a_source_could_have_brought_is_taken_back_only_if_it_was_written() {
    for mode in [CloneMode::Linked, CloneMode::Full] {
        let (mut bench, _, qemu) = settled().await;
        let mut plain = machine("web", TEMPLATE);
        plain.owner = crate::harness::owner("other");
        plain.source = Source::Template {
            from: TemplateRef::Name(TEMPLATE.to_owned()),
            mode,
            snapshot: None,
        };
        let mut intent = plain.clone();
        // The template's is this one already.
        intent.hardware.os_type = Some("l26".to_owned());
        intent.hardware.cpu.numa = Some(true);
        let owner = bench.want(intent.clone());
        bench.run().await;
        let vmid = bench.progress(&owner).facts.vmid.unwrap();
        let node = bench.progress(&owner).facts.node.clone().unwrap();
        let other = bench.client().node(&node).qemu(vmid);
        bench.want(plain.clone());
        bench.run().await;
        let config = other.config(ConfigView::Next).await.unwrap();
        assert_eq!(config.get("ostype"), Some("l26"), "it was never ours");
        assert_eq!(config.get("numa"), None);
        intent.hardware.os_type = Some("win11".to_owned());
        for intent in [intent, plain] {
            bench.want(intent);
            bench.run().await;
        }
        let config = other.config(ConfigView::Next).await.unwrap();
        assert_eq!(config.get("ostype"), None);
        let config = qemu.config(ConfigView::Next).await.unwrap();
        assert_eq!(config.get("ostype"), Some("l26"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_gets_back_the_processors_and_the_swap_it_would_have_had() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = crate::create::container(&bench).await;
    intent.container.as_mut().unwrap().swap = Some(Size::gib(1));
    let owner = bench.want(intent.clone());
    bench.run().await;
    let vmid = bench.progress(&owner).facts.vmid.unwrap();
    let node = bench.progress(&owner).facts.node.clone().unwrap();
    let lxc = bench.client().node(&node).lxc(vmid);
    let made = lxc.config(ConfigView::Next).await.unwrap();
    assert_eq!(
        (made.get("cores"), made.get("swap")),
        (Some("1"), Some("1024"))
    );
    intent.container.as_mut().unwrap().swap = None;
    intent.hardware.cpu.cores = None;
    bench.want(intent);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let config = lxc.config(ConfigView::Next).await.unwrap();
    assert_eq!((config.get("cores"), config.get("swap")), (None, None));
    assert_eq!(config.get("memory"), Some("512"));
}

#[tokio::test(start_paused = true)]
async fn a_tpm_that_is_no_longer_declared_stays_and_is_told_of() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.hardware.tpm = Some(Tpm {
        storage: None,
        version: TpmVersion::V2_0,
    });
    let owner = bench.want(intent.clone());
    bench.run().await;
    let vmid = bench.progress(&owner).facts.vmid.unwrap();
    let node = bench.progress(&owner).facts.node.clone().unwrap();
    let qemu = bench.client().node(&node).qemu(vmid);
    let made = qemu.config(ConfigView::Next).await.unwrap();
    let made = made.get("tpmstate0").map(str::to_owned);
    assert!(made.is_some());

    intent.hardware.tpm = None;
    for cores in [2, 4] {
        intent.hardware.cpu.cores = Some(cores);
        bench.want(intent.clone());
        bench.run().await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
        let drift = &bench.progress(&owner).facts.drift;
        let keys: Vec<&str> = drift.iter().map(|drift| drift.key.as_str()).collect();
        assert_eq!(keys, ["tpmstate0"]);
        let config = qemu.config(ConfigView::Next).await.unwrap();
        assert_eq!(config.get("tpmstate0"), made.as_deref());
    }
}

#[tokio::test(start_paused = true)]
async fn tags_of_others_stay_beside_those_that_are_declared_so() {
    let (mut bench, owner, qemu) = settled().await;
    let by_hand = GuestConfig::new().with("tags", "theirs");
    qemu.configure(&ConfigChange::set(by_hand)).await.unwrap();
    for (declared, left) in [
        (Some("blue"), "blue;theirs"),
        (Some("green"), "green;theirs"),
        (None, "theirs"),
    ] {
        let mut intent = machine("web", TEMPLATE);
        intent.options.keep_tags = true;
        intent.options.tags = declared.map(|tag| vec![tag.to_owned()]);
        bench.want(intent);
        bench.run().await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
        let config = qemu.config(ConfigView::Next).await.unwrap();
        assert_eq!(config.get("tags"), Some(left));
    }
}

#[tokio::test(start_paused = true)]
async fn a_card_that_is_changed_keeps_its_firewall() {
    let (mut bench, _, qemu) = settled().await;
    let config = qemu.config(ConfigView::Next).await.unwrap();
    let card = format!("{},firewall=1", config.get("net0").unwrap());
    let by_hand = GuestConfig::new().with("net0", card);
    qemu.configure(&ConfigChange::set(by_hand)).await.unwrap();
    let mut intent = machine("web", TEMPLATE);
    intent.nics[0].vlan = Some(7);
    bench.want(intent);
    bench.run().await;
    let config = qemu.config(ConfigView::Next).await.unwrap();
    let card = config.get("net0").unwrap();
    assert!(
        card.contains("tag=7") && card.contains("firewall=1"),
        "{card}"
    );
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
async fn a_disk_grows_online_and_is_never_made_smaller() {
    let (mut bench, owner, qemu) = settled().await;
    let mut intent = machine("web", TEMPLATE);
    intent.disks[0].size = Some(Size::gib(60));
    bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    assert!(
        qemu.config(ConfigView::Current)
            .await
            .unwrap()
            .get("scsi0")
            .unwrap()
            .contains("size=60G")
    );
    intent.disks[0].size = Some(Size::gib(10));
    bench.want(intent);
    bench.run().await;
    let outcome = &bench.progress(&owner).outcome;
    assert!(
        matches!(
            outcome,
            Outcome::Failed {
                why: Failure::Invalid,
                ..
            }
        ),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_disk_moves_to_the_storage_it_is_declared_on_while_the_guest_runs() {
    let (mut bench, owner, qemu) = settled().await;
    let mut intent = machine("web", TEMPLATE);
    intent.disks[0].storage = Some(pve::StorageId::new("local-lvm").unwrap());
    bench.want(intent);
    bench.run().await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(progress.facts.power, PowerFact::Running);
    let config = qemu.config(ConfigView::Current).await.unwrap();
    let disk = config.get("scsi0").unwrap();
    assert!(disk.starts_with("local-lvm:vm-"), "{disk}");
    let unused = config.iter().filter(|(key, _)| key.starts_with("unused"));
    assert_eq!(unused.count(), 0, "nothing is left where it was");
}

#[tokio::test(start_paused = true)]
async fn a_guest_switched_off_by_hand_is_seen_and_started_again() {
    let (mut bench, owner, qemu) = settled().await;
    qemu.stop(pve::api::guest::power::Stop::default())
        .await
        .unwrap();
    bench.run_for(Duration::from_secs(90)).await;
    assert_eq!(
        bench.progress(&owner).facts.power,
        PowerFact::Running,
        "{}",
        bench.matters[&owner].story.join("\n")
    );
    assert!(qemu.status().await.unwrap().is_running());
}

#[tokio::test(start_paused = true)]
async fn a_tag_taken_off_by_hand_comes_back_and_what_is_not_owned_is_left_alone() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.options.tags = Some(vec!["prod".to_owned()]);
    let owner = bench.want(intent);
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let by_hand = GuestConfig::new().with("tags", "other").with("onboot", 1);
    qemu.configure(&ConfigChange::set(by_hand)).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let config = qemu.config(ConfigView::Current).await.unwrap();
    assert_eq!(
        config.get("tags"),
        Some("prod"),
        "{}",
        bench.matters[&owner].story.join("\n")
    );
    assert_eq!(config.get("onboot"), Some("1"));
}

async fn destroy(client: &pve::Client, qemu: &pve::Qemu) {
    let stop = pve::api::guest::power::Stop::default();
    let task = qemu.stop(stop).await.unwrap();
    client.wait(&task).await.unwrap();
    let delete = pve::api::guest::DeleteGuest::default();
    let task = qemu.delete(delete).await.unwrap();
    client.wait(&task).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_removed_behind_our_back_is_reported_or_made_anew_as_the_policy_says() {
    for (loss, again) in [(Loss::Report, false), (Loss::Recreate, true)] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = machine("web", TEMPLATE);
        intent.policy.loss = loss;
        intent.init = Some(Init {
            mode: InitMode::Native,
            password: Some("geheim".into()),
            ..Init::default()
        });
        let owner = bench.want(intent);
        bench.run().await;
        bench.run_for(Duration::from_secs(30)).await;
        let identity = bench.record(&owner).identity.clone().unwrap();
        let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
        destroy(&bench.client(), &qemu).await;
        bench.run_for(Duration::from_mins(5)).await;
        let outcome = &bench.progress(&owner).outcome;
        if again {
            assert_eq!(
                *outcome,
                Outcome::Settled,
                "{}",
                bench.matters[&owner].story.join("\n")
            );
            assert_eq!(bench.inventory().await.of(&owner).len(), 1);
            // What the lost one was told does not speak against the new one.
            assert!(!bench.progress(&owner).facts.stale_first_boot);
        } else {
            assert!(
                matches!(
                    outcome,
                    Outcome::Failed {
                        why: Failure::Lost,
                        ..
                    }
                ),
                "{outcome:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_vmid_that_was_given_away_is_not_taken_for_the_lost_guest_after_a_restart() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut silent = machine("web", TEMPLATE);
    silent.hardware.agent = Some(Agent {
        enabled: false,
        fstrim: None,
    });
    let lost = bench.want(silent);
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    assert_eq!(
        bench.inventory().await.seeds().len(),
        1,
        "not read for sure yet"
    );
    let identity = bench.record(&lost).identity.clone().unwrap();
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    destroy(&bench.client(), &qemu).await;
    bench.run_for(Duration::from_secs(30)).await;
    bench.restart();
    bench.ready().await;
    let heir = bench.want(machine("db", TEMPLATE));
    bench.run().await;
    assert_eq!(
        bench.record(&heir).identity.as_ref().unwrap().vmid,
        identity.vmid
    );
    assert_eq!(
        bench.inventory().await.seeds().len(),
        0,
        "nobody will read it"
    );

    bench.restart();
    bench.ready().await;
    let outcome = bench.call_now(&lost).await.outcome;
    assert!(
        matches!(
            outcome,
            Outcome::Failed {
                why: Failure::Lost,
                ..
            }
        ),
        "{outcome:?}"
    );
    bench.want(machine("db", TEMPLATE));
    bench.run().await;
    assert_eq!(bench.progress(&heir).outcome, Outcome::Settled);
}

#[tokio::test(start_paused = true)]
async fn what_the_list_shows_to_have_changed_while_nobody_looked_is_read_and_nothing_else() {
    let (mut bench, web, qemu) = settled().await;
    let db = bench.want(machine("db", TEMPLATE));
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let by_hand = GuestConfig::new().with("name", "shop");
    qemu.configure(&ConfigChange::set(by_hand)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await;
    bench.restart();
    bench.ready().await;
    bench.want(machine("web", TEMPLATE));
    bench.want(machine("db", TEMPLATE));
    bench.run().await;
    for owner in [&web, &db] {
        assert_eq!(bench.progress(owner).outcome, Outcome::Settled);
    }
    let config = qemu.config(ConfigView::Current).await.unwrap();
    assert_eq!(config.get("name"), Some("web"));
    let counts = bench.cluster().control().counts();
    let reads = counts.get("GET /nodes/{node}/qemu/{vmid}/config");
    // The other one is this test's.
    assert_eq!(reads, Some(&2), "{}", bench.counts());
}

#[tokio::test(start_paused = true)]
async fn graceful_off_of_a_stopped_machine_asks_for_nothing() {
    let (mut bench, _, qemu) = settled().await;
    let mut intent = machine("web", TEMPLATE);
    intent.power = Power::Off;
    bench.want(intent.clone());
    bench.run().await;
    assert!(!qemu.status().await.unwrap().is_running());
    bench.run_for(Duration::from_secs(30)).await;
    bench.cluster().control().reset_counts();
    bench.want(intent);
    bench.run().await;
    assert_eq!(bench.requests(), 0, "{}", bench.counts());
}

#[tokio::test(start_paused = true)]
async fn a_hardware_address_that_is_said_later_is_the_interfaces_from_then_on() {
    let (mut bench, owner, qemu) = settled().await;
    let mut intent = machine("web", TEMPLATE);
    intent.nics[0].mac = Some("02:00:00:00:00:07".parse().unwrap());
    bench.want(intent);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let config = qemu.config(ConfigView::Next).await.unwrap();
    let card = config.get("net0").unwrap();
    assert!(card.contains("02:00:00:00:00:07"), "{card}");
}

#[tokio::test(start_paused = true)]
async fn what_is_declared_of_a_suspended_guest_is_written_once_it_is_resumed() {
    let (mut bench, owner, qemu) = settled().await;
    let mut intent = machine("web", TEMPLATE);
    intent.power = Power::Suspended;
    bench.want(intent.clone());
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    assert_eq!(bench.progress(&owner).facts.power, PowerFact::Suspended);
    intent.options.tags = Some(vec!["web".to_owned()]);
    bench.want(intent.clone());
    bench.run().await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(progress.facts.pending, ["tags"]);
    intent.power = Power::On;
    bench.want(intent);
    bench.run().await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(progress.facts.power, PowerFact::Running);
    assert_eq!(progress.facts.pending, Vec::<String>::new());
    let config = qemu.config(ConfigView::Current).await.unwrap();
    assert_eq!(config.get("tags"), Some("web"));
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
