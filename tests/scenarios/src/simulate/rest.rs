//! When everything has come to rest, and what resting costs.

use std::time::Duration;

use api::vm::{
    Container, Phase, VMBackup, VMClone, VMImage, VMMigration, VMRestore, VMSet, VMSnapshot,
    VirtualMachine, VirtualMachineStatus, condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt as _, api::ListParams, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use super::images;
use crate::{Bed, Tally, invariants::is_provisioned};

/// How often it is looked whether everything has come to rest: over hours of simulated time, since retries slow down.
const PATIENCE: u32 = 150;

/// Waits until every object is where it can get; says which never are.
pub(super) async fn rest(bed: &Bed) -> Vec<String> {
    let mut stuck = Vec::new();
    for look in 0..PATIENCE {
        // Most come to rest within minutes, and the others take their time.
        let pause = if look < 30 { 10 } else { 60 };
        bed.sleep(Duration::from_secs(pause)).await;
        stuck = unsettled(bed).await;
        if stuck.is_empty() {
            // What is cleaned up after readiness gets its time, too, and every guest is read once: one a minute, in turn.
            bed.sleep(Duration::from_mins(12)).await;
            stuck = unsettled(bed).await;
            if stuck.is_empty() {
                break;
            }
        }
    }
    stuck
}

/// Nothing is written while nothing happens, and Proxmox VE is asked less than once a second.
pub(super) async fn at_rest_costs_little(bed: &Bed) -> Vec<String> {
    for cluster in 0..bed.cluster_count() {
        bed.cluster(cluster).control().reset_counts();
    }
    bed.line().forget();
    bed.sleep(Duration::from_mins(5)).await;
    let mut wrong = Vec::new();
    for cluster in 0..bed.cluster_count() {
        let counts = bed.cluster(cluster).control().counts();
        let total: u64 = counts.values().sum();
        if total > 90 {
            wrong.push(format!(
                "{total} requests in five minutes at rest: {counts:#?}"
            ));
        }
    }
    let written = bed.line().kubernetes_writes();
    if !written.is_empty() {
        wrong.push(format!("written while nothing happens: {written:?}"));
    }
    wrong
}

async fn all<K>(bed: &Bed) -> Vec<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    bed.api::<K>()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
}

/// Counts what has come to what it was made for, by kind, and what has failed and why.
pub(super) async fn count_reached(bed: &Bed, tally: &mut Tally) {
    let mut count = |kind: &str, phase: Option<Phase>, conditions: &[Condition]| {
        if ready(conditions) {
            tally.add(format!("ready: {kind}"), 1);
        } else if phase == Some(Phase::Failed) {
            let why = condition(conditions, "Ready").map_or("", |ready| ready.reason.as_str());
            tally.add(format!("failed: {kind} {why}"), 1);
        }
    };
    macro_rules! count {
        ($($kind:ident)*) => {$(
            for object in all::<$kind>(bed).await {
                let status = object.status.clone().unwrap_or_default();
                count(stringify!($kind), status.phase, &status.conditions);
            }
        )*};
    }
    count!(VirtualMachine Container VMSnapshot VMMigration VMClone VMBackup VMRestore);
    for set in all::<VMSet>(bed).await {
        count("VMSet", None, &set.status.unwrap_or_default().conditions);
    }
    for image in all::<VMImage>(bed).await {
        if images::NAMES.contains(&image.name_any().as_str()) {
            count(
                "VMImage",
                None,
                &image.status.unwrap_or_default().conditions,
            );
        }
    }
}

async fn unsettled(bed: &Bed) -> Vec<String> {
    let origins = Origins {
        machines: all::<VirtualMachine>(bed).await,
        backups: all::<VMBackup>(bed).await,
        images: all::<VMImage>(bed).await,
    };
    let is_made = |name: &str| {
        let machine = origins.machine(name);
        machine.is_some_and(|machine| !origins.are_missing(machine))
    };
    let mut stuck: Vec<String> = origins
        .machines
        .iter()
        .filter(|machine| !machine_rests(machine, &origins))
        .map(|machine| format!("{} is stuck: {:?}", machine.name_any(), machine.status))
        .collect();
    let images = origins.images.iter();
    stuck.extend(images.filter_map(|image| images::unsettled(image, &origins.machines)));
    macro_rules! waits_for_its_machine {
        ($($kind:ident)*) => {$(
            for object in all::<$kind>(bed).await {
                let status = object.status.clone().unwrap_or_default();
                let over = is_over(status.phase, &status.conditions);
                let going = object.metadata.deletion_timestamp.is_some();
                if going || (!over && is_made(&object.spec.vm_ref.name)) {
                    let name = object.name_any();
                    stuck.push(format!("{} {name}: {status:?}", stringify!($kind)));
                }
            }
        )*};
    }
    waits_for_its_machine!(VMSnapshot VMMigration VMBackup);
    // What cannot be made is told of by the machine itself.
    let failed = |name: &str| {
        let machine = origins.machine(name);
        machine.is_none_or(|machine| origins.are_missing(machine))
    };
    for clone in all::<VMClone>(bed).await {
        let status = clone.status.clone().unwrap_or_default();
        let over = is_over(status.phase, &status.conditions);
        let vain = origins.machine(&clone.spec.source_vm_ref.name).is_none();
        let done = over || vain || failed(&clone.name_any());
        if clone.metadata.deletion_timestamp.is_some() || !done {
            stuck.push(format!("clone {}: {status:?}", clone.name_any()));
        }
    }
    for restore in all::<VMRestore>(bed).await {
        let status = restore.status.clone().unwrap_or_default();
        let done = is_over(status.phase, &status.conditions) || failed(&restore.spec.target_name);
        if restore.metadata.deletion_timestamp.is_some() || !done {
            stuck.push(format!("restore {}: {status:?}", restore.name_any()));
        }
    }
    for container in all::<Container>(bed).await {
        let status = container.status.clone().unwrap_or_default();
        let current = status.observed_generation == container.metadata.generation;
        let going = container.metadata.deletion_timestamp.is_some();
        if going || !current || !ready(&status.conditions) {
            stuck.push(format!("container {}: {status:?}", container.name_any()));
        }
    }
    for set in all::<VMSet>(bed).await {
        let status = set.status.clone().unwrap_or_default();
        let current = status.observed_generation == set.metadata.generation;
        let going = set.metadata.deletion_timestamp.is_some();
        let lacks_one = origins.machines.iter().any(|machine| {
            let conditions = machine.status.iter().flat_map(|it| it.conditions.clone());
            machine.labels().contains_key("app") && cannot_go_back(&conditions.collect::<Vec<_>>())
        });
        if going || !current || !(ready(&status.conditions) || lacks_one) {
            stuck.push(format!("set {}: {status:?}", set.name_any()));
        }
    }
    stuck
}

