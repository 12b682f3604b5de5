//! CustomResourceDefinitions.
//!
//! The real server checks its internal form, in which a schema, columns or subresources that all
//! versions share lie at `spec` itself; its messages show those places.

use serde_json::{Value, json};

use super::crd_names;
use super::{Faults, is_empty, list, text};
use crate::golang;
use crate::names;
use crate::schema::{FieldError, Schema};

pub(super) fn check(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let spec = &object["spec"];
    crd_names::check(object, old, faults);
    match text(spec, "scope") {
        "" => faults.required("spec.scope", ""),
        scope => faults.one_of("spec.scope", scope, &["Cluster", "Namespaced"]),
    }
    if spec["preserveUnknownFields"] == true {
        faults.invalid(
            "spec.preserveUnknownFields",
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
             spec.versions[*].schema instead",
        );
    }
    versions(spec, faults);
    conversion(&spec["conversion"], faults);
    match old {
        Some(old) => update(object, old, faults),
        None => noted(object, faults),
    }
    faults.0.sort_by_key(ToString::to_string);
}

/// A version that is stored is noted as such once, so a second one of its name is not.
fn noted(object: &Value, faults: &mut Faults) {
    let versions = list(&object["spec"]["versions"]);
    for (i, version) in versions.iter().enumerate() {
        let same = |other: &Value| other["name"] == version["name"] && other["storage"] == true;
        if version["storage"] == true && versions[..i].iter().any(same) {
            let why = format!("must have the storage version {}", text(version, "name"));
            let all = object["status"]["storedVersions"].clone();
            faults.invalid("status.storedVersions", all, why);
        }
    }
}

/// What all versions have in common under `name`, if they have.
fn shared<'a>(spec: &'a Value, name: &str) -> Option<&'a Value> {
    let mut all = list(&spec["versions"]).iter().map(|version| &version[name]);
    let first = all.next().filter(|first| !first.is_null())?;
    all.all(|other| other == first).then_some(first)
}

fn versions(spec: &Value, faults: &mut Faults) {
    let versions = list(&spec["versions"]);
    let stored = versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count();
    let mut seen: Vec<&str> = Vec::new();
    let mut repeated = false;
    for (i, version) in versions.iter().enumerate() {
        let name = text(version, "name");
        faults.each(
            &format!("spec.versions[{i}].name"),
            name,
            names::dns1035_label(name),
        );
        if i == 0 {
            faults.each("spec.version", name, names::dns1035_label(name));
        }
        repeated |= seen.contains(&name);
        seen.push(name);
        if is_empty(&version["schema"]["openAPIV3Schema"]) {
            faults.required(&format!("spec.versions[{i}].schema.openAPIV3Schema"), "");
        }
    }
    let shown = internal_versions(spec);
    if repeated {
        let why = "must contain unique version names";
        faults
            .0
            .push(FieldError::invalid_shown("spec.versions", &shown, why));
    }
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        faults
            .0
            .push(FieldError::invalid_shown("spec.versions", &shown, why));
    }
    if stored == 0 {
        let why = "must have at least one stored version";
        faults.invalid("status.storedVersions", Value::Null, why);
    }
    parts(spec, faults);
}

/// Checks the schema, columns, subresources and selectable fields, each once where it is shared.
fn parts(spec: &Value, faults: &mut Faults) {
    let versions = list(&spec["versions"]);
    let place = |name: &str, inner: &str, i: usize| match shared(spec, name) {
        Some(_) => format!("spec.{inner}"),
        None => format!("spec.versions[{i}].{name}"),
    };
    for (i, version) in versions.iter().enumerate() {
        let first = |name: &str| i == 0 || shared(spec, name).is_none();
        let raw = &version["schema"]["openAPIV3Schema"];
        if first("schema") && !is_empty(raw) {
            let at = format!("{}.openAPIV3Schema", place("schema", "validation", i));
            if let Err(errors) = Schema::from_crd(raw) {
                faults
                    .0
                    .extend(errors.into_iter().map(|error| error.under(&at)));
            }
            let kind = text(raw, "type");
            if !version["subresources"]["status"].is_null() && !matches!(kind, "" | "object") {
                let why = "only \"object\" is allowed as the type at the root of the schema if the \
                           status subresource is enabled";
                faults.invalid(&format!("{at}.type"), kind, why);
            }
        }
        if first("additionalPrinterColumns") {
            let at = place("additionalPrinterColumns", "additionalPrinterColumns", i);
            columns(&version["additionalPrinterColumns"], &at, faults);
        }
        if first("subresources") {
            let at = place("subresources", "subresources", i);
            scale(
                &version["subresources"]["scale"],
                &format!("{at}.scale"),
                faults,
            );
        }
        if first("selectableFields") {
            let at = place("selectableFields", "selectableFields", i);
            selectable(&version["selectableFields"], raw, &at, faults);
        }
    }
}

