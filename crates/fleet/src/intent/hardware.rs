//! Processor, memory, firmware and devices.

use std::collections::BTreeMap;

use crate::{Size, StorageId};

/// The machine a guest sees.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Hardware {
    /// Processors.
    pub cpu: Cpu,
    /// Memory.
    pub memory: Memory,
    /// What may be plugged into the running guest. `None` leaves PVE's default (network, disk, USB).
    pub hotplug: Option<Vec<Hotplug>>,
    /// Machine type, such as `q35`.
    pub machine: Option<String>,
    /// Firmware.
    pub bios: Option<Bios>,
    /// The EFI variables' disk; needed for UEFI that remembers its boot entries.
    pub efi: Option<EfiDisk>,
    /// A TPM.
    pub tpm: Option<Tpm>,
    /// SCSI controller model. New guests get `virtio-scsi-single` unless the source has another.
    pub scsi_controller: Option<String>,
    /// Guest operating system type, such as `l26`.
    pub os_type: Option<String>,
    /// Display, as PVE writes it (`std`, `serial0`, `virtio,memory=64`).
    pub vga: Option<String>,
    /// Serial ports connected to a socket, `serial0` upward. `None` is not owned.
    pub serial_ports: Option<u8>,
    /// A source of randomness for the guest.
    pub rng: Option<Rng>,
    /// The QEMU guest agent.
    pub agent: Option<Agent>,
    /// PCI devices, by the name of their cluster-wide mapping.
    pub pci: Vec<PciDevice>,
    /// USB devices, by the name of their cluster-wide mapping.
    pub usb: Vec<UsbDevice>,
    /// An absolute pointer for the console.
    pub tablet: Option<bool>,
    /// Hardware watchdog, as PVE writes it (`model=i6300esb,action=reset`).
    pub watchdog: Option<String>,
    /// Boot order by names of disks and interfaces, or by slots (`scsi0`, `net0`); `None` is the root disk, then the installer.
    pub boot_order: Option<Vec<String>>,
    /// Any other key of PVE's guest configuration, passed on as it is and watched for drift.
    /// Keys that a typed field covers are refused.
    pub extra: BTreeMap<String, String>,
}

/// Processors of a guest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cpu {
    /// Cores of each socket.
    pub cores: Option<u32>,
    /// Sockets.
    pub sockets: Option<u32>,
    /// `cores` counts all of them, on as many sockets as the guest has.
    pub as_found: bool,
    /// How many of `sockets * cores` are plugged in; the rest can be plugged in later, live.
    pub vcpus: Option<u32>,
    /// Processor type, such as `host` or `x86-64-v2-AES`.
    pub model: Option<String>,
    /// Flags, such as `+aes` or `-pcid`.
    pub flags: Vec<String>,
    /// Most processor time it may use, in processors.
    pub limit: Option<f64>,
    /// Its weight against others.
    pub units: Option<u32>,
    /// Host processors it may run on (`0,5,8-11`). Only root with a password can set this.
    pub affinity: Option<String>,
    /// Show NUMA to the guest.
    pub numa: Option<bool>,
    /// The guest's NUMA nodes, in order.
    pub numa_nodes: Vec<NumaNode>,
}

/// One NUMA node of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    /// The guest's processors in it (`0-3`).
    pub cpus: String,
    /// The host's NUMA nodes behind it (`0`).
    pub host_nodes: Option<String>,
    /// Its memory.
    pub memory: Size,
    /// `preferred`, `bind` or `interleave`.
    pub policy: Option<String>,
}

/// Memory of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    /// How much.
    pub size: Option<Size>,
    /// The least it may be squeezed to; zero switches ballooning off.
    pub balloon: Option<Size>,
    /// Its weight when memory is squeezed.
    pub shares: Option<u32>,
    /// Huge pages. Only root with a password can set this.
    pub hugepages: Option<Hugepages>,
    /// Let the host merge equal pages (PVE 9).
    pub ksm: Option<bool>,
}

/// Huge pages behind a guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hugepages {
    /// Any size.
    Any,
    /// 2 MiB.
    TwoMib,
    /// 1 GiB.
    OneGib,
}

/// What can be plugged into a running guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hotplug {
    /// Network interfaces.
    Network,
    /// Disks.
    Disk,
    /// USB devices.
    Usb,
    /// Memory; needs NUMA.
    Memory,
    /// Processors.
    Cpu,
    /// The cloud-init drive.
    CloudInit,
}

/// Firmware of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bios {
    /// The PC BIOS.
    SeaBios,
    /// UEFI.
    Ovmf,
}

/// The disk of the EFI variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EfiDisk {
    /// Its storage; `None` is the root disk's.
    pub storage: Option<StorageId>,
    /// Enrol the usual keys, so that secure boot is on. `None` is not owned; a new disk has none.
    pub secure_boot: Option<bool>,
}

/// The version of a TPM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TpmVersion {
    /// 1.2.
    V1_2,
    /// 2.0.
    #[default]
    V2_0,
}

/// A TPM of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tpm {
    /// Where its state lives; `None` is the root disk's storage.
    pub storage: Option<StorageId>,
    /// Its version.
    pub version: TpmVersion,
}

/// A source of randomness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    /// `/dev/urandom`, `/dev/random` or `/dev/hwrng`.
    pub source: String,
    /// Bytes per period.
    pub max_bytes: Option<u32>,
    /// The period in milliseconds.
    pub period: Option<u32>,
}

/// The QEMU guest agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Whether PVE talks to it.
    pub enabled: bool,
    /// Trim the guest's file systems after a disk was moved or cloned. `None` is not owned.
    pub fstrim: Option<bool>,
}

impl Hardware {
    /// The mappings of the PCI devices that no other guest can have at the same time, one for each.
    pub(crate) fn whole_pci(&self) -> Vec<String> {
        let whole = self.pci.iter().filter(|device| device.mdev.is_none());
        whole.map(|device| device.mapping.clone()).collect()
    }
}

/// A PCI device passed through by mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// The cluster-wide mapping's name.
    pub mapping: String,
    /// A mediated device of it (vGPU).
    pub mdev: Option<String>,
    /// Show it as PCI Express (q35 only).
    pub pcie: bool,
    /// Make it the primary display. `None` is not owned.
    pub primary_gpu: Option<bool>,
    /// Show its ROM to the guest. `None` is not owned.
    pub rombar: Option<bool>,
}

/// A USB device passed through by mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsbDevice {
    /// The cluster-wide mapping's name.
    pub mapping: String,
    /// Connect it as USB 3.
    pub usb3: bool,
}
