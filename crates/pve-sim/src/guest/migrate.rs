//! Migration of VMs and containers to another node of the cluster.
//!
//! A running VM moves with its memory; disks on shared storages stay where they are, local ones are
//! copied. At the end the configuration file lies in the other node's directory, so calls to the old
//! node miss it from then on.

mod scan;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use self::scan::{Load, mapped_devices, missing, scan};
use super::configure::root_only;
use super::create::drives;
use super::disks::gib;
use super::drive::Drive;
use super::{Guest, Kind, lxc, options, outside, power, read, snapshot};
use crate::access::Caller;
use crate::call::{Call, Reply};
use crate::clock::calendar;
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::Mode;
use crate::replication;
use crate::storage::{Alloc, Content};
use crate::task::{Task, Worker};
use crate::world::World;

const LOCK_WAIT: Duration = Duration::from_secs(10);

/// How a guest shall move.
#[derive(Clone, Debug, Default)]
pub(crate) struct Move {
    pub(crate) target: String,
    pub(crate) online: bool,
    pub(crate) with_local_disks: bool,
    /// Containers only: stop, move, start.
    pub(crate) restart: bool,
    pub(crate) storages: StorageMap,
}

/// `targetstorage`: one for all, or by storage; `1` keeps the ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct StorageMap {
    default: Option<String>,
    by_id: BTreeMap<String, String>,
}

impl StorageMap {
    fn parse(text: Option<&str>) -> StorageMap {
        let mut map = StorageMap::default();
        for part in text.map(crate::params::split_list).unwrap_or_default() {
            match part.split_once(':') {
                Some((from, to)) => {
                    map.by_id.insert(from.to_owned(), to.to_owned());
                }
                None if part == "1" => {}
                None => map.default = Some(part.to_owned()),
            }
        }
        map
    }

    fn of(&self, storage: &str) -> String {
        self.by_id
            .get(storage)
            .or(self.default.as_ref())
            .cloned()
            .unwrap_or_else(|| storage.to_owned())
    }

    fn targets(&self) -> impl Iterator<Item = &String> {
        self.by_id.values().chain(&self.default)
    }
}

/// `GET …/qemu/{vmid}/migrate`
pub(crate) fn precondition(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let guest = read::guest(call, Kind::Qemu)?;
    let running = guest.is_running();
    let mut local_disks = Vec::new();
    for (name, drive) in drives(&guest.config.current) {
        let Some(volid) = drive.volume() else {
            continue;
        };
        let Ok((storage, _)) = call.world.storages.parse(volid) else {
            continue;
        };
        if storage.def.shared {
            continue;
        }
        let size = call
            .world
            .storages
            .volume(&guest.node, volid)
            .map_or(0, |v| v.size);
        local_disks.push(json!({
            "volid": volid,
            "drivename": name,
            "size": size,
            "cdrom": u8::from(drive.is_cdrom()),
            "shared": 0,
            "replicate": u8::from(drive.get("replicate") != Some("0")),
            "is_attached": 1,
            "is_unused": 0,
            "is_vmstate": 0,
            "is_cloudinit": u8::from(drive.is_cloudinit()),
            "is_tpmstate": u8::from(name == "tpmstate0"),
        }));
    }
    for (name, value) in guest
        .config
        .current
        .iter()
        .filter(|(n, _)| options::is(n, "unused"))
    {
        let volid = Drive::parse(value).file().to_owned();
        let Ok((storage, _)) = call.world.storages.parse(&volid) else {
            continue;
        };
        if !storage.def.shared {
            let size = call
                .world
                .storages
                .volume(&guest.node, &volid)
                .map_or(0, |v| v.size);
            local_disks.push(json!({
                "volid": volid, "drivename": name, "size": size, "cdrom": 0, "shared": 0,
                "replicate": 1, "is_attached": 0, "is_unused": 1, "is_vmstate": 0,
                "is_cloudinit": 0, "is_tpmstate": 0,
            }));
        }
    }
    let local_resources: Vec<&String> = guest
        .config
        .current
        .iter()
        .filter(|(name, value)| {
            matches!(options::indexed(name), Some(("hostpci" | "usb", _)))
                && !value.contains("mapping=")
                && !value.contains("spice")
        })
        .map(|(name, _)| name)
        .collect();
    let mut allowed = Vec::new();
    let mut refused = Map::new();
    for node in call.world.nodes.keys().filter(|node| **node != guest.node) {
        let missing: Vec<String> = storages_of(guest)
            .into_iter()
            .filter(|id| call.world.storages.enabled(id, node).is_err())
            .collect();
        if missing.is_empty() {
            allowed.push(node.clone());
        } else {
            refused.insert(node.clone(), json!({ "unavailable_storages": missing }));
        }
    }
    let mut answer = json!({
        "running": u8::from(running),
        "local_disks": local_disks,
        "local_resources": local_resources,
        "mapped-resources": [],
        "mapped-resource-info": {},
        "allowed_nodes": allowed,
        "not_allowed_nodes": Value::Object(refused),
    });
    if call.world.release.is_9() {
        answer["has-dbus-vmstate"] = json!(1);
    }
    Ok(Reply::Data(answer))
}

