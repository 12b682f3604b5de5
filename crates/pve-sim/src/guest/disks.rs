//! Makes the disks a configuration asks for: new ones, cloud-init drives, imports, existing volumes.
//!
//! A worker goes through the drives in the order of their names. Each becomes a volume; the log gets
//! the lines PVE's tools would print. If one fails, [`Made::undo`] removes what was made before it.

use super::drive::{Drive, Source};
use super::hand::Hand;
use super::{options, size};
use crate::failure::Failure;
use crate::latency::Step;
use crate::storage::{Alloc, Content, Format, Kind, ova};
use crate::world::World;

/// 64 KiB clusters and the rest of what `qemu-img create` says for PVE's options.
const QCOW2: &str =
    "cluster_size=65536 extended_l2=off preallocation=metadata compression_type=zlib";

/// Volumes a worker has made so far, in case it must take them back.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) volumes: Vec<String>,
}

impl Made {
    /// Removes everything made.
    pub(crate) fn undo(&self, world: &mut World, node: &str) {
        for volid in self.volumes.iter().rev() {
            // A volume that is already gone is as good as removed.
            let _ = world.storages.free(node, volid);
        }
    }
}

/// The line a tool prints for a new image, if it prints one.
pub(crate) fn format_line(world: &World, volid: &str, bytes: u64) -> Option<String> {
    let (storage, name) = world.storages.parse(volid).ok()?;
    let path = name.path(storage.def.kind, &storage.def.root());
    match (storage.def.kind, name.format) {
        (Kind::Lvm | Kind::LvmThin, _) => {
            Some(format!("  Logical volume \"{}\" created.", name.file))
        }
        (Kind::ZfsPool | Kind::Rbd, _) | (_, Format::Subvol) => None,
        (_, Format::Qcow2) => match &name.base {
            Some((owner, base)) => Some(format!(
                "Formatting '{path}', fmt=qcow2 cluster_size=131072 extended_l2=on preallocation=metadata compression_type=zlib size={bytes} backing_file=../{owner}/{base} backing_fmt={} lazy_refcounts=off refcount_bits=16",
                base.rsplit('.').next().unwrap_or("qcow2"),
            )),
            None => Some(format!(
                "Formatting '{path}', fmt=qcow2 {QCOW2} size={bytes} lazy_refcounts=off refcount_bits=16"
            )),
        },
        (_, Format::Raw) => Some(format!(
            "Formatting '{path}', fmt=raw size={bytes} preallocation=off"
        )),
        (_, Format::Vmdk) => Some(format!("Formatting '{path}', fmt=vmdk size={bytes}")),
    }
}

/// Logs a copy's progress at its two ends.
pub(crate) fn transferred(hand: &Hand, bytes: u64) {
    let all = size::human(bytes);
    hand.log(format!("transferred 0.0 B of {all} (0.00%)"));
    hand.log(format!("transferred {all} of {all} (100.00%)"));
}

/// Bytes as GiB, for the time a copy takes.
#[expect(clippy::cast_precision_loss, reason = "only feeds a duration")]
pub(crate) fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Allocates an image on a storage within its lock, and logs the tool's line.
pub(crate) async fn allocate(
    hand: &Hand,
    storage: &str,
    vmid: u32,
    format: Format,
    name: Option<&str>,
    bytes: u64,
    made: &mut Made,
) -> Result<String, Failure> {
    let shared = hand.world(|world| {
        world
            .storages
            .get(storage)
            .is_ok_and(|s| s.def.shared && !s.def.kind.is_file())
    });
    // Shared block storages hand out names under a lock of the whole cluster, one at a time.
    let _held = if shared {
        Some(hand.lock_cfs(&format!("storage-{storage}")).await?)
    } else {
        None
    };
    hand.take(Step::Allocate).await?;
    let node = hand.node().to_owned();
    let (volid, line) = hand.world(|world| {
        let now = world.now();
        let alloc = Alloc {
            vmid,
            format,
            name,
            size: bytes,
            now,
        };
        let volid = world.storages.alloc(storage, &node, alloc)?;
        let line = format_line(world, &volid, bytes);
        Ok::<_, Failure>((volid, line))
    })?;
    if let Some(line) = line {
        hand.log(line);
    }
    made.volumes.push(volid.clone());
    Ok(volid)
}

