//! Label and field selectors, as they appear in query strings and in `LabelSelector` objects.

mod parse;

use serde_json::Value;

use crate::{object, registry::Resource, status::Status};

/// A parsed label selector; all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    /// Absence of the label satisfies this too.
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h,!i,j>1`.
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        parse::requirements(text)
            .map(Self)
            .map_err(Status::bad_request)
    }

    /// Reads a `LabelSelector` object: `matchLabels` and `matchExpressions`.
    pub(crate) fn from_object(selector: &Value) -> Option<Self> {
        let mut requirements = Vec::new();
        if let Some(labels) = selector["matchLabels"].as_object() {
            for (key, value) in labels {
                requirements.push(Requirement {
                    key: key.clone(),
                    test: Test::In(vec![value.as_str()?.to_owned()]),
                });
            }
        }
        for expression in selector["matchExpressions"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let values = || {
                object::strings(&expression["values"])
                    .into_iter()
                    .map(str::to_owned)
                    .collect()
            };
            let test = match expression["operator"].as_str()? {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                _ => return None,
            };
            requirements.push(Requirement {
                key: expression["key"].as_str()?.to_owned(),
                test,
            });
        }
        Some(Self(requirements))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object's labels satisfy the selector.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.matches_with(|key| labels[key].as_str())
    }

    pub(crate) fn matches_with<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            let value = get(&requirement.key);
            let number = || value.and_then(|v| v.parse::<i64>().ok());
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
                Test::NotIn(values) => value.is_none_or(|v| values.iter().all(|x| x != v)),
                Test::Greater(bound) => number().is_some_and(|v| v > *bound),
                Test::Less(bound) => number().is_some_and(|v| v < *bound),
            }
        })
    }
}

/// A parsed field selector; all terms must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    path: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses `metadata.name=x,status.phase!=Running` and checks that the kind allows these fields.
    pub(crate) fn parse(text: &str, resource: &Resource) -> Result<Self, Status> {
        let mut terms = Vec::new();
        for part in split_unescaped(text) {
            if part.is_empty() {
                continue;
            }
            let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = part.split_once("==") {
                (path, value, true)
            } else if let Some((path, value)) = part.split_once('=') {
                (path, value, true)
            } else {
                return Err(Status::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            if !is_selectable(resource, path) {
                return Err(Status::bad_request(unknown_field(resource, path)));
            }
            terms.push(Term {
                path: path.to_owned(),
                value: value
                    .replace("\\,", ",")
                    .replace("\\=", "=")
                    .replace("\\\\", "\\"),
                equal,
            });
        }
        Ok(Self(terms))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Both selectors together.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The name the selector pins, which makes a list a lookup.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0
            .iter()
            .find(|term| term.equal && term.path == "metadata.name")
            .map(|term| term.value.as_str())
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0
            .iter()
            .all(|term| (field_text(object, &term.path) == term.value) == term.equal)
    }
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        if c == ',' && !escaped {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

/// The fields of built-in kinds that can be selected by, beyond name and namespace.
fn builtin_fields(resource: &Resource) -> &'static [&'static str] {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "Secret") => &["type"],
        ("", "Namespace") => &["status.phase"],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &["status.replicas"],
        ("batch", "Job") => &["status.successful"],
        ("certificates.k8s.io", _) => &["spec.signerName"],
        _ => &[],
    }
}

/// Kinds with fields of their own have other words than those without.
fn unknown_field(resource: &Resource, path: &str) -> String {
    if resource.is_builtin() && builtin_fields(resource).is_empty() {
        return format!(
            "\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
    }
    format!("field label not supported: {path}")
}

fn is_selectable(resource: &Resource, path: &str) -> bool {
    path == "metadata.name"
        || (path == "metadata.namespace" && resource.namespaced)
        || (path == "metadata.namespace" && resource.is_builtin())
        || builtin_fields(resource).contains(&path)
        || resource.crd.as_ref().is_some_and(|crd| {
            crd.selectable
                .iter()
                .any(|declared| declared.trim_start_matches('.') == path)
        })
}

fn field_text(object: &Value, path: &str) -> String {
    match object::at_path(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ => match path {
            // Absent booleans and counts read as Go's zero values.
            "spec.unschedulable" | "spec.hostNetwork" => "false".into(),
            "status.replicas" | "status.successful" => "0".into(),
            "source" => object["source"]["component"]
                .as_str()
                .unwrap_or_default()
                .into(),
            _ => String::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    fn labelled(labels: &Value) -> Value {
        json!({"metadata": {"labels": labels}})
    }

    #[test]
    fn label_selectors_match_as_kubernetes_does() {
        let object = labelled(&json!({"app": "web", "tier": "front", "n": "5"}));
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app!=web", false),
            ("missing!=x", true),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("missing notin (a)", true),
            ("tier", true),
            ("!tier", false),
            ("!missing", true),
            ("n>4", true),
            ("n<5", false),
        ] {
            let parsed = LabelSelector::parse(selector).unwrap();
            assert_eq!(parsed.matches(&object), expected, "{selector}");
        }
    }

    #[test]
    fn malformed_label_selectors_are_refused() {
        for selector in ["a b", "=x", "a in b", "a in (b", "a>x", "a,,b"] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn field_selectors_know_their_kind() {
        let kinds = Registry::new().kinds();
        let pods = kinds.find("", "v1", "pods").unwrap();
        let pod = json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}});
        let parsed = FieldSelector::parse("metadata.name=a,status.phase!=Failed", &pods).unwrap();
        assert!(parsed.matches(&pod));
        assert_eq!(parsed.name(), Some("a"));
        assert_eq!(
            FieldSelector::parse("spec.foo=1", &pods)
                .unwrap_err()
                .message,
            "field label not supported: spec.foo"
        );
    }

    #[test]
    fn selector_objects_mean_the_same_as_their_text() {
        let selector = LabelSelector::from_object(&json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["back"]}],
        }))
        .unwrap();
        assert!(selector.matches(&labelled(&json!({"app": "web"}))));
        assert!(!selector.matches(&labelled(&json!({"app": "web", "tier": "back"}))));
    }
}
