//! `infra.virtrigaud.io/v1beta1`: virtual machines and what they are made of.
//!
//! A [`VirtualMachine`] names a [`Provider`] (one Proxmox VE cluster and its credentials), a [`VMClass`]
//! (how big), a [`VMImage`] (what it boots) and optionally a [`VMPlacementPolicy`] (where). Everything
//! else is an action on machines written down as an object, so that it can be seen, waited for and
//! taken back: [`VMSnapshot`], [`VMSnapshotSchedule`], [`VMClone`], [`VMMigration`], [`VMBackup`],
//! [`VMRestore`], [`VMSet`]; [`Container`] is the LXC counterpart of a machine, and a [`VMConsole`] opens a console once.
//!
//! Two rules hold for every kind. Status is output: `conditions` always has `Ready`, with a reason that
//! does not change between versions. And a field that is accepted has an effect.

#![expect(
    unreachable_pub,
    reason = "KubeSchema derives a private copy of each struct inside a function, keeping its `pub`"
)]
#![expect(
    clippy::duplicated_attributes,
    reason = "clippy takes the arguments of different printer columns for one list"
)]

mod backup;
mod class;
mod clone;
mod common;
mod console;
mod container;
mod disk;
mod hardware;
mod image;
mod machine;
mod migration;
mod network;
mod placement;
mod power;
mod provider;
mod quantity;
mod record;
mod set;
mod snapshot;
mod user_data;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

pub use backup::{
    BackupCompression, BackupMode, VMBackup, VMBackupSpec, VMBackupStatus, VMRestore,
    VMRestoreSpec, VMRestoreStatus,
};
pub use class::{Provisioning, StorageDefaults, VMClass, VMClassSpec, VMClassStatus};
pub use clone::{CloneTarget, VMClone, VMCloneSpec, VMCloneStatus};
pub use common::{
    ConditionList, GuestKind, GuestRef, KeySelector, LocalRef, NamespacedRef, Phase, condition,
};
pub use console::{VMConsole, VMConsoleSpec};
pub use container::{
    Container, ContainerNetwork, ContainerSpec, ContainerStatus, MountPoint, RootFs,
};
pub use disk::{AsyncIo, Disk, DiskBus, DiskCache, DiskFormat, DiskLimits};
pub use hardware::{
    Agent, Bios, Cpu, Efi, Hardware, HugePages, Memory, NumaNode, PciDevice, Rng, SerialPort, Tpm,
    TpmVersion, UsbDevice, Vga,
};
pub use image::{
    Checksum, ChecksumAlgorithm, ImageReplica, ImageSource, VMImage, VMImageSpec, VMImageStatus,
};
pub use machine::{
    Adoption, CloneFrom, DeletionPolicy, Firewall, FirewallRule, HighAvailability, LARGER_DISKS,
    LossPolicy, ManagementPolicy, Readiness, RestoreFrom, RevertTo, RevertWish, Startup,
    UpdatePolicy, VirtualMachine, VirtualMachineSpec, VirtualMachineStatus,
};
pub use migration::{MIGRATION_FAILED, VMMigration, VMMigrationSpec, VMMigrationStatus};
pub use network::{
    Network, NetworkMapping, NetworkStatus, NicModel, Route, StaticIp, default_bridge,
};
pub use placement::{
    AntiAffinityTerm, PlacementConstraints, SelectorOperator, VMPlacementPolicy,
    VMPlacementPolicySpec, VMPlacementPolicyStatus,
};
pub use power::PowerState;
pub use provider::{
    EnvVar, EnvVarSource, NodeInfo, Provider, ProviderDefaults, ProviderSpec, ProviderStatus,
    ProviderType, Runtime, RuntimeMode, VmidRange,
};
pub use quantity::{Bytes, QuantityError};
pub use record::{FleetRecord, StepView};
pub use set::{
    RollingUpdate, SetUpdateStrategy, SetUpdateType, VMSet, VMSetSpec, VMSetStatus,
    VMTemplateMetadata, VMTemplateSpec,
};
pub use snapshot::{
    Retention, VMSnapshot, VMSnapshotSchedule, VMSnapshotScheduleSpec, VMSnapshotScheduleStatus,
    VMSnapshotSpec, VMSnapshotStatus,
};
pub use user_data::{CloudInit, DataSource, DeliveryMode, GuestPayload, UserData};

/// The API group all kinds of this module belong to.
pub const GROUP: &str = "infra.virtrigaud.io";
/// The one version served and stored.
pub const VERSION: &str = "v1beta1";

/// The definitions of this group.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        Container::crd(),
        Provider::crd(),
        VirtualMachine::crd(),
        VMBackup::crd(),
        VMClass::crd(),
        VMClone::crd(),
        VMConsole::crd(),
        VMImage::crd(),
        VMMigration::crd(),
        VMPlacementPolicy::crd(),
        VMRestore::crd(),
        VMSet::crd(),
        VMSnapshot::crd(),
        VMSnapshotSchedule::crd(),
    ]
}
