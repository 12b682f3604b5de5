//! Disks in PVE's keys.

use super::{Context, Desired, Invalid, Want};
use crate::{
    Size, StorageId,
    intent::{Bus, CloneMode, Disk, DiskRole, GuestIntent, Source},
    prop::Prop,
    record::Identity,
};

/// The name under which a root disk that nobody declared is remembered.
pub(crate) const ROOT_NAME: &str = "root";

/// Slots a template may boot from when it does not say which, in order.
pub(crate) const ROOT_CANDIDATES: &[&str] = &["scsi0", "virtio0", "sata0", "ide0"];

/// How a volume comes into being.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Make {
    /// By this value.
    New(String),
    /// With the source and in no other way.
    #[default]
    Brought,
    /// Not now: no storage can hold it.
    Nowhere(Invalid),
}

impl Make {
    /// Made on this storage, if there is one.
    pub(super) fn on(
        storage: Option<&StorageId>,
        context: Context<'_>,
        field: impl Into<String>,
        what: &str,
        value: impl FnOnce(&str) -> String,
    ) -> Self {
        let storage = storage.map(StorageId::as_str).or(context.default_storage);
        storage.map_or_else(
            || {
                let problem = format!(
                    "is not set and no storage of the node may hold {what} now: name one, or make one available"
                );
                Self::Nowhere(Invalid::new(field, problem))
            },
            |storage| Self::New(value(storage)),
        )
    }
}

/// The state of firmware or TPM as it shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateWant {
    /// How it is made when it is missing.
    pub(crate) make: Make,
    /// Where it was declared to be.
    pub(crate) storage: Option<StorageId>,
    /// What it was declared to be made with.
    pub(crate) options: Prop,
}

/// A disk as it shall be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DiskWant {
    /// How it is made when it is missing.
    pub(crate) make: Make,
    /// Where it shall be, if it matters: a disk that is elsewhere is moved.
    pub(crate) storage: Option<StorageId>,
    /// Its size, if it matters.
    pub(crate) size: Option<Size>,
    /// The bus it shall be on, if it matters.
    pub(crate) bus: Option<Bus>,
    /// The format it shall have, if it matters.
    pub(crate) format: Option<String>,
    /// It shall have all its space from the beginning.
    pub(crate) thick: bool,
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
        let brought = disk.role == DiskRole::Root || identity.brought.contains(&disk.name);
        // A link stays where its template is.
        let stays = disk.stays || (brought && is_linked(&intent.source));
        let storage = disk.storage.clone().filter(|_| !stays);
        let make = if identity.brought.contains(&disk.name) {
            Make::Brought
        } else {
            make(disk, intent, context, &options)?
        };
        want.keys.insert(
            slot.to_string(),
            Want::Disk(DiskWant {
                make,
                storage,
                size: disk.size,
                bus: disk.bus,
                format: disk.format.clone(),
                thick: disk.thin == Some(false),
                options,
            }),
        );
    }
    // The source's own root disk is missed as well, though nothing else is said about it.
    let declared = intent.disks.iter().any(|disk| disk.role == DiskRole::Root);
    if let Some(slot) = identity.disks.get(ROOT_NAME).filter(|_| !declared) {
        let place = want.keys.entry(slot.to_string());
        place.or_insert(Want::Disk(DiskWant::default()));
    }
    // A disk that is no longer declared is taken out; its volume stays with the guest as unused.
    for (name, slot) in &identity.disks {
        if name != ROOT_NAME && !intent.disks.iter().any(|disk| &disk.name == name) {
            want.absent.insert(slot.to_string());
        }
    }
    Ok(())
}

pub(crate) fn is_linked(source: &Source) -> bool {
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
) -> Result<Make, Invalid> {
    let field = |name: &str| format!("disks[{}].{name}", disk.name);
    let import = match (&disk.import_from, &intent.source, disk.role) {
        (Some(volume), _, _) | (None, Source::Volume { volume }, DiskRole::Root) => {
            Some(volume.clone())
        }
        // The root disk of a copy comes with the copy.
        (None, Source::Template { .. } | Source::Backup { .. }, DiskRole::Root) => {
            return Ok(Make::Brought);
        }
        _ => None,
    };
    let mut items = Prop::default();
    let behind = if let Some(volume) = import {
        items.set("import-from", volume);
        "0".to_owned()
    } else {
        let Some(size) = disk.size else {
            return Err(Invalid::new(field("size"), "is needed for a new disk"));
        };
        size.to_pve_gib()
    };
    items.maybe("format", disk.made_as());
    let value = |storage: &str| {
        let mut value = Prop::default();
        value.set("file", format!("{storage}:{behind}"));
        value.over(&items).over(options).print("scsi0")
    };
    let storage = disk.storage.as_ref();
    Ok(Make::on(storage, context, field("storage"), "disks", value))
}
