//! Applies pending changes to a running VM, as far as its hotplug settings and the guest allow.

use std::collections::BTreeMap;

use super::change;
use super::config::Config;
use super::drive::Drive;
use super::live::Inside;
use super::options::{self, Plug};
use super::{Guest, Kind, outside};
use crate::world::World;

/// The hotplug features that are on.
pub(crate) fn features(config: &Config) -> Vec<&str> {
    match config.get("hotplug") {
        None | Some("1") => vec!["network", "disk", "usb"],
        Some("0") => Vec::new(),
        Some(list) => crate::params::split_list(list),
    }
}

/// Whether the system inside lets go of a device when asked.
fn lets_go(guest: &Guest) -> bool {
    let up = guest
        .run
        .as_ref()
        .is_some_and(|run| run.inside == Inside::Up);
    up && !guest.quirks.keep_devices
}

/// Applies what can be applied now of the options just changed; older pending changes are not tried
/// again. What should have been applied but failed stays pending; the errors say so.
pub(crate) fn apply(
    world: &mut World,
    node: &str,
    vmid: u32,
    changed: &dyn Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let mut errors = BTreeMap::new();
    let Ok(guest) = world.guests.find(Kind::Qemu, node, vmid) else {
        return errors;
    };
    let deletions: Vec<(String, bool)> = guest
        .config
        .pending_delete
        .iter()
        .map(|(k, v)| (k.clone(), *v))
        .collect();
    let values: Vec<(String, String)> = guest
        .config
        .pending
        .iter()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for (option, force) in deletions {
        if !changed(&option) || !applies(world, node, vmid, &option) {
            continue;
        }
        if let Err(error) = unplug(world, node, vmid, &option, force) {
            errors.insert(option, format!("hotplug problem - {error}\n"));
        }
    }
    for (option, value) in values {
        if !changed(&option) || !applies(world, node, vmid, &option) {
            continue;
        }
        if let Err(error) = plug(world, node, vmid, &option, &value) {
            errors.insert(option, format!("hotplug problem - {error}\n"));
        }
    }
    errors
}

fn applies(world: &World, node: &str, vmid: u32, option: &str) -> bool {
    let Ok(guest) = world.guests.find(Kind::Qemu, node, vmid) else {
        return false;
    };
    // A disc can be changed in any drive that is there, also on buses that cannot be plugged.
    let disc = options::is_disk(option)
        && guest
            .config
            .get(option)
            .is_some_and(|value| Drive::parse(value).is_cdrom());
    if disc && guest.config.pending.contains_key(option) {
        return true;
    }
    match options::hotplug(option) {
        Plug::AtOnce => true,
        Plug::Later => false,
        Plug::Feature(feature) => {
            let on = features(&guest.config).contains(&feature);
            on && (option != "memory" || guest.config.is_true("numa"))
        }
    }
}

/// The boot disk cannot be taken from under a running system.
fn is_boot_disk(guest: &Guest, option: &str) -> bool {
    let order = guest
        .config
        .get("boot")
        .and_then(|boot| boot.strip_prefix("order="));
    let bootable = |device: &&str| options::is_disk(device);
    order.is_some_and(|order| order.split(';').find(bootable) == Some(option))
        || guest.config.get("bootdisk") == Some(option)
}

fn unplug(
    world: &mut World,
    node: &str,
    vmid: u32,
    option: &str,
    force: bool,
) -> Result<(), String> {
    let guest = world
        .guests
        .find(Kind::Qemu, node, vmid)
        .map_err(|f| f.message)?;
    if options::is_disk(option) {
        if is_boot_disk(guest, option) {
            return Err(format!("can't unplug bootdisk '{option}'"));
        }
        if !lets_go(guest) {
            return Err(busy(&controller(guest, option)));
        }
    }
    if options::is(option, "net") && !lets_go(guest) {
        return Err(busy(option));
    }
    if option == "vcpus" || option == "memory" {
        return Err("unable to change value while the guest runs".to_owned());
    }
    let guest = world
        .guests
        .find_mut(Kind::Qemu, node, vmid)
        .map_err(|f| f.message)?;
    guest.config.pending_delete.remove(option);
    if let Some(value) = guest.config.remove(option)
        && options::is_drive(option)
    {
        change::drop_drive(world, node, vmid, &value, force).map_err(|f| f.message)?;
    }
    Ok(())
}

fn busy(device: &str) -> String {
    format!("error on hot-unplugging device '{device}' - still busy in guest?")
}

/// Disks on a single-queue SCSI controller have a controller each, which is what is unplugged.
fn controller(guest: &Guest, option: &str) -> String {
    match options::indexed(option) {
        Some(("scsi", index)) if guest.config.get("scsihw") == Some("virtio-scsi-single") => {
            format!("virtioscsi{index}")
        }
        _ => option.to_owned(),
    }
}

/// What QEMU is told of a disk when it is attached, and cannot be told again.
const AT_START: &[&str] = &[
    "aio", "cache", "discard", "iothread", "product", "queues", "ro", "ssd", "vendor",
];

/// Whether a disk that stays where it is has to be attached anew for this: then the whole value is left pending.
fn waits_for_start(before: &Drive, after: &Drive) -> bool {
    let stays = !before.is_cdrom() && before.file() == after.file();
    stays && AT_START.iter().any(|key| before.get(key) != after.get(key))
}

fn plug(world: &mut World, node: &str, vmid: u32, option: &str, value: &str) -> Result<(), String> {
    let guest = world
        .guests
        .find(Kind::Qemu, node, vmid)
        .map_err(|f| f.message)?;
    let old = guest.config.get(option).map(str::to_owned);
    if options::is(option, "net") {
        let bridge = super::formats::NET.parse(value).get("bridge").cloned();
        if let Some(bridge) = bridge.filter(|bridge| !outside::has_bridge(world, node, bridge)) {
            return Err(format!(
                "VM {vmid} qmp command 'netdev_add' failed - network script /usr/libexec/qemu-server/pve-bridge-hotplug failed with status 256: bridge '{bridge}' does not exist"
            ));
        }
    }
    if options::is_disk(option)
        && let Some(old) = &old
    {
        let (before, after) = (Drive::parse(old), Drive::parse(value));
        let swapped = before.file() != after.file();
        if swapped && !before.is_cdrom() {
            if is_boot_disk(guest, option) {
                return Err(format!("can't unplug bootdisk '{option}'"));
            }
            if !lets_go(guest) {
                return Err(busy(&controller(guest, option)));
            }
        }
    }
    if let Some(old) = &old
        && options::is_disk(option)
        && waits_for_start(&Drive::parse(old), &Drive::parse(value))
    {
        return Ok(());
    }
    if option == "memory" {
        let wanted = super::create::memory_of(value);
        if wanted < old.as_deref().map_or(512, super::create::memory_of) && !lets_go(guest) {
            return Err("error unplug memory - still busy in guest?".to_owned());
        }
    }
    let detached = old.as_deref().and_then(|old| {
        let (before, after) = (Drive::parse(old), Drive::parse(value));
        let pushed =
            options::is_disk(option) && !before.is_cdrom() && before.file() != after.file();
        pushed.then(|| before.volume().map(str::to_owned)).flatten()
    });
    let guest = world
        .guests
        .find_mut(Kind::Qemu, node, vmid)
        .map_err(|f| f.message)?;
    guest.config.pending.remove(option);
    guest.config.set(option, value);
    if let Some(volid) = detached {
        change::add_unused(&mut guest.config.current, &volid);
    }
    Ok(())
}
