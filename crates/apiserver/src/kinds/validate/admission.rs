//! Configurations of admission webhooks.

use serde_json::Value;

use super::{Faults, is_empty, list, text};
use crate::{admission::check_condition, names};

pub(super) fn check(object: &Value, faults: &mut Faults) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, webhook) in list(&object["webhooks"]).iter().enumerate() {
        let at = format!("webhooks[{i}]");
        let name = text(webhook, "name");
        domain(name, &format!("{at}.name"), faults);
        if seen.contains(&name) {
            faults.duplicate(&format!("{at}.name"), name);
        }
        seen.push(name);
        client(
            &webhook["clientConfig"],
            &format!("{at}.clientConfig"),
            faults,
        );
        let effects = text(webhook, "sideEffects");
        if effects.is_empty() {
            let why = "must specify one of None, NoneOnDryRun";
            faults.required(&format!("{at}.sideEffects"), why);
        } else {
            faults.one_of(
                &format!("{at}.sideEffects"),
                effects,
                &["None", "NoneOnDryRun"],
            );
        }
        if is_empty(&webhook["admissionReviewVersions"]) {
            let why = "must specify one of v1, v1beta1";
            faults.required(&format!("{at}.admissionReviewVersions"), why);
        }
        let versions = list(&webhook["admissionReviewVersions"]);
        let known = |v: &Value| v == "v1" || v == "v1beta1";
        if !versions.is_empty() && !versions.iter().any(known) {
            let why = "must include at least one of v1, v1beta1";
            let versions = webhook["admissionReviewVersions"].clone();
            faults.invalid(&format!("{at}.admissionReviewVersions"), versions, why);
        }
        let policy = text(webhook, "failurePolicy");
        faults.one_of(&format!("{at}.failurePolicy"), policy, &["Fail", "Ignore"]);
        if let Some(seconds) = webhook["timeoutSeconds"].as_i64()
            && !(1..=30).contains(&seconds)
        {
            let why = "the timeout value must be between 1 and 30 seconds";
            faults.invalid(&format!("{at}.timeoutSeconds"), seconds, why);
        }
        for (j, rule) in list(&webhook["rules"]).iter().enumerate() {
            for name in ["operations", "apiGroups", "apiVersions", "resources"] {
                if is_empty(&rule[name]) {
                    faults.required(&format!("{at}.rules[{j}].{name}"), "");
                }
            }
            for (k, operation) in list(&rule["operations"]).iter().enumerate() {
                faults.one_of(
                    &format!("{at}.rules[{j}].operations[{k}]"),
                    operation.as_str().unwrap_or_default(),
                    &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"],
                );
            }
        }
        conditions(webhook, &at, faults);
    }
}

fn conditions(webhook: &Value, at: &str, faults: &mut Faults) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, condition) in list(&webhook["matchConditions"]).iter().enumerate() {
        let at = format!("{at}.matchConditions[{i}]");
        let (name, expression) = (text(condition, "name"), text(condition, "expression"));
        if name.is_empty() {
            faults.required(&format!("{at}.name"), "");
        } else if seen.contains(&name) {
            faults.duplicate(&format!("{at}.name"), name);
        } else {
            let reasons = names::qualified_name(name);
            if !reasons.is_empty() {
                faults.invalid(&format!("{at}.name"), name, reasons.join(","));
            }
        }
        seen.push(name);
        if expression.trim().is_empty() {
            faults.required(&format!("{at}.expression"), "");
        } else if let Err(why) = check_condition(expression) {
            faults.invalid(&format!("{at}.expression"), expression, why);
        }
    }
}

fn domain(name: &str, at: &str, faults: &mut Faults) {
    if name.is_empty() {
        faults.required(at, "");
        return;
    }
    let reasons = names::dns1123_subdomain(name);
    if !reasons.is_empty() {
        faults.invalid(at, name, reasons.join(","));
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        faults.invalid(at, name, why);
    }
}

fn client(config: &Value, at: &str, faults: &mut Faults) {
    let url = text(config, "url");
    match (url.is_empty(), config["service"].is_null()) {
        (true, true) | (false, false) => {
            faults.required(at, "exactly one of url or service is required");
        }
        (false, true) => {
            if !url.starts_with("https://") {
                let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
                let why =
                    "'https' is the only allowed URL scheme; desired format: https://host[/path]";
                faults.invalid(&format!("{at}.url"), scheme, why);
            }
        }
        (true, false) => {
            let service = &config["service"];
            for (name, why) in [
                ("name", "service name is required"),
                ("namespace", "service namespace is required"),
            ] {
                if text(service, name).is_empty() {
                    faults.required(&format!("{at}.service.{name}"), why);
                }
            }
        }
    }
}
