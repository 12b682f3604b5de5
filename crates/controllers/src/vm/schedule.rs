//! `VMSnapshotSchedule`: snapshots at set times, and only as many as are wanted.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use api::vm::{
    DeletionPolicy, GuestRef, Phase, VMSnapshot, VMSnapshotSchedule, VMSnapshotScheduleStatus,
    VMSnapshotSpec, VirtualMachine,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
    runtime::reflector::ObjectRef,
};
use serde_json::json;

use super::{made::REFUSED, snapshot};
use crate::{
    conditions::Conditions,
    context::{Context, Error, namespace, refusal},
    cron::Cron,
    kinds::Watches,
    work::Action,
};

/// The label with the name of the schedule that took a snapshot.
const SCHEDULE: &str = "infra.virtrigaud.io/schedule";
/// The label that keeps a snapshot from being removed by its schedule.
const PINNED: &str = "infra.virtrigaud.io/pinned";
/// How long a snapshot's name may be before the time is added.
const LONGEST: usize = 63 - 13;
/// A time missed by more than this (nobody was running) is not made up for.
const LATE: SignedDuration = SignedDuration::from_mins(10);
/// However far off the next time is, a schedule is looked at again by then: the clock may be set right, or the machine sleep.
const GLANCE: Duration = Duration::from_mins(5);

/// Why no snapshot is taken: a reason and a message.
type Hindered = (&'static str, String);

/// A schedule is looked at when one of its snapshots changes.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let context = context.clone();
    watches.snapshots.subscribe(move |snapshot| {
        if let Some(schedule) = snapshot.labels().get(SCHEDULE) {
            context
                .queues
                .schedules
                .push(ObjectRef::new(schedule).within(&namespace(snapshot)));
        }
    });
}

pub(crate) async fn reconcile(
    schedule: Arc<VMSnapshotSchedule>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    if schedule.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let uid = schedule.uid().unwrap_or_default();
    let before: VMSnapshotScheduleStatus = context.statuses.newest(&uid, schedule.status.as_ref());
    let generation = schedule.metadata.generation;
    let mut conditions = Conditions::new(&before.conditions, context.clock.time(), generation);
    let cron = match Cron::parse(&schedule.spec.schedule) {
        Ok(cron) => cron,
        Err(error) => {
            let message = format!("spec.schedule: {error}");
            context.warn(&*schedule, "InvalidSpec", &message).await;
            conditions.set("Ready", false, "InvalidSpec", message);
            let status = VMSnapshotScheduleStatus {
                conditions: conditions.done(),
                observed_generation: generation,
                next_schedule_time: None,
                ..before
            };
            context
                .statuses
                .write(
                    &context.client,
                    &*schedule,
                    schedule.status.as_ref(),
                    &status,
                )
                .await?;
            return Ok(Action::await_change());
        }
    };
    let now = context.clock.now();
    let created = schedule
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(now, |time| time.0);
    let last = before.last_schedule_time.as_ref().map(|time| time.0);
    let since = last.filter(|last| has_come(*last, now)).unwrap_or(created);
    let due = due(&cron, since, now).filter(|_| !schedule.spec.suspend);
    // What is too much makes room for what comes.
    let (kept, outdated) = prune(&schedule, &context, now).await?;
    let machines = machines(&schedule, &context);
    let mut last = before.last_schedule_time.clone();
    let mut refused = None;
    let asked = due.or_else(|| last.as_ref().map(|last| last.0));
    let mut open = asked.map_or_else(BTreeMap::new, |at| open(&schedule, &context, at));
    open.retain(|of, _| machines.iter().any(|machine| machine.name_any() == *of));
    if let Some(at) = due.filter(|_| !machines.is_empty()) {
        for machine in &machines {
            if open.contains_key(&machine.name_any()) {
                continue;
            }
            let hindered = take(&schedule, &context, machine, at).await?;
            refused = refused.or(hindered);
        }
        if refused.is_none() {
            last = Some(Time(at));
        }
    }
    let next = cron.next_after(now).filter(|_| !schedule.spec.suspend);
    let absent = schedule.spec.vm_ref.as_ref();
    let absent = absent.filter(|_| machines.is_empty());
    let hindered = refused.or_else(|| {
        let name = &absent?.name;
        let text = format!("there is no VirtualMachine {name:?} with a guest in this namespace");
        Some(("MachineNotFound", text))
    });
    let again = hindered.is_some() && next.is_some();
    let hindered = hindered.or_else(|| skipped(&open));
    match (schedule.spec.suspend, next, &hindered) {
        (true, _, _) => {
            conditions.set("Ready", true, "Suspended", "no snapshots are taken for now");
        }
        (false, None, _) => conditions.set(
            "Ready",
            false,
            "Never",
            "spec.schedule names a time that never comes",
        ),
        (false, Some(_), Some((reason, message))) => {
            conditions.set("Ready", false, reason, message);
        }
        (false, Some(next), None) if machines.is_empty() => {
            let message = format!("next at {next}; no machine is selected at present");
            conditions.set("Ready", true, "Scheduled", message);
        }
        (false, Some(next), None) => {
            conditions.set("Ready", true, "Scheduled", format!("next at {next}"));
        }
    }
    let status = VMSnapshotScheduleStatus {
        conditions: conditions.done(),
        observed_generation: generation,
        last_schedule_time: last,
        next_schedule_time: next.map(Time),
        kept: i32::try_from(kept).ok(),
    };
    context
        .complain(&*schedule, &before.conditions, &status.conditions)
        .await;
    context
        .statuses
        .write(
            &context.client,
            &*schedule,
            schedule.status.as_ref(),
            &status,
        )
        .await?;
    let soonest = next.into_iter().chain(outdated).min();
    let action = soonest.map_or_else(Action::await_change, |next| {
        let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default();
        Action::requeue(wait + Duration::from_secs(1)).within(GLANCE)
    });
    Ok(if again {
        action.within(REFUSED)
    } else {
        action
    })
}

