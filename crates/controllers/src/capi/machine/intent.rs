//! A machine as the engine's intent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::cluster_api::CONTROL_PLANE_LABEL;
use api::infrastructure::v1beta1::{Device, ProxmoxMachine};
use api::vm::Bytes;
use fleet::intent::{
    Addressing, AntiAffinity, Disk, DiskRole, Init, Nic, NicModel, Options, Payload, Placement,
    Policy, Proof, Readiness, Source, VmidRange,
};
use fleet::{GuestIntent, GuestRecord, NodeName, Size, StorageId, Vmid};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use serde_json::json;

use super::super::address::Given;
use super::super::cluster::Used;
use super::super::netplan::Outside;
use super::super::{Wait, ignition};
use super::bootstrap::{Bootstrap, Format, hostname, waits_for_agent};
use super::{Subject, network, source};
use crate::context::owner;
use crate::vm::translate;

/// A limit so far away that it limits nothing.
const NO_LIMIT: u32 = 1_000_000;

fn invalid(field: &str, problem: impl std::fmt::Display) -> Wait {
    Wait::new("InvalidSpec", format!("{field}: {problem}"))
}

/// The intent of a machine, as far as it can be said: its network is described once its hardware addresses are chosen.
pub(super) fn intent(
    subject: &Subject<'_>,
    used: &Used,
    record: &GuestRecord,
    given: &[Given],
    bootstrap: &Bootstrap,
) -> Result<GuestIntent, Wait> {
    let object = subject.object;
    let spec = &object.spec;
    let key = owner(object).ok_or_else(|| invalid("metadata", "the object has no UID"))?;
    let adopt = adopted(subject, record)?;
    let source = match adopt {
        Some(_) => Source::Empty,
        None => source::source(spec, subject.instance, &used.facts)?,
    };
    let mut intent = GuestIntent::new(key, subject.place.clone(), object.name_any(), source);
    intent.adopt = adopt;
    intent.proof = adopt.map(|_| proof(object));
    intent.hardware = translate::hardware_of(
        &spec.hardware.clone().unwrap_or_default(),
        None,
        memory(spec.memory.as_ref())?,
        adopt.is_some(),
    )
    .map_err(|error| invalid(&error.field, &error.problem))?;
    intent.hardware.cpu.cores = spec.cores.and_then(|cores| u32::try_from(cores).ok());
    intent.hardware.cpu.sockets = spec.sockets.and_then(|sockets| u32::try_from(sockets).ok());
    intent.disks = disks(subject, adopt.is_some())?;
    let devices = network::devices(subject);
    intent.nics = devices.iter().map(nic).collect::<Result<_, _>>()?;
    intent.options = options(subject, given);
    intent.placement = placement(subject)?;
    intent.vmids = vmids(subject)?;
    intent.policy = Policy {
        readiness: if waits_for_agent(object, bootstrap.format) {
            Readiness::Addresses
        } else {
            Readiness::Running
        },
        ..Policy::default()
    };
    if adopt.is_none() {
        intent.init = Some(init(subject, record, given, bootstrap)?);
    }
    Ok(intent)
}

/// The guest of a machine that was made elsewhere: it is named in the spec, and nothing is recorded about it.
///
/// Status does not travel. An object that was moved to another API server, restored from a backup or made by another provider
/// says who its guest is in the spec alone; making another guest for it would be a second one.
pub(super) fn adopted(subject: &Subject<'_>, record: &GuestRecord) -> Result<Option<Vmid>, Wait> {
    let recorded = record.identity.as_ref();
    if let Some(identity) = recorded {
        return Ok(identity.adopted.then_some(identity.vmid));
    }
    let spec = &subject.object.spec;
    let Some(id) = spec.virtual_machine_id else {
        return Ok(None);
    };
    // A record without an identity is of a choice that was given up: the spec still shows that one.
    if *record != GuestRecord::default() {
        return Ok(None);
    }
    let status = subject.object.status.as_ref();
    let provisioned = status.and_then(|status| status.initialization.as_ref()?.provisioned);
    if spec.provider_id.is_none() && provisioned != Some(true) {
        return Err(Wait::new(
            "TakeOverIncomplete",
            format!(
                "guest {id} was begun and not finished by another provider; delete the Machine to have it made anew"
            ),
        ));
    }
    u32::try_from(id)
        .ok()
        .and_then(|id| Vmid::new(id).ok())
        .map(Some)
        .ok_or_else(|| invalid("spec.virtualMachineID", format!("{id} is not a VMID")))
}

