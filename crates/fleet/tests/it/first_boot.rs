//! What a guest is told at its first boot, and what becomes of it.

use std::time::Duration;

use fleet::{
    Outcome,
    intent::{CloneMode, InitMode, Power, Source, TemplateRef},
};

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
    assert_ne!(first.digest, second.digest);

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
