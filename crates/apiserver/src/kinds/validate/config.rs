//! ConfigMaps, Secrets and Events.

use serde_json::Value;

use super::{Faults, is_empty, text};
use crate::names;
use crate::schema::FieldError;

/// The most bytes a ConfigMap or Secret may hold.
const LIMIT: u64 = 1024 * 1024;

fn keys(data: &Value, at: &str, faults: &mut Faults) -> u64 {
    let mut size = 0;
    for (key, value) in data.as_object().into_iter().flatten() {
        faults.each(&format!("{at}[{key}]"), key, names::config_key(key));
        size += value.as_str().map_or(0, str::len) as u64;
    }
    size
}

/// Whoever set `immutable` cannot be undone, nor what it guards be changed.
fn frozen(object: &Value, old: Option<&Value>, fields: &[&str], faults: &mut Faults) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return;
    };
    let why = "field is immutable when `immutable` is set";
    if object["immutable"] != true {
        faults.forbidden("immutable", why);
    }
    for field in fields {
        let same =
            object[*field] == old[*field] || is_empty(&object[*field]) && is_empty(&old[*field]);
        if !same {
            faults.forbidden(field, why);
        }
    }
}

pub(super) fn config_map(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    for (key, _) in object["data"].as_object().into_iter().flatten() {
        if object["binaryData"].get(key).is_some() {
            let why = "duplicate of key present in binaryData";
            faults.invalid(&format!("data[{key}]"), key.as_str(), why);
        }
    }
    let text = keys(&object["data"], "data", faults);
    let binary = keys(&object["binaryData"], "binaryData", faults) / 4 * 3;
    if text + binary > LIMIT {
        faults.0.push(FieldError::too_long("", LIMIT));
    }
    frozen(object, old, &["data", "binaryData"], faults);
}

pub(super) fn secret(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let size = keys(&object["data"], "data", faults) / 4 * 3;
    if size > LIMIT {
        faults.0.push(FieldError::too_long("data", LIMIT));
    }
    let has = |key: &str| object["data"].get(key).is_some();
    let needs = |key: &str, faults: &mut Faults| {
        if !has(key) {
            faults.required(&format!("data[{key}]"), "");
        }
    };
    match text(object, "type") {
        "kubernetes.io/service-account-token" => {
            let annotations = &object["metadata"]["annotations"];
            if text(annotations, "kubernetes.io/service-account.name").is_empty() {
                faults.required(
                    "metadata.annotations[kubernetes.io/service-account.name]",
                    "",
                );
            }
        }
        "kubernetes.io/dockercfg" => needs(".dockercfg", faults),
        "kubernetes.io/dockerconfigjson" => needs(".dockerconfigjson", faults),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            needs("username", faults);
            needs("password", faults);
        }
        "kubernetes.io/ssh-auth" => needs("ssh-privatekey", faults),
        "kubernetes.io/tls" => {
            needs("tls.crt", faults);
            needs("tls.key", faults);
        }
        _ => {}
    }
    faults.immutable(object, old, "type", "type");
    frozen(object, old, &["data"], faults);
}

/// Events of the new kind say more, and cannot be changed.
pub(super) fn new_event(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let timed = !object["eventTime"].is_null();
    let about = text(&object["regarding"], "namespace");
    let own = text(&object["metadata"], "namespace");
    let fits = match (timed, about.is_empty()) {
        (false, true) => own == "default",
        (false, false) => own == about,
        (true, true) => matches!(own, "default" | "kube-system"),
        (true, false) => true,
    };
    if !fits {
        let why = "does not match event.namespace";
        faults.invalid("involvedObject.namespace", about, why);
    }
    if timed {
        let controller = text(object, "reportingController");
        if controller.is_empty() {
            faults.required("reportingController", "");
        }
        let wrong = names::qualified_name(controller);
        faults.each("reportingController", controller, wrong);
        for name in ["reportingInstance", "action", "reason"] {
            if text(object, name).is_empty() {
                faults.required(name, "");
            }
            if text(object, name).len() > 128 {
                faults.invalid(name, "", "can have at most 128 characters");
            }
        }
        if text(object, "note").len() > 1024 {
            faults.invalid("message", "", "can have at most 1024 characters");
        }
    }
    match old {
        None => {
            if !timed {
                faults.required("eventTime", "");
            }
            let kind = text(object, "type");
            if !matches!(kind, "Normal" | "Warning") {
                faults.invalid("type", "", format!("has invalid value: {kind}"));
            }
            for (name, shown) in [
                ("deprecatedFirstTimestamp", "firstTimestamp"),
                ("deprecatedLastTimestamp", "lastTimestamp"),
                ("deprecatedCount", "count"),
                ("deprecatedSource", "source"),
            ] {
                if !is_empty(&object[name]) {
                    faults.invalid(shown, "", "needs to be unset");
                }
            }
        }
        Some(_) => {
            for (name, shown) in [
                ("regarding", "involvedObject"),
                ("reason", "reason"),
                ("note", "message"),
                ("type", "type"),
                ("eventTime", "eventTime"),
                ("action", "action"),
                ("related", "related"),
            ] {
                faults.immutable(object, old, name, shown);
            }
        }
    }
}

pub(super) fn event(object: &Value, faults: &mut Faults) {
    let involved = text(&object["involvedObject"], "namespace");
    let own = text(&object["metadata"], "namespace");
    // Events about things outside of namespaces live in these two.
    let fits = if involved.is_empty() {
        matches!(own, "default" | "kube-system")
    } else {
        involved == own
    };
    if !fits {
        let why = "does not match event.namespace";
        faults.invalid("involvedObject.namespace", involved, why);
    }
}
