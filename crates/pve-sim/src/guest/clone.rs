//! `POST …/clone`: a copy of a VM, full or linked.
//!
//! The new id is not reserved by the call: several clones to one id may all get a worker, and all but
//! one of those fail when they come to create the configuration file.

use std::time::Duration;

use super::config::{Config, Options};
use super::create::{drives, forget, random_mac};
use super::disks::{self, Made, format_line, gib, transferred};
use super::drive::Drive;
use super::formats::NET;
use super::hand::Hand;
use super::permit;
use super::{Guest, Kind, options, read};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::{self, Mode};
use crate::storage::{Feature, Format};
use crate::task::Worker;
use crate::world::World;

/// Clones give up on the source's lock sooner than others.
const LOCK_WAIT: Duration = Duration::from_secs(1);

struct Order {
    vmid: u32,
    newid: u32,
    name: Option<String>,
    description: Option<String>,
    pool: Option<String>,
    snapshot: Option<String>,
    full: bool,
    storage: Option<String>,
    format: Option<String>,
    target: Option<String>,
}

fn id_taken(newid: u32) -> Failure {
    Failure::die(format!(
        "unable to create VM {newid}: config file already exists"
    ))
}

/// Handles the call.
pub(crate) fn clone(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let owned = |name: &str| call.params.get(name).map(str::to_owned);
    let newid = call.params.vmid("newid").unwrap_or_default();
    let (pool, storage, snapshot) = (owned("pool"), owned("storage"), owned("snapname"));
    let target = owned("target").filter(|target| *target != node);
    permit::pool_exists(call, pool.as_deref())?;
    if let Some(target) = &target {
        call.world.node(target)?;
    }
    if let Some(storage) = &storage {
        let known = call.world.storages.enabled(storage, &node)?;
        permit::holds_images(call, storage)?;
        if let Some(target) = &target {
            call.world.storages.enabled(storage, target)?;
            if !known.def.shared {
                return Err(Failure::die(format!(
                    "can't clone to non-shared storage '{storage}'"
                )));
            }
        }
    }
    let guest = read::guest(call, Kind::Qemu)?;
    guest.check_lock()?;
    let source = chosen(guest, snapshot.as_deref())?;
    let full = call.params.bool("full").unwrap_or(!guest.is_template());
    if !full {
        for name in ["storage", "format"] {
            if call.params.has(name) {
                return Err(Failure::die(format!(
                    "parameter '{name}' not allowed for linked clones"
                )));
            }
        }
    }
    rights(call, source, storage.as_deref())?;
    let order = Order {
        vmid,
        newid,
        name: owned("name"),
        description: owned("description"),
        pool,
        snapshot,
        full,
        storage,
        format: owned("format"),
        target,
    };
    feasible(call.world, source, &order)?;
    Ok(call.task("qmclone", vmid, move |worker| run(worker, order)))
}

fn chosen<'a>(guest: &'a Guest, snapshot: Option<&str>) -> Result<&'a Options, Failure> {
    match snapshot {
        None => Ok(&guest.config.current),
        Some(name) => guest
            .config
            .snapshots
            .get(name)
            .ok_or_else(|| Failure::die(format!("snapshot '{name}' does not exist"))),
    }
}

/// Rights on the storages and bridges.
fn rights(call: &Call<'_>, source: &Options, storage: Option<&str>) -> Result<(), Failure> {
    for (_, drive) in drives(source) {
        let Some(of_drive) = drive.storage() else {
            continue;
        };
        if !drive.is_plain_cdrom() {
            let used = storage.unwrap_or(of_drive);
            call.need(&format!("/storage/{used}"), &["Datastore.AllocateSpace"])?;
        }
    }
    if !call.caller.is_root() {
        for (_, value) in source.iter().filter(|(name, _)| options::is(name, "net")) {
            if let Some(bridge) = NET.parse(value).get("bridge") {
                let path = permit::bridge_path(call.world, bridge);
                call.need(&path, &["SDN.Use"])?;
            }
        }
    }
    Ok(())
}

