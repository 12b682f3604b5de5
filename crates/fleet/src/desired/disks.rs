//! Disks in PVE's keys.

use super::{Context, Desired, Invalid, Want};
use crate::{
    Size, StorageId,
    intent::{CloneMode, Disk, DiskRole, GuestIntent, Source},
    prop::Prop,
    record::Identity,
};

/// The name under which a root disk that nobody declared is remembered.
pub(crate) const ROOT_NAME: &str = "root";

/// Slots a template may boot from when it does not say which, in order.
pub(crate) const ROOT_CANDIDATES: &[&str] = &["scsi0", "virtio0", "sata0", "ide0"];

/// A disk as it shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskWant {
    /// The value that makes it when it is missing; `None` if it can only come with the source.
    pub(crate) make: Option<String>,
    /// Where it shall be, if it matters: a disk that is elsewhere is moved.
    pub(crate) storage: Option<StorageId>,
    /// Its size, if it matters.
    pub(crate) size: Option<Size>,
    /// Options it shall have.
    pub(crate) options: Prop,
}

pub(super) fn disks(
    want: &mut Desired,
    intent: &GuestIntent,
    identity: &Identity,
    context: Context<'_>,
) -> Result<(), Invalid> {
    for disk in &intent.disks {
        let Some(slot) = identity.disks.get(&disk.name) else {
            continue;
        };
        let options = options(disk);
        // What was taken over stays where it was found, and a link where its template is.
        let stays = identity.adopted || (disk.role == DiskRole::Root && is_linked(&intent.source));
        let storage = disk.storage.clone().filter(|_| !stays);
        let make = make(disk, intent, context, &options)?;
        want.keys.insert(
            slot.to_string(),
            Want::Disk(DiskWant {
                make,
                storage,
                size: disk.size,
                options,
            }),
        );
    }
    // A disk that is no longer declared is taken out; its volume stays with the guest as unused.
    for (name, slot) in &identity.disks {
        if name != ROOT_NAME && !intent.disks.iter().any(|disk| &disk.name == name) {
            want.absent.insert(slot.to_string());
        }
    }
    Ok(())
}

fn is_linked(source: &Source) -> bool {
    let linked = CloneMode::Linked;
    matches!(source, Source::Template { mode, .. } if *mode == linked)
}

fn options(disk: &Disk) -> Prop {
    let mut items = Prop::default();
    items.maybe("aio", disk.aio.as_ref());
    items.flag("backup", disk.backup);
    items.maybe("cache", disk.cache.as_ref());
    items.maybe(
        "discard",
        disk.discard.map(|on| if on { "on" } else { "ignore" }),
    );
    items.maybe("iops_rd", disk.limits.iops_rd);
    items.maybe("iops_wr", disk.limits.iops_wr);
    items.flag("iothread", disk.iothread);
    items.maybe("mbps_rd", disk.limits.mbps_rd);
    items.maybe("mbps_wr", disk.limits.mbps_wr);
    items.flag("replicate", disk.replicate);
    items.flag("ro", disk.read_only);
    items.maybe("serial", disk.serial.as_ref());
    items.flag("ssd", disk.ssd);
    items
}

fn make(
    disk: &Disk,
    intent: &GuestIntent,
    context: Context<'_>,
    options: &Prop,
) -> Result<Option<String>, Invalid> {
    let field = |name: &str| format!("disks[{}].{name}", disk.name);
    let import = match (&disk.import_from, &intent.source, disk.role) {
        (Some(volume), _, _) | (None, Source::Volume { volume }, DiskRole::Root) => {
            Some(volume.clone())
        }
        // The root disk of a copy comes with the copy.
        (None, Source::Template { .. } | Source::Backup { .. }, DiskRole::Root) => return Ok(None),
        _ => None,
    };
    let Some(storage) = disk
        .storage
        .as_ref()
        .map(ToString::to_string)
        .or_else(|| context.default_storage.map(str::to_owned))
    else {
        return Err(Invalid::new(
            field("storage"),
            "is not set and no storage of the cluster may hold disks: name one",
        ));
    };
    let mut items = Prop::default();
    if let Some(volume) = import {
        items.set("file", format!("{storage}:0"));
        items.set("import-from", volume);
    } else {
        let Some(size) = disk.size else {
            return Err(Invalid::new(field("size"), "is needed for a new disk"));
        };
        items.set("file", format!("{storage}:{}", size.to_pve_gib()));
    }
    let format = disk
        .format
        .clone()
        .or_else(|| (disk.thin == Some(false)).then(|| "raw".to_owned()));
    items.maybe("format", format);
    Ok(Some(items.over(options).print("scsi0")))
}
