//! The roles every cluster has.

use serde_json::{Value, json};

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

/// Cluster roles, in an order in which aggregating ones come last.
pub(crate) fn cluster_roles() -> Vec<Value> {
    let role = |name: &str, labels: Value, rules: Vec<Value>| {
        let mut labels = labels;
        labels["kubernetes.io/bootstrapping"] = json!("rbac-defaults");
        json!({
            "metadata": {
                "name": name, "labels": labels,
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
            },
            "rules": rules,
        })
    };
    let aggregated = |name: &str, labels: Value, target: &str| {
        let mut role = role(name, labels, Vec::new());
        role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {
            format!("rbac.authorization.k8s.io/aggregate-to-{target}"): "true",
        }}]});
        role
    };
    let to =
        |target: &str| json!({format!("rbac.authorization.k8s.io/aggregate-to-{target}"): "true"});

    let config = [
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "serviceaccounts",
        "services",
    ];
    let secretive = [
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "secrets",
        "services/proxy",
    ];
    let apps = [
        "daemonsets",
        "deployments",
        "deployments/rollback",
        "deployments/scale",
        "replicasets",
        "replicasets/scale",
        "statefulsets",
        "statefulsets/scale",
    ];
    let apps_read = [
        "controllerrevisions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
    ];
    let core_read = [
        "configmaps",
        "endpoints",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "serviceaccounts",
        "services",
        "services/status",
    ];
    let core_status = [
        "bindings",
        "events",
        "limitranges",
        "namespaces/status",
        "pods/log",
        "pods/status",
        "replicationcontrollers/status",
        "resourcequotas",
        "resourcequotas/status",
    ];

    let edit_rules = vec![
        rule(&READ, "", &secretive),
        rule(&["impersonate"], "", &["serviceaccounts"]),
        rule(
            &WRITE,
            "",
            &[
                "pods",
                "pods/attach",
                "pods/exec",
                "pods/portforward",
                "pods/proxy",
            ],
        ),
        rule(&["create"], "", &["pods/eviction"]),
        rule(
            &WRITE,
            "",
            &[
                "configmaps",
                "events",
                "persistentvolumeclaims",
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "secrets",
                "serviceaccounts",
                "services",
                "services/proxy",
            ],
        ),
        rule(&["create"], "", &["serviceaccounts/token"]),
        rule(&WRITE, "apps", &apps),
        rule(&WRITE, "autoscaling", &["horizontalpodautoscalers"]),
        rule(&WRITE, "batch", &["cronjobs", "jobs"]),
        rule(
            &WRITE,
            "networking.k8s.io",
            &["ingresses", "networkpolicies"],
        ),
        rule(&WRITE, "policy", &["poddisruptionbudgets"]),
        rule(
            &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ],
            "coordination.k8s.io",
            &["leases"],
        ),
    ];
    let view_rules = vec![
        rule(&READ, "", &core_read),
        rule(&READ, "", &core_status),
        rule(&READ, "", &["namespaces"]),
        rule(&READ, "discovery.k8s.io", &["endpointslices"]),
        rule(&READ, "apps", &apps_read),
        rule(
            &READ,
            "autoscaling",
            &[
                "horizontalpodautoscalers",
                "horizontalpodautoscalers/status",
            ],
        ),
        rule(
            &READ,
            "batch",
            &["cronjobs", "cronjobs/status", "jobs", "jobs/status"],
        ),
        rule(
            &READ,
            "networking.k8s.io",
            &["ingresses", "ingresses/status", "networkpolicies"],
        ),
        rule(
            &READ,
            "policy",
            &["poddisruptionbudgets", "poddisruptionbudgets/status"],
        ),
    ];
    let admin_rules = vec![
        rule(
            &["create"],
            "authorization.k8s.io",
            &["localsubjectaccessreviews"],
        ),
        rule(
            &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ],
            "rbac.authorization.k8s.io",
            &["rolebindings", "roles"],
        ),
    ];
    let review = |verb: &str, group: &str, resources: &[&str]| rule(&[verb], group, resources);
    vec![
        role(
            "cluster-admin",
            json!({}),
            vec![
                json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
                json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
            ],
        ),
        role(
            "system:discovery",
            json!({}),
            vec![json!({
                "verbs": ["get"],
                "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"],
            })],
        ),
        role(
            "system:public-info-viewer",
            json!({}),
            vec![json!({
                "verbs": ["get"],
                "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
            })],
        ),
        role(
            "system:basic-user",
            json!({}),
            vec![
                review(
                    "create",
                    "authorization.k8s.io",
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                ),
                review("create", "authentication.k8s.io", &["selfsubjectreviews"]),
            ],
        ),
        role(
            "system:auth-delegator",
            json!({}),
            vec![
                review("create", "authentication.k8s.io", &["tokenreviews"]),
                review("create", "authorization.k8s.io", &["subjectaccessreviews"]),
            ],
        ),
        role(
            "system:monitoring",
            json!({}),
            vec![json!({
                "verbs": ["get"],
                "nonResourceURLs": ["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*"],
            })],
        ),
        role("system:aggregate-to-admin", to("admin"), admin_rules),
        role("system:aggregate-to-edit", to("edit"), edit_rules),
        role("system:aggregate-to-view", to("view"), {
            let mut rules = view_rules;
            rules.insert(0, rule(&READ, "", &config));
            rules
        }),
        aggregated("view", to("edit"), "view"),
        aggregated("edit", to("admin"), "edit"),
        aggregated("admin", json!({}), "admin"),
    ]
}

/// Cluster role bindings.
pub(crate) fn cluster_role_bindings() -> Vec<Value> {
    let binding = |name: &str, role: &str, groups: &[&str]| {
        json!({
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
            },
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": groups.iter().map(|group| json!({
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group,
            })).collect::<Vec<_>>(),
        })
    };
    vec![
        binding("cluster-admin", "cluster-admin", &["system:masters"]),
        binding(
            "system:discovery",
            "system:discovery",
            &["system:authenticated"],
        ),
        binding(
            "system:basic-user",
            "system:basic-user",
            &["system:authenticated"],
        ),
        binding(
            "system:public-info-viewer",
            "system:public-info-viewer",
            &["system:authenticated", "system:unauthenticated"],
        ),
        binding(
            "system:monitoring",
            "system:monitoring",
            &["system:monitoring"],
        ),
    ]
}
