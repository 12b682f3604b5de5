//! What a guest is told at its first boot, and what becomes of it.

use std::time::Duration;

use fleet::{
    Outcome,
    intent::{CloneMode, InitMode, Power, Source, TemplateRef, Update},
};

use pve_sim::{Action, Fault};

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";

async fn drive_of(bench: &Bench, owner: &fleet::Owner) -> String {
    let identity = bench.record(owner).identity.clone().expect("an identity");
    let guest = bench.client().node(&identity.node).qemu(identity.vmid);
    let config = guest
        .config(pve::api::guest::ConfigView::Current)
        .await
        .expect("a configuration");
    config.get("ide2").unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn data_changed_before_the_first_boot_is_what_the_guest_reads() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.power = Power::Off;
    let owner = bench.want(intent.clone());
    bench.run().await;
    let first = bench.record(&owner).seed.clone().unwrap();
    assert_eq!(
        bench.inventory().await.seeds().len(),
        1,
        "it waits to be read"
    );

    intent.init.as_mut().unwrap().user_data = Some("#cloud-config\npackages: [caddy]\n".into());
    bench.want(intent.clone());
    bench.run().await;
    let second = bench.record(&owner).seed.clone().unwrap();
    assert_eq!(first.volume, second.volume);
    assert_ne!(first.glance, second.glance);

    intent.power = Power::On;
    bench.want(intent);
    bench.run().await;
    assert!(!bench.progress(&owner).facts.stale_first_boot);
    assert!(bench.inventory().await.seeds().is_empty());
}

#[tokio::test(start_paused = true)]
async fn data_changed_after_the_first_boot_is_reported_and_changes_nothing() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    let owner = bench.want(intent.clone());
    bench.run().await;
    assert!(!bench.progress(&owner).facts.stale_first_boot);
    intent.init.as_mut().unwrap().user_data = Some("#cloud-config\npackages: [caddy]\n".into());
    bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    assert!(bench.progress(&owner).facts.stale_first_boot);
    let told = |bench: &Bench| {
        let story = &bench.matters[&owner].story;
        story
            .iter()
            .filter(|line| line.contains("FirstBootDataChanged"))
            .count()
    };
    assert_eq!(told(&bench), 1, "{:?}", bench.matters[&owner].story);
    // Who can no longer say what it was told is not accused of having changed it.
    intent.init.as_mut().unwrap().forgotten = true;
    bench.want(intent);
    bench.run().await;
    assert!(!bench.progress(&owner).facts.stale_first_boot);
}

#[tokio::test(start_paused = true)]
async fn a_password_of_pves_own_cloud_init_that_was_changed_is_reported() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.init = Some(fleet::intent::Init {
        mode: InitMode::Native,
        password: Some("geheim".into()),
        ..fleet::intent::Init::default()
    });
    let owner = bench.want(intent.clone());
    bench.run().await;
    bench.want(intent.clone());
    bench.run().await;
    assert!(!bench.progress(&owner).facts.stale_first_boot);
    intent.init.as_mut().unwrap().password = Some("secret".into());
    bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    assert!(bench.progress(&owner).facts.stale_first_boot);
    // One that was taken back does not speak against the next.
    for password in [None, Some("new".into())] {
        intent.init.as_mut().unwrap().password = password;
        bench.want(intent.clone());
        bench.run().await;
        assert!(!bench.progress(&owner).facts.stale_first_boot);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_guest_was_told_does_not_stay_when_its_agent_never_answers() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    // There is no system on it, and so no agent.
    intent.source = Source::Empty;
    let owner = bench.want(intent);
    bench.call_now(&owner).await;
    bench.run_for(Duration::from_mins(4)).await;
    assert_eq!(bench.inventory().await.seeds().len(), 1);
    bench.run_for(Duration::from_mins(4)).await;
    assert!(!bench.progress(&owner).outcome.is_done(), "it is not ready");
    assert!(bench.inventory().await.seeds().is_empty());
    assert!(drive_of(&bench, &owner).await.starts_with("none"));
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_machine_that_still_holds_its_image_starts_without_it() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut source = machine("source", TEMPLATE);
    source.power = Power::Off;
    let source = bench.want(source);
    bench.run().await;
    bench.run_for(Duration::from_secs(15)).await;
    assert!(drive_of(&bench, &source).await.contains("iso/oxmox-"));
    let vmid = bench.record(&source).identity.as_ref().unwrap().vmid;

    let mut copy = machine("copy", TEMPLATE);
    copy.init = None;
    copy.source = Source::Template {
        from: TemplateRef::Vmid(vmid),
        mode: CloneMode::Auto,
        snapshot: None,
    };
    let copy = bench.want(copy);
    bench.run().await;
    assert_eq!(bench.progress(&copy).outcome, Outcome::Settled);
    assert!(drive_of(&bench, &copy).await.starts_with("none"));
    assert!(
        drive_of(&bench, &source).await.contains("iso/oxmox-"),
        "the source keeps its own"
    );
}