/// `GET …/lxc/{vmid}/migrate`: where a container may go. Since 9.
pub(crate) fn container_precondition(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let guest = read::guest(call, Kind::Lxc)?;
    let wanted = call.params.get("target");
    let others = call.world.nodes.keys().filter(|node| **node != guest.node);
    let fits = |node: &str| {
        let on_node = |id: &String| call.world.storages.enabled(id, node).is_ok();
        storages_of(guest).iter().all(on_node)
    };
    let allowed = others.filter(|node| wanted.is_none_or(|wanted| wanted == node.as_str()));
    let allowed: Vec<&String> = allowed.filter(|node| fits(node)).collect();
    Ok(Reply::Data(json!({
        "running": u8::from(guest.is_running()), "allowed-nodes": allowed,
        "not-allowed-nodes": {}, "dependent-ha-resources": [],
    })))
}

fn storages_of(guest: &Guest) -> Vec<String> {
    let mut all: Vec<String> = snapshot::volumes(guest.kind, &guest.config.current)
        .iter()
        .filter_map(|(_, volid)| volid.split_once(':').map(|(id, _)| id.to_owned()))
        .collect();
    all.sort();
    all.dedup();
    all
}

/// `POST …/migrate`
pub(crate) fn migrate(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let target = call.params.text("target").to_owned();
    if target == node {
        return Err(Failure::param("target", "target is local node."));
    }
    call.world.node(&target)?;
    if kind == Kind::Qemu {
        root_only(call, &["force", "migration_type", "migration_network"])?;
    }
    let key = if kind == Kind::Qemu {
        "targetstorage"
    } else {
        "target-storage"
    };
    let storages = StorageMap::parse(call.params.get(key));
    for storage in storages.targets() {
        call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        call.world.storages.enabled(storage, &target)?;
    }
    let how = Move {
        target: target.clone(),
        online: call.params.flag("online"),
        with_local_disks: call.params.flag("with-local-disks"),
        restart: call.params.flag("restart"),
        storages,
    };
    let guest = read::guest(call, kind)?;
    guest.check_lock()?;
    if guest.is_running() {
        match kind {
            Kind::Qemu if !how.online => {
                return Err(Failure::die("can't migrate running VM without --online"));
            }
            Kind::Lxc if !how.online && !how.restart => {
                return Err(Failure::die(
                    "can't migrate running container without --online or --restart",
                ));
            }
            Kind::Qemu | Kind::Lxc => {}
        }
    }
    if outside::ha_managed(call.world, vmid) {
        return Ok(call.task("hamigrate", vmid, move |worker| async move {
            worker.log(format!(
                "Requesting HA migration for {} {vmid} to node {target}",
                kind.word()
            ));
            outside::ha_migrate(&worker, vmid, &target)
        }));
    }
    Ok(Reply::Task(task(kind, &node, vmid, how, call.caller)))
}

