//! Kinds that limit or lead others: ingresses, network policies, quotas, autoscalers.

use conformance::{Session, case};
use serde_json::{Value, json};

fn object(api: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

async fn tries(s: &Session, path: &str, api: &str, kind: &str, specs: &[(&str, Value)]) {
    for (number, (what, spec)) in specs.iter().enumerate() {
        let body = object(api, kind, &format!("x{number}"), spec);
        s.post(what, path, &body).await;
    }
}

fn backend(port: &Value) -> Value {
    json!({"service": {"name": "web", "port": port}})
}

fn route(path: &str, kind: &str) -> Value {
    json!({"rules": [{"http": {"paths": [{"path": path, "pathType": kind, "backend": backend(&json!({"number": 80}))}]}}]})
}

case!(ingresses, async |s| {
    let path = s.group("networking.k8s.io/v1", "ingresses");
    let host = |host: &str| {
        let mut spec = route("/", "Prefix");
        spec["rules"][0]["host"] = json!(host);
        spec
    };
    tries(s, &path, "networking.k8s.io/v1", "Ingress", &[
        ("nothing", json!({})),
        ("a default", json!({"defaultBackend": backend(&json!({"number": 80}))})),
        ("a route", route("/", "Prefix")),
        ("no absolute path", route("web", "Prefix")),
        ("a double slash", route("/a//b", "Exact")),
        ("its own kind", route("", "ImplementationSpecific")),
        ("an unknown kind", route("/", "Regex")),
        ("no kind", json!({"rules": [{"http": {"paths": [{"path": "/", "backend": backend(&json!({"number": 80}))}]}}]})),
        ("no paths", json!({"rules": [{"http": {"paths": []}}]})),
        ("a host", host("web.example.com")),
        ("a wild host", host("*.example.com")),
        ("a host too wild", host("a.*.example.com")),
        ("an address", host("10.0.0.1")),
        ("a bad host", host("web_1")),
        ("a port by name", json!({"defaultBackend": backend(&json!({"name": "http"}))})),
        ("a port by both", json!({"defaultBackend": backend(&json!({"name": "http", "number": 80}))})),
        ("no port", json!({"defaultBackend": backend(&json!({}))})),
        ("a port too high", json!({"defaultBackend": backend(&json!({"number": 70000}))})),
        ("no backend", json!({"defaultBackend": {}})),
        ("no name", json!({"defaultBackend": {"service": {"name": "", "port": {"number": 80}}}})),
        ("a bad name", json!({"defaultBackend": {"service": {"name": "Web_1", "port": {"number": 80}}}})),
        ("both backends", json!({"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}, "resource": {"kind": "Bucket", "name": "b"}}})),
        ("a certificate", json!({"defaultBackend": backend(&json!({"number": 80})), "tls": [{"hosts": ["a.example.com", "Bad_1"], "secretName": "s"}]})),
        ("a class", json!({"ingressClassName": "Bad_1", "defaultBackend": backend(&json!({"number": 80}))})),
    ])
    .await;
});

case!(network_policies, async |s| {
    let path = s.group("networking.k8s.io/v1", "networkpolicies");
    let from = |peer: Value| json!({"podSelector": {}, "ingress": [{"from": [peer]}]});
    let port = |port: Value| json!({"podSelector": {}, "egress": [{"ports": [port]}]});
    tries(s, &path, "networking.k8s.io/v1", "NetworkPolicy", &[
        ("all pods", json!({"podSelector": {}})),
        ("a block", from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}))),
        ("no block", from(json!({"ipBlock": {"cidr": ""}}))),
        ("a bad block", from(json!({"ipBlock": {"cidr": "10.0.0.0"}}))),
        ("an exception outside", from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["192.168.0.0/16"]}}))),
        ("an exception of all", from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}))),
        ("nobody", from(json!({}))),
        ("both", from(json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}))),
        ("a bad label", from(json!({"podSelector": {"matchLabels": {"a b": "c"}}}))),
        ("a bad operator", from(json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}))),
        ("a port", port(json!({"port": 80}))),
        ("a named port", port(json!({"port": "http", "protocol": "UDP"}))),
        ("a port too high", port(json!({"port": 70000}))),
        ("a bad port name", port(json!({"port": "HTTP_1"}))),
        ("a range", port(json!({"port": 80, "endPort": 90}))),
        ("a range backwards", port(json!({"port": 80, "endPort": 70}))),
        ("a range from nowhere", port(json!({"endPort": 70}))),
        ("a range of a name", port(json!({"port": "http", "endPort": 90}))),
        ("a protocol", port(json!({"port": 80, "protocol": "ICMP"}))),
        ("three types", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress", "Ingress"]})),
        ("a bad type", json!({"podSelector": {}, "policyTypes": ["Both"]})),
        ("a bad selector", json!({"podSelector": {"matchLabels": {"a": "b c"}}})),
    ])
    .await;
});

