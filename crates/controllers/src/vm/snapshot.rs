//! `VMSnapshot`: taken once, gone back to on request, removed with its object.

mod revert;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use api::vm::{
    DeletionPolicy, FleetRecord, GuestRef, Phase, RevertWish, VMSnapshot, VMSnapshotStatus,
    condition,
};
use fleet::{
    ActionRecord, ClusterName, Failure, Outcome,
    intent::{SnapshotIntent, SnapshotWish},
    record::Subject,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use self::revert::wish;
pub(super) use self::revert::{awaited, note};
use super::{
    action::{self, Target},
    refs::{self, Missing},
};
use crate::{
    conditions::Conditions,
    context::{Context, Error, FINALIZER, FIRST_LOOK, namespace, owner},
    kinds::Watches,
    work::Action,
};

/// The condition that says that a snapshot is not what its spec says now.
const AS_DECLARED: &str = "AsDeclared";
/// After how long a removal that failed is tried again.
const NOT_REMOVED: Duration = Duration::from_mins(1);
/// The longest name PVE gives a snapshot.
const LONGEST: usize = 40;

/// Snapshots are looked at again when their guest changes, or one that builds on them comes or goes.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let again = |context: &Arc<Context>| {
        let context = context.clone();
        move |place: &str, guest: &GuestRef, phase: Option<Phase>, wish: Option<&RevertWish>| {
            for snapshot in context.stores.snapshots.state() {
                if namespace(&*snapshot) != place || snapshot.spec.vm_ref != *guest {
                    continue;
                }
                let failed = has_failed(&snapshot, snapshot.status.as_ref());
                let open = !is_settled(&snapshot) && !failed;
                let wished = wish.is_some_and(|wish| wish.to == snapshot.name_any());
                let may_be_lost = phase == Some(Phase::Failed) && !is_lost(&snapshot);
                if open || wished || may_be_lost || has_lost_its_guest(&context, &snapshot) {
                    context.queues.snapshots.push_object(&snapshot);
                }
            }
        }
    };
    // A guest says how far it is on its way back.
    let travellers = context.clone();
    watches.snapshots.subscribe(move |snapshot| {
        let target = action::target(&travellers, &namespace(snapshot), &snapshot.spec.vm_ref);
        if let Ok(target) = target
            && let Some(wish) = target.guest.revert()
            && wish.to == snapshot.name_any()
        {
            target.guest.look_again(&travellers);
        }
    });
    let parents = context.clone();
    watches.snapshots.subscribe(move |child| {
        let status = child.status.as_ref();
        let Some(name) = status.and_then(|status| status.parent.as_deref()) else {
            return;
        };
        let leaves = child.metadata.deletion_timestamp.is_some();
        for parent in parents.stores.snapshots.state() {
            let status = parent.status.clone().unwrap_or_default();
            if namespace(&*parent) == namespace(child)
                && parent.spec.vm_ref == child.spec.vm_ref
                && status.snapshot_name.as_deref() == Some(name)
                && status.children.contains(&child.name_any()) == leaves
            {
                parents.queues.snapshots.push_object(&parent);
            }
        }
    });
    let look = again(context);
    watches.machines.subscribe(move |machine| {
        let guest = GuestRef::machine(machine.name_any());
        let status = machine.status.as_ref();
        let wish = status.and_then(|status| status.revert.as_ref());
        let phase = status.and_then(|status| status.phase);
        look(&namespace(machine), &guest, phase, wish);
    });
    let look = again(context);
    watches.containers.subscribe(move |container| {
        let guest = GuestRef::container(container.name_any());
        let status = container.status.as_ref();
        let wish = status.and_then(|status| status.revert.as_ref());
        let phase = status.and_then(|status| status.phase);
        look(&namespace(container), &guest, phase, wish);
    });
}

fn is_settled(snapshot: &VMSnapshot) -> bool {
    snapshot
        .status
        .as_ref()
        .is_some_and(|status| status.phase == Some(Phase::Succeeded))
}

