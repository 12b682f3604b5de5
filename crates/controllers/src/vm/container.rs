//! `Container`: an LXC guest, through the same door as machines.

use std::{sync::Arc, time::Duration};

use api::vm::{
    Bytes, Container, ContainerStatus, FleetRecord, GuestRef, Phase, StepView, condition,
};
use fleet::{
    GuestIntent, GuestProgress, GuestRecord, Outcome, PowerFact,
    intent::{Container as Lxc, Disk, DiskRole, MountPoint, Source},
    record::Stage,
};
use kube::ResourceExt as _;

use super::{
    apart,
    follow::{self, Stay},
    machine::{addresses, differences, doing, is_lost},
    refs::{self, Lookup, Missing},
    snapshot, translate,
};
use crate::{
    conditions::Conditions,
    context::{Context, Error, FINALIZER, FIRST_LOOK, namespace, owner},
    kinds::Watches,
    removal,
    work::Action,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A container is looked at again when its Provider, its placement policy or the backup it is made from changes.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let (policies, changes) = (context.clone(), crate::hub::SpecChanges::new());
    watches.policies.subscribe(move |policy| {
        if !changes.is_new(policy) {
            return;
        }
        for container in policies.stores.containers.state() {
            // A policy's labels are put on containers that do not refer to it, too.
            if namespace(&*container) == namespace(policy) {
                policies.queues.containers.push_object(&container);
            }
        }
    });
    let backups = context.clone();
    watches.backups.subscribe(move |backup| {
        for container in backups.stores.containers.state() {
            let from = container.spec.restore_from.as_ref();
            let named = from.and_then(|from| from.backup_ref.as_ref());
            let reads = named.is_some_and(|named| named.name == backup.name_any());
            if reads && namespace(&*container) == namespace(backup) {
                backups.queues.containers.push_object(&container);
            }
        }
    });
    let (context, changes) = (context.clone(), crate::hub::SpecChanges::new());
    watches.providers.subscribe(move |provider| {
        if changes.is_new(provider) {
            for container in context.stores.containers.state() {
                context.queues.containers.push_object(&container);
            }
        }
    });
}

pub(super) fn record(status: &ContainerStatus) -> GuestRecord {
    let kept = status.record.as_ref();
    kept.and_then(FleetRecord::read).unwrap_or_default()
}

/// The cluster a container's guest was put on.
pub(crate) fn recorded_cluster(status: &ContainerStatus) -> Option<fleet::ClusterName> {
    record(status).identity.map(|identity| identity.cluster)
}

pub(crate) async fn reconcile(
    container: Arc<Container>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let uid = container.uid().unwrap_or_default();
    let mut before: ContainerStatus = context.statuses.newest(&uid, container.status.as_ref());
    if context.statuses.is_behind(&uid) {
        write(&context, &container, &before).await?;
    }
    let leaving = container.metadata.deletion_timestamp.is_some();
    if leaving && !container.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(Action::await_change());
    }
    if leaving {
        return remove(&context, &container, before).await;
    }
    context.hold(&*container).await?;
    snapshot::note(
        &context,
        &namespace(&*container),
        &GuestRef::container(container.name_any()),
        container.spec.snapshot.as_ref(),
        container.metadata.generation,
        &mut before.revert,
        &mut before.reverted_to,
    );
    let intent = match intent(&context, &container, &before).await {
        Ok(intent) => intent,
        Err(Lookup::Failed(error)) => return Err(error),
        Err(Lookup::Missing(missing)) => {
            context
                .warn(&*container, missing.reason, &missing.message)
                .await;
            let mut now = Conditions::new(
                &before.conditions,
                context.clock.time(),
                container.metadata.generation,
            );
            now.set("Ready", false, missing.reason, &missing.message);
            let phase = match (missing.invalid, before.vmid) {
                (true, _) => Phase::Failed,
                (false, Some(_)) => before.phase.unwrap_or_default(),
                (false, None) => Phase::Pending,
            };
            let status = ContainerStatus {
                conditions: now.done(),
                observed_generation: container.metadata.generation,
                phase: Some(phase),
                ..before.clone()
            };
            write(&context, &container, &status).await?;
            return Ok(Action::requeue(missing.retry().min(PATIENCE)));
        }
    };
    if !before.conditions.is_empty() && context.is_unseen(&intent.cluster) {
        return Ok(Action::requeue(FIRST_LOOK));
    }
    let mut status = before;
    loop {
        let progress = context.fleet.guest(&intent, &record(&status)).await;
        let outcome = progress.outcome.clone();
        context.tell(&*container, &progress.events).await;
        context
            .providers
            .log(&intent.cluster, &*container, &outcome);
        let before = std::mem::take(&mut status);
        status = report(&context, &container, &before, progress);
        write(&context, &container, &status).await?;
        announce(&context, &container, &before, &status).await;
        let moves = follow::rests(&outcome, &record(&status))
            && follow::follow(&context, &*container, &stay(&container, &status)).await?;
        match outcome {
            Outcome::Persist => {}
            Outcome::Waiting { retry, .. } => return Ok(Action::requeue(retry)),
            Outcome::Working { .. } => return Ok(Action::requeue(PATIENCE)),
            Outcome::Settled | Outcome::Failed { .. } if moves => {
                return Ok(Action::requeue(PATIENCE));
            }
            Outcome::Settled | Outcome::Gone | Outcome::Failed { .. } => {
                return Ok(Action::await_change());
            }
        }
    }
}

