//! Every option of a VM's configuration: how it is checked, what it needs, how it is shown.
//!
//! The declarations in [`qemu`] serve `POST /nodes/{node}/qemu` and both config calls; [`need`] says
//! which privilege a change takes; [`hotplug`] says what happens on a running guest.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::formats::{self, Bus};
use super::patterns;
use crate::release::Release;
use crate::schema::{Format, Kind, Param, Schema, choice, flag, format, int, number, text};

const CPUSET: Format = Format::One(patterns::cpuset);
const BOOT: Format = Format::One(patterns::boot);
const HOTPLUG: Format = Format::One(patterns::hotplug);
const VOLUME: Format = Format::One(formats::volume_id);

/// Values of the configuration's own lock.
pub(crate) const LOCKS: &[&str] = &[
    "backup",
    "clone",
    "create",
    "migrate",
    "rollback",
    "snapshot",
    "snapshot-delete",
    "suspending",
    "suspended",
];

/// Declares all options of a VM.
pub(crate) fn qemu(release: Release) -> Vec<Param> {
    let mut all = flags(release);
    all.extend(words(release));
    all.extend(numbers());
    all.extend(devices(release));
    all.into_iter().map(Param::optional).collect()
}

fn flags(release: Release) -> Vec<Param> {
    let mut all: Vec<Param> = [
        "acpi",
        "autostart",
        "ciupgrade",
        "freeze",
        "keephugepages",
        "kvm",
        "localtime",
        "numa",
        "onboot",
        "protection",
        "reboot",
        "tablet",
        "tdf",
        "template",
    ]
    .map(flag)
    .into();
    if release.is_9() {
        all.push(flag("allow-ksm"));
    }
    all
}

fn words(release: Release) -> Vec<Param> {
    let mut all = vec![
        text("affinity").format(CPUSET),
        text("agent").property(&formats::agent(release)),
        text("amd-sev").property(&formats::small("amd-sev")),
        choice("arch", &["x86_64", "aarch64"]),
        text("args"),
        text("audio0").property(&formats::small("audio0")),
        choice("bios", &["seabios", "ovmf"]),
        text("boot").format(BOOT),
        text("bootdisk").pattern(patterns::boot_disk),
        text("cdrom").property(&formats::drive(Bus::Ide, release)),
        text("cicustom").property(&formats::small("cicustom")),
        text("cipassword"),
        choice("citype", &["configdrive2", "nocloud", "opennebula"]),
        text("ciuser"),
        text("cpu").property(&formats::cpu()),
        text("description").max_len(8192),
        text("hookscript").format(VOLUME),
        text("hotplug").format(HOTPLUG),
        choice("hugepages", &["any", "2", "1024"]),
        text("ivshmem").property(&formats::small("ivshmem")),
        choice(
            "keyboard",
            &[
                "de", "de-ch", "da", "en-gb", "en-us", "es", "fi", "fr", "fr-be", "fr-ca", "fr-ch",
                "hu", "is", "it", "ja", "lt", "mk", "nl", "no", "pl", "pt", "pt-br", "sv", "sl",
                "tr",
            ],
        ),
        choice("lock", LOCKS),
        text("machine").property(&formats::machine(release)),
        text("memory").property(&formats::memory()),
        text("name").format(format::DNS_NAME),
        text("nameserver").format(format::ADDRESS_LIST),
        choice(
            "ostype",
            &[
                "other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11",
                "l24", "l26", "solaris",
            ],
        ),
        text("rng0").property(&formats::small("rng0")),
        choice(
            "scsihw",
            &[
                "lsi",
                "lsi53c810",
                "virtio-scsi-pci",
                "virtio-scsi-single",
                "megasas",
                "pvscsi",
            ],
        ),
        text("searchdomain"),
        text("smbios1").property(&formats::smbios1()).max_len(512),
        text("spice_enhancements").property(&formats::small("spice_enhancements")),
        text("sshkeys").format(format::URLENCODED),
        text("startdate").pattern(patterns::start_date),
        text("startup").property(&formats::small("startup")),
        text("tags").format(format::TAG_LIST),
        text("vga").property(&formats::vga()),
        text("vmgenid").pattern(patterns::vmgenid),
        text("vmstatestorage").format(format::STORAGE),
        text("watchdog").property(&formats::small("watchdog")),
    ];
    if release.is_9() {
        all.push(text("intel-tdx").property(&formats::small("intel-tdx")));
    }
    all
}

