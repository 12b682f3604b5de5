//! A machine that is pinned to a node and is on another goes there; one whose node is in maintenance goes elsewhere.
//!
//! The move is a `VMMigration` like any other, made for the machine and owned by it, so that it can be seen, waited for and
//! survives a crash. It is cleared away once the machine is where it belongs, or is to go elsewhere.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use api::vm::{
    LocalRef, MIGRATION_FAILED, ManagementPolicy, Phase, VMMigration, VMMigrationSpec,
    VirtualMachine, VirtualMachineStatus, condition,
};
use fleet::NodeName;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, PostParams},
    runtime::reflector::ObjectRef,
};

use crate::{
    context::{Context, Error, namespace},
    kinds::Watches,
};

/// A machine whose move has failed is told at once.
pub(super) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let context = context.clone();
    watches.migrations.subscribe(move |migration| {
        for owner in migration.owner_references() {
            if owner.controller == Some(true) && owner.kind == VirtualMachine::kind(&()) {
                let machine = ObjectRef::new(&owner.name).within(&namespace(migration));
                context.queues.machines.push(machine);
            }
        }
    });
}

/// Sees to it that a machine is on the node its spec names. Says whether it is still elsewhere.
pub(super) async fn follow(
    context: &Context,
    machine: &VirtualMachine,
    status: &VirtualMachineStatus,
) -> Result<bool, Error> {
    let api: Api<VMMigration> = context.api_in(&namespace(machine));
    let way = match (&machine.spec.node, &status.node) {
        (Some(wanted), Some(is)) if wanted != is => Some((Some(wanted), is)),
        (None, Some(is)) if is_to_leave(context, machine, status, is) => Some((None, is)),
        _ => None,
    };
    let name = way.map(|(wanted, is)| {
        let wanted = wanted.map_or("", String::as_str);
        name(machine, is, wanted)
    });
    clear_away(context, machine, &api, name.as_deref()).await?;
    let (Some((wanted, is)), Some(name)) = (way, name) else {
        return Ok(false);
    };
    let known = ours(context, machine)
        .into_iter()
        .find(|migration| migration.name_any() == name);
    if known.is_none() {
        let migration = migration(machine, name.clone(), wanted);
        match api.create(&PostParams::default(), &migration).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                let message = match wanted {
                    Some(wanted) => format!("moving from {is} to {wanted}, as spec.node says"),
                    None => format!("moving away from {is}, which is in maintenance"),
                };
                context.normal(machine, "Moving", &message).await;
            }
        }
    }
    Ok(true)
}

/// Whether a machine has to make room, because its node is in maintenance. PVE itself moves what its HA manager looks after, and
/// what does not run is in nobody's way.
fn is_to_leave(
    context: &Context,
    machine: &VirtualMachine,
    status: &VirtualMachineStatus,
    is: &str,
) -> bool {
    machine.spec.management_policy == ManagementPolicy::Manage
        && machine.spec.ha.is_none()
        && status.power_state.as_deref() == Some("On")
        && super::recorded_cluster(status)
            .zip(NodeName::new(is.to_owned()).ok())
            .is_some_and(|(cluster, node)| context.fleet.is_left(&cluster, &node))
}

/// Removes moves that have come to an end, well or not, and say nothing about where the machine is to go now.
async fn clear_away(
    context: &Context,
    machine: &VirtualMachine,
    api: &Api<VMMigration>,
    current: Option<&str>,
) -> Result<(), Error> {
    for old in ours(context, machine) {
        let phase = old.status.as_ref().and_then(|status| status.phase);
        let ended = matches!(phase, Some(Phase::Succeeded | Phase::Failed));
        if !ended || Some(old.name_any().as_str()) == current {
            continue;
        }
        match api.delete(&old.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// Why a machine is not Ready although its guest is at rest: it is on another node than its spec says.
pub(super) fn elsewhere(
    context: &Context,
    machine: &VirtualMachine,
    is: &str,
) -> Option<(&'static str, String)> {
    let wanted = machine
        .spec
        .node
        .as_deref()
        .filter(|wanted| *wanted != is)?;
    let name = name(machine, is, wanted);
    let known = ours(context, machine)
        .into_iter()
        .find(|migration| migration.name_any() == name);
    let why = known.as_ref().and_then(|migration| {
        let status = migration.status.as_ref()?;
        let ready = condition(&status.conditions, "Ready")?;
        (status.phase == Some(Phase::Failed)).then(|| ready.message.clone())
    });
    Some(match why {
        Some(why) => (
            MIGRATION_FAILED,
            format!(
                "it is on {is} and cannot be moved to {wanted}: {why}; delete VMMigration {name:?} to try again"
            ),
        ),
        None => (
            "Migrating",
            format!("moving from {is} to {wanted} (VMMigration {name:?})"),
        ),
    })
}

/// The moves that were made for a machine.
fn ours(context: &Context, machine: &VirtualMachine) -> Vec<Arc<VMMigration>> {
    let (place, uid) = (namespace(machine), machine.uid());
    context.stores.migrations.state_filter(|migration| {
        namespace(migration) == place
            && migration
                .owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == uid.as_ref())
    })
}

/// One name for one way, however often it is asked for.
fn name(machine: &VirtualMachine, from: &str, to: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (machine.metadata.generation, from, to).hash(&mut hasher);
    let mut base = machine.name_any();
    base.truncate(50);
    format!("{base}-{:08x}", hasher.finish() & 0xffff_ffff)
}

fn migration(machine: &VirtualMachine, name: String, to: Option<&String>) -> VMMigration {
    VMMigration {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: machine.namespace(),
            owner_references: machine.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: VMMigrationSpec {
            vm_ref: LocalRef {
                name: machine.name_any(),
            },
            target_node: to.cloned(),
            with_local_disks: true,
            target_storage: None,
        },
        status: None,
    }
}
