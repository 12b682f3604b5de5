//! Deployments and their like, jobs, budgets, priorities and leases.

use serde_json::Value;

use super::{Faults, is_empty, list, pod, text};
use crate::golang;
use crate::schema::FieldError;

pub(super) fn check(kind: &str, object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let spec = &object["spec"];
    match kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => {
            faults.not_negative(spec, "replicas", "spec");
            faults.not_negative(spec, "minReadySeconds", "spec");
            faults.not_negative(spec, "revisionHistoryLimit", "spec");
            selector(kind, spec, faults);
            template(&spec["template"], &["Always"], "spec.template", faults);
            if let Some(old) = old {
                changed(kind, spec, &old["spec"], faults);
            }
        }
        "Job" => {
            for name in [
                "parallelism",
                "completions",
                "backoffLimit",
                "activeDeadlineSeconds",
            ] {
                faults.not_negative(spec, name, "spec");
            }
            job_template(&spec["template"], "spec.template", faults);
        }
        "CronJob" => {
            let schedule = text(spec, "schedule");
            if schedule.is_empty() {
                faults.required("spec.schedule", "");
            } else if schedule.split_whitespace().count() != 5 && !schedule.starts_with('@') {
                let found = schedule.split_whitespace().count();
                let shown = golang::plain(&schedule.split_whitespace().collect::<Vec<_>>().into());
                let why = format!("expected exactly 5 fields, found {found}: {shown}");
                faults.invalid("spec.schedule", schedule, why);
            }
            let policy = text(spec, "concurrencyPolicy");
            let policies = ["Allow", "Forbid", "Replace"];
            faults.one_of("spec.concurrencyPolicy", policy, &policies);
            let inner = &spec["jobTemplate"]["spec"]["template"];
            job_template(inner, "spec.jobTemplate.spec.template", faults);
        }
        _ => {}
    }
}

fn selector(kind: &str, spec: &Value, faults: &mut Faults) {
    let selector = &spec["selector"];
    if selector.is_null() {
        faults.required("spec.selector", "");
    } else if is_empty(&selector["matchLabels"]) && is_empty(&selector["matchExpressions"]) {
        let why = format!("empty selector is invalid for {}", kind.to_lowercase());
        faults.invalid("spec.selector", selector.clone(), why);
    }
    let labels = &spec["template"]["metadata"]["labels"];
    // No selector selects nothing.
    if selector.is_null() || !matches(selector, labels) {
        let why = "`selector` does not match template `labels`";
        let shown = if labels.is_null() {
            Value::Null
        } else {
            labels.clone()
        };
        faults.invalid("spec.template.metadata.labels", shown, why);
    }
}

/// Whether a label selector selects `labels`.
fn matches(selector: &Value, labels: &Value) -> bool {
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let equal = pairs
        .into_iter()
        .all(|(key, value)| labels.get(key) == Some(value));
    let expressions = list(&selector["matchExpressions"])
        .iter()
        .all(|expression| {
            let found = labels.get(text(expression, "key"));
            let among = found.is_some_and(|value| list(&expression["values"]).contains(value));
            match text(expression, "operator") {
                "In" => among,
                "NotIn" => !among,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => true,
            }
        });
    equal && expressions
}

fn template(template: &Value, restart: &[&str], at: &str, faults: &mut Faults) {
    if let Some(labels) = template["metadata"]["labels"].as_object() {
        faults.0.extend(crate::meta::check_labels(
            labels,
            &format!("{at}.metadata.labels"),
        ));
    }
    let spec = &template["spec"];
    pod::spec(spec, &format!("{at}.spec"), faults);
    let policy = text(spec, "restartPolicy");
    if !restart.contains(&policy) {
        let at = format!("{at}.spec.restartPolicy");
        faults
            .0
            .push(FieldError::not_supported(&at, policy, restart));
    }
}

fn job_template(template: &Value, at: &str, faults: &mut Faults) {
    pod::spec(&template["spec"], &format!("{at}.spec"), faults);
    if !matches!(
        text(&template["spec"], "restartPolicy"),
        "OnFailure" | "Never"
    ) {
        let at = format!("{at}.spec.restartPolicy");
        faults.required(&at, "valid values: \"OnFailure\", \"Never\"");
    }
}

/// What may change of a stateful set; its claim templates are compared apart.
const FREE: [&str; 8] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "volumeClaimTemplates",
];

fn changed(kind: &str, new: &Value, old: &Value, faults: &mut Faults) {
    if kind != "StatefulSet" {
        if new["selector"] != old["selector"] {
            faults.invalid(
                "spec.selector",
                new["selector"].clone(),
                "field is immutable",
            );
        }
        return;
    }
    let fixed = |spec: &Value| {
        let fields = spec.as_object().into_iter().flatten();
        let kept = fields.filter(|(name, _)| !FREE.contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone()))
            .collect::<Vec<_>>()
    };
    let (mut a, mut b) = (fixed(new), fixed(old));
    a.sort_by(|x, y| x.0.cmp(&y.0));
    b.sort_by(|x, y| x.0.cmp(&y.0));
    if a != b || new["volumeClaimTemplates"] != old["volumeClaimTemplates"] {
        faults.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
             'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
             'minReadySeconds' are forbidden",
        );
    }
}

pub(super) fn budget(object: &Value, faults: &mut Faults) {
    let spec = &object["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let why = "minAvailable and maxUnavailable cannot be both set";
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["minAvailable"],
            spec["selector"],
            spec["maxUnavailable"],
            spec["unhealthyPodEvictionPolicy"]
        );
        let error = FieldError::invalid_shown("spec", &shown, why);
        faults.0.push(error);
    }
    for name in ["minAvailable", "maxUnavailable"] {
        let at = format!("spec.{name}");
        if let Some(number) = spec[name].as_i64().filter(|n| *n < 0) {
            faults.invalid(&at, number, "must be greater than or equal to 0");
        }
        if let Some(share) = spec[name].as_str() {
            let digits = share
                .strip_suffix('%')
                .filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
            match digits.and_then(|d| d.parse::<u32>().ok()) {
                None => faults.invalid(
                    &at,
                    share,
                    "a valid percent string must be a numeric string followed by an ending '%' \
                     (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                ),
                Some(share_of) if share_of > 100 => {
                    faults.invalid(&at, share, "must not be greater than 100%");
                }
                Some(_) => {}
            }
        }
    }
}

pub(super) fn priority(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let system = text(&object["metadata"], "name").starts_with("system-");
    if !system
        && object["value"]
            .as_i64()
            .is_some_and(|value| value > 1_000_000_000)
    {
        let why = "maximum allowed value of a user defined priority is 1000000000";
        faults.forbidden("value", why);
    }
    if let Some(old) = old {
        if object["value"] != old["value"] {
            faults.forbidden("value", "may not be changed in an update.");
        }
        faults.immutable(object, Some(old), "preemptionPolicy", "preemptionPolicy");
    }
}

pub(super) fn lease(object: &Value, faults: &mut Faults) {
    let spec = &object["spec"];
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|n| *n <= 0) {
        faults.invalid(
            "spec.leaseDurationSeconds",
            seconds,
            "must be greater than 0",
        );
    }
    faults.not_negative(spec, "leaseTransitions", "spec");
}