/// How a guest that only the spec names proves to be this machine's.
pub(super) fn proof(object: &ProxmoxMachine) -> Proof {
    let uuid = object.spec.provider_id.as_deref();
    let key = owner(object).map(|key| key.as_str().to_owned());
    // All of the key but the UID, which changes with every API server.
    let former = key.as_deref().and_then(|key| key.rsplit_once('/'));
    Proof {
        uuid: uuid.and_then(|id| id.strip_prefix("proxmox://")?.parse().ok()),
        former: match former {
            Some((place, _)) if !place.ends_with('/') => format!("{place}/"),
            _ => key.unwrap_or_default(),
        },
    }
}

/// MiB, or an amount with a unit.
pub(in crate::capi) fn memory(written: Option<&IntOrString>) -> Result<Option<Bytes>, Wait> {
    amount("spec.memory", written, 1 << 20)
}

/// GiB, or an amount with a unit.
pub(in crate::capi) fn gibibytes(written: Option<&IntOrString>) -> Result<Option<Bytes>, Wait> {
    amount("spec.diskSize", written, 1 << 30)
}

fn amount(field: &str, written: Option<&IntOrString>, unit: u64) -> Result<Option<Bytes>, Wait> {
    match written {
        None => Ok(None),
        Some(IntOrString::Int(number)) => u64::try_from(*number)
            .map(|number| Some(Bytes(number * unit)))
            .map_err(|_| invalid(field, "must not be negative")),
        Some(IntOrString::String(text)) => match text.parse::<u64>() {
            Ok(number) => Ok(Some(Bytes(number * unit))),
            Err(_) => text
                .parse()
                .map(Some)
                .map_err(|error| invalid(field, error)),
        },
    }
}

/// The disks; those of a guest that was taken over stay where they were found.
fn disks(subject: &Subject<'_>, stays: bool) -> Result<Vec<Disk>, Wait> {
    let spec = &subject.object.spec;
    let place = spec
        .storage
        .as_deref()
        .or(subject
            .instance
            .and_then(|instance| instance.storage.as_deref()))
        .map(|name| storage("spec.storage", name))
        .transpose()?;
    let boot = spec
        .disks
        .as_ref()
        .and_then(|disks| disks.boot_volume.as_ref());
    let size = match boot {
        Some(boot) => u64::try_from(boot.size_gb).ok().map(Size::gib),
        None => gibibytes(spec.disk_size.as_ref())?.map(|bytes| Size::bytes(bytes.0)),
    };
    let mut disks = Vec::new();
    if size.is_some() || place.is_some() || spec.format.is_some() {
        disks.push(Disk {
            name: boot.map_or_else(|| "root".to_owned(), |boot| boot.disk.clone()),
            role: DiskRole::Root,
            storage: place.clone(),
            stays,
            format: spec.format.clone(),
            size,
            ..Disk::default()
        });
    }
    for disk in spec.disks.iter().flat_map(|disks| &disks.additional) {
        let own = disk.storage.as_deref().or(disk.storage_class.as_deref());
        disks.push(Disk {
            name: disk.name.clone(),
            role: DiskRole::Data,
            storage: own
                .map(|name| storage("spec.disks.additional.storage", name))
                .transpose()?
                .or_else(|| place.clone()),
            stays,
            size: Some(Size::bytes(disk.size.0)),
            ..translate::drive(disk)
        });
    }
    Ok(disks)
}

fn storage(field: &str, name: &str) -> Result<StorageId, Wait> {
    StorageId::new(name).map_err(|error| invalid(field, error))
}

