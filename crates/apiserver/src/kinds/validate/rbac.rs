//! Roles and bindings.

use serde_json::Value;

use super::{Faults, is_empty, list, text};
use crate::golang;
use crate::names;
use crate::schema::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn check(kind: &str, object: &Value, old: Option<&Value>, faults: &mut Faults) {
    match kind {
        "Role" | "ClusterRole" => {
            for (i, rule) in list(&object["rules"]).iter().enumerate() {
                self::rule(rule, kind == "Role", &format!("rules[{i}]"), faults);
            }
        }
        "RoleBinding" | "ClusterRoleBinding" => {
            role_ref(kind, &object["roleRef"], faults);
            for (i, subject) in list(&object["subjects"]).iter().enumerate() {
                self::subject(kind, subject, &format!("subjects[{i}]"), faults);
            }
            if let Some(old) = old
                && object["roleRef"] != old["roleRef"]
            {
                let role = &object["roleRef"];
                let shown = format!(
                    r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#,
                    golang::quote(text(role, "apiGroup")),
                    golang::quote(text(role, "kind")),
                    golang::quote(text(role, "name"))
                );
                let why = "cannot change roleRef";
                faults
                    .0
                    .push(FieldError::invalid_shown("roleRef", &shown, why));
            }
        }
        _ => {}
    }
}

fn rule(rule: &Value, namespaced: bool, at: &str, faults: &mut Faults) {
    if is_empty(&rule["verbs"]) {
        faults.required(
            &format!("{at}.verbs"),
            "verbs must contain at least one value",
        );
    }
    if !is_empty(&rule["nonResourceURLs"]) {
        if namespaced {
            let why = "namespaced rules cannot apply to non-resource URLs";
            let urls = rule["nonResourceURLs"].clone();
            faults.invalid(&format!("{at}.nonResourceURLs"), urls, why);
        }
        let resources = ["apiGroups", "resources", "resourceNames"];
        if resources.iter().any(|name| !is_empty(&rule[*name])) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            let urls = rule["nonResourceURLs"].clone();
            faults.invalid(&format!("{at}.nonResourceURLs"), urls, why);
        }
        return;
    }
    if is_empty(&rule["apiGroups"]) {
        let why = "resource rules must supply at least one api group";
        faults.required(&format!("{at}.apiGroups"), why);
    }
    if is_empty(&rule["resources"]) {
        let why = "resource rules must supply at least one resource";
        faults.required(&format!("{at}.resources"), why);
    }
}

fn role_ref(kind: &str, role: &Value, faults: &mut Faults) {
    let group = text(role, "apiGroup");
    faults.one_of("roleRef.apiGroup", group, &[GROUP]);
    let kinds: &[&str] = if kind == "RoleBinding" {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    faults.one_of("roleRef.kind", text(role, "kind"), kinds);
    let name = text(role, "name");
    if name.is_empty() {
        faults.required("roleRef.name", "");
    } else {
        faults.each("roleRef.name", name, names::path_segment(name));
    }
}

fn subject(kind: &str, subject: &Value, at: &str, faults: &mut Faults) {
    let name = text(subject, "name");
    if name.is_empty() {
        faults.required(&format!("{at}.name"), "");
    }
    let group = text(subject, "apiGroup");
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                faults.each(&format!("{at}.name"), name, names::dns1123_subdomain(name));
            }
            faults.one_of(&format!("{at}.apiGroup"), group, &[""]);
            if kind == "ClusterRoleBinding" && text(subject, "namespace").is_empty() {
                faults.required(&format!("{at}.namespace"), "");
            }
        }
        "User" | "Group" => faults.one_of(&format!("{at}.apiGroup"), group, &[GROUP]),
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            faults.one_of(&format!("{at}.kind"), other, &kinds);
        }
    }
}
