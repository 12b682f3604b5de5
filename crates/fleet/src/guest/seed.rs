//! The first-boot image of a guest: named, uploaded, taken out of the drive, removed.
//!
//! The image holds secrets, so none may be left behind. Its name is stored with the identity, before it is uploaded;
//! when an identity is given up its image is remembered as a leftover until it is gone. An upload whose answer was
//! lost may still be under way, so an image that is not known to be there is removed only when no upload runs.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use pve::{ConfigChange, GuestConfig, api::storage::upload::Upload};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Flow, Pass, failed, settle::doing, working};
use crate::{
    Failure, NodeName, Outcome, StorageId, Waiting,
    cloudinit::{SeedFiles, hex},
    cluster::UPLOAD_PAUSE,
    desired::SEED_SLOT,
    intent::{Init, InitMode, Payload},
    record::{Identity, Leftover, Seed, SeedState, Stage, StepKind},
    view::View,
};

impl Pass<'_> {
    fn image_init(&self) -> Option<&Init> {
        let init = self.intent.init.as_ref();
        init.filter(|init| init.mode == InitMode::NoCloud)
    }

    /// Where the first-boot image will be.
    pub(super) fn plan_seed(
        &mut self,
        view: &View,
        identity: &Identity,
        name: Uuid,
    ) -> Flow<Option<Seed>> {
        let Some(init) = self.image_init() else {
            return Ok(None);
        };
        let storage = match &init.storage {
            Some(storage) => {
                let fits = view
                    .storage(storage, &identity.node)
                    .is_some_and(|row| row.holds("iso"));
                fits.then(|| storage.clone())
            }
            None => view
                .storages_for("iso", &identity.node)
                .first()
                .map(|(id, _)| (*id).clone()),
        };
        let Some(storage) = storage else {
            let which = init
                .storage
                .as_ref()
                .map_or_else(|| "no storage".to_owned(), |s| format!("storage '{s}'"));
            let message = format!(
                "{which} of node {} may hold ISO images for the first-boot data: allow content 'iso' on one",
                identity.node
            );
            return Err(self.wait(Waiting::Space, message, Duration::from_secs(30)));
        };
        Ok(Some(Seed {
            volume: format!("{storage}:iso/{PREFIX}{name}.iso"),
            glance: String::new(),
            state: SeedState::Planned,
        }))
    }

    fn seed_files(&self, init: &Init, identity: &Identity) -> Flow<SeedFiles> {
        SeedFiles::render(self.intent, init, identity)
            .map_err(|error| failed(Failure::Invalid, format!("init: {error}")))
    }

    /// Names the image of first-boot data that was declared after the guest was made, and before its first boot. Returns
    /// whether it did.
    pub(super) fn name_late_seed(&mut self, view: &View, identity: &Identity) -> Flow<bool> {
        let late = self.record.seed.is_none() && !self.record.booted && !identity.adopted;
        if !late || self.image_init().is_none() {
            return Ok(false);
        }
        let mut here = identity.clone();
        if self.record.stage >= Stage::Configured {
            // It may have been moved since it was made, and the image must be where it is.
            here.node = self.node_of(identity);
        }
        self.record.seed = self.plan_seed(view, &here, here.uuid)?;
        self.record.identity = Some(here);
        Ok(true)
    }

    /// Uploads the first-boot image unless it is there.
    pub(super) async fn upload_seed(&mut self, identity: &Identity) -> Flow<()> {
        let Some(init) = self.image_init() else {
            return Ok(());
        };
        let Some(seed) = self
            .record
            .seed
            .clone()
            .filter(|seed| seed.state <= SeedState::Uploaded)
        else {
            return Ok(());
        };
        let files = self.seed_files(init, identity)?;
        // Until the guest was started for the first time, what was declared anew is uploaded anew.
        if seed.state == SeedState::Uploaded && seed.holds(&files) {
            return Ok(());
        }
        let image = files
            .image()
            .map_err(|error| failed(Failure::Invalid, format!("init: {error}")))?;
        let (storage, file) = seed_place(&seed.volume);
        let Some(storage) = storage else {
            return Err(failed(
                Failure::Invalid,
                format!("'{}' is not a volume", seed.volume),
            ));
        };
        self.seed_state(SeedState::Planned);
        let upload = Upload::iso(file, image.len() as u64);
        let sent = self
            .cluster
            .client
            .node(&identity.node)
            .storage(&storage)
            .upload_bytes(&upload, Bytes::from(image))
            .await;
        match sent {
            Ok(upid) => {
                if let Some(seed) = &mut self.record.seed {
                    seed.glance = files.glance();
                }
                let task = self
                    .cluster
                    .started(&self.intent.owner, StepKind::UploadSeed, &upid);
                self.record.in_flight.push(task);
                Ok(())
            }
            Err(error) => {
                Err(self.node_trouble(&identity.node, "uploading the first-boot image", &error))
            }
        }
    }

    /// Whether the guest has read other first-boot data than what is declared now.
    pub(super) fn told_otherwise(&mut self, identity: &Identity) -> bool {
        self.has_other_password(identity) || self.has_other_image(identity)
    }

    /// Whether PVE's own cloud-init was given another password: it shows none, so none is written twice.
    fn has_other_password(&mut self, identity: &Identity) -> bool {
        let init = self.intent.init.as_ref();
        let native = init.filter(|init| init.mode == InitMode::Native && !init.forgotten);
        let Some(init) = native else {
            return false;
        };
        let Some(password) = &init.password else {
            self.record.password = None;
            return false;
        };
        let declared = glance(password, identity.uuid);
        *self.record.password.get_or_insert(declared.clone()) != declared
    }

    fn has_other_image(&self, identity: &Identity) -> bool {
        let Some(init) = self.image_init() else {
            return false;
        };
        let Some(seed) = &self.record.seed else {
            // It was declared after the first boot. What was moved here from another keeper has read it there.
            let booted = self.record.booted || identity.adopted;
            return booted && !init.forgotten && self.intent.proof.is_none();
        };
        if init.forgotten || seed.glance.is_empty() || !self.record.booted {
            return false;
        }
        SeedFiles::render(self.intent, init, identity).is_ok_and(|files| !seed.holds(&files))
    }

    /// Takes the first-boot image out of its drive, and keeps this boot order.
    pub(super) async fn eject_seed(
        &mut self,
        identity: &Identity,
        node: &NodeName,
        boot: Option<&str>,
    ) -> Flow<Option<Outcome>> {
        let mut set = GuestConfig::new().with(SEED_SLOT, NO_DISC);
        // PVE appends a CD drive that is written to the boot order if it is not in it, unless the order comes with it and is
        // handled last. An order that waits for a restart would be lost to that, and is written afterwards.
        let model = self.memory(|memory| memory.model.clone());
        let order = model.as_ref().and_then(|model| model.get("boot"));
        let is_in = order.is_some_and(|order| order.contains(SEED_SLOT));
        let apart = boot.filter(|_| self.order_waits());
        if let Some(boot) = boot.filter(|_| !is_in && apart.is_none()) {
            set.set("boot", boot);
        }
        let guest = self.handle(node, identity.vmid);
        let mut sent = guest.configure(&ConfigChange::set(set)).await;
        if let Some(boot) = apart.filter(|_| sent.is_ok()) {
            let order = GuestConfig::new().with("boot", boot);
            sent = guest.configure(&ConfigChange::set(order)).await;
        }
        match sent {
            Ok(()) => {
                self.seed_state(SeedState::Ejected);
                self.memory(|memory| {
                    if let Some(model) = memory.model.take() {
                        let mut model = (*model).clone();
                        model.set(SEED_SLOT, NO_DISC);
                        memory.model = Some(Arc::new(model));
                    }
                });
                Ok(None)
            }
            Err(error) => Err(self.node_trouble(node, "ejecting the first-boot image", &error)),
        }
    }

    /// Notices that the first-boot image of a started guest was taken out of its drive before a crash made us forget it:
    /// it may be gone, and is not put back.
    pub(super) fn find_ejected(&mut self, config: &GuestConfig) -> bool {
        // A guest that never ran has read nothing, however far it has come: its drive was empty from the beginning.
        let started = self.record.stage >= Stage::Started && self.record.booted;
        let Some(seed) = self.record.seed.as_mut().filter(|_| started) else {
            return false;
        };
        let ejected = seed.state == SeedState::Uploaded && config.get(SEED_SLOT) == Some(NO_DISC);
        if ejected {
            seed.state = SeedState::Ejected;
        }
        ejected
    }

    /// Notices that the first-boot image is gone although a record says that it is there: one that is older than a crash, or a
    /// guest that was taken back to when it had the image in its drive. Who has booted has read it; for others it is uploaded
    /// again.
    pub(super) fn find_image_gone(&mut self, error: &pve::Error) -> bool {
        let booted = self.record.booted;
        let Some(seed) = self.record.seed.as_mut() else {
            return false;
        };
        let said_there = matches!(seed.state, SeedState::Uploaded | SeedState::Consumed);
        let gone = said_there && error.is_not_found() && error.to_string().contains(&seed.volume);
        if gone {
            seed.state = if booted {
                SeedState::Ejected
            } else {
                SeedState::Planned
            };
        }
        gone
    }

    /// Removes the first-boot image from its storage.
    pub(super) async fn remove_seed(&mut self, node: &NodeName) -> Flow<Option<Outcome>> {
        let Some(seed) = self.record.seed.clone() else {
            return Ok(None);
        };
        let sure = seed.state != SeedState::Planned;
        if let Some(outcome) = self
            .drop_image(node, &seed.volume, sure, StepKind::RemoveSeed)
            .await?
        {
            return Ok(Some(outcome));
        }
        self.seed_state(SeedState::Removed);
        Ok(None)
    }

    /// The identity is given up; its image, if there is one, is not forgotten.
    pub(super) fn abandon_seed(&mut self, node: &NodeName) -> bool {
        let seed = self.record.seed.take();
        let Some(seed) = seed.filter(|seed| seed.state != SeedState::Removed) else {
            return false;
        };
        self.record.leftovers.push(Leftover {
            node: node.clone(),
            volume: seed.volume,
        });
        true
    }

    /// Removes images of identities that were given up. A node that is down is waited for only by who must (`all`).
    pub(super) async fn sweep(&mut self, view: &View, all: bool) -> Flow<()> {
        let mut at = 0;
        while let Some(left) = self.record.leftovers.get(at).cloned() {
            if !view.node_online(&left.node) && !all {
                at += 1;
                continue;
            }
            if let Some(outcome) = self
                .drop_image(&left.node, &left.volume, false, StepKind::RemoveVolume)
                .await?
            {
                return Err(outcome);
            }
            self.record.leftovers.remove(at);
        }
        Ok(())
    }

    /// Removes an image. `sure` if its upload is known to have ended.
    async fn drop_image(
        &mut self,
        node: &NodeName,
        volume: &str,
        sure: bool,
        step: StepKind,
    ) -> Flow<Option<Outcome>> {
        let Ok(volume) = pve::VolumeId::new(volume) else {
            return Ok(None);
        };
        let view = self.view()?;
        let Some(by) = view.reaching(&volume.storage(), node) else {
            // It went with its node, once that is sure.
            self.has_left(&view, node)?;
            return Ok(None);
        };
        if !sure {
            self.no_upload_runs().await?;
        }
        let storage = self.cluster.client.node(by).storage(&volume.storage());
        // A few seconds are enough for a small file; then no task needs to be watched.
        match storage.delete_volume(&volume, Some(5)).await {
            Ok(None) => Ok(None),
            Ok(Some(upid)) => {
                let task = self.cluster.started(&self.intent.owner, step, &upid);
                self.record.in_flight.push(task);
                Ok(Some(working(step, doing(step))))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(self.node_trouble(by, "removing the first-boot image", &error)),
        }
    }

    /// Comes back when nothing is being uploaded: what is not there by then will not come. It is sent by whichever node was asked
    /// to.
    async fn no_upload_runs(&mut self) -> Flow<()> {
        match self.cluster.any_upload_runs().await {
            Ok(true) => {
                let message = "an upload has not ended yet";
                Err(self.wait(Waiting::Locked, message, UPLOAD_PAUSE))
            }
            Ok(false) => Ok(()),
            Err(error) => Err(self.trouble("looking for uploads", &error)),
        }
    }

    pub(super) fn seed_state(&mut self, state: SeedState) {
        if let Some(seed) = &mut self.record.seed {
            seed.state = state;
        }
    }
}

