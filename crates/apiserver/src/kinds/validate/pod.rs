//! Pods and pod templates.

use serde_json::Value;

use super::{Faults, diff, is_empty, list, text};
use crate::kinds::quantity::Quantity;
use crate::names;
use crate::schema::FieldError;

pub(super) fn pod(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    spec(&object["spec"], "spec", faults);
    if let Some(old) = old {
        update(&object["spec"], &old["spec"], faults);
    }
}

/// Almost nothing of a pod may change once it is there.
fn update(new: &Value, old: &Value, faults: &mut Faults) {
    let masked = |spec: &Value| {
        let mut spec = spec.clone();
        if let Value::Object(map) = &mut spec {
            for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
                map.remove(name);
            }
            for name in ["containers", "initContainers"] {
                for container in map
                    .get_mut(name)
                    .and_then(Value::as_array_mut)
                    .into_iter()
                    .flatten()
                {
                    container["image"] = Value::Null;
                }
            }
        }
        spec
    };
    let kept = list(&old["tolerations"])
        .iter()
        .all(|t| list(&new["tolerations"]).contains(t));
    if masked(new) != masked(old) || !kept {
        faults.forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
             additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
             set to 1 if it was previously negative)\n"
                .to_owned()
                + &diff::unified(&masked(old), &masked(new)),
        );
    }
}

/// Checks a pod's spec at `at`.
pub(super) fn spec(spec: &Value, at: &str, faults: &mut Faults) {
    let volumes = volumes(&spec["volumes"], &format!("{at}.volumes"), faults);
    if is_empty(&spec["containers"]) {
        faults.required(&format!("{at}.containers"), "");
    }
    let mut seen: Vec<&str> = Vec::new();
    for field in ["initContainers", "containers"] {
        for (i, container) in list(&spec[field]).iter().enumerate() {
            let at = format!("{at}.{field}[{i}]");
            let name = text(container, "name");
            if name.is_empty() {
                faults.required(&format!("{at}.name"), "");
            } else {
                faults.each(&format!("{at}.name"), name, names::dns1123_label(name));
                if seen.contains(&name) {
                    faults.duplicate(&format!("{at}.name"), name);
                }
                seen.push(name);
            }
            self::container(container, &volumes, &at, faults);
        }
    }
    let restart = text(spec, "restartPolicy");
    if restart.is_empty() {
        faults.required(&format!("{at}.restartPolicy"), "");
    } else {
        faults.one_of(
            &format!("{at}.restartPolicy"),
            restart,
            &["Always", "OnFailure", "Never"],
        );
    }
    let dns = text(spec, "dnsPolicy");
    faults.one_of(
        &format!("{at}.dnsPolicy"),
        dns,
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    let account = text(spec, "serviceAccountName");
    if !account.is_empty() {
        let at = format!("{at}.serviceAccountName");
        faults.each(&at, account, names::dns1123_subdomain(account));
    }
    if let Some(labels) = spec["nodeSelector"].as_object() {
        faults.0.extend(crate::meta::check_labels(
            labels,
            &format!("{at}.nodeSelector"),
        ));
    }
}

fn volumes<'a>(volumes: &'a Value, at: &str, faults: &mut Faults) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for (i, volume) in list(volumes).iter().enumerate() {
        let at = format!("{at}[{i}]");
        let name = text(volume, "name");
        if name.is_empty() {
            faults.required(&format!("{at}.name"), "");
        } else {
            faults.each(&format!("{at}.name"), name, names::dns1123_label(name));
        }
        if names.contains(&name) {
            faults.duplicate(&format!("{at}.name"), name);
        }
        names.push(name);
        let sources = volume
            .as_object()
            .map_or(0, |map| map.len().saturating_sub(1));
        if sources > 1 {
            let kinds = volume.as_object().into_iter().flatten().map(|(k, _)| k);
            let second = kinds
                .filter(|k| *k != "name")
                .nth(1)
                .map_or("", String::as_str);
            faults.forbidden(
                &format!("{at}.{second}"),
                "may not specify more than 1 volume type",
            );
        }
    }
    names
}