fn numbers() -> Vec<Param> {
    vec![
        int("balloon").min(0),
        int("cores").min(1),
        number("cpulimit").min(0).max(128),
        int("cpuunits").min(1).max(262_144),
        number("migrate_downtime").min(0),
        int("migrate_speed").min(0),
        int("shares").min(0).max(50_000),
        int("smp").min(1),
        int("sockets").min(1),
        int("vcpus").min(1),
    ]
}

fn devices(release: Release) -> Vec<Param> {
    vec![
        text("efidisk0").property(&formats::drive(Bus::Efi, release)),
        text("tpmstate0").property(&formats::drive(Bus::Tpm, release)),
        text("ide")
            .property(&formats::drive(Bus::Ide, release))
            .indexed(4),
        text("sata")
            .property(&formats::drive(Bus::Sata, release))
            .indexed(6),
        text("scsi")
            .property(&formats::drive(Bus::Scsi, release))
            .indexed(31),
        text("virtio")
            .property(&formats::drive(Bus::Virtio, release))
            .indexed(16),
        text("unused").property(&formats::unused()).indexed(256),
        text("net").property(&formats::net(release)).indexed(32),
        text("ipconfig").property(&formats::ipconfig()).indexed(32),
        text("numa").property(&formats::numa()).indexed(8),
        text("hostpci").property(&formats::hostpci()).indexed(16),
        text("usb").property(&formats::usb()).indexed(14),
        text("serial").pattern(patterns::serial).indexed(4),
        text("parallel").pattern(patterns::parallel).indexed(3),
        text("virtiofs").property(&formats::virtiofs()).indexed(10),
    ]
}

static KNOWN: LazyLock<Schema> = LazyLock::new(|| Schema::new(qemu(Release::V9_2)));

/// Whether this is an option of a VM's configuration.
pub(crate) fn is_option(name: &str) -> bool {
    KNOWN.knows(name)
}

/// Options whose values are numbers in answers: everything PVE declares integer or boolean.
static NUMERIC: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut names: BTreeSet<String> = flags(Release::V9_2)
        .into_iter()
        .chain(numbers())
        .map(|param| param.name().to_owned())
        .filter(|name| matches!(KNOWN.kind(name), Some(Kind::Integer | Kind::Boolean)))
        .collect();
    names.insert("snaptime".to_owned());
    names
});

/// Whether answers show the option as a number.
pub(crate) fn is_numeric(option: &str) -> bool {
    NUMERIC.contains(option)
}

/// `scsi12` → (`scsi`, 12).
pub(crate) fn indexed(option: &str) -> Option<(&str, u32)> {
    let at = option.find(|c: char| c.is_ascii_digit())?;
    let (name, digits) = option.split_at(at);
    Some((name, digits.parse().ok()?))
}

/// Whether the option is a drive, the two special disks included.
pub(crate) fn is_drive(option: &str) -> bool {
    option == "efidisk0" || option == "tpmstate0" || is_disk(option)
}

/// Whether the option is a drive on one of the four controllers.
pub(crate) fn is_disk(option: &str) -> bool {
    matches!(
        indexed(option),
        Some(("ide", 0..=3) | ("sata", 0..=5) | ("scsi", 0..=30) | ("virtio", 0..=15))
    )
}

