//! A guest while it runs, and the system inside it.
//!
//! PVE sees a process ([`Run`]); what happens inside is the [`System`]. Between the two lies the
//! boot: some time after the process starts, the system on the boot disk comes up, reads its seed,
//! configures its network and starts its agent. A guest without a bootable disk runs and does nothing,
//! which is why it neither shuts down nor lets go of hot-plugged devices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::netconfig::Link;
use super::seed::Seed;

/// The process of a running guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) pid: u32,
    /// When it was started.
    pub(crate) since: u64,
    pub(crate) state: Machine,
    /// The boot this process (or its last reset) is in.
    pub(crate) boot: u64,
    pub(crate) inside: Inside,
    /// Drives the guest still sees although their removal was asked for are in the configuration;
    /// this is the set of devices QEMU has plugged.
    #[serde(default)]
    pub(crate) machine: String,
}

/// What QEMU says about the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Machine {
    Running,
    Paused,
    IoError,
}

impl Machine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Machine::Running => "running",
            Machine::Paused => "paused",
            Machine::IoError => "io-error",
        }
    }
}

/// How far the system inside has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Inside {
    /// There is nothing to boot.
    Nothing,
    Booting,
    Up,
    /// Hangs: runs, but answers nobody.
    Hung,
    /// Panicked: the kernel has stopped.
    Crashed,
}

/// How tests want a guest to misbehave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Quirks {
    /// Does not react to the power button.
    pub ignore_acpi: bool,
    /// Never gets beyond booting.
    pub hang_at_boot: bool,
    /// The agent does not start.
    pub no_agent: bool,
    /// Never lets go of hot-plugged devices.
    pub keep_devices: bool,
    /// Uses so much memory that a container's cannot be lowered while it runs.
    pub keep_memory: bool,
    /// Seconds until the system is up, instead of those of the latency model.
    pub boot_seconds: Option<u64>,
}

/// The operating system of a guest, as it is on the disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct System {
    /// The image it was installed from.
    pub(crate) image: String,
    pub(crate) hostname: String,
    /// The cloud-init instance it last configured itself for.
    pub(crate) instance: Option<String>,
    /// The network configuration that was written then.
    #[serde(default)]
    pub(crate) links: Option<Vec<Link>>,
    pub(crate) interfaces: Vec<Interface>,
    /// The agent answers.
    pub(crate) agent: bool,
    /// Files written through the agent or by tests.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// Processes started through the agent.
    #[serde(default)]
    pub(crate) processes: BTreeMap<u64, Process>,
    /// Answers tests have prepared for commands, by command line.
    #[serde(default)]
    pub(crate) scripts: BTreeMap<String, Process>,
    pub(crate) frozen: bool,
}

/// A finished process inside a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Process {
    /// Its exit code.
    pub exit: i32,
    /// What it wrote to standard output.
    pub out: String,
    /// What it wrote to standard error.
    pub err: String,
}

/// A network interface as the guest sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name inside the guest.
    pub name: String,
    /// Its hardware address, lower case.
    pub mac: String,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// A guest that has come up: what it read, and what it became.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The guest.
    pub vmid: u32,
    /// The node it runs on.
    pub node: String,
    /// The SMBIOS UUID the guest sees, if it has one.
    pub uuid: Option<String>,
    /// Host name it took.
    pub hostname: String,
    /// Interfaces and their addresses.
    pub interfaces: Vec<Interface>,
    /// What cloud-init read; `None` without a seed.
    pub seed: Option<Seed>,
    /// The first boot of this instance: the time for first-boot work.
    pub first: bool,
}

/// Addresses the bridges' DHCP servers have given out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Dhcp {
    /// By hardware address.
    leases: BTreeMap<String, Ipv4Addr>,
    /// First address and prefix length by bridge; others get a network of their own.
    #[serde(default)]
    pub(crate) ranges: BTreeMap<String, (Ipv4Addr, u8)>,
}

impl Dhcp {
    /// The lease of a card on a bridge.
    pub(crate) fn lease(&mut self, bridge: &str, mac: &str) -> (Ipv4Addr, u8) {
        let next = 100_u8.saturating_add(u8::try_from(self.ranges.len()).unwrap_or(100));
        let (first, prefix) = *self
            .ranges
            .entry(bridge.to_owned())
            .or_insert((Ipv4Addr::new(10, next, 1, 1), 16));
        if let Some(lease) = self.leases.get(mac) {
            let mask = u32::MAX << (32 - u32::from(prefix.clamp(1, 32)));
            if u32::from(*lease) & mask == u32::from(first) & mask {
                return (*lease, prefix);
            }
        }
        let taken: BTreeSet<Ipv4Addr> = self.leases.values().copied().collect();
        let free = (0..65_000)
            .map(|offset| Ipv4Addr::from(u32::from(first).wrapping_add(offset)))
            .find(|address| !taken.contains(address))
            .unwrap_or(first);
        self.leases.insert(mac.to_owned(), free);
        (free, prefix)
    }

