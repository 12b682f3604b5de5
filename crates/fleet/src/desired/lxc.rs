//! The configuration of a container in PVE's keys.

use ipnet::IpNet;

use super::{Context, Desired, DiskWant, Invalid, Make, Want, devices, disks::ROOT_NAME};
use crate::{
    intent::{Container, DiskRole, Dynamic, GuestIntent, Nic},
    prop::Prop,
    record::{Identity, NicIdentity},
};

/// The configuration of a container.
pub(crate) fn container(
    intent: &GuestIntent,
    identity: &Identity,
    context: Context<'_>,
) -> Result<Desired, Invalid> {
    let none = Container::default();
    let container = intent.container.as_ref().unwrap_or(&none);
    let mut want = Desired::default();
    want.text("hostname", Some(&intent.name));
    want.keys.insert(
        "description".to_owned(),
        Want::Description(intent.options.description.clone()),
    );
    let cpu = &intent.hardware.cpu;
    let cores = cpu.cores.map(|cores| cores * cpu.sockets.unwrap_or(1));
    want.text("cores", cores);
    want.text("cpulimit", cpu.limit);
    want.text("cpuunits", cpu.units);
    want.text(
        "memory",
        intent.hardware.memory.size.map(crate::Size::as_mib),
    );
    want.text("swap", container.swap.map(crate::Size::as_mib));
    let dns: Vec<String> = container.dns.iter().map(ToString::to_string).collect();
    if !dns.is_empty() {
        want.text("nameserver", Some(dns.join(" ")));
    }
    want.text("searchdomain", container.search.as_ref());
    if !container.features.is_empty() {
        want.items(
            "features",
            Prop::parse("features", &container.features.join(",")),
        );
    }
    want.own_all_nics = !intent.nics.is_empty() && !identity.adopted;
    for nic in &intent.nics {
        if let Some(known) = identity.nics.get(&nic.name) {
            want.keys.insert(
                format!("net{}", known.index),
                Want::Items(network(nic, *known, devices::filtered(nic, intent))?),
            );
        }
    }
    devices::filter(&mut want, intent);
    for (name, known) in &identity.nics {
        if !intent.nics.iter().any(|nic| &nic.name == name) {
            want.absent.insert(format!("net{}", known.index));
        }
    }
    root(&mut want, intent, context);
    for mount in &container.mounts {
        let Some(index) = identity.mounts.get(&mount.name) else {
            continue;
        };
        let mut options = Prop::default();
        options.set("mp", mount.path.clone());
        options.set("backup", u8::from(mount.backup).to_string());
        if mount.read_only {
            options.set("ro", "1");
        }
        let make = if identity.brought.contains(&mount.name) {
            Make::Brought
        } else {
            let field = format!("mountPoints[{}].storage", mount.name);
            let storage = mount.storage.as_ref();
            Make::on(storage, context, field, "containers", |storage| {
                let mut make = Prop::default();
                make.set("volume", format!("{storage}:{}", mount.size.to_pve_gib()));
                make.over(&options).print("mp0")
            })
        };
        want.keys.insert(
            format!("mp{index}"),
            Want::Disk(DiskWant {
                make,
                storage: mount.storage.clone().filter(|_| !mount.stays),
                size: Some(mount.size),
                options,
                ..DiskWant::default()
            }),
        );
    }
    // One that is no longer declared is taken out; its volume stays with the container as unused.
    for (name, index) in &identity.mounts {
        if !container.mounts.iter().any(|mount| &mount.name == name) {
            want.absent.insert(format!("mp{index}"));
        }
    }
    let options = &intent.options;
    want.tags(options);
    want.flag("onboot", options.onboot);
    want.flag("protection", options.protection);
    if let Some(startup) = &options.startup {
        let mut items = Prop::default();
        items.maybe("order", startup.order);
        items.maybe("up", startup.up);
        items.maybe("down", startup.down);
        want.items("startup", items);
    }
    for (key, value) in &intent.hardware.extra {
        want.text(key, Some(value));
    }
    Ok(want)
}

fn root(want: &mut Desired, intent: &GuestIntent, context: Context<'_>) {
    let disk = intent.disks.iter().find(|disk| disk.role == DiskRole::Root);
    let copy = !matches!(
        intent.source,
        crate::intent::Source::ContainerTemplate { .. }
    );
    let storage = disk.and_then(|disk| disk.storage.as_ref());
    let make = if copy {
        Make::Brought
    } else {
        let size = disk
            .and_then(|disk| disk.size)
            .unwrap_or(crate::Size::gib(8));
        let field = format!("disks[{ROOT_NAME}].storage");
        Make::on(storage, context, field, "containers", |storage| {
            format!("{storage}:{}", size.to_pve_gib())
        })
    };
    let size = disk.and_then(|disk| disk.size);
    let wish = DiskWant {
        make,
        storage: disk.and_then(|disk| disk.storage.clone().filter(|_| !disk.stays)),
        size,
        ..DiskWant::default()
    };
    want.keys.insert("rootfs".to_owned(), Want::Disk(wish));
}

fn network(nic: &Nic, known: NicIdentity, firewall: Option<bool>) -> Result<Prop, Invalid> {
    let mut items = Prop::default();
    items.set("name", format!("eth{}", known.index));
    items.set("bridge", nic.bridge.clone());
    items.set("hwaddr", known.mac.to_string());
    items.set("type", "veth");
    items.maybe("tag", nic.vlan);
    items.maybe("mtu", nic.mtu.filter(|mtu| *mtu > 1));
    items.maybe("rate", nic.rate);
    items.flag("firewall", firewall);
    items.flag("link_down", nic.link_down);
    let addressing = &nic.addressing;
    let one = |v4: bool| {
        let mut found = addressing
            .addresses
            .iter()
            .filter(|net| matches!(net, IpNet::V4(_)) == v4);
        let first = found.next().copied();
        if found.next().is_some() {
            return Err(Invalid::new(
                format!("networks[{}].addresses", nic.name),
                "of a container can be one of each family",
            ));
        }
        Ok(first)
    };
    match one(true)? {
        Some(net) => items.set("ip", net.to_string()),
        None if addressing.ipv4 == Dynamic::Dhcp || addressing.is_default() => {
            items.set("ip", "dhcp");
        }
        None => {}
    }
    items.maybe("gw", addressing.gateway4);
    match (one(false)?, addressing.ipv6) {
        (Some(net), _) => items.set("ip6", net.to_string()),
        (None, Dynamic::Dhcp) => items.set("ip6", "dhcp"),
        (None, Dynamic::Auto) => items.set("ip6", "auto"),
        (None, Dynamic::No) => {}
    }
    items.maybe("gw6", addressing.gateway6);
    Ok(items)
}
