//! Schedules of snapshots: what people do to them, and that they never throw away what they are to keep.

use std::collections::BTreeMap;

use api::vm::{Phase, VMSnapshot, VMSnapshotSchedule, VirtualMachine, condition};
use kube::ResourceExt;
use serde_json::json;

use super::acts::{Done, all, delete, one, patch};
use crate::{Bed, Dice};

const NAME: &str = "often";
const LABEL: &str = "infra.virtrigaud.io/schedule";

/// Makes the schedule, changes it, or deletes it.
pub(super) async fn act(bed: &Bed, dice: &mut Dice) -> Done {
    let keep = 1 + dice.below(3);
    let there = bed.api::<VMSnapshotSchedule>().get_opt(NAME).await.unwrap();
    let Some(there) = there else {
        let Some(machine) = one::<VirtualMachine>(bed, dice).await else {
            return Done::nothing("there is no machine to take snapshots of");
        };
        let name = machine.name_any();
        let document = json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1",
            "kind": "VMSnapshotSchedule",
            "metadata": { "name": NAME },
            "spec": {
                "vmRef": { "name": name }, "schedule": "* * * * *", "retention": { "maxCount": keep },
            },
        });
        bed.try_apply(&document).await.unwrap();
        return Done::a(
            "create a schedule",
            format!("a snapshot of {name} every minute, {keep} are kept"),
        );
    };
    match dice.below(5) {
        0 => {
            delete::<VMSnapshotSchedule>(bed, NAME).await;
            Done::a("delete a schedule", "delete the schedule")
        }
        1 => {
            let suspend = !there.spec.suspend;
            patch::<VMSnapshotSchedule>(bed, NAME, &json!({ "spec": { "suspend": suspend } }))
                .await;
            Done::a(
                "suspend a schedule",
                format!("the schedule is suspended: {suspend}"),
            )
        }
        _ => {
            let change = json!({ "spec": { "retention": { "maxCount": keep } } });
            patch::<VMSnapshotSchedule>(bed, NAME, &change).await;
            Done::a(
                "retention",
                format!("{keep} snapshots of the schedule are kept"),
            )
        }
    }
}

/// Nothing comes to rest under a clock.
pub(super) async fn suspend(bed: &Bed) {
    for schedule in all::<VMSnapshotSchedule>(bed).await {
        let change = json!({ "spec": { "suspend": true } });
        patch::<VMSnapshotSchedule>(bed, &schedule.name_any(), &change).await;
    }
}

/// The snapshots of a schedule that are there to stay, while nobody but the controllers is at work.
#[derive(Default)]
pub(super) struct Kept {
    most: usize,
    /// Each with the guest it was taken of.
    snapshots: Vec<(VMSnapshot, u32)>,
}

impl Kept {
    /// What is kept now.
    pub(super) async fn now(bed: &Bed) -> Self {
        let schedule = bed.api::<VMSnapshotSchedule>().get_opt(NAME).await.unwrap();
        let retention = schedule.and_then(|it| it.spec.retention);
        let Some(most) = retention.and_then(|it| it.max_count) else {
            return Self::default();
        };
        let guests = guests(bed).await;
        let mut snapshots = of_the_schedule(bed).await;
        snapshots.retain(|it| phase(it) == Some(Phase::Succeeded));
        let with_guest =
            |it: VMSnapshot| guests.get(&it.spec.vm_ref.name).map(|guest| (it, *guest));
        Self {
            most: most as usize,
            snapshots: snapshots.into_iter().filter_map(with_guest).collect(),
        }
    }

    /// Which of them are gone though their guest is not, and fewer came after them than are to be kept.
    pub(super) async fn lost(self, bed: &Bed) -> Vec<String> {
        let now = of_the_schedule(bed).await;
        let guests = guests(bed).await;
        let names: Vec<String> = now.iter().map(ResourceExt::name_any).collect();
        let mut lost = Vec::new();
        for (snapshot, guest) in self.snapshots {
            let (name, of) = (snapshot.name_any(), &snapshot.spec.vm_ref);
            let after = now.iter().filter(|it| it.spec.vm_ref == *of);
            let after = after
                .filter(|it| it.creation_timestamp() > snapshot.creation_timestamp())
                .filter(|it| was_taken(it));
            let gone = !names.contains(&name) && guests.get(&of.name) == Some(&guest);
            if gone && after.count() < self.most {
                lost.push(format!(
                    "{name} was to be kept by its schedule, but there are {names:?}"
                ));
            }
        }
        lost
    }
}

/// What must be true of the schedule when everything is at rest.
pub(super) async fn wrong(bed: &Bed) -> Vec<String> {
    let schedule = bed.api::<VMSnapshotSchedule>().get_opt(NAME).await.unwrap();
    let Some(schedule) = schedule else {
        return Vec::new();
    };
    let status = schedule.status.clone().unwrap_or_default();
    let snapshots = of_the_schedule(bed).await;
    let mut wrong = Vec::new();
    let ready = condition(&status.conditions, "Ready");
    let current = status.observed_generation == schedule.metadata.generation;
    if !current || ready.is_none_or(|ready| ready.reason != "Suspended") {
        wrong.push(format!("the schedule does not rest: {status:?}"));
    }
    if usize::try_from(status.kept.unwrap_or_default()) != Ok(snapshots.len()) {
        let (says, has) = (status.kept, snapshots.len());
        wrong.push(format!(
            "the schedule says it keeps {says:?}, but has {has}"
        ));
    }
    let mut taken: BTreeMap<&str, u32> = BTreeMap::new();
    for snapshot in snapshots
        .iter()
        .filter(|it| phase(it) == Some(Phase::Succeeded))
    {
        *taken.entry(&snapshot.spec.vm_ref.name).or_default() += 1;
    }
    let most = schedule.spec.retention.as_ref().and_then(|it| it.max_count);
    if taken.values().any(|taken| Some(*taken) > most) {
        wrong.push(format!("{taken:?} are kept of at most {most:?}"));
    }
    wrong
}

async fn of_the_schedule(bed: &Bed) -> Vec<VMSnapshot> {
    let mut snapshots = all::<VMSnapshot>(bed).await;
    snapshots.retain(|it| it.labels().get(LABEL).is_some_and(|of| of == NAME));
    snapshots
}

/// The guests that machines have, by the machine.
async fn guests(bed: &Bed) -> BTreeMap<String, u32> {
    let machines = all::<VirtualMachine>(bed).await.into_iter();
    machines
        .filter_map(|it| Some((it.name_any(), it.status.as_ref()?.vmid?)))
        .collect()
}

fn phase(snapshot: &VMSnapshot) -> Option<Phase> {
    snapshot.status.as_ref()?.phase
}

fn was_taken(snapshot: &VMSnapshot) -> bool {
    let status = snapshot.status.as_ref();
    status.is_some_and(|status| status.taken_at.is_some())
}
