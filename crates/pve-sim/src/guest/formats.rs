//! Property strings of guest options: drives, network cards, `ipconfigN`, `numaN` and the rest.
//!
//! Each function declares one format for a release; [`DRIVE`], [`NET`] and [`CT_NET`] are used to
//! take stored values apart and to print them again.

use std::sync::{Arc, LazyLock};

use super::patterns;
use crate::release::Release;
use crate::schema::property::{Format, Values};
use crate::schema::{self, Param, choice, flag, format, int, number, text};

/// The controllers a disk can be on, and the two special disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bus {
    Ide,
    Sata,
    Scsi,
    Virtio,
    Efi,
    Tpm,
}

/// Parses and prints any drive.
pub(crate) static DRIVE: LazyLock<Format> =
    LazyLock::new(|| drive_format(Bus::Scsi, Release::V9_2));
/// Parses and prints `netN` of a VM.
pub(crate) static NET: LazyLock<Format> = LazyLock::new(|| net_format(Release::V9_2));
/// Parses and prints `netN` of a container.
pub(crate) static CT_NET: LazyLock<Format> = LazyLock::new(|| ct_net_format(Release::V9_2));
/// Parses and prints `rootfs` and `mpN` of a container.
pub(crate) static MOUNT: LazyLock<Format> = LazyLock::new(|| mount_format(true, Release::V9_2));
/// Parses `ipconfigN`.
pub(crate) static IPCONFIG: LazyLock<Format> = LazyLock::new(ipconfig_format);
/// Parses `agent`.
pub(crate) static AGENT: LazyLock<Format> = LazyLock::new(|| agent_format(Release::V9_2));
/// Parses `features` of a container.
pub(crate) static FEATURES: LazyLock<Format> = LazyLock::new(features_format);
/// Parses `numaN`.
pub(crate) static NUMA: LazyLock<Format> = LazyLock::new(numa_format);

const MODELS: [&str; 14] = [
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "virtio",
    "vmxnet3",
];

const DISK_SIZE: schema::Format = schema::Format::One(disk_size);
const DRIVE_FILE: schema::Format = schema::Format::One(drive_file);
const IMPORT_SOURCE: schema::Format = schema::Format::One(import_source);
const VOLUME_ID: schema::Format = schema::Format::One(volume_id);

fn disk_size(value: &str) -> Result<(), String> {
    if super::size::parse(value).is_some() {
        Ok(())
    } else {
        Err(format!(
            "value does not look like a valid disk size: {value}"
        ))
    }
}

/// A volume id, `none`, `cdrom`, or an absolute path.
fn drive_file(value: &str) -> Result<(), String> {
    if value == "none" || value == "cdrom" || value.starts_with('/') {
        return Ok(());
    }
    volume_id(value)
}

fn import_source(value: &str) -> Result<(), String> {
    if value.starts_with('/') {
        Ok(())
    } else {
        volume_id(value)
    }
}

pub(crate) fn volume_id(value: &str) -> Result<(), String> {
    if crate::storage::split_volid(value).is_some() {
        Ok(())
    } else {
        Err(format!("unable to parse volume ID '{value}'\n"))
    }
}

/// The format of a drive on `bus`.
pub(crate) fn drive(bus: Bus, release: Release) -> Arc<Format> {
    drive_format(bus, release).shared()
}

