//! The rules of built-in kinds that people break most often, with Kubernetes' texts.
//!
//! Objects were decoded before (types are right) and defaulted, so what is missing here is missing.

mod admission;
mod config;
mod crd;
mod crd_names;
mod diff;
mod network;
mod node;
mod pod;
mod rbac;
mod scaling;
mod storage;
mod traffic;
mod workload;

use serde_json::Value;

use crate::meta::NameRule;
use crate::names;
use crate::schema::{FieldError, join};

/// Checks an object of a built-in kind.
pub(super) fn check(
    group: &str,
    kind: &str,
    object: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let mut faults = Faults::default();
    if group != "apiextensions.k8s.io" {
        finalizers(object, &mut faults);
    }
    match (group, kind) {
        ("", "ConfigMap") => config::config_map(object, old, &mut faults),
        ("", "Secret") => config::secret(object, old, &mut faults),
        ("", "Pod") => pod::pod(object, old, &mut faults),
        ("", "Service") => network::service(object, old, &mut faults),
        ("", "PersistentVolumeClaim") => storage::claim(object, old, &mut faults),
        ("", "PersistentVolume") => storage::volume(object, old, &mut faults),
        ("", "Event") => config::event(object, &mut faults),
        ("events.k8s.io", "Event") => config::new_event(object, old, &mut faults),
        ("", "Node") => node::node(object, old, &mut faults),
        ("apps" | "batch", _) => workload::check(kind, object, old, &mut faults),
        ("storage.k8s.io", _) => storage::check(kind, object, old, &mut faults),
        ("rbac.authorization.k8s.io", _) => rbac::check(kind, object, old, &mut faults),
        ("admissionregistration.k8s.io", _) => admission::check(object, &mut faults),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            crd::check(object, old, &mut faults);
        }
        ("policy", "PodDisruptionBudget") => workload::budget(object, &mut faults),
        ("scheduling.k8s.io", "PriorityClass") => workload::priority(object, old, &mut faults),
        ("", "ResourceQuota") => scaling::quota(object, old, &mut faults),
        ("autoscaling", "HorizontalPodAutoscaler") => scaling::autoscaler(object, &mut faults),
        ("networking.k8s.io", "Ingress") => traffic::ingress(object, &mut faults),
        ("networking.k8s.io", "NetworkPolicy") => traffic::network_policy(object, &mut faults),
        ("discovery.k8s.io", "EndpointSlice") => network::slice(object, old, &mut faults),
        ("coordination.k8s.io", "Lease") => workload::lease(object, &mut faults),
        _ => {}
    }
    faults.0
}

/// Which names a kind allows.
pub(super) fn name_rule(group: &str, kind: &str) -> NameRule {
    match (group, kind) {
        ("", "Namespace" | "Service") => NameRule::Label,
        ("rbac.authorization.k8s.io", _) => NameRule::Segment,
        _ => NameRule::Subdomain,
    }
}

/// What was found so far.
#[derive(Default)]
struct Faults(Vec<FieldError>);

impl Faults {
    fn required(&mut self, at: &str, why: &str) {
        self.0.push(FieldError::required(at, why));
    }

    fn invalid(&mut self, at: &str, value: impl Into<Value>, why: impl Into<String>) {
        self.0.push(FieldError::invalid(at, value, why));
    }

    fn forbidden(&mut self, at: &str, why: impl Into<String>) {
        self.0.push(FieldError::forbidden(at, why));
    }

    fn duplicate(&mut self, at: &str, value: impl Into<Value>) {
        self.0.push(FieldError::duplicate(at, value));
    }

    /// Adds each of `reasons` why `value` is malformed.
    fn each(&mut self, at: &str, value: &str, reasons: Vec<String>) {
        for why in reasons {
            self.invalid(at, value, why);
        }
    }

    /// Refuses a value that is not one of `allowed`.
    fn one_of(&mut self, at: &str, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            self.0.push(FieldError::not_supported(at, value, allowed));
        }
    }

    /// Refuses a change of field `name`, which lies at `at`.
    fn immutable(&mut self, object: &Value, old: Option<&Value>, name: &str, at: &str) {
        let Some(old) = old else { return };
        let (new, old) = (&object[name], &old[name]);
        if new != old {
            self.invalid(at, new.clone(), "field is immutable");
        }
    }

    /// Refuses an integer below zero.
    fn not_negative(&mut self, object: &Value, name: &str, at: &str) {
        if let Some(number) = object[name].as_i64().filter(|n| *n < 0) {
            self.invalid(
                &join(at, name),
                number,
                "must be greater than or equal to 0",
            );
        }
    }

    /// Refuses a port outside of 1 to 65535.
    fn port(&mut self, number: i64, at: &str) {
        if !(1..=65535).contains(&number) {
            self.invalid(at, number, "must be between 1 and 65535, inclusive");
        }
    }
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Checks a selector of objects by their labels.
fn label_selector(selector: &Value, at: &str, faults: &mut Faults) {
    if let Some(labels) = selector["matchLabels"].as_object() {
        let at = format!("{at}.matchLabels");
        faults.0.extend(crate::meta::check_labels(labels, &at));
    }
    for (i, expression) in list(&selector["matchExpressions"]).iter().enumerate() {
        let at = format!("{at}.matchExpressions[{i}]");
        let values = list(&expression["values"]);
        match text(expression, "operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    let why = "must be specified when `operator` is 'In' or 'NotIn'";
                    faults.required(&format!("{at}.values"), why);
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    faults.forbidden(&format!("{at}.values"), why);
                }
            }
            other => {
                let why = "not a valid selector operator";
                faults.invalid(&format!("{at}.operator"), other, why);
            }
        }
        let key = text(expression, "key");
        faults.each(&format!("{at}.key"), key, names::qualified_name(key));
        for (j, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            let at = format!("{at}.values[{j}]");
            faults.each(&at, value, names::label_value(value));
        }
    }
}

fn finalizers(object: &Value, faults: &mut Faults) {
    for (i, name) in list(&object["metadata"]["finalizers"]).iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        let standard = matches!(name, "kubernetes" | "orphan" | "foregroundDeletion");
        if !name.contains('/') && !standard {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            faults.invalid(&format!("metadata.finalizers[{i}]"), name, why);
        }
    }
}

#[cfg(test)]
mod tests;