fn nic(device: &Device) -> Result<Nic, Wait> {
    let number = |field: &str, value: Option<i32>| {
        value
            .map(|value| u16::try_from(value).map_err(|_| invalid(field, "is out of range")))
            .transpose()
    };
    Ok(Nic {
        name: device.name.clone(),
        bridge: device.bridge.clone().unwrap_or_else(|| "vmbr0".to_owned()),
        model: device.model.as_deref().map(|model| match model {
            "e1000" => NicModel::E1000,
            "rtl8139" => NicModel::Rtl8139,
            "vmxnet3" => NicModel::Vmxnet3,
            _ => NicModel::Virtio,
        }),
        vlan: number("networkDevices.vlan", device.vlan)?,
        mac: device
            .mac
            .as_deref()
            .map(|mac| {
                mac.parse()
                    .map_err(|error| invalid("networkDevices.mac", error))
            })
            .transpose()?,
        mtu: number("networkDevices.mtu", device.mtu)?,
        queues: device
            .queues
            .map(|queues| {
                u8::try_from(queues)
                    .map_err(|_| invalid("networkDevices.queues", "Proxmox VE allows 64 at most"))
            })
            .transpose()?,
        rate: device.rate_limit.map(f64::from),
        firewall: device.firewall,
        // The guest learns its addresses from the network data; here they would say it twice.
        addressing: Addressing::default(),
        ..Nic::default()
    })
}

fn options(subject: &Subject<'_>, given: &[Given]) -> Options {
    let spec = &subject.object.spec;
    let mut tags: Vec<String> = spec.tags.iter().map(|tag| tag.to_lowercase()).collect();
    if let Some(first) = given
        .iter()
        .find(|given| given.gateway.is_some() && given.address.addr().is_ipv4())
    {
        tags.push(format!("ip_{}_{}", first.device, first.address.addr()));
    }
    if is_control_plane(subject) {
        tags.push(control_plane_tag(subject));
    }
    tags.sort();
    tags.dedup();
    let pool = spec
        .pool
        .clone()
        .or(subject.instance.and_then(|instance| instance.pool.clone()));
    Options {
        description: spec.description.clone(),
        tags: (!tags.is_empty()).then_some(tags),
        // Those of its template come along with the clone, and people mark guests for their own ends.
        keep_tags: true,
        pool,
        ha: spec.high_availability.as_ref().and_then(translate::ha),
        firewall: spec.firewall.as_ref().map(translate::firewall),
        ..Options::default()
    }
}

fn is_control_plane(subject: &Subject<'_>) -> bool {
    subject.object.labels().contains_key(CONTROL_PLANE_LABEL)
}

/// Marks the control plane of a cluster, whose machines keep away from each other where they can.
fn control_plane_tag(subject: &Subject<'_>) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "_-+.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name = subject.cluster.name_any().to_lowercase();
    format!(
        "control-plane_{}",
        name.chars().map(plain).collect::<String>()
    )
}

fn placement(subject: &Subject<'_>) -> Result<Placement, Wait> {
    let spec = &subject.object.spec;
    let cluster = &subject.infrastructure.spec;
    let nodes: Vec<String> = match (
        &spec.node_name,
        subject.group(),
        &spec.allowed_nodes,
        subject.instance,
    ) {
        (Some(node), ..) => vec![node.clone()],
        (None, Some(group), ..) => group.nodes.clone(),
        (None, None, Some(own), _) if !own.is_empty() => own.clone(),
        (None, None, _, Some(instance)) => instance.nodes.clone(),
        (None, None, _, None) => cluster.allowed_nodes.clone(),
    };
    let nodes = nodes
        .iter()
        .map(|name| NodeName::new(name.as_str()).map_err(|error| invalid("nodes", error)))
        .collect::<Result<_, _>>()?;
    let hints = cluster.scheduler_hints.clone().unwrap_or_default();
    let percent = |adjustment: Option<i64>| match adjustment {
        Some(0) => Some(NO_LIMIT),
        other => other.and_then(|percent| u32::try_from(percent).ok()),
    };
    let apart = is_control_plane(subject).then(|| AntiAffinity {
        tags: vec![control_plane_tag(subject)],
        preferred: true,
    });
    Ok(Placement {
        nodes,
        anti_affinity: apart.into_iter().collect(),
        memory_percent: percent(hints.memory_adjustment),
        cpu_percent: percent(hints.cpu_adjustment).filter(|percent| *percent != NO_LIMIT),
        ..Placement::default()
    })
}

