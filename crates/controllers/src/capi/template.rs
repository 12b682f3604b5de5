//! `ProxmoxMachineTemplate`: what a machine made from it will have, so that the autoscaler can grow from zero.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::infrastructure::v1beta1::{
    NodeInfo, ProxmoxMachineTemplate, ProxmoxMachineTemplateStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use super::machine::{gibibytes, memory};
use super::owner;
use crate::context::{Context, Error};

pub(crate) async fn reconcile(
    object: Arc<ProxmoxMachineTemplate>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    if object.metadata.deletion_timestamp.is_some() || owner::is_foreign(&context, &*object) {
        return Ok(Action::await_change());
    }
    let uid = object.uid().unwrap_or_default();
    let before: ProxmoxMachineTemplateStatus =
        context.statuses.newest(&uid, object.status.as_ref());
    let status = ProxmoxMachineTemplateStatus {
        capacity: capacity(&object),
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
    Ok(Action::await_change())
}

/// What the spec says; what it leaves to the Proxmox VE template is not known here and left out.
fn capacity(object: &ProxmoxMachineTemplate) -> BTreeMap<String, Quantity> {
    let spec = &object.spec.template.spec;
    let mut capacity = BTreeMap::new();
    if let Some(cores) = spec.cores {
        let cpus = cores.saturating_mul(spec.sockets.unwrap_or(1));
        capacity.insert("cpu".to_owned(), Quantity(cpus.to_string()));
    }
    if let Ok(Some(memory)) = memory(spec.memory.as_ref()) {
        capacity.insert(
            "memory".to_owned(),
            Quantity(format!("{}Mi", memory.as_mib())),
        );
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

    #[test]
    fn capacity_is_what_the_spec_says() {
        let spec = serde_json::json!({"template": {"spec": {"cores": 4, "sockets": 2, "memory": 8192, "diskSize": 50}}});
        let template = ProxmoxMachineTemplate::new("t", serde_json::from_value(spec).unwrap());
        let said = capacity(&template);
        assert_eq!(said["cpu"], Quantity("8".into()));
        assert_eq!(said["memory"], Quantity("8192Mi".into()));
        assert_eq!(said["ephemeral-storage"], Quantity("50Gi".into()));
    }

    #[test]
    fn what_the_spec_leaves_open_is_left_out() {
        let spec = serde_json::json!({"template": {"spec": {"cores": 4}}});
        let template = ProxmoxMachineTemplate::new("t", serde_json::from_value(spec).unwrap());
        assert!(!capacity(&template).contains_key("memory"));
    }
}
