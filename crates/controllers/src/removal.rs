//! The end of a guest, whichever kind of object it stood for.
//!
//! What is removed is what the record names, so nothing else the object refers to has to exist any more. The object is
//! let go only when the engine says that nothing of the guest is left.

use std::{fmt::Debug, time::Duration};

use fleet::{GuestIntent, GuestProgress, GuestRecord, Outcome};
use kube::{
    Resource,
    core::{NamespaceResourceScope, object::HasStatus},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    context::{Context, Error, FIRST_LOOK},
    hub::Kind,
    work::Action,
};

/// How long a guest that is being removed is left to the engine's call at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// A status that keeps the engine's record of a guest.
pub(crate) trait KeepsGuest {
    /// The record as it is kept.
    fn guest(&self) -> GuestRecord;
}

/// Brings the end of an object's guest one step nearer; lets the object go when nothing of it is left.
///
/// `leaving` says in the object's own words where its end stands; the record it is given must be in what it returns.
pub(crate) async fn remove<K, S>(
    context: &Context,
    object: &K,
    intent: &GuestIntent,
    mut status: S,
    leaving: impl Fn(S, &GuestProgress) -> S,
) -> Result<Action, Error>
where
    K: Kind + Resource<Scope = NamespaceResourceScope> + HasStatus<Status = S>,
    S: KeepsGuest + Serialize + DeserializeOwned + Debug,
{
    if status.guest().identity.is_none() && context.is_unseen(&intent.cluster) {
        // There may be a guest that is not recorded, and nobody could be asked for it yet.
        return Ok(Action::requeue(FIRST_LOOK));
    }
    loop {
        let progress = context.fleet.delete(intent, &status.guest()).await;
        context.tell(object, &progress.events).await;
        if progress.outcome == Outcome::Gone {
            context.fleet.forget(&intent.owner);
            context.release(object).await?;
            return Ok(Action::await_change());
        }
        status = leaving(status, &progress);
        context
            .statuses
            .write(&context.client, object, object.status(), &status)
            .await?;
        match progress.outcome {
            Outcome::Persist => {}
            Outcome::Waiting {
                what,
                message,
                retry,
            } => {
                context.warn(object, what.as_str(), &message).await;
                return Ok(Action::requeue(retry));
            }
            Outcome::Failed { why, message } => {
                context.warn(object, why.as_str(), &message).await;
                return Ok(Action::requeue(Duration::from_mins(1)));
            }
            Outcome::Working { .. } | Outcome::Settled | Outcome::Gone => {
                return Ok(Action::requeue(PATIENCE));
            }
        }
    }
}
