//! How guests look from outside: lists, `status/current`, and the numbers of the resource cache.

use serde_json::{Map, Value, json};

use super::create::{memory_of, qemu_version};
use super::drive::Drive;
use super::live::{Inside, Machine};
use super::{Guest, Kind, inside, options, outside, power};
use crate::world::World;

/// What a guest uses, as the host's statistics daemon sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usage {
    pub(crate) running: bool,
    pub(crate) uptime: u64,
    /// Share of its processors, 0 to 1.
    pub(crate) cpu: f64,
    pub(crate) maxcpu: u64,
    pub(crate) mem: u64,
    pub(crate) maxmem: u64,
    /// Memory the host spends on it.
    pub(crate) memhost: u64,
    pub(crate) disk: u64,
    pub(crate) maxdisk: u64,
    pub(crate) netin: u64,
    pub(crate) netout: u64,
    pub(crate) diskread: u64,
    pub(crate) diskwrite: u64,
}

fn number(guest: &Guest, option: &str) -> Option<u64> {
    guest.config.get(option)?.parse().ok()
}

/// What a guest uses now.
pub(crate) fn usage(world: &World, guest: &Guest) -> Usage {
    let maxmem = match guest.kind {
        Kind::Qemu => guest.config.get("memory").map_or(512, memory_of) << 20,
        Kind::Lxc => number(guest, "memory").unwrap_or(512) << 20,
    };
    let maxcpu = match guest.kind {
        Kind::Qemu => number(guest, "vcpus").unwrap_or_else(|| {
            number(guest, "sockets").unwrap_or(1) * number(guest, "cores").unwrap_or(1)
        }),
        Kind::Lxc => {
            let host = world
                .nodes
                .get(&guest.node)
                .map_or(1, |node| u64::from(node.cpus));
            number(guest, "cores").unwrap_or(host)
        }
    };
    let run = guest.run.as_ref();
    let uptime = run.map_or(0, |run| world.now().saturating_sub(run.since));
    let up = run.is_some_and(|run| run.inside == Inside::Up && run.state == Machine::Running);
    let busy = u64::from(up);
    // A system that is up holds about a third of its memory and talks a little.
    let mem = if up { maxmem / 3 } else { 0 };
    Usage {
        running: run.is_some(),
        uptime,
        cpu: if up { 0.02 } else { 0.0 },
        maxcpu,
        mem,
        maxmem,
        memhost: mem + mem / 16,
        disk: if guest.kind == Kind::Lxc {
            root_used(world, guest)
        } else {
            0
        },
        maxdisk: boot_size(guest),
        netin: busy * uptime * 120,
        netout: busy * uptime * 80,
        diskread: busy * (200 << 20),
        diskwrite: busy * uptime * 4096,
    }
}

fn root_used(world: &World, guest: &Guest) -> u64 {
    let volume = guest
        .config
        .get("rootfs")
        .map(|rootfs| rootfs.split(',').next().unwrap_or_default());
    let found = volume.and_then(|volid| world.storages.volume(&guest.node, volid).ok());
    if guest.is_running() {
        found.map_or(0, |volume| volume.used)
    } else {
        0
    }
}

/// The size of the disk a guest boots from.
pub(crate) fn boot_size(guest: &Guest) -> u64 {
    if guest.kind == Kind::Lxc {
        return guest
            .config
            .get("rootfs")
            .and_then(|rootfs| super::formats::MOUNT.parse(rootfs).get("size").cloned())
            .and_then(|size| super::size::parse(&size))
            .unwrap_or(0);
    }
    let order = guest
        .config
        .get("boot")
        .and_then(|boot| boot.strip_prefix("order="));
    let devices: Vec<&str> = match order {
        Some(order) => order.split(';').collect(),
        None => guest.config.get("bootdisk").into_iter().collect(),
    };
    devices
        .into_iter()
        .filter(|device| options::is_disk(device))
        .filter_map(|device| guest.config.get(device))
        .map(Drive::parse)
        .find(|drive| !drive.is_cdrom())
        .and_then(|drive| drive.size())
        .unwrap_or(0)
}

