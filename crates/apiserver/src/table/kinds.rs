//! Columns and cells of the built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Cells, age, pods, storage, workloads};

/// The columns and cells of a kind.
pub(super) fn find(group: &str, kind: &str) -> (&'static str, Cells) {
    match (group, kind) {
        ("", "Pod") => (pods::COLUMNS, pods::cells),
        ("", "Node") => (
            "Name|Status|Roles|Age|Version|Internal-IP+|External-IP+|OS-Image+|Kernel-Version+|\
             Container-Runtime+",
            node,
        ),
        ("", "Namespace") => ("Name|Status|Age", |o, now| {
            vec![name(o), text(&o["status"], "phase").into(), aged(o, now)]
        }),
        ("", "ConfigMap") => ("Name|Data|Age", |o, now| {
            let count = size(&o["data"]) + size(&o["binaryData"]);
            vec![name(o), count.into(), aged(o, now)]
        }),
        ("", "Secret") => ("Name|Type|Data|Age", |o, now| {
            vec![
                name(o),
                text(o, "type").into(),
                size(&o["data"]).into(),
                aged(o, now),
            ]
        }),
        ("", "ServiceAccount") => ("Name|Age", |o, now| vec![name(o), aged(o, now)]),
        ("", "Service") => (
            "Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector+",
            service,
        ),
        ("", "Endpoints") => ("Name|Endpoints|Age", |o, now| {
            vec![name(o), endpoints(o).into(), aged(o, now)]
        }),
        ("" | "events.k8s.io", "Event") => (
            "Last Seen|Type|Reason|Object|Subobject+|Source+|Message|First Seen+|Count+|Name+",
            event,
        ),
        ("", "PersistentVolumeClaim" | "PersistentVolume") | ("storage.k8s.io", _) => {
            storage::find(kind)
        }
        ("apps" | "batch", _) => workloads::find(kind),
        ("autoscaling", "Scale") => ("Name|Desired#|Available#|Age", |o, now| {
            let count = |part: &str| o[part]["replicas"].as_i64().unwrap_or(0).into();
            vec![name(o), count("spec"), count("status"), aged(o, now)]
        }),
        ("coordination.k8s.io", "Lease") => ("Name|Holder|Age", |o, now| {
            vec![
                name(o),
                text(&o["spec"], "holderIdentity").into(),
                aged(o, now),
            ]
        }),
        ("policy", "PodDisruptionBudget") => (
            "Name|Min Available|Max Unavailable|Allowed Disruptions#|Age",
            |o, now| {
                let bound = |field: &str| match &o["spec"][field] {
                    Value::Null => "N/A".into(),
                    Value::String(text) => text.as_str().into(),
                    number => number.to_string().into(),
                };
                let allowed = int(&o["status"], "disruptionsAllowed");
                vec![
                    name(o),
                    bound("minAvailable"),
                    bound("maxUnavailable"),
                    allowed.into(),
                    aged(o, now),
                ]
            },
        ),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            ("Name|Role|Age|Users+|Groups+|ServiceAccounts+", binding)
        }
        ("scheduling.k8s.io", "PriorityClass") => (
            "Name|Value#|Global-Default?|Age|PreemptionPolicy",
            |o, now| {
                let default = o["globalDefault"] == true;
                let policy = text(o, "preemptionPolicy");
                vec![
                    name(o),
                    int(o, "value").into(),
                    default.into(),
                    aged(o, now),
                    policy.into(),
                ]
            },
        ),
        ("discovery.k8s.io", "EndpointSlice") => ("Name|AddressType|Ports|Endpoints|Age", slice),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => ("Name|Webhooks#|Age", |o, now| {
            vec![name(o), list(&o["webhooks"]).len().into(), aged(o, now)]
        }),
        ("networking.k8s.io", "NetworkPolicy") => ("Name|Pod-Selector|Age", |o, now| {
            vec![
                name(o),
                selector(&o["spec"]["podSelector"]).into(),
                aged(o, now),
            ]
        }),
        ("networking.k8s.io", "Ingress") => ("Name|Class|Hosts|Address|Ports|Age", ingress),
        ("", "ResourceQuota") => ("Name|Request|Limit|Age", quota),
        _ => ("Name|Created At@", |o, _| {
            vec![name(o), o["metadata"]["creationTimestamp"].clone()]
        }),
    }
}

