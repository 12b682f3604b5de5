//! Calls about a VM's disks: resize, move, template, feature.

use std::time::Duration;

use serde_json::json;

use super::change::{self, add_unused};
use super::clone::{Wish, copy_volume};
use super::configure::root_only;
use super::create::drives;
use super::disks::Made;
use super::drive::Drive;
use super::hand::Hand;
use super::{Guest, Kind, lxc, options, permit, read, size, snapshot};
use crate::call::{Call, Reply};
use crate::digest;
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::{self, Mode};
use crate::storage::{Feature, Kind as Plugin};
use crate::world::World;

const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Bytes a resize asks for: absolute, or more than now.
pub(crate) fn wanted_size(text: &str, now: u64) -> u64 {
    match text.strip_prefix('+') {
        Some(more) => now.saturating_add(size::parse(more).unwrap_or(0)),
        None => size::parse(text).unwrap_or(now),
    }
}

/// `PUT …/resize`
pub(crate) fn resize(call: &mut Call<'_>) -> Result<Reply, Failure> {
    root_only(call, &["skiplock"])?;
    let vmid = call.vmid();
    let disk = call.params.text("disk").to_owned();
    let wish = call.params.text("size").to_owned();
    let digest = call.params.get("digest").map(str::to_owned);
    let skip_lock = call.params.flag("skiplock");
    let caller = call.caller.clone();
    Ok(call.task("resize", vmid, move |worker| async move {
        let _held = worker
            .lock_file(&lock::qemu_path(vmid), Mode::Exclusive, LOCK_WAIT)
            .await?;
        let node = worker.node().to_owned();
        let plan = worker.world(|world| {
            let guest = world.guests.find(Kind::Qemu, &node, vmid)?;
            guest.check_digest(digest.as_deref())?;
            if !skip_lock {
                guest.check_lock()?;
            }
            let drive = disk_of(guest, &disk)?;
            if drive.is_cdrom() {
                return Err(Failure::die("you can't resize a cdrom"));
            }
            let volid = drive
                .volume()
                .ok_or_else(|| Failure::die(format!("disk '{disk}' has no associated volume")))?;
            let storage = drive.storage().unwrap_or_default();
            let path = format!("/storage/{storage}");
            world
                .access
                .need(&caller, &path, &["Datastore.AllocateSpace"])?;
            let now = world.storages.volume(&node, volid)?.size;
            let new = wanted_size(&wish, now);
            if new < now {
                return Err(Failure::die("shrinking disks is not supported"));
            }
            Ok((volid.to_owned(), now, new, guest.is_running()))
        })?;
        let (volid, now, new, running) = plan;
        if new == now {
            return Ok(());
        }
        worker.take(Step::Resize).await?;
        let line = worker.world(|world| grow(world, &node, &volid, new))?;
        if let Some(line) = line.filter(|_| !running) {
            worker.log(line);
        }
        worker.world(|world| {
            let guest = world.guests.find_mut(Kind::Qemu, &node, vmid)?;
            let mut drive = disk_of(guest, &disk)?;
            drive.set_size(new);
            guest.config.set(&disk, drive.print());
            Ok(())
        })
    }))
}

fn disk_of(guest: &Guest, disk: &str) -> Result<Drive, Failure> {
    guest
        .config
        .get(disk)
        .map(Drive::parse)
        .ok_or_else(|| Failure::die(format!("disk '{disk}' does not exist")))
}

/// Grows a volume; returns what the tool prints.
pub(crate) fn grow(
    world: &mut World,
    node: &str,
    volid: &str,
    bytes: u64,
) -> Result<Option<String>, Failure> {
    let (storage, name) = world.storages.parse(volid)?;
    let (id, plugin, thick, root) = (
        storage.def.id.clone(),
        storage.def.kind,
        storage.def.thick(),
        storage.def.root(),
    );
    let old = world.storages.volume(node, volid)?.size;
    if thick {
        world
            .storages
            .check_room(&id, node, bytes.saturating_sub(old))?;
    }
    let volume = world.storages.volume_mut(node, volid)?;
    volume.size = bytes;
    if thick {
        volume.used = volume.used.max(bytes);
    }
    Ok(match plugin {
        Plugin::Lvm | Plugin::LvmThin => Some(format!(
            "  Logical volume {root}/{} successfully resized.",
            name.file
        )),
        Plugin::Dir | Plugin::Nfs | Plugin::Cifs => Some("Image resized.".to_owned()),
        Plugin::ZfsPool => None,
        Plugin::Rbd => Some("Resizing image: 100% complete...done.".to_owned()),
    })
}

