//! Containers: what differs from VMs.
//!
//! A container has no firmware, controllers or agent. Its disks are `rootfs` and `mpN`, its system
//! comes from a template archive, its network from its configuration, and its addresses can be asked
//! for without anything inside helping.

pub(crate) mod api;
mod change;
pub(crate) mod clone;
pub(crate) mod create;
pub(crate) mod options;
pub(crate) mod power;
pub(crate) mod volumes;

use super::Kind;
use super::config::Options;
use super::formats::{CT_NET, MOUNT, NET};
use crate::schema::property::Values;
use crate::storage::split_volid;
use crate::world::World;

/// Whether the option is a disk of a container.
pub(crate) fn is_mount(option: &str) -> bool {
    option == "rootfs" || super::options::is(option, "mp")
}

/// Volumes behind `rootfs` and `mpN`, in that order.
pub(crate) fn volumes(options: &Options) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = options
        .iter()
        .filter(|(name, _)| is_mount(name))
        .filter_map(|(name, value)| {
            let volume = MOUNT.parse(value).get("volume").cloned()?;
            split_volid(&volume)?;
            Some((name.clone(), volume))
        })
        .collect();
    all.sort_by_key(|(name, _)| name != "rootfs");
    all
}

/// A mount point with another volume behind it.
pub(crate) fn with_volume(value: &str, volid: &str) -> String {
    let mut values = MOUNT.parse(value);
    values.insert("volume".to_owned(), volid.to_owned());
    print_mount(&values)
}

/// Prints a mount point: volume, place, and the rest in order.
pub(crate) fn print_mount(values: &Values) -> String {
    let mut parts: Vec<String> = values.get("volume").cloned().into_iter().collect();
    parts.extend(values.get("mp").map(|mp| format!("mp={mp}")));
    let rest = values
        .iter()
        .filter(|(key, _)| *key != "volume" && *key != "mp");
    parts.extend(rest.map(|(key, value)| format!("{key}={value}")));
    parts.join(",")
}

/// Prints a network card: its name, and the rest in order.
pub(crate) fn print_net(values: &Values) -> String {
    let mut parts: Vec<String> = values
        .get("name")
        .map(|name| format!("name={name}"))
        .into_iter()
        .collect();
    let rest = values.iter().filter(|(key, _)| *key != "name");
    parts.extend(rest.map(|(key, value)| format!("{key}={value}")));
    parts.join(",")
}

/// Gives every card without a hardware address one.
pub(crate) fn random_macs(world: &mut World, options: &mut Options) {
    for (name, value) in options.iter_mut() {
        if super::options::is(name, "net") {
            let mut values = CT_NET.parse(value);
            if !values.contains_key("hwaddr") {
                let mac = super::create::random_mac(world);
                values.insert("hwaddr".to_owned(), mac);
            }
            values
                .entry("type".to_owned())
                .or_insert_with(|| "veth".to_owned());
            *value = print_net(&values);
        }
    }
}

/// A card that will get a new address.
pub(crate) fn without_mac(kind: Kind, value: &str) -> String {
    match kind {
        Kind::Qemu => {
            let mut values = NET.parse(value);
            values.remove("macaddr");
            NET.print(&values)
        }
        Kind::Lxc => {
            let mut values = CT_NET.parse(value);
            values.remove("hwaddr");
            print_net(&values)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_and_mount_points_print_what_is_required_first() {
        let net = CT_NET.parse("bridge=vmbr0,name=eth0,ip=dhcp");
        assert_eq!(print_net(&net), "name=eth0,bridge=vmbr0,ip=dhcp");
        let mount = MOUNT.parse("local-lvm:vm-200-disk-1,backup=1,mp=/data,size=8G");
        assert_eq!(
            print_mount(&mount),
            "local-lvm:vm-200-disk-1,mp=/data,backup=1,size=8G"
        );
    }
}
