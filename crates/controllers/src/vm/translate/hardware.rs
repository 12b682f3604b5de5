//! Processor, memory and devices.

use std::collections::BTreeMap;

use api::vm::{
    Bytes, Hardware as Written, HugePages, TpmVersion as WrittenTpm, VMClass, VirtualMachineSpec,
};
use fleet::intent::{
    Agent, Bios, Cpu, EfiDisk, Hardware, Hotplug, Hugepages, Memory, NumaNode, PciDevice, Rng, Tpm,
    TpmVersion, UsbDevice,
};

use super::{Invalid, size, storage};

pub(super) fn hardware(
    spec: &VirtualMachineSpec,
    class: Option<&VMClass>,
    adopted: bool,
) -> Result<Hardware, Invalid> {
    let base = class
        .and_then(|class| class.spec.spec.clone())
        .unwrap_or_default();
    let written = base.overridden_by(&spec.hardware.clone().unwrap_or_default());
    let cpus = spec.cpus.or(class.map(|class| class.spec.cpus));
    let memory = spec.memory.or(class.map(|class| class.spec.memory));
    let whole = adopted || spec.clone_from.is_some() || spec.restore_from.is_some();
    if !whole && (cpus.is_none() || memory.is_none()) {
        return Err(Invalid::new(
            "spec.classRef",
            "set it, or give both spec.cpus and spec.memory",
        ));
    }
    let cpu = written.cpu.as_ref();
    let alone = |cpu: &api::vm::Cpu| cpu.sockets.is_some() && cpu.max_cpus.is_none();
    if cpus.is_none() && cpu.is_some_and(alone) {
        return Err(Invalid::new(
            "spec.hardware.cpu.sockets",
            "needs cpus, the number of CPUs on all sockets together: give spec.cpus, or leave it out",
        ));
    }
    of(&written, cpus, memory, adopted)
}

/// Hardware as written down. An adopted guest keeps what is not.
pub(crate) fn of(
    written: &Written,
    cpus: Option<u32>,
    memory: Option<Bytes>,
    adopted: bool,
) -> Result<Hardware, Invalid> {
    let hotplug = hotplug(written)?;
    let mut cpu = cpu(written, cpus, adopted)?;
    if hotplug
        .as_ref()
        .is_some_and(|what| what.contains(&Hotplug::Memory))
    {
        // PVE plugs memory into NUMA guests only. Where that is said not to be, it is refused.
        cpu.numa = cpu.numa.or(Some(true));
    }
    let mut extra = BTreeMap::new();
    if let Some(kvm) = written.kvm {
        extra.insert("kvm".to_owned(), u8::from(kvm).to_string());
    }
    if let Some(args) = &written.args {
        extra.insert("args".to_owned(), args.clone());
    }
    let bios = written.bios.map(|bios| {
        if bios.is_uefi() {
            Bios::Ovmf
        } else {
            Bios::SeaBios
        }
    });
    Ok(Hardware {
        cpu,
        memory: Memory {
            size: memory.map(size),
            balloon: written
                .memory
                .as_ref()
                .and_then(|m| m.balloon_min)
                .map(size),
            shares: written.memory.as_ref().and_then(|m| m.shares),
            hugepages: written.memory.as_ref().and_then(|m| m.huge_pages).map(
                |pages| match pages {
                    HugePages::Any => Hugepages::Any,
                    HugePages::Mi2 => Hugepages::TwoMib,
                    HugePages::Gi1 => Hugepages::OneGib,
                },
            ),
            ksm: written.memory.as_ref().and_then(|m| m.merge_pages),
        },
        hotplug,
        machine: written.machine.as_deref().map(chipset),
        bios,
        efi: efi(written, bios)?,
        tpm: match &written.tpm {
            None => None,
            Some(tpm) => Some(Tpm {
                storage: tpm
                    .storage
                    .as_deref()
                    .map(|s| storage("hardware.tpm.storage", s))
                    .transpose()?,
                version: match tpm.version.unwrap_or_default() {
                    WrittenTpm::V2 => TpmVersion::V2_0,
                    WrittenTpm::V1 => TpmVersion::V1_2,
                },
            }),
        },
        scsi_controller: written.scsi_controller.clone(),
        os_type: written.os_type.clone(),
        vga: written.vga.as_ref().map(|vga| {
            let kind = vga.kind.clone().unwrap_or_else(|| "std".to_owned());
            vga.memory.map_or(kind.clone(), |memory| {
                format!("{kind},memory={}", memory.as_mib())
            })
        }),
        serial_ports: u8::try_from(written.serial_ports.len())
            .ok()
            .filter(|count| *count > 0),
        rng: written.rng.as_ref().map(|rng| Rng {
            source: rng
                .source
                .clone()
                .unwrap_or_else(|| "/dev/urandom".to_owned()),
            max_bytes: rng.max_bytes,
            period: rng.period_millis,
        }),
        agent: written
            .agent
            .as_ref()
            .map(|agent| Agent {
                enabled: agent.enabled.unwrap_or(true),
                fstrim: agent.fstrim_cloned_disks,
            })
            .or((!adopted).then_some(Agent {
                enabled: true,
                fstrim: None,
            })),
        pci: written
            .pci_devices
            .iter()
            .map(|device| PciDevice {
                mapping: device.mapping.clone(),
                mdev: device.mdev.clone(),
                pcie: device.pcie.unwrap_or(false),
                primary_gpu: device.primary_gpu,
                rombar: device.rom_bar,
            })
            .collect(),
        usb: written
            .usb_devices
            .iter()
            .map(|device| UsbDevice {
                mapping: device.mapping.clone(),
                usb3: device.usb3.unwrap_or(false),
            })
            .collect(),
        tablet: written.tablet,
        watchdog: None,
        boot_order: (!written.boot_order.is_empty()).then(|| written.boot_order.clone()),
        extra,
    })
}

