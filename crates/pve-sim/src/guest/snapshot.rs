//! Snapshots of VMs and containers: a tree of configurations, each with a snapshot of every disk.

use std::time::Duration;

use serde_json::{Value, json};

use super::config::{self, Options};
use super::disks::{self, Made};
use super::drive::Drive;
use super::hand::Hand;
use super::options::is_numeric;
use super::{Guest, Kind, change, lxc, options, power, read, start};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::{self, Held, Mode};
use crate::storage::Feature;
use crate::task::Worker;
use crate::world::World;

const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The lock file of a guest.
pub(crate) fn lock_path(kind: Kind, vmid: u32) -> String {
    match kind {
        Kind::Qemu => lock::qemu_path(vmid),
        Kind::Lxc => lock::lxc_path(vmid),
    }
}

async fn exclusive(worker: &Worker, kind: Kind, vmid: u32) -> Result<Held, Failure> {
    worker
        .lock_file(&lock_path(kind, vmid), Mode::Exclusive, LOCK_WAIT)
        .await
}

/// Disks a snapshot covers: option and volume.
pub(crate) fn volumes(kind: Kind, options: &Options) -> Vec<(String, String)> {
    match kind {
        Kind::Qemu => super::create::drives(options)
            .filter(|(_, drive)| !drive.is_cdrom())
            .filter_map(|(name, drive)| Some((name.to_owned(), drive.volume()?.to_owned())))
            .collect(),
        Kind::Lxc => lxc::volumes(options),
    }
}

/// Whether every disk of a guest has a feature.
pub(crate) fn has_feature(
    world: &World,
    guest: &Guest,
    feature: Feature,
    snapshot: Option<&str>,
) -> bool {
    let options = match snapshot.and_then(|name| guest.config.snapshots.get(name)) {
        Some(options) => options,
        None => &guest.config.current,
    };
    volumes(guest.kind, options).iter().all(|(_, volid)| {
        world
            .storages
            .has_feature(feature, volid, snapshot.is_some())
    })
}

/// `GET …/snapshot`
pub(crate) fn list(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let guest = read::guest(call, kind)?;
    let mut rows: Vec<Value> = Vec::new();
    for (name, snap) in &guest.config.snapshots {
        let mut row = json!({
            "name": name,
            "description": snap.get("description").map_or("", String::as_str),
            "snaptime": snap.get("snaptime").and_then(|t| t.parse::<u64>().ok()).unwrap_or(0),
        });
        if kind == Kind::Qemu {
            row["vmstate"] = json!(u8::from(snap.contains_key("vmstate")));
        }
        if let Some(parent) = snap.get("parent") {
            row["parent"] = json!(parent);
        }
        if let Some(state) = snap.get("snapstate") {
            row["snapstate"] = json!(state);
        }
        rows.push(row);
    }
    let mut here = json!({
        "name": "current",
        "description": "You are here!",
        "digest": guest.config.digest(),
        "running": u8::from(guest.is_running()),
    });
    if let Some(parent) = guest.config.get("parent") {
        here["parent"] = json!(parent);
    }
    rows.push(here);
    Ok(Reply::Data(Value::Array(rows)))
}

/// `GET …/snapshot/{snapname}`: what is below.
pub(crate) fn index(_call: &mut Call<'_>) -> Result<Reply, Failure> {
    Ok(Reply::Data(
        json!([{ "cmd": "rollback" }, { "cmd": "config" }]),
    ))
}

fn missing(name: &str) -> Failure {
    Failure::die(format!("snapshot '{name}' does not exist"))
}

/// `GET …/snapshot/{snapname}/config`
pub(crate) fn show(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let name = call.params.text("snapname").to_owned();
    let guest = read::guest(call, kind)?;
    let snap = guest
        .config
        .snapshots
        .get(&name)
        .ok_or_else(|| missing(&name))?;
    let numeric = if kind == Kind::Qemu {
        is_numeric
    } else {
        lxc::options::is_numeric
    };
    Ok(Reply::Data(config::object(snap, None, numeric)))
}

/// `PUT …/snapshot/{snapname}/config`: another description.
pub(crate) fn describe(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let name = call.params.text("snapname").to_owned();
    let text = call.params.get("description").map(str::to_owned);
    let guest = call.world.guests.find_mut(kind, &node, vmid)?;
    guest.check_lock()?;
    let snap = guest
        .config
        .snapshots
        .get_mut(&name)
        .ok_or_else(|| missing(&name))?;
    if let Some(text) = text {
        snap.insert("description".to_owned(), text);
    }
    Ok(Reply::null())
}