/// Whether the option is of the numbered family `name`.
pub(crate) fn is(option: &str, family: &str) -> bool {
    indexed(option).is_some_and(|(name, _)| name == family)
}

/// What a change of an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// All of these privileges on the guest.
    Privilege(&'static str),
    /// One of these privileges on the guest.
    Either(&'static [&'static str]),
    /// `VM.Config.Options`, and `Sys.Modify` on `/`: it changes how the host starts.
    Startup,
    /// Decided by the value: drives, devices, tags, random number generator.
    ByValue,
    /// `root@pam` with a ticket.
    Root,
}

/// The privilege an option takes.
pub(crate) fn need(option: &str) -> Need {
    match option {
        "cores" | "cpu" | "cpulimit" | "cpuunits" | "numa" | "smp" | "sockets" | "vcpus" => {
            Need::Privilege("VM.Config.CPU")
        }
        "memory" | "balloon" | "shares" | "allow-ksm" => Need::Privilege("VM.Config.Memory"),
        "acpi" | "hotplug" | "kvm" | "machine" | "scsihw" | "smbios1" | "tablet" | "vga"
        | "watchdog" | "audio0" => Need::Privilege("VM.Config.HWType"),
        "startup" => Need::Startup,
        "agent" | "autostart" | "bios" | "description" | "keyboard" | "localtime"
        | "migrate_downtime" | "migrate_speed" | "name" | "onboot" | "ostype" | "protection"
        | "reboot" | "startdate" | "tdf" | "template" | "vmgenid" => {
            Need::Privilege("VM.Config.Options")
        }
        "freeze" => Need::Privilege("VM.PowerMgmt"),
        "boot" | "bootdisk" | "vmstatestorage" => Need::Privilege("VM.Config.Disk"),
        "cicustom" | "cipassword" | "citype" | "ciuser" | "ciupgrade" | "nameserver"
        | "searchdomain" | "sshkeys" => CLOUD_INIT,
        "tags" | "cdrom" | "rng0" => Need::ByValue,
        _ if is_drive(option) => Need::ByValue,
        _ => match indexed(option).map(|(name, _)| name) {
            Some("unused" | "serial" | "usb" | "hostpci" | "virtiofs") => Need::ByValue,
            Some("numa") => Need::Privilege("VM.Config.CPU"),
            Some("net") => Need::Privilege("VM.Config.Network"),
            Some("ipconfig") => CLOUD_INIT,
            _ => Need::Root,
        },
    }
}

const CLOUD_INIT: Need = Need::Either(&["VM.Config.Cloudinit", "VM.Config.Network"]);

/// When a change of an option of a running guest takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plug {
    /// At once, always: PVE itself uses it, not the machine.
    AtOnce,
    /// At once, if this hotplug feature is on.
    Feature(&'static str),
    /// At the next cold start.
    Later,
}

/// When a change of `option` takes effect on a running guest.
pub(crate) fn hotplug(option: &str) -> Plug {
    match option {
        "lock" | "name" | "onboot" | "shares" | "startup" | "description" | "protection"
        | "vmstatestorage" | "hookscript" | "tags" | "migrate_downtime" | "migrate_speed"
        | "cpulimit" | "cpuunits" | "balloon" | "autostart" => Plug::AtOnce,
        _ if is_cloud_init(option) => Plug::AtOnce,
        "vcpus" => Plug::Feature("cpu"),
        "memory" => Plug::Feature("memory"),
        "tablet" => Plug::Feature("usb"),
        _ => match indexed(option).map(|(name, _)| name) {
            Some("net") => Plug::Feature("network"),
            Some("scsi" | "virtio") => Plug::Feature("disk"),
            Some("usb") => Plug::Feature("usb"),
            Some("unused") => Plug::AtOnce,
            _ => Plug::Later,
        },
    }
}

