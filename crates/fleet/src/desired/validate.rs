//! What can be refused before PVE is asked.

pub(super) mod together;

use pve::{GuestConfig, Release};

use super::Invalid;
use crate::{
    StorageId,
    intent::{Disk, DiskRole, GuestIntent, Hotplug, Source},
    view::{StorageRow, View},
};

/// Options only `root@pam` with a password may set.
const ROOT_ONLY_EXTRA: &[&str] = &[
    "args",
    "hookscript",
    "lock",
    "skiplock",
    "affinity",
    "hugepages",
    "arch",
    "ivshmem",
    "keephugepages",
    "spice_enhancements",
    "amd-sev",
    "intel-tdx",
];

/// Whether only root may set this key to this value.
pub(crate) fn is_root_only(key: &str, value: &str) -> bool {
    let kind = key.trim_end_matches(|c: char| c.is_ascii_digit());
    match kind {
        "hostpci" => !value.contains("mapping="),
        "usb" => !value.contains("mapping=") && !value.contains("spice"),
        "serial" => value != "socket",
        "parallel" => true,
        "rng" => value.contains("hwrng"),
        _ => ROOT_ONLY_EXTRA.contains(&key),
    }
}

/// Checks an intent by itself. `root` says whether the credentials are root's own password.
pub(crate) fn validate(intent: &GuestIntent, root: bool) -> Result<(), Invalid> {
    name(intent)?;
    processors(intent)?;
    memory(intent)?;
    unique("disks", intent.disks.iter().map(|disk| disk.name.as_str()))?;
    unique("networks", intent.nics.iter().map(|nic| nic.name.as_str()))?;
    let roots = intent
        .disks
        .iter()
        .filter(|disk| disk.role == DiskRole::Root)
        .count();
    if roots > 1 {
        return Err(Invalid::new(
            "disks",
            "have more than one root disk: keep one",
        ));
    }
    for nic in &intent.nics {
        if nic.bridge.is_empty() {
            return Err(Invalid::new(
                format!("networks[{}].bridge", nic.name),
                "is empty: name a bridge or VNet",
            ));
        }
        if nic.vlan.is_some_and(|tag| tag == 0 || tag > 4094) {
            return Err(Invalid::new(
                format!("networks[{}].vlan", nic.name),
                "must be from 1 to 4094",
            ));
        }
    }
    together::devices(intent)?;
    together::memory(intent)?;
    if let Some(tags) = &intent.options.tags {
        for tag in tags {
            let good = |c: char| c.is_ascii_alphanumeric() || "_-+.".contains(c);
            let first = tag
                .chars()
                .next()
                .is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
            if !first || !tag.chars().all(good) {
                return Err(Invalid::new(
                    "tags",
                    format!(
                        "'{tag}' must begin with a letter, digit or _ and go on with those or - + ."
                    ),
                ));
            }
        }
    }
    if intent.is_container() && intent.container.is_none() {
        return Err(Invalid::new(
            "container",
            "is needed for a guest made from a container template",
        ));
    }
    if intent.container.is_some()
        && !matches!(
            intent.source,
            Source::ContainerTemplate { .. } | Source::Backup { .. } | Source::Template { .. }
        )
        && intent.adopt.is_none()
    {
        return Err(Invalid::new(
            "source",
            "of a container must be a container template, a backup or a container",
        ));
    }
    if intent.is_container() && intent.init.is_some() {
        return Err(Invalid::new(
            "init",
            "is for virtual machines: containers are configured by container.*",
        ));
    }
    if !root {
        root_only(intent)?;
    }
    Ok(())
}

/// Checks an intent against the guest that is to be copied, and so decides what is not declared.
pub(crate) fn suits_source(intent: &GuestIntent, source: &GuestConfig) -> Result<(), Invalid> {
    let machine = intent.hardware.machine.as_deref();
    let machine = machine.or(source.get("machine")).unwrap_or_default();
    together::pci(intent, together::is_q35(machine))
}

/// Checks an intent against the cluster it is for: what this release or that storage cannot do is refused, not left out.
pub(crate) fn suits(
    intent: &GuestIntent,
    release: Option<Release>,
    view: &View,
) -> Result<(), Invalid> {
    if let Some(release) = release
        && release.major < 9
        && intent.hardware.memory.ksm.is_some()
    {
        return Err(Invalid::new(
            "memory.ksm",
            format!(
                "(allow-ksm) is known from Proxmox VE 9 on and this is {release}: leave it out, or upgrade"
            ),
        ));
    }
    for disk in &intent.disks {
        let Some(storage) = disk.storage.as_ref().filter(|_| disk.thin == Some(true)) else {
            continue;
        };
        let mut rows = view.storages.iter();
        if let Some((_, row)) = rows.find(|((id, _), _)| id == storage) {
            may_be_thin(disk, storage, row)?;
        }
    }
    Ok(())
}

