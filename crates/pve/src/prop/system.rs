//! Processor, memory cells, agent, identity, boot order.

use super::{List, Value, Word};

property_string! {
    /// The guest agent: `agent`.
    Agent {
        required
        /// Whether the guest has one.
        enabled: bool = "enabled";
        /// Whether file systems are held still for backups.
        freeze_fs: bool = "freeze-fs" | "freeze-fs-on-backup" | "guest-fsfreeze";
        /// Whether unused space is given back after a disk was cloned or moved.
        fstrim_cloned_disks: bool = "fstrim_cloned_disks";
        /// `virtio` or `isa`.
        kind: Word = "type";
    }
}

property_string! {
    /// What the firmware tells about the machine: `smbios1`.
    Smbios {
        /// The machine's identity.
        uuid: uuid::Uuid = "uuid";
        /// Whether the texts are in base64.
        base64: bool = "base64";
        /// The maker.
        manufacturer: Word = "manufacturer";
        /// The product.
        product: Word = "product";
        /// The product's version.
        version: Word = "version";
        /// The serial number; cloud-init reads `ds=nocloud;…` from it.
        serial: Word = "serial";
        /// The stock keeping unit.
        sku: Word = "sku";
        /// The family.
        family: Word = "family";
    }
}

property_string! {
    /// The processor's model: `cpu`.
    Cpu {
        optional
        /// The model, such as `host` or `x86-64-v2-AES`.
        cputype: Word = "cputype";
        /// Features to add (`+aes`) and to take away (`-pcid`).
        flags: List = "flags";
        /// Whether the guest shall not see that it is one.
        hidden: bool = "hidden";
        /// What Hyper-V guests see as the maker.
        hv_vendor_id: Word = "hv-vendor-id";
        /// The width of physical addresses, or `host`.
        phys_bits: Word = "phys-bits";
        /// The model shown to the guest.
        reported_model: Word = "reported-model";
    }
}

/// How strictly memory stays on its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumaPolicy {
    /// There if possible.
    Preferred,
    /// There or nowhere.
    Bind,
    /// Spread over all of them.
    Interleave,
}

impl Value for NumaPolicy {
    const EXPECTED: &'static str = "'preferred', 'bind' or 'interleave'";

    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "preferred" => Self::Preferred,
            "bind" => Self::Bind,
            "interleave" => Self::Interleave,
            _ => return None,
        })
    }

    fn print(&self) -> String {
        match self {
            Self::Preferred => "preferred",
            Self::Bind => "bind",
            Self::Interleave => "interleave",
        }
        .to_owned()
    }
}

property_string! {
    /// A memory cell of the guest: `numa0`.
    Numa {
        /// The guest's processors in it, such as `0-1`.
        cpus: List = "cpus";
        /// The host's cells it lies on.
        hostnodes: List = "hostnodes";
        /// Its memory in MiB.
        memory: super::Decimal = "memory";
        /// How strictly.
        policy: NumaPolicy = "policy";
    }
}

property_string! {
    /// What to boot from: `boot`.
    Boot {
        optional
        /// The old form: `cdn`, one letter for each of disk, CD and network.
        legacy: Word = "legacy";
        /// The devices, in order.
        order: List = "order";
    }
}

property_string! {
    /// When to start and stop with the host: `startup`.
    Startup {
        optional
        /// The place in the order.
        order: u32 = "order";
        /// Seconds to wait before the next one starts.
        up: u32 = "up";
        /// Seconds it has for its shutdown.
        down: u32 = "down";
    }
}

property_string! {
    /// Files in place of what cloud-init would get: `cicustom`. All are volumes of snippets.
    CiCustom {
        /// The meta data.
        meta: Word = "meta";
        /// The network configuration.
        network: Word = "network";
        /// The user data.
        user: Word = "user";
        /// The vendor data.
        vendor: Word = "vendor";
    }
}

property_string! {
    /// The machine: `machine`.
    Machine {
        optional
        /// The type, such as `q35` or `pc-i440fx-9.2+pve1`.
        kind: Word = "type";
        /// The virtual IOMMU: `intel` or `virtio`.
        viommu: Word = "viommu";
        /// Whether it can sleep.
        enable_s3: bool = "enable-s3";
        /// Whether it can hibernate.
        enable_s4: bool = "enable-s4";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_may_be_one_digit() {
        let agent: Agent = "1".parse().unwrap();
        assert!(agent.enabled);
        let agent: Agent = "enabled=1,guest-fsfreeze=0,type=isa".parse().unwrap();
        assert_eq!(agent.freeze_fs, Some(false));
        assert_eq!(agent.to_string(), "1,freeze-fs=0,type=isa");
    }

    #[test]
    fn a_serial_with_an_equals_sign_stays_whole() {
        let smbios: Smbios = "uuid=b1e5b0a4-0d7e-4b5e-9b5e-0123456789ab,serial=ds=nocloud;h=web"
            .parse()
            .unwrap();
        assert_eq!(smbios.serial.as_ref().unwrap(), &"ds=nocloud;h=web");
        assert_eq!(
            smbios.to_string(),
            "uuid=b1e5b0a4-0d7e-4b5e-9b5e-0123456789ab,serial=ds=nocloud;h=web"
        );
    }

    #[test]
    fn a_cell_lists_its_processors() {
        let numa: Numa = "cpus=0-1;4,hostnodes=0,memory=512,policy=bind"
            .parse()
            .unwrap();
        assert_eq!(
            numa.cpus.as_ref().unwrap().iter().collect::<Vec<_>>(),
            ["0-1", "4"]
        );
        assert_eq!(
            numa.to_string(),
            "cpus=0-1;4,hostnodes=0,memory=512,policy=bind"
        );
    }

    #[test]
    fn the_boot_order_is_a_list() {
        let boot: Boot = "order=scsi0;ide2;net0".parse().unwrap();
        assert_eq!(boot.order.unwrap().iter().count(), 3);
        assert_eq!(" ".parse::<Boot>().unwrap(), Boot::default());
    }
}