/// Whether the option only feeds the cloud-init drive.
pub(crate) fn is_cloud_init(option: &str) -> bool {
    matches!(
        option,
        "cicustom"
            | "cipassword"
            | "citype"
            | "ciuser"
            | "ciupgrade"
            | "nameserver"
            | "searchdomain"
            | "sshkeys"
    ) || is(option, "ipconfig")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;

    fn errors(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
        let schema = Schema::new(qemu(Release::V9_2));
        let mut params = Params::new();
        for (name, value) in pairs {
            params.set(*name, *value);
        }
        schema
            .check(&mut params, Release::V9_2)
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn texts_of_refused_values_are_pves() {
        let found = errors(&[
            ("memory", "abc"),
            ("scsi0", "foo=1"),
            ("ipconfig0", "ip=10.0.0.5"),
            ("ipconfig1", "gw=10.0.0.1"),
            ("affinity", "abc"),
            ("virtiofs0", "d"),
            ("sshkeys", "ssh-ed25519 AAAA plain"),
        ]);
        assert_eq!(
            found["memory"],
            "invalid format - format error\nmemory.current: type check ('integer') failed - got 'abc'\n"
        );
        assert_eq!(
            found["scsi0"],
            "invalid format - format error\nscsi0.foo: property is not defined in schema and the schema does not allow additional properties\nscsi0.file: property is missing and it is not optional\n"
        );
        assert_eq!(
            found["ipconfig0"],
            "invalid format - format error\nipconfig0.ip: invalid format - value does not look like a valid ipv4 network configuration\n\n"
        );
        assert_eq!(
            found["ipconfig1"],
            "invalid format - format error\nipconfig1.ip: missing property required by 'ipconfig1.gw'\n"
        );
        assert_eq!(
            found["affinity"],
            "invalid format - unable to parse cpuset option\n"
        );
        assert_eq!(
            found["virtiofs0"],
            "invalid format - format error\nvirtiofs0.dirid: invalid format - invalid configuration ID 'd'\n\n"
        );
        assert!(found["sshkeys"].starts_with("invalid format - invalid urlencoded string"));
    }

    #[test]
    fn a_whole_machine_passes() {
        let found = errors(&[
            ("scsi0", "dir2:1,format=qcow2,discard=on,iothread=1,ssd=1"),
            ("ide2", "dir2:cloudinit"),
            ("net0", "virtio,bridge=vmbr0,firewall=1"),
            ("efidisk0", "dir2:1,efitype=4m,pre-enrolled-keys=0"),
            ("tpmstate0", "dir2:1,version=v2.0"),
            ("agent", "enabled=1,fstrim_cloned_disks=1"),
            ("numa0", "cpus=0-1,hostnodes=0,memory=512,policy=bind"),
            ("cpu", "x86-64-v2-AES"),
            ("boot", "order=scsi0;ide2;net0"),
            ("smbios1", "uuid=5026e7e8-67ff-40af-9dda-c74c3912ed10"),
            ("ide3", "none,media=cdrom"),
            ("tags", "b;a,c B"),
        ]);
        assert_eq!(found, std::collections::BTreeMap::new());
    }

    #[test]
    fn what_pve_calls_integer_or_boolean_is_shown_as_a_number() {
        for name in [
            "cores", "onboot", "kvm", "template", "cpuunits", "balloon", "snaptime",
        ] {
            assert!(is_numeric(name), "{name}");
        }
        for name in ["memory", "cpulimit", "agent", "cpu", "numa0", "name"] {
            assert!(!is_numeric(name), "{name}");
        }
    }

    #[test]
    fn pinning_is_for_root_and_numa_is_not() {
        assert_eq!(need("affinity"), Need::Root);
        assert_eq!(need("hugepages"), Need::Root);
        assert_eq!(need("lock"), Need::Root);
        assert_eq!(need("args"), Need::Root);
        assert_eq!(need("numa0"), Need::Privilege("VM.Config.CPU"));
        assert_eq!(need("numa"), Need::Privilege("VM.Config.CPU"));
    }
}