/// Whether nothing could be taken as it is declared. It is not tried again by itself: what it would be taken of by then is not
/// what it was asked for.
pub(super) fn has_failed(snapshot: &VMSnapshot, status: Option<&VMSnapshotStatus>) -> bool {
    status.is_some_and(|status| {
        status.phase == Some(Phase::Failed)
            && status.observed_generation == snapshot.metadata.generation
            && !action::record(status.record.as_ref()).done
    })
}

/// Whether it is still to be taken.
pub(super) fn is_open(snapshot: &VMSnapshot) -> bool {
    let status = snapshot.status.as_ref();
    let record = action::record(status.and_then(|status| status.record.as_ref()));
    !record.done && !has_failed(snapshot, status)
}

/// The cluster that something is to be removed from when the object goes. What was never taken, or has gone with its guest, needs
/// nothing there.
pub(super) fn is_kept_on(snapshot: &VMSnapshot) -> Option<ClusterName> {
    let goes = snapshot.spec.deletion_policy == DeletionPolicy::Delete;
    let leaves = snapshot.metadata.deletion_timestamp.is_some();
    let is_there = !is_lost(snapshot) && !has_failed(snapshot, snapshot.status.as_ref());
    if !goes || !(leaves || is_there) {
        return None;
    }
    let kept = snapshot.status.as_ref().and_then(|it| it.record.as_ref());
    action::record(kept).subject.map(|of| of.cluster)
}

/// Whether it was taken and is known to be there no longer. That nothing is known of it just now, because its cluster was not
/// looked at yet or does not answer, or because its guest is on the way back to it, is not that.
pub(super) fn is_lost(snapshot: &VMSnapshot) -> bool {
    let Some(status) = snapshot.status.as_ref() else {
        return false;
    };
    let ready = condition(&status.conditions, "Ready");
    status.phase == Some(Phase::Failed)
        && ready.is_some_and(|ready| ready.reason == Failure::Lost.as_str())
        && action::record(status.record.as_ref()).done
}

/// Whether the guest that its object names is not there any more, or another than the snapshot was taken of.
fn has_lost_its_guest(context: &Context, snapshot: &VMSnapshot) -> bool {
    let kept = snapshot.status.as_ref().and_then(|it| it.record.as_ref());
    let taken_of = action::record(kept).subject;
    let target = action::target(context, &namespace(snapshot), &snapshot.spec.vm_ref);
    taken_of.is_some_and(|of| target.map_or(true, |target| !of.is(&Subject::from(target))))
}