pub(super) fn name(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

pub(super) fn aged(object: &Value, now: Timestamp) -> Value {
    age::since(&object["metadata"]["creationTimestamp"], now).into()
}

pub(super) fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

pub(super) fn text_or<'a>(object: &'a Value, name: &str, other: &'a str) -> &'a str {
    object[name]
        .as_str()
        .filter(|text| !text.is_empty())
        .unwrap_or(other)
}

pub(super) fn int(object: &Value, name: &str) -> i64 {
    object[name].as_i64().unwrap_or_default()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn size(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

/// Labels as `a=b,c=d`.
pub(super) fn labels(labels: &Value) -> String {
    let mut parts: Vec<_> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    parts.sort();
    if parts.is_empty() {
        "<none>".into()
    } else {
        parts.join(",")
    }
}

/// A label selector as people write it.
pub(super) fn selector(selector: &Value) -> String {
    let mut parts: Vec<String> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in list(&selector["matchExpressions"]) {
        let key = text(expression, "key");
        let values = || {
            let mut values: Vec<_> = list(&expression["values"])
                .iter()
                .filter_map(Value::as_str)
                .collect();
            values.sort_unstable();
            values.join(",")
        };
        parts.push(match text(expression, "operator") {
            "In" => format!("{key} in ({})", values()),
            "NotIn" => format!("{key} notin ({})", values()),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    parts.sort();
    if parts.is_empty() {
        "<none>".into()
    } else {
        parts.join(",")
    }
}

/// At most three of `parts`, and how many more there are.
fn some(parts: &[String], none: &str) -> String {
    match parts.len() {
        0 => none.into(),
        n if n > 3 => format!("{} + {} more...", parts[..3].join(","), n - 3),
        _ => parts.join(","),
    }
}

fn node(o: &Value, now: Timestamp) -> Vec<Value> {
    let status = &o["status"];
    let ready = list(&status["conditions"])
        .iter()
        .find(|c| c["type"] == "Ready");
    let mut state = match ready.map(|c| text(c, "status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if o["spec"]["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in o["metadata"]["labels"].as_object().into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            roles.extend(Some(role).filter(|role| !role.is_empty()));
        } else if key == "kubernetes.io/role" {
            roles.extend(value.as_str().filter(|role| !role.is_empty()));
        }
    }
    roles.sort_unstable();
    roles.dedup();
    let roles = if roles.is_empty() {
        "<none>".into()
    } else {
        roles.join(",")
    };
    let address = |kind: &str| {
        let found = list(&status["addresses"])
            .iter()
            .find(|a| a["type"] == kind);
        found.map_or("<none>", |a| text(a, "address"))
    };
    let info = &status["nodeInfo"];
    let mut kernel = text_or(info, "kernelVersion", "<unknown>").to_owned();
    if !text(info, "architecture").is_empty() {
        kernel = format!("{kernel} ({})", text(info, "architecture"));
    }
    vec![
        name(o),
        state.into(),
        roles.into(),
        aged(o, now),
        text(info, "kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        text_or(info, "osImage", "<unknown>").into(),
        kernel.into(),
        text_or(info, "containerRuntimeVersion", "<unknown>").into(),
    ]
}

fn service(o: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &o["spec"];
    let ports: Vec<String> = list(&spec["ports"])
        .iter()
        .map(|port| match int(port, "nodePort") {
            0 => format!("{}/{}", int(port, "port"), text(port, "protocol")),
            node => format!("{}:{node}/{}", int(port, "port"), text(port, "protocol")),
        })
        .collect();
    let ports = if ports.is_empty() {
        "<none>".into()
    } else {
        ports.join(",")
    };
    let external = strings(&spec["externalIPs"]);
    let external = match text(spec, "type") {
        "ExternalName" => text(spec, "externalName").to_owned(),
        "LoadBalancer" => {
            let mut all = ingress_points(&o["status"]["loadBalancer"]);
            all.extend(external);
            if all.is_empty() {
                "<pending>".into()
            } else {
                all.join(",")
            }
        }
        _ if external.is_empty() => "<none>".into(),
        _ => external.join(","),
    };
    let address = list(&spec["clusterIPs"]).first().and_then(Value::as_str);
    let address = address.unwrap_or_else(|| text(spec, "clusterIP"));
    vec![
        name(o),
        text(spec, "type").into(),
        if address.is_empty() {
            "<none>"
        } else {
            address
        }
        .into(),
        external.into(),
        ports.into(),
        aged(o, now),
        labels(&spec["selector"]).into(),
    ]
}

fn strings(value: &Value) -> Vec<String> {
    list(value)
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn ingress_points(status: &Value) -> Vec<String> {
    let mut points: Vec<String> = list(&status["ingress"])
        .iter()
        .map(|point| text_or(point, "ip", text(point, "hostname")).to_owned())
        .filter(|point| !point.is_empty())
        .collect();
    points.sort();
    points
}

fn endpoints(o: &Value) -> String {
    let mut all = Vec::new();
    for subset in list(&o["subsets"]) {
        let ports = list(&subset["ports"]);
        for port in ports {
            for address in list(&subset["addresses"]) {
                let (ip, port) = (text(address, "ip"), int(port, "port"));
                let ip = if ip.contains(':') {
                    format!("[{ip}]")
                } else {
                    ip.to_owned()
                };
                all.push(format!("{ip}:{port}"));
            }
        }
        if ports.is_empty() {
            all.extend(
                list(&subset["addresses"])
                    .iter()
                    .map(|a| text(a, "ip").to_owned()),
            );
        }
    }
    if list(&o["subsets"]).is_empty() {
        "<none>".into()
    } else {
        some(&all, "")
    }
}

fn slice(o: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(&o["ports"])
        .iter()
        .map(|port| match port["port"].as_i64() {
            Some(number) => number.to_string(),
            None => text_or(port, "name", "*").to_owned(),
        })
        .collect();
    let addresses: Vec<String> = list(&o["endpoints"])
        .iter()
        .flat_map(|e| strings(&e["addresses"]))
        .collect();
    vec![
        name(o),
        text(o, "addressType").into(),
        some(&ports, "<unset>").into(),
        some(&addresses, "<unset>").into(),
        aged(o, now),
    ]
}

fn event(o: &Value, now: Timestamp) -> Vec<Value> {
    // The two groups that serve events name the same fields differently.
    let either = |a: &str, b: &str| if o[a].is_null() { &o[b] } else { &o[a] };
    let object = either("involvedObject", "regarding");
    let when = |value: &Value| value.is_string().then(|| age::since(value, now));
    let first = when(either("firstTimestamp", "deprecatedFirstTimestamp"))
        .or_else(|| when(&o["eventTime"]))
        .unwrap_or_else(|| "<unknown>".into());
    let last = when(&o["series"]["lastObservedTime"])
        .or_else(|| when(either("lastTimestamp", "deprecatedLastTimestamp")))
        .unwrap_or_else(|| first.clone());
    let count = o["series"]["count"].as_i64();
    let count = count.unwrap_or_else(|| either("count", "deprecatedCount").as_i64().unwrap_or(0));
    let kind = text(object, "kind").to_lowercase();
    let target = match text(object, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = either("source", "deprecatedSource");
    let component = text_or(
        source,
        "component",
        either("reportingComponent", "reportingController")
            .as_str()
            .unwrap_or_default(),
    );
    let host = text_or(source, "host", text(o, "reportingInstance"));
    let source: Vec<&str> = [component, host]
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect();
    vec![
        last.into(),
        text(o, "type").into(),
        text(o, "reason").into(),
        target.into(),
        text(object, "fieldPath").into(),
        source.join(", ").into(),
        either("message", "note")
            .as_str()
            .unwrap_or_default()
            .trim()
            .into(),
        first.into(),
        count.max(1).into(),
        name(o),
    ]
}

fn binding(o: &Value, now: Timestamp) -> Vec<Value> {
    let role = format!(
        "{}/{}",
        text(&o["roleRef"], "kind"),
        text(&o["roleRef"], "name")
    );
    let of = |kind: &str| {
        let subjects = list(&o["subjects"]).iter().filter(|s| s["kind"] == kind);
        let names = subjects.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name").to_owned(),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        name(o),
        role.into(),
        aged(o, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]
}

fn ingress(o: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &o["spec"];
    let hosts: Vec<String> = list(&spec["rules"])
        .iter()
        .map(|rule| text(rule, "host").to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    let ports = if list(&spec["tls"]).is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        name(o),
        text_or(spec, "ingressClassName", "<none>").into(),
        some(&hosts, "*").into(),
        ingress_points(&o["status"]["loadBalancer"])
            .join(",")
            .into(),
        ports.into(),
        aged(o, now),
    ]
}

fn quota(o: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in o["status"]["hard"].as_object().into_iter().flatten() {
        let shown = |value: &Value| value.as_str().unwrap_or("0").to_owned();
        let line = format!(
            "{resource}: {}/{}",
            shown(&o["status"]["used"][resource]),
            shown(hard)
        );
        let limit = resource.starts_with("limits.");
        if limit { &mut limits } else { &mut requests }.push(line);
    }
    requests.sort();
    limits.sort();
    vec![
        name(o),
        requests.join(", ").into(),
        limits.join(", ").into(),
        aged(o, now),
    ]
}