#[tokio::test(start_paused = true)]
async fn pves_own_drive_carries_user_keys_and_addresses() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    let init = intent.init.as_mut().unwrap();
    init.mode = InitMode::Native;
    init.user_data = None;
    init.user = Some("admin".to_owned());
    init.ssh_keys = vec!["ssh-ed25519 AAAAC3Nza admin@example.com".to_owned()];
    let owner = bench.want(intent);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let identity = bench.record(&owner).identity.clone().unwrap();
    let guest = bench.client().node(&identity.node).qemu(identity.vmid);
    let config = guest
        .config(pve::api::guest::ConfigView::Current)
        .await
        .unwrap();
    assert_eq!(config.get("ciuser"), Some("admin"));
    assert!(config.get("sshkeys").is_some());
    assert!(config.get("ide2").unwrap().contains("cloudinit"));
    assert!(bench.inventory().await.seeds().is_empty());
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn who_is_no_longer_declared_is_taken_back_but_not_who_was_only_forgotten() {
    for forgotten in [true, false] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = machine("web", TEMPLATE);
        intent.init = Some(fleet::intent::Init {
            mode: InitMode::Native,
            user: Some("admin".to_owned()),
            ssh_keys: vec!["ssh-ed25519 AAAAC3Nza admin@example.com".to_owned()],
            ..fleet::intent::Init::default()
        });
        let owner = bench.want(intent.clone());
        bench.run().await;
        intent.init = Some(fleet::intent::Init {
            mode: InitMode::Native,
            forgotten,
            ..fleet::intent::Init::default()
        });
        bench.want(intent);
        bench.run().await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
        let identity = bench.record(&owner).identity.clone().unwrap();
        let guest = bench.client().node(&identity.node).qemu(identity.vmid);
        let view = pve::api::guest::ConfigView::Next;
        let config = guest.config(view).await.unwrap();
        for key in ["ciuser", "sshkeys"] {
            assert_eq!(config.get(key).is_some(), forgotten, "{key}");
        }
    }
}

/// Its Secret was cleaned up, and only what is written in the spec itself is known still.
#[tokio::test(start_paused = true)]
async fn a_guest_whose_data_was_forgotten_stays_the_instance_it_is() {
    for mode in [InitMode::NoCloud, InitMode::Native] {
        let mut bench = Bench::new();
        bench.ready().await;
        let inline = fleet::intent::Init {
            mode,
            ssh_keys: vec!["ssh-ed25519 AAAAC3Nza admin@example.com".to_owned()],
            ..fleet::intent::Init::default()
        };
        let mut whole = inline.clone();
        whole
            .ssh_keys
            .push("ssh-ed25519 AAAAC3Nzb ops@example.com".to_owned());
        whole.instance_id = (mode == InitMode::NoCloud).then(|| "i-1".to_owned());
        let mut intent = machine("web", TEMPLATE);
        intent.policy.update = Update::RestartIfNeeded;
        intent.init = Some(whole);
        let owner = bench.want(intent.clone());
        bench.run().await;
        let identity = bench.record(&owner).identity.clone().unwrap();
        let guest = bench.client().node(&identity.node).qemu(identity.vmid);
        let view = pve::api::guest::ConfigView::Next;
        let before = guest.config(view).await.unwrap();
        let mut boots = bench.cluster().boots();

        intent.init = Some(fleet::intent::Init {
            forgotten: true,
            ..inline
        });
        bench.want(intent);
        bench.run().await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
        assert_eq!(bench.progress(&owner).facts.pending, Vec::<String>::new());
        let after = guest.config(view).await.unwrap();
        for key in ["smbios1", "sshkeys"] {
            assert_eq!(after.get(key), before.get(key), "{key}");
        }
        assert!(boots.try_recv().is_err(), "nothing is to be restarted for");
    }
}

