//! `v1alpha1`, as the oldest manifests use it, with the several-instances fields its users were shown.

use crate::schema::{
    Schema, boolean, date_time, int32, int64, integer, list, map_of, object, string,
};

use super::v1alpha2::{
    self, SOME_ADDRESSES, address, disks, endpoint, local_ref, machine_source, model, mtu,
    pool_ref, priority, secret_ref, vrf_table,
};
use super::v1alpha3;

/// `ProxmoxCluster.spec`.
pub(super) fn cluster_spec() -> Schema {
    cluster_template_spec().rule(SOME_ADDRESSES.0, SOME_ADDRESSES.1)
}

/// The spec of a cluster inside a template, which may leave the addresses to patches.
pub(super) fn cluster_template_spec() -> Schema {
    object([
        (
            "controlPlaneEndpoint",
            endpoint(string().with("maxLength", 512), int32()),
        ),
        ("externalManagedControlPlane", boolean()),
        ("allowedNodes", list(string())),
        ("schedulerHints", object([("memoryAdjustment", int64())])),
        ("ipv4Config", ip_config("IPv4Config")),
        ("ipv6Config", ip_config("IPv6Config")),
        ("dnsServers", list(string()).some()),
        (
            "cloneSpec",
            object([
                ("machineSpec", map_of(machine_template_spec())),
                ("sshAuthorizedKeys", list(string())),
                ("virtualIPNetworkInterface", string()),
            ])
            .required(&["machineSpec"]),
        ),
        ("credentialsRef", secret_ref()),
    ])
    .required(&["dnsServers"])
    .field("settings", v1alpha3::settings())
}

fn ip_config(name: &str) -> Schema {
    object([
        ("addresses", list(string())),
        ("prefix", integer().with("maximum", 128)),
        ("gateway", string()),
        ("metric", int32().default(100)),
    ])
    .required(&["addresses", "metric", "prefix"])
    .rule(
        "self.addresses.size() > 0",
        &format!("{name} addresses must be provided"),
    )
}

/// `ProxmoxCluster.status`.
pub(super) fn cluster_status() -> Schema {
    let location =
        object([("machine", local_ref()), ("node", string())]).required(&["machine", "node"]);
    object([
        ("ready", boolean().default(false)),
        ("inClusterIpPoolRef", list(local_ref())),
        (
            "nodeLocations",
            object([
                ("controlPlane", list(location.clone())),
                ("workers", list(location)),
            ]),
        ),
        ("failureReason", string()),
        ("failureMessage", string()),
        ("conditions", conditions()),
        (
            "failureDomains",
            map_of(object([
                ("controlPlane", boolean()),
                ("attributes", map_of(string())),
            ]))
            .says("Instances and node groups that machines may be spread over, by name."),
        ),
    ])
}

fn conditions() -> Schema {
    list(
        object([
            ("type", string().length(1, 256)),
            ("status", string()),
            ("severity", string().with("maxLength", 32)),
            ("lastTransitionTime", date_time()),
            ("reason", string().length(1, 256)),
            ("message", string().length(1, 10240)),
        ])
        .required(&["lastTransitionTime", "status", "type"]),
    )
}

/// `ProxmoxMachine.spec`.
pub(super) fn machine_spec() -> Schema {
    machine_template_spec()
        .rule(
            "[has(self.sourceNode), has(self.templateSelector)].exists_one(c, c)",
            "must define either SourceNode with TemplateID, OR TemplateSelector",
        )
        .rule(
            "[has(self.templateID), has(self.templateSelector)].exists_one(c, c)",
            "must define either SourceNode with TemplateID, OR TemplateSelector.",
        )
}

/// The spec of a machine inside a template, which may leave the source to patches.
pub(super) fn machine_template_spec() -> Schema {
    machine_source()
        .field("providerID", string())
        .field("memoryMiB", int32().with("multipleOf", 8))
        .field("target", string().says("Node to place the machine on."))
        .field("allowedNodes", list(string()))
        .field("disks", disks(string()))
        .field(
            "metadataSettings",
            object([("providerIDInjection", boolean())]),
        )
        .field("network", network())
        .field("instance", v1alpha3::instance_name())
        .rule(
            "self.full || !has(self.format)",
            "Must set full=true when specifying format",
        )
        .rule(
            "self.full || !has(self.storage)",
            "Must set full=true when specifying storage",
        )
}

fn network() -> Schema {
    object([
        ("default", device().required(&["bridge"])),
        (
            "additionalDevices",
            list(additional_device()).keyed_by(&["name"]),
        ),
        ("vrfs", list(vrf()).keyed_by(&["name"])),
    ])
}

fn device() -> Schema {
    object([
        ("bridge", string().non_empty()),
        ("model", model()),
        ("mtu", mtu(integer(), " ")),
        ("vlan", integer().range(1, 4094)),
        ("ipv4PoolRef", pool_ref("ipv4PoolRef")),
        ("ipv6PoolRef", pool_ref("ipv6PoolRef")),
        ("dnsServers", list(string()).some()),
    ])
}

fn additional_device() -> Schema {
    device()
        .field(
            "name",
            string().non_empty().rule(
                "self != 'net0'",
                "additional network devices doesn't allow net0",
            ),
        )
        .field("linkMtu", mtu(integer(), " "))
        .field("routes", routes())
        .field("routingPolicy", routing_policy())
        .required(&["bridge", "name"])
        .rule(
            "self.ipv4PoolRef != null || self.ipv6PoolRef != null",
            "at least one pool reference must be set, either ipv4PoolRef or ipv6PoolRef",
        )
}

fn routes() -> Schema {
    list(object([
        ("to", string()),
        ("via", string()),
        ("metric", int32()),
        ("table", int32()),
    ]))
    .some()
}

fn routing_policy() -> Schema {
    list(object([
        ("to", string()),
        ("from", string()),
        ("table", int32()),
        ("priority", priority(int64())),
    ]))
    .some()
}

fn vrf() -> Schema {
    object([
        ("name", string().with("minLength", 3)),
        ("table", vrf_table(int64())),
        ("interfaces", list(string())),
        ("routes", routes()),
        ("routingPolicy", routing_policy()),
    ])
    .required(&["name", "table"])
}

/// `ProxmoxMachine.status`.
pub(super) fn machine_status() -> Schema {
    v1alpha2::machine_status()
        .without("initialization")
        .field("ready", boolean())
        .field("conditions", conditions())
        .field("addresses", list(address()))
        .field(
            "ipAddresses",
            map_of(object([("ipv4", string()), ("ipv6", string())])),
        )
        .field(
            "network",
            list(
                object([
                    ("connected", boolean()),
                    ("ipAddrs", list(string())),
                    ("macAddr", string()),
                    ("networkName", string()),
                ])
                .required(&["macAddr"]),
            ),
        )
        .field("failureReason", string())
        .field("failureMessage", string())
}
