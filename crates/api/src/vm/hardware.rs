//! The virtual hardware besides disks and network cards.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quantity::Bytes;

/// Virtual hardware. A class sets it under `spec.spec`, a machine overrides single fields under
/// `spec.hardware`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.efi) || !has(self.bios) || self.bios in ['uefi', 'ovmf']").message("efi needs bios: uefi"))]
pub struct Hardware {
    /// Chipset: `q35`, `i440fx` (or `pc`), also with a version (`pc-q35-9.0`).
    #[schemars(
        length(max = 40),
        regex(pattern = r"^(q35|i440fx|pc|(pc-)?(q35|i440fx)-[0-9]+\.[0-9]+(\+pve[0-9]+)?)$")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bios: Option<Bios>,
    /// The EFI variables disk; made as needed with `bios: uefi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efi: Option<Efi>,
    /// A trusted platform module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpm: Option<Tpm>,
    /// The processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory beyond its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What the guest runs, for PVE's tuning: `l26`, `win11`, …
    #[schemars(length(max = 16), extend("enum" = ["other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24", "l26", "solaris"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_type: Option<String>,
    /// SCSI controller; `virtio-scsi-single` gives every disk its own, as I/O threads need.
    #[schemars(length(max = 32), extend("enum" = ["lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scsi_controller: Option<String>,
    /// What may be changed while the guest runs: `network`, `disk`, `cpu`, `memory`, `usb`.
    #[schemars(length(max = 6))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hotplug: Vec<String>,
    /// Host PCI devices, by PVE resource mapping.
    #[schemars(length(max = 16))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pci_devices: Vec<PciDevice>,
    /// Host USB devices, by PVE resource mapping.
    #[schemars(length(max = 14))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usb_devices: Vec<UsbDevice>,
    /// Random numbers from the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rng: Option<Rng>,
    /// Serial ports.
    #[schemars(length(max = 4))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serial_ports: Vec<SerialPort>,
    /// Display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vga: Option<Vga>,
    /// QEMU guest agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
    /// Devices to boot from, in order, by disk name, network name, or PVE's own (`scsi0`, `net0`).
    #[schemars(length(max = 16))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boot_order: Vec<String>,
    /// Pointer device that keeps the mouse in place; for graphical guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tablet: Option<bool>,
    /// Hardware virtualisation; off only for nested test systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm: Option<bool>,
    /// Raw QEMU arguments. Only `root@pam` may set them; refused with that reason otherwise.
    #[schemars(length(max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
}

/// Firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bios {
    /// UEFI.
    Uefi,
    /// UEFI, in PVE's word for it.
    Ovmf,
    /// The classic PC BIOS, in PVE's word for it.
    Seabios,
    /// The classic PC BIOS.
    Bios,
}

impl Bios {
    /// Whether it is UEFI.
    pub fn is_uefi(self) -> bool {
        matches!(self, Self::Uefi | Self::Ovmf)
    }
}

/// The EFI variables disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Efi {
    /// Boot only signed loaders, with Microsoft's and the distributions' keys enrolled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_boot: Option<bool>,
    /// Storage of the variables; the machine's when left out.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// A trusted platform module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tpm {
    /// Version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<TpmVersion>,
    /// Storage of its state; the machine's when left out.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// Version of the TPM; 2.0 when left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TpmVersion {
    /// 2.0.
    #[default]
    #[serde(rename = "v2.0")]
    V2,
    /// 1.2.
    #[serde(rename = "v1.2")]
    V1,
}

/// The processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// Sockets the CPUs are spread over; must divide `cpus`.
    #[schemars(range(min = 1, max = 4))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// CPUs the guest may grow to without a restart; `cpus` of them are plugged in.
    #[schemars(range(min = 1, max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpus: Option<u32>,
    /// Model: `host`, `x86-64-v2-AES`, … or `custom-…`.
    #[serde(rename = "type")]
    #[schemars(length(max = 64), regex(pattern = r"^[A-Za-z0-9._-]+$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Features to add or remove: `+aes`, `-pcid`.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Processor time in CPUs (`1.5`); unlimited when left out.
    #[schemars(range(min = 0.0, max = 128.0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Weight against other guests, from 1 to 10000; Proxmox VE gives 100 to who says nothing.
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
    /// Host CPUs to run on: `0-3,8`. Only `root@pam` may set it; refused with that reason otherwise.
    #[schemars(
        length(max = 256),
        regex(pattern = r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<String>,
    /// Show the guest NUMA nodes; needed to plug memory in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<bool>,
    /// The NUMA nodes in detail.
    #[schemars(length(max = 8))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_nodes: Vec<NumaNode>,
}

