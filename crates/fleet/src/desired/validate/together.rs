//! Fields that fit only together: apart they would have no effect, or keep a guest from starting.

use super::super::Invalid;
use crate::{
    Size,
    intent::{Bus, Disk, DiskRole, GuestIntent, Hotplug, Hugepages, Nic, NicModel, Source},
};

/// The only SCSI controller whose disks have I/O threads.
pub(in crate::desired) const WITH_THREADS: &str = "virtio-scsi-single";

/// The least memory of a guest that more can be plugged into: PVE puts the rest into modules.
const LEAST_TO_PLUG: Size = Size::gib(1);

/// The smallest packets that IP gets along with.
const LEAST_MTU: u16 = 576;

/// Checks what disks and interfaces need of their bus, controller or model.
pub(super) fn devices(intent: &GuestIntent) -> Result<(), Invalid> {
    for disk in intent.disks.iter().filter(|disk| disk.thin == Some(false)) {
        if let Some(format @ ("qcow2" | "vmdk")) = disk.format.as_deref() {
            return Err(Invalid::new(
                format!("disks[{}].format", disk.name),
                format!(
                    "{format} grows as it is written, and the disk is thick: ask for raw, or for a thin disk"
                ),
            ));
        }
    }
    let controller = intent.hardware.scsi_controller.as_deref();
    for disk in intent
        .disks
        .iter()
        .filter(|disk| disk.iothread == Some(true))
    {
        let field = || format!("disks[{}].iothread", disk.name);
        match bus(disk, intent) {
            Some(bus @ (Bus::Sata | Bus::Ide)) => {
                let problem = format!(
                    "needs a disk on the bus scsi or virtio, and this one is on {}: move it there, or leave it out",
                    bus.as_str()
                );
                return Err(Invalid::new(field(), problem));
            }
            Some(Bus::Scsi) if controller.is_some_and(|name| name != WITH_THREADS) => {
                let problem = format!(
                    "needs the controller {WITH_THREADS}, and scsiController names another: change or drop one of the two"
                );
                return Err(Invalid::new(field(), problem));
            }
            _ => {}
        }
    }
    let machine = intent.hardware.machine.as_deref();
    // Its source may have one, which is looked at when it is copied.
    pci(intent, machine.map_or_else(|| has_origin(intent), is_q35))?;
    let other_model = |model: NicModel| model != NicModel::Virtio;
    for nic in &intent.nics {
        if !intent.is_container() {
            mtu(nic)?;
        }
        if nic.queues.is_some() && nic.model.is_some_and(other_model) {
            return Err(Invalid::new(
                format!("networks[{}].queues", nic.name),
                "are for the model virtio only: change the model, or leave them out",
            ));
        }
    }
    Ok(())
}

/// Checks that the size of packets is one that PVE starts a guest with.
fn mtu(nic: &Nic) -> Result<(), Invalid> {
    match nic.mtu {
        Some(mtu) if mtu != 1 && mtu < LEAST_MTU => {
            let problem = format!(
                "is {mtu}, which no guest starts with: set {LEAST_MTU} or more, or 1 to take the bridge's"
            );
            Err(Invalid::new(format!("networks[{}].mtu", nic.name), problem))
        }
        _ => Ok(()),
    }
}

/// Whether a machine type has PCI Express.
pub(super) fn is_q35(machine: &str) -> bool {
    machine.contains("q35")
}

/// Checks that devices are shown as PCI Express only where there is such a bus.
pub(super) fn pci(intent: &GuestIntent, has_express: bool) -> Result<(), Invalid> {
    let mut devices = intent.hardware.pci.iter();
    match devices.find(|device| device.pcie && !has_express) {
        None => Ok(()),
        Some(device) => Err(Invalid::new(
            format!("pciDevices[{}].pcie", device.mapping),
            "needs the machine q35: set machine to q35, or leave it out",
        )),
    }
}

