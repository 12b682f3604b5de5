//! Disks.

use api::vm::{
    AsyncIo, Disk as Written, DiskBus, DiskCache, DiskFormat, ProviderDefaults, Provisioning,
    VMClass, VirtualMachineSpec,
};
use fleet::intent::{Bus, Disk, DiskLimits, DiskRole, Source};

use super::{Invalid, size, storage};

pub(super) fn disks(
    spec: &VirtualMachineSpec,
    class: Option<&VMClass>,
    defaults: &ProviderDefaults,
    source: &Source,
) -> Result<Vec<Disk>, Invalid> {
    let base = class
        .and_then(|class| class.spec.storage.clone())
        .unwrap_or_default();
    // A copy stays on the storage it finds unless the class or the disk says otherwise; a new disk
    // needs a storage, so there the Provider's default counts too. It says where disks are made, not where they belong.
    let copied = matches!(source, Source::Template { .. } | Source::Backup { .. });
    let restored = spec
        .restore_from
        .as_ref()
        .and_then(|from| from.storage.as_ref());
    let root = spec
        .disks
        .iter()
        .position(|disk| disk.name == "root")
        .unwrap_or(0);
    let mut disks = Vec::new();
    for (at, written) in spec.disks.iter().enumerate() {
        let field = format!("spec.disks[{at}]");
        if let (Some(a), Some(b)) = (&written.storage, &written.storage_class)
            && a != b
        {
            return Err(Invalid::new(
                field,
                "storage and storageClass name different storages; keep one",
            ));
        }
        let role = if at == root {
            DiskRole::Root
        } else {
            DiskRole::Data
        };
        let own = written.storage.as_ref().or(written.storage_class.as_ref());
        let said = own.or(restored).or(base.class.as_ref());
        let usual = defaults.storage.as_ref();
        let place = said
            .or(usual.filter(|_| !(copied && role == DiskRole::Root)))
            .map(|name| storage(&format!("{field}.storage"), name))
            .transpose()?;
        disks.push(Disk {
            name: written.name.clone(),
            role,
            storage: place,
            // What was taken over is moved only where the disk itself says so.
            stays: said.is_none() || spec.adopt.is_some() && own.is_none(),
            size: Some(size(written.size)),
            thin: written
                .provisioning
                .or(base.provisioning)
                .map(|p| p == Provisioning::Thin),
            ..drive(written)
        });
    }
    // A class or a restore that names a storage means it for the copied disk too, listed or not.
    let named = restored.or(base.class.as_ref());
    let spoken = named.is_some() || base.provisioning.is_some();
    // A volume that is imported becomes a disk only where there is one to become.
    let imported = matches!(source, Source::Volume { .. });
    if disks.is_empty() && spec.adopt.is_none() && (copied && spoken || imported) {
        disks.push(Disk {
            name: "root".to_owned(),
            role: DiskRole::Root,
            storage: named
                .or(defaults.storage.as_ref().filter(|_| imported))
                .map(|name| storage("storage", name))
                .transpose()?,
            stays: named.is_none(),
            thin: base.provisioning.map(|p| p == Provisioning::Thin),
            ..Disk::default()
        });
    }
    Ok(disks)
}

/// The options of a drive, without where it is and how big.
pub(crate) fn drive(written: &Written) -> Disk {
    let word = |text: &str| text.to_owned();
    Disk {
        bus: written.bus.map(|bus| match bus {
            DiskBus::Scsi => Bus::Scsi,
            DiskBus::Virtio => Bus::Virtio,
            DiskBus::Sata => Bus::Sata,
            DiskBus::Ide => Bus::Ide,
        }),
        format: written.format.map(|format| {
            word(match format {
                DiskFormat::Raw => "raw",
                DiskFormat::Qcow2 => "qcow2",
                DiskFormat::Vmdk => "vmdk",
            })
        }),
        cache: written.cache.map(|cache| {
            word(match cache {
                DiskCache::None => "none",
                DiskCache::Writethrough => "writethrough",
                DiskCache::Writeback => "writeback",
                DiskCache::Unsafe => "unsafe",
                DiskCache::Directsync => "directsync",
            })
        }),
        discard: written.discard,
        ssd: written.ssd,
        iothread: written.iothread,
        aio: written.aio.map(|aio| {
            word(match aio {
                AsyncIo::IoUring => "io_uring",
                AsyncIo::Native => "native",
                AsyncIo::Threads => "threads",
            })
        }),
        backup: written.backup,
        replicate: written.replicate,
        read_only: written.read_only,
        serial: written.serial.clone(),
        limits: written
            .limits
            .as_ref()
            .map_or_else(DiskLimits::default, |limits| DiskLimits {
                mbps_rd: limits.read_mbps,
                mbps_wr: limits.write_mbps,
                iops_rd: limits.read_iops,
                iops_wr: limits.write_iops,
            }),
        ..Disk::default()
    }
}
