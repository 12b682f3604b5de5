//! Backups: `vzdump` writes guests to archives, creation with an archive restores them.

use std::time::Duration;

use serde_json::json;

use super::config::{Config, Options};
use super::create::{self, drives, random_macs};
use super::disks::{Made, allocate, gib, pick_format};
use super::drive::Drive;
use super::hand::Hand;
use super::permit::{self, Scope};
use super::{Guest, Kind, lxc, options, power, size, snapshot};
use crate::access::Caller;
use crate::call::{Call, Reply};
use crate::clock::calendar;
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::{self, Mode};
use crate::params::{Params, split_list};
use crate::storage::prune;
use crate::storage::{Archive, ArchivedDisk, Content, Volume};
use crate::task::{Task, Worker};
use crate::world::World;

const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How long a restore waits for who holds the VM.
const RESTORE_WAIT: Duration = Duration::from_secs(1);

/// `2026-11-15`
pub(crate) fn date(now: u64) -> String {
    let day = calendar(now);
    format!("{:04}-{:02}-{:02}", day.year, day.month, day.day)
}

/// `2026_11_15-19_44_34`, the way archives are named.
fn stamp(now: u64) -> String {
    let at = calendar(now);
    format!(
        "{:04}_{:02}_{:02}-{:02}_{:02}_{:02}",
        at.year, at.month, at.day, at.hour, at.minute, at.second
    )
}

/// `POST /nodes/{node}/vzdump`
pub(crate) fn vzdump(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let params = call.params.clone();
    for name in [
        "maxfiles",
        "prune-backups",
        "tmpdir",
        "dumpdir",
        "script",
        "bwlimit",
        "ionice",
    ] {
        if params.has(name) && !call.caller.is_root() {
            return Err(Failure::param(name, "Only root may set this option."));
        }
    }
    if params.flag("stdout") {
        let text = "option is only allowed on the command line interface.";
        return Err(Failure::param("stdout", text));
    }
    let all = selection(&params)?;
    let ids = |name: &str| -> Vec<u32> {
        let list = split_list(params.text(name));
        list.iter().filter_map(|id| id.parse().ok()).collect()
    };
    let (mut chosen, excluded) = (ids("vmid"), ids("exclude"));
    if let Some(pool) = params.get("pool") {
        let members = call
            .world
            .access
            .pools
            .get(pool)
            .ok_or_else(|| Failure::die(format!("pool '{pool}' does not exist")))?;
        chosen.extend(&members.guests);
    }
    if all {
        chosen = call
            .world
            .guests
            .on_node(&node)
            .map(|guest| guest.vmid)
            .collect();
    }
    chosen.retain(|vmid| !excluded.contains(vmid));
    chosen.retain(|vmid| {
        call.world
            .guests
            .get(*vmid)
            .is_none_or(|guest| guest.node == node)
    });
    // There is nothing to do here when all of them are elsewhere.
    if chosen.is_empty() && !all {
        return Ok(Reply::Data(json!("OK")));
    }
    if let Some(storage) = params.get("storage") {
        call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    }
    for vmid in &chosen {
        call.need(&format!("/vms/{vmid}"), &["VM.Backup"])?;
    }
    Ok(Reply::Task(task(&node, call.caller, chosen, params)))
}

/// Whether all guests are meant, by a selection that agrees with itself.
pub(crate) fn selection(params: &Params) -> Result<bool, Failure> {
    if params.has("vmid") {
        let given = |name: &str| params.has(name) && (name != "all" || params.flag("all"));
        if let Some(name) = ["all", "exclude", "pool"].into_iter().find(|it| given(it)) {
            return Err(Failure::param(name, "option conflicts with option 'vmid'"));
        }
    }
    let all = params.flag("all") || (params.has("exclude") && !params.has("pool"));
    if !all && !params.flag("stop") && !params.has("pool") && !params.has("vmid") {
        return Err(Failure::param("vmid", "property is missing"));
    }
    Ok(all)
}

/// A worker that saves these guests of its node.
pub(crate) fn task(node: &str, caller: &Caller, guests: Vec<u32>, params: Params) -> Task {
    let id = match guests[..] {
        [one] => one.to_string(),
        _ => String::new(),
    };
    Task::new(node, "vzdump", id, caller, move |worker| async move {
        let storage = params.get("storage").unwrap_or("local").to_owned();
        dump_all(&worker, &guests, &storage, &params).await
    })
}