/// Whether the source, as it is now, can be cloned the way asked for: asked by the call, and by its worker once more.
fn feasible(world: &World, source: &Options, order: &Order) -> Result<(), Failure> {
    let mut shared = true;
    for (_, drive) in drives(source) {
        if let Some(storage) = drive.storage() {
            // Another storage for the copy does not help it there.
            shared &= world.storages.get(storage)?.def.shared;
        }
    }
    if let Some(target) = order.target.as_ref().filter(|_| !shared) {
        return Err(Failure::die(format!(
            "can't clone VM to node '{target}' (VM uses local storage)"
        )));
    }
    if world.guests.exists(order.newid) {
        return Err(id_taken(order.newid));
    }
    features(world, source, order.full, order.snapshot.is_some())
}

/// Whether the disks can be cloned the way asked for.
fn features(world: &World, source: &Options, full: bool, snap: bool) -> Result<(), Failure> {
    for (name, drive) in drives(source) {
        let Some(volid) = drive.volume() else {
            continue;
        };
        if drive.is_plain_cdrom() || drive.is_cloudinit() {
            continue;
        }
        let (feature, word) = if full {
            (Feature::Copy, "Full")
        } else {
            (Feature::Clone, "Linked")
        };
        if !world.storages.has_feature(feature, volid, snap) {
            let of = if snap { "a snapshot of " } else { "" };
            return Err(Failure::die(format!(
                "{word} clone feature is not supported for {of}'{volid}' ({name})"
            )));
        }
    }
    Ok(())
}

async fn run(worker: Worker, order: Order) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    let running = worker.world(|world| world.guests.get(order.vmid).is_some_and(Guest::is_running));
    // Clones of one stopped template go side by side; a running source is copied by one at a time.
    let mode = if running {
        Mode::Exclusive
    } else {
        Mode::Shared
    };
    let _held = worker
        .lock_file(&lock::qemu_path(order.vmid), mode, LOCK_WAIT)
        .await?;
    let _new = worker
        .lock_file(&lock::qemu_path(order.newid), Mode::Exclusive, LOCK_WAIT)
        .await?;
    worker.world(|world| reserve(world, &node, &order))?;
    let mut made = Made::default();
    let result = copy(&worker, &order, &mut made).await;
    if let Err(failure) = result {
        worker.world(|world| {
            made.undo(world, &node);
            forget(world, order.newid);
        });
        return Err(Failure::die(format!(
            "clone failed: {}",
            failure.exit_text()
        )));
    }
    if let Some(target) = &order.target {
        worker.world(|world| world.guests.relocate(order.newid, target));
    }
    Ok(())
}

/// Creates the configuration file with the lock `clone`.
fn reserve(world: &mut World, node: &str, order: &Order) -> Result<(), Failure> {
    let source = world.guests.find(Kind::Qemu, node, order.vmid)?;
    source.check_lock()?;
    feasible(world, chosen(source, order.snapshot.as_deref())?, order)?;
    let mut config = Config::default();
    config.set("lock", "clone");
    world
        .guests
        .insert(Guest::new(Kind::Qemu, order.newid, node, config));
    if let Some(pool) = order
        .pool
        .as_ref()
        .and_then(|pool| world.access.pools.get_mut(pool))
    {
        pool.guests.insert(order.newid);
    }
    Ok(())
}

async fn copy(worker: &Worker, order: &Order, made: &mut Made) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    worker.log(format!(
        "creating a clone of VM {} with ID {}",
        order.vmid, order.newid
    ));
    let source = worker.world(|world| {
        let guest = world.guests.find(Kind::Qemu, &node, order.vmid)?;
        chosen(guest, order.snapshot.as_deref()).cloned()
    })?;
    let mut config = carried(&source);
    let hand = Hand::of_worker(worker);
    for (name, drive) in drives(&source) {
        if drive.is_plain_cdrom() || drive.volume().is_none() {
            continue;
        }
        let copied = copy_drive(&hand, order, name, &drive, made).await?;
        config.insert(name.to_owned(), copied.print());
    }
    worker.world(|world| {
        identity(world, &mut config, order);
        let guest = world.guests.find_mut(Kind::Qemu, &node, order.newid)?;
        guest.config.current = config;
        super::outside::firewall_copied(world, order.vmid, order.newid);
        Ok(())
    })
}