case!(quotas, async |s| {
    let path = s.core("resourcequotas");
    tries(s, &path, "v1", "ResourceQuota", &[
        ("pods and memory", json!({"hard": {"pods": "10", "requests.memory": "1Gi", "limits.cpu": "2"}})),
        ("counts", json!({"hard": {"count/deployments.apps": "3", "example.com/gpu": "1", "requests.example.com/gpu": "1"}})),
        ("an unknown one", json!({"hard": {"bogus": "1"}})),
        ("a malformed one", json!({"hard": {"a b": "1"}})),
        ("less than none", json!({"hard": {"pods": "-1"}})),
        ("half a pod", json!({"hard": {"pods": "500m"}})),
        ("a scope", json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]})),
        ("an unknown scope", json!({"hard": {"pods": "1"}, "scopes": ["Sometimes"]})),
        ("scopes that exclude", json!({"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]})),
        ("a scope that does not fit", json!({"hard": {"requests.cpu": "1"}, "scopes": ["BestEffort"]})),
    ])
    .await;
    let body = json!({"spec": {"scopes": ["NotTerminating"]}});
    s.merge("another scope", &s.core("resourcequotas/x6"), &body)
        .await;
});

case!(autoscalers, async |s| {
    let path = s.group("autoscaling/v2", "horizontalpodautoscalers");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let with = |rest: Value| {
        let mut spec = json!({"scaleTargetRef": target, "maxReplicas": 3});
        for (name, value) in rest.as_object().into_iter().flatten() {
            spec[name.as_str()] = value.clone();
        }
        spec
    };
    let cpu = |target: Value| {
        with(
            json!({"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]}),
        )
    };
    tries(s, &path, "autoscaling/v2", "HorizontalPodAutoscaler", &[
        ("plain", with(json!({}))),
        ("no target", json!({"maxReplicas": 3, "scaleTargetRef": {"kind": "", "name": ""}})),
        ("a bad target", json!({"maxReplicas": 3, "scaleTargetRef": {"kind": "De/ploy", "name": "a/b"}})),
        ("none at most", with(json!({"maxReplicas": 0}))),
        ("fewer at most", with(json!({"minReplicas": 5}))),
        ("none at least", with(json!({"minReplicas": 0}))),
        ("by use", cpu(json!({"type": "Utilization", "averageUtilization": 50}))),
        ("by no use", cpu(json!({"type": "Utilization"}))),
        ("by negative use", cpu(json!({"type": "Utilization", "averageUtilization": 0}))),
        ("by an amount", cpu(json!({"type": "AverageValue", "averageValue": "100m"}))),
        ("by both", cpu(json!({"type": "Utilization", "averageUtilization": 5, "averageValue": "1"}))),
        ("by a whole value", cpu(json!({"type": "Value", "value": "1"}))),
        ("no type", cpu(json!({"type": "", "averageUtilization": 50}))),
        ("an unknown type", with(json!({"metrics": [{"type": "Weather"}]}))),
        ("the wrong source", with(json!({"metrics": [{"type": "Pods", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}))),
        ("a policy", with(json!({"behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}}))),
        ("a policy without value", with(json!({"behavior": {"scaleUp": {"policies": [{"type": "Percent", "value": 0, "periodSeconds": 0}]}}}))),
        ("an endless window", with(json!({"behavior": {"scaleUp": {"stabilizationWindowSeconds": 7200}}}))),
        ("an unknown choice", with(json!({"behavior": {"scaleUp": {"selectPolicy": "Sometimes"}}}))),
    ])
    .await;
});
