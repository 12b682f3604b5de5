//! What happens inside a guest after its process starts: booting, configuring, coming up.

use std::time::Duration;

use tokio::sync::broadcast;

use super::drive::Drive;
use super::formats::{CT_NET, NET};
use super::live::{self, Boot, Card, Inside, Machine, System};
use super::seed::Seed;
use super::{Guest, Kind, options, start};
use crate::cluster::Cluster;
use crate::latency::Step;
use crate::world::World;

/// Tells whoever listens that a guest has come up.
#[derive(Clone, Debug)]
pub(crate) struct Bell(broadcast::Sender<Boot>);

impl Default for Bell {
    fn default() -> Self {
        Bell(broadcast::Sender::new(4096))
    }
}

impl Bell {
    pub(crate) fn listen(&self) -> broadcast::Receiver<Boot> {
        self.0.subscribe()
    }

    fn ring(&self, boot: Boot) {
        // Nobody has to listen.
        let _ = self.0.send(boot);
    }
}

/// Lets a guest that has just been started, reset or resumed come up in its own time.
pub(crate) fn boot(cluster: &Cluster, vmid: u32) {
    let plan = cluster.world(|world| {
        let time = world.step_time(Step::Boot);
        let guest = world.guests.get(vmid)?;
        let run = guest.run.as_ref()?;
        if run.inside != Inside::Booting || guest.quirks.hang_at_boot {
            return None;
        }
        let time = match (guest.kind, guest.quirks.boot_seconds) {
            (_, Some(seconds)) => Duration::from_secs(seconds),
            // A container has no kernel to load.
            (Kind::Lxc, None) => time / 10,
            (Kind::Qemu, None) => time,
        };
        Some((run.boot, time))
    });
    let Some((number, time)) = plan else { return };
    let cluster = cluster.clone();
    let tracker = cluster.tracker().clone();
    tracker.spawn(async move {
        tokio::time::sleep(time).await;
        // On its way to another node it may have no disk for a moment: it is up when it has arrived.
        while cluster.world(|world| is_moving(world, vmid, number)) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        cluster.world(|world| come_up(world, vmid, number));
    });
}

fn is_moving(world: &World, vmid: u32, number: u64) -> bool {
    let guest = world.guests.get(vmid);
    guest.is_some_and(|guest| {
        let boots = guest.run.as_ref().is_some_and(|run| run.boot == number);
        boots && guest.config.lock() == Some("migrate")
    })
}

/// The system is up: it has read its seed, taken its name and addresses, and started its agent.
fn come_up(world: &mut World, vmid: u32, number: u64) {
    let Some(guest) = world.guests.get(vmid) else {
        return;
    };
    let current = guest.run.as_ref().is_some_and(|run| {
        run.boot == number && run.inside == Inside::Booting && run.state == Machine::Running
    });
    if !current {
        return;
    }
    let name = match guest.kind {
        Kind::Qemu => match start::bootable(world, guest) {
            Some(image) => image,
            None => return,
        },
        Kind::Lxc => "container".to_owned(),
    };
    let image = world.guests.images.get(&name).cloned().unwrap_or_default();
    let seed = match guest.kind {
        Kind::Qemu if image.cloud_init => find_seed(world, guest),
        _ => None,
    };
    let cards = cards(guest);
    let before = guest.system.clone().filter(|system| system.image == name);
    let (instance, links) = match (guest.kind, &seed, &before) {
        (Kind::Lxc, _, _) => (None, Some(container_links(guest))),
        // A configuration cloud-init cannot read leaves it with its fallback.
        (Kind::Qemu, Some(seed), _) => (seed.instance_id(), seed.links().and_then(Result::ok)),
        // Without a seed cloud-init has nothing to do: the system stays as it was configured.
        (Kind::Qemu, None, Some(before)) => (before.instance.clone(), before.links.clone()),
        (Kind::Qemu, None, None) => (None, None),
    };
    let first = before
        .as_ref()
        .is_none_or(|system| system.instance != instance);
    let fallback = match guest.kind {
        Kind::Qemu => "localhost".to_owned(),
        Kind::Lxc => guest
            .config
            .get("hostname")
            .map_or_else(|| format!("CT{vmid}"), str::to_owned),
    };
    let hostname = seed
        .as_ref()
        .and_then(Seed::hostname)
        .or_else(|| {
            before
                .as_ref()
                .filter(|_| !first)
                .map(|system| system.hostname.clone())
        })
        .unwrap_or(fallback);
    let agent = image.agent && !guest.quirks.no_agent;
    let (node, uuid) = (guest.node.clone(), smbios_uuid(guest));
    let interfaces = live::interfaces(&cards, links.as_deref(), &mut world.guests.dhcp);
    let Some(guest) = world.guests.get_mut(vmid) else {
        return;
    };
    let kept = before.filter(|_| !first).unwrap_or_default();
    guest.system = Some(System {
        image: name,
        hostname: hostname.clone(),
        instance,
        links,
        interfaces: interfaces.clone(),
        agent,
        frozen: false,
        processes: std::collections::BTreeMap::new(),
        ..kept
    });
    if let Some(run) = &mut guest.run {
        run.inside = Inside::Up;
    }
    let boot = Boot {
        vmid,
        node,
        uuid,
        hostname,
        interfaces,
        seed,
        first,
    };
    world.guests.bell.ring(boot);
}