/// Whether the guest's first configuration comes from elsewhere.
fn has_origin(intent: &GuestIntent) -> bool {
    let copied = matches!(
        intent.source,
        Source::Template { .. } | Source::Backup { .. }
    );
    copied || intent.adopt.is_some()
}

/// Checks what huge pages, NUMA nodes and memory that can be plugged in need of each other.
pub(super) fn memory(intent: &GuestIntent) -> Result<(), Invalid> {
    let (cpu, memory) = (&intent.hardware.cpu, &intent.hardware.memory);
    let off = cpu.numa == Some(false);
    if off && memory.hugepages.is_some() {
        let problem = "need cpu.numa, which is switched off: switch it on, or leave it out";
        return Err(Invalid::new("memory.hugePages", problem));
    }
    if off && !cpu.numa_nodes.is_empty() {
        let problem = "need cpu.numa, which is switched off: switch it on, or leave it out";
        return Err(Invalid::new("cpu.numaNodes", problem));
    }
    for (index, node) in cpu.numa_nodes.iter().enumerate() {
        if node.host_nodes.is_some() && node.policy.is_none() {
            let problem = "needs a policy: set it to bind, interleave or preferred";
            let field = format!("cpu.numaNodes[{index}].hostNodes");
            return Err(Invalid::new(field, problem));
        }
    }
    let Some(size) = memory.size else {
        return Ok(());
    };
    let nodes = cpu.numa_nodes.iter().map(|node| node.memory.as_mib());
    let nodes = Size::mib(nodes.sum());
    if !cpu.numa_nodes.is_empty() && nodes != Size::mib(size.as_mib()) {
        let problem =
            format!("have {nodes} of memory together, and the guest {size}: make them equal");
        return Err(Invalid::new("cpu.numaNodes", problem));
    }
    let hotplug = intent.hardware.hotplug.as_deref().unwrap_or_default();
    if hotplug.contains(&Hotplug::Memory) {
        plugged(intent, size)?;
    }
    Ok(())
}

/// Checks that memory which can be plugged in is made of whole modules: with another size the guest would not start.
fn plugged(intent: &GuestIntent, size: Size) -> Result<(), Invalid> {
    let large = intent.hardware.memory.hugepages == Some(Hugepages::OneGib);
    // With pages of a gigabyte each socket has the least.
    let sockets = if large {
        intent.hardware.cpu.sockets.unwrap_or(1)
    } else {
        1
    };
    let least = LEAST_TO_PLUG.as_mib() * u64::from(sockets);
    let wanted = size.as_mib();
    if wanted < least {
        let least = Size::mib(least);
        let problem = format!(
            "of memory needs a guest with {least} at least, and this one has {size}: give it more"
        );
        return Err(Invalid::new("hotplug", problem));
    }
    let (below, above) = modules(least, if large { 1024 } else { 512 }, wanted);
    if below == wanted {
        return Ok(());
    }
    let above = above.map_or_else(String::new, |above| format!(" or {above}"));
    let problem = format!(
        "is {wanted} MiB, which hotplug of memory cannot make up of modules: set it to {below}{above} MiB, or take memory out of \
         hotplug"
    );
    Err(Invalid::new("memory", problem))
}

/// The sizes next to a wanted one that whole modules make, in MiB. After 32 of a size they are twice as large.
fn modules(least: u64, first: u64, wanted: u64) -> (u64, Option<u64>) {
    let sizes = (0..8).flat_map(|doubled| std::iter::repeat_n(first << doubled, 32));
    let mut below = least;
    for module in sizes {
        let above = below + module;
        if above > wanted {
            return (below, Some(above));
        }
        below = above;
    }
    (below, None)
}

/// The bus a disk will be on; nothing if its source decides that.
fn bus(disk: &Disk, intent: &GuestIntent) -> Option<Bus> {
    let said = disk.slot.map(|slot| slot.bus).or(disk.bus);
    let found = intent.adopt.is_some() || (has_origin(intent) && disk.role == DiskRole::Root);
    said.or((!found).then_some(Bus::Scsi))
}