/// Whether a time that was noted has come, as far as clocks agree: one noted by a clock that was far ahead means nothing.
fn has_come(noted: Timestamp, now: Timestamp) -> bool {
    noted.duration_since(now) <= LATE
}

/// The latest time that has come since a moment and is not too long ago.
fn due(cron: &Cron, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let earliest = now.checked_sub(LATE).unwrap_or(now);
    let mut found = None;
    let mut at = since.max(earliest);
    while let Some(next) = cron.next_after(at).filter(|next| *next <= now) {
        (found, at) = (Some(next), next);
    }
    found
}

fn machines(schedule: &VMSnapshotSchedule, context: &Context) -> Vec<Arc<VirtualMachine>> {
    let place = namespace(schedule);
    context.stores.machines.state_filter(|machine| {
        let chosen = match &schedule.spec.vm_ref {
            Some(one) => machine.name_any() == one.name,
            None => schedule
                .spec
                .selector
                .iter()
                .all(|(k, v)| machine.labels().get(k) == Some(v)),
        };
        let exists = machine
            .status
            .as_ref()
            .is_some_and(|status| status.vmid.is_some());
        namespace(machine) == place
            && chosen
            && exists
            && machine.metadata.deletion_timestamp.is_none()
    })
}

/// Snapshots from before a time that are still to be taken, one for each machine. Others after it would show the same moment: while
/// Proxmox VE is away they would only pile up.
fn open(
    schedule: &VMSnapshotSchedule,
    context: &Context,
    at: Timestamp,
) -> BTreeMap<String, String> {
    let mut open = BTreeMap::new();
    for snapshot in ours(schedule, context) {
        let of = &snapshot.spec.vm_ref;
        let now = names(&schedule.name_any(), &of.name, at);
        let name = snapshot.name_any();
        if snapshot::is_open(&snapshot) && !now.contains(&name) {
            open.entry(of.name.clone()).or_insert(name);
        }
    }
    open
}

/// Says that the last snapshots were not made because earlier ones are still to be taken.
fn skipped(open: &BTreeMap<String, String>) -> Option<Hindered> {
    let (machine, name) = open.first_key_value()?;
    let others = match open.len() - 1 {
        0 => String::new(),
        count => format!(", nor of {count} others"),
    };
    let text = format!("no further snapshot of {machine}: {name} is not taken yet{others}");
    Some(("Skipped", text))
}