/// Says that a container is as declared, and why it cannot be.
async fn announce(
    context: &Context,
    container: &Container,
    before: &ContainerStatus,
    now: &ContainerStatus,
) {
    let message = |status: &ContainerStatus| {
        let ready = condition(&status.conditions, "Ready")?;
        (ready.status == "True").then(|| ready.message.clone())
    };
    if let Some(text) = message(now).filter(|_| message(before).is_none()) {
        context.normal(container, "Ready", &text).await;
    }
    if now.phase == Some(Phase::Failed) {
        let (before, now) = (&before.conditions, &now.conditions);
        context.complain(container, before, now).await;
    }
}

/// Where a container is and belongs. One that runs is restarted elsewhere when its node is in maintenance.
fn stay<'a>(container: &'a Container, status: &'a ContainerStatus) -> Stay<'a> {
    Stay {
        guest: GuestRef::container(container.name_any()),
        pinned: container.spec.node.as_deref(),
        is: status.node.as_deref(),
        cluster: recorded_cluster(status),
        makes_room: status.phase == Some(Phase::Running),
    }
}

/// What is declared of a container, with everything it refers to.
pub(super) async fn declared(
    context: &Context,
    container: &Container,
) -> Result<GuestIntent, Lookup> {
    let status = container.status.clone().unwrap_or_default();
    intent(context, container, &status).await
}

impl removal::KeepsGuest for ContainerStatus {
    fn guest(&self) -> GuestRecord {
        record(self)
    }
}

/// Brings a container's end one step nearer.
async fn remove(
    context: &Context,
    container: &Container,
    status: ContainerStatus,
) -> Result<Action, Error> {
    let spec = &container.spec;
    // Where nothing is recorded the engine looks for its mark, on the cluster the container would be on.
    let cluster = recorded_cluster(&status).or_else(|| {
        let named = spec.provider_ref.as_ref();
        let provider = refs::provider(context, &namespace(container), named, None).ok()?;
        refs::cluster(&provider).ok()
    });
    let (Some(owner), Some(cluster)) = (owner(container), cluster) else {
        // Nothing was ever chosen, so nothing was ever done.
        context.release(container).await?;
        return Ok(Action::await_change());
    };
    let name = container.name_any();
    let mut intent = GuestIntent::new(owner, cluster, name, Source::Empty);
    intent.container = Some(Lxc::default());
    intent.policy.deletion = translate::deletion(spec.deletion_policy);
    intent.policy.protected = spec.protection == Some(true);
    removal::remove(context, container, &intent, status, |before, progress| {
        let mut now = report(context, container, &before, progress.clone());
        now.phase = Some(Phase::Deleting);
        now
    })
    .await
}

async fn write(
    context: &Context,
    container: &Container,
    status: &ContainerStatus,
) -> Result<(), Error> {
    context
        .statuses
        .write(
            &context.client,
            container,
            container.status.as_ref(),
            status,
        )
        .await?;
    Ok(())
}

