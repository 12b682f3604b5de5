//! The built-in kinds: what they default to, what they refuse, what they can do.

use conformance::{Session, case};
use serde_json::{Value, json};

use crate::fixtures::{deployment, pod};

async fn tries(s: &Session, path: &str, bodies: &[(&str, Value)]) {
    for (what, body) in bodies {
        s.post(what, path, body).await;
    }
}

fn object(api: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut body = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}});
    if let (Some(body), Value::Object(rest)) = (body.as_object_mut(), rest) {
        body.extend(rest);
    }
    body
}

case!(pods, async |s| {
    let mut full = pod("full");
    full["spec"]["initContainers"] =
        json!([{"name": "init", "image": "registry.test/i", "command": ["true"]}]);
    full["spec"]["volumes"] =
        json!([{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "x"}}]);
    full["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    full["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"port": 80}});
    full["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": 1}});
    tries(s, &s.core("pods"), &[
        ("plain", pod("plain")),
        ("full", full),
        ("no containers", object("v1", "Pod", "x", json!({"spec": {}}))),
        ("no image", object("v1", "Pod", "x", json!({"spec": {"containers": [{"name": "a"}]}}))),
        ("twice a name", object("v1", "Pod", "x", json!({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]}}))),
        ("bad quantity", object("v1", "Pod", "x", json!({"spec": {"containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "lots"}}}]}}))),
        ("bad restart policy", object("v1", "Pod", "x", json!({"spec": {"restartPolicy": "Maybe", "containers": [{"name": "a", "image": "i"}]}}))),
    ])
    .await;
});

case!(pods_are_bound_to_nodes, async |s| {
    s.post("pod", &s.core("pods"), &pod("a")).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}});
    s.post("bind", &s.core("pods/a/binding"), &binding).await;
    s.get("bound", &s.core("pods/a")).await;
    s.post("bind again", &s.core("pods/a/binding"), &binding)
        .await;
    s.post("bind nothing", &s.core("pods/none/binding"), &json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "none"}, "target": {"kind": "Node", "name": "node-1"}}))
        .await;
});

case!(evictions_honour_budgets, async |s| {
    let evict = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    for name in ["free", "guarded"] {
        s.post("pod", &s.core("pods"), &pod(name)).await;
        s.merge("running", &s.core(&format!("pods/{name}/status")), &json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})).await;
    }
    s.post(
        "evict the free",
        &s.core("pods/free/eviction"),
        &evict("free"),
    )
    .await;
    s.post(
        "budget",
        &s.group("policy/v1", "poddisruptionbudgets"),
        &object(
            "policy/v1",
            "PodDisruptionBudget",
            "b",
            json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}}),
        ),
    )
    .await;
    s.merge("budget status", &s.group("policy/v1", "poddisruptionbudgets/b/status"),
        &json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}}))
        .await;
    s.post(
        "evict the guarded",
        &s.core("pods/guarded/eviction"),
        &evict("guarded"),
    )
    .await;
    s.merge(
        "budget allows one",
        &s.group("policy/v1", "poddisruptionbudgets/b/status"),
        &json!({"status": {"disruptionsAllowed": 1, "currentHealthy": 2}}),
    )
    .await;
    s.post(
        "dry run",
        &s.core("pods/guarded/eviction?dryRun=All"),
        &evict("guarded"),
    )
    .await;
    s.post(
        "evict now",
        &s.core("pods/guarded/eviction"),
        &evict("guarded"),
    )
    .await;
    s.get(
        "budget is used",
        &s.group("policy/v1", "poddisruptionbudgets/b"),
    )
    .await;
    s.post(
        "evict nothing",
        &s.core("pods/none/eviction"),
        &evict("none"),
    )
    .await;
});

case!(secrets, async |s| {
    let secret = |name: &str, rest: Value| object("v1", "Secret", name, rest);
    tries(
        s,
        &s.core("secrets"),
        &[
            (
                "strings",
                secret(
                    "a",
                    json!({"stringData": {"x": "y"}, "data": {"z": "dw=="}}),
                ),
            ),
            ("bad base64", secret("b", json!({"data": {"x": "!"}}))),
            (
                "bad key",
                secret("b", json!({"stringData": {"not a key": "x"}})),
            ),
            (
                "login without its file",
                secret("b", json!({"type": "kubernetes.io/dockerconfigjson"})),
            ),
            (
                "tls without a key",
                secret(
                    "b",
                    json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
                ),
            ),
            (
                "basic auth without anything",
                secret("b", json!({"type": "kubernetes.io/basic-auth"})),
            ),
            (
                "token of nobody",
                secret("b", json!({"type": "kubernetes.io/service-account-token"})),
            ),
        ],
    )
    .await;
    s.merge(
        "add a string",
        &s.core("secrets/a"),
        &json!({"stringData": {"n": "m"}}),
    )
    .await;
    s.merge("freeze", &s.core("secrets/a"), &json!({"immutable": true}))
        .await;
    s.merge(
        "change the frozen",
        &s.core("secrets/a"),
        &json!({"data": {"x": null}}),
    )
    .await;
});

