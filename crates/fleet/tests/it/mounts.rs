//! Mount points of containers: made once, where there is room, and kept as long as they are declared.

use std::time::Duration;

use fleet::{
    GuestIntent, Outcome, Owner, Size, Waiting,
    intent::{MountPoint, Power},
};
use pve::{
    ConfigChange, CreateQemu, GuestConfig, Lxc, NodeName, Vmid,
    api::guest::{ConfigView, DeleteGuest},
};
use pve_sim::{Action, Fault, Latency, Quirks};

use crate::{create::container, harness::Bench};

const PUT: &str = "PUT /nodes/{node}/lxc/{vmid}/config";

fn declare(intent: &mut GuestIntent, storage: &str, names: &[&str]) {
    let mount = |name: &&str| MountPoint {
        stays: false,
        name: (*name).to_owned(),
        path: format!("/srv/{name}"),
        storage: Some(storage.parse().unwrap()),
        size: Size::gib(1),
        backup: false,
        read_only: false,
    };
    let container = intent.container.as_mut().unwrap();
    container.mounts = names.iter().map(mount).collect();
}

/// A container with these mount points, as declared.
async fn settled(power: Power, names: &[&str]) -> (Bench, Owner, GuestIntent, Lxc) {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = container(&bench).await;
    intent.power = power;
    declare(&mut intent, "local-lvm", names);
    let owner = bench.want(intent.clone());
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let lxc = bench.client().node(&identity.node).lxc(identity.vmid);
    (bench, owner, intent, lxc)
}

async fn now(lxc: &Lxc) -> GuestConfig {
    lxc.config(ConfigView::Current).await.unwrap()
}