/// The format for a new volume: the one asked for, or the storage's own.
pub(crate) fn pick_format(
    world: &World,
    storage: &str,
    wished: Option<&str>,
) -> Result<Format, Failure> {
    let kind = world.storages.get(storage)?.def.kind;
    let (supported, default) = kind.formats();
    match wished {
        None => Ok(default),
        Some(text) => Format::parse(text)
            .filter(|format| supported.contains(format))
            .ok_or_else(|| {
                Failure::die(format!(
                    "storage '{storage}' does not support format '{text}'"
                ))
            }),
    }
}

/// Bytes of an EFI variable store and of a TPM state.
fn special_size(option: &str, drive: &Drive) -> Option<u64> {
    match option {
        "efidisk0" if drive.get("efitype") == Some("4m") => Some(540_672),
        "efidisk0" => Some(131_072),
        "tpmstate0" => Some(4 << 20),
        _ => None,
    }
}

/// Makes the volume of one drive and returns the drive as it will stand in the configuration.
pub(crate) async fn make(
    hand: &Hand,
    vmid: u32,
    option: &str,
    wanted: &Drive,
    default_storage: Option<&str>,
    made: &mut Made,
) -> Result<Drive, Failure> {
    let mut drive = wanted.clone();
    match wanted.source() {
        Source::None => return Ok(drive),
        Source::CloudInit { storage } => {
            let file = hand.world(|world| {
                world
                    .storages
                    .get(&storage)
                    .map(|s| s.def.kind.is_file())
                    .map_err(Failure::from)
            })?;
            let (format, name) = if file {
                let format = drive
                    .get("format")
                    .and_then(Format::parse)
                    .unwrap_or(Format::Qcow2);
                (format, format!("vm-{vmid}-cloudinit.{}", format.name()))
            } else {
                (Format::Raw, format!("vm-{vmid}-cloudinit"))
            };
            let volid = allocate(hand, &storage, vmid, format, Some(&name), 4 << 20, made).await?;
            drive.set("file", volid);
            drive.set("media", "cdrom");
            drive.remove("format");
            drive.remove("size");
        }
        Source::New { storage, bytes } => {
            let storage = storage
                .or_else(|| default_storage.map(str::to_owned))
                .ok_or_else(|| Failure::die("no storage ID specified (and no default storage)"))?;
            if drive.get("import-from").is_some() {
                return import(hand, vmid, option, &storage, drive, made).await;
            }
            let format = hand.world(|world| pick_format(world, &storage, drive.get("format")))?;
            let bytes = special_size(option, &drive).unwrap_or(bytes);
            let volid = allocate(hand, &storage, vmid, format, None, bytes, made).await?;
            if option == "efidisk0" {
                transferred(hand, bytes);
                let all = size::human(bytes);
                hand.log(format!("transferred {all} of {all} (100.00%)"));
            }
            drive.set("file", volid);
            drive.set_size(bytes);
            drive.remove("format");
        }
        Source::Volume(volid) => {
            let node = hand.node().to_owned();
            hand.world(|world| attach(world, &node, option, &volid, &mut drive))?;
            return Ok(drive);
        }
        Source::Path(path) => {
            return Err(Failure::die(format!("path '{path}' does not exist")));
        }
    }
    hand.log(format!(
        "{option}: successfully created disk '{}'",
        drive.print()
    ));
    Ok(drive)
}

/// Uses a volume that exists; its size goes into the configuration.
pub(crate) fn attach(
    world: &mut World,
    node: &str,
    option: &str,
    volid: &str,
    drive: &mut Drive,
) -> Result<(), Failure> {
    let volume = world.storages.volume(node, volid)?;
    let format = volume.name.format.name();
    if let Some(wished) = drive.get("format").filter(|wished| *wished != format) {
        return Err(Failure::die(format!(
            "drive '{option}' - volume '{volid}' - 'format={wished}' option different from storage format '{format}'"
        )));
    }
    // qemu-img counts in sectors.
    let bytes = volume.size.div_ceil(512) * 512;
    if !drive.is_cloudinit() {
        drive.set_size(bytes);
    }
    drive.remove("format");
    Ok(())
}