/// A storage for backups: it can be used on the node, and is meant for them.
fn usable(world: &World, node: &str, storage: &str) -> Result<(), Failure> {
    let known = world.storages.enabled(storage, node).map_err(|error| {
        Failure::die(format!(
            "could not activate storage '{storage}': {error}\n\
             could not get storage information for '{storage}': {error}"
        ))
    })?;
    if known.def.holds("backup") {
        return Ok(());
    }
    Err(Failure::die(format!(
        "could not get storage information for '{storage}': \
         can't use storage '{storage}' for backups - wrong content type"
    )))
}

async fn dump_all(
    worker: &Worker,
    guests: &[u32],
    storage: &str,
    params: &Params,
) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    worker.world(|world| usable(world, &node, storage))?;
    let ids: Vec<String> = guests.iter().map(u32::to_string).collect();
    let mode = params.get("mode").unwrap_or("snapshot");
    worker.log(format!(
        "INFO: starting new backup job: vzdump {} --storage {storage} --mode {mode}",
        ids.join(" ")
    ));
    // One backup job per node at a time; others wait for it.
    let wait = Duration::from_secs(params.uint("lockwait").unwrap_or(180) * 60);
    let _job = worker
        .lock_file("/var/run/vzdump.lock", Mode::Exclusive, wait)
        .await?;
    let mut failed = 0;
    for vmid in guests {
        if let Err(failure) = dump_one(worker, *vmid, storage, params).await {
            failed += 1;
            let why = failure.exit_text();
            worker.log(format!("ERROR: Backup of VM {vmid} failed - {why}"));
        }
    }
    if failed > 0 {
        worker.log("INFO: Backup job finished with errors");
        return Err(Failure::die("job errors"));
    }
    worker.log("INFO: Backup job finished successfully");
    Ok(())
}

async fn dump_one(
    worker: &Worker,
    vmid: u32,
    storage: &str,
    params: &Params,
) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    let kind = worker.world(|world| match world.guests.get(vmid) {
        Some(guest) if guest.node == node => Ok(guest.kind),
        _ => Err(Failure::die(format!("unable to find VM '{vmid}'"))),
    })?;
    let word = kind.word();
    worker.log(format!(
        "INFO: Starting Backup of {word} {vmid} ({})",
        kind.name()
    ));
    check_limit(worker, kind, vmid, storage, params)?;
    let path = snapshot::lock_path(kind, vmid);
    let held = worker.lock_file(&path, Mode::Exclusive, LOCK_WAIT).await?;
    let (archive, running) = worker.world(|world| {
        let guest = world.guests.find_mut(kind, &node, vmid)?;
        guest.check_lock()?;
        guest.config.set("lock", "backup");
        let guest = world.guests.find(kind, &node, vmid)?;
        Ok::<_, Failure>((archive(world, guest), guest.is_running()))
    })?;
    drop(held);
    let result = write(worker, kind, vmid, storage, params, archive, running).await;
    worker.world(|world| {
        if let Some(guest) = world.guests.get_mut(vmid) {
            guest.config.remove("lock");
        }
    });
    result?;
    remove_old(worker, kind, vmid, storage, params)?;
    worker.log(format!("INFO: Finished Backup of {word} {vmid} (00:00:01)"));
    Ok(())
}

/// Refuses one more backup than the retention allows, where old ones are not removed.
fn check_limit(
    worker: &Worker,
    kind: Kind,
    vmid: u32,
    storage: &str,
    params: &Params,
) -> Result<(), Failure> {
    if params.bool("remove") != Some(false) {
        return Ok(());
    }
    let node = worker.node().to_owned();
    worker.world(|world| {
        let Some(retention) = prune::retention(world, storage, params) else {
            return Ok(());
        };
        let of_guest = |of: &str, owner: Option<u32>| of == kind.name() && owner == Some(vmid);
        let marked = prune::mark(world, &node, storage, None, &of_guest)?;
        let counted = marked.iter().filter(|it| it.mark == prune::Mark::Keep);
        let limit = retention.limit();
        if counted.count() < limit {
            return Ok(());
        }
        Err(Failure::die(format!(
            "There is a max backup limit of {limit} enforced by the target storage or the vzdump parameters. \
             Either increase the limit or delete old backups."
        )))
    })
}