fn drive_format(bus: Bus, release: Release) -> Format {
    let mut keys = vec![
        text("file").format(DRIVE_FILE),
        text("import-from").format(IMPORT_SOURCE).optional(),
        text("size").format(DISK_SIZE).optional(),
    ];
    let images = &["raw", "qcow", "qed", "qcow2", "vmdk", "cloop"];
    match bus {
        Bus::Efi => {
            keys.push(choice("format", images).optional());
            keys.push(choice("efitype", &["2m", "4m"]).optional());
            keys.push(flag("pre-enrolled-keys"));
            if release.is_9() {
                keys.push(choice("ms-cert", &["2011", "2023", "2023w", "2023k"]).optional());
            }
        }
        Bus::Tpm => {
            keys.push(choice("version", &["v1.2", "v2.0"]).optional());
            if release.is_9() {
                keys.push(choice("format", &["raw", "qcow2", "vmdk"]).optional());
            }
        }
        Bus::Ide | Bus::Sata | Bus::Scsi | Bus::Virtio => {
            keys.push(choice("format", images).optional());
            keys.extend(disk_keys(bus, release));
        }
    }
    let mut format = Format::new(keys)
        .default_key("file")
        .alias("volume", "file");
    for (alias, key) in [
        ("bps_rd_length", "bps_rd_max_length"),
        ("bps_wr_length", "bps_wr_max_length"),
        ("iops_rd_length", "iops_rd_max_length"),
        ("iops_wr_length", "iops_wr_max_length"),
    ] {
        format = format.alias(alias, key);
    }
    format
}

fn disk_keys(bus: Bus, release: Release) -> Vec<Param> {
    let mut keys = vec![
        choice("aio", &["native", "threads", "io_uring"]).optional(),
        choice(
            "cache",
            &["none", "writethrough", "writeback", "unsafe", "directsync"],
        )
        .optional(),
        choice("discard", &["ignore", "on"]).optional(),
        choice("media", &["cdrom", "disk"]).optional(),
        choice("rerror", &["ignore", "report", "stop"]).optional(),
        choice("werror", &["enospc", "ignore", "report", "stop"]).optional(),
        text("serial")
            .format(format::URLENCODED)
            .max_len(60)
            .optional(),
    ];
    keys.extend(["backup", "detect_zeroes", "replicate", "shared", "snapshot"].map(flag));
    keys.extend(
        [
            "bps",
            "bps_rd",
            "bps_wr",
            "iops",
            "iops_max",
            "iops_rd",
            "iops_rd_max",
            "iops_wr",
            "iops_wr_max",
        ]
        .map(|name| int(name).optional()),
    );
    keys.extend(
        [
            "bps_max_length",
            "bps_rd_max_length",
            "bps_wr_max_length",
            "iops_max_length",
            "iops_rd_max_length",
            "iops_wr_max_length",
        ]
        .map(|name| int(name).min(1).optional()),
    );
    keys.extend(
        [
            "mbps",
            "mbps_max",
            "mbps_rd",
            "mbps_rd_max",
            "mbps_wr",
            "mbps_wr_max",
        ]
        .map(|name| number(name).optional()),
    );
    if !release.is_9() {
        keys.extend(["cyls", "heads", "secs"].map(|name| int(name).optional()));
        keys.push(choice("trans", &["none", "lba", "auto"]).optional());
    }
    if bus != Bus::Virtio {
        keys.push(flag("ssd"));
        keys.push(text("wwn").pattern(patterns::wwn).optional());
    }
    match bus {
        Bus::Ide => keys.push(
            text("model")
                .format(format::URLENCODED)
                .max_len(120)
                .optional(),
        ),
        Bus::Scsi => {
            keys.extend(["iothread", "ro", "scsiblock"].map(flag));
            keys.push(int("queues").min(2).optional());
            keys.push(
                text("product")
                    .pattern(|v| patterns::scsi_word(v, 16))
                    .optional(),
            );
            keys.push(
                text("vendor")
                    .pattern(|v| patterns::scsi_word(v, 8))
                    .optional(),
            );
        }
        Bus::Virtio => keys.extend(["iothread", "ro"].map(flag)),
        Bus::Sata | Bus::Efi | Bus::Tpm => {}
    }
    keys
}

/// `unusedN` of a VM.
pub(crate) fn unused() -> Arc<Format> {
    Format::new([text("file").format(VOLUME_ID)])
        .default_key("file")
        .alias("volume", "file")
        .shared()
}

/// `unusedN` of a container.
pub(crate) fn ct_unused() -> Arc<Format> {
    Format::new([text("volume").format(VOLUME_ID)])
        .default_key("volume")
        .shared()
}

