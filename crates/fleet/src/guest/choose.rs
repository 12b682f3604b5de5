//! Choosing who a guest will be, before anything is done.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use pve::{GuestConfig, GuestKind, api::guest::ConfigView};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Flow, Pass, failed,
    seed::seed_in,
    source::{Original, default_cpus, default_memory, root_disk, storage_of},
};
use crate::{
    Failure, NodeName, Outcome, Size, Vmid, Waiting,
    cluster::State,
    desired::{self, ROOT_NAME},
    intent::{Bus, DiskRole, DiskSlot, Mac, Source},
    mark,
    place::{self, Ask, Choice, Hold},
    prop::Prop,
    record::{Identity, NicIdentity, Origin, Stage, uuid_of},
    view::{GuestRow, View},
};

impl Pass<'_> {
    /// Chooses an identity, or finds the one that was chosen before and not stored.
    pub(super) async fn choose(&mut self, view: &View) -> Flow<Outcome> {
        if let Some(vmid) = self.intent.adopt {
            return self.take_over(view, vmid, false).await;
        }
        if let Some(outcome) = self.find_own(view).await? {
            return Ok(outcome);
        }
        let originals = self.originals(view).await?;
        if let Some(original) = originals.first() {
            let suits = desired::suits_source(self.intent, &original.config);
            suits.map_err(|invalid| failed(Failure::Invalid, invalid.to_string()))?;
        }
        if self.intent.placement.fit_numa {
            let learned = self.cluster.learn_sockets(view).await;
            learned.map_err(|error| self.trouble("reading the sockets of nodes", &error))?;
        }
        self.learn_devices().await?;
        let mut ask = self.ask(view, &originals);
        ask.file = self.file(view).await?;
        let (choice, vmid) = loop {
            let (choice, vmid) = self.reserve(view, ask.clone())?;
            if self.is_free(vmid).await? {
                break (choice, vmid);
            }
        };
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

    /// Whether a VMID is free that none of the guests to be seen has. That is taken for granted until one turned out to be taken:
    /// then there are guests that are hidden from us, and PVE is asked before anything is done for the next.
    async fn is_free(&mut self, vmid: Vmid) -> Flow<bool> {
        if self.cluster.state().taken.is_empty() {
            return Ok(true);
        }
        let free = self.cluster.client.cluster().is_free(vmid).await;
        if !matches!(free, Ok(true)) {
            self.give_up(vmid, free.is_ok());
        }
        free.map_err(|error| self.trouble("asking whether the VMID is free", &error))
    }

    /// Lets a VMID go that was chosen; it may be one that is `taken`.
    fn give_up(&mut self, vmid: Vmid, taken: bool) {
        let mut state = self.cluster.state();
        if taken {
            state.taken.insert(vmid, Instant::now());
        }
        state.untrack(&self.intent.owner, vmid);
    }

    /// Gives up a VMID that turned out to be somebody else's.
    pub(super) fn choose_again(&mut self, why: &str) -> Outcome {
        if let Some(identity) = self.record.identity.take() {
            self.give_up(identity.vmid, true);
            self.abandon_seed(&identity.node);
        }
        self.warn("VmidTaken", format!("{why}; taking another VMID"));
        self.memory(|memory| *memory = crate::cluster::Memory::default());
        self.record.stage = Stage::New;
        self.record.attempts += 1;
        Outcome::Persist
    }

    /// A guest with our mark whose record was lost.
    pub(super) async fn find_own(&mut self, view: &View) -> Flow<Option<Outcome>> {
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
            let planned = self.plan_seed(view, &identity, name)?;
            self.record.seed = planned.or_else(|| seed_in(&config, [name, identity.uuid]));
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
            content: self.content(),
            sources: originals
                .iter()
                .map(|original| original.site.clone())
                .collect(),
            linked: desired::is_linked(&self.intent.source),
            bridges: self.intent.nics.iter().map(|n| n.bridge.clone()).collect(),
            ..Ask::default()
        };
        let brought = Origin::of(&self.intent.source) != Origin::New;
        let original = first.and_then(root_disk);
        let disks = self.intent.disks.iter().filter_map(|disk| {
            let copied = brought && disk.role != DiskRole::Data;
            let original = original.as_ref().filter(|_| copied);
            let thick = disk.thin == Some(false);
            // A root disk that is copied stays where its source has it, unless it is said where it goes.
            let there = original.and_then(|root| root.storage.clone());
            let storage = disk.storage.clone().or(there.filter(|_| thick));
            let size = disk.size.max(original.and_then(|root| root.size));
            (storage.is_some() || !copied).then(|| (storage, size.unwrap_or_default(), thick))
        });
        let container = self.intent.container.iter();
        let mounts = container.flat_map(|container| &container.mounts);
        let mounts = mounts.map(|mount| (mount.storage.clone(), mount.size, false));
        let root = self.root_storage();
        for (storage, size, thick) in disks.chain(mounts) {
            match storage.as_ref().or(root.as_ref()) {
                Some(storage) => ask.disk(view, storage, size, thick),
                None => ask.anywhere.push((size, thick)),
            }
        }
        if let Some(storage) = self.intent.source.file().and_then(storage_of) {
            ask.space.entry(storage).or_default();
        }
        ask
    }

    /// What PVE calls a storage's part in holding this guest's disks.
    pub(super) fn content(&self) -> &'static str {
        match self.kind() {
            GuestKind::Qemu => "images",
            GuestKind::Lxc => "rootdir",
        }
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
                    state
                        .holds
                        .insert(vmid, self.share(view, &choice.node, &ask));
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

    fn share(&self, view: &View, node: &NodeName, ask: &Ask) -> Hold {
        let ask = ask.on(view, node).unwrap_or_else(|_| ask.clone());
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
        let share = self.share(view, &identity.node, &ask);
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
            .retain(|_, at| now - *at < Duration::from_hours(1));
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
        let mut identity = Identity {
            cluster: self.intent.cluster.clone(),
            node: node.clone(),
            vmid,
            uuid,
            nics,
            disks: BTreeMap::new(),
            mounts: BTreeMap::new(),
            brought: BTreeSet::new(),
            origin: Some(Origin::of(&self.intent.source)),
            adopted: false,
        };
        match source {
            Some(config) => {
                self.slots(&mut identity, config)?;
                self.new_mounts(&mut identity, Some(config));
            }
            // What a backup has where is known when it has been restored.
            None if matches!(self.intent.source, Source::Backup { .. }) => {}
            None => {
                self.new_slots(&mut identity, None)?;
                self.new_mounts(&mut identity, None);
            }
        }
        Ok(identity)
    }

    /// The numbers of file systems that have none yet. One that is mounted at the same place already is the same one.
    pub(super) fn new_mounts(&self, identity: &mut Identity, config: Option<&GuestConfig>) {
        let there: BTreeMap<u8, String> = config
            .into_iter()
            .flat_map(|config| config.indexed("mp"))
            .filter_map(|(index, text)| {
                let path = Prop::parse("mp0", text).get("mp")?.to_owned();
                Some((u8::try_from(index).ok()?, path))
            })
            .collect();
        let container = self.intent.container.as_ref();
        for mount in container.into_iter().flat_map(|it| &it.mounts) {
            if identity.mounts.contains_key(&mount.name) {
                continue;
            }
            let used = |index: u8| identity.mounts.values().any(|used| *used == index);
            let same = there.iter().find(|(_, path)| **path == mount.path);
            let same = same.map(|(index, _)| *index).filter(|index| !used(*index));
            // What the next start takes out is there until then.
            let waits = |index: u8| self.record.pending.contains(&format!("mp{index}"));
            let taken = |index: u8| used(index) || there.contains_key(&index) || waits(index);
            let free = || (0..=u8::MAX).find(|n| !taken(*n));
            if let Some(index) = same.or_else(free) {
                identity.mounts.insert(mount.name.clone(), index);
            }
            if same.is_some() {
                identity.brought.insert(mount.name.clone());
            }
        }
    }

    /// Gives disks the slots they have in a configuration that was there before them: the root disk is the one it boots from,
    /// the others follow in order. What it has none for gets a free one.
    pub(super) fn slots(&mut self, identity: &mut Identity, config: &GuestConfig) -> Flow<()> {
        if self.kind() == GuestKind::Lxc {
            return Ok(());
        }
        let boot = root_disk(config).map(|root| root.slot);
        let drives = config.iter().filter(|(_, it)| !it.contains("media=cdrom"));
        let mut data: Vec<DiskSlot> = drives
            .filter(|(_, drive)| !drive.contains("cloudinit"))
            .filter_map(|(key, _)| key.parse().ok())
            .filter(|slot| Some(*slot) != boot)
            .collect();
        data.sort();
        let said: Vec<DiskSlot> = self
            .intent
            .disks
            .iter()
            .filter_map(|disk| disk.slot)
            .collect();
        let mut data = data.into_iter().filter(|slot| !said.contains(slot));
        for disk in &self.intent.disks {
            let said = disk
                .slot
                .filter(|slot| config.get(&slot.to_string()).is_some());
            let there = match disk.role {
                DiskRole::Root => boot,
                DiskRole::Data => said.or_else(|| data.next().filter(|_| disk.slot.is_none())),
            };
            if let Some(slot) = there {
                identity.disks.insert(disk.name.clone(), slot);
                identity.brought.insert(disk.name.clone());
            }
        }
        let mut roots = self.intent.disks.iter();
        let declared = roots.any(|disk| disk.role == DiskRole::Root);
        if let Some(boot) = boot.filter(|_| !declared) {
            identity.disks.insert(ROOT_NAME.to_owned(), boot);
        }
        self.new_slots(identity, Some(config))
    }

    /// The disk that the guest boots from keeps its place when it is declared later, or under another name.
    fn rename_root(&self, identity: &mut Identity, config: &GuestConfig) {
        let disks = &self.intent.disks;
        let mut roots = disks.iter().filter(|disk| disk.role == DiskRole::Root);
        let new = roots.find(|disk| !identity.disks.contains_key(&disk.name));
        let (Some(new), Some(boot)) = (new, root_disk(config)) else {
            return;
        };
        let declared = |name: &str| disks.iter().any(|disk| disk.name == name);
        let mut names = identity.disks.iter();
        let former = names.find(|(name, slot)| **slot == boot.slot && !declared(name));
        let Some(former) = former.map(|(name, _)| name.clone()) else {
            return;
        };
        identity.disks.remove(&former);
        identity.disks.insert(new.name.clone(), boot.slot);
        if identity.brought.remove(&former) {
            identity.brought.insert(new.name.clone());
        }
    }

    /// Gives disks that have no slot a free one, root disks first.
    pub(super) fn new_slots(
        &mut self,
        identity: &mut Identity,
        config: Option<&GuestConfig>,
    ) -> Flow<()> {
        if let Some(config) = config {
            self.rename_root(identity, config);
        }
        let disks = self.intent.disks.iter();
        let (roots, rest): (Vec<_>, Vec<_>) = disks.partition(|disk| disk.role == DiskRole::Root);
        for disk in roots.into_iter().chain(rest) {
            if self.kind() == GuestKind::Lxc || identity.disks.contains_key(&disk.name) {
                continue;
            }
            let used = |slot: &DiskSlot| {
                identity.disks.values().any(|used| used == slot)
                    || config.is_some_and(|config| config.get(&slot.to_string()).is_some())
                    // These belong to the first-boot image and the installer.
                    || (slot.bus == Bus::Ide && matches!(slot.index, 0 | 2))
            };
            let bus = disk.bus.unwrap_or_default();
            let mut all = (0..bus.slots()).map(|index| DiskSlot { bus, index });
            let Some(slot) = disk.slot.or_else(|| all.find(|slot| !used(slot))) else {
                let text = format!(
                    "disks[{}]: the {} bus has no free slot: use another bus",
                    disk.name,
                    bus.as_str()
                );
                return Err(failed(Failure::Invalid, text));
            };
            identity.disks.insert(disk.name.clone(), slot);
        }
        Ok(())
    }
}

pub(super) fn derive_mac(seed: &str, nic: &str) -> Mac {
    let hash = Sha256::digest(format!("{seed}/{nic}"));
    Mac::local([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5]])
}
