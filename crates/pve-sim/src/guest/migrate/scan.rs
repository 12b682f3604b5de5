//! What stands in the way of a move, and what has to be carried.

use super::Move;
use crate::failure::Failure;
use crate::guest::create::drives;
use crate::guest::drive::Drive;
use crate::guest::{Guest, Kind, lxc, options, permit};
use crate::storage::{self, Format, Name, Storage};
use crate::world::World;

/// A local volume that has to be carried over.
pub(super) struct Load {
    pub(super) option: String,
    pub(super) volid: String,
    pub(super) to: String,
    pub(super) bytes: u64,
}

/// Devices that are named by a mapping must be on the other node, and cannot go along while the guest runs.
pub(super) fn mapped_devices(
    world: &World,
    node: &str,
    vmid: u32,
    how: &Move,
    running: bool,
) -> Result<(), Failure> {
    let Ok(guest) = world.guests.find(Kind::Qemu, node, vmid) else {
        return Ok(());
    };
    let (mut mapped, mut missing) = (Vec::new(), Vec::new());
    for (name, value) in &guest.config.current {
        let kind = match options::indexed(name) {
            Some(("hostpci", _)) => "pci",
            Some(("usb", _)) => "usb",
            _ => continue,
        };
        let Some(id) = permit::mapped(value) else {
            continue;
        };
        mapped.push(format!("{name}:{id}"));
        if !world.mappings.is_on(kind, id, &how.target) {
            missing.push(name.clone());
        }
    }
    if running && !mapped.is_empty() {
        let mapped = mapped.join(", ");
        return Err(Failure::die(format!(
            "can't live migrate running VM which uses following mapped devices: {mapped}"
        )));
    }
    if !missing.is_empty() {
        let (target, missing) = (&how.target, missing.join(", "));
        return Err(Failure::die(format!(
            "can't migrate to '{target}': missing mapped devices {missing}"
        )));
    }
    Ok(())
}

/// Looks through the guest's volumes: what stands in the way, and what has to be carried.
pub(super) fn scan(
    world: &World,
    kind: Kind,
    node: &str,
    vmid: u32,
    how: &Move,
    running: bool,
) -> Result<(Vec<String>, Vec<Load>), Failure> {
    let guest = world.guests.find(kind, node, vmid)?;
    let mut problems = Vec::new();
    let mut loads = Vec::new();
    let mut volumes: Vec<(String, String, bool)> = match kind {
        Kind::Qemu => drives(&guest.config.current)
            .filter_map(|(name, drive)| {
                Some((
                    name.to_owned(),
                    drive.volume()?.to_owned(),
                    drive.is_plain_cdrom(),
                ))
            })
            .collect(),
        Kind::Lxc => lxc::volumes(&guest.config.current)
            .into_iter()
            .map(|(name, volid)| (name, volid, false))
            .collect(),
    };
    volumes.extend(
        guest
            .config
            .current
            .iter()
            .filter(|(name, _)| options::is(name, "unused"))
            .map(|(name, value)| (name.clone(), Drive::parse(value).file().to_owned(), false)),
    );
    let kept = guest.config.snapshots.values();
    volumes.extend(kept.flat_map(drives).filter_map(|(name, drive)| {
        let volume = drive.volume().filter(|_| drive.is_plain_cdrom())?;
        Some((name.to_owned(), volume.to_owned(), true))
    }));
    let states = guest.config.snapshots.values();
    volumes.extend(
        states
            .filter_map(|snapshot| snapshot.get("vmstate"))
            .map(|volid| ("vmstate".to_owned(), volid.clone(), false)),
    );
    for (option, volid, cdrom) in volumes {
        let (storage, name) = world.storages.parse(&volid)?;
        let to = how.storages.of(&storage.def.id);
        if storage.def.shared {
            if world
                .storages
                .enabled(&storage.def.id, &how.target)
                .is_err()
            {
                problems.push(format!(
                    "ERROR: storage '{}' is not available on node '{}'",
                    storage.def.id, how.target
                ));
            }
            continue;
        }
        if cdrom {
            let text = format!("can't migrate local disk '{volid}': local cdrom image");
            if !problems.contains(&text) {
                problems.push(text);
            }
            continue;
        }
        let attached = option != "vmstate" && !options::is(&option, "unused");
        let small = Drive::parse(&volid).is_cloudinit();
        if running && kind == Kind::Qemu && attached && !small && !how.with_local_disks {
            problems.push(format!(
                "can't migrate local disk '{volid}': can't live migrate attached local disks without with-local-disks option"
            ));
            continue;
        }
        if attached && let Some(why) = held_by_snapshot(guest, storage, &name, &volid, running) {
            problems.push(format!("can't migrate local disk '{volid}': {why}"));
            continue;
        }
        if world.storages.enabled(&to, &how.target).is_err() {
            problems.push(format!(
                "ERROR: storage '{to}' is not available on node '{}'",
                how.target
            ));
            continue;
        }
        if let Some(problem) = bound(world, node, &how.target, &volid, &name) {
            problems.push(problem);
            continue;
        }
        let bytes = world
            .storages
            .volume(node, &volid)
            .map_or(0, |volume| volume.used);
        loads.push(Load {
            option,
            volid,
            to,
            bytes,
        });
    }
    Ok((problems, loads))
}

/// The first storage of a guest's volumes that the other node has not.
pub(super) fn missing(
    world: &World,
    kind: Kind,
    node: &str,
    vmid: u32,
    how: &Move,
) -> Result<Option<String>, Failure> {
    let (problems, _) = scan(world, kind, node, vmid, how, false)?;
    let missing = |problem: &String| problem.contains("is not available on node");
    Ok(problems.into_iter().find(missing))
}

/// Snapshots of a local disk go along only if its format carries them, and never while the guest runs.
fn held_by_snapshot(
    guest: &Guest,
    storage: &Storage,
    name: &Name,
    volid: &str,
    running: bool,
) -> Option<&'static str> {
    let mut values = guest
        .config
        .snapshots
        .values()
        .flat_map(|snap| snap.values());
    if !values.any(|value| Drive::parse(value).volume() == Some(volid)) {
        None
    } else if running && guest.kind == Kind::Qemu {
        Some("online storage migration not possible if non-replicated snapshot exists")
    } else if storage.def.kind == storage::Kind::ZfsPool || name.format == Format::Qcow2 {
        None
    } else {
        Some("non-migratable snapshot exists")
    }
}

/// Linked clones cannot leave their base, nor a base its clones.
fn bound(world: &World, node: &str, target: &str, volid: &str, name: &Name) -> Option<String> {
    let (storage, _) = world.storages.parse(volid).ok()?;
    if let Some((_, base)) = &name.base {
        let there = storage
            .store(target)
            .is_some_and(|store| store.iter().any(|(_, volume)| volume.name.file == *base));
        if !there {
            return Some(format!(
                "can't migrate local disk '{volid}': can't migrate '{volid}' as it's a clone of '{base}'"
            ));
        }
    }
    let key = name.key();
    let cloned = storage
        .store(node)
        .is_some_and(|store| store.iter().any(|(_, v)| v.parent.as_deref() == Some(&key)));
    cloned.then(|| format!("ERROR: base volume '{volid}' is referenced by linked clone(s)"))
}