/// A worker that migrates a guest away from `node`.
pub(crate) fn task(kind: Kind, node: &str, vmid: u32, how: Move, caller: &Caller) -> Task {
    let name = if kind == Kind::Qemu {
        "qmigrate"
    } else {
        "vzmigrate"
    };
    Task::new(node, name, vmid, caller, move |worker| async move {
        let path = snapshot::lock_path(kind, vmid);
        let _held = worker.lock_file(&path, Mode::Exclusive, LOCK_WAIT).await?;
        let node = worker.node().to_owned();
        let was_running = worker.world(|world| {
            let guest = world.guests.find_mut(kind, &node, vmid)?;
            guest.check_lock()?;
            guest.config.set("lock", "migrate");
            Ok::<_, Failure>(guest.is_running())
        })?;
        let result = run(&worker, kind, vmid, &how).await;
        worker.world(|world| {
            if let Some(guest) = world.guests.get_mut(vmid) {
                guest.config.remove("lock");
            }
        });
        match result {
            Ok(()) => {
                say(
                    &worker,
                    "migration finished successfully (duration 00:00:05)",
                );
                Ok(())
            }
            Err(failure) => {
                let why = failure.exit_text();
                say(&worker, &format!("ERROR: {why}"));
                say(&worker, "aborting phase 1 - cleanup resources");
                if was_running {
                    start_again(&worker, &node, vmid);
                }
                say(
                    &worker,
                    &format!("ERROR: migration aborted (duration 00:00:01): {why}"),
                );
                Err(Failure::die("migration aborted"))
            }
        }
    })
}

/// A container that was stopped for a move that failed goes on where it was.
fn start_again(worker: &Worker, node: &str, vmid: u32) {
    let stopped = worker.world(|world| {
        let guest = world.guests.find(Kind::Lxc, node, vmid);
        guest.is_ok_and(|guest| !guest.is_running())
    });
    if stopped {
        say(worker, "start container on source node");
        if let Err(failure) = lxc::power::start_on(worker, node, vmid) {
            say(worker, &format!("ERROR: {}", failure.exit_text()));
        }
    }
}

/// Migration logs carry the time.
fn say(worker: &Worker, text: &str) {
    let now = worker.world(|world| calendar(world.now()));
    worker.log(format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02} {text}",
        now.year, now.month, now.day, now.hour, now.minute, now.second
    ));
}