case!(services, async |s| {
    let service = |name: &str, spec: Value| object("v1", "Service", name, json!({"spec": spec}));
    tries(
        s,
        &s.core("services"),
        &[
            (
                "headless",
                service("a", json!({"clusterIP": "None", "ports": [{"port": 80}]})),
            ),
            (
                "external",
                service(
                    "b",
                    json!({"type": "ExternalName", "externalName": "x.test"}),
                ),
            ),
            ("no ports", service("c", json!({"clusterIP": "10.0.0.77"}))),
            (
                "bad port",
                service(
                    "c",
                    json!({"clusterIP": "None", "ports": [{"port": 99999}]}),
                ),
            ),
            (
                "two ports without names",
                service(
                    "c",
                    json!({"clusterIP": "None", "ports": [{"port": 80}, {"port": 81}]}),
                ),
            ),
            (
                "bad type",
                service("c", json!({"type": "Magic", "ports": [{"port": 80}]})),
            ),
        ],
    )
    .await;
    s.merge(
        "status",
        &s.core("services/a/status"),
        &json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.1.1.1"}]}}}),
    )
    .await;
});

case!(workloads, async |s| {
    let template = deployment("a")["spec"]["template"].clone();
    let selector = json!({"matchLabels": {"app": "a"}});
    let apps = |kind: &str, spec: Value| object("apps/v1", kind, "a", json!({"spec": spec}));
    s.post(
        "deployment",
        &s.group("apps/v1", "deployments"),
        &deployment("a"),
    )
    .await;
    s.post(
        "replica set",
        &s.group("apps/v1", "replicasets"),
        &apps(
            "ReplicaSet",
            json!({"selector": selector, "template": template}),
        ),
    )
    .await;
    s.post(
        "stateful set",
        &s.group("apps/v1", "statefulsets"),
        &apps(
            "StatefulSet",
            json!({"serviceName": "a", "selector": selector, "template": template}),
        ),
    )
    .await;
    s.post(
        "daemon set",
        &s.group("apps/v1", "daemonsets"),
        &apps(
            "DaemonSet",
            json!({"selector": selector, "template": template}),
        ),
    )
    .await;
    s.post("job", &s.group("batch/v1", "jobs"), &object("batch/v1", "Job", "a", json!({"spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}}}})))
        .await;
    s.post("cron job", &s.group("batch/v1", "cronjobs"), &object("batch/v1", "CronJob", "a", json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}}}}}})))
        .await;
    s.post("wrong selector", &s.group("apps/v1", "deployments"), &{
        let mut body = deployment("b");
        body["spec"]["selector"]["matchLabels"]["app"] = json!("other");
        body
    })
    .await;
    s.post(
        "nothing in it",
        &s.group("apps/v1", "deployments"),
        &object("apps/v1", "Deployment", "b", json!({"spec": {}})),
    )
    .await;
    s.post("negative", &s.group("apps/v1", "deployments"), &{
        let mut body = deployment("b");
        body["spec"]["replicas"] = json!(-1);
        body
    })
    .await;
    for plural in ["deployments", "replicasets", "statefulsets"] {
        s.get("scale", &s.group("apps/v1", &format!("{plural}/a/scale")))
            .await;
        s.merge(
            "scaled",
            &s.group("apps/v1", &format!("{plural}/a/scale")),
            &json!({"spec": {"replicas": 4}}),
        )
        .await;
    }
    s.get("effect", &s.group("apps/v1", "deployments/a")).await;
});