/// `POST …/snapshot`
pub(crate) fn take(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let vmid = call.vmid();
    let name = call.params.text("snapname").to_owned();
    let reserved: &[&str] = if kind == Kind::Qemu {
        &["current", "pending"]
    } else {
        &["current", "vzdump"]
    };
    if reserved.contains(&name.as_str()) {
        return Err(Failure::die(format!(
            "unable to use snapshot name '{name}' (reserved name)"
        )));
    }
    read::guest(call, kind)?;
    let with_memory = call.params.flag("vmstate");
    let description = call.params.get("description").map(str::to_owned);
    let task = if kind == Kind::Qemu {
        "qmsnapshot"
    } else {
        "vzsnapshot"
    };
    Ok(call.task(task, vmid, move |worker| async move {
        let _held = exclusive(&worker, kind, vmid).await?;
        run(&worker, kind, vmid, &name, description, with_memory).await
    }))
}

async fn run(
    worker: &Worker,
    kind: Kind,
    vmid: u32,
    name: &str,
    description: Option<String>,
    with_memory: bool,
) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    let running =
        worker.world(|world| prepare(world, kind, &node, vmid, name, description.as_deref()))?;
    let mut made = Made::default();
    let result = copy(worker, kind, vmid, name, running && with_memory, &mut made).await;
    worker.world(|world| {
        let guest = world.guests.find_mut(kind, &node, vmid)?;
        guest.config.remove("lock");
        let state = match result {
            Ok(state) => state,
            Err(failure) => {
                guest.config.snapshots.remove(name);
                for (_, volid) in volumes(kind, &guest.config.current.clone()) {
                    if let Ok(volume) = world.storages.volume_mut(&node, &volid) {
                        volume.delete_snapshot(name);
                    }
                }
                made.undo(world, &node);
                return Err(failure);
            }
        };
        let snap = guest.config.snapshots.entry(name.to_owned()).or_default();
        snap.remove("snapstate");
        if let Some(state) = state {
            let machine = guest
                .run
                .as_ref()
                .map(|run| run.machine.clone())
                .unwrap_or_default();
            snap.insert("vmstate".to_owned(), state);
            snap.insert("runningmachine".to_owned(), machine);
        }
        guest.config.set("parent", name);
        Ok(())
    })
}

/// Checks and locks the guest, and lists the snapshot as one that is not complete; says whether the guest runs.
fn prepare(
    world: &mut World,
    kind: Kind,
    node: &str,
    vmid: u32,
    name: &str,
    description: Option<&str>,
) -> Result<bool, Failure> {
    let guest = world.guests.find(kind, node, vmid)?;
    if guest.is_template() {
        return Err(Failure::die("you can't take a snapshot if it's a template"));
    }
    guest.check_lock()?;
    if guest.config.snapshots.contains_key(name) {
        return Err(Failure::die(format!("snapshot name '{name}' already used")));
    }
    if !has_feature(world, guest, Feature::Snapshot, None) {
        return Err(Failure::die("snapshot feature is not available"));
    }
    let now = world.now();
    let guest = world.guests.find_mut(kind, node, vmid)?;
    let mut snap: Options = guest
        .config
        .current
        .iter()
        .filter(|(option, _)| {
            !options::is(option, "unused")
                && !matches!(option.as_str(), "lock" | "description" | "vmstate")
        })
        .map(|(option, value)| (option.clone(), value.clone()))
        .collect();
    if let Some(description) = description {
        snap.insert("description".to_owned(), description.to_owned());
    }
    snap.insert("snaptime".to_owned(), now.to_string());
    snap.insert("snapstate".to_owned(), "prepare".to_owned());
    guest.config.snapshots.insert(name.to_owned(), snap);
    guest.config.set("lock", "snapshot");
    Ok(guest.is_running())
}