/// Its agent answers while Windows still sets itself up, which takes longer than five minutes.
#[tokio::test(start_paused = true)]
async fn windows_has_its_image_for_half_an_hour_whatever_its_agent_says() {
    for declared in [true, false] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = machine("web", TEMPLATE);
        if declared {
            intent.hardware.os_type = Some("win11".to_owned());
        } else {
            let node = bench.client().node(&pve::NodeName::new("pve1").unwrap());
            let system = pve::GuestConfig::new().with("ostype", "win11");
            let template = node.qemu(pve::Vmid::new(9000).unwrap());
            template
                .configure(&pve::ConfigChange::set(system))
                .await
                .unwrap();
        }
        let owner = bench.want(intent);
        bench.run().await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
        assert!(bench.progress(&owner).facts.agent, "it answers");
        bench.restart();
        bench.ready().await;
        bench.matters.get_mut(&owner).unwrap().last = None;
        bench.run().await;
        bench.run_for(Duration::from_mins(25)).await;
        assert!(drive_of(&bench, &owner).await.contains("iso/oxmox-"));
        assert_eq!(bench.inventory().await.seeds().len(), 1);
        bench.run_for(Duration::from_mins(10)).await;
        assert!(drive_of(&bench, &owner).await.starts_with("none"));
        assert!(bench.inventory().await.seeds().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_pves_own_drive_says_anew_waits_for_a_restart() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.init = Some(fleet::intent::Init {
        mode: InitMode::Native,
        user: Some("admin".to_owned()),
        ..fleet::intent::Init::default()
    });
    let owner = bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).facts.pending, Vec::<String>::new());
    let mut boots = bench.cluster().boots();

    let init = intent.init.as_mut().unwrap();
    init.user = Some("root".to_owned());
    init.dns = vec!["9.9.9.9".parse().unwrap()];
    let lan = &mut intent.nics[0].addressing;
    lan.addresses = vec!["10.0.0.5/24".parse().unwrap()];
    let mut dmz = intent.nics[0].clone();
    dmz.name = "dmz".to_owned();
    dmz.addressing.addresses = vec!["10.9.0.5/24".parse().unwrap()];
    intent.nics.push(dmz);
    bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let told = ["ciuser", "ipconfig0", "ipconfig1", "nameserver"];
    assert_eq!(bench.progress(&owner).facts.pending, told);
    bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).facts.pending, told, "until a start");
    assert!(boots.try_recv().is_err(), "nobody allowed a restart");

    intent.policy.update = Update::RestartIfNeeded;
    bench.want(intent);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    assert_eq!(bench.progress(&owner).facts.pending, Vec::<String>::new());
    let boot = boots.try_recv().expect("a boot");
    let network = boot.seed.unwrap().network_config.unwrap();
    assert!(network.contains("10.0.0.5") && network.contains("10.9.0.5"));
}

