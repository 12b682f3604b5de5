//! The best that this Proxmox VE allows, found by experiment.
//!
//! A driver without controllers or API server makes the same guests by the same calls: upload and clone together, one change of
//! configuration, resize, start. It knows at once when a task has ended (the simulator tells it) and needs no request to notice anything.
//! It is tried at several widths, because too many clones at once fail on Proxmox VE's storage lock; the fastest is the ideal schedule.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use axum::body::Bytes;
use futures::future::{try_join, try_join_all};
use pve::api::qemu::CloneGuest;
use pve::api::storage::upload::Upload;
use pve::{ConfigChange, GuestConfig, NodeName, StorageId, Vmid};
use pve_sim::Cluster;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::super::system::{Setting, TEMPLATE};
use super::world::{root, simulator};

/// How many clones at once are tried.
const WIDTHS: [usize; 5] = [4, 8, 16, 32, 48];
/// The size of a first-boot image.
const IMAGE: usize = 376 * 1024;

/// How long so many guests take on one cluster.
pub(super) async fn ideal(setting: &Setting, guests: u32) -> Result<Duration> {
    let mut best: Option<Duration> = None;
    for width in WIDTHS {
        let simulator = simulator(setting, 0)?;
        let cluster = simulator.clusters().next().context("a cluster")?.clone();
        let driver = Arc::new(Driver {
            root: root(&cluster)?,
            cluster,
            clones: Semaphore::new(width),
        });
        let begun = Instant::now();
        try_join_all((0..guests).map(|number| driver.guest(number))).await?;
        let taken = begun.elapsed();
        best = Some(best.map_or(taken, |best| best.min(taken)));
    }
    best.context("no width was tried")
}

struct Driver {
    root: pve::Client,
    cluster: Cluster,
    clones: Semaphore,
}

impl Driver {
    async fn guest(&self, number: u32) -> Result<()> {
        let vmid = Vmid::new(100 + number)?;
        let node = NodeName::new(format!("pve{}", number % 3 + 1))?;
        try_join(self.copy(number, vmid, &node), self.upload(number, &node)).await?;
        let guest = self.root.node(&node).qemu(vmid);
        let config = GuestConfig::new()
            .with("cores", 1)
            .with("memory", 1024)
            .with("net0", "virtio,bridge=vmbr0")
            .with("ide2", format!("local:iso/m-{number}.iso,media=cdrom"));
        guest.configure(&ConfigChange::set(config)).await?;
        if let Some(upid) = guest.resize("scsi0", "20G", None).await? {
            self.end(&upid).await?;
        }
        let exit = self.end(&guest.start().await?).await?;
        if exit != "OK" {
            bail!("guest {vmid} did not start: {exit}");
        }
        Ok(())
    }

    async fn copy(&self, number: u32, vmid: Vmid, node: &NodeName) -> Result<()> {
        let template = self
            .root
            .node(&NodeName::new("pve1")?)
            .qemu(Vmid::new(TEMPLATE)?);
        let mut copy = CloneGuest::new(vmid);
        copy.name = Some(format!("m-{number}"));
        copy.target = Some(node.clone());
        let _place = self.clones.acquire().await?;
        while self.end(&template.clone_to(&copy).await?).await? != "OK" {}
        Ok(())
    }

    async fn upload(&self, number: u32, node: &NodeName) -> Result<()> {
        let storage = self.root.node(node).storage(&StorageId::new("local")?);
        let image = Bytes::from(vec![0_u8; IMAGE]);
        let upload = Upload::iso(format!("m-{number}.iso"), image.len() as u64);
        self.end(&storage.upload_bytes(&upload, image).await?)
            .await?;
        Ok(())
    }

    async fn end(&self, upid: &pve::Upid) -> Result<String> {
        Ok(self.cluster.wait_task(&upid.to_string().parse()?).await)
    }
}