/// `POST …/move_disk`
pub(crate) fn move_disk(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let both = |text: &str| {
        let errors = ["storage", "target-vmid"].map(|key| (key.to_owned(), text.to_owned()));
        Err(Failure::params(errors.into()))
    };
    match (call.params.has("storage"), call.params.vmid("target-vmid")) {
        (false, None) => both("both 'storage' and 'target-vmid' missing, either needs to be set"),
        (true, Some(_)) => both("either set 'storage' or 'target-vmid', but not both"),
        (false, Some(target)) => reassign(call, target),
        (true, None) => to_storage(call),
    }
}

fn to_storage(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let disk = call.params.text("disk").to_owned();
    let storage = call.params.text("storage").to_owned();
    let format = call.params.get("format").map(str::to_owned);
    let delete = call.params.flag("delete");
    let seen = call.params.get("digest").map(str::to_owned);
    call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    let guest = read::guest(call, Kind::Qemu)?;
    guest.check_lock()?;
    digest::unchanged(seen.as_deref(), &guest.config.digest())?;
    let drive = disk_of(guest, &disk)?;
    if drive.is_plain_cdrom() {
        return Err(Failure::die("you can't move a cdrom"));
    }
    let volid = drive
        .volume()
        .ok_or_else(|| Failure::die(format!("disk '{disk}' has no associated volume")))?
        .to_owned();
    let (from, name) = call.world.storages.parse(&volid)?;
    let same_format = format
        .as_deref()
        .is_none_or(|format| format == name.format.name());
    if from.def.id == storage && same_format {
        return Err(Failure::die(
            "you can't move to the same storage with same format",
        ));
    }
    let from = from.def.id.clone();
    call.world.storages.enabled(&storage, &node)?;
    permit::holds_images(call, &storage)?;
    let snapshotted = guest
        .config
        .snapshots
        .values()
        .any(|snap| change::uses(snap, &volid));
    if snapshotted && delete {
        return Err(Failure::die(
            "you can't move a disk with snapshots and delete the source",
        ));
    }
    Ok(call.task("qmmove", vmid, move |worker| async move {
        let _held = worker
            .lock_file(&lock::qemu_path(vmid), Mode::Exclusive, LOCK_WAIT)
            .await?;
        worker.log(format!(
            "copying volume '{volid}' from current storage '{from}' to target storage '{storage}'"
        ));
        worker.log(format!("create full clone of drive {disk} ({volid})"));
        let mut made = Made::default();
        let wish = Wish {
            vmid,
            storage: Some(&storage),
            format: format.as_deref(),
            snapshot: None,
        };
        let hand = Hand::of_worker(&worker);
        let copied = match copy_volume(&hand, &volid, wish, &mut made).await {
            Ok((copied, _)) => copied,
            Err(failure) => {
                worker.world(|world| made.undo(world, worker.node()));
                return Err(Failure::die(format!(
                    "storage migration failed: {}",
                    failure.exit_text()
                )));
            }
        };
        let unused = worker.world(|world| {
            let guest = world.guests.find_mut(Kind::Qemu, worker.node(), vmid)?;
            let mut drive = disk_of(guest, &disk)?;
            drive.set("file", copied.clone());
            guest.config.set(&disk, drive.print());
            let unused = if delete {
                None
            } else {
                add_unused(&mut guest.config.current, &volid)
            };
            Ok::<_, Failure>(unused)
        })?;
        if let Some(name) = unused {
            worker.log(format!(
                "adding source volume '{volid}' as '{name}' to config"
            ));
        } else {
            worker.take(Step::FreeVolume).await?;
            worker.world(|world| world.storages.free(worker.node(), &volid))?;
        }
        Ok(())
    }))
}