fn container(container: &Value, volumes: &[&str], at: &str, faults: &mut Faults) {
    let image = text(container, "image");
    if image.is_empty() {
        faults.required(&format!("{at}.image"), "");
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        faults.invalid(&format!("{at}.image"), image, why);
    }
    let policy = text(container, "imagePullPolicy");
    faults.one_of(
        &format!("{at}.imagePullPolicy"),
        policy,
        &["Always", "IfNotPresent", "Never"],
    );
    ports(&container["ports"], &format!("{at}.ports"), faults);
    for (i, variable) in list(&container["env"]).iter().enumerate() {
        let at = format!("{at}.env[{i}]");
        if text(variable, "name").is_empty() {
            faults.required(&format!("{at}.name"), "");
        }
        if !text(variable, "value").is_empty() && !is_empty(&variable["valueFrom"]) {
            let why = "may not be specified when `value` is not empty";
            faults.invalid(&format!("{at}.valueFrom"), "", why);
        }
    }
    mounts(
        &container["volumeMounts"],
        volumes,
        &format!("{at}.volumeMounts"),
        faults,
    );
    resources(&container["resources"], &format!("{at}.resources"), faults);
}

fn ports(ports: &Value, at: &str, faults: &mut Faults) {
    let mut names_seen: Vec<&str> = Vec::new();
    for (i, port) in list(ports).iter().enumerate() {
        let at = format!("{at}[{i}]");
        let name = text(port, "name");
        if !name.is_empty() {
            faults.each(&format!("{at}.name"), name, names::port_name(name));
            if names_seen.contains(&name) {
                faults.duplicate(&format!("{at}.name"), name);
            }
            names_seen.push(name);
        }
        match port["containerPort"].as_i64() {
            None | Some(0) => faults.required(&format!("{at}.containerPort"), ""),
            Some(number) => faults.port(number, &format!("{at}.containerPort")),
        }
        if let Some(number) = port["hostPort"].as_i64().filter(|n| *n != 0) {
            faults.port(number, &format!("{at}.hostPort"));
        }
        let protocol = text(port, "protocol");
        faults.one_of(&format!("{at}.protocol"), protocol, &["SCTP", "TCP", "UDP"]);
    }
}

fn mounts(mounts: &Value, volumes: &[&str], at: &str, faults: &mut Faults) {
    let mut paths: Vec<&str> = Vec::new();
    for (i, mount) in list(mounts).iter().enumerate() {
        let at = format!("{at}[{i}]");
        let name = text(mount, "name");
        if name.is_empty() {
            faults.required(&format!("{at}.name"), "");
        } else if !volumes.contains(&name) {
            faults
                .0
                .push(FieldError::not_found(&format!("{at}.name"), name));
        }
        let path = text(mount, "mountPath");
        if path.is_empty() {
            faults.required(&format!("{at}.mountPath"), "");
        } else if paths.contains(&path) {
            faults.invalid(&format!("{at}.mountPath"), path, "must be unique");
        }
        paths.push(path);
    }
}

fn resources(resources: &Value, at: &str, faults: &mut Faults) {
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let Some(limit) = resources["limits"].get(name) else {
            continue;
        };
        if let (Some(wanted), Some(most)) = (quantity(request), quantity(limit))
            && wanted > most
        {
            let shown = |value: &Value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            };
            let why = format!(
                "must be less than or equal to {name} limit of {}",
                shown(limit)
            );
            faults.invalid(&format!("{at}.requests"), shown(request), why);
        }
    }
}

/// The amount that a quantity stands for, in billionths.
pub(super) fn quantity(value: &Value) -> Option<i128> {
    let quantity = match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => return None,
    };
    quantity.ok().map(Quantity::nanos)
}