/// Removes the guest's backups that its retention no longer covers.
fn remove_old(
    worker: &Worker,
    kind: Kind,
    vmid: u32,
    storage: &str,
    params: &Params,
) -> Result<(), Failure> {
    if params.bool("remove") == Some(false) {
        return Ok(());
    }
    let node = worker.node().to_owned();
    let doomed = worker.world(|world| {
        let Some(retention) = prune::retention(world, storage, params) else {
            return Ok(Vec::new());
        };
        let of_guest = |of: &str, owner: Option<u32>| of == kind.name() && owner == Some(vmid);
        let marked = prune::mark(world, &node, storage, Some(&retention), &of_guest)?;
        let doomed = marked
            .into_iter()
            .filter(|it| it.mark == prune::Mark::Remove);
        Ok::<_, Failure>(doomed.map(|it| it.volid).collect())
    })?;
    if doomed.is_empty() {
        return Ok(());
    }
    worker.log("INFO: prune older backups with retention:");
    for volid in &doomed {
        worker.log(format!("INFO: removing backup '{volid}'"));
        worker.world(|world| world.storages.free(&node, volid))?;
    }
    let count = doomed.len();
    worker.log(format!(
        "INFO: pruned {count} backup(s) not covered by keep-retention policy"
    ));
    Ok(())
}

/// What an archive of the guest would hold.
fn archive(world: &World, guest: &Guest) -> Archive {
    let disks = snapshot::volumes(guest.kind, &guest.config.current)
        .into_iter()
        .filter_map(|(option, volid)| {
            let volume = world.storages.volume(&guest.node, &volid).ok()?;
            Some(ArchivedDisk {
                option,
                storage: volid.split(':').next().unwrap_or_default().to_owned(),
                size: volume.size,
                used: volume.used,
                image: volume.image.clone(),
            })
        })
        .collect();
    let mut options = guest.config.current.clone();
    for option in ["lock", "parent"] {
        options.remove(option);
    }
    Archive {
        kind: guest.kind.name().to_owned(),
        options,
        disks,
    }
}

async fn write(
    worker: &Worker,
    kind: Kind,
    vmid: u32,
    storage: &str,
    params: &Params,
    archive: Archive,
    running: bool,
) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    worker.log(format!(
        "INFO: status = {}",
        if running { "running" } else { "stopped" }
    ));
    let mode = params.get("mode").unwrap_or("snapshot");
    let stop = mode == "stop" && running;
    if stop {
        worker.log(format!("INFO: stopping {}", kind.name()));
        worker.take(Step::Shutdown).await?;
        worker.world(|world| power::halt(world, vmid));
    }
    let (now, suffix) = worker.world(|world| (world.now(), suffix(kind, params.get("compress"))));
    let file = format!("vzdump-{}-{vmid}-{}{suffix}", kind.name(), stamp(now));
    worker.log(format!("INFO: creating vzdump archive '{file}'"));
    let data: u64 = archive.disks.iter().map(|disk| disk.used).sum();
    worker.take_per_gib(Step::BackupGib, gib(data)).await?;
    worker.world(|world| {
        let mut volume = Volume::file(Content::Backup, &file, (data / 2).max(1024), now);
        volume.archive = Some(archive);
        volume.notes = params.get("notes-template").map(|notes| {
            let name = world.guests.get(vmid).map(Guest::name).unwrap_or_default();
            notes
                .replace("{{guestname}}", &name)
                .replace("{{vmid}}", &vmid.to_string())
        });
        volume.protected = params.flag("protected");
        world
            .storages
            .put_file(storage, &node, Content::Backup, &file, volume)
    })?;
    worker.log(format!(
        "INFO: archive file size: {}",
        size::human(data / 2)
    ));
    if stop {
        let hand = Hand::of_worker(worker);
        match kind {
            Kind::Qemu => super::start::start(&hand, vmid).await?,
            Kind::Lxc => lxc::power::start(&hand, vmid).await?,
        }
    }
    Ok(())
}

fn suffix(kind: Kind, compress: Option<&str>) -> &'static str {
    match (kind, compress) {
        (Kind::Qemu, None | Some("0")) => ".vma",
        (Kind::Qemu, Some("gzip")) => ".vma.gz",
        (Kind::Qemu, Some("zstd")) => ".vma.zst",
        (Kind::Qemu, Some(_)) => ".vma.lzo",
        (Kind::Lxc, None | Some("0")) => ".tar",
        (Kind::Lxc, Some("gzip")) => ".tar.gz",
        (Kind::Lxc, Some("zstd")) => ".tar.zst",
        (Kind::Lxc, Some(_)) => ".tar.lzo",
    }
}