/// Gives a disk to another VM on the same node.
fn reassign(call: &mut Call<'_>, target: u32) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let disk = call.params.text("disk").to_owned();
    let slot = call.params.get("target-disk").unwrap_or(&disk).to_owned();
    let own = |name: &str| call.params.get(name).map(str::to_owned);
    let (seen, target_seen) = (own("digest"), own("target-digest"));
    call.need(&format!("/vms/{target}"), &["VM.Config.Disk"])?;
    if vmid == target {
        let text = "must be different than source VMID to reassign disk";
        return Err(Failure::param("target-vmid", text));
    }
    let volid = reassignable(call.world, &node, (vmid, &disk), (target, &slot))?;
    for (id, seen) in [(vmid, seen), (target, target_seen)] {
        let guest = call.world.guests.find(Kind::Qemu, &node, id)?;
        digest::unchanged(seen.as_deref(), &guest.config.digest())
            .map_err(|failure| Failure::die(format!("VM {id}: {}", failure.message)))?;
    }
    Ok(call.task(
        "qmmove",
        format!("{vmid}-{disk}>{target}-{slot}"),
        move |worker| async move {
            let _held = worker
                .lock_file(&lock::qemu_path(vmid), Mode::Exclusive, LOCK_WAIT)
                .await?;
            worker.log(format!(
                "reassign disk '{disk}' from VM '{vmid}' as '{slot}' to VM '{target}'"
            ));
            worker.take(Step::Configure).await?;
            let node = worker.node().to_owned();
            worker.world(|world| {
                let renamed = world.storages.rename(&node, &volid, target)?;
                let source = world.guests.find_mut(Kind::Qemu, &node, vmid)?;
                let mut drive = disk_of(source, &disk)?;
                source.config.remove(&disk);
                drive.set("file", renamed);
                let other = world.guests.find_mut(Kind::Qemu, &node, target)?;
                other.config.set(&slot, drive.print());
                Ok::<_, Failure>(())
            })?;
            worker.log(format!("removing disk '{disk}' from VM '{vmid}' config"));
            Ok(())
        },
    ))
}

/// The volume on one VM's disk, if it can become another VM's.
fn reassignable(
    world: &World,
    node: &str,
    (vmid, disk): (u32, &str),
    (target, slot): (u32, &str),
) -> Result<String, Failure> {
    let place = |id: u32, word: &str| {
        let found = world.guests.get(id).map(|guest| guest.node.as_str());
        found.ok_or_else(|| Failure::die(format!("could not find {word} {id}")))
    };
    let (here, there) = (place(vmid, "VM")?, place(target, "target VM")?);
    if here != there {
        return Err(Failure::die(format!(
            "Both VMs need to be on the same node ({here} != {there})"
        )));
    }
    let source = world.guests.find(Kind::Qemu, node, vmid)?;
    source.check_lock()?;
    let other = world.guests.find(Kind::Qemu, node, target)?;
    other.check_lock()?;
    if source.is_template() || other.is_template() {
        return Err(Failure::die("Can't move disks from or to template VMs"));
    }
    let Some(drive) = source.config.get(disk).map(Drive::parse) else {
        return Err(Failure::die(format!(
            "Disk '{disk}' for VM '{vmid}' does not exist"
        )));
    };
    if other.config.get(slot).is_some() {
        return Err(Failure::die(format!(
            "Target disk key '{slot}' is already in use for VM '{target}'"
        )));
    }
    if drive.is_plain_cdrom() {
        return Err(Failure::die(
            "CD drive contents can't be moved to another VM",
        ));
    }
    let Some(volid) = drive.volume() else {
        let file = drive.file();
        return Err(Failure::die(format!("Volume '{file}' not managed by PVE")));
    };
    let mut snapshots = source.config.snapshots.values();
    if snapshots.any(|snap| change::uses(snap, volid)) {
        return Err(Failure::die(
            "Can't move disk used by a snapshot to another VM",
        ));
    }
    if source.is_running() && !options::is(disk, "unused") {
        return Err(Failure::die(
            "Cannot move disk to another VM while the source VM is running - detach first",
        ));
    }
    Ok(volid.to_owned())
}