/// What PVE calls a task that stores a file it was sent.
pub(crate) const UPLOAD: &str = "imgcopy";
/// How the names of all first-boot images begin.
pub(crate) const PREFIX: &str = "oxmox-";
/// An empty drive.
pub(crate) const NO_DISC: &str = "none,media=cdrom";

/// Enough of a digest to see that a password is another one, and too little to find it.
fn glance(password: &Payload, salt: Uuid) -> String {
    let mut hash = Sha256::new();
    hash.update(salt.as_bytes());
    hash.update(password.expose());
    hex(&hash.finalize()[..2])
}

/// The first-boot image in a guest's drive, if it has one of these names.
pub(super) fn seed_in(config: &GuestConfig, names: [Uuid; 2]) -> Option<Seed> {
    let volume = config.get(SEED_SLOT)?.split(',').next()?;
    let is = |name: &Uuid| volume.ends_with(&format!(":iso/{PREFIX}{name}.iso"));
    names.iter().any(is).then(|| Seed {
        volume: volume.to_owned(),
        glance: String::new(),
        state: SeedState::Uploaded,
    })
}

/// Storage and file name of a first-boot image.
fn seed_place(volume: &str) -> (Option<StorageId>, String) {
    let (storage, path) = volume.split_once(':').unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default().to_owned();
    (StorageId::new(storage).ok(), file)
}
