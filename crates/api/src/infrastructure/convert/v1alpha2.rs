//! `v1alpha2` and `v1alpha3`: other names for the plain fields, otherwise parts of the hub.

use serde_json::{Map, Value, json};

use super::{Version, rename};

/// Names of machine fields, here and in the hub.
pub(super) const MACHINE_NAMES: [(&str, &str); 4] = [
    ("numCores", "cores"),
    ("numSockets", "sockets"),
    ("memoryMiB", "memory"),
    ("templateID", "template"),
];

pub(super) const VERSION: Version = Version {
    cluster_up: nothing,
    cluster_down: |spec| {
        keep(spec, &CLUSTER_FIELDS);
        plain_hints(spec);
    },
    machine_up,
    machine_down: |spec| {
        machine_down(spec);
        spec.remove("instance");
    },
    cluster_status_up: nothing,
    cluster_status_down: |status| keep_status(status, &CLUSTER_STATUS_FIELDS),
    machine_status_up: nothing,
    machine_status_down: |status| keep(status, &MACHINE_STATUS_FIELDS),
};

/// `v1alpha3` can also say `settings`, `instance` and `status.instances`.
pub(super) const V1ALPHA3: Version = Version {
    cluster_down: |spec| {
        let settings = spec.get("settings").map(plain_settings);
        keep(spec, &CLUSTER_FIELDS);
        plain_hints(spec);
        spec.extend(settings.map(|settings| ("settings".to_owned(), settings)));
    },
    machine_down,
    cluster_status_down: |status| {
        let instances = status.get("instances").cloned();
        keep_status(status, &CLUSTER_STATUS_FIELDS);
        status.extend(instances.map(|instances| ("instances".to_owned(), instances)));
    },
    ..VERSION
};

const CLUSTER_FIELDS: [&str; 9] = [
    "allowedNodes",
    "controlPlaneEndpoint",
    "credentialsRef",
    "dnsServers",
    "externalManagedControlPlane",
    "ipv4Config",
    "ipv6Config",
    "schedulerHints",
    "zoneConfig",
];
const CLUSTER_STATUS_FIELDS: [&str; 5] = [
    "conditions",
    "inClusterIPPoolRef",
    "inClusterZoneRef",
    "initialization",
    "nodeLocations",
];
const MACHINE_FIELDS: [&str; 22] = [
    "allowedNodes",
    "checks",
    "description",
    "disks",
    "format",
    "full",
    "instance",
    "memoryMiB",
    "metadataSettings",
    "network",
    "numCores",
    "numSockets",
    "pool",
    "providerID",
    "snapName",
    "sourceNode",
    "storage",
    "tags",
    "templateID",
    "templateSelector",
    "virtualMachineID",
    "vmIDRange",
];
const MACHINE_STATUS_FIELDS: [&str; 10] = [
    "addresses",
    "bootstrapDataProvided",
    "conditions",
    "initialization",
    "ipAddresses",
    "network",
    "proxmoxNode",
    "retryAfter",
    "taskRef",
    "vmStatus",
];
const DEVICE_FIELDS: [&str; 13] = [
    "bridge",
    "defaultIPv4",
    "defaultIPv6",
    "dnsServers",
    "ipPoolRef",
    "linkMtu",
    "model",
    "mtu",
    "name",
    "queues",
    "routes",
    "routingPolicy",
    "vlan",
];

fn nothing(_: &mut Map<String, Value>) {}

/// Drops every field that is not in `known`.
pub(super) fn keep(object: &mut Map<String, Value>, known: &[&str]) {
    object.retain(|name, _| known.contains(&name.as_str()));
}

fn keep_status(status: &mut Map<String, Value>, known: &[&str]) {
    keep(status, known);
    keep_of_locations(status, &["machine", "node", "zone"]);
}

/// Drops every field of a machine's location that is not in `known`.
pub(super) fn keep_of_locations(status: &mut Map<String, Value>, known: &[&str]) {
    if let Some(Value::Object(locations)) = status.get_mut("nodeLocations") {
        for location in locations
            .values_mut()
            .filter_map(Value::as_array_mut)
            .flatten()
        {
            if let Some(location) = location.as_object_mut() {
                keep(location, known);
            }
        }
    }
}

/// An older version has one knob for placement, the memory's.
pub(super) fn plain_hints(spec: &mut Map<String, Value>) {
    if let Some(Value::Object(hints)) = spec.get_mut("schedulerHints") {
        hints.remove("cpuAdjustment");
    }
}

/// The settings without what only the hub knows of an instance.
pub(super) fn plain_settings(settings: &Value) -> Value {
    let mut settings = settings.clone();
    if let Some(Value::Array(instances)) = settings.get_mut("instances") {
        for instance in instances.iter_mut().filter_map(Value::as_object_mut) {
            keep(instance, &["name", "nodes", "template", "credentialsRef"]);
        }
    }
    settings
}

pub(super) fn machine_up(spec: &mut Map<String, Value>) {
    for (old, hub) in MACHINE_NAMES {
        rename(spec, old, hub);
    }
}

pub(super) fn machine_down(spec: &mut Map<String, Value>) {
    machine_sizes_down(spec);
    if !spec.contains_key("network") {
        let net0 = json!({"name": "net0", "bridge": "vmbr0", "model": "virtio", "defaultIPv4": true, "defaultIPv6": true});
        spec.insert("network".to_owned(), json!({"networkDevices": [net0]}));
    }
    if let Some(Value::Array(devices)) = spec
        .get_mut("network")
        .and_then(|n| n.get_mut("networkDevices"))
    {
        for device in devices.iter_mut().filter_map(Value::as_object_mut) {
            keep(device, &DEVICE_FIELDS);
            plain_pools(device);
        }
    }
    keep(spec, &MACHINE_FIELDS);
}

fn plain_pools(device: &mut Map<String, Value>) {
    if let Some(Value::Array(pools)) = device.get_mut("ipPoolRef") {
        for pool in pools.iter_mut().filter_map(Value::as_object_mut) {
            pool.remove("family");
        }
    }
}

/// Sizes and the template under their older names, where the older types can hold them.
pub(super) fn machine_sizes_down(spec: &mut Map<String, Value>) {
    for (old, hub) in MACHINE_NAMES {
        // A name or an amount with a unit has no place in the older integer.
        if let Some(value) = spec.remove(hub).filter(Value::is_number) {
            spec.insert(old.to_owned(), value);
        }
    }
    if let Some(Value::Object(disks)) = spec.get_mut("disks") {
        disks.remove("additional");
    }
}
