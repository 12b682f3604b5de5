//! Nodes.

use serde_json::Value;

use super::{Faults, list, text};
use crate::names;
use crate::schema::FieldError;

pub(super) fn node(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let spec = &object["spec"];
    taints(spec, faults);
    let Some(old) = old else { return };
    let before = &old["spec"];
    let mut seen: Vec<&Value> = Vec::new();
    for (i, address) in list(&object["status"]["addresses"]).iter().enumerate() {
        if seen.contains(&address) {
            let shown = format!(
                "{{\"Type\":{},\"Address\":{}}}",
                address["type"], address["address"]
            );
            let at = format!("status.addresses[{i}]");
            faults.0.push(FieldError::duplicate_shown(&at, &shown));
        }
        seen.push(address);
    }
    if !list(&before["podCIDRs"]).is_empty() && spec["podCIDRs"] != before["podCIDRs"] {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        faults.forbidden("spec.podCIDRs", why);
    }
    let provider = text(before, "providerID");
    if !provider.is_empty() && text(spec, "providerID") != provider {
        let why = "node updates may not change providerID except from \"\" to valid";
        faults.forbidden("spec.providerID", why);
    }
    // The rules for all nodes are checked once more with those for updates.
    taints(spec, faults);
}

fn taints(spec: &Value, faults: &mut Faults) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, taint) in list(&spec["taints"]).iter().enumerate() {
        let at = format!("metadata.taints[{i}]");
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        faults.each(&format!("{at}.key"), key, names::qualified_name(key));
        let value = text(taint, "value");
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            faults.invalid(&format!("{at}.value"), value, wrong.join(";"));
        }
        if effect.is_empty() {
            faults.required(&format!("{at}.effect"), "");
        } else {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            faults.one_of(&format!("{at}.effect"), effect, &effects);
        }
        if seen.contains(&(key, effect)) {
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":null}}",
                Value::from(key),
                Value::from(value),
                Value::from(effect)
            );
            let mut error = FieldError::duplicate_shown(&at, &shown);
            "taints must be unique by key and effect pair".clone_into(&mut error.detail);
            faults.0.push(error);
        }
        seen.push((key, effect));
    }
}
