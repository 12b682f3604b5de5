//! Clusters made from a class.

use cluster_api::{Plan, kinds, shared};
use serde_json::{Value, json};

/// A class whose machines have as many cores as the cluster says.
fn class(plan: &Plan) -> Vec<Value> {
    let infra = format!("infrastructure.cluster.x-k8s.io/{}", plan.version);
    let reference = |kind: &str, group: &str, name: &str| json!({"templateRef": {"apiVersion": group, "kind": kind, "name": name}});
    let mut cluster = plan.infrastructure_spec();
    if let Some(fields) = cluster.as_object_mut() {
        // Every cluster has its own; the class's variable says which.
        fields.remove("controlPlaneEndpoint");
    }
    let patch = |kind: &str, selector: Value, path: &str, variable: &str| {
        json!({
            "selector": {"apiVersion": infra, "kind": kind, "matchResources": selector},
            "jsonPatches": [{"op": "add", "path": path, "valueFrom": {"variable": variable}}],
        })
    };
    vec![
        json!({
            "apiVersion": infra, "kind": "ProxmoxClusterTemplate", "metadata": {"name": "plain"},
            "spec": {"template": {"spec": cluster}},
        }),
        plan.template("plain-control-plane", &plan.machine),
        plan.template("plain-worker", &plan.machine),
        json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlaneTemplate",
            "metadata": {"name": "plain"},
            "spec": {"template": {"spec": {"kubeadmConfigSpec": plan.kubeadm()}}},
        }),
        json!({
            "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfigTemplate",
            "metadata": {"name": "plain"},
            "spec": {"template": {"spec": {"joinConfiguration": Plan::registration()}}},
        }),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass", "metadata": {"name": "plain"},
            "spec": {
                "infrastructure": reference("ProxmoxClusterTemplate", &infra, "plain"),
                "controlPlane": {
                    "templateRef": {"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlaneTemplate", "name": "plain"},
                    "machineInfrastructure": reference("ProxmoxMachineTemplate", &infra, "plain-control-plane"),
                },
                "workers": {"machineDeployments": [{
                    "class": "worker",
                    "bootstrap": reference("KubeadmConfigTemplate", "bootstrap.cluster.x-k8s.io/v1beta2", "plain"),
                    "infrastructure": reference("ProxmoxMachineTemplate", &infra, "plain-worker"),
                }]},
                "variables": [
                    {"name": "endpoint", "required": true, "schema": {"openAPIV3Schema": {
                        "type": "object", "properties": {"host": {"type": "string"}, "port": {"type": "integer"}},
                    }}},
                    {"name": "cores", "required": true, "schema": {"openAPIV3Schema": {"type": "integer"}}},
                ],
                "patches": [
                    {"name": "endpoint", "definitions": [patch(
                        "ProxmoxClusterTemplate", json!({"infrastructureCluster": true}),
                        "/spec/template/spec/controlPlaneEndpoint", "endpoint",
                    )]},
                    {"name": "cores", "definitions": [patch(
                        "ProxmoxMachineTemplate", json!({"machineDeploymentClass": {"names": ["worker"]}}),
                        "/spec/template/spec/cores", "cores",
                    )]},
                ],
            },
        }),
    ]
}

fn cluster(plan: &Plan, cores: u32) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": plan.name},
        "spec": {"topology": {
            "classRef": {"name": "plain"}, "version": cluster_api::VERSION,
            "controlPlane": {"replicas": 1},
            "workers": {"machineDeployments": [{"class": "worker", "name": "md", "replicas": 1}]},
            "variables": [
                {"name": "endpoint", "value": {"host": "127.0.0.1", "port": plan.port}},
                {"name": "cores", "value": cores},
            ],
        }},
    })
}

#[test]
fn a_class_makes_a_cluster_and_a_changed_variable_rolls_its_machines() {
    shared("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["txl"]).await;
        let plan = bed.plan("classy", &datacenter).await;
        for object in class(&plan) {
            bed.apply("classy", &object).await;
        }
        bed.apply("classy", &cluster(&plan, 2)).await;
        let old = bed.until_running("classy", 2).await;

        // Cluster API asks by dry run whether a template differs; an equal one must not be a new one.
        let templates = bed
            .list("classy", kinds::PROXMOX_MACHINE_TEMPLATE)
            .await
            .len();
        bed.apply("classy", &cluster(&plan, 3)).await;
        bed.until("classy", "rolled out", async || {
            let guests = datacenter.guests(0).await;
            let workers: Vec<_> = guests.iter().filter(|g| g.name.contains("-md-")).collect();
            let done = workers.len() == 1 && workers[0].key("cores") == "3";
            (done && bed.running("classy").await.len() == 2).then_some(())
        })
        .await;
        // Templates are rotated, they do not pile up.
        bed.until("classy", "rid of the old template", async || {
            let after = bed.list("classy", kinds::PROXMOX_MACHINE_TEMPLATE).await;
            (after.len() == templates).then_some(())
        })
        .await;
        // The control plane was not touched.
        let kept = bed.running("classy").await;
        let control_plane = |machines: &[Value]| {
            let label = "cluster.x-k8s.io/control-plane";
            let found = machines
                .iter()
                .find(|machine| machine["metadata"]["labels"].get(label).is_some());
            found.unwrap()["metadata"]["name"].clone()
        };
        assert_eq!(control_plane(&kept), control_plane(&old));
        bed.delete_cluster(&plan).await;
    });
}
