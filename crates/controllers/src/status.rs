//! Writing status, and knowing what was written.
//!
//! The reconciler reads objects from a watch, which may be behind what it wrote itself a moment ago. For
//! conditions that would not matter; for the engine's record it would: a record read too early names no
//! VMID, and a second one would be chosen. Status has one writer, so what this process wrote last is
//! newer than anything the watch shows, and is what the next pass starts from. A status that could not
//! be written is kept too, and written before anything else is done.
//!
//! A status that says nothing new but a step further may be put off ([`Statuses::put_off`]) for a while: the next pass
//! starts from it all the same, and after a crash the engine finds its own work anyway. So quick steps cost one write together,
//! or none if the end comes soon.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::Instant;

use crate::{context::Context, kinds::Watches};

/// The name under which Oxmox owns fields.
pub(crate) const MANAGER: &str = "oxmox";

/// What was last written, by object UID.
#[derive(Debug, Default)]
pub(crate) struct Statuses {
    kept: Mutex<BTreeMap<String, Kept>>,
}

#[derive(Clone, Debug)]
struct Kept {
    /// Tells statuses apart.
    digest: u64,
    /// The status as JSON, until the watch shows it: there is one for every object.
    status: Option<Box<str>>,
    stored: bool,
    /// Since when something has been put off, so that what is stored is older.
    put_off: Option<Instant>,
}

/// What the watch shows of the kinds there are many of need not be kept.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let to = context.clone();
    let machines = &mut watches.machines;
    machines.subscribe(move |it| to.statuses.shown(it, it.status.as_ref()));
    let to = context.clone();
    let containers = &mut watches.containers;
    containers.subscribe(move |it| to.statuses.shown(it, it.status.as_ref()));
    let to = context.clone();
    let proxmox_machines = &mut watches.proxmox_machines;
    proxmox_machines.subscribe(move |it| to.statuses.shown(it, it.status.as_ref()));
}

impl Kept {
    /// Whether it is what the API server has.
    fn is_stored(&self) -> bool {
        self.stored && self.put_off.is_none()
    }
}

impl Statuses {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Kept>> {
        self.kept
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The newest status known: what was written last, else what the object shows.
    pub(crate) fn newest<S>(&self, uid: &str, shown: Option<&S>) -> S
    where
        S: Clone + Default + DeserializeOwned,
    {
        let written = self.written(uid);
        written.or_else(|| shown.cloned()).unwrap_or_default()
    }

    /// What was written last, or the part of it that is asked for, while the watch does not show it.
    pub(crate) fn written<S: DeserializeOwned>(&self, uid: &str) -> Option<S> {
        let kept = self.lock().get(uid)?.status.clone()?;
        serde_json::from_str(&kept).ok()
    }

    /// The watch shows this status now: if it is what was written last, it need not be kept twice.
    fn shown<K: Resource>(&self, object: &K, status: Option<&impl Serialize>) {
        let (Some(uid), Some(status)) = (object.uid(), status) else {
            return;
        };
        let mut all = self.lock();
        let Some(kept) = all.get_mut(&uid).filter(|kept| kept.is_stored()) else {
            return;
        };
        if to_json(status).is_ok_and(|status| digest(&status) == kept.digest) {
            kept.status = None;
        }
    }

    /// Whether something is still to be written for this object.
    pub(crate) fn is_behind(&self, uid: &str) -> bool {
        self.lock().get(uid).is_some_and(|kept| !kept.stored)
    }

    /// Keeps a status to be written with a later one, unless something has been kept so for `lull`.
    pub(crate) fn put_off<S: Serialize>(&self, uid: &str, status: &S, lull: Duration) -> bool {
        let mut all = self.lock();
        let Some(kept) = all.get_mut(uid) else {
            return false;
        };
        let Ok(status) = to_json(status) else {
            return false;
        };
        if !kept.stored || kept.put_off.is_some_and(|since| since.elapsed() >= lull) {
            return false;
        }
        if kept.digest != digest(&status) {
            kept.put_off.get_or_insert_with(Instant::now);
            kept.digest = digest(&status);
            kept.status = Some(status);
        }
        true
    }

    /// Whether something waits to be written with a later status.
    pub(crate) fn is_put_off(&self, uid: &str) -> bool {
        let all = self.lock();
        all.get(uid).is_some_and(|kept| kept.put_off.is_some())
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Writes a status, unless it is what is there already.
    pub(crate) async fn write<K, S>(
        &self,
        client: &Client,
        object: &K,
        shown: Option<&S>,
        status: &S,
    ) -> kube::Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
        S: Serialize,
    {
        let uid = object.uid().unwrap_or_default();
        let said = status;
        let status = to_json(said)?;
        let digest = digest(&status);
        let known = self.lock().get(&uid).cloned();
        let unchanged = match &known {
            Some(kept) => kept.is_stored() && kept.digest == digest,
            None => shown.is_some_and(|shown| to_json(shown).is_ok_and(|shown| shown == status)),
        };
        if unchanged {
            return Ok(());
        }
        self.lock().insert(
            uid.clone(),
            Kept {
                digest,
                status: Some(status),
                stored: false,
                put_off: None,
            },
        );
        let api: Api<K> = Api::namespaced(
            client.clone(),
            object.namespace().as_deref().unwrap_or("default"),
        );
        let patch = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            // The UID keeps a status off a successor with the same name.
            "metadata": { "name": object.name_any(), "uid": uid },
            "status": said,
        });
        let params = PatchParams::apply(MANAGER).force();
        let name = object.name_any();
        match api
            .patch_status(&name, &params, &Patch::Apply(&patch))
            .await
        {
            Ok(_) => {
                if let Some(kept) = self.lock().get_mut(&uid)
                    && kept.digest == digest
                {
                    kept.stored = true;
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

fn to_json(status: &impl Serialize) -> kube::Result<Box<str>> {
    let text = serde_json::to_string(status).map_err(kube::Error::SerdeError)?;
    Ok(text.into_boxed_str())
}

/// Tells texts apart that need not be kept.
pub(crate) fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
