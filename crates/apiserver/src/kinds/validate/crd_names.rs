//! Names and groups of CustomResourceDefinitions.

use serde_json::Value;

use super::{Faults, list, text};
use crate::names;

pub(super) fn check(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let spec = &object["spec"];
    let group = text(spec, "group");
    let plural = text(&spec["names"], "plural");
    let name = text(&object["metadata"], "name");
    // Neither the group nor the name can change later, which is told apart.
    if old.is_none() && name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        faults.invalid("metadata.name", name, why);
    }
    if group.is_empty() {
        faults.required("spec.group", "");
    } else {
        let reasons = names::dns1123_subdomain(group);
        if !reasons.is_empty() {
            faults.invalid("spec.group", group, reasons.join(","));
        } else if !group.contains('.') {
            faults.invalid(
                "spec.group",
                group,
                "should be a domain with at least one dot",
            );
        }
    }
    approved(object, group, faults);
    names(&spec["names"], faults);
}

/// Groups of the Kubernetes project need its approval.
fn approved(object: &Value, group: &str, faults: &mut Faults) {
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|suffix| group == *suffix || group.ends_with(&format!(".{suffix}")));
    let annotation = "api-approved.kubernetes.io";
    let approval = text(&object["metadata"]["annotations"], annotation);
    let known = approval.starts_with("https://") || approval.starts_with("unapproved");
    if !protected || known {
        return;
    }
    let at = format!("metadata.annotations[{annotation}]");
    if approval.is_empty() {
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\", \
                   see https://github.com/kubernetes/enhancements/pull/1111";
        faults.required(&at, why);
    } else {
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\" \
                   with either a URL or a reason starting with \"unapproved\", see \
                   https://github.com/kubernetes/enhancements/pull/1111";
        faults.invalid(&at, approval, why);
    }
}

fn names(names: &Value, faults: &mut Faults) {
    let label = |name: &str, faults: &mut Faults| {
        let value = text(names, name);
        let at = format!("spec.names.{name}");
        if value.is_empty() {
            faults.required(&at, "");
            return;
        }
        let reasons = names::dns1035_label(&value.to_lowercase());
        if name == "plural" || name == "singular" {
            faults.each(&at, value, names::dns1035_label(value));
        } else if !reasons.is_empty() {
            let why = reasons.join(",");
            let why = format!("may have mixed case, but should otherwise match: {why}");
            faults.invalid(&at, value, why);
        }
    };
    label("plural", faults);
    if !text(names, "singular").is_empty() {
        label("singular", faults);
    }
    label("kind", faults);
    let kind = text(names, "kind");
    if !kind.is_empty() {
        label("listKind", faults);
        if text(names, "listKind") == kind {
            let why = "kind and listKind may not be the same";
            faults.invalid("spec.names.listKind", kind, why);
        }
    }
    for field in ["shortNames", "categories"] {
        for (i, short) in list(&names[field]).iter().enumerate() {
            let short = short.as_str().unwrap_or_default();
            let at = format!("spec.names.{field}[{i}]");
            faults.each(&at, short, names::dns1035_label(short));
        }
    }
}