async fn run(worker: &Worker, kind: Kind, vmid: u32, how: &Move) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    let ip = worker.world(|world| world.node(&how.target).map(|n| n.ip.clone()))?;
    let word = kind.word();
    let begins = format!(
        "starting migration of {word} {vmid} to node '{}' ({ip})",
        how.target
    );
    let reaches = worker.world(|world| world.reaches(&node, &how.target));
    let unreached = || Failure::die("Can't connect to destination address using public key");
    let running = worker.world(|world| world.guests.get(vmid).is_some_and(Guest::is_running));
    let restart = running && kind == Kind::Lxc;
    if restart {
        // A container is stopped before its volumes are looked at; only whether their storages are there is asked before.
        if !reaches {
            return Err(unreached());
        }
        if let Some(missing) = worker.world(|world| missing(world, kind, &node, vmid, how))? {
            return Err(Failure::die(missing));
        }
        say(worker, &format!("shutdown CT {vmid}"));
        worker.take(Step::Shutdown).await?;
        worker.world(|world| power::halt(world, vmid));
    }
    say(worker, &begins);
    if !reaches {
        return Err(unreached());
    }
    worker.world(|world| mapped_devices(world, &node, vmid, how, running))?;
    let (problems, loads) = worker.world(|world| scan(world, kind, &node, vmid, how, running))?;
    for problem in &problems {
        say(worker, problem);
    }
    if !problems.is_empty() {
        return Err(Failure::die(format!(
            "Problem found while scanning volumes - can't migrate {word} - check log"
        )));
    }
    worker.take(Step::Migrate).await?;
    worker.world(|world| replication::turn(world, vmid, &node, &how.target));
    let mut renamed = Vec::new();
    for load in &loads {
        say(
            worker,
            &format!("copying local disk image '{}' to '{}'", load.volid, load.to),
        );
        worker.take_per_gib(Step::CopyGib, gib(load.bytes)).await?;
        let new = worker.world(|world| carry(world, &node, &how.target, vmid, load))?;
        renamed.push((load.option.clone(), load.volid.clone(), new));
    }
    if running && kind == Kind::Qemu {
        let memory = worker.world(|world| {
            world.guests.get(vmid).map_or(0, |g| {
                g.config.get("memory").map_or(512, super::create::memory_of)
            })
        }) << 20;
        say(
            worker,
            &format!("starting VM {vmid} on remote node '{}'", how.target),
        );
        say(
            worker,
            "starting online/live migration on unix:/run/qemu-server/migration.sock",
        );
        worker.take_per_gib(Step::MigrateGib, gib(memory)).await?;
        say(
            worker,
            "average migration speed: 1.0 GiB/s - downtime 45 ms",
        );
        say(worker, "migration status: completed");
    }
    worker.world(|world| arrive(world, vmid, how, &renamed, running && kind == Kind::Qemu));
    if restart {
        let target = how.target.clone();
        say(worker, "start container on target node");
        lxc::power::start_on(worker, &target, vmid)?;
    }
    Ok(())
}

/// Moves a volume into the other node's store.
fn carry(
    world: &mut World,
    node: &str,
    target: &str,
    vmid: u32,
    load: &Load,
) -> Result<String, Failure> {
    let now = world.now();
    let (_, name) = world.storages.parse(&load.volid)?;
    let volume = world.storages.volume(node, &load.volid)?.clone();
    let kind = world.storages.get(&load.to)?.def.kind;
    let (supported, default) = kind.formats();
    let format = if supported.contains(&name.format) {
        name.format
    } else {
        default
    };
    // The file keeps its name where it is free, as PVE tries first.
    let stem = name.file.split('.').next().unwrap_or_default();
    let file = if kind.is_file() {
        format!("{stem}.{}", format.name())
    } else {
        stem.to_owned()
    };
    let alloc = |name| Alloc {
        vmid,
        format,
        name,
        size: volume.size,
        now,
    };
    let new = match world.storages.alloc(&load.to, target, alloc(Some(&file))) {
        Ok(volid) => volid,
        Err(_) if name.content == Content::Images => {
            world.storages.alloc(&load.to, target, alloc(None))?
        }
        Err(error) => return Err(error.into()),
    };
    world.storages.free(node, &load.volid)?;
    let placed = world.storages.volume_mut(target, &new)?;
    placed.used = volume.used.max(placed.used);
    placed.image = volume.image;
    placed.seed = volume.seed;
    placed.snapshots = volume.snapshots;
    Ok(new)
}

/// The configuration file moves; the process, if any, is another one.
fn arrive(
    world: &mut World,
    vmid: u32,
    how: &Move,
    renamed: &[(String, String, String)],
    running: bool,
) {
    let pid = world.tasks.pid();
    let Some(guest) = world.guests.get_mut(vmid) else {
        return;
    };
    for (option, old, new) in renamed {
        if let Some(value) = guest.config.get(option).map(str::to_owned) {
            guest
                .config
                .set(option, value.replacen(old.as_str(), new, 1));
        }
        for snapshot in guest.config.snapshots.values_mut() {
            for value in snapshot.values_mut() {
                if Drive::parse(value).volume() == Some(old) {
                    *value = value.replacen(old.as_str(), new, 1);
                }
            }
        }
    }
    if running && let Some(run) = &mut guest.run {
        run.pid = pid;
    }
    world.guests.relocate(vmid, &how.target);
}
