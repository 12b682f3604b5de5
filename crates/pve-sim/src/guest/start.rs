//! Starts a VM: checks what only the start checks, writes the cloud-init drive, and lets it boot.

use super::change;
use super::cloudinit::{self, Custom, Host};
use super::config::Config;
use super::create::{memory_of, qemu_version};
use super::drive::Drive;
use super::formats::{NET, NUMA};
use super::hand::Hand;
use super::live::{Inside, Machine, Run};
use super::seed::Seed;
use super::{Guest, Kind, inside, options, outside, patterns, permit};
use crate::failure::Failure;
use crate::latency::Step;
use crate::world::World;

/// Starts a stopped guest. The caller holds its lock and has checked its configuration's lock.
pub(crate) async fn start(hand: &Hand, vmid: u32) -> Result<(), Failure> {
    run(hand, vmid, false).await
}

/// Starts a guest from the memory of a snapshot: the system inside goes on where it was.
pub(crate) async fn start_from_memory(hand: &Hand, vmid: u32) -> Result<(), Failure> {
    run(hand, vmid, true).await
}

async fn run(hand: &Hand, vmid: u32, with_memory: bool) -> Result<(), Failure> {
    let node = hand.node().to_owned();
    let resumed = hand.world(|world| {
        let guest = world.guests.find(Kind::Qemu, &node, vmid)?;
        if guest.is_running() {
            return Err(Failure::die(format!("VM {vmid} already running")));
        }
        let suspended = guest.lock() == Some("suspended");
        if !suspended {
            change::apply_pending(world, &node, vmid)?;
        }
        Ok(suspended)
    })?;
    let has_seed = hand.world(|world| write_seed(world, &node, vmid))?;
    if has_seed {
        hand.log("generating cloud-init ISO");
    }
    hand.world(|world| check(world, &node, vmid))
        .inspect_err(|failure| {
            if failure.message.starts_with("start failed") {
                hand.log("kvm: cannot set up guest memory 'ram-node0': Cannot allocate memory");
            }
        })?;
    hand.take(Step::Start).await?;
    hand.world(|world| launch(world, &node, vmid, resumed, with_memory))?;
    inside::boot(hand.cluster(), vmid);
    Ok(())
}

/// Makes the process. The system inside begins to boot, or goes on if its memory came back.
fn launch(
    world: &mut World,
    node: &str,
    vmid: u32,
    resumed: bool,
    with_memory: bool,
) -> Result<(), Failure> {
    let (pid, now) = (world.tasks.pid(), world.now());
    let boot = world.guests.next_boot();
    let version = qemu_version(world);
    let version = version.rsplit_once('.').map_or(version, |(major, _)| major);
    let machine = format!("pc-i440fx-{version}+pve0");
    let guest = world.guests.find(Kind::Qemu, node, vmid)?;
    // Memory that was kept while the first boot was under way goes on booting.
    let was_up = guest.system.is_some();
    let image = bootable(world, guest);
    let inside = match image {
        None => Inside::Nothing,
        Some(_) if (resumed || with_memory) && was_up => Inside::Up,
        Some(_) => Inside::Booting,
    };
    let agent = image
        .and_then(|name| world.guests.images.get(&name))
        .is_some_and(|image| image.agent);
    let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
    if resumed {
        guest.config.remove("lock");
        guest.config.remove("runningmachine");
        let state = guest.config.remove("vmstate");
        if let Some(state) = state {
            world.storages.free(node, &state)?;
        }
    }
    let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
    if inside == Inside::Up
        && let Some(system) = &mut guest.system
    {
        system.agent = agent && !guest.quirks.no_agent;
    }
    guest.run = Some(Run {
        pid,
        since: now,
        state: Machine::Running,
        boot,
        inside,
        machine,
    });
    Ok(())
}