    /// Forgets the lease of a card that is gone.
    pub(crate) fn release(&mut self, mac: &str) {
        self.leases.remove(mac);
    }
}

/// One network card of a guest, from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) index: u32,
    /// Lower case.
    pub(crate) mac: String,
    pub(crate) bridge: Option<String>,
    pub(crate) connected: bool,
}

/// The interfaces a system has after applying its network configuration.
pub(crate) fn interfaces(
    cards: &[Card],
    links: Option<&[Link]>,
    dhcp: &mut Dhcp,
) -> Vec<Interface> {
    let mut all = vec![Interface {
        name: "lo".to_owned(),
        mac: "00:00:00:00:00:00".to_owned(),
        addresses: vec![
            (IpAddr::V4(Ipv4Addr::LOCALHOST), 8),
            (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
        ],
    }];
    for card in cards {
        let default_name = format!("eth{}", card.index);
        let wanted = links.map(|links| {
            links.iter().find(|link| {
                link.mac.as_deref() == Some(&card.mac)
                    || (link.mac.is_none() && link.name.as_deref() == Some(&default_name))
            })
        });
        let (name, addresses, dhcp4, up) = match wanted {
            // Without any configuration cloud-init brings the first card up with DHCP.
            None => (default_name, Vec::new(), card.index == 0, card.index == 0),
            Some(None) => (default_name, Vec::new(), false, false),
            Some(Some(link)) => (
                link.name.clone().unwrap_or(default_name),
                link.addresses.clone(),
                link.dhcp4,
                true,
            ),
        };
        let mut interface = Interface {
            name,
            mac: card.mac.clone(),
            addresses,
        };
        if dhcp4
            && card.connected
            && let Some(bridge) = &card.bridge
        {
            let (address, prefix) = dhcp.lease(bridge, &card.mac);
            interface.addresses.insert(0, (IpAddr::V4(address), prefix));
        }
        if up && let Some(local) = link_local(&card.mac) {
            interface.addresses.push((IpAddr::V6(local), 64));
        }
        all.push(interface);
    }
    // Bonds, bridges and VLANs have no card of their own.
    for link in links.unwrap_or_default() {
        let known = all.iter().any(|i| Some(&i.name) == link.name.as_ref());
        if let Some(name) = &link.name
            && !known
            && link.mac.is_none()
        {
            all.push(Interface {
                name: name.clone(),
                mac: cards
                    .first()
                    .map(|card| card.mac.clone())
                    .unwrap_or_default(),
                addresses: link.addresses.clone(),
            });
        }
    }
    all
}

/// The link-local IPv6 address derived from a hardware address.
fn link_local(mac: &str) -> Option<Ipv6Addr> {
    let bytes: Vec<u8> = mac
        .split(':')
        .map(|part| u8::from_str_radix(part, 16))
        .collect::<Result<_, _>>()
        .ok()?;
    let mac: [u8; 6] = bytes.try_into().ok()?;
    let pair = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    Some(Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        pair(mac[0] ^ 2, mac[1]),
        pair(mac[2], 0xff),
        pair(0xfe, mac[3]),
        pair(mac[4], mac[5]),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::netconfig;

    fn card(index: u32) -> Card {
        Card {
            index,
            mac: format!("bc:24:11:00:00:0{index}"),
            bridge: Some("vmbr0".to_owned()),
            connected: true,
        }
    }

    #[test]
    fn static_addresses_follow_the_hardware_address() {
        let links = netconfig::parse(
            "version: 2\nethernets:\n  a:\n    match: {macaddress: 'bc:24:11:00:00:01'}\n    set-name: ens19\n    addresses: [10.1.0.7/24]\n",
        )
        .unwrap();
        let found = interfaces(&[card(0), card(1)], Some(&links), &mut Dhcp::default());
        assert_eq!(found[0].name, "lo");
        assert_eq!(found[1].addresses, []);
        assert_eq!(found[2].name, "ens19");
        assert_eq!(found[2].addresses[0], ("10.1.0.7".parse().unwrap(), 24));
        assert_eq!(
            found[2].addresses[1],
            ("fe80::be24:11ff:fe00:1".parse().unwrap(), 64)
        );
    }

    #[test]
    fn without_configuration_the_first_card_asks_for_a_lease_and_keeps_it() {
        let mut dhcp = Dhcp::default();
        let first = interfaces(&[card(0), card(1)], None, &mut dhcp);
        let again = interfaces(&[card(0)], None, &mut dhcp);
        assert_eq!(first[1].addresses[0], again[1].addresses[0]);
        assert_eq!(first[2].addresses, []);
        let other = interfaces(
            &[Card {
                mac: "bc:24:11:ff:ff:ff".into(),
                ..card(0)
            }],
            None,
            &mut dhcp,
        );
        assert_ne!(other[1].addresses[0], first[1].addresses[0]);
    }
}