async fn intent(
    context: &Context,
    container: &Container,
    status: &ContainerStatus,
) -> Result<GuestIntent, Lookup> {
    let (place, spec) = (namespace(container), &container.spec);
    let record = record(status);
    let recorded = record.identity.as_ref().map(|identity| &identity.cluster);
    let provider = refs::provider(context, &place, spec.provider_ref.as_ref(), recorded)?;
    let cluster = refs::cluster(&provider)?;
    let owner =
        owner(container).ok_or_else(|| Missing::new("InvalidSpec", "the object has no UID"))?;
    let source = match source(context, &place, container) {
        // Where an identity was chosen the guest may exist, and need its origin no longer.
        Err(missing) if record.identity.is_some() => refs::forgotten(missing),
        other => other?,
    };
    let fresh = spec.restore_from.is_none();
    let nodes = context.providers.nodes(&cluster);
    let mut intent = GuestIntent::new(owner, cluster, container.name_any(), source);
    intent.hardware.cpu.cores = spec.cpus;
    let memory = spec.memory.or(fresh.then_some(Bytes::mib(512)));
    intent.hardware.memory.size = memory.map(translate::size);
    let defaults = provider.spec.defaults.clone().unwrap_or_default();
    let disk = |name: Option<&String>, field: &str| {
        let name = name.or(defaults.storage.as_ref());
        name.map(|name| translate::storage(field, name)).transpose()
    };
    let root = spec.root_fs.as_ref();
    let restored = spec
        .restore_from
        .as_ref()
        .and_then(|from| from.storage.as_ref());
    let said = root.and_then(|root| root.storage.as_ref()).or(restored);
    let size = root
        .map(|root| root.size)
        .or(fresh.then_some(Bytes::gib(8)));
    intent.disks = vec![Disk {
        name: "root".to_owned(),
        role: DiskRole::Root,
        storage: disk(said, "spec.rootFs.storage")?,
        stays: said.is_none(),
        size: size.map(translate::size),
        ..Disk::default()
    }];
    for (at, network) in spec.networks.iter().enumerate() {
        intent.nics.push(translate::container_nic(
            &format!("spec.networks[{at}]"),
            network,
            &provider,
        )?);
    }
    intent.options.description = spec.description.clone();
    let mut tags = spec.tags.clone();
    tags.extend(defaults.tags.iter().cloned());
    // Who declares no tags leaves others to put some on the guest, beside those that stand for labels.
    intent.options.keep_tags = tags.is_empty();
    let labels = container.labels();
    tags.extend(translate::label_tags(
        &apart::watched_labels(context, &place),
        |key| labels.get(key).map(String::as_str),
    ));
    tags.sort();
    tags.dedup();
    intent.options.tags = (!tags.is_empty()).then_some(tags);
    (intent.options.pool, intent.options.pool_by_default) =
        translate::pool(spec.pool.as_ref(), defaults.pool.as_ref(), &record);
    intent.options.onboot = spec.on_boot;
    intent.options.startup = spec.startup.as_ref().map(translate::startup);
    intent.options.protection = spec.protection;
    let mut mounts = Vec::new();
    for (at, mount) in spec.mount_points.iter().enumerate() {
        mounts.push(MountPoint {
            name: mount.name.clone(),
            path: mount.path.clone(),
            storage: disk(
                mount.storage.as_ref(),
                &format!("spec.mountPoints[{at}].storage"),
            )?,
            stays: mount.storage.is_none(),
            size: translate::size(mount.size),
            backup: mount.backup.unwrap_or(false),
            read_only: mount.read_only.unwrap_or(false),
        });
    }
    let password = match &spec.password_secret_ref {
        None => None,
        // Read once, when the container is made; a Secret that was cleaned up since is no loss.
        Some(_) if record.stage >= Stage::Made => None,
        Some(secret) => {
            Some(refs::password(context, &place, "spec.passwordSecretRef", secret).await?)
        }
    };
    intent.container = Some(Lxc {
        unprivileged: spec.unprivileged.unwrap_or(true),
        swap: spec.swap.map(translate::size),
        password,
        ssh_keys: spec.ssh_keys.clone(),
        features: spec.features.clone(),
        mounts,
        ..Lxc::default()
    });
    intent.power = translate::power(spec.power_state);
    let policy = match &spec.placement_ref {
        None => None,
        Some(named) => Some(
            refs::find(&context.stores.policies, &place, &named.name).ok_or_else(|| {
                Missing::new(
                    "PlacementPolicyNotFound",
                    format!(
                        "there is no VMPlacementPolicy {:?} in namespace {place:?}; create it or change spec.placementRef",
                        named.name
                    ),
                )
            })?,
        ),
    };
    let keep = apart::from(context, container, policy.as_deref(), &intent.cluster);
    let policy = policy.as_ref().map(|policy| &policy.spec);
    intent.placement = translate::placement(spec.node.as_deref(), &nodes, policy, &keep)?;
    intent.policy.deletion = translate::deletion(spec.deletion_policy);
    intent.policy.protected = spec.protection == Some(true);
    intent.vmids = translate::vmids(&provider)?;
    Ok(intent)
}

