//! Volumes, claims, storage classes and the kinds of CSI.

use serde_json::Value;

use super::{Faults, diff, is_empty, list, text};
use crate::schema::FieldError;
use crate::{names, object};

const MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

fn access_modes(spec: &Value, faults: &mut Faults) {
    if is_empty(&spec["accessModes"]) {
        faults.required("spec.accessModes", "at least 1 access mode is required");
    }
    for mode in list(&spec["accessModes"]) {
        faults.one_of(
            "spec.accessModes",
            mode.as_str().unwrap_or_default(),
            &MODES,
        );
    }
    let mode = text(spec, "volumeMode");
    if !mode.is_empty() {
        faults.one_of("spec.volumeMode", mode, &["Block", "Filesystem"]);
    }
}

pub(super) fn claim(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let spec = &object["spec"];
    access_modes(spec, faults);
    let storage = &spec["resources"]["requests"]["storage"];
    if storage.is_null() {
        faults.required("spec.resources[storage]", "");
    } else if super::pod::quantity(storage).is_some_and(|n| n <= 0) {
        let at = "spec.resources[storage]";
        faults.invalid(at, storage.clone(), "must be greater than zero");
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        faults.each(
            "spec.storageClassName",
            class,
            names::dns1123_subdomain(class),
        );
    }
    let Some(old) = old else { return };
    let before = &old["spec"];
    let mut allowed = before.clone();
    let mut keep = |name: &str| object::put(&mut allowed, name, spec.get(name).cloned());
    // The binder names the volume once.
    if text(before, "volumeName").is_empty() {
        keep("volumeName");
    }
    let bound = object["status"]["phase"] == "Bound";
    if bound {
        keep("volumeAttributesClassName");
        if !storage.is_null() {
            allowed["resources"]["requests"]["storage"] = storage.clone();
        }
    }
    // A class can be given later to a claim that was made without any.
    if before["storageClassName"].is_null() && !spec["storageClassName"].is_null() {
        allowed["storageClassName"] = spec["storageClassName"].clone();
    }
    if *spec != allowed {
        let changes = diff::unified(&allowed, spec);
        faults.forbidden(
            "spec",
            format!(
                "spec is immutable after creation except resources.requests and \
                 volumeAttributesClassName for bound claims\n{changes}"
            ),
        );
    }
    let amount = |value: &Value| super::pod::quantity(value).unwrap_or(0);
    let was = &before["resources"]["requests"]["storage"];
    let held = &old["status"]["capacity"]["storage"];
    if amount(storage) < amount(was) && amount(storage) <= amount(held) {
        let why = "field can not be less than status.capacity";
        faults.forbidden("spec.resources.requests.storage", why);
    }
}

/// Fields of a volume's spec that are not where its data lies.
const COMMON: [&str; 11] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
    "selector",
    "resources",
];

fn source(spec: &Value) -> Vec<(&String, &Value)> {
    let fields = spec.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| !COMMON.contains(&name.as_str()))
        .collect()
}

pub(super) fn volume(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let spec = &object["spec"];
    access_modes(spec, faults);
    if is_empty(&spec["capacity"]) {
        faults.required("spec.capacity", "");
    }
    match source(spec).len() {
        0 => faults.required("spec", "must specify a volume type"),
        1 => {}
        _ => faults.forbidden("spec", "may not specify more than 1 volume type"),
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    let policies = ["Delete", "Recycle", "Retain"];
    faults.one_of("spec.persistentVolumeReclaimPolicy", policy, &policies);
    if let Some(old) = old {
        if source(spec) != source(&old["spec"]) {
            faults.forbidden(
                "spec.persistentvolumesource",
                "spec.persistentvolumesource is immutable after creation\n",
            );
        }
        faults.immutable(spec, Some(&old["spec"]), "volumeMode", "spec.volumeMode");
    }
}

pub(super) fn check(kind: &str, object: &Value, old: Option<&Value>, faults: &mut Faults) {
    match kind {
        "StorageClass" => class(object, old, faults),
        "VolumeAttachment" => {
            let spec = &object["spec"];
            for name in ["attacher", "nodeName"] {
                if text(spec, name).is_empty() {
                    faults.required(&format!("spec.{name}"), "");
                }
            }
            if is_empty(&spec["source"]) {
                faults.required(
                    "spec.source",
                    "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                );
            }
            if old.is_some_and(|old| old["spec"] != *spec) {
                let shown = format!(
                    "{{\"Attacher\":{},\"Source\":{{\"PersistentVolumeName\":{},\"InlineVolumeSpec\":{}}},\"NodeName\":{}}}",
                    spec["attacher"],
                    spec["source"]["persistentVolumeName"],
                    spec["source"]["inlineVolumeSpec"],
                    spec["nodeName"]
                );
                let why = "field is immutable";
                faults
                    .0
                    .push(FieldError::invalid_shown("spec", &shown, why));
            }
        }
        "CSIDriver" => {
            let modes = ["ReadWriteOnceWithFSType", "File", "None"];
            let policy = text(&object["spec"], "fsGroupPolicy");
            faults.one_of("spec.fsGroupPolicy", policy, &modes);
            let (spec, before) = (&object["spec"], old.map(|old| &old["spec"]));
            faults.immutable(spec, before, "attachRequired", "spec.attachedRequired");
            let at = "spec.volumeLifecycleModes";
            faults.immutable(spec, before, "volumeLifecycleModes", at);
        }
        "CSINode" => {
            for (i, driver) in list(&object["spec"]["drivers"]).iter().enumerate() {
                for name in ["name", "nodeID"] {
                    if text(driver, name).is_empty() {
                        faults.required(&format!("spec.drivers[{i}].{name}"), "");
                    }
                }
            }
        }
        _ => {}
    }
}

fn class(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    if text(object, "provisioner").is_empty() {
        faults.required("provisioner", "");
    }
    faults.one_of(
        "reclaimPolicy",
        text(object, "reclaimPolicy"),
        &["Delete", "Retain"],
    );
    let modes = ["Immediate", "WaitForFirstConsumer"];
    faults.one_of(
        "volumeBindingMode",
        text(object, "volumeBindingMode"),
        &modes,
    );
    for (key, _) in object["parameters"].as_object().into_iter().flatten() {
        if key.is_empty() {
            faults.invalid("parameters", key.as_str(), "field can not be empty.");
        }
    }
    let Some(old) = old else { return };
    for name in [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        faults.immutable(object, Some(old), name, name);
    }
}
