//! Guests change as they are declared.

use std::time::Duration;

use fleet::{
    Failure, Outcome, PowerFact, Size,
    intent::{CloneMode, Power, Source, TemplateRef, Tpm, TpmVersion},
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
