//! `v1alpha2`, as existing manifests use it.
//!
//! The parts that `v1alpha1` and `v1alpha3` share are functions here; each version says only where it differs.

use crate::schema::{Schema, boolean, date_time, int32, int64, list, object, string};

pub(super) const ZONE: &str = "^[a-z0-9A-Z](?:[a-z0-9A-Z-_.]{0,61}[a-z0-9A-Z])?$";
const NIC: &str = "^net[0-9]+$";
const TAG: &str = r"^(?i)[a-z0-9_][a-z0-9_\-\+\.]*$";
const UUID_PROVIDER_ID: &str =
    "^proxmox://[a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{12}$";
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const IMMUTABLE: (&str, &str) = ("self == oldSelf", "Value is immutable");
pub(super) const SOME_ADDRESSES: (&str, &str) = (
    "self.ipv4Config != null || self.ipv6Config != null",
    "at least one ip config must be set, either ipv4Config or ipv6Config",
);
const ONE_SOURCE: &str = "must define either a SourceNode with a TemplateID or a TemplateSelector";

/// `ProxmoxCluster.spec`.
pub(super) fn cluster_spec() -> Schema {
    cluster_template_spec().rule(SOME_ADDRESSES.0, SOME_ADDRESSES.1)
}

/// The spec of a cluster inside a template, which may leave the addresses to patches.
pub(super) fn cluster_template_spec() -> Schema {
    object([
        (
            "controlPlaneEndpoint",
            endpoint(string().length(1, 512), int32().range(1, 65535)).with("minProperties", 1),
        ),
        (
            "externalManagedControlPlane",
            boolean()
                .default(false)
                .says("Another provider sets controlPlaneEndpoint."),
        ),
        (
            "allowedNodes",
            strings().says("Proxmox VE nodes that machines may be placed on; all when empty."),
        ),
        (
            "schedulerHints",
            object([(
                "memoryAdjustment",
                int64()
                    .at_least(0)
                    .says("Percent of a node's memory that may be promised; 0 lifts the limit."),
            )]),
        ),
        ("ipv4Config", ip_config("IPv4Config")),
        ("ipv6Config", ip_config("IPv6Config")),
        ("dnsServers", strings().some()),
        ("zoneConfig", list(zone()).keyed_by(&["zone"])),
        ("credentialsRef", secret_ref()),
    ])
    .required(&["dnsServers"])
}

/// A host and a port.
pub(super) fn endpoint(host: Schema, port: Schema) -> Schema {
    object([("host", host), ("port", port)])
        .rule(
            "self.port > 0 && self.port < 65536",
            "port must be within 1-65535",
        )
        .says("Where the cluster's API server answers.")
}

pub(super) fn secret_ref() -> Schema {
    object([("name", string()), ("namespace", string())])
        .atomic_map()
        .says("Secret with url, token, secret and optionally insecure, root_ca.")
}

fn strings() -> Schema {
    list(string()).set()
}

fn ip_config(name: &str) -> Schema {
    object([
        (
            "addresses",
            strings().says("Addresses, ranges (a-b) or networks in CIDR notation."),
        ),
        ("prefix", int32().range(1, 128)),
        ("gateway", string().non_empty()),
        ("metric", int32().at_least(0).default(100)),
    ])
    .required(&["addresses", "gateway", "prefix"])
    .rule(
        "self.addresses.size() > 0",
        &format!("{name} addresses must be provided"),
    )
}

fn zone() -> Schema {
    object([
        ("zone", string().pattern(ZONE)),
        ("ipv4Config", ip_config("IPv4Config")),
        ("ipv6Config", ip_config("IPv6Config")),
        ("dnsServers", strings().some()),
    ])
    .required(&["dnsServers", "zone"])
}

/// `ProxmoxCluster.status`.
pub(super) fn cluster_status() -> Schema {
    let location = object([
        ("machine", local_ref()),
        ("node", string().non_empty()),
        ("zone", string().pattern(ZONE)),
    ])
    .required(&["machine", "node"]);
    object([
        ("conditions", conditions()),
        ("initialization", initialization()),
        ("inClusterIPPoolRef", list(local_ref()).atomic()),
        (
            "inClusterZoneRef",
            list(object([
                ("zone", string().pattern(ZONE).default("default")),
                ("inClusterIPPoolRefV4", local_ref()),
                ("inClusterIPPoolRefV6", local_ref()),
            ]))
            .keyed_by(&["zone"]),
        ),
        (
            "nodeLocations",
            object([
                ("controlPlane", list(location.clone()).atomic()),
                ("workers", list(location).atomic()),
            ]),
        ),
    ])
}

pub(super) fn local_ref() -> Schema {
    object([("name", string().default(""))]).atomic_map()
}