pub(crate) async fn reconcile(
    snapshot: Arc<VMSnapshot>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let uid = snapshot.uid().unwrap_or_default();
    let mut status: VMSnapshotStatus = context.statuses.newest(&uid, snapshot.status.as_ref());
    if context.statuses.is_behind(&uid) {
        write(&context, &snapshot, &status).await?;
    }
    let leaving = snapshot.metadata.deletion_timestamp.is_some();
    if leaving && !snapshot.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(Action::await_change());
    }
    if !leaving {
        context.hold(&*snapshot).await?;
    }
    if !leaving && has_failed(&snapshot, Some(&status)) {
        return Ok(Action::await_change());
    }
    if leaving && snapshot.spec.deletion_policy != DeletionPolicy::Delete {
        context.release(&*snapshot).await?;
        return Ok(Action::await_change());
    }
    let place = namespace(&*snapshot);
    let done = action::record(status.record.as_ref()).done;
    let target = action::target(&context, &place, &snapshot.spec.vm_ref);
    let wanted = match target {
        target if leaving => {
            let Some(subject) = taken_of(&context, &status, target.ok()) else {
                context.release(&*snapshot).await?;
                return Ok(Action::await_change());
            };
            intent(&snapshot, &status, subject, SnapshotWish::Absent)
        }
        Ok(target) => {
            let may = refs::may_use(&context, &place, &target.cluster);
            if let Err(missing) = &may
                && !done
            {
                return wait(&context, &snapshot, &status, missing).await;
            }
            let wish = wish(&snapshot, &status, &target, may.is_ok());
            intent(&snapshot, &status, Subject::from(target), wish)
        }
        Err(missing) if done => {
            return lost(&context, &snapshot, &status, &missing).await;
        }
        Err(missing) => return wait(&context, &snapshot, &status, &missing).await,
    };
    let Some(intent) = wanted else {
        return Ok(Action::await_change());
    };
    if !leaving && !status.conditions.is_empty() && context.is_unseen(&intent.cluster) {
        return Ok(Action::requeue(FIRST_LOOK));
    }
    loop {
        let progress = context
            .fleet
            .snapshot(&intent, &action::record(status.record.as_ref()))
            .await;
        context.tell(&*snapshot, &progress.events).await;
        if leaving && progress.outcome == Outcome::Gone {
            context.fleet.forget(&intent.owner);
            context.release(&*snapshot).await?;
            return Ok(Action::await_change());
        }
        let mut now = Conditions::new(
            &status.conditions,
            context.clock.time(),
            snapshot.metadata.generation,
        );
        let done = format!("snapshot {} is kept", intent.name);
        let mut phase = action::outcome(&mut now, &progress.outcome, &done, &progress.facts);
        if leaving {
            phase = Phase::Deleting;
        }
        as_declared(&mut now, &snapshot, &progress.record);
        let taken = progress
            .facts
            .created
            .and_then(|at| Timestamp::from_second(i64::try_from(at).ok()?).ok());
        status = VMSnapshotStatus {
            conditions: now.done(),
            observed_generation: snapshot.metadata.generation,
            phase: Some(phase),
            snapshot_name: Some(intent.name.clone()),
            taken_at: taken.map(Time).or(status.taken_at),
            parent: progress.facts.parent.clone().or(status.parent),
            children: children(&context, &place, &snapshot.spec.vm_ref, &intent.name),
            memory: progress.facts.memory.or(status.memory),
            record: FleetRecord::of(&progress.record),
        };
        write(&context, &snapshot, &status).await?;
        match progress.outcome {
            Outcome::Persist => {}
            // Its guest may be nobody's by now, and nobody tells of a change.
            Outcome::Failed { .. } if leaving => return Ok(Action::requeue(NOT_REMOVED)),
            outcome => return Ok(action::next(&outcome)),
        }
    }
}

/// Nothing can be taken yet.
async fn wait(
    context: &Context,
    snapshot: &VMSnapshot,
    before: &VMSnapshotStatus,
    missing: &Missing,
) -> Result<Action, Error> {
    let why = (missing.reason, missing.message.as_str());
    say_not(context, snapshot, before, why, Phase::Pending).await?;
    Ok(Action::requeue(Duration::from_mins(5)))
}

/// What was taken went with its guest.
async fn lost(
    context: &Context,
    snapshot: &VMSnapshot,
    before: &VMSnapshotStatus,
    missing: &Missing,
) -> Result<Action, Error> {
    let text = format!(
        "{}: the guest of which this was taken is no longer kept here, and took its snapshots along unless it was retained",
        missing.message
    );
    let why = (Failure::Lost.as_str(), text.as_str());
    say_not(context, snapshot, before, why, Phase::Failed).await?;
    Ok(Action::await_change())
}

/// Says why there is no snapshot.
async fn say_not(
    context: &Context,
    snapshot: &VMSnapshot,
    before: &VMSnapshotStatus,
    (reason, message): (&str, &str),
    phase: Phase,
) -> Result<(), Error> {
    context.warn(snapshot, reason, message).await;
    let mut now = Conditions::new(
        &before.conditions,
        context.clock.time(),
        snapshot.metadata.generation,
    );
    now.set("Ready", false, reason, message);
    let status = VMSnapshotStatus {
        conditions: now.done(),
        observed_generation: snapshot.metadata.generation,
        phase: Some(phase),
        ..before.clone()
    };
    write(context, snapshot, &status).await
}

async fn write(
    context: &Context,
    snapshot: &VMSnapshot,
    status: &VMSnapshotStatus,
) -> Result<(), Error> {
    context
        .statuses
        .write(&context.client, snapshot, snapshot.status.as_ref(), status)
        .await?;
    Ok(())
}

