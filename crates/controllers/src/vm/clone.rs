//! `VMClone`: makes one VirtualMachine like another and follows it.

use std::sync::Arc;

use api::vm::{
    CloneFrom, CloudInit, DeliveryMode, LocalRef, ManagementPolicy, Network, UserData, VMClone,
    VMCloneStatus, VirtualMachine, VirtualMachineSpec,
};
use kube::ResourceExt as _;

use super::{
    machine,
    made::{self, Standing},
    refs,
};
use crate::{
    conditions::Conditions,
    context::{Context, Error, namespace},
    kinds::Watches,
    work::Action,
};

/// A clone waits for its source and for its machine's name, and follows the machine it made.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let context = context.clone();
    watches.machines.subscribe(move |machine| {
        let place = namespace(machine);
        let (name, maker) = (machine.name_any(), made::maker(machine));
        for clone in context.stores.clones.state() {
            // Its name may have been taken, and is free now.
            let awaited = clone.spec.source_vm_ref.name == name || target_name(&clone) == name;
            let open = awaited && !is_made(clone.status.as_ref());
            if namespace(&*clone) == place && (open || maker == clone.uid().as_ref()) {
                context.queues.clones.push_object(&clone);
            }
        }
    });
}

/// The name of the machine that a clone makes.
fn target_name(clone: &VMClone) -> String {
    let named = clone.spec.target.as_ref().and_then(|it| it.name.clone());
    named.unwrap_or_else(|| clone.name_any())
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
    let name = target_name(&clone);
    let source = refs::find(
        &context.stores.machines,
        &place,
        &clone.spec.source_vm_ref.name,
    );
    let mut made = made::find(&context, &place, &name).await?;
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
        let machine = VirtualMachine::new(&name, copied_spec(&clone, source));
        match made::make(&context, &place, &uid, target.labels, machine).await? {
            Ok(machine) => made = Some(machine),
            Err(refused) => {
                let action = report_clone(&context, &clone, &before, None, refused).await?;
                return Ok(action.within(made::REFUSED));
            }
        }
        context
            .normal(&*clone, "Created", &format!("made VirtualMachine {name}"))
            .await;
    }
    let standing = made::follow(made.as_ref(), &name, &uid);
    let ours = made.filter(|made| made::maker(made) == Some(&uid));
    let linked = ours.and_then(|made| machine::record(made.status.as_ref()?).linked);
    report_clone(&context, &clone, &before, linked, standing.named(name)).await
}

async fn report_clone(
    context: &Context,
    clone: &VMClone,
    before: &VMCloneStatus,
    copied: Option<bool>,
    standing: Standing,
) -> Result<Action, Error> {
    let mut now = Conditions::new(
        &before.conditions,
        context.clock.time(),
        clone.metadata.generation,
    );
    let wrong = standing.is_wrong();
    now.set("Ready", standing.ready, &standing.reason, &standing.message);
    let linked = match (clone.spec.linked_clone, copied) {
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
                "FullCopy",
                "this is a full copy: PVE links to the disks of templates only, and only where they are",
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
    if wrong {
        let (before, now) = (&before.conditions, &status.conditions);
        context.complain(clone, before, now).await;
    }
    context
        .statuses
        .write(&context.client, clone, clone.status.as_ref(), &status)
        .await?;
    Ok(Action::await_change())
}

/// The new machine's spec: the source's, as far as a copy can have it.
fn copied_spec(clone: &VMClone, source: &VirtualMachine) -> VirtualMachineSpec {
    // What was the only Provider of the namespace when the source was made need not be the only one any more.
    let recorded = source.status.as_ref().and_then(machine::recorded_cluster);
    let provider = recorded.and_then(|cluster| made::provider_of(&cluster, &namespace(source)));
    let source = &source.spec;
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
        provider_ref: source.provider_ref.clone().or(provider),
        // A class that is asked for is not asked for in vain.
        cpus: source.cpus.filter(|_| target.class_ref.is_none()),
        memory: source.memory.filter(|_| target.class_ref.is_none()),
        class_ref: target.class_ref.or_else(|| source.class_ref.clone()),
        networks,
        user_data: target.user_data.or_else(|| no_ones_addresses(source)),
        placement_ref: target
            .placement_ref
            .or_else(|| source.placement_ref.clone()),
        power_state: Some(target.power_state),
        management_policy: ManagementPolicy::default(),
        deletion_policy: None,
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

/// A copy has what PVE's own cloud-init tells its source at every start: it is told that none of the addresses are its own.
fn no_ones_addresses(source: &VirtualMachineSpec) -> Option<UserData> {
    let mode = source.user_data.as_ref()?.cloud_init.as_ref()?.mode;
    (mode == Some(DeliveryMode::Native)).then(|| UserData {
        cloud_init: Some(CloudInit {
            mode,
            ..CloudInit::default()
        }),
        ..UserData::default()
    })
}

#[cfg(test)]
mod tests {
    use api::vm::{Adoption, DeletionPolicy};

    use super::*;

    #[test]
    fn the_copy_of_a_machine_that_is_only_looked_at_is_kept_and_goes_with_its_object() {
        let source = VirtualMachineSpec {
            adopt: Some(Adoption { vmid: 100 }),
            management_policy: ManagementPolicy::Observe,
            deletion_policy: Some(DeletionPolicy::Orphan),
            ..VirtualMachineSpec::default()
        };
        let clone = VMClone::new("copy", api::vm::VMCloneSpec::default());
        let copy = copied_spec(&clone, &VirtualMachine::new("source", source));
        assert_eq!(copy.management_policy, ManagementPolicy::Manage);
        assert_eq!(copy.deletion(false), DeletionPolicy::Delete);
        assert_eq!(copy.adopt, None);
    }

    #[test]
    fn the_class_of_a_copy_goes_before_what_its_source_has_instead_of_one() {
        let source = VirtualMachineSpec {
            cpus: Some(2),
            memory: Some(api::vm::Bytes(1 << 30)),
            ..VirtualMachineSpec::default()
        };
        let large = api::vm::LocalRef {
            name: "large".to_owned(),
        };
        let target = api::vm::CloneTarget {
            class_ref: Some(large.clone()),
            ..api::vm::CloneTarget::default()
        };
        let spec = api::vm::VMCloneSpec {
            target: Some(target),
            ..api::vm::VMCloneSpec::default()
        };
        let machine = VirtualMachine::new("source", source);
        let source = &machine.spec;
        let copy = copied_spec(&VMClone::new("copy", spec), &machine);
        assert_eq!(
            (copy.class_ref, copy.cpus, copy.memory),
            (Some(large), None, None)
        );
        let same = copied_spec(
            &VMClone::new("copy", api::vm::VMCloneSpec::default()),
            &machine,
        );
        assert_eq!((same.cpus, same.memory), (source.cpus, source.memory));
    }
}
