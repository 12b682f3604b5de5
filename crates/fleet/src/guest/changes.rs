//! What must change in a guest's configuration, once everything is heeded that PVE or its history say of it.

use std::{sync::Arc, time::Duration};

use pve::{GuestConfig, GuestKind};

use super::{Flow, Pass, failed, make::UNNAMED};
use crate::{
    Failure, Outcome, Size, Waiting,
    desired::Want,
    diff::{self, Changes},
    intent::Management,
    prop::Prop,
    record::{Identity, Origin, Stage},
    view::View,
};

impl Pass<'_> {
    /// What must change in the configuration; `None` when what was written last is still wanted.
    pub(super) async fn changes(
        &mut self,
        view: &View,
        identity: &Identity,
    ) -> Flow<Option<Changes>> {
        let mut want = self.desired(view, identity)?;
        let digest = want.digest();
        let doubt = self.memory(|memory| memory.doubt);
        if self.record.applied.as_ref() == Some(&digest) && !doubt {
            return Ok(None);
        }
        let known = self
            .memory(|memory| memory.model.clone())
            .filter(|_| !doubt);
        let mut model: Arc<GuestConfig> = match known {
            Some(model) => model,
            None => self.ours(identity).await?.0,
        };
        if self.find_ejected(&model) {
            want = self.desired(view, identity)?;
        }
        let mut changes = diff::diff(&want, &self.intent.owner, &model);
        let unnamed = changes.set.values().any(|value| value.contains(UNNAMED));
        // People move disks: what a drive holds is written as it was read, and with the digest of that.
        let stale = self.record.stage >= Stage::Started && model.digest().is_none();
        if unnamed || stale && changes.names_volumes() {
            model = self.ours(identity).await?.0;
            changes = diff::diff(&want, &self.intent.owner, &model);
        }
        if let Some((with, kept)) = self.keep_in(identity, &model, &changes.lost).await? {
            changes = diff::diff(&want, &self.intent.owner, &with);
            changes.keep(kept);
            model = Arc::new(with);
        }
        let copied = self.was_copied(identity);
        if let Some(Want::Exists(password)) = want.keys.get("cipassword")
            && copied
            && self.record.stage < Stage::Configured
        {
            // The source's looks like any other.
            let set = &mut changes.set;
            set.insert("cipassword".to_owned(), password.clone());
        }
        let said = want.keys.contains_key("protection");
        if model.is_protected() && !said && self.has_sources_protection(identity) {
            changes.delete.insert("protection".to_owned());
        }
        self.be_gentle(&mut changes, &model);
        self.correct_sizes(&mut changes, &model);
        self.keep_what_was_brought(identity, &mut changes);
        self.refuse_to_shrink(&mut changes)?;
        if let Some(why) = changes.nowhere.first() {
            return Err(self.wait(Waiting::Space, why.clone(), Duration::from_secs(30)));
        }
        let parts = changes.delete.iter();
        let parts = parts
            .into_iter()
            .any(|key| self.record.kept.contains_key(key));
        if self.name_volumes(&model) && parts {
            // Once it is taken out, nothing else tells whose it was.
            return Err(Outcome::Persist);
        }
        let settled = self.record.stage >= Stage::Settled;
        let mut drift = if settled {
            changes.drift.clone()
        } else {
            changes.lasting()
        };
        let observed = self.intent.policy.management == Management::Observe;
        if observed && self.intent.options.description.is_none() {
            // Who only looks leaves no mark, and misses none.
            drift.retain(|drift| drift.key != "description");
        }
        let before = self.memory(|memory| {
            memory.doubt = false;
            std::mem::replace(&mut memory.drift, drift)
        });
        for (drift, why) in &changes.beyond {
            if !before.contains(drift) {
                self.warn("Drifted", why.clone());
            }
        }
        if changes.is_empty() {
            self.record.stage = self.record.stage.max(Stage::Configured);
            self.applied(view, identity)?;
            return Ok(None);
        }
        Ok(Some(changes))
    }

    /// Whether a protection would be the source's, which PVE copies: nobody has asked for it here.
    pub(super) fn has_sources_protection(&self, identity: &Identity) -> bool {
        self.was_copied(identity) && self.record.stage < Stage::Configured && !identity.adopted
    }

    /// What the guest was made from.
    pub(super) fn origin(&self, identity: &Identity) -> Origin {
        let declared = || Origin::of(&self.intent.source);
        identity.origin.unwrap_or_else(declared)
    }

    /// Whether what it was made from brought its first configuration along.
    pub(super) fn was_copied(&self, identity: &Identity) -> bool {
        self.origin(identity) != Origin::New
    }

    /// A disk that was grown and is shown smaller than that has had a value since that was written before, and waited for a
    /// restart. PVE grows nothing then, and says the true size when the drive is written.
    fn correct_sizes(&self, changes: &mut Changes, have: &GuestConfig) {
        if self.kind() != GuestKind::Qemu {
            return;
        }
        for (slot, size) in self.memory(|memory| memory.grown.clone()) {
            let covers = |wanted: &Size| *wanted <= size;
            if !changes.grow.get(&slot).is_some_and(covers) {
                continue;
            }
            changes.grow.remove(&slot);
            let said = changes.set.get(&slot).map(String::as_str);
            let drive = said.or_else(|| have.get(&slot)).unwrap_or_default();
            let mut drive = Prop::parse(&slot, drive);
            drive.set("size", size.to_pve());
            changes.set.insert(slot.clone(), drive.print(&slot));
        }
    }

    /// A copy cannot be smaller than its source: what a disk brought along is not taken for a wish to shrink it.
    fn keep_what_was_brought(&mut self, identity: &Identity, changes: &mut Changes) {
        // What it is larger by later on, it was not brought with.
        let new = self.record.stage < Stage::Configured;
        let copied = self.was_copied(identity);
        for (slot, has, wanted) in std::mem::take(&mut changes.shrink) {
            if new && copied && !self.record.brought.contains_key(&slot) {
                self.event(
                    "DiskLarger",
                    format!("disk {slot} stays as large as its source, {has}, though {wanted} is declared"),
                );
                self.record.brought.insert(slot.clone(), has.as_bytes());
            }
            let brought = self.record.brought.get(&slot);
            if brought.is_none_or(|brought| has.as_bytes() > *brought) {
                changes.shrink.push((slot, has, wanted));
            }
        }
    }

    /// A disk that somebody made larger is reported; only who declares less than before asks for what cannot be.
    fn refuse_to_shrink(&mut self, changes: &mut Changes) -> Flow<()> {
        for (slot, has, wanted) in std::mem::take(&mut changes.shrink) {
            let before = self.record.kept.get(&slot).and_then(|kept| kept.size);
            let grown = match before {
                Some(before) => wanted.as_bytes() >= before,
                None => self.record.stage >= Stage::Configured,
            };
            let text = format!(
                "disk {slot} has {has} and cannot be made smaller: declare at least that instead of {wanted}"
            );
            if !grown {
                return Err(failed(Failure::Invalid, text));
            }
            changes.larger(&slot, has, wanted, text);
        }
        Ok(())
    }
}