/// The guest to remove a snapshot from: the one it was taken of, also if its object names another by now or is gone, for it may have
/// been let go with its snapshots. Nothing was taken of one that never was, and without its Provider there is no way there.
fn taken_of(
    context: &Context,
    status: &VMSnapshotStatus,
    target: Option<Target>,
) -> Option<Subject> {
    let target = target.map(Subject::from);
    let Some(of) = action::record(status.record.as_ref()).subject else {
        return target;
    };
    if let Some(target) = target.filter(|target| of.is(target)) {
        return Some(target);
    }
    let (place, name) = of.cluster.as_str().split_once('/')?;
    refs::find(&context.stores.providers, place, name)?;
    Some(of)
}

fn intent(
    snapshot: &VMSnapshot,
    status: &VMSnapshotStatus,
    subject: Subject,
    wish: SnapshotWish,
) -> Option<SnapshotIntent> {
    let known = status.snapshot_name.clone();
    Some(SnapshotIntent {
        owner: owner(snapshot)?,
        cluster: subject.cluster,
        guest: subject.guest,
        guest_owner: subject.owner,
        guest_keeper: subject.keeper,
        likeness: subject.likeness,
        name: known.unwrap_or_else(|| pve_name(&snapshot.name_any())),
        description: snapshot.spec.description.clone().unwrap_or_default(),
        memory: snapshot.spec.include_memory,
        wish,
    })
}

/// VMSnapshots whose snapshot builds on this one.
fn children(context: &Context, place: &str, guest: &GuestRef, name: &str) -> Vec<String> {
    let all = context.stores.snapshots.state_filter(|other| {
        namespace(other) == place
            && other.metadata.deletion_timestamp.is_none()
            && other.spec.vm_ref == *guest
            && other
                .status
                .as_ref()
                .is_some_and(|status| status.parent.as_deref() == Some(name))
    });
    let mut names: Vec<String> = all.iter().map(|other| other.name_any()).collect();
    names.sort();
    names
}

/// The name a snapshot has on PVE: a letter first, then letters, digits, `_` and `-`, at most 40.
fn pve_name(name: &str) -> String {
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
            c
        } else {
            '_'
        }
    };
    let mut text: String = name.chars().map(fit).collect();
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        text.insert_str(0, "s-");
    }
    if text.len() > LONGEST || text != name {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        text.truncate(LONGEST - 9);
        text = format!("{text}-{:08x}", hasher.finish() & 0xffff_ffff);
    }
    if text.len() < 2 {
        format!("{text}-snapshot")
    } else {
        text
    }
}

/// Says so when the spec was changed to what a snapshot that was taken cannot become any more.
fn as_declared(now: &mut Conditions, snapshot: &VMSnapshot, record: &ActionRecord) {
    let (declared, taken) = (snapshot.spec.include_memory, record.facts.memory);
    // A guest that was off had no memory to keep.
    let (reason, message) = match (record.done, declared, taken) {
        (true, false, Some(true)) => (
            "MemoryIncluded",
            "it was taken with memory; make another VMSnapshot to have one without",
        ),
        (true, true, Some(false)) => (
            "MemoryNotIncluded",
            "it was taken without memory, because the guest was off or it was not asked for then; \
             make another VMSnapshot to have one with it",
        ),
        _ => return,
    };
    now.set(AS_DECLARED, false, reason, message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_name_becomes_a_name_pve_accepts() {
        assert_eq!(pve_name("before-upgrade"), "before-upgrade");
        for odd in ["2026.01", "a", "x.y", &"long-".repeat(12)] {
            let name = pve_name(odd);
            assert!(
                name.starts_with(|c: char| c.is_ascii_alphabetic()),
                "{name}"
            );
            assert!((2..=40).contains(&name.len()), "{name}");
            assert!(
                name.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)),
                "{name}"
            );
        }
        assert_ne!(pve_name("x.y"), pve_name("x_y"));
    }
}
