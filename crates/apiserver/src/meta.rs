//! Checks of object metadata that hold for every kind.

use serde_json::{Map, Value};

use crate::names;
use crate::schema::{FieldError, join};

/// The most bytes that all annotations of an object may have together.
const ANNOTATIONS_LIMIT: u64 = 256 * 1024;

/// Which names a kind allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// Anything that fits one segment of a path.
    Segment,
    /// A DNS label: namespaces.
    Label,
    /// A DNS label that starts with a letter: services, once.
    Label1035,
    /// A DNS subdomain: most kinds.
    Subdomain,
}

impl NameRule {
    /// The faults of `name`; a `prefix` of a generated name may end in a dash or dot.
    pub fn faults(self, name: &str, prefix: bool) -> Vec<String> {
        let masked = if prefix && name.len() > 1 && name.ends_with(['-', '.']) {
            format!("{}a", name.trim_end_matches(['-', '.']))
        } else {
            name.to_owned()
        };
        match self {
            Self::Segment if prefix => {
                if matches!(name, "." | "..") {
                    vec![]
                } else {
                    names::path_segment(name)
                }
            }
            Self::Segment => names::path_segment(name),
            Self::Label => names::dns1123_label(&masked),
            Self::Label1035 => names::dns1035_label(&masked),
            Self::Subdomain => names::dns1123_subdomain(&masked),
        }
    }
}

fn text<'a>(metadata: &'a Value, name: &str) -> &'a str {
    metadata
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Checks the metadata of an object about to be created, its name already generated.
pub fn check_create(object: &Value, namespaced: bool, rule: NameRule) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let metadata = &object["metadata"];
    let generate = text(metadata, "generateName");
    if !generate.is_empty() {
        for why in rule.faults(generate, true) {
            errors.push(FieldError::invalid("metadata.generateName", generate, why));
        }
    }
    let name = text(metadata, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        for why in rule.faults(name, false) {
            errors.push(FieldError::invalid("metadata.name", name, why));
        }
    }
    let namespace = text(metadata, "namespace");
    if !namespaced {
        if !namespace.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.namespace",
                "not allowed on this type",
            ));
        }
    } else if namespace.is_empty() {
        errors.push(FieldError::required("metadata.namespace", ""));
    } else {
        for why in names::dns1123_label(namespace) {
            errors.push(FieldError::invalid("metadata.namespace", namespace, why));
        }
    }
    common(metadata, "metadata", &mut errors);
    finalizers(metadata, "metadata", &mut errors);
    errors
}

/// Checks the metadata of an object about to replace `old`.
pub fn check_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (metadata, before) = (&object["metadata"], &old["metadata"]);
    if before
        .get("deletionTimestamp")
        .is_some_and(|t| !t.is_null())
    {
        let known = list(before, "finalizers");
        let mut new: Vec<_> = list(metadata, "finalizers")
            .into_iter()
            .filter(|f| !known.contains(f))
            .collect();
        new.sort_unstable();
        if !new.is_empty() {
            let shown: Vec<_> = new.iter().map(|f| crate::golang::quote(f)).collect();
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new \
                     finalizers []string{{{}}}",
                    shown.join(", ")
                ),
            ));
        }
    }
    if text(metadata, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid(
            "metadata.resourceVersion",
            "",
            "must be specified for an update",
        ));
    }
    for name in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (new, was) = (metadata.get(name), before.get(name));
        let (new, was) = (new.unwrap_or(&Value::Null), was.unwrap_or(&Value::Null));
        if new != was {
            let at = join("metadata", name);
            errors.push(FieldError::invalid(&at, new.clone(), "field is immutable"));
        }
    }
    common(metadata, "metadata", &mut errors);
    errors
}

/// Checks what may be in metadata of old and new objects alike.
pub fn check_content(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    common(&object["metadata"], "metadata", &mut errors);
    errors
}

/// Checks the metadata of a resource embedded at `path` in another one.
pub(crate) fn check_embedded(metadata: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for why in names::path_segment(text(metadata, "name")) {
        let name = text(metadata, "name");
        errors.push(FieldError::invalid(&join(path, "name"), name, why));
    }
    common(metadata, path, &mut errors);
    finalizers(metadata, path, &mut errors);
    errors
}

