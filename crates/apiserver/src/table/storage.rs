//! Volumes, claims, storage classes and the kinds of CSI.

use jiff::Timestamp;
use serde_json::Value;

use super::Cells;
use super::kinds::{aged, is_deleted, list, name, text, text_or};

const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

pub(super) fn find(kind: &str) -> (&'static str, Cells) {
    match kind {
        "PersistentVolumeClaim" => (
            "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|\
             VolumeMode+",
            claim,
        ),
        "PersistentVolume" => (
            "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|\
             VolumeAttributesClass|Reason|Age|VolumeMode+",
            volume,
        ),
        "StorageClass" => (
            "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age",
            class,
        ),
        "CSIDriver" => (
            "Name|AttachRequired?|PodInfoOnMount?|StorageCapacity?|TokenRequests|\
             RequiresRepublish?|Modes|Age",
            driver,
        ),
        "CSINode" => ("Name|Drivers#|Age", |o, now| {
            vec![
                name(o),
                list(&o["spec"]["drivers"]).len().into(),
                aged(o, now),
            ]
        }),
        "CSIStorageCapacity" => ("Name|StorageClassName|Capacity", |o, _| {
            let capacity = text_or(o, "capacity", "<unset>");
            vec![name(o), text(o, "storageClassName").into(), capacity.into()]
        }),
        "VolumeAttachment" => ("Name|Attacher|PV|Node|Attached?|Age", |o, now| {
            let spec = &o["spec"];
            vec![
                name(o),
                text(spec, "attacher").into(),
                text(&spec["source"], "persistentVolumeName").into(),
                text(spec, "nodeName").into(),
                (o["status"]["attached"] == true).into(),
                aged(o, now),
            ]
        }),
        "VolumeAttributesClass" => ("Name|DriverName|Age", |o, now| {
            vec![name(o), text(o, "driverName").into(), aged(o, now)]
        }),
        _ => ("Name|Created At@", |o, _| {
            vec![name(o), o["metadata"]["creationTimestamp"].clone()]
        }),
    }
}

fn modes(modes: &Value) -> Value {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |name: &str| list(modes).iter().any(|mode| mode == name);
    let shown: Vec<_> = short
        .iter()
        .filter(|(name, _)| has(name))
        .map(|(_, s)| *s)
        .collect();
    shown.join(",").into()
}

fn phase(o: &Value) -> Value {
    if is_deleted(o) {
        "Terminating"
    } else {
        text(&o["status"], "phase")
    }
    .into()
}

fn quantity(value: &Value) -> Value {
    match value {
        Value::Null => "0".into(),
        Value::String(text) => text.as_str().into(),
        number => number.to_string().into(),
    }
}

fn class_of(o: &Value) -> Value {
    let old = &o["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    old.as_str()
        .unwrap_or_else(|| text(&o["spec"], "storageClassName"))
        .into()
}

fn claim(o: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let bound = !text(spec, "volumeName").is_empty();
    vec![
        name(o),
        phase(o),
        text(spec, "volumeName").into(),
        if bound {
            quantity(&status["capacity"]["storage"])
        } else {
            "".into()
        },
        if bound {
            modes(&status["accessModes"])
        } else {
            "".into()
        },
        class_of(o),
        text_or(spec, "volumeAttributesClassName", "<unset>").into(),
        aged(o, now),
        text_or(spec, "volumeMode", "<unset>").into(),
    ]
}

fn volume(o: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &o["spec"];
    let claim = &spec["claimRef"];
    let claim = if claim.is_null() {
        String::new()
    } else {
        format!("{}/{}", text(claim, "namespace"), text(claim, "name"))
    };
    vec![
        name(o),
        quantity(&spec["capacity"]["storage"]),
        modes(&spec["accessModes"]),
        text(spec, "persistentVolumeReclaimPolicy").into(),
        phase(o),
        claim.into(),
        class_of(o),
        text_or(spec, "volumeAttributesClassName", "<unset>").into(),
        text(&o["status"], "reason").into(),
        aged(o, now),
        text_or(spec, "volumeMode", "<unset>").into(),
    ]
}

fn class(o: &Value, now: Timestamp) -> Vec<Value> {
    let annotations = &o["metadata"]["annotations"];
    let default = [DEFAULT, "storageclass.beta.kubernetes.io/is-default-class"]
        .iter()
        .any(|key| annotations[*key] == "true");
    let plain = text(&o["metadata"], "name");
    let shown = if default {
        format!("{plain} (default)")
    } else {
        plain.to_owned()
    };
    vec![
        shown.into(),
        text(o, "provisioner").into(),
        text_or(o, "reclaimPolicy", "Delete").into(),
        text_or(o, "volumeBindingMode", "Immediate").into(),
        (o["allowVolumeExpansion"] == true).into(),
        aged(o, now),
    ]
}

fn driver(o: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &o["spec"];
    let flag = |name: &str| Value::from(spec[name] == true);
    let joined = |items: Vec<&str>| items.join(",");
    let tokens = match &spec["tokenRequests"] {
        Value::Null => "<unset>".into(),
        requests => joined(list(requests).iter().map(|r| text(r, "audience")).collect()),
    };
    let modes = joined(
        list(&spec["volumeLifecycleModes"])
            .iter()
            .filter_map(Value::as_str)
            .collect(),
    );
    vec![
        name(o),
        (spec["attachRequired"] != false).into(),
        flag("podInfoOnMount"),
        flag("storageCapacity"),
        tokens.into(),
        flag("requiresRepublish"),
        if modes.is_empty() {
            "<none>".into()
        } else {
            modes.into()
        },
        aged(o, now),
    ]
}
