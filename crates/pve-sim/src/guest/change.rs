//! Changes of a VM's configuration: what is asked for, what is pending, what applies at once.
//!
//! Every change goes through the pending section. A stopped guest takes all of it immediately. A
//! running guest takes what its hotplug settings allow (see [`super::hotplug`]); the rest waits for
//! the next cold start, which calls [`apply_pending`].

use std::collections::BTreeMap;

use rand::seq::SliceRandom as _;

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
    let mut order = boot_order(&guest.config);
    for option in &change.delete {
        delete_one(world, node, vmid, option, change.force, &mut order)?;
    }
    let turns = in_turn(world, &set, &order);
    let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
    for option in turns {
        set_one(&mut guest.config, running, option, &set[option], &mut order);
    }
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

/// The devices of the boot order before the change, pending ones left aside.
fn boot_order(config: &Config) -> Vec<String> {
    let order = config
        .get("boot")
        .and_then(|boot| boot.strip_prefix("order="));
    let devices = order.unwrap_or_default().split(';');
    let devices = devices.filter(|device| !device.is_empty());
    devices.map(str::to_owned).collect()
}

/// The options in the order they are handled in. PVE takes them from a hash, in another order each time; that shows only where
/// a boot order comes with a CD drive that is appended to the old one.
fn in_turn<'a>(world: &mut World, set: &'a Options, order: &[String]) -> Vec<&'a String> {
    let mut turns: Vec<&String> = set.keys().collect();
    let appends = create::drives(set).any(|(name, drive)| is_appended(order, name, &drive));
    if appends && set.contains_key("boot") {
        turns.shuffle(&mut world.rng);
    }
    turns
}

/// Whether a drive that is set joins the boot order: a CD drive that was not in it.
fn is_appended(order: &[String], name: &str, drive: &Drive) -> bool {
    !order.is_empty() && drive.is_plain_cdrom() && !order.iter().any(|device| device == name)
}

/// Puts one option into the pending section.
fn set_one(config: &mut Config, running: bool, option: &str, value: &str, order: &mut Vec<String>) {
    if config.pending.get(option).is_some_and(|now| now == value) {
        return;
    }
    if let Some(attached) = replaced_disk(config.get(option), option, value)
        && !running
    {
        add_unused(&mut config.current, &attached);
    }
    // One that was made for the slot and never got into it stays with the guest.
    let waiting = config.pending.get(option).map(String::as_str);
    let attached = |volid: &str| {
        config
            .get(option)
            .is_some_and(|now| Drive::parse(now).file() == volid)
    };
    if let Some(waiting) = replaced_disk(waiting, option, value).filter(|it| !attached(it)) {
        add_unused(&mut config.current, &waiting);
    }
    config.pend(option, value);
    if options::is_drive(option) {
        let drive = Drive::parse(value);
        if let Some(volid) = drive.volume() {
            // A volume that is attached again is no longer unused.
            config.current.retain(|name, unused| {
                !(options::is(name, "unused") && unused.split(',').next() == Some(volid))
            });
        }
        // The old order and this drive: an order that was sent and handled before is lost.
        if is_appended(order, option, &drive) {
            order.push(option.to_owned());
            config.pend("boot", format!("order={}", order.join(";")));
        }
    }
    // An order of devices replaces the older way to name one.
    let ordered = option == "boot" && value.starts_with("order=");
    if ordered && config.get("bootdisk").is_some() {
        config.pend_delete("bootdisk", false);
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
    order: &mut Vec<String>,
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
        if order.iter().any(|device| device == option) {
            order.retain(|device| device != option);
            let left = if order.is_empty() {
                " ".to_owned()
            } else {
                format!("order={}", order.join(";"))
            };
            guest.config.pend("boot", left);
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
