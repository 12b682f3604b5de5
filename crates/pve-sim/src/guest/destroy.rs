//! `DELETE …/{vmid}`: a guest with everything it owns.

use std::time::Duration;

use super::change;
use super::configure::root_only;
use super::create::{drives, forget};
use super::drive::Drive;
use super::{Guest, Kind, lxc, options, outside, read, snapshot};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::Mode;
use crate::replication;
use crate::storage::Error as StorageError;
use crate::task::Worker;
use crate::world::World;

const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Handles the call.
pub(crate) fn destroy(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    if kind == Kind::Qemu {
        root_only(call, &["skiplock"])?;
    }
    let vmid = call.vmid();
    let purge = call.params.flag("purge");
    let force = kind == Kind::Lxc && call.params.flag("force");
    let guest = read::guest(call, kind)?;
    let word = kind.word();
    if guest.config.is_true("protection") {
        return Err(Failure::die(format!(
            "can't remove {word} {vmid} - protection mode enabled"
        )));
    }
    if outside::ha_managed(call.world, vmid) && !purge {
        return Err(Failure::die(format!(
            "unable to remove {word} {vmid} - used in HA resources and purge parameter not set."
        )));
    }
    if !purge {
        replication::check_none(call.world, vmid)?;
    }
    if guest.is_running() && !force {
        return Err(Failure::die(match kind {
            Kind::Qemu => format!("VM {vmid} is running - destroy failed"),
            Kind::Lxc => format!("unable to destroy CT {vmid} - container is running"),
        }));
    }
    let unreferenced = call
        .params
        .bool("destroy-unreferenced-disks")
        .unwrap_or(kind == Kind::Lxc);
    let skip_lock = call.params.flag("skiplock") || force;
    let task = if kind == Kind::Qemu {
        "qmdestroy"
    } else {
        "vzdestroy"
    };
    Ok(call.task(task, vmid, move |worker| async move {
        run(
            worker,
            kind,
            vmid,
            Options {
                purge,
                unreferenced,
                skip_lock,
                force,
            },
        )
        .await
    }))
}

#[derive(Clone, Copy)]
struct Options {
    purge: bool,
    unreferenced: bool,
    skip_lock: bool,
    force: bool,
}

async fn run(worker: Worker, kind: Kind, vmid: u32, how: Options) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    let path = snapshot::lock_path(kind, vmid);
    let _held = worker.lock_file(&path, Mode::Exclusive, LOCK_WAIT).await?;
    if how.force && worker.world(|world| world.guests.get(vmid).is_some_and(Guest::is_running)) {
        worker.take(Step::Stop).await?;
        worker.world(|world| super::power::halt(world, vmid));
    }
    let volumes = worker.world(|world| {
        let guest = world.guests.find(kind, &node, vmid)?;
        if guest.is_running() {
            return Err(Failure::die(format!(
                "{} {vmid} is running - destroy failed",
                kind.word()
            )));
        }
        if !how.skip_lock {
            guest.check_lock()?;
        }
        bases_free(world, guest)?;
        Ok(owned(world, guest, how.unreferenced))
    })?;
    worker.take(Step::Destroy).await?;
    for volid in volumes {
        worker.take(Step::FreeVolume).await?;
        let freed = worker.world(|world| world.storages.free(&node, &volid));
        if let Err(error) = freed {
            worker.log(format!(
                "Could not remove disk '{volid}', check manually: {error}"
            ));
        }
    }
    if how.purge {
        let word = kind.word();
        worker.log(format!(
            "purging {word} {vmid} from related configurations.."
        ));
    }
    worker.world(|world| {
        release_leases(world, vmid);
        forget(world, vmid);
        world.access.acl.remove(&format!("/vms/{vmid}"));
        outside::forget(world, vmid, how.purge);
        if how.purge {
            replication::forget(world, vmid);
        }
    });
    Ok(())
}

fn release_leases(world: &mut World, vmid: u32) {
    let macs: Vec<String> = world
        .guests
        .get(vmid)
        .map(|guest| {
            super::inside::cards(guest)
                .into_iter()
                .map(|card| card.mac)
                .collect()
        })
        .unwrap_or_default();
    for mac in macs {
        world.guests.dhcp.release(&mac);
    }
}

/// A template whose base volumes have linked clones stays.
fn bases_free(world: &World, guest: &Guest) -> Result<(), Failure> {
    for (_, volid) in snapshot::volumes(guest.kind, &guest.config.current) {
        let Ok((storage, name)) = world.storages.parse(&volid) else {
            continue;
        };
        if !name.is_base() {
            continue;
        }
        let key = name.key();
        let linked = storage.store(&guest.node).is_some_and(|store| {
            store
                .iter()
                .any(|(_, volume)| volume.parent.as_deref() == Some(&key))
        });
        if linked {
            return Err(StorageError::BaseInUse(volid).into());
        }
    }
    Ok(())
}

/// Every volume that belongs to the guest and goes with it.
fn owned(world: &World, guest: &Guest, unreferenced: bool) -> Vec<String> {
    let mut all = Vec::new();
    let sections = std::iter::once(&guest.config.current)
        .chain(std::iter::once(&guest.config.pending))
        .chain(guest.config.snapshots.values());
    for section in sections {
        let mut found: Vec<String> = match guest.kind {
            Kind::Qemu => drives(section)
                .filter(|(_, drive)| !drive.is_plain_cdrom())
                .filter_map(|(_, drive)| drive.volume().map(str::to_owned))
                .collect(),
            Kind::Lxc => lxc::volumes(section)
                .into_iter()
                .map(|(_, volid)| volid)
                .collect(),
        };
        found.extend(
            section
                .iter()
                .filter(|(name, _)| options::is(name, "unused") || *name == "vmstate")
                .map(|(_, value)| Drive::parse(value).file().to_owned()),
        );
        for volid in found {
            let mine = world
                .storages
                .parse(&volid)
                .is_ok_and(|(_, name)| name.vmid == Some(guest.vmid));
            if mine && !all.contains(&volid) {
                all.push(volid);
            }
        }
    }
    if unreferenced {
        for volid in world.storages.owned_by(&guest.node, guest.vmid) {
            let known = all.iter().any(|other| same_volume(world, other, &volid));
            // Volumes another guest has attached are that guest's business.
            let used = world.guests.iter().any(|other| {
                other.vmid != guest.vmid && change::uses(&other.config.current, &volid)
            });
            if !known && !used {
                all.push(volid);
            }
        }
    }
    all
}

fn same_volume(world: &World, one: &str, two: &str) -> bool {
    match (world.storages.parse(one), world.storages.parse(two)) {
        (Ok((a, one)), Ok((b, two))) => a.def.id == b.def.id && one.key() == two.key(),
        _ => one == two,
    }
}
