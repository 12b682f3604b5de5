//! Making a guest: one call that carries everything it can.
//!
//! A linked copy is a clone and a configuration call. A full copy on the template's own node is a single
//! creation call that imports the template's disk and brings the whole configuration with it. Everything else
//! (installer, image, empty, container, backup) is one creation call by nature.

use std::sync::Arc;

use pve::{CloneGuest as CloneParams, CreateLxc, CreateQemu, GuestConfig, GuestKind, PoolId};
use tokio::time::Instant;

use super::{
    Flow, Pass, failed,
    source::{Original, is_shared, root_disk, storage_of, volumes},
    working,
};
use crate::{
    Failure, Outcome, StorageId, Waiting,
    desired::{self, Desired, Want},
    diff::{self, Changes},
    gate::{End, Key},
    intent::{CloneMode, Disk, DiskRole, Source},
    mark,
    place::Reach,
    prop::Prop,
    record::{Identity, Origin, Stage, StepKind},
    trouble::Trouble,
    view::View,
};

/// Stands for the name of a volume that only PVE knows, behind its storage.
pub(super) const UNNAMED: &str = ":?";

impl Pass<'_> {
    /// Sends what makes the guest.
    pub(super) async fn make(&mut self, view: &View, identity: &Identity) -> Flow<Outcome> {
        if self.origin(identity) != Origin::of(&self.intent.source) {
            // Disks and options were chosen for another kind of source.
            let why = "what the guest is made from is of another kind now";
            if self.record.stage == Stage::New {
                return Ok(self.choose_again(why));
            }
            let message =
                format!("{why} than what it was begun from: delete it, or declare that again");
            return Err(self.wait(Waiting::Source, message, std::time::Duration::from_mins(1)));
        }
        let originals = self.originals(view).await?;
        let original = nearest(&originals, identity);
        if matches!(self.intent.source, Source::Template { .. }) && original.is_none() {
            let message = "the source is gone from where it was".to_owned();
            return Err(self.wait(Waiting::Source, message, std::time::Duration::from_secs(15)));
        }
        self.may_be_thin(view, identity, original)?;
        if !self.enter(view, identity, original) {
            // Without the length of the line, which would be a new message for everybody in it all the time.
            let message = "in line for node, storage or template".to_owned();
            return Ok(Outcome::Waiting {
                what: Waiting::Turn,
                message,
                retry: std::time::Duration::from_mins(1),
            });
        }
        let made = self.send(view, identity, original.cloned()).await;
        if self.record.in_flight.is_empty() {
            self.cluster.exit(&self.intent.owner, End::Other);
        }
        made
    }

    fn enter(&self, view: &View, identity: &Identity, original: Option<&Original>) -> bool {
        let node = original.map_or(&identity.node, |original| &original.site.node);
        let mut keys = vec![Key::Node(node.clone())];
        if let Some(original) = original {
            let vmid = original.site.vmid;
            let row = view.guests.get(&vmid);
            let runs = row.is_some_and(|row| row.power.is_on());
            let alone = runs || self.kind() == GuestKind::Lxc;
            keys.push(if alone {
                Key::Alone(vmid)
            } else {
                Key::Template(vmid)
            });
        }
        let storage = self.root_storage().or_else(|| {
            original
                .and_then(|original| root_disk(&original.config))
                .and_then(|root| root.storage)
        });
        keys.extend(storage.map(Key::Storage));
        self.cluster.enter(&self.intent.owner, keys)
    }

    async fn send(
        &mut self,
        view: &View,
        identity: &Identity,
        original: Option<Original>,
    ) -> Flow<Outcome> {
        self.upload_seed(identity).await?;
        if !self.record.in_flight.is_empty()
            && self.call_names_seed(view, original.as_ref(), identity)
        {
            // PVE refuses a drive whose image is not there yet.
            let step = StepKind::UploadSeed;
            return Ok(working(step, super::settle::doing(step)));
        }
        self.record.stage = Stage::Making;
        self.record.attempts += 1;
        let now = Instant::now();
        let (fresh, unheard) = self.memory(|memory| {
            memory.making_on = Some(identity.node.clone());
            memory.absent = false;
            let unheard = memory.unheard.replace(now);
            (std::mem::replace(&mut memory.fresh, false), unheard)
        });
        let called = match &original {
            Some(original) => self.copy(view, identity, original).await,
            None => self.create(view, identity).await,
        };
        let lost = called.as_ref().is_ok_and(|(_, _, sent)| {
            sent.as_ref()
                .is_err_and(|error| crate::trouble::judge(error) == Trouble::Verify)
        });
        // What was heard is about this call, and not about one before it.
        let unheard = if lost { Some(Instant::now()) } else { unheard };
        self.memory(|memory| memory.unheard = unheard);
        let (step, message, sent) = called?;
        match sent {
            Ok(upid) => {
                self.event("Creating", message.clone());
                let task = self.cluster.started(&self.intent.owner, step, &upid);
                self.record.in_flight.push(task);
                Ok(working(step, message))
            }
            // Nothing had been sent under this VMID before, so what is there is not ours. Otherwise it may be: it is looked at.
            Err(error) if error.is_vmid_taken() && fresh => {
                Err(self.choose_again(&error.to_string()))
            }
            Err(error) if error.is_vmid_taken() => Ok(Outcome::Persist),
            Err(pve::Error::FeatureMissing { text })
                if !self.record.full && self.may_be_full() && !text.contains("Full clone") =>
            {
                self.record.full = true;
                self.warn(
                    "LinkedCloneImpossible",
                    format!("{text}; making a full copy instead"),
                );
                self.memory(|memory| memory.fresh = fresh);
                Err(Outcome::Persist)
            }
            Err(error) => {
                if crate::trouble::congested(&error) {
                    self.cluster.exit(&self.intent.owner, End::Congested);
                }
                Err(self.trouble(&message, &error))
            }
        }
    }

    /// Whether the call that makes the guest has its whole configuration, and so its first-boot drive.
    fn call_names_seed(
        &self,
        view: &View,
        original: Option<&Original>,
        identity: &Identity,
    ) -> bool {
        match (original, &self.intent.source) {
            (Some(original), _) => !self.linked(view, original, reach(original, identity)),
            (None, source) => !matches!(source, Source::Backup { .. }),
        }
    }

    async fn copy(
        &mut self,
        view: &View,
        identity: &Identity,
        original: &Original,
    ) -> Flow<(StepKind, String, pve::Result<crate::Upid>)> {
        let reach = reach(original, identity);
        let linked = self.linked(view, original, reach);
        self.record.linked = Some(linked && !self.moves_away(view, reach));
        let from = original.config.name().unwrap_or("template").to_owned();
        let vmid = original.site.vmid;
        if !linked && let Some(config) = self.one_call(view, identity, original, reach)? {
            let message = format!(
                "copying {from} ({vmid}) in full to {} as {}",
                identity.node, identity.vmid
            );
            let mut create = CreateQemu::new(identity.vmid, config);
            create.pool = self.pool()?;
            let sent = self
                .cluster
                .client
                .node(&identity.node)
                .create_qemu(&create)
                .await;
            return Ok((StepKind::Create, message, sent));
        }
        let Source::Template { mode, snapshot, .. } = &self.intent.source else {
            return Err(failed(Failure::Invalid, "only a template can be copied"));
        };
        if self.is_thick() && *mode == CloneMode::Linked {
            let text = "disks: a thick root disk is a full copy, and a linked one was asked for: change one of the two";
            return Err(failed(Failure::Invalid, text));
        }
        let mut params = CloneParams::new(identity.vmid);
        params.name = Some(self.intent.name.clone());
        let text = self.intent.options.description.clone().unwrap_or_default();
        params.description = Some(mark::describe(&text, &self.intent.owner));
        params.full = Some(!linked);
        params.snapname.clone_from(snapshot);
        params.pool = self.pool()?;
        if !linked {
            // PVE copies to another node only onto storage that both see; elsewhere the disk is moved afterwards.
            let direct = |storage: &StorageId| match reach {
                Reach::Here => true,
                Reach::Shared => is_shared(view, storage),
                Reach::Move => false,
            };
            params.storage = self.root_storage().filter(direct);
            let root = self.root().filter(|_| self.kind() == GuestKind::Qemu);
            params.format = root.and_then(Disk::made_as);
        }
        if reach == Reach::Shared {
            params.target = Some(identity.node.clone());
        }
        let made_on = if reach == Reach::Move {
            &original.site.node
        } else {
            &identity.node
        };
        self.memory(|memory| memory.making_on = Some(made_on.clone()));
        let how = if linked { "linked copy" } else { "full copy" };
        let message = format!("{how} of {from} ({vmid}) on {made_on} as {}", identity.vmid);
        let node = self.cluster.client.node(&original.site.node);
        let sent = match self.kind() {
            GuestKind::Qemu => node.qemu(vmid).clone_to(&params).await,
            GuestKind::Lxc => node.lxc(vmid).clone_to(&params).await,
        };
        let model = (original.template && snapshot.is_none())
            .then(|| Arc::new(self.copied(&original.config, &text, params.storage.as_ref())));
        self.memory(|memory| memory.model = model);
        Ok((StepKind::Clone, message, sent))
    }

    /// The configuration of a copy, as far as it matters for what comes next. Only a template is sure not to have
    /// changed since it was read.
    fn copied(
        &self,
        original: &GuestConfig,
        text: &str,
        storage: Option<&StorageId>,
    ) -> GuestConfig {
        let mut model = original.clone();
        for (key, volume) in volumes(original) {
            let mut drive = Prop::parse(&key, original.get(&key).unwrap_or_default());
            let file = diff::volume_item(&key);
            let on = volume.split(':').next().unwrap_or_default();
            let on = storage.map_or(on, StorageId::as_str);
            // What PVE calls the copy of a volume is not known; the original's name is another guest's disk.
            drive.set(file, format!("{on}{UNNAMED}"));
            model.set(&key, drive.print(&key));
        }
        model.remove("template");
        model.set("name", &self.intent.name);
        model.set("description", mark::describe(text, &self.intent.owner));
        for key in ["smbios1", "vmgenid", "meta"] {
            model.remove(key);
        }
        for (number, card) in original.indexed("net") {
            let key = format!("net{number}");
            let copy = diff::copied_card(&key, card);
            model.set(key, copy);
        }
        model
    }

    /// The configuration of a full copy in one call, where that is possible.
    fn one_call(
        &mut self,
        view: &View,
        identity: &Identity,
        original: &Original,
        reach: Reach,
    ) -> Flow<Option<GuestConfig>> {
        let Source::Template { snapshot, .. } = &self.intent.source else {
            return Ok(None);
        };
        // PVE imports only from guests on the same node, and only disks that nothing writes to.
        if self.kind() != GuestKind::Qemu
            || reach != Reach::Here
            || snapshot.is_some()
            || !original.template
        {
            return Ok(None);
        }
        let Some(root) = root_disk(&original.config) else {
            return Ok(None);
        };
        if volumes(&original.config).len() != 1 {
            return Ok(None);
        }
        let Some(storage) = self.root_storage().or(root.storage.clone()) else {
            return Ok(None);
        };
        let want = self.desired(view, identity)?;
        let mut base = (*original.config).clone();
        let root_key = root.slot.to_string();
        for key in [
            "template",
            "smbios1",
            "vmgenid",
            "meta",
            "name",
            "description",
            "parent",
            "lock",
            "digest",
            "protection",
        ] {
            base.remove(key);
        }
        // The order of starting takes a privilege on the whole cluster, which is nobody's who has guests only.
        let is_held_back = |key: &str, it: &str| key == "startup" || desired::is_root_only(key, it);
        let for_root = base.iter().any(|(key, it)| is_held_back(key, it));
        if for_root && !self.cluster.options.root {
            // PVE copies what it does not let us write.
            return Ok(None);
        }
        // A password is shown as stars: it can be copied or replaced, not sent.
        let starred = base.remove("cipassword").is_some();
        if starred && !want.keys.contains_key("cipassword") {
            return Ok(None);
        }
        let has = |id: &StorageId| {
            let row = view.storage(id, &identity.node);
            row.is_some_and(|row| row.holds("images"))
        };
        own_parts(&mut base, &want, |drive| {
            let its_own = storage_of(drive).filter(has);
            its_own.unwrap_or_else(|| storage.clone())
        });
        let changes = diff::diff(&want, &self.intent.owner, &base);
        self.can_be_made(&changes)?;
        self.wrote_over_source(&want, &changes);
        let disk = Prop::parse(
            &root_key,
            changes
                .set
                .get(&root_key)
                .map_or_else(|| base.get(&root_key).unwrap_or_default(), String::as_str),
        );
        let mut config = base;
        config.extend(changes.set);
        for key in &changes.delete {
            config.remove(key);
        }
        let mut value = Prop::default();
        value.set("file", format!("{storage}:0"));
        value.set("import-from", root.volume.clone());
        value.maybe("format", self.root().and_then(Disk::made_as));
        for (key, item) in disk.items() {
            if !matches!(key, "file" | "size") {
                value.set(key, item);
            }
        }
        config.set(&root_key, value.print(&root_key));
        Ok(Some(config))
    }

    async fn create(
        &mut self,
        view: &View,
        identity: &Identity,
    ) -> Flow<(StepKind, String, pve::Result<crate::Upid>)> {
        let want = self.desired(view, identity)?;
        let node = self.cluster.client.node(&identity.node);
        let changes = diff::diff(&want, &self.intent.owner, &GuestConfig::new());
        self.can_be_made(&changes)?;
        let mut config: GuestConfig = changes.set.into_iter().collect();
        let vmid = identity.vmid;
        let on = &identity.node;
        match (&self.intent.source, self.kind()) {
            (Source::Backup { volume }, GuestKind::Qemu) => {
                // A backup brings its own configuration; ours is written over it afterwards.
                let mut own = GuestConfig::new();
                own.set("name", &self.intent.name);
                own.set("description", config.description().unwrap_or_default());
                let mut create = CreateQemu::new(vmid, own);
                create.archive = Some(volume.clone());
                create.unique = true;
                create.storage = self.root_storage();
                create.pool = self.pool()?;
                let message = format!("restoring {volume} on {on} as {vmid}");
                Ok((StepKind::Restore, message, node.create_qemu(&create).await))
            }
            (_, GuestKind::Qemu) => {
                let mut create = CreateQemu::new(vmid, config);
                create.pool = self.pool()?;
                let message = format!("creating {vmid} on {on}");
                Ok((StepKind::Create, message, node.create_qemu(&create).await))
            }
            (Source::Backup { volume }, GuestKind::Lxc) => {
                // As above; and what is not said to go elsewhere would go to `local`, wherever it was.
                let mut own = GuestConfig::new();
                own.set("hostname", &self.intent.name);
                own.set("description", config.description().unwrap_or_default());
                let mut create = CreateLxc::new(vmid, volume.clone(), own);
                create.restore = true;
                create.unprivileged = None;
                create.unique = true;
                create.storage = self.default_storage(view, on);
                create.pool = self.pool()?;
                let message = format!("restoring {volume} on {on} as {vmid}");
                Ok((StepKind::Restore, message, node.create_lxc(&create).await))
            }
            (source, GuestKind::Lxc) => {
                let Source::ContainerTemplate { volume: template } = source else {
                    let text = "source: a container is made from a container template, a backup or a container";
                    return Err(failed(Failure::Invalid, text));
                };
                if let Some(container) = &self.intent.container {
                    if let Some(password) = container.password.as_ref().and_then(|p| p.as_text()) {
                        config.set("password", password);
                    }
                    if !container.ssh_keys.is_empty() {
                        config.set("ssh-public-keys", container.ssh_keys.join("\n"));
                    }
                }
                let mut create = CreateLxc::new(vmid, template.clone(), config);
                let container = self.intent.container.as_ref();
                create.unprivileged = Some(container.is_none_or(|c| c.unprivileged));
                create.storage = self.root_storage();
                create.pool = self.pool()?;
                let message = format!("creating container {vmid} on {on} from {template}");
                Ok((StepKind::Create, message, node.create_lxc(&create).await))
            }
        }
    }

    /// Refuses to make a thin disk, of which nobody said where it shall be, on a storage that has none.
    fn may_be_thin(
        &self,
        view: &View,
        identity: &Identity,
        original: Option<&Original>,
    ) -> Flow<()> {
        let copied = original.and_then(|original| root_disk(&original.config)?.storage);
        let default = self.default_storage(view, &identity.node);
        for disk in self
            .intent
            .disks
            .iter()
            .filter(|disk| disk.storage.is_none())
        {
            let with_source = copied.clone().filter(|_| disk.role == DiskRole::Root);
            let Some(storage) = with_source.or(default.clone()) else {
                continue;
            };
            if let Some(row) = view.storage(&storage, &identity.node) {
                desired::may_be_thin(disk, &storage, row)
                    .map_err(|invalid| failed(Failure::Invalid, invalid.to_string()))?;
            }
        }
        Ok(())
    }

    /// Waits while there is no storage for something that must be made.
    fn can_be_made(&mut self, changes: &Changes) -> Flow<()> {
        match changes.nowhere.first() {
            None => Ok(()),
            Some(why) => Err(self.wait(
                Waiting::Space,
                why.clone(),
                std::time::Duration::from_secs(30),
            )),
        }
    }

    fn pool(&mut self) -> Flow<Option<PoolId>> {
        match &self.intent.options.pool {
            None => Ok(None),
            Some(pool) => PoolId::new(pool.clone())
                .map(Some)
                .map_err(|error| failed(Failure::Invalid, format!("pool: {error}"))),
        }
    }
}