fn columns(columns: &Value, at: &str, faults: &mut Faults) {
    for (i, column) in list(columns).iter().enumerate() {
        let at = format!("{at}[{i}]");
        if text(column, "name").is_empty() {
            faults.required(&format!("{at}.name"), "");
        }
        let kinds = ["boolean", "date", "integer", "number", "string"];
        match text(column, "type") {
            "" => {
                let why = format!("must be one of {}", kinds.join(","));
                faults.required(&format!("{at}.type"), &why);
            }
            kind if !kinds.contains(&kind) => {
                let why = format!("must be one of {}", kinds.join(","));
                faults.invalid(&format!("{at}.type"), kind, why);
            }
            _ => {}
        }
        let path = text(column, "jsonPath");
        if path.is_empty() {
            faults.required(&format!("{at}.JSONPath"), "");
        } else if !path.starts_with('.') {
            let why = "must be a simple json path starting with .";
            faults.invalid(&format!("{at}.JSONPath"), path, why);
        }
    }
}

fn scale(scale: &Value, at: &str, faults: &mut Faults) {
    if scale.is_null() {
        return;
    }
    for (name, root) in [
        ("specReplicasPath", ".spec."),
        ("statusReplicasPath", ".status."),
    ] {
        let path = text(scale, name);
        let at = format!("{at}.{name}");
        if path.is_empty() {
            faults.required(&at, "");
        } else if !path.starts_with('.') {
            faults.invalid(&at, path, "must be a simple json path starting with .");
        } else if !path.starts_with(root) {
            let why = format!("should be a json path under {}", root.trim_end_matches('.'));
            faults.invalid(&at, path, why);
        }
    }
}

fn selectable(fields: &Value, schema: &Value, at: &str, faults: &mut Faults) {
    for (i, field) in list(fields).iter().enumerate() {
        let path = text(field, "jsonPath");
        let at = format!("{at}[{i}].jsonPath");
        let Some(inner) = path.strip_prefix('.') else {
            let why = format!("is an invalid path: expected [ or . but got: {path}");
            faults.invalid(&at, path, why);
            continue;
        };
        let found = inner
            .split('.')
            .try_fold(schema, |node, name| node["properties"].get(name));
        match found {
            None => {
                faults.invalid(
                    &at,
                    path,
                    "is an invalid path: does not refer to a valid field",
                );
            }
            Some(node) if !matches!(text(node, "type"), "string" | "integer" | "boolean") => {
                let why = "must point to a field of type string, boolean or integer";
                faults.invalid(&at, path, why);
            }
            Some(_) => {}
        }
    }
}

fn conversion(conversion: &Value, faults: &mut Faults) {
    let strategy = text(conversion, "strategy");
    if strategy.is_empty() {
        faults.required("spec.conversion.strategy", "");
        return;
    }
    faults.one_of("spec.conversion.strategy", strategy, &["None", "Webhook"]);
    if strategy != "Webhook" {
        return;
    }
    let webhook = &conversion["webhook"];
    if is_empty(&webhook["conversionReviewVersions"]) {
        faults.required("spec.conversion.conversionReviewVersions", "");
    }
    if webhook["clientConfig"].is_null() {
        let why = "required when strategy is set to Webhook";
        faults.required("spec.conversion.webhookClientConfig", why);
    }
}

fn update(object: &Value, old: &Value, faults: &mut Faults) {
    let (spec, before) = (&object["spec"], &old["spec"]);
    faults.immutable(spec, Some(before), "group", "spec.group");
    let established = list(&old["status"]["conditions"])
        .iter()
        .any(|c| c["type"] == "Established" && c["status"] == "True");
    if established {
        faults.immutable(spec, Some(before), "scope", "spec.scope");
        let (names, before) = (&spec["names"], &before["names"]);
        faults.immutable(names, Some(before), "plural", "spec.names.plural");
        faults.immutable(names, Some(before), "kind", "spec.names.kind");
    }
    for (i, stored) in list(&old["status"]["storedVersions"]).iter().enumerate() {
        if !list(&spec["versions"])
            .iter()
            .any(|version| version["name"] == *stored)
        {
            let name = stored.as_str().unwrap_or_default();
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must \
                 remain in spec.versions until a storage migration ensures no data remains persisted \
                 in {name} and removes {name} from status.storedVersions"
            );
            faults.invalid(&format!("status.storedVersions[{i}]"), name, why);
        }
    }
}

/// The versions as the real server's internal type prints.
fn internal_versions(spec: &Value) -> String {
    let or_null = |name: &str, version: &Value| match shared(spec, name) {
        Some(_) => Value::Null,
        None => version[name].clone(),
    };
    let parts = list(&spec["versions"]).iter().map(|version| {
        let fields = [
            ("Name", version["name"].clone()),
            ("Served", json!(version["served"] == true)),
            ("Storage", json!(version["storage"] == true)),
            ("Deprecated", json!(version["deprecated"] == true)),
            ("DeprecationWarning", version["deprecationWarning"].clone()),
            ("Schema", or_null("schema", version)),
            ("Subresources", or_null("subresources", version)),
            (
                "AdditionalPrinterColumns",
                or_null("additionalPrinterColumns", version),
            ),
            ("SelectableFields", or_null("selectableFields", version)),
        ];
        let fields = fields.map(|(name, value)| format!("\"{name}\":{}", golang::json(&value)));
        format!("{{{}}}", fields.join(","))
    });
    format!("[{}]", parts.collect::<Vec<_>>().join(","))
}
