//! Random lives of Kubernetes clusters over two Proxmox VE clusters, with everything that can go wrong, from one seed.

use std::time::Duration;

use api::cluster_api::{IPAddressClaim, Machine};
use api::infrastructure::v1beta1::ProxmoxMachine;
use api::vm::condition;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::cluster_api::Wish;
use crate::life::{Life, Lines};
use crate::simulate::Deed;
use crate::{Bed, Dice, Story};

/// Runs one seed, on a clock of its own.
pub fn simulate_clusters(seed: u64) -> Story {
    Life::lived(seed, |lines| live(seed, lines))
}

async fn live(seed: u64, lines: Lines) -> Story {
    let bed = Bed::builder().seed(seed).clusters(2).start().await;
    bed.install_cluster_api().await;
    let _player = bed.play_cluster_api();
    let mut life = Life::begin(seed, bed, lines).await;
    let instances = json!([
        {"name": "txl", "credentialsRef": {"name": "pve-credentials"}},
        {"name": "fra", "credentialsRef": {"name": "pve-1-credentials"}},
    ]);
    let settings = json!({"settings": {"mode": "MultiInstance", "instances": instances}});
    life.bed.make_cluster(&settings).await;
    for _ in 0..10 + life.dice.below(10) {
        let done = act(&life.bed, &mut life.dice).await;
        life.end_turn(done).await;
    }
    life.calm_down().await;
    life.bed.pause(false).await;
    let stuck = rest(&life.bed).await;
    life.judge(stuck).await;
    let names = life.bed.names::<ProxmoxMachine>().await;
    life.told(names).await
}

async fn act(bed: &Bed, dice: &mut Dice) -> String {
    let name = format!("w-{}", dice.below(5));
    let Some(machine) = bed.api::<ProxmoxMachine>().get_opt(&name).await.unwrap() else {
        // Cluster API never gives a name twice, but people who do it themselves do.
        let now = DeleteParams::default();
        let _ = bed.api::<Machine>().delete(&name, &now).await;
        if bed.api::<Machine>().get_opt(&name).await.unwrap().is_some() {
            return format!("{name} is going");
        }
        let disk = 10 + dice.below(20);
        let mut wish = Wish::new(&name).with(&json!({"diskSize": disk}));
        if dice.below(3) == 0 {
            wish = wish.control_plane();
        }
        if dice.below(4) == 0 {
            wish = wish.failure_domain(["txl", "fra"][usize::try_from(dice.below(2)).unwrap()]);
        }
        bed.make_machine(wish).await;
        return format!("create {name} with {disk} GiB");
    };
    match dice.below(10) {
        0 | 1 => {
            let now = DeleteParams::default();
            bed.api::<ProxmoxMachine>()
                .delete(&name, &now)
                .await
                .unwrap();
            format!("delete {name}")
        }
        2 | 3 => {
            if machine.metadata.deletion_timestamp.is_none() {
                bed.join(&name).await;
            }
            format!("{name} joins")
        }
        4 => {
            bed.pause(true).await;
            "pause".to_owned()
        }
        5 | 6 => {
            bed.pause(false).await;
            "go on".to_owned()
        }
        7 | 8 => by_hand(bed, dice, &machine).await,
        _ => {
            if machine.metadata.deletion_timestamp.is_none() {
                bed.change::<ProxmoxMachine>(&name, json!({"cores": 1 + dice.below(4)}))
                    .await;
            }
            format!("cores of {name}")
        }
    }
}

/// Somebody uses Proxmox VE's own page.
async fn by_hand(bed: &Bed, dice: &mut Dice, machine: &ProxmoxMachine) -> String {
    let cluster = usize::from(machine.spec.instance.as_deref() == Some("fra"));
    let node = machine.status.as_ref().and_then(|s| s.proxmox_node.clone());
    let vmid = machine.spec.virtual_machine_id;
    let vmid = vmid.and_then(|vmid| u32::try_from(vmid).ok());
    let (Some(node), Some(vmid)) = (node, vmid) else {
        return "nobody does anything by hand".to_owned();
    };
    let deeds = [Deed::Stop, Deed::Tag, Deed::Processors, Deed::Destroy];
    let how = dice.pick(&deeds).done(bed, cluster, &node, vmid).await;
    format!("somebody {how} {}", machine.name_any())
}

/// Waits until every machine is provisioned and has joined, or is gone; says which never are. A machine whose guest was
/// destroyed says so, and is deleted as a health check would have it deleted.
async fn rest(bed: &Bed) -> Vec<String> {
    let mut stuck = Vec::new();
    for _ in 0..360 {
        bed.sleep(Duration::from_secs(10)).await;
        let machines = bed
            .api::<ProxmoxMachine>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items;
        stuck = machines
            .iter()
            .filter(|machine| !is_at_rest(machine))
            .map(|machine| format!("{} is stuck: {:?}", machine.name_any(), machine.status))
            .collect();
        for machine in &machines {
            let name = machine.name_any();
            if is_at_rest(machine) {
                bed.join(&name).await;
            } else if is_lost(machine) {
                let now = DeleteParams::default();
                let _ = bed.api::<ProxmoxMachine>().delete(&name, &now).await;
            }
        }
        if stuck.is_empty() {
            // What is cleaned up after joining gets its time, too.
            bed.sleep(Duration::from_mins(5)).await;
            break;
        }
    }
    let machines = bed.names::<ProxmoxMachine>().await;
    for claim in bed.names::<IPAddressClaim>().await {
        if !machines
            .iter()
            .any(|name| claim.starts_with(&format!("{name}-")))
        {
            stuck.push(format!("claim {claim} belongs to no machine"));
        }
    }
    stuck
}

fn is_at_rest(machine: &ProxmoxMachine) -> bool {
    let Some(status) = &machine.status else {
        return false;
    };
    let ready = condition(&status.conditions, "Ready");
    machine.metadata.deletion_timestamp.is_none()
        && ready.is_some_and(|ready| ready.status == "True")
}

fn is_lost(machine: &ProxmoxMachine) -> bool {
    let status = machine.status.as_ref();
    let ready = status.and_then(|status| condition(&status.conditions, "Ready"));
    ready.is_some_and(|ready| ready.reason == "GuestLost")
}
