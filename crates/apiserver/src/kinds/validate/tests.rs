use serde_json::{Value, json};

use crate::kinds::BuiltIn;

/// The faults of an object after decoding and defaulting, one a line.
fn faults(group: &str, kind: &str, object: Value, old: Option<Value>) -> String {
    let kind = BuiltIn::find(group, "v1", kind).unwrap();
    let ready = |mut object: Value| {
        kind.decode(&mut object).unwrap();
        kind.default(&mut object);
        object
    };
    let (object, old) = (ready(object), old.map(ready));
    let faults = kind.validate(&object, old.as_ref());
    faults
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn config_maps_and_secrets_are_checked() {
    insta::assert_snapshot!(faults(
        "",
        "ConfigMap",
        json!({"data": {"not a key": "", "x": ""}, "binaryData": {"x": ""}}),
        None
    ));
    insta::assert_snapshot!(faults("", "ConfigMap", json!({"data": {"a": "2"}}), Some(json!({"data": {"a": "1"}, "immutable": true}))), @"
    immutable: Forbidden: field is immutable when `immutable` is set
    data: Forbidden: field is immutable when `immutable` is set
    ");
    insta::assert_snapshot!(faults("", "Secret", json!({"type": "kubernetes.io/tls"}), Some(json!({}))), @r#"
    data[tls.crt]: Required value
    data[tls.key]: Required value
    type: Invalid value: "kubernetes.io/tls": field is immutable
    "#);
}

#[test]
fn pods_are_checked() {
    let bad = json!({"metadata": {"finalizers": ["plain"]}, "spec": {"restartPolicy": "Sometimes", "volumes": [{"name": "v"}, {"name": "v"}], "containers": [
        {"name": "A", "ports": [{"containerPort": 70000, "name": "x--y", "protocol": "ICMP"}]},
        {"name": "b", "image": " b", "volumeMounts": [{"name": "w", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}],
         "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "500m"}}},
        {"name": "b", "image": "b", "imagePullPolicy": "Maybe"},
    ]}});
    insta::assert_snapshot!(faults("", "Pod", bad, None));
    insta::assert_snapshot!(faults("", "Pod", json!({"spec": {}}), None), @"spec.containers: Required value");
    let pod = |image: &str, node: &str| json!({"spec": {"nodeName": node, "containers": [{"name": "a", "image": image}]}});
    assert_eq!(
        faults("", "Pod", pod("a:2", "n"), Some(pod("a:1", "n"))),
        ""
    );
    assert!(
        faults("", "Pod", pod("a:1", "m"), Some(pod("a:1", "n")))
            .starts_with("spec: Forbidden: pod updates may not change")
    );
}

#[test]
fn workloads_are_checked() {
    let deployment = |label: &str, replicas: i64| {
        json!({"spec": {"replicas": replicas, "selector": {"matchLabels": {"app": label}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}}})
    };
    insta::assert_snapshot!(faults("apps", "Deployment", deployment("b", -1), Some(deployment("a", 1))), @r#"
    spec.replicas: Invalid value: -1: must be greater than or equal to 0
    spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`
    spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable
    "#);
    assert_eq!(
        faults(
            "apps",
            "Deployment",
            deployment("a", 2),
            Some(deployment("a", 1))
        ),
        ""
    );
    insta::assert_snapshot!(faults("apps", "Deployment", json!({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}), None), @r#"
    spec.selector: Required value
    spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`
    spec.template.spec.containers: Required value
    spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"
    "#);
    insta::assert_snapshot!(faults("batch", "Job", json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "a"}]}}}}), None), @r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#);
}

#[test]
fn services_and_storage_are_checked() {
    insta::assert_snapshot!(faults(
        "",
        "Service",
        json!({"spec": {"type": "Odd", "ports": [{"port": 0}, {"port": 80, "name": "Bad"}]}}),
        None
    ));
    insta::assert_snapshot!(faults("", "Service", json!({"spec": {}}), None), @"spec.ports: Required value");
    insta::assert_snapshot!(faults("", "PersistentVolumeClaim", json!({"spec": {"accessModes": ["Odd"]}}), None), @r#"
    spec.accessModes: Unsupported value: "Odd": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"
    spec.resources[storage]: Required value
    "#);
    insta::assert_snapshot!(faults("storage.k8s.io", "StorageClass", json!({"provisioner": "b", "parameters": {"a": "1"}}), Some(json!({"provisioner": "a"}))), @r#"
    parameters: Invalid value: {"a":"1"}: field is immutable
    provisioner: Invalid value: "b": field is immutable
    "#);
    insta::assert_snapshot!(faults("", "PersistentVolume", json!({"spec": {}}), None), @"
    spec.accessModes: Required value: at least 1 access mode is required
    spec.capacity: Required value
    spec: Required value: must specify a volume type
    ");
}

#[test]
fn roles_and_bindings_are_checked() {
    insta::assert_snapshot!(faults("rbac.authorization.k8s.io", "Role", json!({"rules": [{}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]}), None), @r#"
    rules[0].verbs: Required value: verbs must contain at least one value
    rules[0].apiGroups: Required value: resource rules must supply at least one api group
    rules[0].resources: Required value: resource rules must supply at least one resource
    rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs
    "#);
    let binding = |name: &str| json!({"roleRef": {"kind": "Role", "name": name}, "subjects": [{"kind": "Robot", "name": "x"}, {"kind": "User"}]});
    insta::assert_snapshot!(faults("rbac.authorization.k8s.io", "RoleBinding", binding("z"), Some(binding("y"))), @r#"
    subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"
    subjects[1].name: Required value
    roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"z"}: cannot change roleRef
    "#);
}

#[test]
fn definitions_are_checked_where_their_parts_are_shared() {
    let crd = |versions: Value, scope: &str| {
        json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": scope, "names": {"plural": "widgets", "kind": "Widget"}, "versions": versions}})
    };
    let version = |name: &str, storage: bool, schema: Value| {
        json!({"name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": [{"name": "", "type": "nonsense", "jsonPath": "x"}],
        "selectableFields": [{"jsonPath": ".spec.nothing"}]})
    };
    let group = "apiextensions.k8s.io";
    let kind = "CustomResourceDefinition";
    let bad = json!({"type": "object", "properties": {"spec": {}}});
    insta::assert_snapshot!(faults(
        group,
        kind,
        crd(json!([version("v1", true, bad.clone())]), "Universe"),
        None
    ));
    insta::assert_snapshot!(faults(
        group,
        kind,
        crd(
            json!([
                version("v1", false, bad),
                version("v1", false, json!({"type": "object"}))
            ]),
            ""
        ),
        None
    ));
    let good = |kind: &str| {
        json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"plural": "widgets", "kind": kind},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v0"]}})
    };
    assert!(faults(group, kind, good("Widget"), None).is_empty());
    insta::assert_snapshot!(faults(group, kind, good("Gadget"), Some(good("Widget"))));
}

#[test]
fn webhooks_are_checked() {
    insta::assert_snapshot!(faults(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        json!({"webhooks": [
        {"name": "short", "clientConfig": {}, "timeoutSeconds": 60, "rules": [{}]},
        {"name": "a.b.c", "clientConfig": {"url": "http://x"}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]}),
        None
    ));
}
