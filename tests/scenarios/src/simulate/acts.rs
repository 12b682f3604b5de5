//! What people do to their objects.

use api::vm::{
    Container, Phase, VMBackup, VMClone, VMMigration, VMRestore, VMSet, VMSnapshot, VirtualMachine,
};
use kube::{
    Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{backups, by_hand::Deed, images, machines, schedules};
use crate::{Bed, Dice};

/// What was done.
pub(super) struct Done {
    /// Of which kind it was; none if nothing could be done.
    pub(super) kind: Option<&'static str>,
    /// What is told of it.
    pub(super) said: String,
}

impl Done {
    pub(super) fn a(kind: &'static str, said: impl Into<String>) -> Self {
        let (kind, said) = (Some(kind), said.into());
        Self { kind, said }
    }

    pub(super) fn nothing(said: impl Into<String>) -> Self {
        let (kind, said) = (None, said.into());
        Self { kind, said }
    }
}

/// Does something; says what.
pub(super) async fn act(bed: &Bed, dice: &mut Dice, turn: u64) -> Done {
    match dice.below(30) {
        0..=11 => machines::act(bed, dice).await,
        12 | 13 => snapshot(bed, dice, turn).await,
        14 => revert(bed, dice).await,
        15 => copy(bed, dice).await,
        16 | 17 => migrate(bed, dice, turn).await,
        18 => container(bed, dice).await,
        19 | 20 => set(bed, dice).await,
        21 => by_hand(bed, dice).await,
        22 => backups::back_up(bed, dice, turn).await,
        23 => backups::restore(bed, dice).await,
        24 => forget::<VMSnapshot>(bed, dice).await,
        25 | 26 => images::act(bed, dice).await,
        27 | 28 => schedules::act(bed, dice).await,
        _ => match dice.below(5) {
            0 => forget::<VMClone>(bed, dice).await,
            1 => forget::<VMMigration>(bed, dice).await,
            2 => forget::<VMBackup>(bed, dice).await,
            3 => forget::<VMRestore>(bed, dice).await,
            _ => forget::<VirtualMachine>(bed, dice).await,
        },
    }
}

pub(super) async fn all<K>(bed: &Bed) -> Vec<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let list = bed.api::<K>().list(&ListParams::default()).await.unwrap();
    let mut items = list.items;
    items.retain(|item| item.meta().deletion_timestamp.is_none());
    items
}

pub(super) async fn one<K>(bed: &Bed, dice: &mut Dice) -> Option<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let mut items = all::<K>(bed).await;
    if items.is_empty() {
        return None;
    }
    let at = usize::try_from(dice.below(items.len() as u64)).unwrap();
    Some(items.swap_remove(at))
}

/// Merges a change into an object that may have gone meanwhile.
pub(super) async fn patch<K>(bed: &Bed, name: &str, change: &Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let params = PatchParams::default();
    match bed
        .api::<K>()
        .patch(name, &params, &Patch::Merge(change))
        .await
    {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => panic!("{name}: {change}: {error}"),
    }
}

pub(super) async fn delete<K>(bed: &Bed, name: &str)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    match bed.api::<K>().delete(name, &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => panic!("{name}: {error}"),
    }
}

async fn forget<K>(bed: &Bed, dice: &mut Dice) -> Done
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let kind = K::kind(&());
    let Some(object) = one::<K>(bed, dice).await else {
        return Done::nothing(format!("there is no {kind} to delete"));
    };
    let name = object.name_any();
    delete::<K>(bed, &name).await;
    Done::a("delete an object", format!("delete {kind} {name}"))
}

async fn snapshot(bed: &Bed, dice: &mut Dice, turn: u64) -> Done {
    let Some(machine) = one::<VirtualMachine>(bed, dice).await else {
        return Done::nothing("there is no machine to take a snapshot of");
    };
    let (name, memory) = (machine.name_any(), dice.one_in(2));
    let document = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1",
        "kind": "VMSnapshot",
        "metadata": { "name": format!("snap-{turn}") },
        "spec": { "vmRef": { "name": name }, "includeMemory": memory },
    });
    bed.try_apply(&document).await.unwrap();
    Done::a(
        "snapshot",
        format!("snapshot snap-{turn} of {name}, with memory: {memory}"),
    )
}

async fn revert(bed: &Bed, dice: &mut Dice) -> Done {
    let Some(snapshot) = one::<VMSnapshot>(bed, dice).await else {
        return Done::nothing("there is no snapshot to go back to");
    };
    let taken = snapshot
        .status
        .as_ref()
        .is_some_and(|status| status.phase == Some(Phase::Succeeded));
    if !taken {
        return Done::nothing(format!("{} is not taken yet", snapshot.name_any()));
    }
    let machine = snapshot.spec.vm_ref.name.clone();
    let to = snapshot.name_any();
    let change = json!({ "spec": { "snapshot": { "revertToRef": { "name": to } } } });
    patch::<VirtualMachine>(bed, &machine, &change).await;
    Done::a("revert", format!("take {machine} back to {to}"))
}

