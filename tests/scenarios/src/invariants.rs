//! What must be true whenever everything has come to rest.

use std::collections::{BTreeMap, BTreeSet};

use api::infrastructure::v1beta1::ProxmoxMachine;
use api::vm::{Container, LARGER_DISKS, PowerState, VMSnapshot, VirtualMachine, condition};
use kube::{ResourceExt as _, api::ListParams};
use pve::{NodeName, Vmid, api::storage::StorageFilter};

use crate::{Bed, Guest};

impl Bed {
    /// Everything on PVE, whoever made it: to be compared with later.
    pub async fn foreign(&self) -> Vec<Guest> {
        let mut all = Vec::new();
        for number in 0..self.cluster_count() {
            all.extend(self.guests_of(number).await);
        }
        all
    }

    /// Checks that nothing is lost, doubled, left behind or touched, and that status is true; says everything that is
    /// wrong.
    pub async fn check(&self, foreign: &[Guest]) -> Vec<String> {
        let list = ListParams::default();
        let machines = self
            .api::<VirtualMachine>()
            .list(&list)
            .await
            .unwrap()
            .items;
        let containers = self.api::<Container>().list(&list).await.unwrap().items;
        let snapshots = self.api::<VMSnapshot>().list(&list).await.unwrap().items;
        let mut expected: BTreeMap<String, Option<u32>> = machines
            .iter()
            .map(|machine| {
                let vmid = machine.status.as_ref().and_then(|status| status.vmid);
                (machine.name_any(), vmid)
            })
            .collect();
        expected.extend(containers.iter().map(|container| {
            let vmid = container.status.as_ref().and_then(|status| status.vmid);
            (container.name_any(), vmid)
        }));
        // Where Cluster API is not installed there are none.
        let nodes = self.api::<ProxmoxMachine>().list(&list).await;
        let nodes = nodes.map_or_else(|_| Vec::new(), |list| list.items);
        expected.extend(nodes.iter().map(|node| {
            let vmid = node.spec.virtual_machine_id;
            (node.name_any(), vmid.and_then(|id| u32::try_from(id).ok()))
        }));
        let guests = self.foreign().await;
        let mut wrong = untouched(foreign, &guests);
        let known: BTreeSet<(usize, u32, &str)> = foreign.iter().map(key).collect();
        let made: Vec<&Guest> = guests.iter().filter(|g| !known.contains(&key(g))).collect();
        wrong.extend(owned(&made, &expected));
        for machine in &machines {
            wrong.extend(told_truly(machine, &made));
        }
        for node in &nodes {
            wrong.extend(node_told_truly(node, &made));
        }
        for container in &containers {
            let name = container.name_any();
            let vmid = container.status.as_ref().and_then(|status| status.vmid);
            let there = made.iter().any(|g| g.name == name && Some(g.vmid) == vmid);
            if vmid.is_some() && !there && container.metadata.deletion_timestamp.is_none() {
                wrong.push(format!(
                    "{name} says it is guest {vmid:?}, which is not there"
                ));
            }
        }
        for number in 0..self.cluster_count() {
            wrong.extend(self.leftovers(number, &guests, &machines).await);
        }
        for guest in made {
            wrong.extend(borrowed(guest));
            wrong.extend(self.stray_snapshots(guest, &snapshots).await);
        }
        wrong
    }