/// One NUMA node of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaNode {
    /// CPUs of the guest on it: `0-3`.
    #[schemars(length(max = 256))]
    pub cpus: String,
    /// Memory on it.
    pub memory: Bytes,
    /// NUMA nodes of the host it may use: `0`.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_nodes: Option<String>,
    /// How strictly: `bind`, `interleave` or `preferred`.
    #[schemars(length(max = 16), extend("enum" = ["bind", "interleave", "preferred"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// Memory beyond its size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// How far the host may shrink the guest under pressure; 0 turns ballooning off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balloon_min: Option<Bytes>,
    /// Weight against other guests when ballooning.
    #[schemars(range(min = 0, max = 50_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<u32>,
    /// Huge pages. Only `root@pam` may set them; refused with that reason otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<HugePages>,
    /// Let the host merge equal pages (PVE 9); on unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_pages: Option<bool>,
}

/// A page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HugePages {
    /// Whatever fits.
    #[serde(rename = "any")]
    Any,
    /// 2 MiB.
    #[serde(rename = "2Mi")]
    Mi2,
    /// 1 GiB.
    #[serde(rename = "1Gi")]
    Gi1,
}

/// A host PCI device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PciDevice {
    /// Name of the PVE resource mapping.
    #[schemars(length(min = 1, max = 128))]
    pub mapping: String,
    /// Type of mediated device (vGPU).
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mdev: Option<String>,
    /// Connect as PCIe; needs `machine: q35`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie: Option<bool>,
    /// Make it the primary display.
    #[serde(rename = "primaryGPU")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_gpu: Option<bool>,
    /// Show its ROM to the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rom_bar: Option<bool>,
}

/// A host USB device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsbDevice {
    /// Name of the PVE resource mapping.
    #[schemars(length(min = 1, max = 128))]
    pub mapping: String,
    /// Connect as USB 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usb3: Option<bool>,
}

/// Random numbers from the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rng {
    /// Source: `/dev/urandom` unless said otherwise. `/dev/hwrng` needs `root@pam`.
    #[schemars(length(max = 32), extend("enum" = ["/dev/urandom", "/dev/random", "/dev/hwrng"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Bytes per period.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u32>,
    /// Period in milliseconds.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_millis: Option<u32>,
}

/// A serial port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SerialPort {
    /// Reachable as a text console.
    #[default]
    Socket,
}

/// Display.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Vga {
    /// Card: `std`, `virtio`, `qxl`, `serial0`, `none`, …
    #[serde(rename = "type")]
    #[schemars(length(max = 16), extend("enum" = ["std", "cirrus", "none", "qxl", "qxl2", "qxl3", "qxl4", "serial0", "serial1", "serial2", "serial3", "virtio", "virtio-gl", "vmware"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// QEMU guest agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Talk to it; on unless said otherwise. Addresses and clean shutdowns come from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Trim after cloning or moving disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fstrim_cloned_disks: Option<bool>,
}

impl Hardware {
    /// This hardware with what `over` says put on top, field by field.
    #[must_use]
    pub fn overridden_by(&self, over: &Self) -> Self {
        let first =
            |a: &Vec<String>, b: &Vec<String>| if a.is_empty() { b.clone() } else { a.clone() };
        Self {
            machine: over.machine.clone().or_else(|| self.machine.clone()),
            bios: over.bios.or(self.bios),
            // Who takes another firmware than the class's has no use for its variables.
            efi: if over.bios.is_some_and(|bios| !bios.is_uefi()) {
                over.efi.clone()
            } else {
                either(self.efi.as_ref(), over.efi.as_ref(), Efi::overridden_by)
            },
            tpm: either(self.tpm.as_ref(), over.tpm.as_ref(), Tpm::overridden_by),
            cpu: either(self.cpu.as_ref(), over.cpu.as_ref(), Cpu::overridden_by),
            memory: either(
                self.memory.as_ref(),
                over.memory.as_ref(),
                Memory::overridden_by,
            ),
            os_type: over.os_type.clone().or_else(|| self.os_type.clone()),
            scsi_controller: over
                .scsi_controller
                .clone()
                .or_else(|| self.scsi_controller.clone()),
            hotplug: first(&over.hotplug, &self.hotplug),
            pci_devices: if over.pci_devices.is_empty() {
                &self.pci_devices
            } else {
                &over.pci_devices
            }
            .clone(),
            usb_devices: if over.usb_devices.is_empty() {
                &self.usb_devices
            } else {
                &over.usb_devices
            }
            .clone(),
            rng: either(self.rng.as_ref(), over.rng.as_ref(), Rng::overridden_by),
            serial_ports: if over.serial_ports.is_empty() {
                &self.serial_ports
            } else {
                &over.serial_ports
            }
            .clone(),
            vga: either(self.vga.as_ref(), over.vga.as_ref(), Vga::overridden_by),
            agent: either(
                self.agent.as_ref(),
                over.agent.as_ref(),
                Agent::overridden_by,
            ),
            boot_order: first(&over.boot_order, &self.boot_order),
            tablet: over.tablet.or(self.tablet),
            kvm: over.kvm.or(self.kvm),
            args: over.args.clone().or_else(|| self.args.clone()),
        }
    }
}

