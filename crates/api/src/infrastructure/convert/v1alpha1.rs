//! `v1alpha1`: one default interface and a list of others, flags instead of conditions.

use serde_json::{Map, Value, json};

use super::v1alpha2::{
    keep, keep_of_locations, machine_sizes_down, machine_up as renamed_up, plain_hints,
    plain_settings,
};
use super::{Version, rename};

pub(super) const VERSION: Version = Version {
    cluster_up: |_| {},
    cluster_down,
    machine_up,
    machine_down,
    cluster_status_up,
    cluster_status_down,
    machine_status_up,
    machine_status_down,
};

const CLUSTER_FIELDS: [&str; 10] = [
    "allowedNodes",
    "cloneSpec",
    "controlPlaneEndpoint",
    "credentialsRef",
    "dnsServers",
    "externalManagedControlPlane",
    "ipv4Config",
    "ipv6Config",
    "schedulerHints",
    "settings",
];
const CLUSTER_STATUS_FIELDS: [&str; 7] = [
    "conditions",
    "failureDomains",
    "failureMessage",
    "failureReason",
    "inClusterIpPoolRef",
    "nodeLocations",
    "ready",
];
const MACHINE_FIELDS: [&str; 23] = [
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
    "target",
    "templateID",
    "templateSelector",
    "virtualMachineID",
    "vmIDRange",
];
const MACHINE_STATUS_FIELDS: [&str; 12] = [
    "addresses",
    "bootstrapDataProvided",
    "conditions",
    "failureMessage",
    "failureReason",
    "ipAddresses",
    "network",
    "proxmoxNode",
    "ready",
    "retryAfter",
    "taskRef",
    "vmStatus",
];
const DEVICE_FIELDS: [&str; 7] = [
    "bridge",
    "dnsServers",
    "ipv4PoolRef",
    "ipv6PoolRef",
    "model",
    "mtu",
    "vlan",
];
const ADDITIONAL_FIELDS: [&str; 4] = ["linkMtu", "name", "routes", "routingPolicy"];

fn cluster_down(spec: &mut Map<String, Value>) {
    keep(spec, &CLUSTER_FIELDS);
    plain_hints(spec);
    if let Some(settings) = spec.get_mut("settings") {
        *settings = plain_settings(settings);
    }
}

fn machine_up(spec: &mut Map<String, Value>) {
    renamed_up(spec);
    rename(spec, "target", "nodeName");
    if let Some(Value::Object(network)) = spec.get_mut("network") {
        network_up(network);
    }
}

/// `default` becomes `net0` with an address of either family from the cluster's pools; the others follow in order.
fn network_up(network: &mut Map<String, Value>) {
    let default = network.remove("default");
    let additional = network.remove("additionalDevices");
    let mut devices = Vec::new();
    if let Some(Value::Object(mut device)) = default {
        pools_up(&mut device);
        device.insert("name".into(), json!("net0"));
        device.insert("defaultIPv4".into(), json!(true));
        device.insert("defaultIPv6".into(), json!(true));
        devices.push(Value::Object(device));
    }
    if let Some(Value::Array(additional)) = additional {
        for mut device in additional {
            if let Some(device) = device.as_object_mut() {
                pools_up(device);
            }
            devices.push(device);
        }
    }
    network.insert("networkDevices".into(), Value::Array(devices));
}

fn pools_up(device: &mut Map<String, Value>) {
    let mut pools = Vec::new();
    for family in ["ipv4", "ipv6"] {
        if let Some(Value::Object(mut pool)) = device.remove(&format!("{family}PoolRef")) {
            pool.insert("family".into(), json!(family));
            pools.push(Value::Object(pool));
        }
    }
    if !pools.is_empty() {
        device.insert("ipPoolRef".into(), Value::Array(pools));
    }
}

fn machine_down(spec: &mut Map<String, Value>) {
    machine_sizes_down(spec);
    rename(spec, "nodeName", "target");
    if let Some(Value::Object(network)) = spec.get_mut("network") {
        network_down(network);
    }
    keep(spec, &MACHINE_FIELDS);
}

fn network_down(network: &mut Map<String, Value>) {
    let devices = network.remove("networkDevices");
    network.remove("zone");
    if let Some(Value::Array(vrfs)) = network.get_mut("vrfs") {
        vrfs.iter_mut()
            .filter_map(Value::as_object_mut)
            .for_each(routes_down);
    }
    let mut additional = Vec::new();
    for device in devices
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let Some(mut device) = device.as_object().cloned() else {
            continue;
        };
        pools_down(&mut device);
        routes_down(&mut device);
        if device.get("name").and_then(Value::as_str) == Some("net0") {
            keep(&mut device, &DEVICE_FIELDS);
            network.insert("default".into(), Value::Object(device));
        } else {
            device.retain(|name, _| {
                DEVICE_FIELDS.contains(&name.as_str()) || ADDITIONAL_FIELDS.contains(&name.as_str())
            });
            additional.push(Value::Object(device));
        }
    }
    if !additional.is_empty() {
        network.insert("additionalDevices".into(), Value::Array(additional));
    }
}

