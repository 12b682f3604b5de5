//! What a guest boots from, beside CD drives that PVE appends by itself.

use std::time::Duration;

use fleet::{GuestIntent, Outcome, Owner, intent::Update};
use pve::{ConfigChange, GuestConfig, NodeName, Vmid, api::guest::ConfigView};
use pve_sim::Simulator;

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";
const PUT: &str = "PUT /nodes/{node}/qemu/{vmid}/config";

/// A front-end that audits often, and a template that has no CD drive and boots like this.
async fn bench(seed: u64, boot: &str) -> Bench {
    let mut bench = Bench::with(Simulator::builder().seed(seed).build());
    bench.options.audit_interval = Duration::from_secs(10);
    bench.restart();
    bench.ready().await;
    let node = bench.client().node(&NodeName::new("pve1").unwrap());
    let template = node.qemu(Vmid::new(9000).unwrap());
    let mut change = ConfigChange::set(GuestConfig::new().with("boot", boot));
    change.delete.push("ide2".to_owned());
    template.configure(&change).await.unwrap();
    bench.cluster().control().reset_counts();
    bench
}

fn puts(bench: &Bench) -> u64 {
    let counts = bench.cluster().control().counts();
    counts.get(PUT).copied().unwrap_or_default()
}

async fn order(bench: &Bench, owner: &Owner) -> String {
    let facts = &bench.progress(owner).facts;
    let node = bench.client().node(facts.node.as_ref().unwrap());
    let qemu = node.qemu(facts.vmid.unwrap());
    let config = qemu.config(ConfigView::Next).await.unwrap();
    config.get("boot").unwrap_or_default().to_owned()
}

/// Lets audits pass and changes something else; nothing of that may restart the guest.
async fn stays_as_it_is(bench: &mut Bench, owner: &Owner, mut intent: GuestIntent) {
    let mut boots = bench.cluster().boots();
    bench.run_for(Duration::from_mins(2)).await;
    intent.options.tags = Some(vec!["web".to_owned()]);
    bench.want(intent);
    bench.run().await;
    bench.run_for(Duration::from_mins(2)).await;
    let progress = bench.progress(owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(progress.facts.pending, Vec::<String>::new());
    assert_eq!(progress.facts.drift, []);
    assert!(boots.try_recv().is_err(), "it was restarted");
}

#[tokio::test(start_paused = true)]
async fn a_boot_order_is_not_lost_to_a_first_boot_drive_that_pve_appends_to_the_old_one() {
    for seed in 0..20 {
        let mut bench = bench(seed, "order=net0").await;
        let mut intent = machine("web", TEMPLATE);
        intent.policy.update = Update::RestartIfNeeded;
        let owner = bench.want(intent.clone());
        bench.run().await;
        let boot = order(&bench, &owner).await;
        assert!(boot.starts_with("order=scsi0"), "seed {seed}: {boot}");
        assert_eq!(puts(&bench), 3, "{}", bench.counts());
        stays_as_it_is(&mut bench, &owner, intent).await;
        let boot = order(&bench, &owner).await;
        assert!(boot.starts_with("order=scsi0"), "seed {seed}: {boot}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_that_pve_only_appends_a_drive_to_costs_nothing_and_is_no_drift() {
    let mut bench = bench(7, "order=scsi0;net0").await;
    let mut intent = machine("web", TEMPLATE);
    intent.policy.update = Update::RestartIfNeeded;
    intent.hardware.boot_order = Some(vec!["root".to_owned(), "lan".to_owned()]);
    let owner = bench.want(intent.clone());
    bench.run().await;
    assert_eq!(puts(&bench), 2, "{}", bench.counts());
    stays_as_it_is(&mut bench, &owner, intent).await;
    assert_eq!(order(&bench, &owner).await, "order=scsi0;net0;ide2");
}

/// An order that waits for a restart is not the one that PVE appends to.
#[tokio::test(start_paused = true)]
async fn an_order_that_waits_for_a_restart_outlives_the_first_boot_drive() {
    for seed in 0..8 {
        // Its own order comes after the drive, which is in none then.
        let mut bench = bench(seed, "order=net0").await;
        let mut intent = machine("web", TEMPLATE);
        let owner = bench.want(intent.clone());
        while !bench.record(&owner).booted {
            bench.run_for(Duration::from_secs(1)).await;
            bench.call_now(&owner).await;
        }
        intent.hardware.boot_order = Some(vec!["lan".to_owned(), "root".to_owned()]);
        bench.want(intent);
        bench.run().await;
        assert_eq!(bench.progress(&owner).facts.pending, ["boot"]);
        let boot = order(&bench, &owner).await;
        assert!(boot.starts_with("order=net0;scsi0"), "seed {seed}: {boot}");
    }
}