/// One of two that is there, or both together.
fn either<T: Clone>(base: Option<&T>, over: Option<&T>, both: fn(&T, &T) -> T) -> Option<T> {
    match (base, over) {
        (Some(base), Some(over)) => Some(both(base, over)),
        (base, over) => over.or(base).cloned(),
    }
}

impl Efi {
    fn overridden_by(&self, over: &Self) -> Self {
        Self {
            secure_boot: over.secure_boot.or(self.secure_boot),
            storage: over.storage.clone().or_else(|| self.storage.clone()),
        }
    }
}

impl Tpm {
    fn overridden_by(&self, over: &Self) -> Self {
        Self {
            version: over.version.or(self.version),
            storage: over.storage.clone().or_else(|| self.storage.clone()),
        }
    }
}

impl Memory {
    fn overridden_by(&self, over: &Self) -> Self {
        Self {
            balloon_min: over.balloon_min.or(self.balloon_min),
            shares: over.shares.or(self.shares),
            huge_pages: over.huge_pages.or(self.huge_pages),
            merge_pages: over.merge_pages.or(self.merge_pages),
        }
    }
}

impl Rng {
    fn overridden_by(&self, over: &Self) -> Self {
        Self {
            source: over.source.clone().or_else(|| self.source.clone()),
            max_bytes: over.max_bytes.or(self.max_bytes),
            period_millis: over.period_millis.or(self.period_millis),
        }
    }
}

impl Vga {
    fn overridden_by(&self, over: &Self) -> Self {
        Self {
            kind: over.kind.clone().or_else(|| self.kind.clone()),
            memory: over.memory.or(self.memory),
        }
    }
}

impl Agent {
    fn overridden_by(&self, over: &Self) -> Self {
        Self {
            enabled: over.enabled.or(self.enabled),
            fstrim_cloned_disks: over.fstrim_cloned_disks.or(self.fstrim_cloned_disks),
        }
    }
}

impl Cpu {
    fn overridden_by(&self, over: &Self) -> Self {
        Self {
            sockets: over.sockets.or(self.sockets),
            max_cpus: over.max_cpus.or(self.max_cpus),
            model: over.model.clone().or_else(|| self.model.clone()),
            flags: if over.flags.is_empty() {
                &self.flags
            } else {
                &over.flags
            }
            .clone(),
            limit: over.limit.or(self.limit),
            units: over.units.or(self.units),
            affinity: over.affinity.clone().or_else(|| self.affinity.clone()),
            numa: over.numa.or(self.numa),
            numa_nodes: if over.numa_nodes.is_empty() {
                &self.numa_nodes
            } else {
                &over.numa_nodes
            }
            .clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_overrides_single_fields_of_its_class() {
        let class = Hardware {
            machine: Some("q35".into()),
            bios: Some(Bios::Uefi),
            cpu: Some(Cpu {
                model: Some("host".into()),
                numa: Some(true),
                ..Cpu::default()
            }),
            ..Hardware::default()
        };
        let own = Hardware {
            bios: Some(Bios::Seabios),
            cpu: Some(Cpu {
                model: Some("x86-64-v3".into()),
                ..Cpu::default()
            }),
            ..Hardware::default()
        };
        let both = class.overridden_by(&own);
        assert_eq!(both.machine.as_deref(), Some("q35"));
        assert_eq!(both.bios, Some(Bios::Seabios));
        let cpu = both.cpu.unwrap();
        assert_eq!(
            (cpu.model.as_deref(), cpu.numa),
            (Some("x86-64-v3"), Some(true))
        );
    }

    #[test]
    fn what_a_machine_does_not_say_about_a_device_stays_as_its_class_has_it() {
        let read =
            |value: serde_json::Value| -> Hardware { serde_json::from_value(value).unwrap() };
        let class = read(serde_json::json!({
            "bios": "uefi",
            "efi": { "secureBoot": true, "storage": "ceph" },
            "tpm": { "version": "v1.2" },
            "vga": { "type": "virtio", "memory": "64Mi" },
            "agent": { "fstrimClonedDisks": true },
            "rng": { "source": "/dev/random", "maxBytes": 512 },
        }));
        let own = read(serde_json::json!({
            "efi": { "storage": "nfs" },
            "tpm": { "storage": "nfs" },
            "vga": { "memory": "128Mi" },
            "agent": { "enabled": false },
            "rng": { "maxBytes": 1024 },
        }));
        let both = read(serde_json::json!({
            "bios": "uefi",
            "efi": { "secureBoot": true, "storage": "nfs" },
            "tpm": { "version": "v1.2", "storage": "nfs" },
            "vga": { "type": "virtio", "memory": "128Mi" },
            "agent": { "enabled": false, "fstrimClonedDisks": true },
            "rng": { "source": "/dev/random", "maxBytes": 1024 },
        }));
        assert_eq!(class.overridden_by(&own), both);
        assert_eq!(class.overridden_by(&Hardware::default()), class);
        let plain = read(serde_json::json!({ "bios": "seabios" }));
        assert_eq!(class.overridden_by(&plain).efi, None);
    }
}