async fn pending(lxc: &Lxc) -> Vec<String> {
    let rows = lxc.pending().await.unwrap().into_iter();
    rows.filter(pve::api::guest::PendingValue::is_pending)
        .map(|row| row.key)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_mount_point_waits_for_room_and_is_made_when_there_is_some() {
    for power in [Power::On, Power::Off] {
        let (mut bench, owner, mut intent, lxc) = settled(power, &[]).await;
        let node = bench.client().node(&NodeName::new("pve1").unwrap());
        let full = Vmid::new(700).unwrap();
        let huge = GuestConfig::new().with("scsi0", "tank:4096");
        let task = node
            .create_qemu(&CreateQemu::new(full, huge))
            .await
            .unwrap();
        bench.client().wait(&task).await.unwrap();
        bench.cluster().fill_disk(700, 2048 << 30).unwrap();
        declare(&mut intent, "tank", &["data"]);
        intent.hardware.cpu.cores = Some(2);
        bench.want(intent);
        bench.call_now(&owner).await;
        bench.run_for(Duration::from_mins(2)).await;
        let outcome = &bench.progress(&owner).outcome;
        let waits = matches!(outcome, Outcome::Waiting { what, .. } if *what == Waiting::Space);
        assert!(waits, "{outcome:?}");
        assert!(!bench.record(&owner).kept.contains_key("mp0"));
        assert_eq!(now(&lxc).await.get("mp0"), None);

        let gone = node
            .qemu(full)
            .delete(DeleteGuest::default())
            .await
            .unwrap();
        bench.client().wait(&gone).await.unwrap();
        bench.run_for(Duration::from_mins(5)).await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
        let config = now(&lxc).await;
        assert!(config.get("mp0").unwrap().starts_with("tank:"));
        assert_eq!(config.get("cores"), Some("2"));
        assert_eq!(bench.progress(&owner).facts.drift, []);
    }
}

/// The kernel may refuse it, and PVE stores nothing then.
#[tokio::test(start_paused = true)]
async fn memory_that_cannot_be_lowered_now_waits_for_a_restart_and_holds_nothing_else_up() {
    let (mut bench, owner, mut intent, lxc) = settled(Power::On, &[]).await;
    let vmid = bench.progress(&owner).facts.vmid.unwrap();
    let quirks = Quirks {
        keep_memory: true,
        ..Quirks::default()
    };
    bench.cluster().set_quirks(vmid.get(), quirks).unwrap();
    intent.hardware.memory.size = Some(Size::mib(256));
    intent.hardware.cpu.cores = Some(2);
    bench.want(intent.clone());
    bench.run().await;
    let config = now(&lxc).await;
    assert_eq!(
        (config.get("cores"), config.get("memory")),
        (Some("2"), Some("512"))
    );
    assert_eq!(bench.progress(&owner).facts.pending, ["memory"]);
    // Who starts anew knows it as well.
    bench.restart();
    bench.ready().await;
    bench.want(intent.clone());
    bench.run().await;
    bench.run_for(Duration::from_mins(2)).await;
    assert_eq!(bench.progress(&owner).facts.pending, ["memory"]);
    intent.restarts += 1;
    bench.want(intent);
    bench.run().await;
    bench.run_for(Duration::from_mins(2)).await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(progress.facts.power, fleet::PowerFact::Running);
    assert_eq!(progress.facts.pending, Vec::<String>::new());
    assert_eq!(now(&lxc).await.get("memory"), Some("256"));
}

/// Exactly one volume was made for `data`, and it is where it belongs.
async fn made_once(bench: &Bench, lxc: &Lxc, vmid: Vmid) {
    let config = now(lxc).await;
    let mount = config.get("mp0").unwrap_or_default();
    assert!(
        mount.starts_with(&format!("local-lvm:vm-{vmid}-")),
        "{config:?}"
    );
    assert_eq!(config.get("unused0"), None, "{config:?}");
    assert_eq!(pending(lxc).await, Vec::<String>::new());
    let volumes = bench.inventory().await.volumes;
    let own = format!("vm-{vmid}-disk-");
    let own = volumes.iter().filter(|volume| volume.contains(&own));
    assert_eq!(own.count(), 2, "the root and one more");
}

#[tokio::test(start_paused = true)]
async fn a_mount_point_whose_answer_was_lost_is_made_once() {
    for power in [Power::On, Power::Off] {
        for action in [Action::DropAnswer, Action::Proxy { status: 596 }] {
            let (mut bench, owner, mut intent, lxc) = settled(power, &[]).await;
            bench.cluster().control().inject(Fault::once(PUT, action));
            declare(&mut intent, "local-lvm", &["data"]);
            bench.want(intent);
            bench.run().await;
            let vmid = bench.progress(&owner).facts.vmid.unwrap();
            made_once(&bench, &lxc, vmid).await;
        }
    }
}

/// PVE goes on with a call that nobody listens to any more.
#[tokio::test(start_paused = true)]
async fn a_mount_point_that_is_still_being_made_is_not_made_once_more() {
    for power in [Power::On, Power::Off] {
        let (mut bench, owner, mut intent, lxc) = settled(power, &[]).await;
        let slow = "steps: {allocate: {median_ms: 5000, p95_ms: 5000}}";
        let slow = Latency::parse(slow).unwrap();
        bench.cluster().set_latency(slow);
        let control = bench.cluster().control();
        control.inject(Fault::once(PUT, Action::DropRequest));
        declare(&mut intent, "local-lvm", &["data"]);
        bench.want(intent);
        bench.call_now(&owner).await;
        let wish = GuestConfig::new().with("mp0", "local-lvm:1,mp=/srv/data,backup=0");
        let unheard = {
            let (lxc, change) = (lxc.clone(), ConfigChange::set(wish));
            tokio::spawn(async move { lxc.configure(&change).await })
        };
        bench.run_for(Duration::from_mins(1)).await;
        unheard.await.unwrap().unwrap();
        let outcome = &bench.progress(&owner).outcome;
        assert_eq!(outcome, &Outcome::Settled, "{}", bench.stories());
        let vmid = bench.progress(&owner).facts.vmid.unwrap();
        made_once(&bench, &lxc, vmid).await;
    }
}

/// PVE takes a mount point out of a running container at its next start, and shows it as gone before.
#[tokio::test(start_paused = true)]
async fn a_mount_point_declared_again_before_the_restart_stays() {
    for all in [&["data"][..], &["cache", "data"]] {
        let (mut bench, owner, mut intent, lxc) = settled(Power::On, all).await;
        let place = format!("mp{}", all.len() - 1);
        let before = now(&lxc).await;
        let data = before.get(&place).unwrap();
        assert!(data.contains("mp=/srv/data"), "{data}");
        declare(&mut intent, "local-lvm", &[]);
        bench.want(intent.clone());
        bench.run().await;
        assert_eq!(bench.progress(&owner).facts.pending.len(), all.len());
        assert_eq!(
            lxc.config(ConfigView::Next).await.unwrap().get(&place),
            None
        );

        declare(&mut intent, "local-lvm", &["data", "logs"]);
        bench.want(intent.clone());
        bench.run().await;
        let progress = bench.progress(&owner);
        assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
        assert_eq!(progress.facts.drift, []);
        assert_eq!(progress.facts.pending.len(), all.len() - 1);
        assert!(!pending(&lxc).await.contains(&place));
        // What is new does not wait for a place that is free only then.
        let logs = format!("mp{}", all.len());
        let new = now(&lxc).await.get(&logs).map(str::to_owned).unwrap();
        assert!(new.contains("mp=/srv/logs"), "{new}");

        intent.restarts += 1;
        bench.want(intent);
        bench.run().await;
        let after = now(&lxc).await;
        assert_eq!(after.get(&place), Some(data));
        assert_eq!(after.get("unused0").is_some(), all.len() > 1, "{after:?}");
        assert_eq!(bench.progress(&owner).facts.drift, []);
        assert_eq!(pending(&lxc).await, Vec::<String>::new());
    }
}

/// Somebody takes one out by hand.
#[tokio::test(start_paused = true)]
async fn a_mount_point_that_somebody_lets_the_next_start_take_out_stays() {
    let (mut bench, owner, _, lxc) = settled(Power::On, &["data"]).await;
    bench.options.audit_interval = Duration::from_secs(10);
    bench.restart();
    bench.ready().await;
    bench.call_now(&owner).await;
    bench.run_for(Duration::from_mins(2)).await;
    let before = now(&lxc).await;
    let change = ConfigChange::delete(["mp0"]);
    lxc.configure(&change).await.unwrap();
    bench.run_for(Duration::from_mins(2)).await;
    assert_eq!(pending(&lxc).await, Vec::<String>::new());
    assert_eq!(now(&lxc).await.get("mp0"), before.get("mp0"));
    assert_eq!(bench.progress(&owner).facts.drift, []);
}

/// PVE gives a name of a volume again once it is free.
#[tokio::test(start_paused = true)]
async fn a_mount_point_declared_again_does_not_take_the_place_of_one_that_came_since() {
    let (mut bench, owner, mut intent, lxc) = settled(Power::Off, &["a"]).await;
    declare(&mut intent, "local-lvm", &[]);
    bench.want(intent.clone());
    bench.run().await;
    let unused = ConfigChange::delete(["unused0"]);
    lxc.configure(&unused).await.unwrap();
    for names in [&["b"][..], &["a", "b"]] {
        declare(&mut intent, "local-lvm", names);
        bench.want(intent.clone());
        bench.run().await;
    }
    let after = now(&lxc).await;
    let there = after.get("mp0").unwrap_or_default();
    assert!(there.contains("mp=/srv/b"), "{after:?}");
    let mounts = &bench.record(&owner).identity.as_ref().unwrap().mounts;
    assert_ne!(mounts.get("a"), mounts.get("b"), "{mounts:?}");
}