case!(nodes, async |s| {
    let path = format!("/api/v1/nodes/{}", s.ns());
    s.post(
        "create",
        "/api/v1/nodes",
        &object(
            "v1",
            "Node",
            s.ns(),
            json!({"spec": {"providerID": "proxmox://one/100", "podCIDR": "10.1.0.0/24"}}),
        ),
    )
    .await;
    s.merge("status", &format!("{path}/status"), &json!({"status": {"capacity": {"cpu": "4", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "y"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}))
        .await;
    s.merge(
        "taint",
        &path,
        &json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    )
    .await;
    s.merge(
        "bad taint",
        &path,
        &json!({"spec": {"taints": [{"key": "a", "effect": "Whatever"}]}}),
    )
    .await;
    s.merge(
        "another provider",
        &path,
        &json!({"spec": {"providerID": "proxmox://one/101"}}),
    )
    .await;
    s.table("table", &path).await;
    s.delete("delete", &path).await;
});

case!(storage, async |s| {
    let ns = s.ns().to_owned();
    let class = object(
        "storage.k8s.io/v1",
        "StorageClass",
        &ns,
        json!({"provisioner": "csi.test", "parameters": {"a": "b"}}),
    );
    s.post("class", "/apis/storage.k8s.io/v1/storageclasses", &class)
        .await;
    s.merge(
        "change parameters",
        &format!("/apis/storage.k8s.io/v1/storageclasses/{ns}"),
        &json!({"parameters": {"a": "c"}}),
    )
    .await;
    s.post(
        "bad class",
        "/apis/storage.k8s.io/v1/storageclasses",
        &object("storage.k8s.io/v1", "StorageClass", "x", json!({})),
    )
    .await;
    let volume = object(
        "v1",
        "PersistentVolume",
        &ns,
        json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": ns,
        "csi": {"driver": "csi.test", "volumeHandle": "h"}}}),
    );
    s.post("volume", "/api/v1/persistentvolumes", &volume).await;
    s.post(
        "volume of nothing",
        "/api/v1/persistentvolumes",
        &object(
            "v1",
            "PersistentVolume",
            "x",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}),
        ),
    )
    .await;
    let claim = object(
        "v1",
        "PersistentVolumeClaim",
        "a",
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": ns, "resources": {"requests": {"storage": "1Gi"}}}}),
    );
    s.post("claim", &s.core("persistentvolumeclaims"), &claim)
        .await;
    s.merge(
        "grow the unbound",
        &s.core("persistentvolumeclaims/a"),
        &json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
    )
    .await;
    s.merge(
        "another class",
        &s.core("persistentvolumeclaims/a"),
        &json!({"spec": {"storageClassName": "x"}}),
    )
    .await;
    s.merge(
        "status",
        &s.core("persistentvolumeclaims/a/status"),
        &json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}),
    )
    .await;
    s.post(
        "bad claim",
        &s.core("persistentvolumeclaims"),
        &object("v1", "PersistentVolumeClaim", "b", json!({"spec": {}})),
    )
    .await;
    s.delete("delete the claim", &s.core("persistentvolumeclaims/a"))
        .await;
    s.eventually("it goes", &s.core("persistentvolumeclaims/a"), |r| {
        r.status == 404
    })
    .await;
    s.delete(
        "delete the volume",
        &format!("/api/v1/persistentvolumes/{ns}"),
    )
    .await;
    s.eventually(
        "it goes too",
        &format!("/api/v1/persistentvolumes/{ns}"),
        |r| r.status == 404,
    )
    .await;
    s.delete(
        "delete the class",
        &format!("/apis/storage.k8s.io/v1/storageclasses/{ns}"),
    )
    .await;
});

case!(csi, async |s| {
    let ns = s.ns().to_owned();
    s.post(
        "driver",
        "/apis/storage.k8s.io/v1/csidrivers",
        &object(
            "storage.k8s.io/v1",
            "CSIDriver",
            &ns,
            json!({"spec": {"attachRequired": true}}),
        ),
    )
    .await;
    s.post("node", "/apis/storage.k8s.io/v1/csinodes", &object("storage.k8s.io/v1", "CSINode", &ns, json!({"spec": {"drivers": [{"name": "csi.test", "nodeID": "n", "topologyKeys": ["z"], "allocatable": {"count": 16}}]}})))
        .await;
    s.post("attachment", "/apis/storage.k8s.io/v1/volumeattachments",
        &object("storage.k8s.io/v1", "VolumeAttachment", &ns, json!({"spec": {"attacher": "csi.test", "nodeName": "n", "source": {"persistentVolumeName": "v"}}})))
        .await;
    s.merge(
        "attached",
        &format!("/apis/storage.k8s.io/v1/volumeattachments/{ns}/status"),
        &json!({"status": {"attached": true}}),
    )
    .await;
    s.merge(
        "elsewhere",
        &format!("/apis/storage.k8s.io/v1/volumeattachments/{ns}"),
        &json!({"spec": {"nodeName": "m"}}),
    )
    .await;
    s.post(
        "capacity",
        &s.group("storage.k8s.io/v1", "csistoragecapacities"),
        &object(
            "storage.k8s.io/v1",
            "CSIStorageCapacity",
            "a",
            json!({"storageClassName": "x", "capacity": "10Gi"}),
        ),
    )
    .await;
    for plural in ["csidrivers", "csinodes", "volumeattachments"] {
        s.delete("delete", &format!("/apis/storage.k8s.io/v1/{plural}/{ns}"))
            .await;
    }
});

