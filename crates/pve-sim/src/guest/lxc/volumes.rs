//! Disks of containers: resize and move.

use std::time::Duration;

use super::api::sized;
use super::{is_mount, volumes};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::change::{add_unused, uses};
use crate::guest::clone::{Wish, copy_volume};
use crate::guest::disks::Made;
use crate::guest::hand::Hand;
use crate::guest::volumes::{grow, wanted_size};
use crate::guest::{Guest, Kind, read};
use crate::latency::Step;
use crate::lock::{self, Mode};

const LOCK_WAIT: Duration = Duration::from_secs(10);

fn volume_of(guest: &Guest, disk: &str) -> Result<(String, String), Failure> {
    let value = guest
        .config
        .get(disk)
        .filter(|_| is_mount(disk))
        .ok_or_else(|| Failure::die(format!("no such volume '{disk}'")))?;
    let volid = volumes(&guest.config.current)
        .into_iter()
        .find(|(name, _)| name == disk)
        .map(|(_, volid)| volid)
        .ok_or_else(|| Failure::die(format!("mount point '{disk}' has no volume")))?;
    Ok((value.to_owned(), volid))
}

/// `PUT …/resize`
pub(crate) fn resize(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let disk = call.params.text("disk").to_owned();
    let guest = read::guest(call, Kind::Lxc)?;
    guest.check_digest(call.params.get("digest"))?;
    guest.check_lock()?;
    let (_, volid) = volume_of(guest, &disk)?;
    let storage = volid.split(':').next().unwrap_or_default();
    call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    let now = call.world.storages.volume(&node, &volid)?.size;
    let new = wanted_size(call.params.text("size"), now);
    if new < now {
        return Err(Failure::die("unable to shrink disk size"));
    }
    if new == now {
        return Err(Failure::die("disk is already at specified size"));
    }
    Ok(call.task("resize", vmid, move |worker| async move {
        let _held = worker
            .lock_file(&lock::lxc_path(vmid), Mode::Exclusive, LOCK_WAIT)
            .await?;
        worker.take(Step::Resize).await?;
        let line = worker.world(|world| {
            let line = grow(world, worker.node(), &volid, new)?;
            let guest = world.guests.find_mut(Kind::Lxc, worker.node(), vmid)?;
            let (value, volid) = volume_of(guest, &disk)?;
            guest.config.set(&disk, sized(&value, &volid, new));
            Ok::<_, Failure>(line)
        })?;
        if let Some(line) = line {
            worker.log(line);
        }
        Ok(())
    }))
}

/// `POST …/move_volume`
pub(crate) fn move_volume(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let vmid = call.vmid();
    let disk = call.params.text("volume").to_owned();
    let both = |text: &str| {
        let named = ["storage", "target-vmid"].map(|name| (name.to_owned(), text.to_owned()));
        Err(Failure::params(named.into()))
    };
    match (call.params.has("storage"), call.params.vmid("target-vmid")) {
        (false, None) => {
            return both("both 'storage' and 'target-vmid' missing, either needs to be set");
        }
        (true, Some(_)) => return both("cannot set both 'storage' and 'target-vmid'"),
        (false, Some(target)) => return reassign(call, target, disk),
        (true, None) => {}
    }
    let storage = call.params.text("storage").to_owned();
    let delete = call.params.flag("delete");
    call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    let guest = read::guest(call, Kind::Lxc)?;
    guest.check_digest(call.params.get("digest"))?;
    guest.check_lock()?;
    let (_, volid) = volume_of(guest, &disk)?;
    if guest.is_running() {
        return Err(Failure::die("cannot move volumes of a running container"));
    }
    if volid.starts_with(&format!("{storage}:")) {
        return Err(Failure::die("you can't move to the same storage"));
    }
    if delete
        && guest
            .config
            .snapshots
            .values()
            .any(|snap| uses(snap, &volid))
    {
        return Err(Failure::die(
            "cannot move volume with snapshots, source cannot be deleted",
        ));
    }
    Ok(call.task("move_volume", vmid, move |worker| async move {
        let _held = worker
            .lock_file(&lock::lxc_path(vmid), Mode::Exclusive, LOCK_WAIT)
            .await?;
        let mut made = Made::default();
        let wish = Wish {
            vmid,
            storage: Some(&storage),
            format: None,
            snapshot: None,
        };
        let hand = Hand::of_worker(&worker);
        let copied = copy_volume(&hand, &volid, wish, &mut made).await;
        let (copied, bytes) = match copied {
            Ok(copied) => copied,
            Err(failure) => {
                worker.world(|world| made.undo(world, worker.node()));
                return Err(failure);
            }
        };
        worker.world(|world| {
            let guest = world.guests.find_mut(Kind::Lxc, worker.node(), vmid)?;
            let (value, _) = volume_of(guest, &disk)?;
            guest.config.set(&disk, sized(&value, &copied, bytes));
            if delete {
                world.storages.free(worker.node(), &volid)?;
            } else {
                add_unused(&mut guest.config.current, &volid);
            }
            Ok(())
        })
    }))
}

/// Gives a volume to another container.
fn reassign(call: &mut Call<'_>, target: u32, disk: String) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let slot = call.params.get("target-volume").unwrap_or(&disk).to_owned();
    call.need(&format!("/vms/{target}"), &["VM.Config.Disk"])?;
    if vmid == target {
        return Err(Failure::die(
            "must be different than source VMID to move disk to another container",
        ));
    }
    if disk == "rootfs" || slot == "rootfs" {
        return Err(Failure::die(
            "Cannot move a rootfs volume to another container",
        ));
    }
    let guest = read::guest(call, Kind::Lxc)?;
    guest.check_digest(call.params.get("digest"))?;
    guest.check_lock()?;
    if guest.is_running() {
        return Err(Failure::die(format!(
            "Cannot move volume of running CT {vmid}: stop it first"
        )));
    }
    let (_, volid) = volume_of(guest, &disk)?;
    let mut snapshots = guest.config.snapshots.values();
    if snapshots.any(|snap| uses(snap, &volid)) {
        return Err(Failure::die(
            "Can't move volume used by a snapshot to another container",
        ));
    }
    let other = call.world.guests.find(Kind::Lxc, &node, target)?;
    other.check_digest(call.params.get("target-digest"))?;
    other.check_lock()?;
    if other.config.get(&slot).is_some() {
        return Err(Failure::die(format!(
            "Target volume key '{slot}' is already in use for container '{target}'"
        )));
    }
    let id = format!("{vmid}-{target}");
    Ok(call.task("move_volume", id, move |worker| async move {
        let _held = worker
            .lock_file(&lock::lxc_path(vmid), Mode::Exclusive, LOCK_WAIT)
            .await?;
        worker.log(format!(
            "moving volume '{disk}' from container '{vmid}' to '{target}'"
        ));
        worker.take(Step::Configure).await?;
        let node = worker.node().to_owned();
        worker.world(|world| {
            let bytes = world.storages.volume(&node, &volid)?.size;
            let renamed = world.storages.rename(&node, &volid, target)?;
            let source = world.guests.find_mut(Kind::Lxc, &node, vmid)?;
            let (value, _) = volume_of(source, &disk)?;
            source.config.remove(&disk);
            let other = world.guests.find_mut(Kind::Lxc, &node, target)?;
            other.config.set(&slot, sized(&value, &renamed, bytes));
            Ok::<_, Failure>(())
        })?;
        worker.log(format!("target container '{target}' updated with '{slot}'"));
        Ok(())
    }))
}