async fn copy(
    worker: &Worker,
    kind: Kind,
    vmid: u32,
    name: &str,
    with_memory: bool,
    made: &mut Made,
) -> Result<Option<String>, Failure> {
    let node = worker.node().to_owned();
    let mut state = None;
    if with_memory {
        let (storage, bytes, memory) = worker.world(|world| {
            let guest = world.guests.find(kind, &node, vmid)?;
            let memory = guest
                .config
                .get("memory")
                .map_or(512, super::create::memory_of)
                << 20;
            let storage = power::state_storage(guest, None);
            Ok::<_, Failure>((storage, power::state_size(guest), memory))
        })?;
        let storage = storage.unwrap_or_else(|| "local".to_owned());
        worker.log(format!("saving VM state and RAM using storage '{storage}'"));
        let hand = Hand::of_worker(worker);
        let volume = power::save_memory(&hand, vmid, &storage, name, bytes, made).await?;
        worker.world(|world| {
            let guest = world.guests.find_mut(kind, &node, vmid)?;
            let snap = guest.config.snapshots.entry(name.to_owned()).or_default();
            snap.insert("vmstate".to_owned(), volume.clone());
            Ok::<_, Failure>(())
        })?;
        state = Some(volume);
        worker
            .take_per_gib(Step::CopyGib, disks::gib(memory) / 3.0)
            .await?;
        let saved = super::size::human(memory / 3);
        worker.log(format!(
            "completed saving the VM state in 1s, saved {saved}"
        ));
    }
    let disks = worker.world(|world| {
        let guest = world.guests.find(kind, &node, vmid)?;
        Ok::<_, Failure>(volumes(kind, &guest.config.current))
    })?;
    for (option, volid) in disks {
        if kind == Kind::Qemu {
            worker.log(format!("snapshotting 'drive-{option}' ({volid})"));
        }
        worker.take(Step::Snapshot).await?;
        worker.world(|world| {
            world.storages.volume_mut(&node, &volid)?.snapshot(name);
            Ok::<_, Failure>(())
        })?;
    }
    Ok(state)
}

/// `POST …/snapshot/{snapname}/rollback`
pub(crate) fn rollback(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let vmid = call.vmid();
    let name = call.params.text("snapname").to_owned();
    let start_after = call.params.flag("start");
    let task = if kind == Kind::Qemu {
        "qmrollback"
    } else {
        "vzrollback"
    };
    Ok(call.task(task, vmid, move |worker| async move {
        let _held = exclusive(&worker, kind, vmid).await?;
        let node = worker.node().to_owned();
        worker.world(|world| may_roll_back(world, kind, &node, vmid, &name))?;
        if worker.world(|world| world.guests.get(vmid).is_some_and(Guest::is_running)) {
            worker.take(Step::Stop).await?;
            worker.world(|world| power::halt(world, vmid));
        }
        worker.take(Step::Rollback).await?;
        let memory = worker.world(|world| go_back(world, kind, &node, vmid, &name))?;
        if memory || start_after {
            let hand = Hand::of_worker(&worker);
            match kind {
                Kind::Qemu if memory => start::start_from_memory(&hand, vmid).await?,
                Kind::Qemu => start::start(&hand, vmid).await?,
                Kind::Lxc => lxc::power::start(&hand, vmid).await?,
            }
        }
        Ok(())
    }))
}

fn may_roll_back(
    world: &mut World,
    kind: Kind,
    node: &str,
    vmid: u32,
    name: &str,
) -> Result<(), Failure> {
    let guest = world.guests.find(kind, node, vmid)?;
    if guest.is_template() {
        return Err(Failure::die("you can't rollback if vm is a template"));
    }
    let snap = guest
        .config
        .snapshots
        .get(name)
        .ok_or_else(|| missing(name))?;
    for (_, volid) in volumes(kind, snap) {
        let (storage, _) = world.storages.parse(&volid)?;
        let plugin = storage.def.kind;
        world
            .storages
            .volume(node, &volid)?
            .rollback_possible(plugin, &volid, name)?;
    }
    let guest = world.guests.find_mut(kind, node, vmid)?;
    guest.check_lock()?;
    guest.config.set("lock", "rollback");
    Ok(())
}