/// The image on the disk the guest boots from.
pub(crate) fn bootable(world: &World, guest: &Guest) -> Option<String> {
    let order = boot_devices(&guest.config);
    order.iter().find_map(|device| {
        let drive = Drive::parse(guest.config.get(device)?);
        if drive.is_cdrom() {
            return None;
        }
        world
            .storages
            .volume(&guest.node, drive.volume()?)
            .ok()?
            .image
            .clone()
    })
}

/// The drives a guest tries, in order.
fn boot_devices(config: &Config) -> Vec<String> {
    match config
        .get("boot")
        .and_then(|boot| boot.strip_prefix("order="))
    {
        Some(order) => order.split(';').map(str::to_owned).collect(),
        None => config
            .get("bootdisk")
            .map(str::to_owned)
            .into_iter()
            .chain(
                config
                    .current
                    .keys()
                    .filter(|o| options::is_disk(o))
                    .cloned(),
            )
            .collect(),
    }
}

/// What the host gives cloud-init when the guest says nothing.
pub(crate) fn host(world: &World, node: &str) -> Host {
    let (nameservers, searchdomain) = outside::resolver(world, node);
    Host {
        nameservers,
        searchdomain,
    }
}

/// Snippets that replace generated files.
pub(crate) fn custom(world: &World, node: &str, config: &Config) -> Result<Custom, Failure> {
    let mut found = Custom::default();
    let Some(value) = config.get("cicustom") else {
        return Ok(found);
    };
    for part in value.split(',') {
        let Some((key, volid)) = part.split_once('=') else {
            continue;
        };
        let volume = world.storages.volume(node, volid)?;
        let text = volume
            .data
            .as_ref()
            .map(|data| String::from_utf8_lossy(data).into_owned());
        let text = Some(text.unwrap_or_default());
        match key {
            "user" => found.user = text,
            "network" => found.network = text,
            "meta" => found.meta = text,
            "vendor" => found.vendor = text,
            _ => {}
        }
    }
    Ok(found)
}

/// The option of the cloud-init drive, if the guest has one.
pub(crate) fn cloud_init_drive(config: &Config) -> Option<&str> {
    config
        .current
        .iter()
        .find(|(option, value)| options::is_disk(option) && Drive::parse(value).is_cloudinit())
        .map(|(option, _)| option.as_str())
}

/// The files the cloud-init drive would hold now.
pub(crate) fn generated_seed(world: &World, node: &str, vmid: u32) -> Result<Seed, Failure> {
    let guest = world.guests.find(Kind::Qemu, node, vmid)?;
    let custom = custom(world, node, &guest.config)?;
    Ok(cloudinit::seed(
        vmid,
        &guest.config.merged(),
        &host(world, node),
        custom,
    ))
}

