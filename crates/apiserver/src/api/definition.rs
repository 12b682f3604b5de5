//! What a CustomResourceDefinition must say to be accepted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    names, object,
    registry::text,
    schema::{Fault, FieldError, Schema},
};

fn error(fault: Fault, field: &str, value: Option<Value>, detail: impl Into<String>) -> FieldError {
    FieldError {
        fault,
        field: field.to_owned(),
        value,
        detail: detail.into(),
    }
}

fn invalid(field: &str, value: &Value, detail: impl Into<String>) -> FieldError {
    error(Fault::Invalid, field, Some(value.clone()), detail)
}

fn required(field: &str, detail: &str) -> FieldError {
    error(Fault::Required, field, None, detail)
}

/// All that is wrong with a definition.
pub(super) fn validate(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &crd["spec"];
    let mut errors = Vec::new();
    let (group, names_) = (text(spec, "group"), &spec["names"]);
    let expected = format!("{}.{group}", text(names_, "plural"));
    if object::name(crd) != expected {
        errors.push(invalid(
            "metadata.name",
            &json!(object::name(crd)),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if group.is_empty() {
        errors.push(required("spec.group", ""));
    } else if let Some(fault) = names::dns1123_subdomain(group).into_iter().next() {
        errors.push(invalid("spec.group", &json!(group), fault));
    } else if !group.contains('.') {
        errors.push(invalid(
            "spec.group",
            &json!(group),
            "should be a domain with at least one dot",
        ));
    }
    match text(spec, "scope") {
        "" => errors.push(required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(error(
            Fault::NotSupported,
            "spec.scope",
            Some(json!(other)),
            "supported values: \"Cluster\", \"Namespaced\"",
        )),
    }
    if spec["preserveUnknownFields"] == true
        && old.is_none_or(|o| o["spec"]["preserveUnknownFields"] != true)
    {
        errors.push(invalid(
            "spec.preserveUnknownFields",
            &json!(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    check_names(names_, &mut errors);
    check_versions(spec, &mut errors);
    check_conversion(&spec["conversion"], &mut errors);
    let protected = group == "k8s.io"
        || group == "kubernetes.io"
        || group.ends_with(".k8s.io")
        || group.ends_with(".kubernetes.io");
    if protected && crd["metadata"]["annotations"]["api-approved.kubernetes.io"].is_null() {
        errors.push(required(
            "metadata.annotations[api-approved.kubernetes.io]",
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ));
    }
    if let Some(old) = old {
        check_unchanged(spec, old, &mut errors);
    }
    errors
}

fn check_names(names_: &Value, errors: &mut Vec<FieldError>) {
    for field in ["plural", "singular", "kind", "listKind"] {
        let value = text(names_, field);
        let path = format!("spec.names.{field}");
        if value.is_empty() {
            if matches!(field, "plural" | "kind") {
                errors.push(required(&path, ""));
            }
            continue;
        }
        let lower = value.to_lowercase();
        let checked = if matches!(field, "kind" | "listKind") {
            &lower
        } else {
            value
        };
        for fault in names::dns1035_label(checked) {
            let detail = if matches!(field, "kind" | "listKind") {
                format!("may have mixed case, but should otherwise match: {fault}")
            } else {
                fault
            };
            errors.push(invalid(&path, &json!(value), detail));
        }
    }
    for (list, path) in [
        ("shortNames", "spec.names.shortNames"),
        ("categories", "spec.names.categories"),
    ] {
        for (index, value) in object::strings(&names_[list]).into_iter().enumerate() {
            for fault in names::dns1035_label(value) {
                errors.push(invalid(&format!("{path}[{index}]"), &json!(value), fault));
            }
        }
    }
    let (kind, list) = (text(names_, "kind"), text(names_, "listKind"));
    if !kind.is_empty() && kind == list {
        errors.push(invalid(
            "spec.names.listKind",
            &json!(list),
            "kind and listKind may not be the same",
        ));
    }
}

fn check_versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = spec["versions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let stored = versions.iter().filter(|v| v["storage"] == true).count();
    let mut seen = BTreeSet::new();
    let unique = versions
        .iter()
        .all(|version| seen.insert(text(version, "name")));
    let same_schema = versions
        .windows(2)
        .all(|pair| pair[0]["schema"] == pair[1]["schema"]);
    let same = |field: &str| {
        versions
            .windows(2)
            .all(|pair| pair[0][field] == pair[1][field])
    };
    for (index, version) in versions.iter().enumerate() {
        let name = text(version, "name");
        for fault in names::dns1035_label(name) {
            if versions.len() == 1 {
                errors.push(invalid("spec.version", &json!(name), fault.clone()));
            }
            errors.push(invalid(
                &format!("spec.versions[{index}].name"),
                &json!(name),
                fault,
            ));
        }
        let at = format!("spec.versions[{index}]");
        let schema = &version["schema"]["openAPIV3Schema"];
        if !schema.is_object() {
            errors.push(required(&format!("{at}.schema.openAPIV3Schema"), ""));
        } else if index == 0 || !same_schema {
            let place = if same_schema {
                "spec.validation.openAPIV3Schema".to_owned()
            } else {
                format!("{at}.schema.openAPIV3Schema")
            };
            if let Err(faults) = Schema::from_crd(schema) {
                errors.extend(faults.into_iter().map(|fault| fault.under(&place)));
            }
        }
        let columns_at = if same("additionalPrinterColumns") {
            "spec".to_owned()
        } else {
            at.clone()
        };
        if index == 0 || !same("additionalPrinterColumns") {
            check_columns(&version["additionalPrinterColumns"], &columns_at, errors);
        }
        let sub_at = if same("subresources") {
            "spec".to_owned()
        } else {
            at.clone()
        };
        if index == 0 || !same("subresources") {
            check_scale(&version["subresources"]["scale"], &sub_at, errors);
        }
    }
    let shown: Vec<Value> = versions.iter().map(go_version).collect();
    if stored != 1 {
        errors.push(invalid(
            "spec.versions",
            &json!(shown),
            "must have exactly one version marked as storage version",
        ));
        if stored == 0 {
            errors.push(invalid(
                "status.storedVersions",
                &Value::Null,
                "must have at least one stored version",
            ));
        }
    }
    if !unique {
        errors.push(invalid(
            "spec.versions",
            &json!(shown),
            "must contain unique version names",
        ));
    }
}

/// A version as Go prints it in errors.
fn go_version(version: &Value) -> Value {
    json!({
        "Name": version["name"],
        "Served": version["served"] == true,
        "Storage": version["storage"] == true,
        "Deprecated": version["deprecated"] == true,
        "DeprecationWarning": version["deprecationWarning"],
        "Schema": null,
        "Subresources": version["subresources"],
        "AdditionalPrinterColumns": version["additionalPrinterColumns"],
        "SelectableFields": version["selectableFields"],
    })
}

fn check_columns(columns: &Value, at: &str, errors: &mut Vec<FieldError>) {
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let at = format!("{at}.additionalPrinterColumns[{index}]");
        if text(column, "name").is_empty() {
            errors.push(required(&format!("{at}.name"), ""));
        }
        match text(column, "type") {
            "" => errors.push(required(
                &format!("{at}.type"),
                "must be one of boolean,date,integer,number,string",
            )),
            "boolean" | "date" | "integer" | "number" | "string" => {}
            other => errors.push(invalid(
                &format!("{at}.type"),
                &json!(other),
                "must be one of boolean,date,integer,number,string",
            )),
        }
        let path = text(column, "jsonPath");
        if path.is_empty() {
            errors.push(required(&format!("{at}.JSONPath"), ""));
        } else if !path.starts_with('.') {
            errors.push(invalid(
                &format!("{at}.JSONPath"),
                &json!(path),
                "must be a simple json path starting with .",
            ));
        }
    }
}

fn check_scale(scale: &Value, at: &str, errors: &mut Vec<FieldError>) {
    if !scale.is_object() {
        return;
    }
    for (field, parent, must) in [
        ("specReplicasPath", ".spec.", true),
        ("statusReplicasPath", ".status.", true),
        ("labelSelectorPath", ".spec.", false),
    ] {
        let path = text(scale, field);
        let at = format!("{at}.subresources.scale.{field}");
        if path.is_empty() {
            if must {
                errors.push(required(&at, ""));
            }
        } else if !path.starts_with('.') {
            errors.push(invalid(
                &at,
                &json!(path),
                "must be a simple json path starting with .",
            ));
        } else if must && !path.starts_with(parent) {
            errors.push(invalid(
                &at,
                &json!(path),
                format!(
                    "should be a json path under {}",
                    parent.trim_end_matches('.')
                ),
            ));
        }
    }
}

fn check_conversion(conversion: &Value, errors: &mut Vec<FieldError>) {
    match text(conversion, "strategy") {
        "" | "None" => {}
        "Webhook" => {
            let webhook = &conversion["webhook"];
            if object::strings(&webhook["conversionReviewVersions"]).is_empty() {
                errors.push(required("spec.conversion.conversionReviewVersions", ""));
            }
            if !webhook["clientConfig"].is_object() {
                errors.push(required(
                    "spec.conversion.webhookClientConfig",
                    "required when strategy is set to Webhook",
                ));
            }
        }
        other => errors.push(error(
            Fault::NotSupported,
            "spec.conversion.strategy",
            Some(json!(other)),
            "supported values: \"None\", \"Webhook\"",
        )),
    }
}

/// What may not change once objects exist.
fn check_unchanged(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = &old["spec"];
    let established = super::crds::is_established(old);
    for (path, now, then, only_established) in [
        ("spec.group", &spec["group"], &before["group"], false),
        (
            "spec.names.plural",
            &spec["names"]["plural"],
            &before["names"]["plural"],
            false,
        ),
        ("spec.scope", &spec["scope"], &before["scope"], true),
        (
            "spec.names.kind",
            &spec["names"]["kind"],
            &before["names"]["kind"],
            true,
        ),
    ] {
        if now != then && (established || !only_established) {
            errors.push(invalid(path, now, "field is immutable"));
        }
    }
    let names_: Vec<&str> = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|v| text(v, "name"))
        .collect();
    for (index, stored) in object::strings(&old["status"]["storedVersions"])
        .into_iter()
        .enumerate()
    {
        if !names_.contains(&stored) {
            errors.push(invalid(
                &format!("status.storedVersions[{index}]"),
                &json!(stored),
                format!("missing from spec.versions; {stored} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {stored} and removes {stored} from status.storedVersions"),
            ));
        }
    }
}
