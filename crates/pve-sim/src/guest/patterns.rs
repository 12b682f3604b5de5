//! The regular expressions of guest options, as small functions.

use crate::release::Release;

/// `\d+(-\d+)?(;\d+(-\d+)?)*`
pub(crate) fn ranges(value: &str) -> bool {
    !value.is_empty() && value.split(';').all(|part| range(part).is_some())
}

/// `3` or `0-5`.
pub(crate) fn range(part: &str) -> Option<(u32, u32)> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let number = |text: &str| {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            text.parse().ok()
        } else {
            None
        }
    };
    Some((number(first)?, number(last)?))
}

/// A host CPU list such as `0,5,8-11`.
pub(crate) fn cpuset(value: &str) -> Result<(), String> {
    let ok = !value.is_empty()
        && value
            .split(',')
            .all(|part| range(part).is_some_and(|(first, last)| first <= last));
    if ok {
        Ok(())
    } else {
        Err("unable to parse cpuset option".to_owned())
    }
}

/// `0x` and sixteen hexadecimal digits.
pub(crate) fn wwn(value: &str) -> bool {
    value
        .strip_prefix("0x")
        .is_some_and(|hex| hex.len() >= 16 && hex.bytes().take(16).all(|b| b.is_ascii_hexdigit()))
}

/// Letters, digits, `-`, `_` and blanks, at most `max`.
pub(crate) fn scsi_word(value: &str, max: usize) -> bool {
    value.len() <= max
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_ ".contains(c))
}

/// The machine types of `machine`.
pub(crate) fn machine(value: &str) -> bool {
    let versioned = |prefix: &str| {
        value.strip_prefix(prefix).is_some_and(|rest| {
            let rest = rest.strip_suffix(".pxe").unwrap_or(rest);
            let (version, pve) = rest.split_once("+pve").unwrap_or((rest, "0"));
            let numbers: Vec<&str> = version.split('.').collect();
            let digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            numbers.len() >= 2 && numbers.iter().all(digits) && digits(&pve)
        })
    };
    matches!(value, "pc" | "q35" | "virt")
        || ["pc-i440fx-", "pc-q35-", "pc-", "virt-"]
            .into_iter()
            .any(versioned)
}

/// `+flag;-flag`
pub(crate) fn cpu_flags(value: &str) -> bool {
    value.split(';').all(|flag| {
        flag.strip_prefix(['+', '-']).is_some_and(|name| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        })
    })
}

/// Up to twelve letters and digits.
pub(crate) fn hv_vendor(value: &str) -> bool {
    !value.is_empty() && value.len() <= 12 && value.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// `host` or 8 to 64.
pub(crate) fn phys_bits(value: &str) -> bool {
    value == "host"
        || value
            .parse::<u8>()
            .is_ok_and(|bits| (8..=64).contains(&bits))
}

/// A UUID in its usual form.
pub(crate) fn uuid(value: &str) -> bool {
    let lengths: Vec<usize> = value.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && value.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

/// A VM generation id: a UUID, or `1` to make one and `0` for none.
pub(crate) fn vmgenid(value: &str) -> bool {
    value == "0" || value == "1" || uuid(value)
}

/// Base64, which is also how plain words pass.
pub(crate) fn base64ish(value: &str) -> bool {
    !value.is_empty()
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c))
}

