//! The address manager and Cluster API, played without delay.

use std::collections::BTreeSet;

use anyhow::Result;
use api::cluster_api::{IPAddress, IPAddressClaim, Machine};
use api::infrastructure::v1beta1::ProxmoxMachine;
use futures::TryStreamExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinHandle;

/// Gives addresses and takes note of machines until it is dropped.
pub(super) struct Player(JoinHandle<()>);

impl Player {
    pub(super) fn start(client: Client) -> Self {
        Self(tokio::spawn(async move {
            // It ends with the API server, and then nobody claims anything.
            let _ = tokio::try_join!(give(client.clone()), take_note(client));
        }))
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn give(client: Client) -> Result<()> {
    let claims: Api<IPAddressClaim> = Api::default_namespaced(client.clone());
    let addresses: Api<IPAddress> = Api::default_namespaced(client);
    let changes = watcher::watcher(claims.clone(), watcher::Config::default())
        .default_backoff()
        .applied_objects();
    let mut changes = std::pin::pin!(changes);
    let mut given = 0_u16;
    while let Some(claim) = changes.try_next().await? {
        if claim
            .status
            .as_ref()
            .is_some_and(|s| s.address_ref.is_some())
        {
            continue;
        }
        let name = claim.name_any();
        let [high, low] = given.to_be_bytes();
        let address: IPAddress = serde_json::from_value(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress", "metadata": {"name": name},
            "spec": {
                "address": format!("10.0.{}.{low}", high + 1), "prefix": 20, "gateway": "10.0.0.1",
                "claimRef": {"name": name}, "poolRef": claim.spec.pool_ref,
            },
        }))?;
        addresses.create(&PostParams::default(), &address).await?;
        let status = json!({"status": {"addressRef": {"name": name}}});
        claims
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        given += 1;
    }
    Ok(())
}

/// Writes into Machines that what they stand for is provisioned.
async fn take_note(client: Client) -> Result<()> {
    let ours: Api<ProxmoxMachine> = Api::default_namespaced(client.clone());
    let machines: Api<Machine> = Api::default_namespaced(client);
    let changes = watcher::watcher(ours, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    let mut changes = std::pin::pin!(changes);
    let mut noted = BTreeSet::new();
    while let Some(machine) = changes.try_next().await? {
        let provisioned = super::is_provisioned(&machine);
        if provisioned && noted.insert(machine.uid()) {
            let note = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
            let name = machine.name_any();
            machines
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(&note))
                .await?;
        }
    }
    Ok(())
}