/// The snapshots of a schedule.
fn ours(schedule: &VMSnapshotSchedule, context: &Context) -> Vec<Arc<VMSnapshot>> {
    let (place, name) = (namespace(schedule), schedule.name_any());
    context.stores.snapshots.state_filter(|snapshot| {
        namespace(snapshot) == place
            && snapshot.labels().get(SCHEDULE) == Some(&name)
            && snapshot.metadata.deletion_timestamp.is_none()
    })
}

/// Takes a snapshot of one machine, or says why it cannot.
async fn take(
    schedule: &VMSnapshotSchedule,
    context: &Context,
    machine: &VirtualMachine,
    at: Timestamp,
) -> Result<Option<Hindered>, Error> {
    let api: Api<VMSnapshot> = context.api_in(&namespace(schedule));
    let mut snapshot = VMSnapshot {
        metadata: ObjectMeta {
            labels: Some(BTreeMap::from([(SCHEDULE.to_owned(), schedule.name_any())])),
            ..ObjectMeta::default()
        },
        spec: VMSnapshotSpec {
            vm_ref: GuestRef::machine(machine.name_any()),
            description: schedule.spec.description.clone(),
            include_memory: schedule.spec.include_memory,
            deletion_policy: DeletionPolicy::Delete,
        },
        status: None,
    };
    let names = names(&schedule.name_any(), &machine.name_any(), at);
    for name in &names {
        snapshot.metadata.name = Some(name.clone());
        match api.create(&PostParams::default(), &snapshot).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = api.get_opt(name).await?;
                if there.is_none_or(|there| there.spec.vm_ref == snapshot.spec.vm_ref) {
                    return Ok(None);
                }
            }
            Err(error) => {
                let Some(message) = refusal(&error) else {
                    return Err(error.into());
                };
                let text = format!("VMSnapshot {name} is refused: {message}");
                return Ok(Some(("Refused", text)));
            }
            Ok(_) => {
                let text = format!("made VMSnapshot {name}");
                context.normal(schedule, "Taken", &text).await;
                return Ok(None);
            }
        }
    }
    let message = format!(
        "no snapshot of {}: the names {} are taken by snapshots of other machines",
        machine.name_any(),
        names.join(" and ")
    );
    Ok(Some(("NameTaken", message)))
}

/// Names for a snapshot: the readable one unless it is too long, and one that no other machine's can be like.
///
/// They hold the time, so that a time is taken once however often it is tried.
fn names(schedule: &str, machine: &str, at: Timestamp) -> Vec<String> {
    let stamp = at.strftime("%Y%m%d%H%M");
    let plain = format!("{schedule}-{machine}");
    let mut hasher = DefaultHasher::new();
    (schedule, machine).hash(&mut hasher);
    let short = super::shortened(&plain, LONGEST - 9);
    let distinct = format!("{short}-{:08x}", hasher.finish() & 0xffff_ffff);
    let all = [plain, distinct].into_iter();
    all.filter(|name| name.len() <= LONGEST)
        .map(|name| format!("{name}-{stamp}"))
        .collect()
}