/// `netN` of a VM.
pub(crate) fn net(release: Release) -> Arc<Format> {
    net_format(release).shared()
}

fn net_format(release: Release) -> Format {
    let mut keys = vec![
        choice("model", &MODELS),
        text("macaddr").format(format::MAC).optional(),
        text("bridge").format(format::BRIDGE).optional(),
        flag("firewall"),
        flag("link_down"),
        int("mtu").min(1).max(65520).optional(),
        int("queues").min(0).max(64).optional(),
        number("rate").min(0).optional(),
        int("tag").min(1).max(4094).optional(),
        text("trunks").pattern(patterns::ranges).optional(),
    ];
    if release.is_9() {
        keys.push(flag("host-tunnel"));
    }
    Format::new(keys)
        .default_key("model")
        .key_alias(&MODELS, "model", "macaddr")
}

/// `ipconfigN`.
pub(crate) fn ipconfig() -> Arc<Format> {
    ipconfig_format().shared()
}

fn ipconfig_format() -> Format {
    Format::new([
        text("ip").format(format::IPV4_CONFIG).optional(),
        text("gw").format(format::IPV4).requires("ip").optional(),
        text("ip6").format(format::IPV6_CONFIG).optional(),
        text("gw6").format(format::IPV6).requires("ip6").optional(),
    ])
}

/// `agent`.
pub(crate) fn agent(release: Release) -> Arc<Format> {
    agent_format(release).shared()
}

fn agent_format(release: Release) -> Format {
    let mut keys = vec![
        flag("enabled").required(),
        flag("fstrim_cloned_disks"),
        choice("type", &["virtio", "isa"]).optional(),
    ];
    if release.is_9() {
        keys.push(flag("freeze-fs"));
        Format::new(keys)
            .default_key("enabled")
            .alias("freeze-fs-on-backup", "freeze-fs")
            .alias("guest-fsfreeze", "freeze-fs")
    } else {
        keys.push(flag("freeze-fs-on-backup"));
        Format::new(keys).default_key("enabled")
    }
}

/// `numaN`.
pub(crate) fn numa() -> Arc<Format> {
    numa_format().shared()
}

fn numa_format() -> Format {
    Format::new([
        text("cpus").pattern(patterns::ranges),
        text("hostnodes").pattern(patterns::ranges).optional(),
        number("memory").optional(),
        choice("policy", &["preferred", "bind", "interleave"]).optional(),
    ])
}

/// `machine`.
pub(crate) fn machine(release: Release) -> Arc<Format> {
    let mut keys = vec![
        text("type")
            .pattern(patterns::machine)
            .max_len(40)
            .optional(),
        choice("viommu", &["intel", "virtio"]).optional(),
        flag("enable-s3"),
        flag("enable-s4"),
    ];
    if release.is_9() {
        keys.push(number("aw-bits").min(32).max(64).optional());
    }
    Format::new(keys).default_key("type").shared()
}

/// `memory`.
pub(crate) fn memory() -> Arc<Format> {
    Format::new([int("current").min(16)])
        .default_key("current")
        .shared()
}

/// `cpu`.
pub(crate) fn cpu() -> Arc<Format> {
    Format::new([
        text("cputype").optional(),
        text("flags").pattern(patterns::cpu_flags).optional(),
        flag("hidden"),
        text("hv-vendor-id").pattern(patterns::hv_vendor).optional(),
        text("phys-bits").pattern(patterns::phys_bits).optional(),
        int("guest-phys-bits").min(32).max(64).optional(),
        choice("reported-model", patterns::REPORTED_MODELS).optional(),
    ])
    .default_key("cputype")
    .together(vm_cpu)
    .shared()
}