/// Somebody starts the copy as soon as it exists, before it was configured.
async fn started_by_hand(bench: &mut Bench, forget: bool) {
    let mut boots = bench.cluster().boots();
    let owner = bench.want(machine("web", TEMPLATE));
    // The copy is there for a while before it can be configured.
    let lock = Action::Error {
        status: 500,
        message: "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout".to_owned(),
    };
    let fault = Fault::nth("PUT /nodes/{node}/qemu/{vmid}/config", 1, lock);
    bench.cluster().control().inject(fault);
    let made = async |bench: &Bench| {
        let identity = bench.record(&owner).identity.clone()?;
        let guest = bench.client().node(&identity.node).qemu(identity.vmid);
        guest.start().await.ok()
    };
    bench.call_now(&owner).await;
    let by_hand = loop {
        if let Some(task) = made(bench).await {
            break task;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        if !forget {
            bench.run_for(Duration::from_millis(50)).await;
        }
    };
    bench.client().wait(&by_hand).await.unwrap();
    if forget {
        bench.restart();
        bench.ready().await;
    }
    bench.matters.get_mut(&owner).unwrap().last = None;
    bench.run().await;
    let story = bench.matters[&owner].story.join("\n");
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled, "{story}");
    assert!(story.contains("StartedTooEarly"), "{story}");
    let mut last = None;
    while let Ok(boot) = boots.try_recv() {
        last = Some(boot);
    }
    let last = last.expect("a boot");
    assert!(last.seed.is_some(), "{story}");
    assert_eq!(last.hostname, "web", "{story}");
    assert!(bench.record(&owner).early.is_none());
    assert_eq!(bench.inventory().await.seeds(), Vec::<&String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_somebody_started_before_it_was_configured_is_started_again() {
    let mut bench = Bench::life_like(7);
    bench.ready().await;
    started_by_hand(&mut bench, false).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_when_it_was_started_while_nobody_watched() {
    let mut bench = Bench::life_like(7);
    bench.ready().await;
    started_by_hand(&mut bench, true).await;
}

#[tokio::test(start_paused = true)]
async fn data_declared_after_the_guest_was_made_is_read_at_its_first_boot_and_reported_after_it() {
    for booted in [false, true] {
        let mut bench = Bench::new();
        bench.ready().await;
        let declared = machine("web", TEMPLATE);
        let mut intent = declared.clone();
        intent.init = None;
        intent.power = if booted { Power::On } else { Power::Off };
        let owner = bench.want(intent.clone());
        bench.run().await;
        assert!(bench.record(&owner).seed.is_none());
        let identity = bench.record(&owner).identity.clone().unwrap();
        let guest = bench.client().node(&identity.node).qemu(identity.vmid);
        let view = pve::api::guest::ConfigView::Next;
        let before = guest.config(view).await.unwrap();

        bench.cluster().control().reset_counts();
        let mut off = declared.clone();
        off.power = intent.power;
        bench.want(off);
        bench.run().await;
        let drive = drive_of(&bench, &owner).await;
        assert_eq!(drive.contains(":iso/oxmox-"), !booted, "{drive}");
        bench.want(declared);
        bench.run().await;
        let outcome = &bench.progress(&owner).outcome;
        assert_eq!(*outcome, Outcome::Settled, "{}", bench.stories());
        let uploads = bench.counts().matches("/upload").count();
        assert_eq!(uploads, usize::from(!booted), "{}", bench.counts());
        assert_eq!(bench.progress(&owner).facts.stale_first_boot, booted);
        if booted {
            let after = guest.config(view).await.unwrap();
            assert_eq!(after.get("smbios1"), before.get("smbios1"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_drive_of_pves_own_cloud_init_is_the_sources_wherever_that_has_it() {
    let mut bench = Bench::new();
    bench.ready().await;
    let node = bench.client().node(&pve::NodeName::new("pve1").unwrap());
    let template = node.qemu(pve::Vmid::new(9000).unwrap());
    let drive = pve::GuestConfig::new().with("scsi1", "ceph:cloudinit");
    template
        .configure(&pve::ConfigChange::set(drive))
        .await
        .unwrap();
    let mut intent = machine("web", TEMPLATE);
    intent.init = Some(fleet::intent::Init {
        mode: InitMode::Native,
        user: Some("admin".to_owned()),
        ..fleet::intent::Init::default()
    });
    let owner = bench.want(intent);
    bench.run().await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    let node = bench.client().node(progress.facts.node.as_ref().unwrap());
    let guest = node.qemu(progress.facts.vmid.unwrap());
    let config = guest
        .config(pve::api::guest::ConfigView::Next)
        .await
        .unwrap();
    let drives = config.iter().filter(|(_, it)| it.contains("-cloudinit"));
    let drives: Vec<&str> = drives.map(|(key, _)| key).collect();
    assert_eq!(drives, ["scsi1"]);
    assert_eq!(config.get("ciuser"), Some("admin"));
}
