//! Changes of a container's configuration.
//!
//! As with VMs every change goes through the pending section, and a running container takes what it can at once. Unlike
//! there, volumes are made within the call, and a call of which a part fails is refused as a whole: nothing of it is stored.

use std::collections::BTreeMap;

use super::options::{goes_at_once, taken_at_once};
use super::{create, is_mount, random_macs};
use crate::failure::Failure;
use crate::guest::change::{add_unused, uses};
use crate::guest::config::{Config, Options, tidy_tags};
use crate::guest::disks::Made;
use crate::guest::formats::MOUNT;
use crate::guest::hand::Hand;
use crate::guest::{Guest, Kind, options};

/// What a caller asks of a configuration.
pub(super) struct Change {
    pub(super) set: Options,
    pub(super) delete: Vec<String>,
    pub(super) revert: Vec<String>,
    pub(super) digest: Option<String>,
}

impl Change {
    /// Puts it into the pending section.
    fn pend(&self, config: &mut Config) {
        for option in &self.revert {
            config.revert(option);
        }
        for option in &self.delete {
            config.pend_delete(option, false);
        }
        for (option, value) in &self.set {
            config.pend(option, value.clone());
        }
        config.cleanup_pending();
    }

    /// Whether it takes a volume away that a snapshot needs.
    fn check_unused(&self, config: &Config) -> Result<(), Failure> {
        let unused = self.delete.iter().filter(|it| options::is(it, "unused"));
        for volid in unused.filter_map(|option| config.get(option)).map(first) {
            if config.snapshots.values().any(|snap| uses(snap, volid)) {
                let text = format!("volume '{volid}' is still in use (snapshot?)");
                return Err(Failure::die(text));
            }
        }
        Ok(())
    }
}

fn first(value: &str) -> &str {
    value.split(',').next().unwrap_or_default()
}

/// Changes a container whose lock file the caller holds.
pub(super) async fn change(hand: &Hand, vmid: u32, mut change: Change) -> Result<(), Failure> {
    let node = hand.node().to_owned();
    let mut refused = BTreeMap::new();
    let (next, running) = hand.world(|world| {
        random_macs(world, &mut change.set);
        if let Some(tags) = change.set.get_mut("tags") {
            *tags = tidy_tags(tags);
        }
        let guest = world.guests.find(Kind::Lxc, &node, vmid)?;
        guest.check_digest(change.digest.as_deref())?;
        if !change.delete.iter().any(|option| option == "lock") {
            guest.check_lock()?;
        }
        change.check_unused(&guest.config)?;
        if keeps_memory(guest, &change.set) {
            let why = "the container uses more than that";
            refused.insert("memory".to_owned(), refusal("memory", true, why));
        }
        let mut next = guest.config.clone();
        change.pend(&mut next);
        Ok::<_, Failure>((next, guest.is_running()))
    })?;
    let mut made = Made::default();
    let values = make(hand, vmid, &next, running, &mut made, &mut refused).await;
    let result = if refused.is_empty() {
        hand.world(|world| {
            let guest = world.guests.find_mut(Kind::Lxc, &node, vmid)?;
            change.pend(&mut guest.config);
            guest.config.pending.extend(values);
            for volid in apply(&mut guest.config, running) {
                world.storages.free(&node, &volid)?;
            }
            Ok(())
        })
    } else {
        Err(Failure::params(refused))
    };
    if result.is_err() {
        hand.world(|world| made.undo(world, &node));
    }
    result
}

/// Whether the kernel refuses to lower the memory of a running container.
fn keeps_memory(guest: &Guest, set: &Options) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    let wanted = set.get("memory").and_then(|text| number(text));
    let lower = wanted < guest.config.get("memory").and_then(number);
    guest.quirks.keep_memory && guest.is_running() && wanted.is_some() && lower
}

fn refusal(option: &str, running: bool, why: &str) -> String {
    if running {
        format!("unable to hotplug {option}: {why}\n")
    } else {
        format!("unable to apply pending change {option} : {why}\n")
    }
}

/// Makes the volumes of mount points that are taken now; returns these with their volumes.
async fn make(
    hand: &Hand,
    vmid: u32,
    next: &Config,
    running: bool,
    made: &mut Made,
    refused: &mut BTreeMap<String, String>,
) -> Options {
    let mut values = Options::new();
    for (option, value) in &next.pending {
        if !is_mount(option) || (running && !taken_at_once(option, next)) {
            continue;
        }
        let mut one = Options::from([(option.clone(), value.clone())]);
        match create::make_mounts(hand, vmid, &mut one, made).await {
            Ok(()) => values.append(&mut one),
            Err(failure) => {
                let why = refusal(option, running, &failure.exit_text());
                refused.insert(option.clone(), why);
            }
        }
    }
    values
}

/// Makes current what is taken now; returns the volumes that go with it.
fn apply(config: &mut Config, running: bool) -> Vec<String> {
    let mut freed = Vec::new();
    for option in config.pending_delete.clone().into_keys() {
        if running && !goes_at_once(&option) {
            continue;
        }
        config.pending_delete.remove(&option);
        let Some(value) = config.remove(&option) else {
            continue;
        };
        if is_mount(&option) {
            leave(config, &value);
        } else if options::is(&option, "unused") {
            freed.push(first(&value).to_owned());
        }
    }
    for (option, value) in config.pending.clone() {
        if running && !taken_at_once(&option, config) {
            continue;
        }
        config.pending.remove(&option);
        let before = config.remove(&option);
        config.set(&option, value.clone());
        if is_mount(&option) {
            let volume = MOUNT.parse(&value).get("volume").cloned();
            let before = before.filter(|it| MOUNT.parse(it).get("volume") != volume.as_ref());
            if let Some(before) = before {
                leave(config, &before);
            }
            let attached = |unused: &str| Some(first(unused)) == volume.as_deref();
            let current = &mut config.current;
            current.retain(|name, it| !(options::is(name, "unused") && attached(it)));
        }
    }
    freed
}

/// A volume that is taken out stays with the container.
fn leave(config: &mut Config, value: &str) {
    if let Some(volume) = MOUNT.parse(value).get("volume") {
        add_unused(&mut config.current, volume);
    }
}

/// Makes all pending changes current: what a start does.
pub(super) async fn apply_pending(hand: &Hand, vmid: u32) -> Result<(), Failure> {
    let node = hand.node().to_owned();
    let next = hand.world(|world| {
        let guest = world.guests.find(Kind::Lxc, &node, vmid)?;
        Ok::<_, Failure>(guest.config.clone())
    })?;
    let (mut made, mut refused) = (Made::default(), BTreeMap::new());
    let values = make(hand, vmid, &next, false, &mut made, &mut refused).await;
    hand.world(|world| {
        let guest = world.guests.find_mut(Kind::Lxc, &node, vmid)?;
        // What cannot be made waits on, and the container starts without it.
        let mut later = std::mem::take(&mut guest.config.pending);
        let now = later.extract_if(.., |option, _| !refused.contains_key(option));
        guest.config.pending = now.collect();
        guest.config.pending.extend(values);
        for volid in apply(&mut guest.config, false) {
            world.storages.free(&node, &volid)?;
        }
        let guest = world.guests.find_mut(Kind::Lxc, &node, vmid)?;
        guest.config.pending.extend(later);
        Ok(())
    })
}