/// A VM names a processor that there is, and changes only what is a VM's business.
fn vm_cpu(values: &Values, release: Release) -> Result<(), String> {
    let Some(model) = values.get("cputype") else {
        return Err("CPU is missing cputype".to_owned());
    };
    if let Some(custom) = model.strip_prefix("custom-") {
        return Err(format!("Custom cputype '{custom}' not found"));
    }
    if !patterns::CPU_MODELS.contains(&model.as_str()) {
        return Err(format!(
            "Built-in cputype '{model}' is not defined (missing 'custom-' prefix?)"
        ));
    }
    let known = patterns::vm_cpu_flags(release);
    let flags = values.get("flags").map(String::as_str).unwrap_or_default();
    let fits = |flag: &str| known.contains(&flag.trim_start_matches(['+', '-']));
    if !flags.is_empty() && !flags.split(';').all(fits) {
        return Err(format!(
            "VM-specific CPU flags must be a subset of: {}",
            known.join(", ")
        ));
    }
    if values.contains_key("reported-model") {
        let text = "Property 'reported-model' not allowed in VM-specific CPU config.";
        return Err(text.to_owned());
    }
    Ok(())
}

/// `vga`.
pub(crate) fn vga() -> Arc<Format> {
    Format::new([
        choice(
            "type",
            &[
                "cirrus",
                "qxl",
                "qxl2",
                "qxl3",
                "qxl4",
                "none",
                "serial0",
                "serial1",
                "serial2",
                "serial3",
                "std",
                "virtio",
                "virtio-gl",
                "vmware",
            ],
        )
        .optional(),
        int("memory").min(4).max(512).optional(),
        choice("clipboard", &["vnc"]).optional(),
    ])
    .default_key("type")
    .shared()
}

/// `smbios1`.
pub(crate) fn smbios1() -> Arc<Format> {
    let word = |name| text(name).pattern(patterns::base64ish).optional();
    Format::new([
        text("uuid").pattern(patterns::uuid).optional(),
        word("version"),
        word("serial"),
        word("manufacturer"),
        word("product"),
        word("sku"),
        word("family"),
        flag("base64"),
    ])
    .shared()
}

/// `hostpciN`.
pub(crate) fn hostpci() -> Arc<Format> {
    let id = |name| text(name).pattern(patterns::hex16).optional();
    Format::new([
        text("host").pattern(patterns::pci_hosts).optional(),
        text("mapping").format(format::CONFIG_ID).optional(),
        flag("rombar"),
        text("romfile").optional(),
        flag("pcie"),
        flag("x-vga"),
        flag("legacy-igd"),
        text("mdev").optional(),
        text("driver").optional(),
        id("vendor-id"),
        id("device-id"),
        id("sub-vendor-id"),
        id("sub-device-id"),
    ])
    .default_key("host")
    .shared()
}

/// `usbN`.
pub(crate) fn usb() -> Arc<Format> {
    Format::new([
        text("host").pattern(patterns::usb_host).optional(),
        text("mapping").format(format::CONFIG_ID).optional(),
        flag("usb3"),
    ])
    .default_key("host")
    .shared()
}

/// `virtiofsN`.
pub(crate) fn virtiofs() -> Arc<Format> {
    Format::new([
        text("dirid").format(format::CONFIG_ID),
        choice("cache", &["auto", "always", "metadata", "never"]).optional(),
        flag("direct-io"),
        flag("expose-acl"),
        flag("expose-xattr"),
    ])
    .default_key("dirid")
    .shared()
}