fn vmids(subject: &Subject<'_>) -> Result<VmidRange, Wait> {
    let own = subject.object.spec.vm_id_range.as_ref();
    let range = own.or(subject
        .instance
        .and_then(|instance| instance.vm_id_range.as_ref()));
    let Some(range) = range else {
        return Ok(VmidRange::default());
    };
    let ends = (u32::try_from(range.start), u32::try_from(range.end));
    match ends {
        (Ok(start), Ok(end)) => VmidRange::new(start, end),
        _ => None,
    }
    .ok_or_else(|| {
        invalid(
            "spec.vmIDRange",
            "start must be at least 100 and not greater than end",
        )
    })
}

fn init(
    subject: &Subject<'_>,
    record: &GuestRecord,
    given: &[Given],
    bootstrap: &Bootstrap,
) -> Result<Init, Wait> {
    let object = subject.object;
    let name = hostname(object);
    let mut meta_data = BTreeMap::from([("hostname".to_owned(), json!(name))]);
    if let Some(version) = &subject.machine.spec.version {
        meta_data.insert("kubernetes-version".to_owned(), json!(version));
    }
    let injected = object
        .spec
        .metadata_settings
        .as_ref()
        .and_then(|s| s.provider_id_injection);
    if let (Some(true), Some(identity)) = (injected, &record.identity) {
        meta_data.insert(
            "provider-id".to_owned(),
            json!(format!("proxmox://{}", identity.uuid)),
        );
    }
    let of_instance = subject
        .instance
        .and_then(|instance| instance.iso_storage.as_deref());
    let place = object.spec.iso_storage.as_deref().or(of_instance);
    // The data holds the keys to the cluster: it is taken away once the node is in it.
    let joined = subject
        .machine
        .status
        .as_ref()
        .is_some_and(|status| status.node_ref.is_some());
    let network = |outside| network::data(subject, record, given, outside);
    Ok(Init {
        user_data: Some(match bootstrap.format {
            Format::Ignition => ignition(subject, record, given, bootstrap)?,
            Format::CloudConfig | Format::Talos => bootstrap.data.clone(),
        }),
        network_data: match bootstrap.format {
            // Its user data says it all.
            Format::Ignition => Some(Payload::from("version: 1\nconfig: []\n")),
            Format::CloudConfig => network(Outside::Network)?,
            Format::Talos => network(Outside::Nothing)?,
        },
        meta_data,
        hostname: Some(name),
        dns: subject
            .infrastructure
            .spec
            .dns_servers
            .iter()
            .filter_map(|server| server.parse::<IpAddr>().ok())
            .collect(),
        storage: place
            .map(|name| storage("spec.isoStorage", name))
            .transpose()?,
        keep: !joined,
        forgotten: bootstrap.forgotten,
        ..Init::default()
    })
}

/// Ignition's configuration, told who the machine is as soon as that is known.
fn ignition(
    subject: &Subject<'_>,
    record: &GuestRecord,
    given: &[Given],
    bootstrap: &Bootstrap,
) -> Result<Payload, Wait> {
    let Some(identity) = &record.identity else {
        return Ok(bootstrap.data.clone());
    };
    let uuid = identity.uuid.to_string();
    let facts = ignition::Facts {
        hostname: &hostname(subject.object),
        provider_id: &format!("proxmox://{uuid}"),
        instance_id: &uuid,
        addresses: &given.iter().map(|g| g.address.addr()).collect::<Vec<_>>(),
        network: &network::units(subject, identity, given)?,
    };
    ignition::complete(bootstrap.data.expose(), &facts)
        .map(Payload::new)
        .map_err(|error| Wait::new("BootstrapDataInvalid", error.to_string()))
}
