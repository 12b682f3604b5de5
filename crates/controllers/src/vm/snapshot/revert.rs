//! Going back to a snapshot: what a guest wishes, and whether that was done.

use std::sync::Arc;

use api::vm::{GuestRef, Phase, RevertTo, RevertWish, VMSnapshot, VMSnapshotStatus, condition};
use fleet::{intent::SnapshotWish, record::Subject};
use kube::ResourceExt as _;

use super::{
    super::{
        action::{self, Target},
        refs,
    },
    has_lost_its_guest,
};
use crate::context::{Context, namespace};

/// What is wanted of a snapshot that stays. A guest goes back only where its namespace `may` use the Provider, which its own
/// object says; what has begun goes on.
pub(super) fn wish(
    snapshot: &VMSnapshot,
    status: &VMSnapshotStatus,
    target: &Target,
    may: bool,
) -> SnapshotWish {
    let record = action::record(status.record.as_ref());
    match target.guest.revert() {
        // A wish is fulfilled once, whatever snapshot has that name later.
        Some(wish)
            if means(wish, snapshot)
                && target.guest.reverted_to() != Some(&wish.to)
                && record.done
                && (may || !record.in_flight.is_empty()) =>
        {
            SnapshotWish::Reverted {
                generation: u64::try_from(wish.generation).unwrap_or_default(),
                start: target.guest.is_on(),
            }
        }
        _ => SnapshotWish::Present,
    }
}

/// Takes note of a guest's wish to go back to a snapshot, and of its fulfilment; the snapshot's controller acts on it.
pub(in crate::vm) fn note(
    context: &Context,
    place: &str,
    guest: &GuestRef,
    wanted: Option<&RevertTo>,
    generation: Option<i64>,
    revert: &mut Option<RevertWish>,
    reverted_to: &mut Option<String>,
) {
    let before = revert.take();
    let Some(wanted) = wanted.and_then(|wanted| wanted.revert_to_ref.as_ref()) else {
        return;
    };
    let known = before.filter(|before| before.to == wanted.name);
    if known.is_none() {
        *reverted_to = None;
    }
    let mut wish = known.unwrap_or_else(|| RevertWish {
        to: wanted.name.clone(),
        generation: generation.unwrap_or_default(),
        uid: None,
    });
    let found = named(context, place, guest, &wish);
    if wish.uid.is_none() {
        wish.uid = found.as_ref().and_then(|found| found.uid());
    }
    if found.is_some_and(|found| is_reverted(context, &found, &wish)) {
        *reverted_to = Some(wish.to.clone());
    }
    *revert = Some(wish);
}

/// What a guest that is to go back to a snapshot says until it is there.
pub(in crate::vm) fn awaited(
    context: &Context,
    place: &str,
    guest: &GuestRef,
    wish: Option<&RevertWish>,
    reverted_to: Option<&str>,
) -> Option<(&'static str, String)> {
    let wish = wish.filter(|wish| reverted_to != Some(&wish.to))?;
    let to = &wish.to;
    let Some(snapshot) = named(context, place, guest, wish) else {
        let text = format!(
            "there is no VMSnapshot {to:?} of it in namespace {place:?} to go back to: name another in spec.snapshot, or leave that out"
        );
        return Some(("SnapshotNotFound", text));
    };
    if !means(wish, &snapshot) {
        let text = format!(
            "VMSnapshot {to:?} is another one than was there when it was asked for: leave spec.snapshot out, and name it again to go back to this one"
        );
        return Some(("SnapshotNotFound", text));
    }
    let status = snapshot.status.clone().unwrap_or_default();
    let reason = match status.phase {
        Some(Phase::Failed) => "RevertFailed",
        _ => "Reverting",
    };
    let why = condition(&status.conditions, "Ready").filter(|ready| ready.status != "True");
    let why = why.map_or_else(String::new, |ready| format!(": {}", ready.message));
    Some((reason, format!("going back to VMSnapshot {to:?}{why}")))
}

/// The VMSnapshot of a guest that has the name it wishes to go back to.
fn named(
    context: &Context,
    place: &str,
    guest: &GuestRef,
    wish: &RevertWish,
) -> Option<Arc<VMSnapshot>> {
    let found = refs::find(&context.stores.snapshots, place, &wish.to);
    found.filter(|found| found.spec.vm_ref == *guest)
}

/// Whether a guest wishes to go back to this very snapshot.
fn means(wish: &RevertWish, snapshot: &VMSnapshot) -> bool {
    let same = wish.uid.is_none() || wish.uid == snapshot.uid();
    same && wish.to == snapshot.name_any()
}

/// Whether a guest's wish to go back to a snapshot was fulfilled. One that was taken of an earlier guest of that name counts
/// wishes of that one.
fn is_reverted(context: &Context, snapshot: &VMSnapshot, wish: &RevertWish) -> bool {
    let kept = snapshot.status.as_ref().and_then(|it| it.record.as_ref());
    let target = action::target(context, &namespace(snapshot), &snapshot.spec.vm_ref);
    let Ok(guest) = target.map(Subject::from) else {
        return false;
    };
    let generation = u64::try_from(wish.generation).unwrap_or_default();
    means(wish, snapshot)
        && action::record(kept).has_reverted(guest.kept_by(), generation)
        && !has_lost_its_guest(context, snapshot)
}
