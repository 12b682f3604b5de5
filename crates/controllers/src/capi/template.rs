//! `ProxmoxMachineTemplate`: what a machine made from it will have, so that the autoscaler can grow from zero.
//!
//! What the spec leaves to the Proxmox VE template is read there. Instances may have templates of different sizes under one
//! name; then the smallest is said, which any machine will have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::infrastructure::v1beta1::{
    NodeInfo, ProxmoxMachineSpec, ProxmoxMachineTemplate, ProxmoxMachineTemplateStatus,
};
use fleet::Size;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;

use super::machine::{gibibytes, memory, templates};
use super::{Stop, owner};
use crate::context::{Context, Error};
use crate::work::Action;

/// How often a Proxmox VE template is looked for that is not there yet.
const SEARCH: Duration = Duration::from_secs(30);
/// How often one that was found is looked at again.
const LOOK: Duration = Duration::from_mins(10);

/// What every copy of a template has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    cpus: u32,
    memory: Size,
}

pub(crate) async fn reconcile(
    object: Arc<ProxmoxMachineTemplate>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    if object.metadata.deletion_timestamp.is_some() || owner::is_foreign(&context, &*object) {
        return Ok(Action::await_change());
    }
    let spec = &object.spec.template.spec;
    let cluster = owner::cluster_of_template(&context, &object);
    let open = spec.memory.is_none() || (spec.cores.is_none() && spec.sockets.is_none());
    let (made, again) = match cluster.filter(|_| open) {
        None => (None, Action::await_change()),
        Some(cluster) => match made(&context, &cluster, spec).await {
            Ok(Some(made)) => (Some(made), Action::requeue(LOOK)),
            Ok(None) | Err(Stop::Wait(_) | Stop::Asked) => (None, Action::requeue(SEARCH)),
            Err(Stop::Failed(error)) => return Err(error),
        },
    };
    let uid = object.uid().unwrap_or_default();
    let before: ProxmoxMachineTemplateStatus =
        context.statuses.newest(&uid, object.status.as_ref());
    let mut capacity = capacity(spec, made);
    if made.is_none() {
        // What was found once holds while Proxmox VE cannot be asked.
        for (resource, amount) in &before.capacity {
            capacity
                .entry(resource.clone())
                .or_insert_with(|| amount.clone());
        }
    }
    let status = ProxmoxMachineTemplateStatus {
        capacity,
        node_info: Some(NodeInfo {
            architecture: Some("amd64".into()),
            operating_system: Some("linux".into()),
        }),
        conditions: before.conditions,
    };
    context
        .statuses
        .write(&context.client, &*object, object.status.as_ref(), &status)
        .await?;
    Ok(again)
}

/// What the Proxmox VE templates behind it give, on all instances that a machine may go to and that answer.
async fn made(
    context: &Context,
    cluster: &api::cluster_api::Cluster,
    spec: &ProxmoxMachineSpec,
) -> Result<Option<Made>, Stop> {
    let infrastructure = owner::infrastructure(context, cluster)?;
    let used = super::cluster::used(context, &infrastructure).await?;
    let instances = infrastructure.spec.settings.as_ref();
    let instances = instances.map_or(&[][..], |settings| &settings.instances);
    let wanted = used
        .iter()
        .filter(|used| spec.instance.is_none() || used.instance == spec.instance);
    let found = wanted.flat_map(|used| {
        let mut listed = instances.iter();
        let instance = listed.find(|instance| Some(&instance.name) == used.instance.as_ref());
        templates(spec, instance, &used.facts)
    });
    Ok(found
        .map(|template| Made {
            cpus: template.cpus,
            memory: template.memory,
        })
        .reduce(|a, b| Made {
            cpus: a.cpus.min(b.cpus),
            memory: a.memory.min(b.memory),
        }))
}

/// What the spec says, and for what it leaves open what the Proxmox VE template gives; what neither says is left out.
fn capacity(spec: &ProxmoxMachineSpec, made: Option<Made>) -> BTreeMap<String, Quantity> {
    let mut capacity = BTreeMap::new();
    let cpus = match (spec.cores, spec.sockets) {
        (Some(cores), sockets) => u32::try_from(cores.saturating_mul(sockets.unwrap_or(1))).ok(),
        (None, None) => made.map(|made| made.cpus),
        // How many of the template's processors are on one socket is not known here.
        (None, Some(_)) => None,
    };
    if let Some(cpus) = cpus {
        capacity.insert("cpu".to_owned(), Quantity(cpus.to_string()));
    }
    let memory = match memory(spec.memory.as_ref()) {
        Ok(Some(memory)) => Some(memory.as_mib()),
        Ok(None) => made.map(|made| made.memory.as_bytes() >> 20),
        Err(_) => None,
    };
    if let Some(memory) = memory {
        capacity.insert("memory".to_owned(), Quantity(format!("{memory}Mi")));
    }
    let boot = spec
        .disks
        .as_ref()
        .and_then(|disks| disks.boot_volume.as_ref());
    let disk = match boot {
        Some(boot) => u64::try_from(boot.size_gb).ok(),
        None => gibibytes(spec.disk_size.as_ref())
            .ok()
            .flatten()
            .map(api::vm::Bytes::as_gib),
    };
    if let Some(disk) = disk {
        capacity.insert(
            "ephemeral-storage".to_owned(),
            Quantity(format!("{disk}Gi")),
        );
    }
    capacity
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(written: serde_json::Value) -> ProxmoxMachineSpec {
        serde_json::from_value(written).unwrap()
    }

    const MADE: Made = Made {
        cpus: 2,
        memory: Size::gib(4),
    };

    #[test]
    fn capacity_is_what_the_spec_says() {
        let spec =
            spec(serde_json::json!({"cores": 4, "sockets": 2, "memory": 8192, "diskSize": 50}));
        let said = capacity(&spec, Some(MADE));
        assert_eq!(said["cpu"], Quantity("8".into()));
        assert_eq!(said["memory"], Quantity("8192Mi".into()));
        assert_eq!(said["ephemeral-storage"], Quantity("50Gi".into()));
    }

    #[test]
    fn what_the_spec_leaves_open_is_the_templates_or_left_out() {
        let open = spec(serde_json::json!({"cores": 4}));
        assert_eq!(capacity(&open, Some(MADE))["cpu"], Quantity("4".into()));
        let memory = Quantity("4096Mi".into());
        assert_eq!(capacity(&open, Some(MADE))["memory"], memory);
        assert!(!capacity(&open, None).contains_key("memory"));
        let sockets = spec(serde_json::json!({"sockets": 2}));
        assert!(!capacity(&sockets, Some(MADE)).contains_key("cpu"));
    }
}