/// The chipset in PVE's words, which has a prefix for those with a version.
fn chipset(written: &str) -> String {
    match written {
        "i440fx" => "pc".to_owned(),
        versioned if versioned.starts_with("q35-") || versioned.starts_with("i440fx-") => {
            format!("pc-{versioned}")
        }
        other => other.to_owned(),
    }
}

fn cpu(written: &Written, cpus: Option<u32>, adopted: bool) -> Result<Cpu, Invalid> {
    let own = written.cpu.clone().unwrap_or_default();
    let as_found = adopted && own.sockets.is_none() && cpus.is_some();
    let sockets = own.sockets.unwrap_or(1);
    let total = own.max_cpus.or(cpus);
    if let (Some(most), Some(cpus)) = (own.max_cpus, cpus)
        && cpus > most
    {
        return Err(Invalid::new(
            "hardware.cpu.maxCpus",
            format!("is {most}, but the machine has {cpus} CPUs; raise it or lower cpus"),
        ));
    }
    if let Some(total) = total
        && !total.is_multiple_of(sockets)
    {
        return Err(Invalid::new(
            "hardware.cpu.sockets",
            format!(
                "{total} CPUs cannot be spread evenly over {sockets} sockets; change one of them"
            ),
        ));
    }
    Ok(Cpu {
        cores: total.map(|total| total / sockets),
        sockets: total.map(|_| sockets).filter(|_| !as_found),
        as_found,
        vcpus: own.max_cpus.and(cpus),
        model: own.model,
        flags: own.flags,
        limit: own.limit,
        units: own.units,
        affinity: own.affinity,
        numa: own.numa,
        numa_nodes: own
            .numa_nodes
            .into_iter()
            .map(|node| NumaNode {
                cpus: node.cpus,
                host_nodes: node.host_nodes,
                memory: size(node.memory),
                policy: node.policy,
            })
            .collect(),
    })
}

fn hotplug(written: &Written) -> Result<Option<Vec<Hotplug>>, Invalid> {
    let mut what = Vec::new();
    for word in &written.hotplug {
        what.push(match word.as_str() {
            "network" => Hotplug::Network,
            "disk" => Hotplug::Disk,
            "usb" => Hotplug::Usb,
            "memory" => Hotplug::Memory,
            "cpu" => Hotplug::Cpu,
            "cloudinit" => Hotplug::CloudInit,
            other => {
                let known = "network, disk, cpu, memory, usb and cloudinit";
                return Err(Invalid::new(
                    "hardware.hotplug",
                    format!("{other:?} is not one of {known}"),
                ));
            }
        });
    }
    // Room for CPUs is useless without the right to plug them in.
    if written
        .cpu
        .as_ref()
        .is_some_and(|cpu| cpu.max_cpus.is_some())
        && !what.contains(&Hotplug::Cpu)
    {
        if what.is_empty() {
            what.extend([Hotplug::Network, Hotplug::Disk, Hotplug::Usb]);
        }
        what.push(Hotplug::Cpu);
    }
    what.sort();
    what.dedup();
    Ok((!what.is_empty()).then_some(what))
}

fn efi(written: &Written, bios: Option<Bios>) -> Result<Option<EfiDisk>, Invalid> {
    if bios != Some(Bios::Ovmf) {
        return match &written.efi {
            Some(_) => Err(Invalid::new("hardware.efi", "needs bios: uefi")),
            None => Ok(None),
        };
    }
    let efi = written.efi.clone().unwrap_or_default();
    Ok(Some(EfiDisk {
        storage: efi
            .storage
            .as_deref()
            .map(|s| storage("hardware.efi.storage", s))
            .transpose()?,
        secure_boot: efi.secure_boot,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sockets_of_who_has_its_cpus_from_elsewhere_are_refused_without_cpus() {
        let spec = |cpus: Option<u32>| -> VirtualMachineSpec {
            let hardware = json!({ "cpu": { "sockets": 2 } });
            let spec = json!({ "adopt": { "vmid": 100 }, "hardware": hardware, "cpus": cpus });
            serde_json::from_value(spec).unwrap()
        };
        let refused = hardware(&spec(None), None, true).unwrap_err().to_string();
        assert!(refused.contains("needs cpus"), "{refused}");
        let cpu = hardware(&spec(Some(4)), None, true).unwrap().cpu;
        assert_eq!((cpu.sockets, cpu.cores), (Some(2), Some(2)));
    }

    #[test]
    fn a_chipset_with_a_version_has_the_prefix_pve_wants() {
        for (written, meant) in [
            ("q35", "q35"),
            ("i440fx", "pc"),
            ("q35-9.0", "pc-q35-9.0"),
            ("i440fx-9.0+pve1", "pc-i440fx-9.0+pve1"),
            ("pc-q35-9.0", "pc-q35-9.0"),
        ] {
            assert_eq!(chipset(written), meant);
        }
    }
}