/// `GET /nodes/{node}/vzdump/extractconfig`
pub(crate) fn extract_config(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let volid = call.params.text("volume").to_owned();
    let (_, name) = call.world.storages.parse(&volid)?;
    permit::volume(call, name.vmid.unwrap_or(0), &volid)?;
    let volume = call.world.storages.volume(&node, &volid)?;
    let archive = volume
        .archive
        .as_ref()
        .ok_or_else(|| Failure::die(format!("unable to read configuration of '{volid}'")))?;
    let config = Config {
        current: archive.options.clone(),
        ..Config::default()
    };
    Ok(Reply::Data(json!(config.file())))
}

/// `GET /nodes/{node}/vzdump/defaults`
pub(crate) fn defaults(_call: &mut Call<'_>) -> Result<Reply, Failure> {
    Ok(Reply::Data(
        json!({ "mode": "snapshot", "compress": "0", "remove": 1, "all": 0 }),
    ))
}

/// Restores a VM: `POST /nodes/{node}/qemu` with `archive`.
pub(crate) fn restore_qemu(call: &mut Call<'_>, scope: Scope<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), scope.vmid);
    let volid = call.params.text("archive").to_owned();
    permit::volume(call, vmid, &volid)?;
    check_target(call, Kind::Qemu, vmid)?;
    let params = call.params.clone();
    let caller = call.caller.clone();
    let replaced = call.world.guests.get(vmid).cloned();
    create::reserve(call.world, Kind::Qemu, vmid, &node, scope.pool);
    let mut set = create::split_options(&params);
    set.remove("lock");
    Ok(call.task("qmrestore", vmid, move |worker| async move {
        let mut made = Made::default();
        let result = restore_locked(&worker, vmid, &volid, &params, set, &mut made).await;
        if let Err(failure) = result {
            match replaced {
                Some(_) => put_back(&worker, vmid, &made, replaced),
                None => leave_bare(&worker, vmid, &made),
            }
            return Err(Failure::die(format!(
                "unable to restore VM {vmid} - {}",
                failure.exit_text()
            )));
        }
        worker.world(|world| free_replaced(world, worker.node(), vmid, replaced.as_ref()));
        if params.flag("start") {
            worker.log("Execute autostart");
            worker.start(power::start_task(
                worker.node(),
                vmid,
                &caller,
                Params::new(),
            ));
        }
        Ok(())
    }))
}

/// An id that is taken needs `force`, and its guest must be off and unprotected.
pub(crate) fn check_target(call: &Call<'_>, kind: Kind, vmid: u32) -> Result<(), Failure> {
    let word = kind.word();
    let Some(guest) = call.world.guests.get(vmid) else {
        return Ok(());
    };
    let refuse = |why: String| {
        Err(Failure::die(format!(
            "unable to restore {word} {vmid} - {why}"
        )))
    };
    if !call.params.flag("force") || guest.kind != kind {
        return refuse(format!(
            "{word} {vmid} already exists on node '{}'",
            guest.node
        ));
    }
    if guest.is_running() {
        return refuse("vm is running".to_owned());
    }
    if guest.config.is_true("protection") {
        return refuse("protection mode enabled".to_owned());
    }
    Ok(())
}

/// Reads an archive into a VM, which is bare until all of it is there: no lock, no name, no notes, no drives.
async fn restore_locked(
    worker: &Worker,
    vmid: u32,
    volid: &str,
    params: &Params,
    set: Options,
    made: &mut Made,
) -> Result<(), Failure> {
    let path = lock::qemu_path(vmid);
    let _held = worker
        .lock_file(&path, Mode::Exclusive, RESTORE_WAIT)
        .await?;
    worker.world(|world| {
        if let Some(guest) = world.guests.get_mut(vmid) {
            let mut config = Config::default();
            config.set("memory", "128");
            guest.config = config;
        }
    });
    restore(worker, Kind::Qemu, vmid, volid, params, set, made).await
}