/// Formats with few keys, by option name.
pub(crate) fn small(option: &str) -> Arc<Format> {
    let format = match option {
        "audio0" => Format::new([
            choice("device", &["ich9-intel-hda", "intel-hda", "AC97"]),
            choice("driver", &["spice", "none"]).optional(),
        ]),
        "rng0" => Format::new([
            choice("source", &["/dev/urandom", "/dev/random", "/dev/hwrng"]),
            int("max_bytes").optional(),
            int("period").optional(),
        ])
        .default_key("source"),
        "watchdog" => Format::new([
            choice("model", &["i6300esb", "ib700"]).optional(),
            choice(
                "action",
                &["reset", "shutdown", "poweroff", "pause", "debug", "none"],
            )
            .optional(),
        ])
        .default_key("model"),
        "ivshmem" => Format::new([
            int("size").min(1),
            text("name").pattern(patterns::dashed_word).optional(),
        ]),
        "spice_enhancements" => Format::new([
            flag("foldersharing"),
            choice("videostreaming", &["off", "all", "filter"]).optional(),
        ]),
        "cicustom" => Format::new(
            ["meta", "network", "user", "vendor"]
                .map(|name| text(name).format(VOLUME_ID).optional()),
        ),
        "startup" => Format::new([
            int("order").min(0).optional(),
            int("up").min(0).optional(),
            int("down").min(0).optional(),
        ])
        .default_key("order"),
        "amd-sev" => Format::new([
            choice("type", &["std", "es", "snp"]).optional(),
            flag("no-debug"),
            flag("no-key-sharing"),
            flag("allow-smt"),
            flag("kernel-hashes"),
        ])
        .default_key("type"),
        "intel-tdx" => Format::new([choice("type", &["tdx"]).optional(), flag("attestation")])
            .default_key("type"),
        _ => Format::default(),
    };
    format.shared()
}

/// `netN` of a container.
pub(crate) fn ct_net(release: Release) -> Arc<Format> {
    ct_net_format(release).shared()
}

fn ct_net_format(release: Release) -> Format {
    let mut keys = vec![
        text("name").pattern(patterns::iface),
        text("bridge").pattern(patterns::iface).optional(),
        text("hwaddr").format(format::MAC).optional(),
        text("ip").format(format::IPV4_CONFIG).optional(),
        text("gw").format(format::IPV4).optional(),
        text("ip6").format(format::IPV6_CONFIG).optional(),
        text("gw6").format(format::IPV6).optional(),
        flag("firewall"),
        flag("link_down"),
        int("mtu").min(64).max(65535).optional(),
        number("rate").optional(),
        int("tag").min(1).max(4094).optional(),
        text("trunks").pattern(patterns::ranges).optional(),
        choice("type", &["veth"]).optional(),
    ];
    if release.is_9() {
        keys.push(flag("host-managed"));
    }
    Format::new(keys)
}

/// `rootfs` (without `mp`) and `mpN` (with it).
pub(crate) fn mount(point: bool, release: Release) -> Arc<Format> {
    mount_format(point, release).shared()
}

fn mount_format(point: bool, release: Release) -> Format {
    let mut keys = vec![
        text("volume").format(schema::Format::One(mount_source)),
        text("size").format(DISK_SIZE).optional(),
        text("mountoptions")
            .pattern(patterns::mount_options)
            .optional(),
        flag("acl"),
        flag("quota"),
        flag("replicate"),
        flag("ro"),
        flag("shared"),
    ];
    if release.is_9() {
        keys.push(text("idmap").pattern(patterns::idmap).optional());
    }
    if point {
        keys.push(text("mp").format(schema::Format::One(mount_source)));
        keys.push(flag("backup"));
        if release.is_9() {
            keys.push(flag("keepattrs"));
        }
    }
    Format::new(keys).default_key("volume")
}

fn mount_source(value: &str) -> Result<(), String> {
    if value.contains("/../") || value.starts_with("../") || value.ends_with("/..") {
        Err("path must not contain '..'".to_owned())
    } else {
        Ok(())
    }
}

/// `features` of a container.
pub(crate) fn features() -> Arc<Format> {
    features_format().shared()
}

fn features_format() -> Format {
    let mut keys: Vec<Param> = ["force_rw_sys", "fuse", "keyctl", "mknod", "nesting"]
        .map(flag)
        .into();
    keys.push(text("mount").pattern(patterns::mount_features).optional());
    Format::new(keys)
}

/// `devN` of a container.
pub(crate) fn dev() -> Arc<Format> {
    Format::new([
        text("path").optional(),
        flag("deny-write"),
        int("gid").min(0).optional(),
        int("uid").min(0).optional(),
        text("mode").pattern(patterns::mode).optional(),
    ])
    .default_key("path")
    .shared()
}
