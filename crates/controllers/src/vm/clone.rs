//! `VMClone` and `VMRestore`: each makes one VirtualMachine and follows it.
//!
//! Where the new machine comes from is written on the machine itself, so everything after its creation
//! is the machine controller's business, and deleting the VMClone takes nothing away.

use std::{collections::BTreeMap, sync::Arc};

use api::vm::{
    CloneFrom, LocalRef, NamespacedRef, Network, Phase, PowerState, RestoreFrom, VMClone,
    VMCloneStatus, VMRestore, VMRestoreStatus, VirtualMachine, VirtualMachineSpec, condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, ResourceExt as _,
    api::{ObjectMeta, PostParams},
    runtime::reflector::ObjectRef,
};

use super::{machine, refs};
use crate::{
    conditions::Conditions,
    context::{Context, Error, namespace},
    kinds::Watches,
    work::Action,
};

/// The annotation that says which VMClone or VMRestore made a machine.
const MADE_BY: &str = "infra.virtrigaud.io/made-by";

/// Both follow the machine they made, and a clone waits for its source.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let context = context.clone();
    watches.machines.subscribe(move |machine| {
        let place = namespace(machine);
        let made_by = machine.annotations().get(MADE_BY).cloned();
        let name = machine.name_any();
        for clone in context.stores.clones.state() {
            let source = clone.spec.source_vm_ref.name == name && !is_made(clone.status.as_ref());
            if namespace(&*clone) == place && (source || made_by == clone.uid()) {
                context.queues.clones.push_object(&clone);
            }
        }
        for restore in context.stores.restores.state() {
            if namespace(&*restore) == place && made_by == restore.uid() {
                context.queues.restores.push(ObjectRef::from_obj(&*restore));
            }
        }
    });
}

fn is_made(status: Option<&VMCloneStatus>) -> bool {
    status.is_some_and(|status| status.target_ref.is_some())
}

pub(crate) async fn reconcile(clone: Arc<VMClone>, context: Arc<Context>) -> Result<Action, Error> {
    if clone.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let uid = clone.uid().unwrap_or_default();
    let before: VMCloneStatus = context.statuses.newest(&uid, clone.status.as_ref());
    let place = namespace(&*clone);
    let target = clone.spec.target.clone().unwrap_or_default();
    let name = target.name.clone().unwrap_or_else(|| clone.name_any());
    let source = refs::find(
        &context.stores.machines,
        &place,
        &clone.spec.source_vm_ref.name,
    );
    let mut made = made_machine(&context, &place, &name).await?;
    if made.is_none() && !is_made(Some(&before)) {
        let Some(source) = &source else {
            let message = format!(
                "there is no VirtualMachine {:?} in namespace {place:?} to copy",
                clone.spec.source_vm_ref.name
            );
            return report_clone(
                &context,
                &clone,
                &before,
                None,
                Standing::waiting("SourceNotFound", message),
            )
            .await;
        };
        let spec = copied_spec(&clone, &source.spec);
        made = Some(make(&context, &place, &name, &uid, target.labels, spec).await?);
        context
            .normal(&*clone, "Created", &format!("made VirtualMachine {name}"))
            .await;
    }
    let standing = follow(made.as_ref(), &name, &uid);
    let linked = source
        .as_deref()
        .and_then(|source| can_link(&context, source));
    report_clone(&context, &clone, &before, linked, standing.named(name)).await
}

/// Whether PVE can link to this machine: only templates can be linked to.
fn can_link(context: &Context, source: &VirtualMachine) -> Option<bool> {
    let record = machine::record(source.status.as_ref()?);
    let identity = record.identity?;
    let facts = context.fleet.facts(&identity.cluster)?;
    Some(
        facts
            .templates
            .iter()
            .any(|template| template.vmid == identity.vmid),
    )
}

async fn report_clone(
    context: &Context,
    clone: &VMClone,
    before: &VMCloneStatus,
    linkable: Option<bool>,
    standing: Standing,
) -> Result<Action, Error> {
    let mut now = Conditions::new(
        &before.conditions,
        context.clock.time(),
        clone.metadata.generation,
    );
    now.set("Ready", standing.ready, &standing.reason, &standing.message);
    let linked = match (clone.spec.linked_clone, linkable) {
        (true, Some(true)) => {
            now.set(
                "Linked",
                true,
                "SharesDisks",
                "the copy shares its source's disks",
            );
            Some(true)
        }
        (true, Some(false)) => {
            now.set(
                "Linked",
                false,
                "SourceIsNoTemplate",
                "PVE links to templates only, so this is a full copy",
            );
            Some(false)
        }
        (false, _) => {
            now.set(
                "Linked",
                false,
                "FullRequested",
                "a full copy was asked for",
            );
            Some(false)
        }
        (true, None) => {
            now.keep("Linked");
            before.linked
        }
    };
    let status = VMCloneStatus {
        conditions: now.done(),
        observed_generation: clone.metadata.generation,
        phase: Some(standing.phase),
        target_ref: standing
            .made
            .map(|name| LocalRef { name })
            .or_else(|| before.target_ref.clone()),
        linked,
    };
    context
        .statuses
        .write(&context.client, clone, clone.status.as_ref(), &status)
        .await?;
    Ok(Action::await_change())
}

