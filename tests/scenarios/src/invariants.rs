//! What must be true whenever everything has come to rest.

use std::collections::{BTreeMap, BTreeSet};

use api::infrastructure::v1beta1::ProxmoxMachine;
use api::vm::{Container, VirtualMachine};
use kube::{ResourceExt as _, api::ListParams};
use pve::{NodeName, api::storage::StorageFilter};

use crate::{Bed, Guest};

impl Bed {
    /// Everything on PVE that the controllers did not make: to be compared with later.
    pub async fn foreign(&self) -> Vec<Guest> {
        let mut all = Vec::new();
        for number in 0..self.cluster_count() {
            all.extend(self.guests_of(number).await);
        }
        all
    }

    /// Checks that nothing is lost, doubled, left behind or touched; says everything that is wrong.
    pub async fn check(&self, foreign: &[Guest]) -> Vec<String> {
        let mut wrong = Vec::new();
        let machines = self
            .api::<VirtualMachine>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items;
        let containers = self
            .api::<Container>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items;
        let mut expected: BTreeMap<String, Option<u32>> = machines
            .iter()
            .map(|machine| {
                (
                    machine.name_any(),
                    machine.status.as_ref().and_then(|s| s.vmid),
                )
            })
            .collect();
        expected.extend(containers.iter().map(|container| {
            (
                container.name_any(),
                container.status.as_ref().and_then(|status| status.vmid),
            )
        }));
        // Where Cluster API is not installed there are none.
        let nodes = self
            .api::<ProxmoxMachine>()
            .list(&ListParams::default())
            .await;
        let nodes = nodes.map_or_else(|_| Vec::new(), |list| list.items);
        expected.extend(nodes.iter().map(|node| {
            let vmid = node.spec.virtual_machine_id;
            (node.name_any(), vmid.and_then(|id| u32::try_from(id).ok()))
        }));
        let mut guests = Vec::new();
        for number in 0..self.cluster_count() {
            guests.extend(self.guests_of(number).await);
            wrong.extend(self.leftovers(number).await);
        }
        let known: BTreeSet<(u32, &str)> =
            foreign.iter().map(|g| (g.vmid, g.name.as_str())).collect();
        for before in foreign {
            match guests
                .iter()
                .find(|now| now.vmid == before.vmid && now.name == before.name)
            {
                None => wrong.push(format!(
                    "foreign guest {} ({}) is gone",
                    before.vmid, before.name
                )),
                Some(now) if now != before => {
                    wrong.push(format!(
                        "foreign guest {} was changed:\n{before:?}\n{now:?}",
                        before.vmid
                    ));
                }
                Some(_) => {}
            }
        }
        let mut seen = BTreeSet::new();
        for guest in guests
            .iter()
            .filter(|g| !known.contains(&(g.vmid, g.name.as_str())))
        {
            match expected.get(&guest.name) {
                Some(Some(vmid)) if *vmid == guest.vmid && seen.insert(guest.name.clone()) => {}
                Some(vmid) => wrong.push(format!(
                    "guest {} named {} is not the one its object knows ({vmid:?})",
                    guest.vmid, guest.name
                )),
                None => wrong.push(format!(
                    "guest {} named {} has no object",
                    guest.vmid, guest.name
                )),
            }
        }
        for node in &nodes {
            let status = node.status.clone().unwrap_or_default();
            let (name, id) = (
                node.name_any(),
                node.spec.provider_id.clone().unwrap_or_default(),
            );
            let uuid = id.trim_start_matches("proxmox://");
            match guests.iter().find(|guest| guest.name == name) {
                None => wrong.push(format!("{name} has no guest")),
                Some(guest) if !guest.running => wrong.push(format!("{name} does not run")),
                Some(guest) if !guest.key("smbios1").contains(uuid) || uuid.is_empty() => {
                    wrong.push(format!(
                        "{name} calls itself {id:?}, its guest {}",
                        guest.key("smbios1")
                    ));
                }
                Some(guest) if status.proxmox_node.as_ref() != Some(&guest.node) => {
                    wrong.push(format!(
                        "{name} says it is on {:?}, but is on {}",
                        status.proxmox_node, guest.node
                    ));
                }
                Some(_) => {}
            }
        }
        for machine in &machines {
            let status = machine.status.clone().unwrap_or_default();
            let name = machine.name_any();
            let Some(guest) = guests
                .iter()
                .find(|guest| Some(guest.vmid) == status.vmid && guest.name == name)
            else {
                if status.vmid.is_some() && machine.metadata.deletion_timestamp.is_none() {
                    wrong.push(format!(
                        "{name} says it is guest {:?}, which is not there",
                        status.vmid
                    ));
                }
                continue;
            };
            if status.node.as_ref() != Some(&guest.node) {
                wrong.push(format!(
                    "{name} says it is on {:?}, but is on {}",
                    status.node, guest.node
                ));
            }
            let on = matches!(status.power_state.as_deref(), Some("On" | "Paused"));
            if on != guest.running {
                wrong.push(format!(
                    "{name} says {:?}, but runs: {}",
                    status.power_state, guest.running
                ));
            }
        }
        wrong
    }

    /// Volumes that belong to no guest, and first-boot images that were left behind.
    async fn leftovers(&self, number: usize) -> Vec<String> {
        let root = self.root_of(number);
        let guests: BTreeSet<u32> = self
            .guests_of(number)
            .await
            .iter()
            .map(|guest| guest.vmid)
            .collect();
        let mut wrong = BTreeSet::new();
        for name in self.cluster(number).nodes() {
            let node = root.node(&NodeName::new(name.as_str()).unwrap());
            for storage in node.storages(&StorageFilter::default()).await.unwrap() {
                let volumes = node
                    .storage(storage.storage.as_ref().unwrap())
                    .content(None, None)
                    .await
                    .unwrap();
                for volume in volumes {
                    let id = volume.volid.to_string();
                    let owner = volume.vmid.map(pve::Vmid::get);
                    if owner.is_some_and(|vmid| !guests.contains(&vmid)) && !id.contains("backup/")
                    {
                        wrong.insert(format!("volume {id} belongs to no guest"));
                    }
                    if id.contains("iso/oxmox-") {
                        wrong.insert(format!("first-boot image {id} was left behind"));
                    }
                }
            }
        }
        wrong.into_iter().collect()
    }
}
