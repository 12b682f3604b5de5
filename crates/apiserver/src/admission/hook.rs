//! One webhook of a configuration, and which writes it wants to see.

use std::time::Duration;

use serde_json::Value;

use super::{Attributes, Operation, condition::Condition};
use crate::{
    object,
    registry::{Resource, text},
    selector::LabelSelector,
    webhook::{self, Place},
};

/// A webhook, read from its configuration.
#[derive(Debug)]
pub(crate) struct Hook {
    /// Tells webhooks apart: the configuration and the place in it.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) place: Result<Place, webhook::Error>,
    rules: Vec<Rule>,
    /// Wants only what the rules name, not other versions of it.
    pub(crate) exact: bool,
    /// Failures to ask are no refusal.
    pub(crate) ignores_failure: bool,
    pub(crate) timeout: Duration,
    /// Wants to be asked again when others changed the object after it.
    pub(crate) reinvoked: bool,
    /// May be asked about a dry run.
    pub(crate) takes_dry_run: bool,
    /// The version of reviews it speaks.
    pub(crate) speaks: &'static str,
    namespaces: Option<LabelSelector>,
    objects: Option<LabelSelector>,
    conditions: Vec<Condition>,
}

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

impl Hook {
    pub(super) fn read(webhook: &Value, id: &str) -> Self {
        let strings = |value: &Value| -> Vec<String> {
            let list = object::strings(value).into_iter();
            list.map(str::to_owned).collect()
        };
        let list = |name: &str| webhook[name].as_array().into_iter().flatten();
        let versions = object::strings(&webhook["admissionReviewVersions"]);
        let known = versions.iter().find_map(|version| match *version {
            "v1" => Some("admission.k8s.io/v1"),
            "v1beta1" => Some("admission.k8s.io/v1beta1"),
            _ => None,
        });
        Self {
            id: id.to_owned(),
            name: text(webhook, "name").to_owned(),
            place: Place::read(&webhook["clientConfig"]),
            rules: list("rules")
                .map(|rule| Rule {
                    operations: strings(&rule["operations"]),
                    groups: strings(&rule["apiGroups"]),
                    versions: strings(&rule["apiVersions"]),
                    resources: strings(&rule["resources"]),
                    scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
                })
                .collect(),
            exact: text(webhook, "matchPolicy") == "Exact",
            ignores_failure: text(webhook, "failurePolicy") == "Ignore",
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(10)),
            reinvoked: text(webhook, "reinvocationPolicy") == "IfNeeded",
            takes_dry_run: matches!(text(webhook, "sideEffects"), "None" | "NoneOnDryRun"),
            speaks: known.unwrap_or("admission.k8s.io/v1"),
            namespaces: LabelSelector::from_object(&webhook["namespaceSelector"]),
            objects: LabelSelector::from_object(&webhook["objectSelector"]),
            conditions: list("matchConditions").map(Condition::read).collect(),
        }
    }

    /// Whether a rule names this write, were it of `resource`.
    pub(super) fn wants(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.names(attributes, resource))
    }

    /// Whether the labels of the object's namespace, given by `labels_of`, are among the wanted.
    pub(crate) fn wants_namespace(&self, namespace: Option<&Value>) -> bool {
        match (&self.namespaces, namespace) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(selector), Some(namespace)) => selector.matches(namespace),
        }
    }

    /// Whether the object, or what it was, has the wanted labels.
    pub(crate) fn wants_object(&self, attributes: &Attributes<'_>) -> bool {
        let Some(selector) = &self.objects else {
            return false;
        };
        selector.is_empty()
            || [&attributes.object, &attributes.old]
                .into_iter()
                .flatten()
                .any(|object| selector.matches(object))
    }

    /// Whether all conditions hold of a review's request; an error when that cannot be said.
    pub(crate) fn conditions_hold(&self, request: &Value) -> Result<bool, String> {
        let mut errors = Vec::new();
        for condition in &self.conditions {
            match condition.holds(request) {
                Ok(true) => {}
                // One that does not hold decides, whatever became of the others.
                Ok(false) => return Ok(false),
                Err(error) => errors.push(error),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            _ if self.ignores_failure => Ok(false),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

impl Rule {
    fn names(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|e| e == "*" || e == wanted);
        any(&self.operations, attributes.operation.as_str())
            && any(&self.groups, &resource.group)
            && any(&self.versions, &resource.version)
            && self.names_resource(&resource.plural, attributes.subresource)
            && match self.scope.as_str() {
                "Namespaced" => resource.namespaced,
                "Cluster" => !resource.namespaced,
                _ => true,
            }
    }

    fn names_resource(&self, plural: &str, subresource: &str) -> bool {
        self.resources.iter().any(|named| {
            let (named, sub) = named.split_once('/').unwrap_or((named, ""));
            (named == "*" || named == plural) && (sub == "*" || sub == subresource)
        })
    }
}

impl Operation {
    /// The kind of the options of a write.
    pub(crate) fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(resources: &[&str], plural: &str, subresource: &str) -> bool {
        let webhook = json!({"rules": [{"resources": resources}]});
        Hook::read(&webhook, "c/0").rules[0].names_resource(plural, subresource)
    }

    #[test]
    fn a_star_alone_means_resources_and_not_their_subresources() {
        assert!(names(&["*"], "pods", ""));
        assert!(!names(&["*"], "pods", "status"));
        assert!(names(&["*/*"], "pods", "status"));
        assert!(names(&["*/*"], "pods", ""));
        assert!(names(&["pods/*"], "pods", "eviction"));
        assert!(!names(&["pods"], "pods", "eviction"));
        assert!(names(&["*/scale"], "deployments", "scale"));
    }

    #[test]
    fn a_condition_that_does_not_hold_outweighs_one_that_fails() {
        let webhook = |policy: &str| {
            let conditions = json!([
                {"name": "fails", "expression": "object.nothing.here == 1"},
                {"name": "no", "expression": "request.operation == 'DELETE'"},
            ]);
            json!({"matchConditions": conditions, "failurePolicy": policy})
        };
        let request = json!({"operation": "CREATE", "object": {}});
        let hook = Hook::read(&webhook("Fail"), "c/0");
        assert_eq!(hook.conditions_hold(&request), Ok(false));
        let request = json!({"operation": "DELETE", "object": {}});
        assert!(hook.conditions_hold(&request).is_err());
        let hook = Hook::read(&webhook("Ignore"), "c/0");
        assert_eq!(hook.conditions_hold(&request), Ok(false));
    }
}