/// Options that go along: no snapshots, no unused disks, nothing of a process.
fn carried(source: &Options) -> Options {
    let left = [
        "lock",
        "parent",
        "snaptime",
        "vmstate",
        "snapstate",
        "template",
        "runningmachine",
        "runningcpu",
    ];
    source
        .iter()
        .filter(|(name, _)| !left.contains(&name.as_str()) && !options::is(name, "unused"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// A clone is somebody else: new addresses, new ids, its own name.
fn identity(world: &mut World, config: &mut Options, order: &Order) {
    for (name, value) in config.iter_mut() {
        if options::is(name, "net") {
            let mut net = NET.parse(value);
            net.insert("macaddr".to_owned(), random_mac(world));
            *value = NET.print(&net);
        }
    }
    let uuid = world.uuid();
    let rest = config.get("smbios1").map(|smbios| {
        let parts: Vec<&str> = smbios
            .split(',')
            .filter(|p| !p.starts_with("uuid="))
            .collect();
        parts.join(",")
    });
    let smbios = match rest.filter(|rest| !rest.is_empty()) {
        Some(rest) => format!("{rest},uuid={uuid}"),
        None => format!("uuid={uuid}"),
    };
    config.insert("smbios1".to_owned(), smbios);
    if config.contains_key("vmgenid") {
        let id = world.uuid();
        config.insert("vmgenid".to_owned(), id);
    }
    let old = config
        .get("name")
        .cloned()
        .unwrap_or_else(|| order.vmid.to_string());
    let name = order
        .name
        .clone()
        .unwrap_or_else(|| format!("Copy-of-VM-{old}"));
    config.insert("name".to_owned(), name);
    if let Some(description) = &order.description {
        config.insert("description".to_owned(), description.clone());
    }
}

/// Copies or links one drive.
async fn copy_drive(
    hand: &Hand,
    order: &Order,
    name: &str,
    drive: &Drive,
    made: &mut Made,
) -> Result<Drive, Failure> {
    let volid = drive.volume().unwrap_or_default().to_owned();
    let mut new = drive.clone();
    if drive.is_cloudinit() {
        hand.log(format!("create full clone of drive {name} ({volid})"));
        let copied = copy_cloud_init(hand, order, &volid, made).await?;
        new.set("file", copied);
        new.set("media", "cdrom");
        new.set_size(4 << 20);
    } else if order.full {
        hand.log(format!("create full clone of drive {name} ({volid})"));
        let wish = Wish {
            vmid: order.newid,
            storage: order.storage.as_deref(),
            format: order.format.as_deref(),
            snapshot: order.snapshot.as_deref(),
        };
        let (copied, bytes) = copy_volume(hand, &volid, wish, made).await?;
        new.set("file", copied);
        new.set_size(bytes);
    } else {
        hand.log(format!("create linked clone of drive {name} ({volid})"));
        let linked = link(hand, &volid, order.newid, made).await?;
        new.set("file", linked);
    }
    Ok(new)
}

async fn copy_cloud_init(
    hand: &Hand,
    order: &Order,
    volid: &str,
    made: &mut Made,
) -> Result<String, Failure> {
    let (storage, format, file) = hand.world(|world| {
        let (storage, name) = world.storages.parse(volid)?;
        let id = order
            .storage
            .clone()
            .unwrap_or_else(|| storage.def.id.clone());
        let target = world.storages.get(&id)?.def.kind;
        let format = if target.is_file() {
            order
                .format
                .as_deref()
                .and_then(Format::parse)
                .unwrap_or(match name.format {
                    Format::Raw if storage.def.kind.is_file() => Format::Raw,
                    _ => Format::Qcow2,
                })
        } else {
            Format::Raw
        };
        Ok::<_, Failure>((id, format, target.is_file()))
    })?;
    let suffix = if file {
        format!(".{}", format.name())
    } else {
        String::new()
    };
    let name = format!("vm-{}-cloudinit{suffix}", order.newid);
    let copied = disks::allocate(
        hand,
        &storage,
        order.newid,
        format,
        Some(&name),
        4 << 20,
        made,
    )
    .await?;
    hand.log(format!("allocated target volume '{copied}'"));
    Ok(copied)
}

/// Where a copied volume shall go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) vmid: u32,
    pub(crate) storage: Option<&'a str>,
    pub(crate) format: Option<&'a str>,
    pub(crate) snapshot: Option<&'a str>,
}

/// Copies a volume with its data; returns the new id and its size.
pub(crate) async fn copy_volume(
    hand: &Hand,
    volid: &str,
    wish: Wish<'_>,
    made: &mut Made,
) -> Result<(String, u64), Failure> {
    let node = hand.node().to_owned();
    let (storage, format, bytes, used, image) = hand.world(|world| {
        let (storage, name) = world.storages.parse(volid)?;
        let id = wish.storage.unwrap_or(&storage.def.id).to_owned();
        let (supported, default) = world.storages.get(&id)?.def.kind.formats();
        let wished = wish.format.and_then(Format::parse).unwrap_or(name.format);
        let format = if supported.contains(&wished) {
            wished
        } else {
            default
        };
        let volume = world.storages.volume(&node, volid)?;
        let snap = wish
            .snapshot
            .and_then(|s| volume.snapshots.iter().find(|v| v.name == s));
        let (bytes, used) = snap.map_or((volume.size, data_of(world, &node, volid)), |s| {
            (s.size, s.used)
        });
        Ok::<_, Failure>((id, format, bytes, used, volume.image.clone()))
    })?;
    let copied = disks::allocate(hand, &storage, wish.vmid, format, None, bytes, made).await?;
    hand.log(format!("allocated target volume '{copied}'"));
    hand.take(Step::CloneFull).await?;
    hand.take_per_gib(Step::CopyGib, gib(used)).await?;
    hand.world(|world| {
        let fresh = world.storages.volume(&node, &copied)?.used;
        world
            .storages
            .check_room(&storage, &node, used.saturating_sub(fresh))?;
        let volume = world.storages.volume_mut(&node, &copied)?;
        volume.used = volume.used.max(used.min(bytes));
        volume.image = image;
        Ok::<_, Failure>(())
    })?;
    transferred(hand, bytes);
    Ok((copied, bytes))
}

/// Bytes a volume holds, those of the bases it is linked to included.
fn data_of(world: &World, node: &str, volid: &str) -> u64 {
    let Ok((storage, _)) = world.storages.parse(volid) else {
        return 0;
    };
    let Some(store) = storage.store(node) else {
        return 0;
    };
    let mut total = 0;
    let mut at = world.storages.volume(node, volid).ok();
    while let Some(volume) = at {
        total += volume.used;
        at = volume.parent.as_deref().and_then(|key| store.get(key));
    }
    total
}

async fn link(hand: &Hand, volid: &str, newid: u32, made: &mut Made) -> Result<String, Failure> {
    let storage = hand.world(|world| {
        let (storage, _) = world.storages.parse(volid)?;
        let block = storage.def.shared && !storage.def.kind.is_file();
        Ok::<_, Failure>(block.then(|| storage.def.id.clone()))
    })?;
    let _held = match &storage {
        Some(storage) => Some(hand.lock_cfs(&format!("storage-{storage}")).await?),
        None => None,
    };
    hand.take(Step::CloneLinked).await?;
    let node = hand.node().to_owned();
    let (linked, lines) = hand.world(|world| {
        let now = world.now();
        let linked = world.storages.link(&node, volid, newid, now)?;
        made.volumes.push(linked.clone());
        let (storage, base) = world.storages.parse(volid)?;
        let (_, name) = world.storages.parse(&linked)?;
        let size = world.storages.volume(&node, &linked)?.size;
        let mut lines = Vec::new();
        if storage.def.kind.is_file() {
            let owner = base.vmid.unwrap_or_default();
            lines.push(format!(
                "clone {owner}/{base}: images, {new}, {newid} to {new} (base=../{owner}/{base})",
                base = base.file,
                new = name.file,
            ));
        }
        lines.extend(format_line(world, &linked, size));
        Ok::<_, Failure>((linked, lines))
    })?;
    for line in lines {
        hand.log(line);
    }
    Ok(linked)
}
