//! Quotas and autoscalers.

use serde_json::Value;

use super::{Faults, list, text};
use crate::kinds::quantity::Quantity;
use crate::names;
use crate::schema::FieldError;

/// Resources that quotas know by short names.
const QUOTA_NAMES: &[&str] = &[
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Those that are counted in whole numbers.
const COUNTED: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
const SCOPES: &[&str] = &[
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

pub(super) fn quota(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let spec = &object["spec"];
    for (name, amount) in spec["hard"].as_object().into_iter().flatten() {
        let at = format!("spec.hard[{name}]");
        let wrong = names::qualified_name(name);
        let malformed = !wrong.is_empty();
        faults.each(&at, name, wrong);
        if !name.contains('/') && !QUOTA_NAMES.contains(&name.as_str()) {
            if !malformed {
                let why = "must be a standard resource type or fully qualified";
                faults.invalid(&at, name.as_str(), why);
            }
            let why = "must be a standard resource for quota";
            faults.invalid(&at, name.as_str(), why);
        }
        let shown = amount.as_str().unwrap_or_default();
        let Ok(quantity) = Quantity::parse(shown) else {
            continue;
        };
        if quantity.nanos() < 0 {
            faults.invalid(&at, shown, "must be greater than or equal to 0");
        }
        let counted = COUNTED.contains(&name.as_str());
        if counted && quantity.nanos() % 1_000_000_000 != 0 {
            faults.invalid(&at, shown, "must be an integer");
        }
    }
    scopes(spec, faults);
    if let Some(old) = old {
        let (new, was) = (&spec["scopes"], &old["spec"]["scopes"]);
        if new != was && !(super::is_empty(new) && super::is_empty(was)) {
            faults.invalid("spec.scopes", new.clone(), "field is immutable");
        }
    }
}

fn scopes(spec: &Value, faults: &mut Faults) {
    let given: Vec<&str> = list(&spec["scopes"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    if given.is_empty() {
        return;
    }
    let hard: Vec<&String> = spec["hard"]
        .as_object()
        .map(|map| map.keys().collect())
        .unwrap_or_default();
    for scope in &given {
        if !SCOPES.contains(scope) {
            faults.invalid("spec.scopes", spec["scopes"].clone(), "unsupported scope");
        }
        let only_pods = *scope == "BestEffort";
        for name in &hard {
            let standard = QUOTA_NAMES.contains(&name.as_str());
            let fits = if only_pods {
                name.as_str() == "pods"
            } else {
                !COUNTED.contains(&name.as_str()) || name.as_str() == "pods"
            };
            if standard && !fits {
                let why = "unsupported scope applied to resource";
                faults.invalid("spec.scopes", spec["scopes"].clone(), why);
            }
        }
    }
    for (one, other) in [
        ("BestEffort", "NotBestEffort"),
        ("Terminating", "NotTerminating"),
    ] {
        if given.contains(&one) && given.contains(&other) {
            let why = "conflicting scopes";
            faults.invalid("spec.scopes", spec["scopes"].clone(), why);
        }
    }
}

pub(super) fn autoscaler(object: &Value, faults: &mut Faults) {
    let spec = &object["spec"];
    let least = spec["minReplicas"].as_i64();
    let most = spec["maxReplicas"].as_i64().unwrap_or_default();
    if least.is_some_and(|least| least < 1) {
        let why = "must be greater than or equal to 1";
        faults.invalid("spec.minReplicas", least, why);
    }
    let lone = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    if least == Some(0) && !list(&spec["metrics"]).iter().any(lone) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        faults.forbidden("spec.metrics", why);
    }
    if most < 1 {
        faults.required("spec.maxReplicas", "must be set and greater than 0");
    }
    if least.is_some_and(|least| most < least) {
        let why = "must be greater than or equal to `minReplicas`";
        faults.invalid("spec.maxReplicas", most, why);
    }
    let target = &spec["scaleTargetRef"];
    let version = text(target, "apiVersion");
    if version.is_empty() {
        let why = "apiVersion must specify API group";
        faults.invalid("spec.scaleTargetRef.apiVersion", version, why);
    }
    for name in ["kind", "name"] {
        let (value, at) = (text(target, name), format!("spec.scaleTargetRef.{name}"));
        if value.is_empty() {
            faults.required(&at, "");
        } else {
            faults.each(&at, value, names::path_segment(value));
        }
    }
    for (i, metric) in list(&spec["metrics"]).iter().enumerate() {
        measure(metric, &format!("spec.metrics[{i}]"), faults);
    }
    for way in ["scaleUp", "scaleDown"] {
        let rules = &spec["behavior"][way];
        if !rules.is_null() {
            scaling(rules, &format!("spec.behavior.{way}"), faults);
        }
    }
}

/// The kinds of metrics with the field each is told in.
const SOURCES: &[(&str, &str)] = &[
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

fn measure(metric: &Value, at: &str, faults: &mut Faults) {
    let kind = text(metric, "type");
    let known = SOURCES.iter().find(|(name, _)| *name == kind);
    if kind.is_empty() {
        faults.required(&format!("{at}.type"), "must specify a metric source type");
        return;
    }
    let Some((_, field)) = known else {
        let names: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        let at = format!("{at}.type");
        // Kubernetes looks twice: at the type, and at what the type asks for.
        for _ in 0..2 {
            faults.0.push(FieldError::not_supported(&at, kind, &names));
        }
        return;
    };
    if metric[*field].is_null() {
        let why = "must populate information for the given metric source";
        faults.required(&format!("{at}.{field}"), why);
        return;
    }
    for (_, other) in SOURCES.iter().filter(|(name, _)| *name != kind) {
        if !metric[*other].is_null() {
            let why = "must populate the given metric source only";
            faults.forbidden(&format!("{at}.{other}"), why);
        }
    }
    if *field == "resource" {
        resource(&metric[*field], &format!("{at}.resource"), faults);
    }
}

fn resource(source: &Value, at: &str, faults: &mut Faults) {
    if text(source, "name").is_empty() {
        faults.required(&format!("{at}.name"), "must specify a resource name");
    }
    let (target, here) = (&source["target"], format!("{at}.target"));
    let kind = text(target, "type");
    if kind.is_empty() {
        faults.required(&format!("{here}.type"), "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let why = "must be either Utilization, Value, or AverageValue";
        faults.invalid(&format!("{here}.type"), kind, why);
    }
    let (part, amount) = (
        target["averageUtilization"].as_i64(),
        &target["averageValue"],
    );
    if part.is_some_and(|part| part < 1) {
        let why = "must be greater than 0";
        faults.invalid(&format!("{here}.averageUtilization"), part, why);
    }
    match (part, amount.is_null()) {
        (None, true) => {
            let why = "must set either a target raw value or a target utilization";
            faults.required(&format!("{here}.averageUtilization"), why);
        }
        (Some(_), false) => {
            let why = "may not set both a target raw value and a target utilization";
            faults.forbidden(&format!("{here}.averageValue"), why);
        }
        _ => {}
    }
}

fn scaling(rules: &Value, at: &str, faults: &mut Faults) {
    if let Some(window) = rules["stabilizationWindowSeconds"].as_i64() {
        let here = format!("{at}.stabilizationWindowSeconds");
        if window < 0 {
            faults.invalid(&here, window, "must be greater than or equal to zero");
        }
        if window > 3600 {
            faults.invalid(&here, window, "must be less than or equal to 3600");
        }
    }
    if let Some(select) = rules["selectPolicy"].as_str() {
        let known = ["Disabled", "Max", "Min"];
        faults.one_of(&format!("{at}.selectPolicy"), select, &known);
    }
    let policies = list(&rules["policies"]);
    if policies.is_empty() {
        let why = "must specify at least one Policy";
        faults.required(&format!("{at}.policies"), why);
    }
    for (i, policy) in policies.iter().enumerate() {
        let here = format!("{at}.policies[{i}]");
        faults.one_of(
            &format!("{here}.type"),
            text(policy, "type"),
            &["Percent", "Pods"],
        );
        let value = policy["value"].as_i64().unwrap_or_default();
        if value <= 0 {
            faults.invalid(&format!("{here}.value"), value, "must be greater than zero");
        }
        let period = policy["periodSeconds"].as_i64().unwrap_or_default();
        let at = format!("{here}.periodSeconds");
        if period <= 0 {
            faults.invalid(&at, period, "must be greater than zero");
        }
        if period > 1800 {
            faults.invalid(&at, period, "must be less than or equal to 1800");
        }
    }
}