    /// Volumes that belong to no guest, and first-boot images that were left behind.
    async fn leftovers(
        &self,
        number: usize,
        guests: &[Guest],
        machines: &[VirtualMachine],
    ) -> Vec<String> {
        let root = self.root_of(number);
        let here: Vec<&Guest> = guests.iter().filter(|g| g.cluster == number).collect();
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
                    let of = |vmid: Vmid| here.iter().any(|guest| guest.vmid == vmid.get());
                    if volume.vmid.is_some_and(|vmid| !of(vmid)) && !id.contains("backup/") {
                        wrong.insert(format!("volume {id} belongs to no guest"));
                    }
                    if id.contains("iso/oxmox-") && !is_waited_for(&id, &here, machines) {
                        wrong.insert(format!("first-boot image {id} was left behind"));
                    }
                    if id.contains("import/oxmox-") {
                        wrong.insert(format!("download {id} was left behind"));
                    }
                }
            }
        }
        wrong.into_iter().collect()
    }

    /// Snapshots with our mark that belong to no VMSnapshot.
    async fn stray_snapshots(&self, guest: &Guest, known: &[VMSnapshot]) -> Vec<String> {
        let node = self
            .root_of(guest.cluster)
            .node(&NodeName::new(guest.node.as_str()).unwrap());
        let vmid = Vmid::new(guest.vmid).unwrap();
        let list = if guest.key("rootfs").is_empty() {
            node.qemu(vmid).snapshots().await
        } else {
            node.lxc(vmid).snapshots().await
        };
        let owners: Vec<String> = list
            .unwrap()
            .iter()
            .filter_map(|snapshot| {
                fleet::mark::owner_of(snapshot.description.as_deref().unwrap_or_default())
            })
            .map(|owner| owner.to_string())
            .collect();
        let uids: Vec<String> = known.iter().filter_map(kube::ResourceExt::uid).collect();
        owners
            .into_iter()
            .filter(|owner| !uids.iter().any(|uid| owner.ends_with(uid.as_str())))
            .map(|owner| {
                format!(
                    "guest {} has a snapshot of {owner}, who is gone",
                    guest.vmid
                )
            })
            .collect()
    }
}

fn key(guest: &Guest) -> (usize, u32, &str) {
    (guest.cluster, guest.vmid, guest.name.as_str())
}

fn untouched(before: &[Guest], now: &[Guest]) -> Vec<String> {
    let mut wrong = Vec::new();
    for before in before {
        let (vmid, name) = (before.vmid, &before.name);
        match now.iter().find(|now| key(now) == key(before)) {
            None => wrong.push(format!("foreign guest {vmid} ({name}) is gone")),
            Some(now) if now != before => wrong.push(format!(
                "foreign guest {vmid} was changed:\n{before:?}\n{now:?}"
            )),
            Some(_) => {}
        }
    }
    wrong
}

/// Every guest has one object, and no object has two.
fn owned(made: &[&Guest], expected: &BTreeMap<String, Option<u32>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for guest in made {
        let (vmid, name) = (guest.vmid, &guest.name);
        match expected.get(name) {
            Some(Some(known)) if *known == vmid && seen.insert(name.clone()) => {}
            Some(known) => wrong.push(format!(
                "guest {vmid} named {name} is not the one its object knows ({known:?})"
            )),
            None => wrong.push(format!("guest {vmid} named {name} has no object")),
        }
    }
    wrong
}

/// Disks of a guest that are another guest's.
fn borrowed(guest: &Guest) -> Vec<String> {
    let own = format!("-{}-", guest.vmid);
    let drives = guest.config.iter().filter(|(key, value)| {
        let volume = value.contains("vm-") || value.contains("base-") || value.contains("subvol-");
        volume && !key.starts_with("unused") && value.contains("size=")
    });
    drives
        .filter(|(_, value)| {
            // A link names its origin before itself.
            let volume = value.split(',').next().unwrap_or_default();
            let name = volume.rsplit(['/', ':']).next().unwrap_or_default();
            !name.contains(&own)
        })
        .map(|(key, value)| {
            format!(
                "{} {}: {key} is not its own: {value}",
                guest.name, guest.vmid
            )
        })
        .collect()
}

/// Whether a machine says that its guest exists.
pub(crate) fn is_provisioned(machine: &VirtualMachine) -> bool {
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    let mut provisioned = conditions.filter(|condition| condition.type_ == "Provisioned");
    provisioned.any(|condition| condition.status == "True")
}

