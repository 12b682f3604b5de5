//! `VMMigration` and `VMBackup`: done once.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use api::vm::{
    BackupCompression, BackupMode as Mode, Bytes, DeletionPolicy, FleetRecord, GuestRef, Phase,
    VMBackup, VMBackupStatus, VMMigration, VMMigrationStatus,
};
use fleet::{
    NodeName, Outcome,
    intent::{BackupIntent, BackupMode, Compression, MigrationIntent, Placement},
    record::Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::{
    action::{self, Target},
    refs::{self, Lookup, Missing},
    translate::{Invalid, storage},
};
use crate::{
    conditions::Conditions,
    context::{Context, Error, FINALIZER, namespace, owner},
    kinds::Watches,
    work::Action,
};

/// Both wait for their guest.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let again = |context: &Arc<Context>| {
        let context = context.clone();
        move |place: &str, guest: &GuestRef| {
            for migration in context.stores.migrations.state() {
                let phase = migration.status.as_ref().and_then(|status| status.phase);
                let there = namespace(&*migration) == place;
                if there && migration.spec.vm_ref == *guest && is_open(phase) {
                    context.queues.migrations.push_object(&migration);
                }
            }
            for backup in context.stores.backups.state() {
                let phase = backup.status.as_ref().and_then(|status| status.phase);
                let there = namespace(&*backup) == place;
                if there && backup.spec.vm_ref == *guest && is_open(phase) {
                    context.queues.backups.push_object(&backup);
                }
            }
        }
    };
    let look = again(context);
    watches.machines.subscribe(move |machine| {
        look(&namespace(machine), &GuestRef::machine(machine.name_any()));
    });
    let look = again(context);
    watches.containers.subscribe(move |container| {
        look(
            &namespace(container),
            &GuestRef::container(container.name_any()),
        );
    });
}

fn is_open(phase: Option<Phase>) -> bool {
    !matches!(phase, Some(Phase::Succeeded | Phase::Failed))
}

/// Whether there is nothing left to do. What failed is not begun again because somebody looks at it, but when its spec changes.
fn has_ended(phase: Option<Phase>, observed: Option<i64>, generation: Option<i64>) -> bool {
    match phase {
        Some(Phase::Succeeded) => true,
        Some(Phase::Failed) => observed == generation,
        _ => false,
    }
}

fn unresolved(
    context: &Context,
    before: &[Condition],
    generation: Option<i64>,
    missing: &Missing,
) -> (Vec<Condition>, Phase) {
    let mut now = Conditions::new(before, context.clock.time(), generation);
    now.set("Ready", false, missing.reason, &missing.message);
    (
        now.done(),
        if missing.invalid {
            Phase::Failed
        } else {
            Phase::Pending
        },
    )
}

pub(crate) async fn reconcile(
    migration: Arc<VMMigration>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    if migration.metadata.deletion_timestamp.is_some() {
        // A task that was started runs to its end; nothing is left behind on PVE.
        return Ok(Action::await_change());
    }
    let uid = migration.uid().unwrap_or_default();
    let generation = migration.metadata.generation;
    let mut status: VMMigrationStatus = context.statuses.newest(&uid, migration.status.as_ref());
    if context.statuses.is_behind(&uid) {
        let stored = migration.status.as_ref();
        let written = context
            .statuses
            .write(&context.client, &*migration, stored, &status);
        written.await?;
    }
    if has_ended(status.phase, status.observed_generation, generation) {
        return Ok(Action::await_change());
    }
    let place = namespace(&*migration);
    let chosen = action::record(status.record.as_ref()).target.is_some();
    let (intent, target) = match wanted(&context, &place, &migration, chosen).await {
        Ok(found) => found,
        Err(Lookup::Failed(error)) => return Err(error),
        Err(Lookup::Missing(missing)) => {
            context
                .warn(&*migration, missing.reason, &missing.message)
                .await;
            let (conditions, phase) =
                unresolved(&context, &status.conditions, generation, &missing);
            status = VMMigrationStatus {
                conditions,
                observed_generation: generation,
                phase: Some(phase),
                ..status
            };
            context
                .statuses
                .write(
                    &context.client,
                    &*migration,
                    migration.status.as_ref(),
                    &status,
                )
                .await?;
            return Ok(Action::requeue(Duration::from_mins(5)));
        }
    };
    loop {
        let progress = context
            .fleet
            .migrate(&intent, &action::record(status.record.as_ref()))
            .await;
        context.tell(&*migration, &progress.events).await;
        let mut now = Conditions::new(&status.conditions, context.clock.time(), generation);
        let done = format!("{} is", migration.spec.vm_ref.name);
        let phase = action::outcome(&mut now, &progress.outcome, &done, &progress.facts);
        let to = progress
            .record
            .target
            .as_ref()
            .or(intent.target.as_ref())
            .map(ToString::to_string);
        status = VMMigrationStatus {
            conditions: now.done(),
            observed_generation: generation,
            phase: Some(phase),
            source_node: status.source_node.or_else(|| target.node.clone()),
            target_node: to.or(status.target_node),
            record: FleetRecord::of(&progress.record),
        };
        context
            .statuses
            .write(
                &context.client,
                &*migration,
                migration.status.as_ref(),
                &status,
            )
            .await?;
        if progress.outcome != Outcome::Persist {
            if progress.outcome.is_done() {
                target.guest.look_again(&context);
            }
            return Ok(action::next(&progress.outcome));
        }
    }
}