/// Removes what is too much or too old; returns how many stay, and when the first of them will be too old.
///
/// The newest good one of a machine never goes for its age: when no others are taken it is all there is to go back to, and an age is
/// only what two clocks say.
async fn prune(
    schedule: &VMSnapshotSchedule,
    context: &Context,
    now: Timestamp,
) -> Result<(usize, Option<Timestamp>), Error> {
    let retention = schedule.spec.retention.clone().unwrap_or_default();
    let mut by_machine: BTreeMap<String, Vec<Arc<VMSnapshot>>> = BTreeMap::new();
    for snapshot in ours(schedule, context) {
        by_machine
            .entry(snapshot.spec.vm_ref.name.clone())
            .or_default()
            .push(snapshot);
    }
    let most = retention.max_age_hours;
    let most = most.map(|hours| SignedDuration::from_hours(hours.into()));
    let (mut excess, mut kept, mut outdated) = (Vec::new(), 0, None);
    for snapshots in by_machine.values_mut() {
        snapshots.sort_by_key(|snapshot| {
            std::cmp::Reverse(
                snapshot
                    .metadata
                    .creation_timestamp
                    .as_ref()
                    .map(|time| time.0),
            )
        });
        let (mut good, mut bad) = (0, 0);
        for snapshot in snapshots {
            let taken = snapshot
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(now, |time| time.0);
            let age = now.duration_since(taken);
            let pinned = snapshot
                .labels()
                .get(PINNED)
                .is_some_and(|value| value == "true");
            let ready = snapshot
                .status
                .as_ref()
                .is_some_and(|s| s.phase == Some(Phase::Succeeded));
            // Only finished ones count, so that a failing schedule does not push the good ones out.
            good += u32::from(ready);
            // Of those that could not be taken the last one tells why.
            let failed = snapshot::has_failed(snapshot, snapshot.status.as_ref());
            bad += u32::from(failed);
            // One that was taken and went with its guest is good for nothing any more.
            let lost = snapshot::is_lost(snapshot);
            let too_many = retention.max_count.is_some_and(|most| good > most);
            let is_newest = ready && good == 1;
            let too_old = !is_newest && most.is_some_and(|most| age > most);
            let stale = failed && (bad > 1 || too_old);
            if !pinned && (lost || stale || ready && (too_many || too_old)) {
                excess.push(snapshot.clone());
            } else {
                kept += 1;
                if ready && !pinned && !is_newest {
                    let end = most.and_then(|most| taken.checked_add(most).ok());
                    outdated = outdated.into_iter().chain(end).min();
                }
            }
        }
    }
    let stay = remove(schedule, context, &excess).await?;
    if stay > 0 {
        // Somebody was faster: it is looked again.
        outdated = Some(now);
    }
    Ok((kept + stay, outdated))
}

/// Removes snapshots, unless somebody has changed them or the schedule since they were looked at; returns how many stay.
///
/// Of those whose guest is not a machine's any more only the objects go: a guest that was retained keeps what was taken of it.
async fn remove(
    schedule: &VMSnapshotSchedule,
    context: &Context,
    excess: &[Arc<VMSnapshot>],
) -> Result<usize, Error> {
    if excess.is_empty() {
        return Ok(0);
    }
    let name = schedule.name_any();
    let now = context.api(schedule).get_opt(&name).await?;
    let is_same = |now: VMSnapshotSchedule| {
        now.uid() == schedule.uid() && now.metadata.generation == schedule.metadata.generation
    };
    if !now.is_some_and(is_same) {
        return Ok(excess.len());
    }
    let api: Api<VMSnapshot> = context.api_in(&namespace(schedule));
    let mut kept = 0;
    for snapshot in excess {
        let name = snapshot.name_any();
        let mut version = snapshot.resource_version();
        if snapshot::is_lost(snapshot) && snapshot.spec.deletion_policy == DeletionPolicy::Delete {
            let keep = json!({
                "metadata": { "uid": snapshot.uid(), "resourceVersion": version },
                "spec": { "deletionPolicy": DeletionPolicy::Retain },
            });
            let params = PatchParams::default();
            match api.patch(&name, &params, &Patch::Merge(&keep)).await {
                Ok(kept) => version = kept.resource_version(),
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    kept += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let as_seen = DeleteParams::default().preconditions(Preconditions {
            uid: snapshot.uid(),
            resource_version: version,
        });
        match api.delete(&name, &as_seen).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(status)) if status.code == 409 => kept += 1,
            other => drop(other?),
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_with_alike_long_names_have_snapshots_of_their_own() {
        let at: Timestamp = "2026-01-01T03:00:00Z".parse().unwrap();
        assert_eq!(names("daily", "web", at)[0], "daily-web-202601010300");
        let long = "a-database-server-of-the-accounting-department-number";
        let first = names("daily", &format!("{long}-1"), at);
        let second = names("daily", &format!("{long}-2"), at);
        assert_eq!((first.len(), second.len()), (1, 1));
        assert_ne!(first, second);
        assert!(
            first[0].len() <= 63 && first[0].ends_with("-202601010300"),
            "{first:?}"
        );
        // Alike without being long: the second name tells them apart.
        let (one, other) = (names("a-b", "c", at), names("a", "b-c", at));
        assert_eq!(one[0], other[0]);
        assert_ne!(one[1], other[1]);
    }
}