/// Writes the cloud-init drive; says whether there is one.
pub(crate) fn write_seed(world: &mut World, node: &str, vmid: u32) -> Result<bool, Failure> {
    let guest = world.guests.find(Kind::Qemu, node, vmid)?;
    let Some(option) = cloud_init_drive(&guest.config) else {
        return Ok(false);
    };
    let drive = Drive::parse(guest.config.get(option).unwrap_or_default());
    let volid = drive.volume().unwrap_or_default().to_owned();
    let seed = generated_seed(world, node, vmid)?;
    let guest = world.guests.find_mut(Kind::Qemu, node, vmid)?;
    guest.config.cloud_init = guest
        .config
        .current
        .iter()
        .filter(|(name, _)| {
            options::is_cloud_init(name) || options::is(name, "net") || *name == "name"
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let volume = world.storages.volume_mut(node, &volid)?;
    volume.seed = Some(seed);
    Ok(true)
}

/// Checks PVE makes only when a guest starts.
fn check(world: &World, node: &str, vmid: u32) -> Result<(), Failure> {
    let guest = world.guests.find(Kind::Qemu, node, vmid)?;
    let config = &guest.config;
    let host = world.node(node)?;
    let number = |name: &str, default: u64| {
        config
            .get(name)
            .and_then(|v| v.parse::<u64>().ok())
            .unwrap_or(default)
    };
    let vcpus = number("sockets", 1) * number("cores", 1);
    let memory = config.get("memory").map_or(512, memory_of);
    numa(config, memory, u64::from(host.numa_cells))?;
    let plugged = number("vcpus", vcpus);
    if plugged > u64::from(host.cpus) {
        return Err(Failure::die(format!(
            "MAX {} vcpus allowed per VM on this node",
            host.cpus
        )));
    }
    if super::hotplug::features(config).contains(&"memory") {
        if !config.is_true("numa") {
            return Err(Failure::die("NUMA needs to be enabled for memory hotplug"));
        }
        if memory < 1024 {
            return Err(Failure::die("minimum memory must be 1024MB"));
        }
    }
    if let Some(pages) = config.get("hugepages")
        && !config.is_true("numa")
        && !pages.is_empty()
    {
        return Err(Failure::die("numa needs to be enabled to use hugepages"));
    }
    for (_, drive) in super::create::drives(&config.current) {
        if let Some(volid) = drive.volume() {
            world.storages.volume(node, volid)?;
        }
    }
    mapped_devices(world, node, config)?;
    for (name, value) in &config.current {
        if options::is(name, "net")
            && let Some(bridge) = NET.parse(value).get("bridge")
            && !outside::has_bridge(world, node, bridge)
        {
            return Err(Failure::die(format!("bridge '{bridge}' does not exist")));
        }
    }
    if memory << 20 > host.memory {
        return Err(Failure::die("start failed: QEMU exited with code 1"));
    }
    Ok(())
}

/// Devices that are named by a mapping must have one on this node.
fn mapped_devices(world: &World, node: &str, config: &Config) -> Result<(), Failure> {
    for (name, value) in &config.current {
        let family = options::indexed(name).map(|(family, _)| family);
        let (kind, word) = match family {
            Some("hostpci") => ("pci", "PCI"),
            Some("usb") => ("usb", "USB"),
            _ => continue,
        };
        let express = value.split(',').any(|item| item == "pcie=1");
        let machine = config.get("machine").unwrap_or_default();
        if express && !machine.contains("q35") {
            return Err(Failure::die("q35 machine model is not enabled"));
        }
        if let Some(id) = permit::mapped(value)
            && !world.mappings.is_on(kind, id, node)
        {
            return Err(Failure::die(format!(
                "{word} device mapping not found for '{id}'"
            )));
        }
    }
    Ok(())
}

/// The guest's own NUMA topology must fit its memory and the host.
fn numa(config: &Config, memory: u64, cells: u64) -> Result<(), Failure> {
    if !config.is_true("numa") {
        return Ok(());
    }
    let mut total = 0.0;
    let mut any = false;
    for index in 0..8 {
        let Some(value) = config.get(&format!("numa{index}")) else {
            continue;
        };
        let values = NUMA.parse(value);
        let Some(of_cell) = values.get("memory").and_then(|m| m.parse::<f64>().ok()) else {
            return Err(Failure::die(format!(
                "missing NUMA node{index} memory value"
            )));
        };
        any = true;
        total += of_cell;
        if let Some(hosts) = values.get("hostnodes") {
            for (first, last) in hosts.split(';').filter_map(patterns::range) {
                if let Some(missing) = (first..=last).find(|cell| u64::from(*cell) >= cells) {
                    return Err(Failure::die(format!(
                        "host NUMA node{missing} doesn't exist"
                    )));
                }
            }
            if !values.contains_key("policy") {
                return Err(Failure::die(format!(
                    "you need to define a policy for hostnode {hosts}"
                )));
            }
        }
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "MiB of a guest fit a float exactly"
    )]
    let memory = memory as f64;
    if any && (total - memory).abs() > f64::EPSILON {
        return Err(Failure::die(
            "total memory for NUMA nodes must be equal to vm static memory",
        ));
    }
    Ok(())
}
