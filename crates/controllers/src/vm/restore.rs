//! `VMRestore`: makes one VirtualMachine or Container of a backup and follows it.

use std::{collections::BTreeMap, sync::Arc};

use api::vm::{
    Container, ContainerSpec, GuestKind, GuestRef, NamespacedRef, PowerState, RestoreFrom,
    VMBackup, VMRestore, VMRestoreStatus, VirtualMachine, VirtualMachineSpec,
};
use kube::ResourceExt as _;

use super::{
    action,
    made::{self, Made, Standing},
    refs,
};
use crate::{
    conditions::Conditions,
    context::{Context, Error, namespace},
    kinds::Watches,
    work::Action,
};

/// A restore waits for its backup and for its guest's name, and follows the guest it made.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let followed = |context: &Arc<Context>| {
        let context = context.clone();
        move |maker: Option<&String>, place: &str, name: &str| {
            for restore in context.stores.restores.state() {
                // Its name may have been taken, and is free now.
                let made = restore
                    .status
                    .as_ref()
                    .and_then(|it| it.target_ref.as_ref());
                let open = made.is_none() && restore.spec.target_name == name;
                if namespace(&*restore) == place && (open || maker == restore.uid().as_ref()) {
                    context.queues.restores.push_object(&restore);
                }
            }
        }
    };
    let again = followed(context);
    watches.machines.subscribe(move |machine| {
        let name = machine.name_any();
        again(made::maker(machine), &namespace(machine), &name);
    });
    let again = followed(context);
    watches.containers.subscribe(move |container| {
        let name = container.name_any();
        again(made::maker(container), &namespace(container), &name);
    });
    let context = context.clone();
    watches.backups.subscribe(move |backup| {
        let (place, name) = (namespace(backup), backup.name_any());
        for restore in context.stores.restores.state() {
            let named = restore.spec.backup_ref.as_ref();
            if namespace(&*restore) == place && named.is_some_and(|named| named.name == name) {
                context.queues.restores.push_object(&restore);
            }
        }
    });
}

pub(crate) async fn reconcile(
    restore: Arc<VMRestore>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    if restore.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let uid = restore.uid().unwrap_or_default();
    let before: VMRestoreStatus = context.statuses.newest(&uid, restore.status.as_ref());
    let (kind, standing) = match origin(&context, &restore, &before) {
        Err(standing) => (GuestKind::default(), standing),
        Ok(origin) => {
            let (kind, name) = (origin.kind, &restore.spec.target_name);
            let standing = match kind {
                GuestKind::VirtualMachine => {
                    let machine = VirtualMachine::new(name, origin.machine());
                    Box::pin(made_of(&context, &restore, &before, machine)).await?
                }
                GuestKind::Container => {
                    let container = Container::new(name, origin.container());
                    Box::pin(made_of(&context, &restore, &before, container)).await?
                }
            };
            (kind, standing)
        }
    };
    let (refused, wrong) = (standing.reason == "Refused", standing.is_wrong());
    let made = standing.made.map(|name| GuestRef { kind, name });
    let mut now = Conditions::new(
        &before.conditions,
        context.clock.time(),
        restore.metadata.generation,
    );
    now.set("Ready", standing.ready, &standing.reason, &standing.message);
    let status = VMRestoreStatus {
        conditions: now.done(),
        observed_generation: restore.metadata.generation,
        phase: Some(standing.phase),
        target_ref: made.or(before.target_ref),
    };
    if wrong {
        let (before, now) = (&before.conditions, &status.conditions);
        context.complain(&*restore, before, now).await;
    }
    context
        .statuses
        .write(&context.client, &*restore, restore.status.as_ref(), &status)
        .await?;
    Ok(if refused {
        Action::requeue(made::REFUSED)
    } else {
        Action::await_change()
    })
}

