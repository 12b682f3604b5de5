//! What holds for every property string.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use proptest::prelude::*;

use super::*;

/// Items as they occur: known sub-keys with values of all kinds, unknown ones, and ones without a key.
fn text() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        4 => prop::sample::select(vec![
            "file", "volume", "size", "discard", "iothread", "ssd", "import-from", "mbps", "iops", "media",
            "virtio", "e1000", "model", "macaddr", "bridge", "tag", "trunks", "firewall", "rate", "ip", "gw",
            "ip6", "gw6", "cpus", "hostnodes", "memory", "policy", "enabled", "type", "uuid", "serial",
            "cputype", "flags", "host", "mapping", "pcie", "source", "order", "up", "legacy", "nesting", "mp",
        ]).prop_map(str::to_owned),
        1 => "[a-z][a-z0-9_-]{0,8}",
    ];
    let value = prop_oneof![
        prop::sample::select(vec![
            "0",
            "1",
            "on",
            "yes",
            "32G",
            "1.5M",
            "528K",
            "local:8",
            "local-lvm:vm-100-disk-0",
            "none",
            "cdrom",
            "tank:cloudinit",
            "BC:24:11:00:00:01",
            "bc:24:11:aa:bb:cc",
            "vmbr0",
            "5;7",
            "0-1;4",
            "dhcp",
            "auto",
            "10.0.0.1/24",
            "10.0.0.1",
            "fd00::1/64",
            "fd00::1",
            "bind",
            "b1e5b0a4-0d7e-4b5e-9b5e-0123456789ab",
            "ds=nocloud;h=web",
            "/dev/urandom",
            "+aes;-pcid",
            "virtio",
            "scsi0;net0",
            "0.5",
            "512",
        ])
        .prop_map(str::to_owned),
        "[ -+\\--~]{0,12}",
    ];
    let item = (prop::option::weighted(0.8, key), value)
        .prop_map(|(key, value)| key.map_or(value.clone(), |key| format!("{key}={value}")));
    prop::collection::vec(item, 0..5).prop_map(|items| items.join(","))
}

/// Reading what was printed gives the same value, and printing it again the same text.
fn holds_for<T>(text: &str)
where
    T: FromStr<Err = Error> + Display + Debug + PartialEq,
{
    let Ok(value) = text.parse::<T>() else { return };
    let printed = value.to_string();
    let again = printed.parse::<T>();
    assert_eq!(
        again.as_ref(),
        Ok(&value),
        "{text} was printed as {printed}"
    );
    assert_eq!(
        again.map(|value| value.to_string()).as_ref(),
        Ok(&printed),
        "{text}"
    );
}

fn holds_for_all(text: &str) {
    holds_for::<Disk>(text);
    holds_for::<EfiDisk>(text);
    holds_for::<TpmState>(text);
    holds_for::<Net>(text);
    holds_for::<IpConfig>(text);
    holds_for::<Agent>(text);
    holds_for::<Smbios>(text);
    holds_for::<Cpu>(text);
    holds_for::<Numa>(text);
    holds_for::<Boot>(text);
    holds_for::<Startup>(text);
    holds_for::<CiCustom>(text);
    holds_for::<Machine>(text);
    holds_for::<HostPci>(text);
    holds_for::<Usb>(text);
    holds_for::<VirtioFs>(text);
    holds_for::<super::Rng>(text);
    holds_for::<Vga>(text);
    holds_for::<Watchdog>(text);
    holds_for::<Audio>(text);
    holds_for::<MountPoint>(text);
    holds_for::<ContainerNet>(text);
    holds_for::<Features>(text);
    holds_for::<Size>(text);
}

proptest! {
    #[test]
    fn printing_is_undone_by_reading(text in text()) {
        holds_for_all(&text);
    }

    #[test]
    fn no_text_makes_reading_panic(text: String) {
        holds_for_all(&text);
    }

    #[test]
    fn unknown_sub_keys_survive(key in "x[a-z]{1,8}", value in "[a-zA-Z0-9:/._=;-]{1,12}") {
        let disk: Disk = format!("local:8,{key}={value},ssd=1").parse().unwrap();
        prop_assert_eq!(disk.other.get(&key), Some(value.as_str()));
        prop_assert_eq!(disk.to_string(), format!("local:8,ssd=1,{key}={value}"));
    }

    #[test]
    fn what_the_server_prints_is_printed_the_same(
        disk in "(local|tank):vm-[1-9]{3}-disk-[0-9](,cache=none)?(,discard=on)?(,iothread=1)?(,size=[1-9][0-9]{0,2}[KMG])?(,ssd=1)?",
        net in "virtio=BC:24:11:[0-9A-F]{2}:00:01,bridge=vmbr[0-9](,firewall=1)?(,mtu=1500)?(,tag=[1-9][0-9]{1,2})?",
    ) {
        prop_assert_eq!(disk.parse::<Disk>().unwrap().to_string(), disk);
        prop_assert_eq!(net.parse::<Net>().unwrap().to_string(), net);
    }
}

#[test]
fn a_sub_key_is_never_printed_twice() {
    let mut disk: Disk = "local:8,size=4G,foo=1".parse().unwrap();
    disk.other.set("size", Word::new("9G").unwrap()).unwrap();
    disk.other.set("file", Word::new("else").unwrap()).unwrap();
    disk.other.set("bar", Word::new("2").unwrap()).unwrap();
    let printed = disk.to_string();
    assert_eq!(printed.matches("size=").count(), 1, "{printed}");
    assert_eq!(printed.parse::<Disk>().unwrap().size, disk.size);
}