fn list<'a>(metadata: &'a Value, name: &str) -> Vec<&'a str> {
    let items = metadata.get(name).and_then(Value::as_array);
    items
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn common(metadata: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(labels) = metadata.get("labels").and_then(Value::as_object) {
        errors.extend(check_labels(labels, &join(path, "labels")));
    }
    if let Some(annotations) = metadata.get("annotations").and_then(Value::as_object) {
        annotations_at(annotations, &join(path, "annotations"), errors);
    }
    owners(metadata, &join(path, "ownerReferences"), errors);
}

/// Checks keys and values of labels.
pub(crate) fn check_labels(labels: &Map<String, Value>, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        for why in names::qualified_name(key) {
            errors.push(FieldError::invalid(at, key.as_str(), why));
        }
        let value = value.as_str().unwrap_or_default();
        for why in names::label_value(value) {
            errors.push(FieldError::invalid(at, value, why));
        }
    }
    errors
}

fn annotations_at(annotations: &Map<String, Value>, at: &str, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.as_str().unwrap_or_default().len();
        for why in names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(at, key.as_str(), why));
        }
    }
    if size as u64 > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long(at, ANNOTATIONS_LIMIT));
    }
}

fn owners(metadata: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    let Some(references) = metadata.get("ownerReferences") else {
        return;
    };
    for reference in references.as_array().into_iter().flatten() {
        let version = text(reference, "apiVersion");
        let no_version = version.is_empty() || version.ends_with('/');
        for (name, bad, why) in [
            ("apiVersion", no_version, "version must not be empty"),
            (
                "kind",
                text(reference, "kind").is_empty(),
                "must not be empty",
            ),
            (
                "name",
                text(reference, "name").is_empty(),
                "must not be empty",
            ),
            (
                "uid",
                text(reference, "uid").is_empty(),
                "must not be empty",
            ),
        ] {
            if bad {
                errors.push(FieldError::invalid(
                    &join(at, name),
                    text(reference, name),
                    why,
                ));
            }
        }
        if version == "v1" && text(reference, "kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid_shown(at, &owner(reference), why));
        }
        if reference.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{}/{}", text(reference, "kind"), text(reference, "name"));
            if let Some(first) = &controller {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in \
                     references for {first} and {this}"
                );
                let all = references.as_array().into_iter().flatten().map(owner);
                let all = format!("[{}]", all.collect::<Vec<_>>().join(","));
                errors.push(FieldError::invalid_shown(at, &all, why));
            } else {
                controller = Some(this);
            }
        }
    }
}

/// An owner with its fields in the order of the Go type.
fn owner(reference: &Value) -> String {
    let names = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let fields: Vec<_> = names
        .iter()
        .filter_map(|name| {
            Some(format!(
                "\"{name}\":{}",
                crate::golang::json(reference.get(name)?)
            ))
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn finalizers(metadata: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let at = join(path, "finalizers");
    let names = list(metadata, "finalizers");
    for name in &names {
        for why in names::qualified_name(name) {
            errors.push(FieldError::invalid(&at, *name, why));
        }
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(
            &at,
            metadata["finalizers"].clone(),
            why,
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bad_metadata_is_refused_in_kubernetes_words() {
        let object = json!({"metadata": {
            "name": "Bad_Name", "namespace": "No.Good", "generateName": "ok-",
            "labels": {"a b": "x y"}, "annotations": {"/": ""},
            "finalizers": ["orphan", "foregroundDeletion", "-"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": true},
                {"apiVersion": "", "kind": "B", "name": "", "uid": "", "controller": true},
            ],
        }});
        insta::assert_snapshot!(lines(&check_create(&object, true, NameRule::Subdomain)));
    }

    #[test]
    fn identity_cannot_be_changed() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "deletionTimestamp": "t"}});
        let new = json!({"metadata": {"name": "b", "uid": "2", "finalizers": ["x.io/y"],
                                       "deletionTimestamp": "t"}});
        insta::assert_snapshot!(lines(&check_update(&new, &old)));
    }

    #[test]
    fn a_generated_name_may_end_in_a_dash() {
        let object = json!({"metadata": {"name": "x-1", "generateName": "x-", "namespace": "d"}});
        assert_eq!(check_create(&object, true, NameRule::Subdomain), vec![]);
    }

    fn lines(errors: &[FieldError]) -> String {
        errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }
}
