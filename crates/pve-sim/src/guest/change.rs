//! Changes of a VM's configuration: what is asked for, what is pending, what applies at once.
//!
//! Every change goes through the pending section. A stopped guest takes all of it immediately. A
//! running guest takes what its hotplug settings allow (see [`super::hotplug`]); the rest waits for
//! the next cold start, which calls [`apply_pending`].

use std::collections::BTreeMap;

use super::config::{Config, Options, tidy_tags};
use super::drive::Drive;
use super::formats::NET;
use super::{Kind, cloudinit, create, disks, hotplug, options};
use crate::failure::Failure;
use crate::world::World;

/// What a caller asks of a configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) set: Options,
    pub(crate) delete: Vec<String>,
    pub(crate) revert: Vec<String>,
    /// Volumes of removed disks go too.
    pub(crate) force: bool,
    pub(crate) skip_lock: bool,
    pub(crate) digest: Option<String>,
}

/// Records a change whose new drives are already made; applies what can be applied.
///
/// Errors of hotplug are returned by option after everything else was done: PVE leaves such changes
/// pending and says so.
pub(crate) fn change(
    world: &mut World,
    node: &str,
    vmid: u32,
    change: &Change,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut set = change.set.clone();
    prepare(world, &mut set)?;
    let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
    guest.check_digest(change.digest.as_deref())?;
    if !change.skip_lock {
        guest.check_lock()?;
    }
    let running = guest.is_running();
    for option in &change.revert {
        guest.config.revert(option);
    }
    for option in &change.delete {
        delete_one(world, node, vmid, option, change.force)?;
    }
    let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
    for (option, value) in &set {
        if let Some(attached) = replaced_disk(guest.config.get(option), option, value)
            && !running
        {
            add_unused(&mut guest.config.current, &attached);
        }
        if options::is_drive(option)
            && let Some(volid) = Drive::parse(value).volume()
        {
            // A volume that is attached again is no longer unused.
            guest.config.current.retain(|name, unused| {
                !(options::is(name, "unused") && unused.split(',').next() == Some(volid))
            });
        }
        guest.config.pend(option, value.clone());
    }
    boot_order(&mut guest.config, &set);
    guest.config.cleanup_pending();
    if running {
        let changed =
            |option: &str| set.contains_key(option) || change.delete.iter().any(|d| d == option);
        Ok(hotplug::apply(world, node, vmid, &changed))
    } else {
        apply_pending(world, node, vmid)?;
        Ok(BTreeMap::new())
    }
}

/// A new CD drive can be booted from; an order of devices replaces the older way to name one.
fn boot_order(config: &mut Config, set: &Options) {
    if set
        .get("boot")
        .is_some_and(|boot| boot.starts_with("order="))
    {
        if config.get("bootdisk").is_some() {
            config.pend_delete("bootdisk", false);
        }
        return;
    }
    let Some(boot) = config.merged().get("boot").cloned() else {
        return;
    };
    let Some(order) = boot.strip_prefix("order=") else {
        return;
    };
    let mut order: Vec<&str> = order.split(';').collect();
    let before = order.len();
    for (name, drive) in create::drives(set) {
        if drive.is_plain_cdrom() && !order.contains(&name) {
            order.push(name);
        }
    }
    if order.len() > before {
        config.pend("boot", format!("order={}", order.join(";")));
    }
}

/// Brings values into the form PVE stores.
fn prepare(world: &mut World, set: &mut Options) -> Result<(), Failure> {
    for (option, value) in set.iter_mut() {
        match option.as_str() {
            "tags" => *value = tidy_tags(value),
            "cipassword" if !cloudinit::looks_hashed(value) => {
                *value = super::secret::crypt(value, &mut world.rng);
            }
            "vmgenid" if value == "1" => *value = world.uuid(),
            _ if options::is(option, "net") => {
                let mut net = NET.parse(value);
                if !net.contains_key("macaddr") {
                    net.insert("macaddr".to_owned(), create::random_mac(world));
                }
                *value = NET.print(&net);
            }
            _ => {}
        }
    }
    if let Some(keys) = set.get("sshkeys") {
        create::check_keys(keys)?;
    }
    Ok(())
}

/// The disk an assignment pushes out of its slot.
fn replaced_disk(current: Option<&str>, option: &str, value: &str) -> Option<String> {
    if !options::is_drive(option) {
        return None;
    }
    let old = Drive::parse(current?);
    let new = Drive::parse(value);
    let gone = !old.is_cdrom() && old.file() != new.file();
    gone.then(|| old.volume().map(str::to_owned)).flatten()
}