/// `0x` and four hexadecimal digits.
pub(crate) fn hex16(value: &str) -> bool {
    value
        .strip_prefix("0x")
        .is_some_and(|hex| hex.len() == 4 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// PCI addresses separated by `;`.
pub(crate) fn pci_hosts(value: &str) -> bool {
    let hex =
        |text: &str, len: usize| text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit());
    value.split(';').all(|host| {
        let host = match host.split(':').count() {
            3 => match host.split_once(':') {
                Some((domain, rest)) if hex(domain, 4) => rest,
                _ => return false,
            },
            _ => host,
        };
        host.split_once(':').is_some_and(|(bus, device)| {
            let (slot, function) = device.split_once('.').unwrap_or((device, "0"));
            hex(bus, 2) && hex(slot, 2) && hex(function, 1)
        })
    })
}

/// `1234:5678`, `1-2.3` or `spice`.
pub(crate) fn usb_host(value: &str) -> bool {
    let hex4 = |text: &str| {
        let text = text.strip_prefix("0x").unwrap_or(text);
        text.len() == 4 && text.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let port = |text: &str| {
        text.split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    value.eq_ignore_ascii_case("spice")
        || value
            .split_once(':')
            .is_some_and(|(vendor, product)| hex4(vendor) && hex4(product))
        || value
            .split_once('-')
            .is_some_and(|(bus, path)| bus.parse::<u16>().is_ok() && port(path))
}

/// `socket` or a device.
pub(crate) fn serial(value: &str) -> bool {
    value == "socket"
        || value
            .strip_prefix("/dev/")
            .is_some_and(|rest| !rest.is_empty() && !rest.contains(','))
}

/// A parallel port of the host.
pub(crate) fn parallel(value: &str) -> bool {
    ["/dev/parport", "/dev/usb/lp"].iter().any(|prefix| {
        value
            .strip_prefix(prefix)
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Letters, digits and dashes.
pub(crate) fn dashed_word(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// A drive on one of the four controllers.
pub(crate) fn boot_disk(value: &str) -> bool {
    ["ide", "sata", "scsi", "virtio"].iter().any(|bus| {
        value
            .strip_prefix(bus)
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// `now` or a date.
pub(crate) fn start_date(value: &str) -> bool {
    let numbers = |text: &str, separator: char, lengths: &[(usize, usize)]| {
        let parts: Vec<&str> = text.split(separator).collect();
        parts.len() == lengths.len()
            && parts.iter().zip(lengths).all(|(part, (min, max))| {
                (*min..=*max).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
            })
    };
    let (date, time) = value.split_once('T').unwrap_or((value, "0:0:0"));
    value == "now"
        || (numbers(date, '-', &[(4, 4), (1, 2), (1, 2)])
            && numbers(time, ':', &[(1, 2), (1, 2), (1, 2)]))
}

/// `\+?\d+(\.\d+)?[KMGT]?`
pub(crate) fn new_size(value: &str) -> bool {
    super::size::parse(value.strip_prefix('+').unwrap_or(value)).is_some()
}

/// `\d+[MG]?`
pub(crate) fn alloc_size(value: &str) -> bool {
    let digits = value.strip_suffix(['M', 'G']).unwrap_or(value);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// `[-_.\w]+`
pub(crate) fn iface(value: &str) -> bool {
    !value.is_empty()
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Mount options of a container's mount points.
pub(crate) fn mount_options(value: &str) -> bool {
    let known = [
        "discard", "lazytime", "noatime", "nodev", "noexec", "nosuid",
    ];
    value.split(';').all(|option| known.contains(&option))
}

/// File systems a container may mount.
pub(crate) fn mount_features(value: &str) -> bool {
    !value.is_empty()
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_; ".contains(c))
}

/// `passthrough` or id mappings.
pub(crate) fn idmap(value: &str) -> bool {
    value == "passthrough"
        || value.split(';').all(|entry| {
            let parts: Vec<&str> = entry.split(':').collect();
            matches!(parts.as_slice(), ["u" | "g", rest @ ..]
                if rest.len() == 3 && rest.iter().all(|n| n.parse::<u64>().is_ok()))
        })
}

/// A file mode such as `0660`.
pub(crate) fn mode(value: &str) -> bool {
    value.len() == 4 && value.starts_with('0') && value.bytes().all(|b| (b'0'..=b'7').contains(&b))
}

/// `boot`: the new `order=…` or the old letters.
pub(crate) fn boot(value: &str) -> Result<(), String> {
    if value.trim().is_empty() {
        return Ok(());
    }
    for part in value.split(',') {
        let ok = match part.split_once('=') {
            Some(("order", list)) => list.split(';').filter(|d| !d.is_empty()).all(boot_device),
            Some(("legacy", letters)) => boot_letters(letters),
            Some(_) => false,
            None => boot_letters(part),
        };
        if !ok {
            return Err(if part.starts_with("order=") {
                "format error\nboot.order: invalid format - invalid boot device\n".to_owned()
            } else {
                "invalid boot configuration".to_owned()
            });
        }
    }
    Ok(())
}

fn boot_letters(text: &str) -> bool {
    !text.is_empty() && text.len() <= 4 && text.chars().all(|c| "acdn".contains(c))
}

/// A device that may stand in a boot order.
pub(crate) fn boot_device(device: &str) -> bool {
    boot_disk(device)
        || ["net", "usb", "hostpci"].iter().any(|bus| {
            device
                .strip_prefix(bus)
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
}

/// `hotplug`: `0`, `1`, or a list of features.
pub(crate) fn hotplug(value: &str) -> Result<(), String> {
    let known = ["network", "disk", "cpu", "memory", "usb", "cloudinit"];
    let bad = value
        .split([',', ';', ' '])
        .find(|part| !matches!(*part, "" | "0" | "1") && !known.contains(part));
    match bad {
        None => Ok(()),
        Some(_) => Err("unable to parse hotplug option".to_owned()),
    }
}

/// Processor models QEMU may report to the guest.
pub(crate) const REPORTED_MODELS: &[&str] = &["kvm64", "qemu64", "max", "host"];

/// Processor models built into PVE.
pub(crate) const CPU_MODELS: &[&str] = &[
    "486",
    "Broadwell",
    "Broadwell-IBRS",
    "Broadwell-noTSX",
    "Broadwell-noTSX-IBRS",
    "Cascadelake-Server",
    "Cascadelake-Server-noTSX",
    "Cascadelake-Server-v2",
    "Cascadelake-Server-v4",
    "Cascadelake-Server-v5",
    "Conroe",
    "Cooperlake",
    "Cooperlake-v2",
    "EPYC",
    "EPYC-Genoa",
    "EPYC-IBPB",
    "EPYC-Milan",
    "EPYC-Milan-v2",
    "EPYC-Rome",
    "EPYC-Rome-v2",
    "EPYC-Rome-v3",
    "EPYC-Rome-v4",
    "EPYC-v3",
    "EPYC-v4",
    "GraniteRapids",
    "Haswell",
    "Haswell-IBRS",
    "Haswell-noTSX",
    "Haswell-noTSX-IBRS",
    "Icelake-Client",
    "Icelake-Client-noTSX",
    "Icelake-Server",
    "Icelake-Server-noTSX",
    "Icelake-Server-v3",
    "Icelake-Server-v4",
    "Icelake-Server-v5",
    "Icelake-Server-v6",
    "IvyBridge",
    "IvyBridge-IBRS",
    "KnightsMill",
    "Nehalem",
    "Nehalem-IBRS",
    "Opteron_G1",
    "Opteron_G2",
    "Opteron_G3",
    "Opteron_G4",
    "Opteron_G5",
    "Penryn",
    "SandyBridge",
    "SandyBridge-IBRS",
    "SapphireRapids",
    "SapphireRapids-v2",
    "SierraForest",
    "SierraForest-v2",
    "SierraForest-v3",
    "Skylake-Client",
    "Skylake-Client-IBRS",
    "Skylake-Client-noTSX-IBRS",
    "Skylake-Client-v4",
    "Skylake-Server",
    "Skylake-Server-IBRS",
    "Skylake-Server-noTSX-IBRS",
    "Skylake-Server-v4",
    "Skylake-Server-v5",
    "Westmere",
    "Westmere-IBRS",
    "athlon",
    "core2duo",
    "coreduo",
    "host",
    "kvm32",
    "kvm64",
    "max",
    "pentium",
    "pentium2",
    "pentium3",
    "phenom",
    "qemu32",
    "qemu64",
    "x86-64-v2",
    "x86-64-v2-AES",
    "x86-64-v3",
    "x86-64-v4",
];

/// Processor flags a VM may set by itself, in the order PVE tells them.
const VM_CPU_FLAGS: &[&str] = &[
    "aes",
    "amd-no-ssb",
    "amd-ssbd",
    "hv-evmcs",
    "hv-tlbflush",
    "ibpb",
    "md-clear",
    "nested-virt",
    "pcid",
    "pdpe1gb",
    "spec-ctrl",
    "ssbd",
    "virt-ssbd",
];
const VM_CPU_FLAGS_8: &[&str] = &[
    "pcid",
    "spec-ctrl",
    "ibpb",
    "ssbd",
    "virt-ssbd",
    "amd-ssbd",
    "amd-no-ssb",
    "pdpe1gb",
    "md-clear",
    "hv-tlbflush",
    "hv-evmcs",
    "aes",
];

/// The flags of a release.
pub(crate) fn vm_cpu_flags(release: Release) -> &'static [&'static str] {
    if release.is_9() {
        VM_CPU_FLAGS
    } else {
        VM_CPU_FLAGS_8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_values_pass_and_their_neighbours_do_not() {
        assert!(ranges("0-1;3") && !ranges("0-1,3") && !ranges(""));
        assert!(cpuset("0,5,8-11").is_ok() && cpuset("abc").is_err() && cpuset("5-2").is_err());
        assert!(machine("q35") && machine("pc-q35-9.0+pve0") && machine("pc-i440fx-8.1"));
        assert!(!machine("q36") && !machine("pc-q35-9"));
        assert!(new_size("+1G") && new_size("1.5T") && !new_size("2x"));
        assert!(alloc_size("100M") && !alloc_size("1T"));
        assert!(serial("socket") && serial("/dev/ttyS0") && !serial("tty"));
        assert!(pci_hosts("0000:00:01.0") && pci_hosts("01:00") && !pci_hosts("1:0"));
        assert!(usb_host("1234:5678") && usb_host("1-2.3") && usb_host("spice") && !usb_host("x"));
        assert!(boot("order=scsi0;net0").is_ok() && boot("cdn").is_ok() && boot("x=1").is_err());
        assert!(start_date("2026-11-15T10:00:00") && start_date("now") && !start_date("soon"));
    }
}