/// Puts configuration and disks back; says whether there is memory to continue from.
fn go_back(
    world: &mut World,
    kind: Kind,
    node: &str,
    vmid: u32,
    name: &str,
) -> Result<bool, Failure> {
    let guest = world.guests.find(kind, node, vmid)?;
    let snap = guest
        .config
        .snapshots
        .get(name)
        .cloned()
        .ok_or_else(|| missing(name))?;
    let before = guest.config.current.clone();
    for (_, volid) in volumes(kind, &snap) {
        world.storages.volume_mut(node, &volid)?.rollback(name);
    }
    let genid = world.uuid();
    let guest = world.guests.find_mut(kind, node, vmid)?;
    let mut options = snap.clone();
    for option in [
        "snaptime",
        "vmstate",
        "description",
        "snapstate",
        "runningmachine",
    ] {
        options.remove(option);
    }
    if let Some(description) = before.get("description") {
        options.insert("description".to_owned(), description.clone());
    }
    options.insert("parent".to_owned(), name.to_owned());
    // Zero switches it off.
    if options.get("vmgenid").is_some_and(|it| it != "0") {
        options.insert("vmgenid".to_owned(), genid);
    }
    // Disks that did not exist then are kept, but no longer attached.
    for (_, volid) in volumes(kind, &before) {
        if !change::uses(&options, &volid) {
            change::add_unused(&mut options, &volid);
        }
    }
    for (option, value) in &before {
        if options::is(option, "unused") && !change::uses(&options, Drive::parse(value).file()) {
            change::add_unused(&mut options, Drive::parse(value).file());
        }
    }
    guest.config.current = options;
    guest.config.pending.clear();
    guest.config.pending_delete.clear();
    Ok(snap.contains_key("vmstate"))
}

/// `DELETE …/snapshot/{snapname}`
pub(crate) fn delete(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let vmid = call.vmid();
    let name = call.params.text("snapname").to_owned();
    let force = call.params.flag("force");
    let task = if kind == Kind::Qemu {
        "qmdelsnapshot"
    } else {
        "vzdelsnapshot"
    };
    Ok(call.task(task, vmid, move |worker| async move {
        let _held = exclusive(&worker, kind, vmid).await?;
        let node = worker.node().to_owned();
        let disks = worker.world(|world| {
            let guest = world.guests.find_mut(kind, &node, vmid)?;
            if guest.is_template() {
                return Err(Failure::die(
                    "you can't delete a snapshot if vm is a template",
                ));
            }
            let snap = guest
                .config
                .snapshots
                .get(&name)
                .ok_or_else(|| missing(&name))?;
            let mut all = volumes(kind, snap);
            if let Some(state) = snap.get("vmstate") {
                all.push(("vmstate".to_owned(), state.clone()));
            }
            guest.check_lock()?;
            guest.config.set("lock", "snapshot-delete");
            Ok(all)
        })?;
        for (option, volid) in disks {
            worker.take(Step::DeleteSnapshot).await?;
            let removed = worker.world(|world| {
                if option == "vmstate" {
                    world.storages.free(&node, &volid).map(drop)
                } else {
                    world
                        .storages
                        .volume_mut(&node, &volid)
                        .map(|v| v.delete_snapshot(&name))
                }
            });
            if let Err(error) = removed
                && !force
            {
                return Err(Failure::die(error.to_string()));
            }
        }
        worker.world(|world| {
            let guest = world.guests.find_mut(kind, &node, vmid)?;
            unlink(&mut guest.config, &name);
            guest.config.remove("lock");
            Ok(())
        })
    }))
}

/// Takes a snapshot out of the tree: its children become its parent's.
fn unlink(config: &mut config::Config, name: &str) {
    let Some(removed) = config.snapshots.remove(name) else {
        return;
    };
    let parent = removed.get("parent").cloned();
    let sections = std::iter::once(&mut config.current).chain(config.snapshots.values_mut());
    for options in sections {
        if options.get("parent").is_some_and(|of| of == name) {
            match &parent {
                Some(parent) => options.insert("parent".to_owned(), parent.clone()),
                None => options.remove("parent"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::config::Config;

    #[test]
    fn deleting_in_the_middle_relinks_the_children() {
        let mut config = Config::default();
        let section = |parent: Option<&str>| -> Options {
            parent
                .map(|p| ("parent".to_owned(), p.to_owned()))
                .into_iter()
                .collect()
        };
        config.snapshots.insert("a".into(), section(None));
        config.snapshots.insert("b".into(), section(Some("a")));
        config.snapshots.insert("c".into(), section(Some("b")));
        config.set("parent", "b");
        unlink(&mut config, "b");
        assert_eq!(config.snapshots["c"]["parent"], "a");
        assert_eq!(config.get("parent"), Some("a"));
        unlink(&mut config, "a");
        assert!(!config.snapshots["c"].contains_key("parent"));
        assert_eq!(config.get("parent"), None);
    }
}
