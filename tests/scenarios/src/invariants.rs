//! What must be true whenever everything has come to rest.

mod told;

use std::collections::{BTreeMap, BTreeSet};

use api::infrastructure::v1beta1::ProxmoxMachine;
use api::vm::{
    Container, GuestKind, PowerState, VMBackup, VMClass, VMImage, VMSnapshot, VirtualMachine,
    condition,
};
use kube::{ResourceExt as _, api::ListParams};
use pve::{
    NodeName, Vmid,
    api::{guest::ConfigView, storage::StorageFilter},
};

pub(crate) use self::told::is_provisioned;

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
        let mut wrong = self.died();
        wrong.extend(untouched(foreign, &guests));
        let known: BTreeSet<(usize, u32, &str)> = foreign.iter().map(key).collect();
        let images = self.api::<VMImage>().list(&list).await.unwrap().items;
        let backups = self.api::<VMBackup>().list(&list).await.unwrap().items;
        let ours = guests.iter().filter(|g| !known.contains(&key(g)));
        let (templates, made): (Vec<&Guest>, Vec<&Guest>) =
            ours.partition(|guest| guest.template && guest.key("tags").contains("oxmox-image-"));
        wrong.extend(unwanted(&templates, &images));
        wrong.extend(owned(&made, &expected));
        let classes = self.api::<VMClass>().list(&list).await.unwrap().items;
        for machine in &machines {
            wrong.extend(told::machine(machine, &classes, &made));
            wrong.extend(self.unguarded(machine, &made).await);
        }
        for node in &nodes {
            wrong.extend(told::node(node, &made));
        }
        for container in &containers {
            wrong.extend(told::container(container, &made));
        }
        for snapshot in &snapshots {
            let listed = Self::kept_of(snapshot, &machines, &containers, &made);
            wrong.extend(told::snapshot(snapshot, listed.as_deref()));
        }
        for number in 0..self.cluster_count() {
            wrong.extend(self.leftovers(number, &guests, &machines, &backups).await);
        }
        for guest in made {
            wrong.extend(borrowed(guest));
            wrong.extend(self.stray_snapshots(guest, &snapshots).await);
        }
        wrong
    }

    /// A machine that is ready has the firewall rules that it declares, and no others.
    async fn unguarded(&self, machine: &VirtualMachine, made: &[&Guest]) -> Option<String> {
        let firewall = machine.spec.firewall.as_ref()?;
        let conditions = &machine.status.as_ref()?.conditions;
        let ready = condition(conditions, "Ready").is_some_and(|it| it.status == "True");
        let name = machine.name_any();
        let guest = made.iter().find(|guest| ready && guest.name == name)?;
        let node = NodeName::new(guest.node.as_str()).unwrap();
        let qemu = self.root_of(guest.cluster).node(&node);
        let qemu = qemu.qemu(Vmid::new(guest.vmid).unwrap());
        let has = qemu.firewall().rules().await.unwrap();
        let has: Vec<_> = has.into_iter().filter_map(|rule| rule.dport).collect();
        let wants = firewall.rules.iter().filter_map(|rule| rule.ports.clone());
        let wants: Vec<_> = wants.collect();
        (has != wants).then(|| format!("{name} wants ports {wants:?} open, but has {has:?}"))
    }

    /// Volumes that no guest has, and what was left behind of first boots, downloads and backups.
    async fn leftovers(
        &self,
        number: usize,
        guests: &[Guest],
        machines: &[VirtualMachine],
        backups: &[VMBackup],
    ) -> Vec<String> {
        let root = self.root_of(number);
        let here: Vec<&Guest> = guests.iter().filter(|g| g.cluster == number).collect();
        let mut named = BTreeMap::new();
        for guest in &here {
            named.insert(guest.vmid, self.whole_config(guest).await);
        }
        let kept = |id: &str| {
            let volumes = backups
                .iter()
                .filter_map(|it| it.status.as_ref()?.volume.as_deref());
            volumes.into_iter().any(|volume| volume == id)
        };
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
                    let of = volume.vmid.map(Vmid::get);
                    if id.contains("backup/") {
                        if !kept(&id) {
                            wrong.insert(format!("backup {id} belongs to no object"));
                        }
                    } else if of.is_some_and(|vmid| !names(named.get(&vmid), &id)) {
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

    /// Everything that a guest's configuration says: now, after its next start, and in its snapshots.
    async fn whole_config(&self, guest: &Guest) -> Vec<String> {
        let root = self.root_of(guest.cluster);
        let node = root.node(&NodeName::new(guest.node.as_str()).unwrap());
        let vmid = Vmid::new(guest.vmid).unwrap();
        let mut values: Vec<String> = guest.config.values().cloned().collect();
        let snapshots = &guest.snapshots;
        let views = snapshots.iter().map(|name| ConfigView::Snapshot(name));
        for view in views.chain([ConfigView::Current]) {
            let config = if guest.is_container() {
                node.lxc(vmid).config(view).await
            } else {
                node.qemu(vmid).config(view).await
            };
            let config = config.unwrap();
            values.extend(config.iter().map(|(_, value)| value.to_owned()));
        }
        values
    }

    /// The snapshots that the guest has which a snapshot names: none once its object is gone, and nothing to compare with where it
    /// has no guest.
    fn kept_of(
        snapshot: &VMSnapshot,
        machines: &[VirtualMachine],
        containers: &[Container],
        made: &[&Guest],
    ) -> Option<Vec<String>> {
        let named = &snapshot.spec.vm_ref;
        let vmid = match named.kind {
            GuestKind::VirtualMachine => {
                let machine = machines.iter().find(|it| it.name_any() == named.name);
                machine.map(|it| it.status.as_ref()?.vmid)
            }
            GuestKind::Container => {
                let container = containers.iter().find(|it| it.name_any() == named.name);
                container.map(|it| it.status.as_ref()?.vmid)
            }
        };
        let Some(vmid) = vmid else {
            return Some(Vec::new());
        };
        let vmid = vmid?;
        let guest = made.iter();
        let guest = guest
            .into_iter()
            .find(|g| g.vmid == vmid && g.name == named.name)?;
        Some(guest.snapshots.clone())
    }

    /// Snapshots with our mark that belong to no VMSnapshot.
    async fn stray_snapshots(&self, guest: &Guest, known: &[VMSnapshot]) -> Vec<String> {
        let list = self.listed_snapshots(guest).await;
        let owners: Vec<String> = list
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

/// Whether a configuration names a volume.
fn names(config: Option<&Vec<String>>, volume: &str) -> bool {
    let named = |value: &String| value.split(',').next() == Some(volume);
    config.is_some_and(|values| values.iter().any(named))
}

/// Templates made of images that no image says to have.
fn unwanted(templates: &[&Guest], images: &[VMImage]) -> Vec<String> {
    let had = |template: &Guest| {
        let mut all = images.iter().flat_map(|image| image.status.iter());
        all.any(|status| {
            let mut had = status.templates.iter();
            had.any(|had| had.vmid == Some(template.vmid))
        })
    };
    templates
        .iter()
        .filter(|template| !had(template))
        .map(|template| format!("template {} belongs to no image", template.vmid))
        .collect()
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

/// Whether a first-boot image is in the drive of a machine that was not told to run yet.
fn is_waited_for(volume: &str, guests: &[&Guest], machines: &[VirtualMachine]) -> bool {
    // One that is not made yet, and may never be, has it ready.
    let kept = |machine: &VirtualMachine| {
        let status = serde_json::to_string(&machine.status).unwrap_or_default();
        !is_provisioned(machine) && status.contains(volume)
    };
    if machines.iter().any(kept) {
        return true;
    }
    let holder = guests
        .iter()
        .find(|guest| guest.key("ide2").starts_with(volume));
    holder.is_some_and(|guest| {
        machines.iter().any(|machine| {
            machine.name_any() == guest.name
                && machine.spec.power_state.unwrap_or_default() != PowerState::On
        })
    })
}