/// What a migration asks for, and of which guest. Until the node is `chosen`, what is declared of the guest must be known where it
/// matters.
async fn wanted(
    context: &Context,
    place: &str,
    migration: &VMMigration,
    chosen: bool,
) -> Result<(MigrationIntent, Target), Lookup> {
    let target = action::target(context, place, &migration.spec.vm_ref)?;
    let mut intent = migration_intent(migration, &target)?;
    if !chosen {
        refs::may_use(context, place, &target.cluster)?;
    }
    if (intent.target.is_none() || intent.target_storage.is_some()) && !chosen {
        let guest = target.guest.declared(context).await;
        // What is wrong with the guest may be put right.
        let guest = guest.map_err(Lookup::may_come)?;
        intent.declared = guest.storages();
        intent.bridges = guest.nics.into_iter().map(|nic| nic.bridge).collect();
        intent.placement = guest.placement;
    }
    Ok((intent, target))
}

fn migration_intent(migration: &VMMigration, target: &Target) -> Result<MigrationIntent, Missing> {
    let spec = &migration.spec;
    if let Some(pinned) = target.guest.pinned()
        && spec.target_node.as_ref() != Some(pinned)
    {
        return Err(Invalid::new(
            "spec.vmRef",
            format!("the guest is pinned to node {pinned:?} by its spec.node; change that instead"),
        )
        .into());
    }
    let node = |name: &String| {
        NodeName::new(name.as_str())
            .map_err(|error| Invalid::new("spec.targetNode", error.to_string()))
    };
    Ok(MigrationIntent {
        owner: owner(migration)
            .ok_or_else(|| Missing::new("InvalidSpec", "the object has no UID"))?,
        cluster: target.cluster.clone(),
        guest: target.vmid,
        guest_owner: target.owner.clone(),
        guest_keeper: target.keeper.clone(),
        likeness: target.likeness.clone(),
        target: spec.target_node.as_ref().map(node).transpose()?,
        placement: Placement::default(),
        bridges: Vec::new(),
        online: true,
        with_local_disks: spec.with_local_disks,
        target_storage: spec
            .target_storage
            .as_deref()
            .map(|name| storage("spec.targetStorage", name))
            .transpose()?,
        declared: BTreeSet::new(),
    })
}