/// The SMBIOS UUID of a VM.
pub(crate) fn smbios_uuid(guest: &Guest) -> Option<String> {
    guest
        .config
        .get("smbios1")?
        .split(',')
        .find_map(|part| part.strip_prefix("uuid="))
        .map(str::to_owned)
}

/// The first seed in the guest's CD drives.
fn find_seed(world: &World, guest: &Guest) -> Option<Seed> {
    let drives = guest
        .config
        .current
        .iter()
        .filter(|(name, _)| options::is_disk(name));
    drives
        .map(|(_, value)| Drive::parse(value))
        .filter(Drive::is_cdrom)
        .find_map(|drive| {
            let volume = world.storages.volume(&guest.node, drive.volume()?).ok()?;
            volume
                .seed
                .clone()
                .or_else(|| Seed::from_iso(volume.data.as_ref()?))
        })
}

/// The cards of a guest, in the order of their numbers.
pub(crate) fn cards(guest: &Guest) -> Vec<Card> {
    let mut cards: Vec<Card> = guest
        .config
        .current
        .iter()
        .filter_map(|(name, value)| {
            let ("net", index) = options::indexed(name)? else {
                return None;
            };
            let (values, key) = match guest.kind {
                Kind::Qemu => (NET.parse(value), "macaddr"),
                Kind::Lxc => (CT_NET.parse(value), "hwaddr"),
            };
            Some(Card {
                index,
                mac: values
                    .get(key)
                    .map(|mac| mac.to_ascii_lowercase())
                    .unwrap_or_default(),
                bridge: values.get("bridge").cloned(),
                connected: values.get("link_down").is_none_or(|down| down != "1"),
            })
        })
        .collect();
    cards.sort_by_key(|card| card.index);
    cards
}

/// A container's network comes from its configuration, not from a seed.
fn container_links(guest: &Guest) -> Vec<super::netconfig::Link> {
    guest
        .config
        .current
        .iter()
        .filter(|(name, _)| options::is(name, "net"))
        .map(|(_, value)| {
            let values = CT_NET.parse(value);
            let address = |key: &str| {
                let (ip, prefix) = values.get(key)?.split_once('/')?;
                Some((ip.parse().ok()?, prefix.parse().ok()?))
            };
            super::netconfig::Link {
                name: values.get("name").cloned(),
                mac: values.get("hwaddr").map(|mac| mac.to_ascii_lowercase()),
                addresses: ["ip", "ip6"]
                    .iter()
                    .filter_map(|key| address(key))
                    .collect(),
                dhcp4: values.get("ip").is_some_and(|ip| ip == "dhcp"),
                dhcp6: values
                    .get("ip6")
                    .is_some_and(|ip| ip == "dhcp" || ip == "auto"),
            }
        })
        .collect()
}
