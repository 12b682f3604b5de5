//! A guest that is pinned to a node and is on another goes there; one whose node is in maintenance goes elsewhere.
//!
//! The move is a `VMMigration` like any other, made for the guest's object and owned by it, so that it can be seen, waited for and
//! survives a crash. It is cleared away once the guest is where it belongs, or is to go elsewhere; and one that has not
//! begun when there is no reason for it any more is taken back.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use api::vm::{
    Container, GuestRef, MIGRATION_FAILED, Phase, VMMigration, VMMigrationSpec, VirtualMachine,
    condition,
};
use fleet::{ClusterName, Failure, GuestRecord, NodeName, Outcome, Waiting, record::Stage};
use jiff::SignedDuration;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
    runtime::reflector::ObjectRef,
};

use super::action;
use crate::{
    context::{Context, Error, namespace, owner},
    kinds::Watches,
};

/// After how long a guest that could not leave a node in maintenance tries again.
const TRIED_AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Where a guest is, and where it belongs.
pub(super) struct Stay<'a> {
    pub(super) guest: GuestRef,
    /// The one node it may be on.
    pub(super) pinned: Option<&'a str>,
    /// The node it is on.
    pub(super) is: Option<&'a str>,
    pub(super) cluster: Option<ClusterName>,
    /// It runs, and nobody else moves it when its node is in maintenance.
    pub(super) makes_room: bool,
}

/// A guest whose move has failed is told at once.
pub(super) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let context = context.clone();
    watches.migrations.subscribe(move |migration| {
        for owner in migration.owner_references() {
            let place = namespace(migration);
            if owner.controller != Some(true) {
                continue;
            }
            if owner.kind == VirtualMachine::kind(&()) {
                let machine = ObjectRef::new(&owner.name).within(&place);
                context.queues.machines.push(machine);
            } else if owner.kind == Container::kind(&()) {
                let container = ObjectRef::new(&owner.name).within(&place);
                context.queues.containers.push(container);
            }
        }
    });
}

/// Whether a guest may be moved: nothing is being done to it, though it may not be as declared, or may say nothing.
pub(super) fn rests(outcome: &Outcome, record: &GuestRecord) -> bool {
    match outcome {
        Outcome::Settled => true,
        Outcome::Waiting {
            what: Waiting::Guest,
            ..
        }
        | Outcome::Failed {
            why: Failure::Invalid,
            ..
        } => record.in_flight.is_empty() && record.stage >= Stage::Started,
        _ => false,
    }
}

/// Sees to it that a guest is on the node its spec names. Says whether it is still elsewhere.
pub(super) async fn follow<K>(context: &Context, object: &K, stay: &Stay<'_>) -> Result<bool, Error>
where
    K: Resource<DynamicType = ()>,
{
    let api: Api<VMMigration> = context.api_in(&namespace(object));
    let way = match (stay.pinned, stay.is) {
        (Some(wanted), Some(is)) if wanted != is => Some((Some(wanted), is)),
        (None, Some(is)) if is_to_leave(context, stay, is) => Some((None, is)),
        _ => None,
    };
    let name = way.map(|(wanted, is)| name(object, is, wanted.unwrap_or_default()));
    clear_away(context, object, &api, name.as_deref()).await?;
    let (Some((wanted, is)), Some(name)) = (way, name) else {
        return Ok(false);
    };
    let mut known = ours(context, object)
        .into_iter()
        .find(|migration| migration.name_any() == name);
    if wanted.is_none()
        && let Some(failed) = known.take_if(|known| is_to_be_tried_again(context, known))
    {
        // What stood in its way may have been put right, or another node may do.
        remove(context, &api, &failed).await?;
    }
    if known.is_none() {
        let migration = migration(object, stay.guest.clone(), name.clone(), wanted);
        match api.create(&PostParams::default(), &migration).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                let message = match wanted {
                    Some(wanted) => format!("moving from {is} to {wanted}, as spec.node says"),
                    None => format!("moving away from {is}, which is in maintenance"),
                };
                context.normal(object, "Moving", &message).await;
            }
        }
    }
    Ok(true)
}