/// The new machine's spec: the source's, as far as a copy can have it.
fn copied_spec(clone: &VMClone, source: &VirtualMachineSpec) -> VirtualMachineSpec {
    let target = clone.spec.target.clone().unwrap_or_default();
    let networks = if target.networks.is_empty() {
        let fresh = |network: &Network| Network {
            mac: None,
            static_ip: None,
            ..network.clone()
        };
        source.networks.iter().map(fresh).collect()
    } else {
        target.networks
    };
    VirtualMachineSpec {
        class_ref: target.class_ref.or_else(|| source.class_ref.clone()),
        networks,
        user_data: target.user_data,
        placement_ref: target
            .placement_ref
            .or_else(|| source.placement_ref.clone()),
        power_state: target.power_state,
        image_ref: None,
        adopt: None,
        restore_from: None,
        snapshot: None,
        restarts: None,
        node: None,
        clone_from: Some(CloneFrom {
            vm_ref: clone.spec.source_vm_ref.clone(),
            snapshot_ref: clone.spec.snapshot_ref.clone(),
        }),
        linked_clone: Some(clone.spec.linked_clone),
        ..source.clone()
    }
}

pub(crate) async fn restore(
    restore: Arc<VMRestore>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    if restore.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let uid = restore.uid().unwrap_or_default();
    let before: VMRestoreStatus = context.statuses.newest(&uid, restore.status.as_ref());
    let (place, name) = (namespace(&*restore), restore.spec.target_name.clone());
    let mut made = made_machine(&context, &place, &name).await?;
    if made.is_none() && before.target_ref.is_none() {
        let spec = restored_spec(&context, &place, &restore);
        made = Some(make(&context, &place, &name, &uid, BTreeMap::new(), spec).await?);
        context
            .normal(&*restore, "Created", &format!("made VirtualMachine {name}"))
            .await;
    }
    let standing = follow(made.as_ref(), &name, &uid).named(name);
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
        target_ref: standing
            .made
            .map(|name| LocalRef { name })
            .or_else(|| before.target_ref.clone()),
    };
    context
        .statuses
        .write(&context.client, &*restore, restore.status.as_ref(), &status)
        .await?;
    Ok(Action::await_change())
}

fn restored_spec(context: &Context, place: &str, restore: &VMRestore) -> VirtualMachineSpec {
    let local = |name: &LocalRef| NamespacedRef {
        name: name.name.clone(),
        namespace: None,
    };
    let backup = restore.spec.backup_ref.as_ref();
    let source = backup
        .and_then(|backup| refs::find(&context.stores.backups, place, &backup.name))
        .and_then(|backup| refs::find(&context.stores.machines, place, &backup.spec.vm_ref.name));
    VirtualMachineSpec {
        provider_ref: restore.spec.provider_ref.as_ref().map(local).or_else(|| {
            source
                .as_ref()
                .and_then(|source| source.spec.provider_ref.clone())
        }),
        restore_from: Some(RestoreFrom {
            backup_ref: restore.spec.backup_ref.clone(),
            volume: restore.spec.volume.clone(),
            storage: restore.spec.storage.clone(),
        }),
        power_state: if restore.spec.start {
            PowerState::On
        } else {
            PowerState::Off
        },
        ..VirtualMachineSpec::default()
    }
}

async fn made_machine(
    context: &Context,
    place: &str,
    name: &str,
) -> Result<Option<VirtualMachine>, Error> {
    if let Some(found) = refs::find(&context.stores.machines, place, name) {
        return Ok(Some((*found).clone()));
    }
    // The store may be behind what was made a moment ago.
    Ok(Api::namespaced(context.client.clone(), place)
        .get_opt(name)
        .await?)
}

async fn make(
    context: &Context,
    place: &str,
    name: &str,
    made_by: &str,
    labels: BTreeMap<String, String>,
    spec: VirtualMachineSpec,
) -> Result<VirtualMachine, Error> {
    let api: Api<VirtualMachine> = Api::namespaced(context.client.clone(), place);
    let machine = VirtualMachine {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: (!labels.is_empty()).then_some(labels),
            annotations: Some(BTreeMap::from([(MADE_BY.to_owned(), made_by.to_owned())])),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    };
    match api.create(&PostParams::default(), &machine).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(api.get(name).await?),
        other => Ok(other?),
    }
}

/// Where the machine that was to be made stands.
struct Standing {
    ready: bool,
    reason: String,
    message: String,
    phase: Phase,
    made: Option<String>,
}

impl Standing {
    fn waiting(reason: &str, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.to_owned(), message.into());
        Self {
            ready: false,
            reason,
            message,
            phase: Phase::Pending,
            made: None,
        }
    }

    /// The machine is ours, by this name.
    fn named(mut self, name: String) -> Self {
        if self.phase != Phase::Failed {
            self.made = Some(name);
        }
        self
    }
}

fn follow(machine: Option<&VirtualMachine>, name: &str, made_by: &str) -> Standing {
    let Some(machine) = machine else {
        return Standing::waiting(
            "TargetDeleted",
            format!("VirtualMachine {name:?} was deleted"),
        );
    };
    if machine.annotations().get(MADE_BY).map(String::as_str) != Some(made_by) {
        let message =
            format!("VirtualMachine {name:?} exists already and is not ours; choose another name");
        return Standing {
            phase: Phase::Failed,
            ..Standing::waiting("NameTaken", message)
        };
    }
    let ready: Option<&Condition> = machine
        .status
        .as_ref()
        .and_then(|status| condition(&status.conditions, "Ready"));
    match ready {
        None => Standing::waiting("Created", "the machine has not been looked at yet"),
        Some(ready) if ready.status == "True" => Standing {
            ready: true,
            reason: "Completed".to_owned(),
            message: format!("VirtualMachine {name:?} is ready"),
            phase: Phase::Succeeded,
            made: None,
        },
        Some(other) => Standing {
            phase: Phase::Provisioning,
            ..Standing::waiting(&other.reason, other.message.clone())
        },
    }
}