/// Makes the guest's object, once, and says where it stands.
async fn made_of<K: Made>(
    context: &Context,
    restore: &VMRestore,
    before: &VMRestoreStatus,
    object: K,
) -> Result<Standing, Error> {
    let (place, name) = (namespace(restore), restore.spec.target_name.clone());
    let uid = restore.uid().unwrap_or_default();
    let mut made = made::find::<K>(context, &place, &name).await?;
    if made.is_none() && before.target_ref.is_none() {
        match made::make(context, &place, &uid, BTreeMap::new(), object).await? {
            Ok(object) => made = Some(object),
            Err(refused) => {
                return Ok(refused);
            }
        }
        let text = format!("made {} {name}", K::kind(&()));
        context.normal(restore, "Created", &text).await;
    }
    Ok(made::follow(made.as_ref(), &name, &uid).named(name))
}

/// What is restored, and where.
struct Origin {
    kind: GuestKind,
    provider: Option<NamespacedRef>,
    from: RestoreFrom,
    power: PowerState,
}

/// What a restore names; or what it waits for.
fn origin(
    context: &Context,
    restore: &VMRestore,
    before: &VMRestoreStatus,
) -> Result<Origin, Standing> {
    let spec = &restore.spec;
    let named = spec.provider_ref.as_ref().map(|provider| NamespacedRef {
        name: provider.name.clone(),
        namespace: None,
    });
    let (kind, provider) = match (&spec.backup_ref, &before.target_ref) {
        // What was made is only followed, and its backup may be gone.
        (_, Some(made)) => (made.kind, named),
        (Some(backup), None) => {
            let place = namespace(restore);
            let found = refs::find(&context.stores.backups, &place, &backup.name);
            let found = found.ok_or_else(|| {
                let name = &backup.name;
                let text = format!("there is no VMBackup {name:?} in namespace {place:?}");
                Standing::waiting("BackupNotFound", text)
            })?;
            (
                found.spec.vm_ref.kind,
                named.or_else(|| provider(context, &found)),
            )
        }
        (None, None) => (kind_of(spec.volume.as_deref().unwrap_or_default()), named),
    };
    Ok(Origin {
        kind,
        provider,
        from: RestoreFrom {
            backup_ref: spec.backup_ref.clone(),
            volume: spec.volume.clone(),
            storage: spec.storage.clone(),
        },
        power: if spec.start {
            PowerState::On
        } else {
            PowerState::Off
        },
    })
}

/// The Provider of the guest that was backed up, which may be gone by now.
fn provider(context: &Context, backup: &VMBackup) -> Option<NamespacedRef> {
    let kept = backup
        .status
        .as_ref()
        .and_then(|status| status.record.as_ref());
    let cluster = match action::record(kept).subject {
        Some(subject) => subject.cluster,
        None => {
            action::target(context, &namespace(backup), &backup.spec.vm_ref)
                .ok()?
                .cluster
        }
    };
    made::provider_of(&cluster, &namespace(backup))
}

/// What PVE has put into an archive, by the archive's name: `…/vzdump-lxc-100-…` or, on a backup server, `…/ct/100/…`.
fn kind_of(volume: &str) -> GuestKind {
    if volume.contains("vzdump-lxc-") || volume.contains(":backup/ct/") {
        GuestKind::Container
    } else {
        GuestKind::VirtualMachine
    }
}

impl Origin {
    fn machine(self) -> VirtualMachineSpec {
        VirtualMachineSpec {
            provider_ref: self.provider,
            restore_from: Some(self.from),
            power_state: Some(self.power),
            ..VirtualMachineSpec::default()
        }
    }

    fn container(self) -> ContainerSpec {
        ContainerSpec {
            provider_ref: self.provider,
            restore_from: Some(self.from),
            power_state: self.power,
            ..ContainerSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_says_what_is_in_it() {
        for (volume, kind) in [
            (
                "local:backup/vzdump-qemu-100-2026_01_01-00_00_00.vma.zst",
                GuestKind::VirtualMachine,
            ),
            (
                "local:backup/vzdump-lxc-100-2026_01_01-00_00_00.tar.zst",
                GuestKind::Container,
            ),
            (
                "pbs:backup/vm/100/2026-01-01T00:00:00Z",
                GuestKind::VirtualMachine,
            ),
            (
                "pbs:backup/ct/100/2026-01-01T00:00:00Z",
                GuestKind::Container,
            ),
        ] {
            assert_eq!(kind_of(volume), kind, "{volume}");
        }
    }
}