/// A VM whose restore failed stays, with nothing but what it began with.
fn leave_bare(worker: &Worker, vmid: u32, made: &Made) {
    worker.world(|world| {
        made.undo(world, worker.node());
        if let Some(guest) = world.guests.get_mut(vmid) {
            guest.config.remove("lock");
        }
    });
    worker.log(format!("VM {vmid} state is NOT cleaned up"));
}

/// A failed restore leaves what was there before.
pub(crate) fn put_back(worker: &Worker, vmid: u32, made: &Made, replaced: Option<Guest>) {
    worker.world(|world| {
        made.undo(world, worker.node());
        match replaced {
            Some(guest) => world.guests.insert(guest),
            None => create::forget(world, vmid),
        }
    });
}

/// Disks of a guest that a restore has replaced.
pub(crate) fn free_replaced(world: &mut World, node: &str, vmid: u32, old: Option<&Guest>) {
    let Some(old) = old else { return };
    let Some(new) = world.guests.get(vmid) else {
        return;
    };
    let kept: Vec<String> = snapshot::volumes(new.kind, &new.config.current)
        .into_iter()
        .map(|(_, v)| v)
        .collect();
    for (_, volid) in snapshot::volumes(old.kind, &old.config.current) {
        if !kept.contains(&volid) {
            // What cannot be removed stays as an orphan, as in PVE.
            let _ = world.storages.free(node, &volid);
        }
    }
}

/// Reads an archive into a reserved guest.
pub(crate) async fn restore(
    worker: &Worker,
    kind: Kind,
    vmid: u32,
    volid: &str,
    params: &Params,
    set: Options,
    made: &mut Made,
) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    let archive = worker.world(|world| {
        let volume = world.storages.volume(&node, volid)?;
        let archive = volume
            .archive
            .clone()
            .filter(|archive| archive.kind == kind.name());
        archive.ok_or_else(|| Failure::die(format!("unable to read archive '{volid}'")))
    })?;
    let mut config = archive.options.clone();
    let hand = Hand::of_worker(worker);
    for disk in &archive.disks {
        let storage = params.get("storage").unwrap_or(&disk.storage).to_owned();
        let old = config.get(&disk.option).cloned().unwrap_or_default();
        let wished = old
            .rsplit_once('.')
            .and_then(|(_, tail)| tail.split(',').next());
        let format = worker.world(|world| {
            pick_format(world, &storage, wished).or_else(|_| pick_format(world, &storage, None))
        })?;
        let new = allocate(&hand, &storage, vmid, format, None, disk.size, made).await?;
        worker.take_per_gib(Step::BackupGib, gib(disk.used)).await?;
        worker.world(|world| {
            let volume = world.storages.volume_mut(&node, &new)?;
            volume.used = volume.used.max(disk.used);
            volume.image.clone_from(&disk.image);
            Ok::<_, Failure>(())
        })?;
        worker.log(format!("new volume ID is '{new}'"));
        let value = match kind {
            Kind::Qemu => {
                let mut drive = Drive::parse(&old);
                drive.set("file", new);
                drive.print()
            }
            Kind::Lxc => lxc::with_volume(&old, &new),
        };
        config.insert(disk.option.clone(), value);
    }
    config.retain(|option, _| !options::is(option, "unused") && option != "template");
    let seeds: Vec<String> = drives(&config)
        .filter(|(_, drive)| drive.is_cloudinit())
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in seeds {
        let storage = Drive::parse(&config[&name])
            .storage()
            .unwrap_or("local")
            .to_owned();
        let storage = params.get("storage").map_or(storage, str::to_owned);
        let wanted = Drive::parse(&format!("{storage}:cloudinit,media=cdrom"));
        let drive = super::disks::make(&hand, vmid, &name, &wanted, None, made).await?;
        config.insert(name, drive.print());
    }
    config.extend(set);
    worker.world(|world| {
        if params.flag("unique") {
            for (_, value) in config
                .iter_mut()
                .filter(|(name, _)| options::is(name, "net"))
            {
                *value = lxc::without_mac(kind, value);
            }
        }
        if kind == Kind::Qemu {
            random_macs(world, &mut config);
            let id = world.uuid();
            config.insert("vmgenid".to_owned(), id);
        } else {
            lxc::random_macs(world, &mut config);
        }
        let guest = world.guests.find_mut(kind, &node, vmid)?;
        guest.config = Config {
            current: config,
            ..Config::default()
        };
        Ok(())
    })
}
