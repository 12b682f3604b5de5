//! What is declared of a guest, what of it has been written, and which volumes it has.

use std::collections::BTreeSet;

use pve::{GuestConfig, GuestKind};

use super::{Flow, Pass, failed};
use crate::{
    Failure, Size, StorageId,
    desired::{self, Context, Desired, ROOT_NAME, Want},
    diff::{self, Changes},
    prop::Prop,
    record::{Identity, Kept, SeedState, Stage},
    view::View,
};

impl Pass<'_> {
    /// The storage of disks that name none: with the root disk, or where the node keeps such.
    pub(super) fn default_storage(&self, view: &View, node: &crate::NodeName) -> Option<StorageId> {
        let usual = || view.default_storage(self.content(), node).cloned();
        self.root_storage().or_else(usual)
    }

    /// The configuration the guest shall have.
    pub(super) fn desired(&mut self, view: &View, identity: &Identity) -> Flow<Desired> {
        let container = self.kind() == GuestKind::Lxc;
        // Where it was made is only where it begins.
        let node = self.node_of(identity);
        let default = self.default_storage(view, &node);
        let init_storage = self
            .intent
            .init
            .as_ref()
            .and_then(|init| init.storage.clone())
            .or_else(|| default.clone());
        let seed = self
            .record
            .seed
            .as_ref()
            .filter(|seed| seed.state < SeedState::Consumed)
            .map(|seed| seed.volume.clone());
        let ejected = self
            .record
            .seed
            .as_ref()
            .filter(|seed| seed.state >= SeedState::Ejected)
            .map(|seed| seed.volume.clone());
        let context = Context {
            seed: seed.as_deref(),
            ejected: ejected.as_deref(),
            told: self.record.seed.is_some(),
            cloudinit_storage: init_storage.as_ref().map(StorageId::as_str),
            default_storage: default.as_ref().map(StorageId::as_str),
            from_scratch: !self.was_copied(identity) && !identity.adopted,
            configured: self.record.stage >= Stage::Configured,
            major: self
                .cluster
                .state()
                .release
                .map_or(9, |release| release.major),
        };
        let rendered = if container {
            desired::container(self.intent, identity, context)
        } else {
            desired::virtual_machine(self.intent, identity, context)
        };
        let mut want = rendered.map_err(|invalid| failed(Failure::Invalid, invalid.to_string()))?;
        // What was taken over keeps what it is left with.
        if !identity.adopted {
            let mut before = self.record.declared.clone();
            if self.intent.init.as_ref().is_some_and(|init| init.forgotten) {
                // What a Secret said that was cleaned up since was not taken back by anybody.
                for key in ["cipassword", "ciuser", "sshkeys"] {
                    before.remove(key);
                }
            }
            want.take_back(&before);
        }
        let kept = self.record.kept.iter();
        want.kept = kept
            .map(|(place, kept)| (place.clone(), kept.volume.clone()))
            .collect();
        Ok(want)
    }

    /// Takes note that everything declared now has been written.
    pub(super) fn applied(&mut self, view: &View, identity: &Identity) -> Flow<()> {
        let model = self.memory(|memory| memory.model.clone());
        let identity = self.part(identity, model.as_deref());
        let want = self.desired(view, &identity)?;
        for (place, wish) in &want.keys {
            let size = match wish {
                Want::Disk(disk) => disk.size,
                Want::State(_) => None,
                _ => continue,
            };
            let there = model
                .as_ref()
                .is_none_or(|model| model.get(place).is_some());
            if there || self.record.kept.contains_key(place) {
                let kept = self.record.kept.entry(place.clone()).or_default();
                kept.size = size.map(Size::as_bytes);
            }
        }
        if let Some(model) = model {
            self.name_volumes(&model);
        }
        self.record.tags = self.own_tags();
        self.record.declared = self.ours_to_take_back(&identity, &want);
        self.record.applied = Some(self.desired(view, &identity)?.digest());
        self.record.identity = Some(identity);
        Ok(())
    }

    /// Takes note of what was written that a source could have brought as it is declared.
    pub(super) fn wrote_over_source(&mut self, want: &Desired, changes: &Changes) {
        let options = want.options();
        let ours = desired::MAY_BE_THE_SOURCES
            .iter()
            .map(|key| (*key).to_owned());
        let ours = ours.filter(|key| changes.set.contains_key(key) && options.contains(key));
        self.record.declared.extend(ours);
    }

    /// What of it is taken back when it is no longer declared. What a source has brought is its own.
    fn ours_to_take_back(&self, identity: &Identity, want: &Desired) -> BTreeSet<String> {
        let copied = self.was_copied(identity);
        let mut options = want.options();
        options.retain(|key| {
            let unsure = copied && desired::MAY_BE_THE_SOURCES.contains(&key.as_str());
            !unsure || self.record.declared.contains(key)
        });
        options
    }

    /// Remembers which volumes are where, to know them again when they are taken out. Returns whether that is new.
    pub(super) fn name_volumes(&mut self, model: &GuestConfig) -> bool {
        let mut new = false;
        for (place, kept) in &mut self.record.kept {
            let there = Prop::parse(place, model.get(place).unwrap_or_default());
            let volume = there.get(diff::volume_item(place)).map(str::to_owned);
            let volume = volume.filter(|volume| diff::is_named(volume));
            if volume.is_some() && kept.volume != volume {
                kept.volume = volume;
                new = true;
            }
        }
        new
    }

    /// Lets go of the places of disks that are no longer declared and have been taken out: what is put there from now on
    /// is somebody else's.
    fn part(&mut self, identity: &Identity, model: Option<&GuestConfig>) -> Identity {
        let mut identity = identity.clone();
        let mut gone = Vec::new();
        let disks = &self.intent.disks;
        identity.disks.retain(|name, slot| {
            let is_in = model.is_some_and(|model| model.get(&slot.to_string()).is_some());
            let declared = disks.iter().any(|disk| &disk.name == name);
            let stays = name == ROOT_NAME || declared || is_in;
            if !stays {
                gone.push((name.clone(), slot.to_string()));
            }
            stays
        });
        let container = self.intent.container.as_ref();
        let mounts = container.map_or(&[][..], |container| &container.mounts);
        identity.mounts.retain(|name, index| {
            let stays = mounts.iter().any(|mount| &mount.name == name);
            if !stays {
                gone.push((name.clone(), format!("mp{index}")));
            }
            stays
        });
        for (name, place) in gone {
            identity.brought.remove(&name);
            if let Some(kept) = self.record.kept.remove(&place) {
                self.record.parted.insert(name, kept.volume);
            }
        }
        identity
    }

    /// A disk that is declared again gets what it had before, and nothing else.
    pub(super) fn rejoin(&mut self, name: &str, place: String) {
        if let Some(volume) = self.record.parted.remove(name) {
            self.record.kept.insert(place, Kept { volume, size: None });
        }
    }
}