pub(crate) async fn backup(backup: Arc<VMBackup>, context: Arc<Context>) -> Result<Action, Error> {
    let uid = backup.uid().unwrap_or_default();
    let generation = backup.metadata.generation;
    let mut status: VMBackupStatus = context.statuses.newest(&uid, backup.status.as_ref());
    if context.statuses.is_behind(&uid) {
        let stored = backup.status.as_ref();
        let written = context
            .statuses
            .write(&context.client, &*backup, stored, &status);
        written.await?;
    }
    let leaving = backup.metadata.deletion_timestamp.is_some();
    if leaving && !backup.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(Action::await_change());
    }
    if leaving && backup.spec.deletion_policy != DeletionPolicy::Delete {
        context.release(&*backup).await?;
        return Ok(Action::await_change());
    }
    if !leaving {
        context.hold(&*backup).await?;
        // What can change of its spec is what becomes of it at its own end: nothing is begun again for that.
        if !is_open(status.phase) {
            if status.observed_generation != generation {
                status.observed_generation = generation;
                let is = backup.status.as_ref();
                context
                    .statuses
                    .write(&context.client, &*backup, is, &status)
                    .await?;
            }
            return Ok(Action::await_change());
        }
    }
    let place = namespace(&*backup);
    let kept = action::record(status.record.as_ref());
    // A backup outlives its guest, and a new guest of that name is another one.
    let subject = kept.subject.map_or_else(
        || action::target(&context, &place, &backup.spec.vm_ref).map(Subject::from),
        Ok,
    );
    let begins = !leaving && !kept.done && kept.in_flight.is_empty();
    let subject = subject.and_then(|subject| {
        if begins {
            refs::may_use(&context, &place, &subject.cluster)?;
        }
        Ok(subject)
    });
    let intent = match subject.and_then(|subject| backup_intent(&backup, subject)) {
        Ok(intent) => intent,
        Err(_) if leaving && !kept.begun => {
            context.release(&*backup).await?;
            return Ok(Action::await_change());
        }
        Err(missing) => {
            context
                .warn(&*backup, missing.reason, &missing.message)
                .await;
            let (conditions, phase) =
                unresolved(&context, &status.conditions, generation, &missing);
            status = VMBackupStatus {
                conditions,
                observed_generation: generation,
                phase: Some(phase),
                ..status
            };
            context
                .statuses
                .write(&context.client, &*backup, backup.status.as_ref(), &status)
                .await?;
            return Ok(Action::requeue(Duration::from_mins(5)));
        }
    };
    loop {
        let kept = action::record(status.record.as_ref());
        let progress = if leaving {
            context.fleet.delete_backup(&intent, &kept).await
        } else {
            context.fleet.backup(&intent, &kept).await
        };
        context.tell(&*backup, &progress.events).await;
        if leaving && progress.outcome.is_done() {
            context.fleet.forget(&intent.owner);
            context.release(&*backup).await?;
            return Ok(Action::await_change());
        }
        let mut now = Conditions::new(&status.conditions, context.clock.time(), generation);
        let done = format!("backed up {}", backup.spec.vm_ref.name);
        let phase = action::outcome(&mut now, &progress.outcome, &done, &progress.facts);
        let finished = progress.outcome == Outcome::Settled;
        status = VMBackupStatus {
            conditions: now.done(),
            observed_generation: generation,
            phase: Some(if leaving { Phase::Deleting } else { phase }),
            volume: progress.facts.volume.clone().or(status.volume),
            size: progress.facts.size.map(Bytes).or(status.size),
            completed_at: status
                .completed_at
                .or_else(|| finished.then(|| context.clock.time())),
            record: FleetRecord::of(&progress.record),
        };
        context
            .statuses
            .write(&context.client, &*backup, backup.status.as_ref(), &status)
            .await?;
        if progress.outcome != Outcome::Persist {
            return Ok(action::next(&progress.outcome));
        }
    }
}

fn backup_intent(backup: &VMBackup, subject: Subject) -> Result<BackupIntent, Missing> {
    Ok(BackupIntent {
        owner: owner(backup).ok_or_else(|| Missing::new("InvalidSpec", "the object has no UID"))?,
        cluster: subject.cluster,
        guest: subject.guest,
        guest_owner: subject.owner,
        guest_keeper: subject.keeper,
        likeness: subject.likeness,
        storage: storage("spec.storage", &backup.spec.storage)?,
        mode: match backup.spec.mode {
            Mode::Snapshot => BackupMode::Snapshot,
            Mode::Suspend => BackupMode::Suspend,
            Mode::Stop => BackupMode::Stop,
        },
        compress: match backup.spec.compression {
            BackupCompression::Zstd => Compression::Zstd,
            BackupCompression::Gzip => Compression::Gzip,
            BackupCompression::Lzo => Compression::Lzo,
            BackupCompression::None => Compression::None,
        },
        notes: backup.spec.notes.clone().unwrap_or_default(),
        protected: false,
    })
}