/// The part of a guest's status that lists and `status/current` share.
fn status(world: &World, guest: &Guest, full: bool) -> Map<String, Value> {
    let usage = usage(world, guest);
    let mut row = Map::new();
    let mut put = |key: &str, value: Value| row.insert(key.to_owned(), value);
    put("vmid", json!(guest.vmid));
    put("name", json!(guest.name()));
    put(
        "status",
        json!(if usage.running { "running" } else { "stopped" }),
    );
    put("cpus", json!(usage.maxcpu));
    put(
        "cpu",
        if usage.cpu > 0.0 {
            json!(usage.cpu)
        } else {
            json!(0)
        },
    );
    for (key, value) in [
        ("mem", usage.mem),
        ("maxmem", usage.maxmem),
        ("disk", usage.disk),
        ("maxdisk", usage.maxdisk),
        ("netin", usage.netin),
        ("netout", usage.netout),
        ("uptime", usage.uptime),
    ] {
        put(key, json!(value));
    }
    if let Some(tags) = guest.tags() {
        put("tags", json!(tags));
    }
    if let Some(lock) = guest.lock() {
        put("lock", json!(lock));
    }
    if guest.is_template() {
        put("template", json!(1));
    }
    if let Some(run) = &guest.run {
        put("pid", json!(run.pid));
    }
    let is_9 = world.release.is_9();
    if guest.kind == Kind::Lxc {
        put("type", json!("lxc"));
        let swap = number(guest, "swap").unwrap_or(512) << 20;
        put("swap", json!(0));
        put("maxswap", json!(swap));
        put("diskread", json!(usage.diskread));
        put("diskwrite", json!(usage.diskwrite));
    }
    if is_9 && guest.kind == Kind::Qemu {
        put("memhost", json!(usage.memhost));
    }
    if is_9 && usage.running {
        for kind in ["cpu", "io", "memory"] {
            for share in ["some", "full"] {
                put(&format!("pressure{kind}{share}"), json!(0));
            }
        }
    }
    if guest.kind == Kind::Qemu {
        if guest
            .config
            .current
            .keys()
            .any(|option| options::is(option, "serial"))
        {
            put("serial", json!(1));
        }
        if full {
            qmp(world, guest, &usage, &mut row);
        }
    }
    row
}

/// What the machine itself is asked for.
fn qmp(world: &World, guest: &Guest, usage: &Usage, row: &mut Map<String, Value>) {
    let state = guest.run.as_ref().map_or("stopped", |run| run.state.name());
    row.insert("qmpstatus".to_owned(), json!(state));
    let Some(run) = &guest.run else { return };
    let nics: Map<String, Value> = inside::cards(guest)
        .iter()
        .map(|card| {
            let name = format!("tap{}i{}", guest.vmid, card.index);
            (
                name,
                json!({ "netin": usage.netin, "netout": usage.netout }),
            )
        })
        .collect();
    if !nics.is_empty() {
        row.insert("nics".to_owned(), Value::Object(nics));
    }
    // Statistics of the machine were observed only with hardware virtualisation.
    if guest.config.get("kvm") == Some("0") {
        return;
    }
    row.insert("diskread".to_owned(), json!(usage.diskread));
    row.insert("diskwrite".to_owned(), json!(usage.diskwrite));
    row.insert("running-machine".to_owned(), json!(run.machine));
    row.insert("running-qemu".to_owned(), json!(qemu_version(world)));
    if guest.config.get("balloon") != Some("0") {
        let max = usage.maxmem;
        let actual = number(guest, "balloon").map_or(max, |mib| mib << 20);
        row.insert("balloon".to_owned(), json!(max));
        row.insert("freemem".to_owned(), json!(max.saturating_sub(usage.mem)));
        row.insert(
            "ballooninfo".to_owned(),
            json!({
                "actual": max,
                "max_mem": max,
                "total_mem": max,
                "free_mem": max.saturating_sub(usage.mem),
                "last_update": world.now(),
            }),
        );
        if actual < max {
            row.insert(
                "shares".to_owned(),
                json!(number(guest, "shares").unwrap_or(1000)),
            );
        }
    }
    let blocks: Map<String, Value> = super::create::drives(&guest.config.current)
        .filter(|(name, _)| options::is_disk(name))
        .map(|(name, drive)| {
            let written = if drive.is_cdrom() { 0 } else { usage.diskwrite };
            let stats = json!({
                "rd_bytes": usage.diskread,
                "wr_bytes": written,
                "rd_operations": usage.diskread >> 12,
                "wr_operations": written >> 12,
                "flush_operations": 0,
                "wr_highest_offset": drive.size().unwrap_or(0) / 2,
            });
            (name.to_owned(), stats)
        })
        .collect();
    row.insert("blockstat".to_owned(), Value::Object(blocks));
    row.insert(
        "proxmox-support".to_owned(),
        json!({
            "pbs-dirty-bitmap": true,
            "pbs-dirty-bitmap-migration": true,
            "pbs-dirty-bitmap-savevm": true,
            "pbs-library-version": "1.5.1",
            "pbs-masterkey": true,
            "query-bitmap-info": true,
            "backup-fleecing": true,
            "backup-max-workers": true,
        }),
    );
}

/// `GET /nodes/{node}/qemu` or `/lxc`: one row.
pub(crate) fn list_row(world: &World, guest: &Guest, full: bool) -> Value {
    Value::Object(status(world, guest, full))
}

/// `GET status/current`.
pub(crate) fn current(world: &World, guest: &Guest) -> Value {
    let mut row = status(world, guest, true);
    row.insert("ha".to_owned(), outside::ha_status(world, guest.vmid));
    if guest.kind == Kind::Qemu {
        if power::agent_enabled(guest) {
            row.insert("agent".to_owned(), json!(1));
        }
        if let Some(vga) = guest.config.get("vga") {
            let clipboard = vga
                .split(',')
                .find_map(|part| part.strip_prefix("clipboard="));
            row.insert("clipboard".to_owned(), json!(clipboard));
            if vga.starts_with("qxl") {
                row.insert("spice".to_owned(), json!(1));
            }
        }
    }
    Value::Object(row)
}
