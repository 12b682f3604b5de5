//! Machines of Kubernetes clusters. Cluster API and the address manager are played; everything else is real.

mod choice;
mod contract;
mod costs;
mod crashes;
mod details;
mod features;
mod first_boot;
mod instances;
mod life;

use api::infrastructure::v1beta1::ProxmoxCluster;
use scenarios::{Bed, Guest, Player};
use serde_json::{Value, json};

/// A bed with Cluster API's kinds and a token for the provider on every Proxmox VE cluster.
async fn bed(clusters: usize) -> (Bed, Player) {
    let bed = Bed::builder().clusters(clusters).start().await;
    bed.install_cluster_api().await;
    let player = bed.play_cluster_api();
    (bed, player)
}

/// Two Proxmox VE clusters, `txl` and `fra`, in a mode.
fn two(mode: &str) -> Value {
    json!({"settings": {"mode": mode, "instances": [
        {"name": "txl", "credentialsRef": {"name": "pve-credentials"}},
        {"name": "fra", "credentialsRef": {"name": "pve-1-credentials"}},
    ]}})
}

fn named<'a>(guests: &'a [Guest], name: &str) -> Option<&'a Guest> {
    guests.iter().find(|guest| guest.name == name)
}

/// The names of guests on a cluster that begin so.
async fn on(bed: &Bed, number: usize, prefix: &str) -> Vec<String> {
    let guests = bed.guests_of(number).await;
    guests
        .into_iter()
        .map(|guest| guest.name)
        .filter(|name| name.starts_with(prefix))
        .collect()
}

async fn until_instance_is(bed: &Bed, name: &str, ready: bool) -> ProxmoxCluster {
    bed.until::<ProxmoxCluster>("prod", &format!("{name} ready: {ready}"), |cluster| {
        let status = cluster.status.as_ref();
        let mut instances = status.into_iter().flat_map(|status| &status.instances);
        instances.any(|i| i.name == name && i.ready == Some(ready))
    })
    .await
}
