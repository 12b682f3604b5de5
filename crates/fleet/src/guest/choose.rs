//! Choosing who a guest will be, before anything is done.

use std::{collections::BTreeMap, time::Duration};

use pve::{GuestConfig, GuestKind, api::guest::ConfigView};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Flow, Pass, failed,
    source::{Original, default_cpus, default_memory, root_disk},
};
use crate::{
    Failure, NodeName, Outcome, Size, StorageId, Vmid, Waiting,
    intent::{Bus, DiskRole, DiskSlot, Mac, Source},
    mark,
    place::{self, Ask, Choice, Hold},
    prop::Prop,
    record::{Identity, NicIdentity, Stage},
    view::View,
};

/// The name an undeclared root disk goes by.
const ROOT: &str = "root";

impl Pass<'_> {
    /// Chooses an identity, or finds the one that was chosen before and not stored.
    pub(super) async fn choose(&mut self, view: &View) -> Flow<Outcome> {
        if let Some(vmid) = self.intent.adopt {
            return self.take_over(view, vmid).await;
        }
        if let Some(outcome) = self.find_own(view).await? {
            return Ok(outcome);
        }
        let originals = self.originals(view).await?;
        // A choice that was made and not stored must not stand in its own way.
        let before = self.memory(|memory| memory.vmid.filter(|_| memory.fresh));
        if let Some(vmid) = before {
            self.cluster.state().holds.remove(&vmid);
        }
        if self.intent.placement.fit_numa {
            self.learn_sockets(view).await?;
        }
        self.learn_devices().await?;
        let ask = self.ask(view, &originals);
        let choice = self.place(view, &ask)?;
        let vmid = self.free_vmid(view)?;
        let original = choice
            .source
            .as_ref()
            .and_then(|site| originals.iter().find(|original| original.site == *site));
        let identity = self.identity(vmid, &choice.node, original.map(|o| &*o.config))?;
        self.record.seed = self.plan_seed(view, &identity, identity.uuid)?;
        let hold = Hold {
            node: Some(choice.node.clone()),
            cpus: ask.cpus,
            memory: ask.memory,
            space: ask.space.clone(),
            tags: self.intent.options.tags.clone().unwrap_or_default(),
        };
        self.cluster.track(&self.intent.owner, vmid);
        self.cluster.state().holds.insert(vmid, hold);
        self.memory(|memory| {
            memory.fresh = true;
            memory.devices = self.intent.hardware.whole_pci();
            memory.why = Some(format!("{}: {}", choice.node, choice.why));
        });
        self.event(
            "Placed",
            format!("VMID {vmid} on {}: {}", choice.node, choice.why),
        );
        self.record.identity = Some(identity);
        self.record.stage = Stage::New;
        Ok(Outcome::Persist)
    }

    /// Gives up a VMID that turned out to be somebody else's.
    pub(super) fn choose_again(&mut self, why: &str) -> Outcome {
        if let Some(identity) = self.record.identity.take() {
            let mut state = self.cluster.state();
            state.taken.insert(identity.vmid, Instant::now());
            state.owners.remove(&identity.vmid);
            state.holds.remove(&identity.vmid);
            drop(state);
            self.abandon_seed(&identity.node);
        }
        self.warn("VmidTaken", format!("{why}; taking another VMID"));
        self.memory(|memory| *memory = crate::cluster::Memory::default());
        self.record.stage = Stage::New;
        self.record.attempts += 1;
        Outcome::Persist
    }

    /// A guest with our mark whose record was lost.
    async fn find_own(&mut self, view: &View) -> Flow<Option<Outcome>> {
        let same: Vec<(Vmid, NodeName)> = view
            .guests
            .iter()
            .filter(|(vmid, row)| {
                row.name == self.intent.name
                    && !row.template
                    && row.kind == self.kind()
                    && !self.cluster.state().owners.contains_key(vmid)
            })
            .map(|(vmid, row)| (*vmid, row.node.clone()))
            .take(8)
            .collect();
        for (vmid, node) in same {
            let config = match self.handle(&node, vmid).config(ConfigView::Next).await {
                Ok(config) => config,
                // One that cannot be read may be ours; making another would be a second one.
                Err(error) if error.is_unknown() && !matches!(error, pve::Error::Denied { .. }) => {
                    return Err(self.node_trouble(
                        &node,
                        "reading a guest of the same name",
                        &error,
                    ));
                }
                Err(_) => continue,
            };
            let owner = config.description().and_then(mark::owner_of);
            if owner.as_ref() != Some(&self.intent.owner) {
                continue;
            }
            let mut identity = self.identity(vmid, &node, Some(&config))?;
            // The image was named after the UUID that was chosen, whether or not it was written by then.
            let name = identity.uuid;
            identity.uuid = uuid_of(&config).unwrap_or(identity.uuid);
            self.event("Found", format!("guest {vmid} on {node} is ours already"));
            self.cluster.track(&self.intent.owner, vmid);
            self.record.seed = self.plan_seed(view, &identity, name)?;
            self.record.identity = Some(identity);
            self.record.stage = Stage::Making;
            return Ok(Some(Outcome::Persist));
        }
        Ok(None)
    }

    /// Takes over an existing guest: reads it, changes nothing.
    pub(super) async fn take_over(&mut self, view: &View, vmid: Vmid) -> Flow<Outcome> {
        let Some(row) = view.guests.get(&vmid) else {
            let message = format!("guest {vmid} to take over is not there");
            return Err(self.wait(Waiting::Source, message, Duration::from_secs(15)));
        };
        if row.template {
            return Err(failed(
                Failure::Invalid,
                format!("guest {vmid} is a template and cannot be taken over"),
            ));
        }
        if row.kind != self.kind() {
            return Err(failed(
                Failure::Invalid,
                format!("guest {vmid} is of the other kind ({})", row.kind),
            ));
        }
        let node = row.node.clone();
        let config = match self.handle(&node, vmid).config(ConfigView::Next).await {
            Ok(config) => config,
            Err(error) => {
                return Err(self.node_trouble(&node, "reading the guest to take over", &error));
            }
        };
        let meant = match &self.intent.proof {
            None => Ok(()),
            Some(proof) => match proof.uuid {
                Some(uuid) if uuid_of(&config) != Some(uuid) => Err(format!("UUID {uuid}")),
                None if row.name != self.intent.name => Err(format!("name {:?}", self.intent.name)),
                _ => Ok(()),
            },
        };
        if let Err(what) = meant {
            let text = format!("guest {vmid} is not the one that is meant: it has not {what}");
            return Err(failed(Failure::Foreign, text));
        }
        let description = config.description().unwrap_or_default();
        match mark::owner_of(description) {
            Some(owner) if owner == self.intent.owner || self.is_former_self(&owner) => {}
            Some(owner) => {
                let text = format!(
                    "guest {vmid} belongs to '{owner}': remove that owner first, with the policy Orphan"
                );
                return Err(failed(Failure::Foreign, text));
            }
            None if mark::is_marked(description) => {
                let text = format!(
                    "guest {vmid} carries marks of several owners: remove them from its notes"
                );
                return Err(failed(Failure::Foreign, text));
            }
            None => {}
        }
        let identity = adopted(self, vmid, node.clone(), &config);
        self.event(
            "Adopted",
            format!("guest {vmid} on {node} is taken over as it is"),
        );
        self.cluster.track(&self.intent.owner, vmid);
        self.record.identity = Some(identity);
        self.record.stage = Stage::Settled;
        self.record.restarts = self.intent.restarts;
        Ok(Outcome::Persist)
    }

    async fn learn_sockets(&mut self, view: &View) -> Flow<()> {
        for (name, row) in &view.nodes {
            if !row.online || self.cluster.state().sockets.contains_key(name) {
                continue;
            }
            match self.cluster.client.node(name).status().await {
                Ok(status) => {
                    let sockets = status.cpuinfo.sockets.unwrap_or(1);
                    self.cluster.state().sockets.insert(name.clone(), sockets);
                }
                Err(error) => {
                    return Err(self.node_trouble(name, "reading the node's sockets", &error));
                }
            }
        }
        Ok(())
    }

    fn ask(&self, view: &View, originals: &[Original]) -> Ask {
        let hardware = &self.intent.hardware;
        let first = originals.first().map(|original| &*original.config);
        let cpus = hardware.cpu.cores.map_or_else(
            || first.map_or(1, |config| default_cpus(config, self.kind())),
            |cores| cores * hardware.cpu.sockets.unwrap_or(1),
        );
        let memory = hardware
            .memory
            .size
            .unwrap_or_else(|| first.map_or(Size::mib(512), default_memory));
        let mut space: BTreeMap<StorageId, Size> = BTreeMap::new();
        for disk in &self.intent.disks {
            let Some(storage) = &disk.storage else {
                continue;
            };
            let thick_only = view.storages.iter().any(|((id, _), row)| {
                id == storage && matches!(row.kind.as_str(), "lvm" | "iscsi")
            });
            let thick = disk.thin == Some(false) || thick_only;
            let need = if thick {
                disk.size.unwrap_or_default()
            } else {
                Size::ZERO
            };
            let entry = space.entry(storage.clone()).or_default();
            *entry = *entry + need;
        }
        Ask {
            cpus,
            memory,
            space,
            sources: originals
                .iter()
                .map(|original| original.site.clone())
                .collect(),
            bridges: self.intent.nics.iter().map(|n| n.bridge.clone()).collect(),
            devices: self.devices(view),
            ignore: None,
        }
    }

    pub(super) fn place(&mut self, view: &View, ask: &Ask) -> Flow<Choice> {
        let mut wishes = self.intent.placement.clone();
        if wishes.nodes.is_empty() {
            wishes.nodes.clone_from(&self.cluster.options.nodes);
        }
        let placed = {
            let state = self.cluster.state();
            place::place(view, &state.holds, &state.sockets, &wishes, ask)
        };
        placed.map_err(|none| {
            let message = none.to_string();
            if self.memory(|memory| memory.why.replace(message.clone())) != Some(message.clone()) {
                self.warn("NoNode", message.clone());
            }
            self.wait(Waiting::Capacity, message, Duration::from_secs(15))
        })
    }

    fn free_vmid(&mut self, view: &View) -> Flow<Vmid> {
        let (first, last) = self.intent.vmids.bounds();
        let free = {
            let mut state = self.cluster.state();
            let now = Instant::now();
            state
                .taken
                .retain(|_, at| now - *at < Duration::from_mins(10));
            // A caller that could not store its choice gets the same one again.
            let own = state
                .guests
                .get(&self.intent.owner)
                .and_then(|memory| memory.vmid.filter(|_| memory.fresh));
            let usable = |vmid: &Vmid| {
                !view.guests.contains_key(vmid)
                    && !state.taken.contains_key(vmid)
                    && state
                        .owners
                        .get(vmid)
                        .is_none_or(|owner| owner == &self.intent.owner)
            };
            own.filter(|vmid| usable(vmid) && self.intent.vmids.contains(*vmid))
                .or_else(|| {
                    (first..=last)
                        .filter_map(|n| Vmid::new(n).ok())
                        .find(usable)
                })
        };
        free.ok_or_else(|| {
            let message = format!("no VMID is free from {first} to {last}");
            self.wait(Waiting::Vmid, message, Duration::from_mins(1))
        })
    }

    /// UUID and addresses follow from the owner, who is unique for ever: nothing is left to chance,
    /// and an identity that was not stored is chosen the same way again.
    fn identity(
        &mut self,
        vmid: Vmid,
        node: &NodeName,
        source: Option<&GuestConfig>,
    ) -> Flow<Identity> {
        let owner = &self.intent.owner;
        let seed = format!("{}/{owner}/{}", self.intent.cluster, self.record.attempts);
        let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, seed.as_bytes());
        let mut nics = BTreeMap::new();
        for (index, nic) in self.intent.nics.iter().enumerate() {
            let index = u8::try_from(index).unwrap_or(u8::MAX);
            let mac = nic.mac.unwrap_or_else(|| derive_mac(&seed, &nic.name));
            nics.insert(nic.name.clone(), NicIdentity { index, mac });
        }
        let disks = self.slots(source)?;
        Ok(Identity {
            cluster: self.intent.cluster.clone(),
            node: node.clone(),
            vmid,
            uuid,
            nics,
            disks,
            adopted: false,
        })
    }

    /// Gives every disk its slot, and keeps those that have one.
    fn slots(&mut self, source: Option<&GuestConfig>) -> Flow<BTreeMap<String, DiskSlot>> {
        let mut used: Vec<DiskSlot> = source
            .into_iter()
            .flat_map(|config| {
                config
                    .iter()
                    .filter_map(|(key, _)| key.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect();
        // These belong to the first-boot image and the installer.
        used.extend([
            DiskSlot {
                bus: Bus::Ide,
                index: 2,
            },
            DiskSlot {
                bus: Bus::Ide,
                index: 0,
            },
        ]);
        let mut slots = BTreeMap::new();
        if self.kind() == GuestKind::Lxc {
            return Ok(slots);
        }
        let boot = source.and_then(root_disk).map(|root| root.slot);
        let roots = self
            .intent
            .disks
            .iter()
            .filter(|disk| disk.role == DiskRole::Root);
        let rest = self
            .intent
            .disks
            .iter()
            .filter(|disk| disk.role == DiskRole::Data);
        for disk in roots.chain(rest) {
            let from_source = boot.filter(|_| disk.role == DiskRole::Root);
            let free = |used: &[DiskSlot]| {
                (0..disk.bus.slots())
                    .map(|index| DiskSlot {
                        bus: disk.bus,
                        index,
                    })
                    .find(|slot| !used.contains(slot))
            };
            let Some(slot) = from_source.or(disk.slot).or_else(|| free(&used)) else {
                let text = format!(
                    "disks[{}]: the {} bus has no free slot: use another bus",
                    disk.name,
                    disk.bus.as_str()
                );
                return Err(failed(Failure::Invalid, text));
            };
            used.push(slot);
            slots.insert(disk.name.clone(), slot);
        }
        let declared = self
            .intent
            .disks
            .iter()
            .any(|disk| disk.role == DiskRole::Root);
        if let Some(boot) = boot.filter(|_| !declared) {
            slots.insert(ROOT.to_owned(), boot);
        }
        Ok(slots)
    }
}

pub(super) fn derive_mac(seed: &str, nic: &str) -> Mac {
    let hash = Sha256::digest(format!("{seed}/{nic}"));
    Mac::local([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5]])
}

fn uuid_of(config: &GuestConfig) -> Option<Uuid> {
    let text = config.get("smbios1")?;
    Prop::parse("smbios1", text).get("uuid")?.parse().ok()
}

/// The identity of a guest that is taken over: what it has.
fn adopted(pass: &Pass<'_>, vmid: Vmid, node: NodeName, config: &GuestConfig) -> Identity {
    let mut nics = BTreeMap::new();
    let mut there = config.indexed("net").into_iter();
    for nic in &pass.intent.nics {
        let Some((index, text)) = there.next() else {
            break;
        };
        let mac = Prop::parse("net0", text)
            .items()
            .find_map(|(_, value)| value.parse::<Mac>().ok());
        if let (Ok(index), Some(mac)) = (u8::try_from(index), mac) {
            nics.insert(nic.name.clone(), NicIdentity { index, mac });
        }
    }
    let mut disks = BTreeMap::new();
    let root = root_disk(config).map(|root| root.slot);
    let mut data: Vec<DiskSlot> = config
        .iter()
        .filter(|(_, value)| !value.contains("media=cdrom"))
        .filter_map(|(key, _)| key.parse().ok())
        .filter(|slot| Some(*slot) != root)
        .collect();
    data.sort();
    let mut data = data.into_iter();
    for disk in &pass.intent.disks {
        let slot = disk.slot.or_else(|| {
            if disk.role == DiskRole::Root {
                root
            } else {
                data.next()
            }
        });
        if let Some(slot) = slot {
            disks.insert(disk.name.clone(), slot);
        }
    }
    Identity {
        cluster: pass.intent.cluster.clone(),
        node,
        vmid,
        uuid: uuid_of(config).unwrap_or_default(),
        nics,
        disks,
        adopted: true,
    }
}

/// Whether the source brings the guest's first configuration along.
pub(super) fn is_copy(source: &Source) -> bool {
    matches!(source, Source::Template { .. } | Source::Backup { .. })
}
