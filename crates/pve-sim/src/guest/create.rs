//! `POST /nodes/{node}/qemu`: a new VM, from nothing, from another guest's disk, or from a backup.
//!
//! The call checks rights and values and takes the id; the worker makes the disks and writes the
//! configuration. A worker that fails leaves nothing behind, not even the id.

use super::config::{Config, Options, tidy_tags};
use super::disks::{self, Made};
use super::drive::{self, Drive};
use super::formats::NET;
use super::hand::Hand;
use super::permit::{self, Scope};
use super::{Guest, Kind, backup, options, outside, power};
use crate::access::Caller;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::{self, Mode};
use crate::params::Params;
use crate::task::Worker;
use crate::world::World;

/// The QEMU a release ships, as `meta` and running guests show it.
pub(crate) fn qemu_version(world: &World) -> &'static str {
    if world.release.is_9() {
        "10.1.2"
    } else {
        "9.2.0"
    }
}

/// Parameters of the call that are not options of the guest.
const CALL_PARAMS: [&str; 13] = [
    "node",
    "vmid",
    "archive",
    "bwlimit",
    "force",
    "ha-managed",
    "import-working-storage",
    "live-restore",
    "pool",
    "start",
    "storage",
    "unique",
    "skiplock",
];

/// The options of the guest among the parameters of a call.
pub(crate) fn split_options(params: &Params) -> Options {
    params
        .iter()
        .filter(|(name, _)| !CALL_PARAMS.contains(name) && options::is_option(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// `cdrom` is another name of `ide2`.
pub(crate) fn resolve_cdrom(params: &mut Params) {
    if let Some(cdrom) = params.take("cdrom") {
        let drive = if cdrom.contains("media=") {
            cdrom
        } else {
            format!("{cdrom},media=cdrom")
        };
        params.set("ide2", drive);
    }
}

/// Handles the call.
pub(crate) fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    resolve_cdrom(&mut call.params);
    let params = call.params.clone();
    let pool = params.get("pool");
    let scope = Scope { vmid, pool };
    let storage = params.get("storage");
    if let Some(keys) = params.get("sshkeys") {
        check_keys(keys)?;
    }
    permit::pool_exists(call, pool)?;
    if let Some(storage) = storage {
        // Whether it exists is only asked when a disk goes there.
        call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    }
    if params.flag("start") && call.world.release.is_9() {
        scope.need(call, &["VM.PowerMgmt"])?;
    }
    permit::allocate(call, scope)?;
    let wanted = split_options(&params);
    if params.has("archive") {
        if let Some((name, _)) = drives(&wanted).next() {
            return Err(Failure::param(
                name,
                "option conflicts with option 'archive'",
            ));
        }
        if params.get("archive") == Some("-") {
            return Err(Failure::die("pipe requires cli environment"));
        }
        return backup::restore_qemu(call, scope);
    }
    for (name, drive) in drives(&wanted) {
        permit::drive(call, scope, name, &drive, storage)?;
        if !call.caller.is_root() {
            permit::change_drive(call, scope, &drive)?;
        }
    }
    permit::named_volumes(call, scope, &wanted)?;
    permit::options(call, scope, wanted.keys().map(String::as_str))?;
    permit::values(call, scope, &params)?;
    drive::check_all(call.world, &wanted)?;
    call.world.guests.check_unused(vmid).map_err(|failure| {
        Failure::die(format!("unable to create VM {vmid} - {}", failure.message))
    })?;
    reserve(call.world, Kind::Qemu, vmid, &node, pool);
    let order = Order {
        vmid,
        wanted,
        storage: storage.map(str::to_owned),
        start: params.flag("start"),
        ha: params.flag("ha-managed"),
        caller: call.caller.clone(),
    };
    Ok(call.task("qmcreate", vmid, move |worker| run(worker, order)))
}

/// Takes the id: an empty configuration with the lock `create`.
pub(crate) fn reserve(world: &mut World, kind: Kind, vmid: u32, node: &str, pool: Option<&str>) {
    let mut config = Config::default();
    config.set("lock", "create");
    world.guests.insert(Guest::new(kind, vmid, node, config));
    if let Some(pool) = pool.and_then(|pool| world.access.pools.get_mut(pool)) {
        pool.guests.insert(vmid);
    }
}

/// The drives among options, in the order of their names.
pub(crate) fn drives(options: &Options) -> impl Iterator<Item = (&str, Drive)> {
    options
        .iter()
        .filter(|(name, _)| options::is_drive(name))
        .map(|(name, value)| (name.as_str(), Drive::parse(value)))
}

/// Keys inside `sshkeys` must look like keys.
pub(crate) fn check_keys(encoded: &str) -> Result<(), Failure> {
    let known = ["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"];
    for line in super::cloudinit::decode(encoded).lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let kind = line
            .split_whitespace()
            .position(|word| known.iter().any(|k| word.starts_with(k)));
        let body = kind.and_then(|at| line.split_whitespace().nth(at + 1));
        if body.is_none() {
            return Err(Failure::die("SSH public key validation error"));
        }
    }
    Ok(())
}

/// Checks that concern several options at once.
pub(crate) fn check_together(config: &Config, changed: &Options) -> Result<(), Failure> {
    let merged = config.merged();
    let value = |name: &str| {
        changed
            .get(name)
            .or_else(|| merged.get(name))
            .map(String::as_str)
    };
    if changed.contains_key("balloon") || changed.contains_key("memory") {
        let memory = value("memory").map_or(512, memory_of);
        let balloon = value("balloon").and_then(|b| b.parse::<u64>().ok());
        if balloon.is_some_and(|balloon| balloon > memory) {
            return Err(Failure::die(
                "balloon value too large (must be smaller than assigned memory)",
            ));
        }
    }
    if let Some(order) = changed
        .get("boot")
        .and_then(|boot| boot.strip_prefix("order="))
    {
        for device in order.split(';').filter(|device| !device.is_empty()) {
            if value(device).is_none() {
                return Err(Failure::die(format!(
                    "invalid bootorder: device '{device}' does not exist'"
                )));
            }
        }
    }
    Ok(())
}

/// MiB of `memory`, whose only key is `current`.
pub(crate) fn memory_of(value: &str) -> u64 {
    let value = value.strip_prefix("current=").unwrap_or(value);
    value.parse().unwrap_or(512)
}

struct Order {
    vmid: u32,
    wanted: Options,
    storage: Option<String>,
    start: bool,
    ha: bool,
    caller: Caller,
}

async fn run(worker: Worker, order: Order) -> Result<(), Failure> {
    let vmid = order.vmid;
    let mut made = Made::default();
    let result = build(&worker, &order, &mut made).await;
    if let Err(failure) = result {
        let node = worker.node().to_owned();
        worker.world(|world| {
            made.undo(world, &node);
            forget(world, vmid);
        });
        return Err(Failure::die(format!(
            "unable to create VM {vmid} - {}",
            failure.exit_text()
        )));
    }
    if order.ha {
        let state = if order.start { "started" } else { "stopped" };
        worker.world(|world| outside::ha_add(world, Kind::Qemu, vmid, state));
    } else if order.start {
        worker.log("Execute autostart");
        worker.start(power::start_task(
            worker.node(),
            vmid,
            &order.caller,
            Params::new(),
        ));
    }
    Ok(())
}

/// Removes a guest from everything that knows it.
pub(crate) fn forget(world: &mut World, vmid: u32) {
    world.guests.remove(vmid);
    for pool in world.access.pools.values_mut() {
        pool.guests.remove(&vmid);
    }
}

async fn build(worker: &Worker, order: &Order, made: &mut Made) -> Result<(), Failure> {
    let vmid = order.vmid;
    let _held = worker
        .lock_file(
            &lock::qemu_path(vmid),
            Mode::Exclusive,
            std::time::Duration::from_secs(5),
        )
        .await?;
    let hand = Hand::of_worker(worker);
    let mut config = order.wanted.clone();
    for (name, drive) in drives(&order.wanted) {
        drive::one_cloudinit(&config, name, &drive)?;
        let drive = disks::make(&hand, vmid, name, &drive, order.storage.as_deref(), made).await?;
        config.insert(name.to_owned(), drive.print());
    }
    worker.take(Step::Create).await?;
    worker.world(|world| {
        finish(world, &mut config);
        let release = world.release;
        if let Some(tags) = config.get_mut("tags") {
            // PVE 8 keeps the order a guest was created with.
            if release.is_9() {
                *tags = tidy_tags(tags);
            } else {
                *tags = crate::params::split_list(tags).join(";");
            }
        }
        let node = worker.node();
        let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
        config.remove("lock");
        if let Some(lock) = order.wanted.get("lock") {
            config.insert("lock".to_owned(), lock.clone());
        }
        guest.config.current = config;
        Ok(())
    })
}

/// Writes the defaults of a new guest: addresses, ids, boot order, birth certificate.
pub(crate) fn finish(world: &mut World, config: &mut Options) {
    random_macs(world, config);
    if !config.contains_key("boot") && !config.contains_key("bootdisk") {
        config.insert("boot".to_owned(), disks::boot_order(config));
    }
    match config.get("vmgenid").map(String::as_str) {
        None | Some("1") => {
            let id = world.uuid();
            config.insert("vmgenid".to_owned(), id);
        }
        Some(_) => {}
    }
    let uuid = world.uuid();
    match config.get_mut("smbios1") {
        None => {
            config.insert("smbios1".to_owned(), format!("uuid={uuid}"));
        }
        Some(smbios) if !smbios.split(',').any(|part| part.starts_with("uuid=")) => {
            *smbios = format!("{smbios},uuid={uuid}");
        }
        Some(_) => {}
    }
    config.insert(
        "meta".to_owned(),
        format!(
            "creation-qemu={},ctime={}",
            qemu_version(world),
            world.now()
        ),
    );
}

/// Gives every card without a hardware address one.
pub(crate) fn random_macs(world: &mut World, config: &mut Options) {
    for (name, value) in config.iter_mut() {
        if options::is(name, "net") {
            let mut net = NET.parse(value);
            if !net.contains_key("macaddr") {
                net.insert("macaddr".to_owned(), random_mac(world));
            }
            *value = NET.print(&net);
        }
    }
}

/// A fresh hardware address under the cluster's prefix.
pub(crate) fn random_mac(world: &mut World) -> String {
    use rand::RngExt as _;
    let prefix = world.options.get("mac_prefix").cloned();
    let prefix = prefix.unwrap_or_else(|| "BC:24:11".to_owned());
    let missing = 6_usize.saturating_sub(prefix.split(':').count());
    let mut mac = prefix;
    for _ in 0..missing {
        let byte: u8 = world.rng.random();
        mac = format!("{mac}:{byte:02X}");
    }
    mac
}