/// Refuses a thin disk on a storage that has none.
pub(crate) fn may_be_thin(
    disk: &Disk,
    storage: &StorageId,
    row: &StorageRow,
) -> Result<(), Invalid> {
    if disk.thin != Some(true) || !row.is_thick() {
        return Ok(());
    }
    let kind = &row.kind;
    Err(Invalid::new(
        format!("disks[{}]", disk.name),
        format!(
            "is thin, but storage '{storage}' ({kind}) has thick volumes only: ask for thick, or choose another storage"
        ),
    ))
}

fn root_only(intent: &GuestIntent) -> Result<(), Invalid> {
    let refuse = |field: &str| {
        Err(Invalid::new(
            field,
            "can only be set by root@pam with a password (PVE refuses it to every API token): use \
             such credentials or leave it out",
        ))
    };
    if intent.hardware.cpu.affinity.is_some() {
        return refuse("cpu.affinity");
    }
    if intent.hardware.memory.hugepages.is_some() {
        return refuse("memory.hugepages");
    }
    if let Some(container) = &intent.container {
        // A source may have brought what is declared, which PVE then need not be asked for.
        let made = matches!(intent.source, Source::ContainerTemplate { .. });
        let nesting = |feature: &String| feature.split('=').next() == Some("nesting");
        let asks = container.features.iter().any(|it| !nesting(it))
            || !container.unprivileged && !container.features.is_empty();
        if made && intent.adopt.is_none() && asks {
            return refuse("container.features (all but nesting, and all of a privileged one)");
        }
    }
    match intent
        .hardware
        .extra
        .keys()
        .find(|key| ROOT_ONLY_EXTRA.contains(&key.as_str()))
    {
        Some(key) => refuse(&format!("extra.{key}")),
        None => Ok(()),
    }
}

fn name(intent: &GuestIntent) -> Result<(), Invalid> {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if intent.name.len() > 255 || !intent.name.split('.').all(label) {
        return Err(Invalid::new(
            "name",
            format!("'{}' is not a DNS name", intent.name),
        ));
    }
    Ok(())
}

fn processors(intent: &GuestIntent) -> Result<(), Invalid> {
    let cpu = &intent.hardware.cpu;
    if cpu.cores == Some(0) || cpu.sockets == Some(0) || cpu.vcpus == Some(0) {
        return Err(Invalid::new(
            "cpu",
            "must have at least one core, socket and vcpu",
        ));
    }
    if let (Some(vcpus), Some(cores)) = (cpu.vcpus, cpu.cores) {
        let most = cores.saturating_mul(cpu.sockets.unwrap_or(1));
        if vcpus > most {
            return Err(Invalid::new(
                "cpu.vcpus",
                format!("is {vcpus}, but sockets × cores is {most}: raise cores or sockets"),
            ));
        }
    }
    if cpu
        .limit
        .is_some_and(|limit| !(0.0..=128.0).contains(&limit))
    {
        return Err(Invalid::new(
            "cpu.limit",
            "must be from 0 (unlimited) to 128",
        ));
    }
    if cpu.numa_nodes.len() > 8 {
        return Err(Invalid::new("cpu.numaNodes", "can be at most eight"));
    }
    Ok(())
}

fn memory(intent: &GuestIntent) -> Result<(), Invalid> {
    let memory = &intent.hardware.memory;
    if let Some(size) = memory.size
        && size.as_mib() < 16
    {
        return Err(Invalid::new("memory", "must be at least 16 MiB"));
    }
    if let (Some(balloon), Some(size)) = (memory.balloon, memory.size)
        && balloon > size
    {
        return Err(Invalid::new(
            "memory.balloon",
            format!("{balloon} is more than memory {size}"),
        ));
    }
    let hotplug = intent.hardware.hotplug.as_deref().unwrap_or_default();
    if hotplug.contains(&Hotplug::Memory) {
        if intent.hardware.cpu.numa != Some(true) {
            return Err(Invalid::new(
                "hotplug",
                "of memory needs cpu.numa: switch it on",
            ));
        }
        if !intent.hardware.cpu.numa_nodes.is_empty() {
            return Err(Invalid::new(
                "hotplug",
                "of memory excludes cpu.numaNodes: drop one of them",
            ));
        }
    }
    Ok(())
}

fn unique<'a>(field: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Invalid> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if name.is_empty() {
            return Err(Invalid::new(field, "must all have names"));
        }
        if !seen.insert(name) {
            return Err(Invalid::new(
                field,
                format!("have two called '{name}': rename one"),
            ));
        }
    }
    Ok(())
}