/// What a machine says of itself is so.
fn told_truly(machine: &VirtualMachine, made: &[&Guest]) -> Vec<String> {
    let status = machine.status.clone().unwrap_or_default();
    let name = machine.name_any();
    let mut wrong = Vec::new();
    let Some(guest) = made
        .iter()
        .find(|guest| Some(guest.vmid) == status.vmid && guest.name == name)
    else {
        if is_provisioned(machine) && machine.metadata.deletion_timestamp.is_none() {
            let vmid = status.vmid;
            wrong.push(format!(
                "{name} says it is guest {vmid:?}, which is not there"
            ));
        }
        return wrong;
    };
    if status.node.as_ref() != Some(&guest.node) {
        let says = status.node;
        wrong.push(format!(
            "{name} says it is on {says:?}, but is on {}",
            guest.node
        ));
    }
    let on = matches!(status.power_state.as_deref(), Some("On" | "Paused"));
    if on != guest.running {
        let says = status.power_state;
        wrong.push(format!("{name} says {says:?}, but runs: {}", guest.running));
    }
    let ready = condition(&status.conditions, "Ready").is_some_and(|c| c.status == "True");
    if !ready {
        return wrong;
    }
    let wants_on = machine.spec.power_state == PowerState::On;
    if wants_on != guest.running {
        wrong.push(format!(
            "{name} is Ready, wants to run: {wants_on}, but runs: {}",
            guest.running
        ));
    }
    if !machine.spec.tags.is_empty() && guest.key("tags") != machine.spec.tags.join(";") {
        let (want, has) = (&machine.spec.tags, guest.key("tags"));
        wrong.push(format!(
            "{name} is Ready and wants tags {want:?}, but has {has:?}"
        ));
    }
    if let Some(disk) = machine.spec.disks.first() {
        let wanted = disk.size.as_gib();
        // A source that grew before it was copied makes a larger copy, which the machine must say.
        let larger_is_well = condition(&status.conditions, LARGER_DISKS).is_some();
        let fits = |size: u64| size == wanted || (larger_is_well && size > wanted);
        if !guest.config.values().filter_map(|v| gibibytes(v)).any(fits) {
            wrong.push(format!(
                "{name} is Ready and wants a disk of {wanted} GiB: {:?}",
                guest.config
            ));
        }
    }
    wrong
}

/// The size of a disk, from its entry in a guest's configuration.
fn gibibytes(entry: &str) -> Option<u64> {
    let size = entry.split(',').find_map(|part| part.strip_prefix("size="));
    size?.strip_suffix('G')?.parse().ok()
}

/// What a machine of a Kubernetes cluster says of itself is so.
fn node_told_truly(node: &ProxmoxMachine, made: &[&Guest]) -> Option<String> {
    let status = node.status.clone().unwrap_or_default();
    let name = node.name_any();
    let id = node.spec.provider_id.clone().unwrap_or_default();
    let uuid = id.trim_start_matches("proxmox://");
    let Some(guest) = made.iter().find(|guest| guest.name == name) else {
        return Some(format!("{name} has no guest"));
    };
    if !guest.running {
        return Some(format!("{name} does not run"));
    }
    let own = guest.key("smbios1");
    if !own.contains(uuid) || uuid.is_empty() {
        return Some(format!("{name} calls itself {id:?}, its guest {own}"));
    }
    let says = status.proxmox_node;
    (says.as_ref() != Some(&guest.node))
        .then(|| format!("{name} says it is on {says:?}, but is on {}", guest.node))
}

/// Whether a first-boot image is in the drive of a machine that was not told to run yet.
fn is_waited_for(volume: &str, guests: &[&Guest], machines: &[VirtualMachine]) -> bool {
    let holder = guests
        .iter()
        .find(|guest| guest.key("ide2").starts_with(volume));
    holder.is_some_and(|guest| {
        machines.iter().any(|machine| {
            machine.name_any() == guest.name && machine.spec.power_state != PowerState::On
        })
    })
}