/// `POST …/template`
pub(crate) fn template(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let vmid = call.vmid();
    let only = call.params.get("disk").map(str::to_owned);
    let guest = read::guest(call, kind)?;
    guest.check_lock()?;
    let (lower, word) = if kind == Kind::Qemu {
        ("VM", "VM")
    } else {
        ("CT", "container")
    };
    if !guest.config.snapshots.is_empty() {
        return Err(Failure::die(format!(
            "unable to create template, because {lower} contains snapshots"
        )));
    }
    if guest.is_template() && only.is_none() {
        return Err(Failure::die("you can't convert a template to a template"));
    }
    if guest.is_running() {
        return Err(Failure::die(format!(
            "you can't convert a {word} to template if {lower} is running"
        )));
    }
    let task = if kind == Kind::Qemu {
        "qmtemplate"
    } else {
        "vztemplate"
    };
    Ok(call.task(task, vmid, move |worker| async move {
        let path = snapshot::lock_path(kind, vmid);
        let _held = worker.lock_file(&path, Mode::Exclusive, LOCK_WAIT).await?;
        let node = worker.node().to_owned();
        if kind == Kind::Qemu {
            // Before its disks: one that stops after this is a template whose disks are none.
            worker.world(|world| mark_as_template(world, kind, &node, vmid))?;
        }
        worker.take(Step::Template).await?;
        worker.world(|world| make_template(world, kind, &node, vmid, only.as_deref()))
    }))
}

/// Turns every disk into a base volume and marks the guest.
pub(crate) fn make_template(
    world: &mut World,
    kind: Kind,
    node: &str,
    vmid: u32,
    only: Option<&str>,
) -> Result<(), Failure> {
    let guest = world.guests.find(kind, node, vmid)?;
    let disks: Vec<(String, String)> = snapshot::volumes(kind, &guest.config.current)
        .into_iter()
        .filter(|(name, volid)| {
            let base = world
                .storages
                .parse(volid)
                .is_ok_and(|(_, parsed)| parsed.is_base());
            !base && only.is_none_or(|only| only == name)
        })
        .collect();
    for (name, volid) in disks {
        if !world.storages.has_feature(Feature::Template, &volid, false) {
            if kind == Kind::Qemu {
                continue;
            }
            return Err(Failure::die(format!(
                "Template feature is not available for '{volid}'"
            )));
        }
        let base = world.storages.make_base(node, &volid)?;
        let guest = world.guests.find_mut(kind, node, vmid)?;
        let value = guest.config.get(&name).unwrap_or_default().to_owned();
        let value = match kind {
            Kind::Qemu => {
                let mut drive = Drive::parse(&value);
                drive.set("file", base);
                drive.print()
            }
            Kind::Lxc => lxc::with_volume(&value, &base),
        };
        guest.config.set(&name, value);
    }
    mark_as_template(world, kind, node, vmid)
}

fn mark_as_template(world: &mut World, kind: Kind, node: &str, vmid: u32) -> Result<(), Failure> {
    let guest = world.guests.find_mut(kind, node, vmid)?;
    guest.config.set("template", "1");
    Ok(())
}

/// `GET …/feature`
pub(crate) fn feature(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let guest = read::guest(call, kind).map_err(|_| {
        Failure::die(format!(
            "unable to find configuration file for {} {vmid} on node '{node}'",
            kind.word()
        ))
    })?;
    let snap = call.params.get("snapname");
    if let Some(snap) = snap.filter(|snap| !guest.config.snapshots.contains_key(*snap)) {
        return Err(Failure::die(format!("snapshot '{snap}' does not exist")));
    }
    let feature = match call.params.text("feature") {
        "snapshot" => Feature::Snapshot,
        "clone" => Feature::Clone,
        _ => Feature::Copy,
    };
    let has = snapshot::has_feature(call.world, guest, feature, snap)
        && (feature != Feature::Snapshot || !guest.is_template());
    let mut answer = json!({ "hasFeature": u8::from(has) });
    if kind == Kind::Qemu {
        answer["nodes"] = json!(shared_nodes(call.world, guest));
    }
    Ok(Reply::Data(answer))
}

/// Nodes that see all disks of a guest.
pub(crate) fn shared_nodes(world: &World, guest: &Guest) -> Vec<String> {
    world
        .nodes
        .keys()
        .filter(|node| {
            drives(&guest.config.current).all(|(_, drive)| {
                drive.storage().is_none_or(|id| {
                    world.storages.get(id).is_ok_and(|storage| {
                        storage.def.on_node(node) && (storage.def.shared || **node == guest.node)
                    })
                })
            })
        })
        .cloned()
        .collect()
}
