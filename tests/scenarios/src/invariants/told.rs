//! What objects say of themselves is so.

use api::infrastructure::v1beta1::ProxmoxMachine;
use api::vm::{
    Bytes, Container, LARGER_DISKS, ManagementPolicy, Phase, PowerState, VMClass, VMSnapshot,
    VirtualMachine, condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use crate::Guest;

/// Whether a machine says that its guest exists.
pub(crate) fn is_provisioned(machine: &VirtualMachine) -> bool {
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    let mut provisioned = conditions.filter(|condition| condition.type_ == "Provisioned");
    provisioned.any(|condition| condition.status == "True")
}

/// What a machine says of itself is so.
pub(super) fn machine(
    machine: &VirtualMachine,
    classes: &[VMClass],
    made: &[&Guest],
) -> Vec<String> {
    let status = machine.status.clone().unwrap_or_default();
    let name = machine.name_any();
    let mut wrong = Vec::new();
    let Some(guest) = made
        .iter()
        .find(|guest| Some(guest.vmid) == status.vmid && guest.name == name)
    else {
        if is_provisioned(machine) && machine.metadata.deletion_timestamp.is_none() {
            let vmid = status.vmid;
            wrong.push(format!(
                "{name} says it is guest {vmid:?}, which is not there"
            ));
        }
        return wrong;
    };
    if status.node.as_ref() != Some(&guest.node) {
        let says = status.node;
        wrong.push(format!(
            "{name} says it is on {says:?}, but is on {}",
            guest.node
        ));
    }
    let on = matches!(status.power_state.as_deref(), Some("On" | "Paused"));
    if on != guest.running {
        let says = status.power_state;
        wrong.push(format!("{name} says {says:?}, but runs: {}", guest.running));
    }
    if status.cluster.as_deref().map(cluster_number) != Some(guest.cluster) {
        let (says, is) = (status.cluster, guest.cluster);
        wrong.push(format!(
            "{name} says it is on {says:?}, but is on the {is}."
        ));
    }
    let (uuid, smbios) = (status.uuid.unwrap_or_default(), guest.key("smbios1"));
    if uuid.is_empty() || !smbios.contains(&uuid) {
        wrong.push(format!(
            "{name} says it is {uuid:?}, but its guest is {smbios}"
        ));
    }
    if !is_ready(&status.conditions) {
        return wrong;
    }
    let kept = machine.spec.management_policy != ManagementPolicy::Observe;
    let class = machine.spec.class_ref.as_ref().filter(|_| kept);
    let class = class.and_then(|named| classes.iter().find(|it| it.name_any() == named.name));
    if let Some(class) = class {
        let cpus = machine.spec.cpus.unwrap_or(class.spec.cpus);
        let memory = machine.spec.memory.unwrap_or(class.spec.memory);
        wrong.extend(sized(&name, guest, Some(cpus), Some(memory)));
    }
    let wants = machine.spec.power_state.unwrap_or_default();
    let is = match (guest.running, guest.paused) {
        (false, _) => None,
        (true, false) => Some(PowerState::On),
        (true, true) => Some(PowerState::Paused),
    };
    let runs = [PowerState::On, PowerState::Paused].contains(&wants);
    if is != runs.then_some(wants) {
        wrong.push(format!(
            "{name} is Ready and wants {wants:?}, but is {is:?}"
        ));
    }
    if !machine.spec.tags.is_empty() && guest.key("tags") != machine.spec.tags.join(";") {
        let (want, has) = (&machine.spec.tags, guest.key("tags"));
        wrong.push(format!(
            "{name} is Ready and wants tags {want:?}, but has {has:?}"
        ));
    }
    wrong.extend(equipped(machine, guest));
    if let Some(disk) = machine.spec.disks.first() {
        let wanted = disk.size.as_gib();
        // A source that grew before it was copied makes a larger copy, which the machine must say.
        let larger_is_well = condition(&status.conditions, LARGER_DISKS).is_some();
        let fits = |size: u64| size == wanted || (larger_is_well && size > wanted);
        if !guest.config.values().filter_map(|v| gibibytes(v)).any(fits) {
            wrong.push(format!(
                "{name} is Ready and wants a disk of {wanted} GiB: {:?}",
                guest.config
            ));
        }
    }
    wrong
}

/// As many disks and interfaces are there as declared.
fn equipped(machine: &VirtualMachine, guest: &Guest) -> Vec<String> {
    let numbered = |key: &str, kind: &str| {
        let number = key.strip_prefix(kind);
        number.is_some_and(|number| number.parse::<u8>().is_ok())
    };
    let disks = guest.config.iter().filter(|(key, value)| {
        let bus = ["scsi", "virtio", "sata", "ide"];
        bus.iter().any(|bus| numbered(key, bus)) && !value.contains("media=cdrom")
    });
    let cards = guest.config.keys().filter(|key| numbered(key, "net"));
    let (name, spec) = (machine.name_any(), &machine.spec);
    let counted = [
        ("disks", spec.disks.len(), disks.count()),
        ("interfaces", spec.networks.len(), cards.count()),
    ];
    // What a copy, or a snapshot that was gone back to, brings beyond what is declared is left alone.
    let status = machine.status.as_ref();
    let brings =
        spec.clone_from.is_some() || status.is_some_and(|status| status.reverted_to.is_some());
    let differs = |(what, wanted, has): &(&str, usize, usize)| {
        *wanted > 0 && wanted != has && !(brings && *what == "disks" && wanted < has)
    };
    counted
        .into_iter()
        .filter(differs)
        .map(|(what, wanted, has)| {
            let config = &guest.config;
            format!("{name} is Ready and wants {wanted} {what}, but has {has}: {config:?}")
        })
        .collect()
}

/// The number of the cluster behind the Provider of a life, a flow or a scenario.
fn cluster_number(provider: &str) -> usize {
    usize::from(provider.ends_with("/pve-1"))
}

fn is_ready(conditions: &[Condition]) -> bool {
    condition(conditions, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Processors and memory are as declared.
fn sized(name: &str, guest: &Guest, cpus: Option<u32>, memory: Option<Bytes>) -> Vec<String> {
    let number = |key: &str| guest.key(key).parse::<u64>().ok();
    let mut wrong = Vec::new();
    let all = number("cores").unwrap_or(1) * number("sockets").unwrap_or(1);
    let has = number("vcpus").unwrap_or(all);
    if cpus.is_some_and(|wanted| u64::from(wanted) != has) {
        wrong.push(format!(
            "{name} is Ready and wants {cpus:?} processors, but has {has}"
        ));
    }
    let mebibytes = memory.map(|memory| memory.as_mib().to_string());
    let has = guest.key("memory").trim_start_matches("current=");
    if mebibytes.as_deref().is_some_and(|wanted| wanted != has) {
        wrong.push(format!(
            "{name} is Ready and wants {mebibytes:?} MiB, but has {has}"
        ));
    }
    wrong
}

/// What a container says of itself is so.
pub(super) fn container(container: &Container, made: &[&Guest]) -> Vec<String> {
    let status = container.status.clone().unwrap_or_default();
    let (name, spec) = (container.name_any(), &container.spec);
    let its_own = |guest: &&&Guest| guest.name == name && Some(guest.vmid) == status.vmid;
    let Some(guest) = made.iter().find(its_own) else {
        let missing = status.vmid.is_some() && container.metadata.deletion_timestamp.is_none();
        let text = format!(
            "{name} says it is guest {:?}, which is not there",
            status.vmid
        );
        return missing.then_some(text).into_iter().collect();
    };
    let mut wrong = Vec::new();
    if status.node.as_ref() != Some(&guest.node) {
        let (says, is) = (status.node, &guest.node);
        wrong.push(format!("{name} says it is on {says:?}, but is on {is}"));
    }
    if !is_ready(&status.conditions) {
        return wrong;
    }
    if (spec.power_state == PowerState::On) != guest.running {
        let (wants, runs) = (spec.power_state, guest.running);
        wrong.push(format!(
            "{name} is Ready, wants {wants:?}, but runs: {runs}"
        ));
    }
    let mounted = guest.config.keys().filter(|key| key.starts_with("mp"));
    let (wanted, has) = (spec.mount_points.len(), mounted.count());
    if wanted != has {
        let config = &guest.config;
        wrong.push(format!(
            "{name} is Ready and wants {wanted} mount points, but has {has}: {config:?}"
        ));
    }
    wrong.extend(sized(&name, guest, spec.cpus, spec.memory));
    wrong
}

/// What a snapshot says of itself is so. `listed` are the snapshots of the guest it names.
pub(super) fn snapshot(snapshot: &VMSnapshot, listed: Option<&[String]>) -> Option<String> {
    let status = snapshot.status.clone().unwrap_or_default();
    let (name, taken) = (
        snapshot.name_any(),
        status.snapshot_name.unwrap_or_default(),
    );
    let listed = listed.filter(|_| status.phase == Some(Phase::Succeeded))?;
    (!listed.contains(&taken))
        .then(|| format!("{name} says it is kept as {taken:?}, but there are {listed:?}"))
}

/// The size of a disk, from its entry in a guest's configuration.
fn gibibytes(entry: &str) -> Option<u64> {
    let size = entry.split(',').find_map(|part| part.strip_prefix("size="));
    size?.strip_suffix('G')?.parse().ok()
}

/// What a machine of a Kubernetes cluster says of itself is so.
pub(super) fn node(node: &ProxmoxMachine, made: &[&Guest]) -> Option<String> {
    let status = node.status.clone().unwrap_or_default();
    let name = node.name_any();
    let id = node.spec.provider_id.clone().unwrap_or_default();
    let uuid = id.trim_start_matches("proxmox://");
    let Some(guest) = made.iter().find(|guest| guest.name == name) else {
        return Some(format!("{name} has no guest"));
    };
    if !guest.running {
        return Some(format!("{name} does not run"));
    }
    let own = guest.key("smbios1");
    if !own.contains(uuid) || uuid.is_empty() {
        return Some(format!("{name} calls itself {id:?}, its guest {own}"));
    }
    let says = status.proxmox_node;
    (says.as_ref() != Some(&guest.node))
        .then(|| format!("{name} says it is on {says:?}, but is on {}", guest.node))
}