async fn import(
    hand: &Hand,
    vmid: u32,
    option: &str,
    storage: &str,
    mut drive: Drive,
    made: &mut Made,
) -> Result<Drive, Failure> {
    let source = drive.get("import-from").unwrap_or_default().to_owned();
    let node = hand.node().to_owned();
    let (length, used, image) = if source.starts_with('/') {
        // The host's own files are not simulated; any path is a small raw image.
        (1536, 1536, None)
    } else {
        hand.world(|world| {
            let (_, name) = world.storages.parse(&source)?;
            if let (Content::Images, Some(owner)) = (name.content, name.vmid) {
                let here = world
                    .guests
                    .get(owner)
                    .is_none_or(|guest| guest.node == node);
                if !here {
                    return Err(Failure::die(format!("owner VM {owner} not on local node")));
                }
            }
            if let Some((archive, file)) = ova::inside(&source) {
                return ova::disk(world, &node, archive, file);
            }
            let volume = world.storages.volume(&node, &source)?;
            Ok((
                volume.size.div_ceil(512) * 512,
                volume.used,
                volume.image.clone(),
            ))
        })?
    };
    let format = hand.world(|world| pick_format(world, storage, drive.get("format")))?;
    let volid = allocate(hand, storage, vmid, format, None, length, made).await?;
    hand.take_per_gib(Step::CopyGib, gib(used)).await?;
    transferred(hand, length);
    let all = size::human(length);
    hand.log(format!("transferred {all} of {all} (100.00%)"));
    hand.world(|world| {
        let volume = world.storages.volume_mut(&node, &volid)?;
        volume.used = volume.used.max(used.min(length));
        volume.image = image;
        Ok::<_, Failure>(())
    })?;
    drive.set("file", volid);
    drive.set_size(length);
    drive.remove("format");
    drive.remove("import-from");
    hand.log(format!(
        "{option}: successfully created disk '{}'",
        drive.print()
    ));
    Ok(drive)
}

/// The default boot order of a new guest: first disk, CDs, cards.
pub(crate) fn boot_order(config: &super::config::Options) -> String {
    let drives: Vec<(&String, Drive)> = config
        .iter()
        .filter(|(option, _)| options::is_disk(option))
        .map(|(option, value)| (option, Drive::parse(value)))
        .collect();
    let by_bus = ["scsi", "virtio", "sata", "ide"];
    let rank = |option: &str| {
        let (bus, index) = options::indexed(option).unwrap_or((option, 0));
        (by_bus.iter().position(|known| *known == bus), index)
    };
    let mut disks: Vec<&String> = drives
        .iter()
        .filter(|(_, d)| !d.is_cdrom())
        .map(|(option, _)| *option)
        .collect();
    disks.sort_by_key(|option| rank(option));
    let mut cds: Vec<&String> = drives
        .iter()
        .filter(|(_, d)| d.is_cdrom())
        .map(|(option, _)| *option)
        .collect();
    cds.sort_by_key(|option| rank(option));
    let mut nets: Vec<&String> = config
        .keys()
        .filter(|option| options::is(option, "net"))
        .collect();
    nets.sort_by_key(|option| options::indexed(option).map(|(_, index)| index));
    let order: Vec<&str> = disks
        .into_iter()
        .take(1)
        .chain(cds)
        .chain(nets)
        .map(String::as_str)
        .collect();
    if order.is_empty() {
        " ".to_owned()
    } else {
        format!("order={}", order.join(";"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::config::Options;

    #[test]
    fn the_first_disk_boots_before_cds_and_cards() {
        let config: Options = [
            ("scsi0", "dir2:100/vm-100-disk-0.qcow2"),
            ("scsi1", "dir2:100/vm-100-disk-1.qcow2"),
            ("ide2", "dir2:100/vm-100-cloudinit.qcow2,media=cdrom"),
            ("net0", "virtio=BC:24:11:00:00:01"),
            ("efidisk0", "dir2:100/vm-100-disk-2.raw"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        assert_eq!(boot_order(&config), "order=scsi0;ide2;net0");
        assert_eq!(boot_order(&Options::new()), " ");
    }
}