/// The first pool of each family. A pool that does not say its family shows it by its name, or by its place.
fn pools_down(device: &mut Map<String, Value>) {
    let Some(Value::Array(pools)) = device.remove("ipPoolRef") else {
        return;
    };
    for pool in pools {
        let Value::Object(mut pool) = pool else {
            continue;
        };
        let family = match pool.remove("family") {
            Some(Value::String(family)) => family,
            _ if pool["name"]
                .as_str()
                .is_some_and(|name| name.contains("inet6") || name.contains("v6")) =>
            {
                "ipv6".into()
            }
            _ if device.contains_key("ipv4PoolRef") => "ipv6".into(),
            _ => "ipv4".into(),
        };
        device
            .entry(format!("{family}PoolRef"))
            .or_insert(Value::Object(pool));
    }
}

fn routes_down(owner: &mut Map<String, Value>) {
    for list in ["routes", "routingPolicy"] {
        if let Some(Value::Array(items)) = owner.get_mut(list) {
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                item.remove("is6");
            }
        }
    }
}

fn cluster_status_up(status: &mut Map<String, Value>) {
    contract_up(status);
    rename(status, "inClusterIpPoolRef", "inClusterIPPoolRef");
    domains_up(status);
}

/// The older contract knows failure domains by their names, the newer one lists them.
fn domains_up(status: &mut Map<String, Value>) {
    if let Some(Value::Object(domains)) = status.remove("failureDomains") {
        let named = domains.into_iter().filter_map(|(name, domain)| {
            let Value::Object(mut domain) = domain else {
                return None;
            };
            domain.insert("name".into(), json!(name));
            Some(Value::Object(domain))
        });
        status.insert("failureDomains".into(), named.collect());
    }
}

fn domains_down(status: &mut Map<String, Value>) {
    if let Some(Value::Array(domains)) = status.remove("failureDomains") {
        let named = domains.into_iter().filter_map(|domain| {
            let Value::Object(mut domain) = domain else {
                return None;
            };
            let name = domain.remove("name")?.as_str()?.to_owned();
            Some((name, Value::Object(domain)))
        });
        let named: Map<_, _> = named.collect();
        status.insert("failureDomains".into(), Value::Object(named));
    }
}

fn cluster_status_down(status: &mut Map<String, Value>) {
    contract_down(status);
    rename(status, "inClusterIPPoolRef", "inClusterIpPoolRef");
    domains_down(status);
    keep(status, &CLUSTER_STATUS_FIELDS);
    keep_of_locations(status, &["machine", "node"]);
}

fn machine_status_up(status: &mut Map<String, Value>) {
    contract_up(status);
    if let Some(Value::Object(addresses)) = status.remove("ipAddresses") {
        let list = addresses.into_iter().map(|(net, address)| {
            let mut item = json!({"net": net});
            for family in ["ipv4", "ipv6"] {
                if let Some(one) = address.get(family) {
                    item[family] = json!([one]);
                }
            }
            item
        });
        status.insert("ipAddresses".into(), list.collect());
    }
}

fn machine_status_down(status: &mut Map<String, Value>) {
    contract_down(status);
    if let Some(Value::Array(list)) = status.remove("ipAddresses") {
        let map: Map<_, _> = list
            .into_iter()
            .filter_map(|item| {
                let mut address = Map::new();
                for family in ["ipv4", "ipv6"] {
                    if let Some(one) = item.pointer(&format!("/{family}/0")) {
                        address.insert(family.into(), one.clone());
                    }
                }
                Some((item["net"].as_str()?.to_owned(), Value::Object(address)))
            })
            .collect();
        status.insert("ipAddresses".into(), Value::Object(map));
    }
    keep(status, &MACHINE_STATUS_FIELDS);
}

const CONTRACT: [&str; 3] = ["conditions", "failureReason", "failureMessage"];

/// `ready` is what `initialization.provisioned` was; the rest of the old contract waits under `deprecated`.
fn contract_up(status: &mut Map<String, Value>) {
    if let Some(ready) = status.get("ready").filter(|ready| **ready == json!(true)) {
        status.insert("initialization".into(), json!({"provisioned": ready}));
    }
    let old: Map<_, _> = CONTRACT
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), status.remove(*name)?)))
        .collect();
    if !old.is_empty() {
        status.insert("deprecated".into(), json!({"v1beta1": old}));
    }
}

fn contract_down(status: &mut Map<String, Value>) {
    if let Some(provisioned) = status
        .get("initialization")
        .and_then(|i| i.get("provisioned"))
    {
        status.insert("ready".into(), provisioned.clone());
    }
    let conditions = status.remove("conditions");
    let deprecated = status.remove("deprecated");
    let old = deprecated
        .as_ref()
        .and_then(|d| d.get("v1beta1"))
        .and_then(Value::as_object);
    for name in CONTRACT {
        if let Some(value) = old.and_then(|old| old.get(name)) {
            status.insert(name.to_owned(), value.clone());
        }
    }
    // Without conditions of its own the older contract is shown the newer ones, in its form.
    if let Some(Value::Array(mut conditions)) =
        conditions.filter(|_| !status.contains_key("conditions"))
    {
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.remove("observedGeneration");
        }
        status.insert("conditions".into(), Value::Array(conditions));
    }
}