/// Marks one option for removal.
fn delete_one(
    world: &mut World,
    node: &str,
    vmid: u32,
    option: &str,
    force: bool,
) -> Result<(), Failure> {
    let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
    if option == "lock" {
        guest.config.remove("lock");
        return Ok(());
    }
    let protected = guest.config.get("protection") == Some("1");
    let refuse = |what: String| {
        Err(Failure::die(format!(
            "can't remove {what} - protection mode enabled"
        )))
    };
    let Some(value) = guest.config.get(option).map(str::to_owned) else {
        let waiting = guest.config.pending.get(option).cloned();
        if let Some(waiting) = waiting.filter(|_| options::is_drive(option)) {
            if protected {
                return refuse(format!("drive '{option}'"));
            }
            // It was made for a slot that it never got into.
            if let Some(volid) = Drive::parse(&waiting).volume() {
                add_unused(&mut guest.config.current, volid);
            }
        }
        guest.config.revert(option);
        return Ok(());
    };
    if options::is(option, "unused") {
        let volid = Drive::parse(&value).file().to_owned();
        if protected {
            return refuse(format!("unused disk '{volid}'"));
        }
        if guest
            .config
            .snapshots
            .values()
            .any(|snap| uses(snap, &volid))
        {
            return Err(Failure::die(format!(
                "unable to delete '{volid}' - volume is still in use (snapshot?)"
            )));
        }
        guest.config.remove(option);
        world.storages.free(node, &volid)?;
        return Ok(());
    }
    if options::is_drive(option) {
        if protected {
            return refuse(format!("drive '{option}'"));
        }
        let config = &mut guest.config;
        let order = config.merged().get("boot").cloned();
        if let Some(order) = order
            .as_deref()
            .and_then(|boot| boot.strip_prefix("order="))
        {
            let left: Vec<&str> = order
                .split(';')
                .filter(|device| *device != option)
                .collect();
            let next = if left.is_empty() {
                " ".to_owned()
            } else {
                format!("order={}", left.join(";"))
            };
            if config.merged().get("boot") != Some(&next) {
                config.pend("boot", next);
            }
        }
    }
    guest.config.pend_delete(option, force);
    Ok(())
}

/// Whether some options have this volume on a drive or as unused.
pub(crate) fn uses(options: &Options, volid: &str) -> bool {
    options.iter().any(|(name, value)| {
        (options::is_drive(name)
            || options::is(name, "unused")
            || name == "vmstate"
            || name == "rootfs"
            || options::is(name, "mp"))
            && Drive::parse(value).file() == volid
    })
}

/// Keeps a detached volume as the first free `unusedN`.
pub(crate) fn add_unused(options: &mut Options, volid: &str) -> Option<String> {
    if options
        .iter()
        .any(|(name, value)| options::is(name, "unused") && value.split(',').next() == Some(volid))
    {
        return None;
    }
    let name = (0..256)
        .map(|n| format!("unused{n}"))
        .find(|name| !options.contains_key(name))?;
    options.insert(name.clone(), volid.to_owned());
    Some(name)
}

/// Removes a drive's volume, or keeps it as unused.
pub(crate) fn drop_drive(
    world: &mut World,
    node: &str,
    vmid: u32,
    value: &str,
    force: bool,
) -> Result<(), Failure> {
    let drive = Drive::parse(value);
    let Some(volid) = drive.volume().map(str::to_owned) else {
        return Ok(());
    };
    let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
    if drive.is_plain_cdrom() {
        return Ok(());
    }
    let in_snapshot = guest
        .config
        .snapshots
        .values()
        .any(|snap| uses(snap, &volid));
    if (force || drive.is_cloudinit()) && !in_snapshot {
        world.storages.free(node, &volid)?;
    } else {
        add_unused(&mut guest.config.current, &volid);
    }
    Ok(())
}

/// Makes all pending changes current: what a stopped guest, or a cold start, does.
pub(crate) fn apply_pending(world: &mut World, node: &str, vmid: u32) -> Result<(), Failure> {
    let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
    let removed = std::mem::take(&mut guest.config.pending_delete);
    let pending = std::mem::take(&mut guest.config.pending);
    for (option, force) in removed {
        let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
        if let Some(value) = guest.config.remove(&option)
            && options::is_drive(&option)
        {
            drop_drive(world, node, vmid, &value, force)?;
        }
    }
    for (option, value) in pending {
        let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
        let old = guest.config.get(&option).map(str::to_owned);
        if let Some(volid) = replaced_disk(old.as_deref(), &option, &value) {
            add_unused(&mut guest.config.current, &volid);
        }
        guest.config.set(&option, value);
    }
    Ok(())
}

/// Uses volumes that drives of a change name; sizes go into the drives.
pub(crate) fn attach_existing(
    world: &mut World,
    node: &str,
    set: &mut Options,
) -> Result<(), Failure> {
    for (option, value) in set.iter_mut() {
        if !options::is_drive(option) {
            continue;
        }
        let mut drive = Drive::parse(value);
        if let super::drive::Source::Volume(volid) = drive.source() {
            disks::attach(world, node, option, &volid, &mut drive)?;
            *value = drive.print();
        }
    }
    Ok(())
}