/// A guest cannot go back to what is gone, nor past a newer snapshot on every storage; it says so.
fn cannot_go_back(conditions: &[Condition]) -> bool {
    condition(conditions, "Ready").is_some_and(|ready| {
        ["SnapshotNotFound", "RevertFailed"].contains(&ready.reason.as_str())
            || ready.message.contains("delete the newer ones first")
    })
}

/// Done; or failed for a reason that nobody could have helped: nothing tells whether it was done, what it was to be
/// done to was not there any more, or PVE does not move local disks that have snapshots.
fn is_over(phase: Option<Phase>, conditions: &[Condition]) -> bool {
    let ready = condition(conditions, "Ready");
    if cannot_go_back(conditions) {
        return true;
    }
    let excused = ready.is_some_and(|ready| match ready.reason.as_str() {
        "OutcomeUnknown" | "GuestLost" | "NotOurs" => true,
        "Unsupported" => ready.message.contains("snapshot exists"),
        _ => false,
    });
    phase == Some(Phase::Succeeded) || (phase == Some(Phase::Failed) && excused)
}

fn ready(conditions: &[Condition]) -> bool {
    condition(conditions, "Ready").is_some_and(|ready| ready.status == "True")
}

/// A copy is refused when its source has grown past what was declared for it, or was made anew on another cluster.
fn copy_is_impossible(machine: &VirtualMachine) -> bool {
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    let refused = conditions
        .filter(|condition| condition.type_ == "Ready")
        .any(|ready| {
            let says = |text| ready.message.contains(text);
            says("cannot be made smaller") || says("is on another cluster")
        });
    machine.spec.clone_from.is_some() && refused
}

/// Somebody started the copy by hand before it was configured: it has read what was meant for its source, says so, and runs.
fn was_started_too_early(status: &VirtualMachineStatus) -> bool {
    let ready = condition(&status.conditions, "Ready");
    ready.is_some_and(|ready| ready.message.contains("before it was configured"))
        && status.power_state.as_deref() == Some("On")
}

/// What machines may be made of.
struct Origins {
    machines: Vec<VirtualMachine>,
    backups: Vec<VMBackup>,
    images: Vec<VMImage>,
}

impl Origins {
    fn machine(&self, name: &str) -> Option<&VirtualMachine> {
        let mut machines = self.machines.iter();
        machines.find(|machine| machine.name_any() == name)
    }

    /// What was to be copied or restored, or its image, was gone before it was, or never will be anything to copy: the machine
    /// says so, and waits.
    fn are_missing(&self, machine: &VirtualMachine) -> bool {
        let mut at = machine;
        // Copies of copies of copies; more than there are machines is a circle.
        for _ in &self.machines {
            if copy_is_impossible(at) {
                return true;
            }
            if is_provisioned(at) {
                return false;
            }
            if images::is_gone(&self.images, at) {
                return true;
            }
            let backup = at.spec.restore_from.as_ref();
            if let Some(backup) = backup.and_then(|from| from.backup_ref.as_ref()) {
                let mut backups = self.backups.iter();
                return !backups.any(|it| it.name_any() == backup.name);
            }
            let Some(from) = &at.spec.clone_from else {
                return false;
            };
            match self.machine(&from.vm_ref.name) {
                Some(source) => at = source,
                None => return true,
            }
        }
        true
    }
}

fn machine_rests(machine: &VirtualMachine, origins: &Origins) -> bool {
    let Some(status) = &machine.status else {
        return false;
    };
    if machine.metadata.deletion_timestamp.is_some() {
        return false;
    }
    origins.are_missing(machine)
        || was_started_too_early(status)
        || cannot_go_back(&status.conditions)
        || (ready(&status.conditions) && status.observed_generation == machine.metadata.generation)
}
