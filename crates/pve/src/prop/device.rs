//! Devices that are passed through or emulated.

use super::{List, Word};

property_string! {
    /// A device of the host's PCI bus: `hostpci0`.
    HostPci {
        optional
        /// The device's addresses, such as `0000:01:00.0`; for root only.
        host: List = "host";
        /// The name of a mapping of the cluster, in place of an address.
        mapping: Word = "mapping";
        /// Whether it is on a PCIe port.
        pcie: bool = "pcie";
        /// Whether it is the guest's first graphics card.
        x_vga: bool = "x-vga";
        /// Whether its ROM is visible.
        rombar: bool = "rombar";
        /// A ROM of one's own.
        romfile: Word = "romfile";
        /// The type of a mediated device.
        mdev: Word = "mdev";
        /// Whether to treat it as old Intel graphics.
        legacy_igd: bool = "legacy-igd";
        /// The vendor the guest sees.
        vendor_id: Word = "vendor-id";
        /// The device the guest sees.
        device_id: Word = "device-id";
    }
}

property_string! {
    /// A device of the host's USB: `usb0`.
    Usb {
        optional
        /// The device, or `spice`; for root only unless it is `spice`.
        host: Word = "host";
        /// The name of a mapping of the cluster, in place of an address.
        mapping: Word = "mapping";
        /// Whether it is USB 3.
        usb3: bool = "usb3";
    }
}

property_string! {
    /// A directory of the host: `virtiofs0`; since 8.4.
    VirtioFs {
        required
        /// The name of a mapping of the cluster.
        dirid: Word = "dirid";
        /// What the guest may cache: `auto`, `always`, `metadata` or `never`.
        cache: Word = "cache";
        /// Whether O_DIRECT is honoured.
        direct_io: bool = "direct-io";
        /// Whether access lists are visible.
        expose_acl: bool = "expose-acl";
        /// Whether extended attributes are visible.
        expose_xattr: bool = "expose-xattr";
    }
}

property_string! {
    /// A source of randomness: `rng0`.
    Rng {
        required
        /// `/dev/urandom`, `/dev/random` or `/dev/hwrng`.
        source: Word = "source";
        /// The most bytes in a period.
        max_bytes: u32 = "max_bytes";
        /// The period in milliseconds.
        period: u32 = "period";
    }
}

property_string! {
    /// The display: `vga`.
    Vga {
        optional
        /// Such as `std`, `serial0`, `virtio` or `none`.
        kind: Word = "type";
        /// Its memory in MiB.
        memory: u32 = "memory";
        /// `vnc` for a shared clipboard.
        clipboard: Word = "clipboard";
    }
}

property_string! {
    /// A watchdog: `watchdog`.
    Watchdog {
        optional
        /// `i6300esb` or `ib700`.
        model: Word = "model";
        /// What it does when nobody feeds it.
        action: Word = "action";
    }
}

property_string! {
    /// A sound card: `audio0`.
    Audio {
        /// The card.
        device: Word = "device";
        /// Where the sound goes.
        driver: Word = "driver";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_print_what_they_read() {
        for text in [
            "0000:01:00.0;0000:01:00.1,pcie=1,x-vga=1",
            "mapping=gpu,mdev=nvidia-63",
        ] {
            assert_eq!(text.parse::<HostPci>().unwrap().to_string(), text);
        }
        assert_eq!(
            "source=/dev/urandom".parse::<Rng>().unwrap().to_string(),
            "/dev/urandom"
        );
        assert_eq!("serial0".parse::<Vga>().unwrap().kind.unwrap(), "serial0");
        assert!("pcie=maybe,host=1".parse::<HostPci>().is_err());
    }
}
