//! `v1beta1`: the hub, the version that is stored and that the controllers read.
//!
//! It is the plain shape (`nodeName`, `template`, `cores`, `memory`, `diskSize`) plus all that the older versions can say, plus
//! what is new. Names differ from the older versions only where the plain shape has a plainer one; [`super::convert`] knows them.

#![expect(
    unreachable_pub,
    reason = "the derive for CEL rules repeats a struct inside a function, where `pub` reaches nobody"
)]

mod cluster;
mod instance;
mod machine;
mod network;

pub use cluster::{
    ClusterTemplateResource, ControlPlaneEndpoint, ControlPlaneEndpointPool, FailureDomain,
    InstanceStatus, IpConfig, MachineLocation, NodeGroup, NodeLocations, ProxmoxCluster,
    ProxmoxClusterSpec, ProxmoxClusterStatus, ProxmoxClusterTemplate, ProxmoxClusterTemplateSpec,
    SchedulerHints, ZoneConfig, ZonePools,
};
pub use instance::{Instance, InstanceNetwork, InstanceTemplate, Mode, Settings};
pub use machine::{
    BootVolume, Checks, Deprecated, DeprecatedV1Beta1, Disks, Initialization, IpAddresses,
    MachineAddress, MachineTemplateResource, MetadataSettings, NetworkStatus, NodeInfo,
    ProxmoxMachine, ProxmoxMachineSpec, ProxmoxMachineStatus, ProxmoxMachineTemplate,
    ProxmoxMachineTemplateSpec, ProxmoxMachineTemplateStatus, TemplateMetadata, TemplateSelector,
    VmIdRange,
};
pub use network::{Device, Network, PoolRef, Route, RoutingPolicy, Vrf};
