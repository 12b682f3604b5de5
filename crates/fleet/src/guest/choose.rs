//! Choosing who a guest will be, before anything is done.

use std::{collections::BTreeMap, time::Duration};

use pve::{GuestConfig, GuestKind, api::guest::ConfigView};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Flow, Pass,
    adopt::uuid_of,
    failed,
    source::{Original, default_cpus, default_memory, root_disk},
};
use crate::{
    Failure, NodeName, Outcome, Size, Vmid, Waiting,
    cluster::State,
    intent::{Bus, DiskRole, DiskSlot, Mac, Source},
    mark,
    place::{self, Ask, Choice, Hold},
    prop::Prop,
    record::{Identity, NicIdentity, Stage},
    view::{GuestRow, View},
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
        if self.intent.placement.fit_numa {
            let learned = self.cluster.learn_sockets(view).await;
            learned.map_err(|error| self.trouble("reading the sockets of nodes", &error))?;
        }
        self.learn_devices().await?;
        let ask = self.ask(view, &originals);
        let (choice, vmid) = self.reserve(view, ask)?;
        let identity = self.draft(view, vmid, &choice, &originals);
        let identity = identity.inspect_err(|_| {
            self.cluster.state().holds.remove(&vmid);
        })?;
        let why = format!("{}: {}", choice.node, choice.why);
        self.memory(|memory| memory.why = Some(why));
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
        let mut ask = Ask {
            cpus,
            memory,
            sources: originals
                .iter()
                .map(|original| original.site.clone())
                .collect(),
            bridges: self.intent.nics.iter().map(|n| n.bridge.clone()).collect(),
            ..Ask::default()
        };
        for disk in &self.intent.disks {
            if let Some(storage) = &disk.storage {
                let thick = disk.thin == Some(false);
                ask.disk(view, storage, disk.size.unwrap_or_default(), thick);
            }
        }
        ask
    }

    /// Chooses a node and a VMID and holds both, in one breath: of two guests that ask together, the second sees what the
    /// first was promised.
    fn reserve(&mut self, view: &View, mut ask: Ask) -> Flow<(Choice, Vmid)> {
        let wishes = self.cluster.wishes(&self.intent.placement);
        let owner = &self.intent.owner;
        let reserved = {
            let mut state = self.cluster.state();
            // A choice that was made and not stored must not stand in its own way.
            let before = state.guests.get(owner);
            if let Some(vmid) = before.and_then(|memory| memory.vmid.filter(|_| memory.fresh)) {
                state.holds.remove(&vmid);
            }
            ask.devices = self.devices(&state, view);
            let placed = place::place(view, &state.holds, &state.sockets, &wishes, &ask);
            placed.map(|choice| {
                let vmid = self.free_vmid(&mut state, view);
                if let Some(vmid) = vmid {
                    state.track(owner, vmid);
                    state.holds.insert(vmid, self.share(&choice.node, ask));
                    let memory = state.guests.entry(owner.clone()).or_default();
                    memory.fresh = true;
                    memory.devices = self.intent.hardware.whole_pci();
                }
                (choice, vmid)
            })
        };
        let (choice, vmid) = reserved.map_err(|none| {
            let message = none.to_string();
            if self.memory(|memory| memory.why.replace(message.clone())) != Some(message.clone()) {
                self.warn("NoNode", message.clone());
            }
            self.wait(Waiting::Capacity, message, Duration::from_secs(15))
        })?;
        let vmid = vmid.ok_or_else(|| {
            let (first, last) = self.intent.vmids.bounds();
            let message = format!("no VMID is free from {first} to {last}");
            self.wait(Waiting::Vmid, message, Duration::from_mins(1))
        })?;
        Ok((choice, vmid))
    }

    fn share(&self, node: &NodeName, ask: Ask) -> Hold {
        Hold {
            node: Some(node.clone()),
            cpus: ask.cpus,
            memory: ask.memory,
            space: ask.space,
            tags: self.intent.options.tags.clone().unwrap_or_default(),
            moving: None,
        }
    }

    /// Holds the share of a guest that was placed before this process began, until it is to be seen.
    pub(super) fn hold_again(&self, view: &View, identity: &Identity) {
        if identity.adopted || self.record.stage >= Stage::Started {
            return;
        }
        let row = view.guests.get(&identity.vmid);
        let mut ask = self.ask(view, &[]);
        ask.memory = ask.memory.max(row.map_or(Size::ZERO, |row| row.memory));
        ask.cpus = ask.cpus.max(row.map_or(0, GuestRow::processors));
        let share = self.share(&identity.node, ask);
        let mut state = self.cluster.state();
        if !share.is_over(row, Instant::now()) {
            state.holds.entry(identity.vmid).or_insert(share);
        }
    }

    fn free_vmid(&self, state: &mut State, view: &View) -> Option<Vmid> {
        let (first, last) = self.intent.vmids.bounds();
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
    }

    /// The identity that goes with a choice, and the first-boot image that goes with it.
    fn draft(
        &mut self,
        view: &View,
        vmid: Vmid,
        choice: &Choice,
        originals: &[Original],
    ) -> Flow<Identity> {
        let original = choice
            .source
            .as_ref()
            .and_then(|site| originals.iter().find(|original| original.site == *site));
        let identity = self.identity(vmid, &choice.node, original.map(|o| &*o.config))?;
        self.record.seed = self.plan_seed(view, &identity, identity.uuid)?;
        Ok(identity)
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
        let mounts = self.new_mounts(&BTreeMap::new(), source);
        Ok(Identity {
            cluster: self.intent.cluster.clone(),
            node: node.clone(),
            vmid,
            uuid,
            nics,
            disks,
            mounts,
            adopted: false,
        })
    }

    /// The numbers of file systems that have none yet. One that is mounted at the same place already is the same one.
    pub(super) fn new_mounts(
        &self,
        known: &BTreeMap<String, u8>,
        config: Option<&GuestConfig>,
    ) -> BTreeMap<String, u8> {
        let there: BTreeMap<u8, String> = config
            .into_iter()
            .flat_map(|config| config.indexed("mp"))
            .filter_map(|(index, text)| {
                let path = Prop::parse("mp0", text).get("mp")?.to_owned();
                Some((u8::try_from(index).ok()?, path))
            })
            .collect();
        let mut all = known.clone();
        let container = self.intent.container.as_ref();
        for mount in container.into_iter().flat_map(|it| &it.mounts) {
            if all.contains_key(&mount.name) {
                continue;
            }
            let used = |index: u8| all.values().any(|used| *used == index);
            let same = there.iter().find(|(_, path)| **path == mount.path);
            let same = same.map(|(index, _)| *index).filter(|index| !used(*index));
            let free = || (0..=u8::MAX).find(|n| !used(*n) && !there.contains_key(n));
            if let Some(index) = same.or_else(free) {
                all.insert(mount.name.clone(), index);
            }
        }
        all
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

/// Whether the source brings the guest's first configuration along.
pub(super) fn is_copy(source: &Source) -> bool {
    matches!(source, Source::Template { .. } | Source::Backup { .. })
}