/// Whether a move has failed, and that for long enough. One that stopped its guest in vain would stop it again.
fn is_to_be_tried_again(context: &Context, migration: &VMMigration) -> bool {
    let Some(status) = migration.status.as_ref() else {
        return false;
    };
    let ready = condition(&status.conditions, "Ready");
    let since = ready.map(|ready| ready.last_transition_time.0);
    let now = context.clock.now();
    status.phase == Some(Phase::Failed)
        && ready.is_none_or(|ready| ready.reason != Failure::GaveUp.as_str())
        && since.is_none_or(|since| now.duration_since(since) >= TRIED_AGAIN_AFTER)
}

/// Removes this very move, and what is remembered of it.
async fn remove(
    context: &Context,
    api: &Api<VMMigration>,
    migration: &VMMigration,
) -> Result<(), Error> {
    let this = DeleteParams::default().preconditions(Preconditions {
        uid: migration.uid(),
        resource_version: None,
    });
    match api.delete(&migration.name_any(), &this).await {
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
        other => drop(other?),
    }
    if let Some(owner) = owner(migration) {
        context.fleet.forget(&owner);
    }
    Ok(())
}

/// Whether a guest has to make room, because its node is in maintenance.
fn is_to_leave(context: &Context, stay: &Stay<'_>, is: &str) -> bool {
    let node = NodeName::new(is.to_owned()).ok();
    let there = stay.cluster.as_ref().zip(node);
    stay.makes_room && there.is_some_and(|(cluster, node)| context.fleet.is_left(cluster, &node))
}

/// Removes moves that have come to an end, well or not, or have not begun, and say nothing about where the guest is to go now.
async fn clear_away<K>(
    context: &Context,
    object: &K,
    api: &Api<VMMigration>,
    current: Option<&str>,
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()>,
{
    for old in ours(context, object) {
        let status = old.status.as_ref();
        let phase = status.and_then(|status| status.phase);
        let ended = matches!(phase, Some(Phase::Succeeded | Phase::Failed));
        let begun = action::record(status.and_then(|status| status.record.as_ref())).begun;
        if (begun && !ended) || Some(old.name_any().as_str()) == current {
            continue;
        }
        remove(context, api, &old).await?;
        if !ended {
            let message = "there is no reason to move any more";
            context.normal(object, "MoveWithdrawn", message).await;
        }
    }
    Ok(())
}

/// Why an object is not Ready although its guest is at rest: it is on another node than its spec says.
pub(super) fn elsewhere<K>(
    context: &Context,
    object: &K,
    pinned: Option<&str>,
    is: &str,
) -> Option<(&'static str, String)>
where
    K: Resource<DynamicType = ()>,
{
    let wanted = pinned.filter(|wanted| *wanted != is)?;
    let name = name(object, is, wanted);
    let known = ours(context, object)
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

/// The moves that were made for an object.
fn ours<K>(context: &Context, object: &K) -> Vec<Arc<VMMigration>>
where
    K: Resource<DynamicType = ()>,
{
    let (place, uid) = (namespace(object), object.uid());
    context.stores.migrations.state_filter(|migration| {
        namespace(migration) == place
            && migration
                .owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == uid.as_ref())
    })
}

/// One name for one way, however often it is asked for.
fn name<K>(object: &K, from: &str, to: &str) -> String
where
    K: Resource<DynamicType = ()>,
{
    let mut hasher = DefaultHasher::new();
    (object.meta().generation, from, to).hash(&mut hasher);
    let name = object.name_any();
    let base = super::shortened(&name, 50);
    format!("{base}-{:08x}", hasher.finish() & 0xffff_ffff)
}

fn migration<K>(object: &K, guest: GuestRef, name: String, to: Option<&str>) -> VMMigration
where
    K: Resource<DynamicType = ()>,
{
    VMMigration {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: object.namespace(),
            owner_references: object.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: VMMigrationSpec {
            vm_ref: guest,
            target_node: to.map(str::to_owned),
            with_local_disks: true,
            target_storage: None,
        },
        status: None,
    }
}
