//! Configurations of admission webhooks.

use serde_json::Value;

use super::{Faults, is_empty, list, text};
use crate::names;

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
                let why = format!(
                    "'https' is the only allowed URL scheme; desired format: \
                     https://host[/path], found scheme {}",
                    crate::golang::quote(scheme)
                );
                faults.invalid(&format!("{at}.url"), url, why);
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
