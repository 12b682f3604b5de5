//! Devices of nodes that a guest is given by the name of their mapping.
//!
//! A mapping says which devices of which nodes go by one name, so a guest that names it can only live there. A PCI device
//! belongs to one running guest at a time. Whom PVE has given it to is in the configurations of guests alone; those of ours are
//! known, and counted. What somebody else's guest has is found out by PVE when the guest is started.

use std::{collections::BTreeMap, time::Duration};

use pve::{GuestConfig, api::hardware::DeviceMapping};
use tokio::time::Instant;

use super::{Flow, Pass};
use crate::{
    NodeName, PowerFact,
    cluster::{Cluster, State},
    facts::{DeviceFacts, Mappings},
    place::{Device, Stock},
    prop::Prop,
    view::View,
};

/// How long an answer is believed while guests are made, and how long an error.
const BELIEVED: Duration = Duration::from_secs(15);
const FAILED: Duration = Duration::from_secs(2);

/// Reads which nodes have which devices, unless somebody did a moment ago; who comes meanwhile waits for the same answer.
pub(crate) async fn learn(cluster: &Cluster) -> pve::Result<()> {
    let mut last = cluster.devices.lock().await;
    if let Some((at, answer)) = &*last {
        let believed = if answer.is_ok() { BELIEVED } else { FAILED };
        if at.elapsed() < believed {
            return answer.clone();
        }
    }
    let answer = read(cluster).await;
    *last = Some((Instant::now(), answer.clone()));
    answer
}

async fn read(cluster: &Cluster) -> pve::Result<()> {
    let release = cluster.state().release;
    // Before 8 there were no names for devices.
    if release.is_some_and(|release| release.major < 8) {
        return Ok(());
    }
    let pci = cluster.client.pci_mappings().await?;
    let usb = cluster.client.usb_mappings().await?;
    let mut state = cluster.state();
    state.facts.devices = DeviceFacts {
        pci: by_name(&pci),
        usb: by_name(&usb),
    };
    Ok(())
}

fn by_name(mappings: &[DeviceMapping]) -> Mappings {
    let nodes = |mapping: &DeviceMapping| {
        let mut nodes = BTreeMap::new();
        for node in mapping.nodes() {
            if let Ok(node) = NodeName::new(node) {
                *nodes.entry(node).or_default() += 1;
            }
        }
        nodes
    };
    let all = mappings.iter();
    all.map(|mapping| (mapping.id.clone(), nodes(mapping)))
        .collect()
}

/// A device by the name of its mapping: its kind, and the name.
type Named = (&'static str, String);

/// The devices that a guest of this configuration is given.
pub(crate) fn named(config: &GuestConfig) -> Vec<Named> {
    let of = |kind: &'static str, prefix: &str| {
        let all = config.indexed(prefix).into_iter();
        let name = |text: &str| Some(Prop::parse(prefix, text).get("mapping")?.to_owned());
        all.filter_map(move |(_, text)| Some((kind, name(text)?)))
            .collect::<Vec<Named>>()
    };
    [of("PCI", "hostpci"), of("USB", "usb")].concat()
}

/// Where there are devices of these names.
pub(crate) fn places(state: &State, named: &[Named]) -> Vec<Device> {
    let facts = &state.facts.devices;
    let on = |(kind, mapping): &Named| {
        let known = if *kind == "PCI" {
            &facts.pci
        } else {
            &facts.usb
        };
        let there = known.get(mapping).into_iter().flatten();
        let stock = |(node, all): (&NodeName, &usize)| {
            (
                node.clone(),
                Stock {
                    all: *all,
                    given: 0,
                },
            )
        };
        there.map(stock).collect()
    };
    let device = |name: &Named| Device {
        kind: name.0,
        mapping: name.1.clone(),
        count: 0,
        on: on(name),
    };
    named.iter().map(device).collect()
}

impl Pass<'_> {
    /// Reads which nodes have the devices that the guest is to be given.
    pub(super) async fn learn_devices(&mut self) -> Flow<()> {
        let hardware = &self.intent.hardware;
        if hardware.pci.is_empty() && hardware.usb.is_empty() {
            return Ok(());
        }
        let learned = learn(self.cluster).await;
        learned.map_err(|error| self.trouble("reading the mappings of devices", &error))
    }

    /// The devices the guest is to be given, and where there are any.
    pub(super) fn devices(&self, state: &State, view: &View) -> Vec<Device> {
        let hardware = &self.intent.hardware;
        let mut all: Vec<Device> = Vec::new();
        let pci = hardware.pci.iter().map(|device| {
            let whole = usize::from(device.mdev.is_none());
            ("PCI", &device.mapping, whole, &state.facts.devices.pci)
        });
        let usb = hardware.usb.iter();
        // The same name may stand for several of them, and which is meant is said nowhere: only where they are counts.
        let usb = usb.map(|device| ("USB", &device.mapping, 0, &state.facts.devices.usb));
        for (kind, mapping, count, known) in pci.chain(usb) {
            let same = |device: &&mut Device| device.kind == kind && device.mapping == *mapping;
            if let Some(device) = all.iter_mut().find(same) {
                device.count += count;
                continue;
            }
            let there = known.get(mapping).into_iter().flatten();
            let given = if kind == "PCI" {
                self.given(state, view, mapping)
            } else {
                BTreeMap::new()
            };
            let stock = |(node, number): (&NodeName, &usize)| {
                let given = given.get(node).copied().unwrap_or_default();
                (
                    node.clone(),
                    Stock {
                        all: *number,
                        given,
                    },
                )
            };
            all.push(Device {
                kind,
                mapping: mapping.clone(),
                count,
                on: there.map(stock).collect(),
            });
        }
        all
    }

    /// How many devices of a mapping other guests of ours have on each node.
    fn given(&self, state: &State, view: &View, mapping: &str) -> BTreeMap<NodeName, usize> {
        let mut given = BTreeMap::new();
        let others = state.guests.iter();
        for (_, memory) in others.filter(|(owner, _)| **owner != self.intent.owner) {
            let named = memory.devices.iter().filter(|name| *name == mapping);
            let count = named.count();
            let Some(vmid) = memory.vmid.filter(|_| count > 0) else {
                continue;
            };
            let held = state.holds.get(&vmid).and_then(|hold| hold.node.clone());
            let runs = view.guests.get(&vmid).filter(|row| {
                // Like memory: who is off has been given nothing.
                !matches!(row.power, PowerFact::Stopped | PowerFact::Suspended)
            });
            if let Some(node) = held.or_else(|| runs.map(|row| row.node.clone())) {
                *given.entry(node).or_default() += count;
            }
        }
        given
    }
}