/// What the container is made from.
fn source(context: &Context, place: &str, container: &Container) -> Result<Source, Missing> {
    let spec = &container.spec;
    match (&spec.template, &spec.restore_from) {
        (Some(volume), _) => Ok(Source::ContainerTemplate {
            volume: volume.clone(),
        }),
        (None, Some(from)) => refs::backup(context, place, from),
        (None, None) => Err(Missing::new(
            "InvalidSpec",
            "give spec.template or spec.restoreFrom",
        )),
    }
}

fn report(
    context: &Context,
    container: &Container,
    before: &ContainerStatus,
    progress: GuestProgress,
) -> ContainerStatus {
    let GuestProgress {
        record,
        outcome,
        facts,
        events: _,
    } = progress;
    let generation = container.metadata.generation;
    let mut now = Conditions::new(&before.conditions, context.clock.time(), generation);
    let mut step = None;
    // What was said before was said of the spec of then.
    let said = condition(&before.conditions, "Ready").is_some();
    let leaves = container.metadata.deletion_timestamp.is_some();
    let holds = outcome == Outcome::Persist && said && !leaves;
    let seen = if holds {
        before.observed_generation
    } else {
        generation
    };
    match &outcome {
        // Only a choice was made.
        Outcome::Persist if holds => now.keep("Ready"),
        Outcome::Persist => now.set(
            "Ready",
            false,
            "Preparing",
            "choosing a place and an identity",
        ),
        Outcome::Working {
            step: kind,
            message,
        } => {
            now.set("Ready", false, doing(*kind), message);
            step = Some(message.clone());
        }
        Outcome::Waiting { what, message, .. } => {
            now.set("Ready", false, what.as_str(), message);
            step = Some(message.clone());
        }
        Outcome::Settled => {
            let pinned = container.spec.node.as_deref();
            let is = facts.node.as_ref().map(fleet::NodeName::as_str);
            let awaited = || {
                let guest = GuestRef::container(container.name_any());
                snapshot::awaited(
                    context,
                    &namespace(container),
                    &guest,
                    before.revert.as_ref(),
                    before.reverted_to.as_deref(),
                )
            };
            let elsewhere = is.and_then(|is| follow::elsewhere(context, container, pinned, is));
            match elsewhere.or_else(awaited) {
                Some((reason, message)) => now.set("Ready", false, reason, message),
                None => now.set("Ready", true, "Settled", "the container is as declared"),
            }
        }
        Outcome::Gone => now.set("Ready", false, "Gone", "the container is gone"),
        Outcome::Failed { why, message } => now.set("Ready", false, why.as_str(), message),
    }
    differences(&mut now, &facts, record.stage >= Stage::Settled);
    let resting = if facts.power == PowerFact::Stopped {
        Phase::Stopped
    } else {
        Phase::Running
    };
    let phase = match &outcome {
        Outcome::Settled => resting,
        Outcome::Failed { .. } => Phase::Failed,
        Outcome::Persist if holds => before.phase.unwrap_or_default(),
        _ if record.stage >= Stage::Settled => Phase::Updating,
        _ => Phase::Provisioning,
    };
    let task = record.in_flight.first().map(|task| task.upid.to_string());
    ContainerStatus {
        conditions: now.done(),
        observed_generation: seen,
        phase: Some(phase),
        vmid: record.identity.as_ref().map(|identity| identity.vmid.get()),
        node: facts
            .node
            .as_ref()
            .map(ToString::to_string)
            .or_else(|| before.node.clone()),
        ips: if is_lost(&outcome) {
            Vec::new()
        } else {
            addresses(&facts, &before.ips)
        },
        revert: before.revert.clone(),
        reverted_to: before.reverted_to.clone(),
        current_step: step.map(|step| StepView { step, task }),
        record: FleetRecord::of(&record),
    }
}
