//! Making sure that Cluster API has noticed.
//!
//! Cluster API looks at our objects when they change. Its core goes on watching the version of a kind that it met first, and
//! reads the one its contract names: after a take-over from another provider these are two caches, and the one it is woken by
//! may be ahead of the one it reads. It would look again at its next resync, ten minutes later. So an object that it should have
//! noticed and has not is written to once more, by an annotation that says nothing else, and again after ever longer
//! pauses. Where all is well that costs nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use crate::context::{Context, Error};
use crate::hub::Kind;
use crate::work::Action;

/// How often an object was written to only to be looked at.
const ANNOTATION: &str = "oxmox.dev/unnoticed";
/// How long Cluster API may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// What it does by itself anyway.
const LONGEST: Duration = Duration::from_mins(10);

/// Objects that Cluster API has not noticed yet, by UID.
#[derive(Default)]
pub(crate) struct Unnoticed(Mutex<BTreeMap<String, Since>>);

struct Since {
    next: Instant,
    pause: Duration,
}

impl Unnoticed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Since>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody needs to notice it any more.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// How long to wait before the object is written to; nothing if that is now.
    fn wait(&self, uid: &str) -> Option<Duration> {
        let now = Instant::now();
        let mut all = self.lock();
        let since = all.entry(uid.to_owned()).or_insert(Since {
            next: now + PATIENCE,
            pause: PATIENCE,
        });
        if now < since.next {
            return Some(since.next - now);
        }
        since.pause = (since.pause * 2).min(LONGEST);
        since.next = now + since.pause;
        None
    }
}

/// Has Cluster API look at an object again that it has not noticed for a while. Returns when to come back.
pub(super) async fn see_to_it<K>(
    context: &Context,
    object: &K,
    noticed: bool,
) -> Result<Action, Error>
where
    K: Kind + Resource<Scope = NamespaceResourceScope>,
{
    let uid = object.uid().unwrap_or_default();
    if noticed {
        context.unnoticed.forget(&uid);
        return Ok(Action::await_change());
    }
    if let Some(wait) = context.unnoticed.wait(&uid) {
        return Ok(Action::requeue(wait));
    }
    let before = object.annotations().get(ANNOTATION);
    let times = before.and_then(|times| times.parse().ok()).unwrap_or(0_u32);
    let patch = json!({"metadata": {
        "uid": uid, "annotations": {ANNOTATION: (times + 1).to_string()},
    }});
    let api = context.api(object);
    api.patch(
        &object.name_any(),
        &PatchParams::default(),
        &Patch::Merge(&patch),
    )
    .await?;
    let wait = context.unnoticed.wait(&uid).unwrap_or(PATIENCE);
    Ok(Action::requeue(wait))
}