async fn copy(bed: &Bed, dice: &mut Dice) -> Done {
    let Some(machine) = one::<VirtualMachine>(bed, dice).await else {
        return Done::nothing("there is no machine to copy");
    };
    let (from, name) = (machine.name_any(), format!("copy-{}", dice.below(2)));
    let taken = bed
        .api::<VirtualMachine>()
        .get_opt(&name)
        .await
        .unwrap()
        .is_some();
    let asked = bed.api::<VMClone>().get_opt(&name).await.unwrap().is_some();
    if taken || asked {
        return Done::nothing(format!("{name} is there already"));
    }
    let document = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1",
        "kind": "VMClone",
        "metadata": { "name": name },
        "spec": { "sourceVMRef": { "name": from }, "linkedClone": dice.one_in(2) },
    });
    bed.try_apply(&document).await.unwrap();
    Done::a("copy", format!("copy {from} as {name}"))
}

async fn migrate(bed: &Bed, dice: &mut Dice, turn: u64) -> Done {
    let Some(machine) = one::<VirtualMachine>(bed, dice).await else {
        return Done::nothing("there is no machine to move");
    };
    let name = machine.name_any();
    let document = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1",
        "kind": "VMMigration",
        "metadata": { "name": format!("move-{turn}") },
        "spec": { "vmRef": { "name": name }, "withLocalDisks": true },
    });
    bed.try_apply(&document).await.unwrap();
    Done::a("migrate", format!("move-{turn}: move {name}"))
}

async fn container(bed: &Bed, dice: &mut Dice) -> Done {
    let name = format!("ct-{}", dice.below(2));
    let api = bed.api::<Container>();
    let Some(there) = api.get_opt(&name).await.unwrap() else {
        let document = json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1",
            "kind": "Container",
            "metadata": { "name": name },
            "spec": {
                "providerRef": { "name": dice.pick(&["pve", "pve-1"]) },
                "template": "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst",
                "cpus": 1,
                "memory": "512Mi",
                "rootFs": { "size": "4Gi", "storage": "local-lvm" },
                "networks": [{ "name": "lan" }],
            },
        });
        bed.try_apply(&document).await.unwrap();
        return Done::a("create a container", format!("create container {name}"));
    };
    if there.metadata.deletion_timestamp.is_some() {
        return Done::nothing(format!("container {name} is going"));
    }
    if dice.one_in(3) {
        delete::<Container>(bed, &name).await;
        return Done::a("delete a container", format!("delete container {name}"));
    }
    if dice.one_in(3) {
        let with = there.spec.mount_points.is_empty();
        let data =
            json!({ "name": "data", "path": "/srv/data", "size": "1Gi", "storage": "local-lvm" });
        let mounts = if with { json!([data]) } else { json!([]) };
        patch::<Container>(bed, &name, &json!({ "spec": { "mountPoints": mounts } })).await;
        return Done::a(
            "mount point",
            format!("mount point of container {name}: {with}"),
        );
    }
    let (power, memory) = (
        dice.pick(&["On", "Off"]),
        dice.pick(&["512Mi", "1Gi", "2Gi"]),
    );
    let change = json!({ "spec": { "powerState": power, "memory": memory } });
    patch::<Container>(bed, &name, &change).await;
    Done::a(
        "change a container",
        format!("container {name}: {power} with {memory}"),
    )
}

async fn set(bed: &Bed, dice: &mut Dice) -> Done {
    let api = bed.api::<VMSet>();
    let Some(there) = api.get_opt("web").await.unwrap() else {
        let document = json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1",
            "kind": "VMSet",
            "metadata": { "name": "web" },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": {
                        "providerRef": { "name": dice.pick(&["pve", "pve-1"]) },
                        "classRef": { "name": "small" },
                        "imageRef": { "name": "ubuntu" },
                        "updatePolicy": "RestartIfNeeded",
                    },
                },
            },
        });
        bed.try_apply(&document).await.unwrap();
        return Done::a("create a set", "create set web");
    };
    if there.metadata.deletion_timestamp.is_some() {
        return Done::nothing("set web is going");
    }
    match dice.below(6) {
        0 => {
            delete::<VMSet>(bed, "web").await;
            Done::a("delete a set", "delete set web")
        }
        1 => {
            let class = dice.pick(&["small", "large"]);
            let change =
                json!({ "spec": { "template": { "spec": { "classRef": { "name": class } } } } });
            patch::<VMSet>(bed, "web", &change).await;
            Done::a("class of a set", format!("class of set web: {class}"))
        }
        _ => {
            let replicas = dice.below(4);
            patch::<VMSet>(bed, "web", &json!({ "spec": { "replicas": replicas } })).await;
            Done::a("scale a set", format!("scale set web to {replicas}"))
        }
    }
}

/// Somebody uses PVE's own page.
async fn by_hand(bed: &Bed, dice: &mut Dice) -> Done {
    let Some(machine) = one::<VirtualMachine>(bed, dice).await else {
        return Done::nothing("nobody does anything by hand");
    };
    let status = machine.status.clone().unwrap_or_default();
    let cluster = usize::from(status.cluster.as_deref() == Some("default/pve-1"));
    let (Some(vmid), Some(node)) = (status.vmid, status.node) else {
        return Done::nothing("nobody does anything by hand");
    };
    let deed = dice.pick(&[Deed::Stop, Deed::Start, Deed::Tag, Deed::Processors]);
    let how = deed.done(bed, cluster, &node, vmid).await;
    Done::a("by hand", format!("somebody {how} {}", machine.name_any()))
}