fn initialization() -> Schema {
    object([("provisioned", boolean())]).with("minProperties", 1)
}

fn conditions() -> Schema {
    list(
        object([
            (
                "type",
                string().with("maxLength", 316).pattern(CONDITION_TYPE),
            ),
            ("status", string().one_of(&["True", "False", "Unknown"])),
            ("observedGeneration", int64().at_least(0)),
            ("lastTransitionTime", date_time()),
            (
                "reason",
                string()
                    .length(1, 1024)
                    .pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
            ),
            ("message", string().with("maxLength", 32768)),
        ])
        .required(&["lastTransitionTime", "message", "reason", "status", "type"]),
    )
    .with("maxItems", 32)
    .keyed_by(&["type"])
}

/// `ProxmoxMachine.spec`.
pub(super) fn machine_spec() -> Schema {
    machine_template_spec()
        .rule(
            "[has(self.sourceNode), has(self.templateSelector)].exists_one(c, c)",
            ONE_SOURCE,
        )
        .rule(
            "[has(self.templateID), has(self.templateSelector)].exists_one(c, c)",
            ONE_SOURCE,
        )
}

/// The spec of a machine inside a template, which may leave the source to patches.
pub(super) fn machine_template_spec() -> Schema {
    machine_source()
        .field("network", network())
        .field(
            "providerID",
            string().length(46, 46).pattern(UUID_PROVIDER_ID),
        )
        .field("memoryMiB", int32().at_least(0).with("multipleOf", 8))
        .field("allowedNodes", strings())
        .field("disks", disks(string().non_empty()))
        .field(
            "metadataSettings",
            object([("providerIDInjection", boolean())]).required(&["providerIDInjection"]),
        )
        .required(&["network"])
        .rule(
            "self.full || !has(self.format)",
            "Must set full=true when specifying format",
        )
        .rule(
            "self.full || !has(self.storage)",
            "Must set full=true when specifying storage",
        )
        .rule(
            "has(self.templateSelector) || (has(self.templateID) && has(self.sourceNode))",
            "Must specify either templateID or templateSelector",
        )
}

/// What every version says alike about where a machine comes from and how large it is.
pub(super) fn machine_source() -> Schema {
    let vmid = || int64().range(100, 999_999_999);
    object([
        (
            "sourceNode",
            string().non_empty().says("Node that holds the template."),
        ),
        ("templateID", int32().says("VMID of the template.")),
        ("templateSelector", template_selector()),
        ("description", string()),
        ("format", string().one_of(&["raw", "qcow2", "vmdk"])),
        (
            "full",
            boolean()
                .default(true)
                .says("Full clone; false makes a linked clone."),
        ),
        ("pool", string().says("Resource pool of the new guest.")),
        ("snapName", string().says("Snapshot to clone from.")),
        ("storage", string().says("Storage of a full clone's disks.")),
        ("virtualMachineID", int64()),
        ("numSockets", int32().at_least(1)),
        ("numCores", int32().at_least(1)),
        (
            "vmIDRange",
            object([("start", vmid()), ("end", vmid())])
                .required(&["end", "start"])
                .rule(
                    "self.end >= self.start",
                    "end should be greater than or equal to start",
                ),
        ),
        (
            "checks",
            object([
                ("skipCloudInitStatus", boolean()),
                ("skipQemuGuestAgent", boolean()),
            ]),
        ),
        ("tags", list(string().pattern(TAG)).some().set()),
    ])
}

pub(super) fn template_selector() -> Schema {
    object([
        ("matchTags", list(string().pattern(TAG)).some().set()),
        (
            "matchPolicy",
            string()
                .one_of(&["exact", "uniqueSubset", "bestSubset"])
                .default("exact"),
        ),
    ])
    .required(&["matchTags"])
}

pub(super) fn disks(device: Schema) -> Schema {
    object([(
        "bootVolume",
        object([("disk", device), ("sizeGb", int32().at_least(5))])
            .required(&["disk", "sizeGb"])
            .rule(IMMUTABLE.0, IMMUTABLE.1),
    )])
}

fn network() -> Schema {
    object([
        ("zone", string().pattern(ZONE)),
        ("networkDevices", list(device()).keyed_by(&["name"])),
        ("vrfs", list(vrf()).keyed_by(&["name"])),
    ])
    .required(&["networkDevices"])
}

