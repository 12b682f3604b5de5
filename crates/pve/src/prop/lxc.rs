//! Containers: `rootfs`, `mp0`, `net0`, `features`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Decimal, DiskFile, Ip4, Ip6, List, Size, Word};
use crate::id::MacAddress;

property_string! {
    /// A volume of a container: `rootfs` or `mp0`.
    MountPoint {
        required
        /// What is behind it.
        volume: DiskFile = "volume";
        /// Where it is mounted; not for `rootfs`.
        mp: Word = "mp";
        /// Whether it has access lists.
        acl: bool = "acl";
        /// Whether it goes into backups.
        backup: bool = "backup";
        /// Options for the mount.
        mountoptions: List = "mountoptions";
        /// Whether quotas work inside.
        quota: bool = "quota";
        /// Whether it is replicated.
        replicate: bool = "replicate";
        /// Whether it can only be read.
        ro: bool = "ro";
        /// Whether it is on all nodes, whatever the storage says.
        shared: bool = "shared";
        /// Its size, as the server notes it.
        size: Size = "size";
    }
}

property_string! {
    /// A network card of a container.
    ContainerNet {
        /// Its name inside.
        name: Word = "name";
        /// The bridge or VNet it is plugged into.
        bridge: Word = "bridge";
        /// The hardware address.
        hwaddr: MacAddress = "hwaddr";
        /// The IPv4 address.
        ip: Ip4 = "ip";
        /// The IPv4 gateway.
        gw: Ipv4Addr = "gw";
        /// The IPv6 address.
        ip6: Ip6 = "ip6";
        /// The IPv6 gateway.
        gw6: Ipv6Addr = "gw6";
        /// Whether the firewall looks at it.
        firewall: bool = "firewall";
        /// Whether its cable is pulled.
        link_down: bool = "link_down";
        /// Its largest packet.
        mtu: u32 = "mtu";
        /// The most it may send, in MB/s.
        rate: Decimal = "rate";
        /// Its VLAN.
        tag: u16 = "tag";
        /// The VLANs it may carry tagged.
        trunks: List = "trunks";
        /// `veth`.
        kind: Word = "type";
    }
}

property_string! {
    /// What a container may do beyond the usual: `features`.
    Features {
        /// Whether containers run inside.
        nesting: bool = "nesting";
        /// Whether it may use the kernel's keys.
        keyctl: bool = "keyctl";
        /// Whether it may mount in user space.
        fuse: bool = "fuse";
        /// Whether it may make device nodes.
        mknod: bool = "mknod";
        /// The file systems it may mount.
        mount: List = "mount";
        /// Whether `/sys` can be written to.
        force_rw_sys: bool = "force_rw_sys";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_prints_what_it_reads() {
        let text = "local-lvm:subvol-200-disk-0,mp=/data,backup=1,size=8G,keepattrs=1";
        assert_eq!(text.parse::<MountPoint>().unwrap().to_string(), text);
        let text = "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=dhcp,ip6=manual,type=veth";
        assert_eq!(text.parse::<ContainerNet>().unwrap().to_string(), text);
        assert_eq!("nesting=1".parse::<Features>().unwrap().nesting, Some(true));
    }
}