case!(leases, async |s| {
    let path = s.group("coordination.k8s.io/v1", "leases");
    tries(s, &path, &[
        ("held", object("coordination.k8s.io/v1", "Lease", "a", json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2024-01-01T00:00:00.123456Z"}}))),
        ("zero", object("coordination.k8s.io/v1", "Lease", "b", json!({"spec": {"leaseDurationSeconds": 0}}))),
        ("bad time", object("coordination.k8s.io/v1", "Lease", "b", json!({"spec": {"renewTime": "nonsense"}}))),
        ("seconds only", object("coordination.k8s.io/v1", "Lease", "c", json!({"spec": {"renewTime": "2024-01-01T00:00:00Z"}}))),
    ])
    .await;
});

case!(events_have_two_doors, async |s| {
    let about = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": s.ns()});
    s.post("core", &s.core("events"), &json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "involvedObject": about, "reason": "R", "message": "m", "type": "Normal",
        "source": {"component": "c"}, "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:00Z", "count": 1}))
        .await;
    s.get(
        "core through the new door",
        &s.group("events.k8s.io/v1", "events/a"),
    )
    .await;
    s.post("new", &s.group("events.k8s.io/v1", "events"), &json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "b"}, "regarding": about, "reason": "R", "note": "n",
        "type": "Warning", "action": "Act", "reportingController": "example.com/c", "reportingInstance": "i", "eventTime": "2024-01-01T00:00:00.000000Z"}))
        .await;
    s.get("new through the core door", &s.core("events/b"))
        .await;
    s.post("of another namespace", &s.core("events"), &json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "c"}, "involvedObject": {"kind": "ConfigMap", "name": "x", "namespace": "elsewhere"}}))
        .await;
    s.post("new without a time", &s.group("events.k8s.io/v1", "events"), &json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "d"}, "regarding": about})).await;
    s.table("as a table", &s.core("events/b")).await;
});

case!(the_rest, async |s| {
    let ns = s.ns().to_owned();
    s.post(
        "budget",
        &s.group("policy/v1", "poddisruptionbudgets"),
        &object(
            "policy/v1",
            "PodDisruptionBudget",
            "a",
            json!({"spec": {"maxUnavailable": "50%", "selector": {}}}),
        ),
    )
    .await;
    s.post(
        "budget of both",
        &s.group("policy/v1", "poddisruptionbudgets"),
        &object(
            "policy/v1",
            "PodDisruptionBudget",
            "b",
            json!({"spec": {"maxUnavailable": 1, "minAvailable": 1}}),
        ),
    )
    .await;
    s.post(
        "priority",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        &object(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            &ns,
            json!({"value": 5, "description": "d"}),
        ),
    )
    .await;
    s.merge(
        "another priority",
        &format!("/apis/scheduling.k8s.io/v1/priorityclasses/{ns}"),
        &json!({"value": 6}),
    )
    .await;
    s.get(
        "built-in priority",
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
    )
    .await;
    s.delete(
        "delete the priority",
        &format!("/apis/scheduling.k8s.io/v1/priorityclasses/{ns}"),
    )
    .await;
    s.post("slice", &s.group("discovery.k8s.io/v1", "endpointslices"), &object("discovery.k8s.io/v1", "EndpointSlice", "a", json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]})))
        .await;
    s.post(
        "bad slice",
        &s.group("discovery.k8s.io/v1", "endpointslices"),
        &object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "b",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["nonsense"]}]}),
        ),
    )
    .await;
    s.post(
        "account",
        &s.core("serviceaccounts"),
        &object(
            "v1",
            "ServiceAccount",
            "a",
            json!({"automountServiceAccountToken": false}),
        ),
    )
    .await;
    s.post(
        "role",
        &s.group("rbac.authorization.k8s.io/v1", "roles"),
        &object(
            "rbac.authorization.k8s.io/v1",
            "Role",
            "a",
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
    )
    .await;
});

case!(deployments_are_scaled, async |s| {
    let path = s.group("apps/v1", "deployments");
    s.post("create", &path, &crate::fixtures::deployment("a"))
        .await;
    let scale = s.get("scale", &format!("{path}/a/scale")).await;
    let mut body = scale.body.clone();
    body["spec"]["replicas"] = json!(5);
    s.put("put", &format!("{path}/a/scale"), &body).await;
    s.put("stale", &format!("{path}/a/scale"), &body).await;
    s.merge(
        "patch",
        &format!("{path}/a/scale"),
        &json!({"spec": {"replicas": 0}}),
    )
    .await;
    s.merge(
        "negative",
        &format!("{path}/a/scale"),
        &json!({"spec": {"replicas": -1}}),
    )
    .await;
    s.merge(
        "dry run",
        &format!("{path}/a/scale?dryRun=All"),
        &json!({"spec": {"replicas": 7}}),
    )
    .await;
    s.get("effect", &format!("{path}/a")).await;
    s.get("nobody's", &format!("{path}/none/scale")).await;
});