fn device() -> Schema {
    object([
        (
            "name",
            string().with("minLength", 4).pattern(NIC).default("net0"),
        ),
        ("bridge", string().non_empty()),
        ("model", model()),
        ("mtu", mtu(int32(), "")),
        ("vlan", int32().range(1, 4094)),
        ("queues", int32().range(1, 65535)),
        (
            "defaultIPv4",
            boolean().says("Take an address from the zone's IPv4 pool."),
        ),
        (
            "defaultIPv6",
            boolean().says("Take an address from the zone's IPv6 pool."),
        ),
        ("ipPoolRef", list(pool_ref("ipPoolRef")).atomic()),
        ("dnsServers", strings().some()),
        ("linkMtu", mtu(int32(), "")),
        ("routes", routes()),
        ("routingPolicy", routing_policy()),
    ])
}

pub(super) fn model() -> Schema {
    string()
        .one_of(&["e1000", "virtio", "rtl8139", "vmxnet3"])
        .default("virtio")
}

/// An MTU; `pad` is the blank by which the versions' rules differ.
pub(super) fn mtu(number: Schema, pad: &str) -> Schema {
    number.rule(
        &format!("self == 1 || ({pad}self >= 576 && self <= 65520)"),
        "invalid MTU value",
    )
}

pub(super) fn pool_ref(name: &str) -> Schema {
    object([
        ("apiGroup", string()),
        ("kind", string()),
        ("name", string()),
    ])
    .required(&["kind", "name"])
    .atomic_map()
    .rule(
        "self.apiGroup == 'ipam.cluster.x-k8s.io'",
        &format!("{name} allows only IPAM apiGroup ipam.cluster.x-k8s.io"),
    )
    .rule(
        "self.kind == 'InClusterIPPool' || self.kind == 'GlobalInClusterIPPool'",
        &format!("{name} allows either InClusterIPPool or GlobalInClusterIPPool"),
    )
}

fn routes() -> Schema {
    list(object([
        ("to", string()),
        ("via", string()),
        ("metric", int32().at_least(0)),
        ("table", int32()),
        ("is6", boolean()),
    ]))
    .some()
    .atomic()
}

fn routing_policy() -> Schema {
    list(object([
        ("to", string()),
        ("from", string()),
        ("table", int32()),
        ("priority", priority(int64())),
        ("is6", boolean()),
    ]))
    .some()
    .atomic()
}

pub(super) fn priority(number: Schema) -> Schema {
    number.with("maximum", 4_294_967_295_i64).rule(
        "(self > 0 && self < 32765) || (self > 32766)",
        "Cowardly refusing to insert FIB rule matching kernel rules",
    )
}

/// A table's number. 64 bits wide, unlike in CAPMOX: its limit does not fit into 32, and an API server refuses every value then.
pub(super) fn vrf_table(number: Schema) -> Schema {
    number.with("maximum", 4_294_967_295_i64).rule(
        "(self > 0 && self < 254) || (self > 255)",
        "Cowardly refusing to insert l3mdev rules into kernel tables",
    )
}

fn vrf() -> Schema {
    object([
        ("name", string().with("minLength", 3)),
        ("table", vrf_table(int64().at_least(1))),
        (
            "interfaces",
            list(string().with("minLength", 4).pattern(NIC)).atomic(),
        ),
        ("routes", routes()),
        ("routingPolicy", routing_policy()),
    ])
    .required(&["name", "table"])
}

/// `ProxmoxMachine.status`.
pub(super) fn machine_status() -> Schema {
    object([
        ("conditions", conditions()),
        ("initialization", initialization()),
        ("addresses", list(address()).atomic()),
        ("vmStatus", string()),
        ("bootstrapDataProvided", boolean()),
        (
            "ipAddresses",
            list(
                object([
                    (
                        "net",
                        string()
                            .with("minLength", 4)
                            .pattern("^(net[0-9]+|default)$"),
                    ),
                    ("ipv4", strings()),
                    ("ipv6", strings()),
                ])
                .required(&["net"]),
            )
            .keyed_by(&["net"]),
        ),
        (
            "network",
            list(
                object([
                    ("connected", boolean()),
                    ("ipAddrs", strings()),
                    (
                        "macAddr",
                        string()
                            .length(17, 17)
                            .pattern("^([0-9A-Fa-f]{2}[:]){5}([0-9A-Fa-f]{2})$"),
                    ),
                    ("networkName", string().with("minLength", 4).pattern(NIC)),
                ])
                .required(&["connected", "macAddr"]),
            )
            .atomic(),
        ),
        ("proxmoxNode", string()),
        ("taskRef", string()),
        ("retryAfter", date_time()),
    ])
}

pub(super) fn address() -> Schema {
    object([
        (
            "type",
            string().one_of(&[
                "Hostname",
                "ExternalIP",
                "InternalIP",
                "ExternalDNS",
                "InternalDNS",
            ]),
        ),
        ("address", string().length(1, 256)),
    ])
    .required(&["address", "type"])
}
