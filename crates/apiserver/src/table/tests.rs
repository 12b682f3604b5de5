use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";
const MADE: &str = "2026-01-01T00:50:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn row(group: &str, kind: &str, mut object: Value) -> String {
    object["metadata"]["name"] = json!("x");
    object["metadata"]["creationTimestamp"] = json!(MADE);
    let printer = Printer::built_in(group, kind);
    let row = printer.row(&object, Include::None, now());
    let cells = row["cells"].as_array().unwrap();
    assert_eq!(cells.len(), printer.columns.len(), "{kind}");
    let pairs = printer.columns.iter().zip(cells);
    let shown: Vec<_> = pairs
        .map(|(column, cell)| format!("{}={cell}", column.name))
        .collect();
    format!("{kind}: {}", shown.join(" | "))
}

#[test]
fn built_in_kinds_show_what_kubectl_shows() {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}});
    let selector = json!({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "t", "operator": "In", "values": ["b", "a"]}]});
    let rows = [
        row(
            "",
            "ConfigMap",
            json!({"data": {"a": ""}, "binaryData": {"b": ""}}),
        ),
        row("", "Secret", json!({"type": "Opaque", "data": {"a": ""}})),
        row("", "Namespace", json!({"status": {"phase": "Active"}})),
        row(
            "",
            "Node",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}, "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                       "nodeInfo": {"kubeletVersion": "v1.36.4", "kernelVersion": "6.1", "architecture": "amd64"}}}),
        ),
        row(
            "",
            "Service",
            json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.1.1.1", "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}], "selector": {"b": "c", "a": "b"}}}),
        ),
        row(
            "",
            "Event",
            json!({"type": "Normal", "reason": "R", "message": " m ", "count": 3, "lastTimestamp": MADE, "firstTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "c", "host": "h"}}),
        ),
        row(
            "",
            "PersistentVolumeClaim",
            json!({"spec": {"volumeName": "v", "storageClassName": "s", "volumeMode": "Filesystem"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}}),
        ),
        row(
            "",
            "PersistentVolume",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "n", "name": "c"}}, "status": {"phase": "Bound"}}),
        ),
        row(
            "apps",
            "Deployment",
            json!({"spec": {"replicas": 2, "template": template, "selector": selector}, "status": {"readyReplicas": 1}}),
        ),
        row(
            "apps",
            "ReplicaSet",
            json!({"spec": {"replicas": 2, "template": template, "selector": selector}}),
        ),
        row(
            "apps",
            "StatefulSet",
            json!({"spec": {"replicas": 2, "template": template}}),
        ),
        row(
            "apps",
            "DaemonSet",
            json!({"spec": {"template": template, "selector": selector}, "status": {"numberReady": 1}}),
        ),
        row(
            "batch",
            "Job",
            json!({"spec": {"completions": 2, "template": template}, "status": {"succeeded": 1, "startTime": "2026-01-01T00:55:00Z"}}),
        ),
        row(
            "batch",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}}),
        ),
        row(
            "coordination.k8s.io",
            "Lease",
            json!({"spec": {"holderIdentity": "me"}}),
        ),
        row(
            "policy",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%"}}),
        ),
        row(
            "rbac.authorization.k8s.io",
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]}),
        ),
        row("rbac.authorization.k8s.io", "Role", json!({})),
        row(
            "scheduling.k8s.io",
            "PriorityClass",
            json!({"value": 5, "preemptionPolicy": "Never"}),
        ),
        row(
            "storage.k8s.io",
            "StorageClass",
            json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"}),
        ),
        row(
            "storage.k8s.io",
            "CSIDriver",
            json!({"spec": {"volumeLifecycleModes": ["Persistent"]}}),
        ),
        row(
            "storage.k8s.io",
            "CSINode",
            json!({"spec": {"drivers": [{}]}}),
        ),
        row(
            "storage.k8s.io",
            "VolumeAttachment",
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}, "status": {"attached": true}}),
        ),
        row(
            "discovery.k8s.io",
            "EndpointSlice",
            json!({"addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": ["1", "2"]}, {"addresses": ["3", "4"]}]}),
        ),
        row(
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            json!({"webhooks": [{}]}),
        ),
        row(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            json!({}),
        ),
    ];
    insta::assert_snapshot!(rows.join("\n"));
}

#[test]
fn a_pod_is_told_in_a_word() {
    let pod = |status: Value| {
        let object = json!({"spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}], "nodeName": "n"}, "status": status});
        row("", "Pod", object)
            .split(" | ")
            .skip(1)
            .take(3)
            .collect::<Vec<_>>()
            .join(" | ")
    };
    let states = [
        pod(json!({"phase": "Pending"})),
        pod(
            json!({"phase": "Running", "containerStatuses": [{"ready": true, "state": {"running": {}}, "restartCount": 2,
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:58:00Z"}}}]}),
        ),
        pod(
            json!({"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
        ),
        pod(
            json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}),
        ),
        pod(
            json!({"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}),
        ),
        pod(
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}),
        ),
        pod(
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
        ),
        pod(
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
        ),
    ];
    insta::assert_snapshot!(states.join("\n"));
}

#[test]
fn custom_columns_take_the_first_value_of_their_type() {
    let printer = Printer::custom(&json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "how large"},
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
        {"name": "All", "type": "string", "jsonPath": ".spec.list[*].name", "priority": 1},
        {"name": "Map", "type": "string", "jsonPath": ".spec.map"},
        {"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag"},
        {"name": "Gone", "type": "string", "jsonPath": ".spec.gone"},
    ]));
    let object = json!({"metadata": {"name": "a"}, "spec": {"size": 3, "when": MADE, "flag": "yes",
        "list": [{"name": "x"}, {"name": "y"}], "map": {"b": 1}}});
    let table = printer.table(
        [&object],
        Include::Metadata,
        &json!({"resourceVersion": "5"}),
        now(),
    );
    insta::assert_json_snapshot!(table);
    let plain = Printer::custom(&Value::Null);
    let object = json!({"metadata": {"name": "a", "creationTimestamp": MADE}});
    assert_eq!(
        plain.row(&object, Include::None, now())["cells"],
        json!(["a", "10m"])
    );
}

#[test]
fn how_much_comes_along_is_asked_in_known_words() {
    assert_eq!(Include::parse(""), Ok(Include::Metadata));
    assert!(
        Include::parse("Nonsense")
            .unwrap_err()
            .contains("must be 'Metadata', 'Object', 'None', or empty")
    );
    let printer = Printer::built_in("", "ConfigMap");
    let object = json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {}});
    assert_eq!(
        printer.row(&object, Include::Object, now())["object"],
        object
    );
    assert_eq!(
        printer.row(&object, Include::None, now())["object"],
        Value::Null
    );
}