/// Makes a source's interfaces and drives a copy's own, or takes them out. `place` says where a copy has the cloud-init drive
/// that its source has in such a volume.
fn own_parts(base: &mut GuestConfig, want: &Desired, place: impl Fn(&str) -> StorageId) {
    let parts: Vec<(String, String)> = base
        .iter()
        .filter(|(key, value)| {
            key.starts_with("unused") || key.starts_with("net") || value.contains("media=cdrom")
        })
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let is_made = |wish: &Want| matches!(wish, Want::CloudInit(_));
    let other_data = want.no_foreign_cloudinit || want.keys.values().any(is_made);
    for (key, value) in parts {
        if key.starts_with("net") && !want.own_all_nics {
            // A copy needs an address of its own; PVE gives one when none is said.
            base.set(&key, without_mac(&key, &value));
        } else if key.starts_with("net") && want.keys.contains_key(&key) {
            base.set(&key, diff::copied_card(&key, &value));
        } else if diff::is_cloudinit_drive(&key, &value) && !other_data {
            // The copy is told what its source would be; PVE writes that into a drive of the copy's own.
            base.set(&key, format!("{}:cloudinit", place(&value)));
        } else {
            base.remove(&key);
        }
    }
}

fn without_mac(key: &str, text: &str) -> String {
    let prop = Prop::parse(key, text);
    let mut out = Prop::default();
    for (name, value) in prop.items() {
        let mac = value.parse::<crate::intent::Mac>().is_ok();
        out.set(name, if mac { "" } else { value });
    }
    out.print(key)
}

fn reach(original: &Original, identity: &Identity) -> Reach {
    match (original.site.node == identity.node, original.site.shared) {
        (true, _) => Reach::Here,
        (false, true) => Reach::Shared,
        (false, false) => Reach::Move,
    }
}

fn nearest<'a>(originals: &'a [Original], identity: &Identity) -> Option<&'a Original> {
    originals
        .iter()
        .min_by_key(|original| (reach(original, identity), original.site.vmid))
}
