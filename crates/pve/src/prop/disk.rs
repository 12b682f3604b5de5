//! Disks: `scsi0`, `virtio1`, `ide2`, `efidisk0`, `tpmstate0`, `unused0`.

use std::fmt;
use std::str::FromStr;

use super::{Decimal, Error, Value, Word};
use crate::id::{StorageId, VolumeId};

/// What is behind a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskFile {
    /// An empty CD drive.
    None,
    /// The host's CD drive.
    HostDrive,
    /// A volume to allocate, of this many GiB; zero together with `import-from`.
    New(StorageId, Decimal),
    /// A cloud-init drive to allocate.
    CloudInit(StorageId),
    /// A volume that is there.
    Volume(VolumeId),
    /// A path on the host, or something else only the server understands.
    Other(Word),
}

impl DiskFile {
    /// The volume, if there is one already.
    pub fn volume(&self) -> Option<&VolumeId> {
        match self {
            Self::Volume(volume) => Some(volume),
            _ => None,
        }
    }

    /// The storage it is on or will be on.
    pub fn storage(&self) -> Option<StorageId> {
        match self {
            Self::New(storage, _) | Self::CloudInit(storage) => Some(storage.clone()),
            Self::Volume(volume) => Some(volume.storage()),
            Self::None | Self::HostDrive | Self::Other(_) => None,
        }
    }
}

impl Value for DiskFile {
    const EXPECTED: &'static str = "a volume, a size to allocate or 'none'";

    fn read(text: &str) -> Option<Self> {
        match text {
            "none" => return Some(Self::None),
            "cdrom" => return Some(Self::HostDrive),
            _ => {}
        }
        if let Some((storage, rest)) = text.split_once(':')
            && let Ok(storage) = StorageId::new(storage)
        {
            if rest == "cloudinit" {
                return Some(Self::CloudInit(storage));
            }
            if let Some(size) = Decimal::read(rest) {
                return Some(Self::New(storage, size));
            }
            if let Ok(volume) = VolumeId::new(text) {
                return Some(Self::Volume(volume));
            }
        }
        Word::read(text).map(Self::Other)
    }

    fn print(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::HostDrive => "cdrom".to_owned(),
            Self::New(storage, size) => format!("{storage}:{size}"),
            Self::CloudInit(storage) => format!("{storage}:cloudinit"),
            Self::Volume(volume) => volume.to_string(),
            Self::Other(word) => word.to_string(),
        }
    }
}

/// A size in bytes, printed in the largest unit that keeps it whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl Size {
    /// A size in bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A size in GiB.
    pub const fn from_gib(gib: u32) -> Self {
        Self((gib as u64) << 30)
    }

    /// The bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The server prints whole terabytes too, but reads gigabytes in more places.
        let fits = |shift: &u32| self.0 != 0 && self.0.trailing_zeros() >= *shift;
        match UNITS.into_iter().find(|(_, shift)| fits(shift)) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::read(text).ok_or_else(|| Error::Value {
            key: "size".to_owned(),
            value: text.to_owned(),
            expected: Self::EXPECTED,
        })
    }
}

impl Value for Size {
    const EXPECTED: &'static str = "a size such as 32G";

    fn read(text: &str) -> Option<Self> {
        let (number, shift) = match text.char_indices().next_back() {
            Some((at, unit)) if !unit.is_ascii_digit() => (
                &text[..at],
                UNITS.into_iter().find(|(known, _)| *known == unit)?.1,
            ),
            _ => (text, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
            return None;
        }
        let scale = 1_u64 << shift;
        let ten = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale) / ten;
        let bytes = whole.parse::<u64>().ok()?.checked_mul(scale)?;
        Some(Self(bytes.checked_add(u64::try_from(part).ok()?)?))
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

property_string! {
    /// A disk or CD drive of a virtual machine.
    Disk {
        required
        /// What is behind it.
        file: DiskFile = "file" | "volume";
        /// A volume (or a path, for root) to copy when it is made.
        import_from: Word = "import-from";
        /// The format: `raw`, `qcow2` or `vmdk`.
        format: Word = "format";
        /// `disk` or `cdrom`.
        media: Word = "media";
        /// The host's cache: `none`, `writethrough`, `writeback`, `unsafe` or `directsync`.
        cache: Word = "cache";
        /// How it is read and written: `native`, `threads` or `io_uring`.
        aio: Word = "aio";
        /// Whether unused space is given back: `on` or `ignore`.
        discard: Word = "discard";
        /// Whether zeroes are found and not written.
        detect_zeroes: bool = "detect_zeroes";
        /// Whether it has a thread of its own.
        iothread: bool = "iothread";
        /// Its queues.
        queues: u32 = "queues";
        /// Its size, as the server notes it.
        size: Size = "size";
        /// Whether it looks like a solid-state disk.
        ssd: bool = "ssd";
        /// Whether it can only be read.
        ro: bool = "ro";
        /// Whether it goes into backups.
        backup: bool = "backup";
        /// Whether it is replicated.
        replicate: bool = "replicate";
        /// Whether it is on all nodes, whatever the storage says.
        shared: bool = "shared";
        /// Whether writes are forgotten.
        snapshot: bool = "snapshot";
        /// Its serial number, URL-encoded.
        serial: Word = "serial";
        /// Its world wide name.
        wwn: Word = "wwn";
        /// Most bytes per second, read and write, in MB/s.
        mbps: Decimal = "mbps";
        /// Most bytes read per second, in MB/s.
        mbps_rd: Decimal = "mbps_rd";
        /// Most bytes written per second, in MB/s.
        mbps_wr: Decimal = "mbps_wr";
        /// Most operations per second.
        iops: u32 = "iops";
        /// Most reads per second.
        iops_rd: u32 = "iops_rd";
        /// Most writes per second.
        iops_wr: u32 = "iops_wr";
    }
}

impl Disk {
    /// A new volume of this many GiB.
    pub fn allocate(storage: StorageId, gib: u32) -> Self {
        Self::new(DiskFile::New(storage, Decimal::from(gib)))
    }

    /// A new volume with the content of another.
    pub fn import(storage: StorageId, from: &VolumeId) -> Result<Self, Error> {
        let import_from = Some(Word::new(from.as_str())?);
        Ok(Self {
            import_from,
            ..Self::new(DiskFile::New(storage, Decimal::from(0)))
        })
    }

    /// A volume that is there.
    pub fn volume(volume: VolumeId) -> Self {
        Self::new(DiskFile::Volume(volume))
    }

    /// A CD drive with an ISO image.
    pub fn cdrom(volume: VolumeId) -> Self {
        Self {
            media: Word::read("cdrom"),
            ..Self::new(DiskFile::Volume(volume))
        }
    }

    /// An empty CD drive.
    pub fn empty_cdrom() -> Self {
        Self {
            media: Word::read("cdrom"),
            ..Self::new(DiskFile::None)
        }
    }

    /// A cloud-init drive.
    pub fn cloudinit(storage: StorageId) -> Self {
        Self::new(DiskFile::CloudInit(storage))
    }

    /// Whether it is a CD drive.
    pub fn is_cdrom(&self) -> bool {
        self.media.as_ref().is_some_and(|media| *media == "cdrom")
    }
}

property_string! {
    /// The disk where UEFI keeps its variables.
    EfiDisk {
        required
        /// What is behind it.
        file: DiskFile = "file" | "volume";
        /// A volume to copy when it is made.
        import_from: Word = "import-from";
        /// `2m` or `4m`.
        efitype: Word = "efitype";
        /// The format.
        format: Word = "format";
        /// Whether the keys of distributions and Microsoft are enrolled.
        pre_enrolled_keys: bool = "pre-enrolled-keys";
        /// Which of Microsoft's certificates are enrolled; since 9.
        ms_cert: Word = "ms-cert";
        /// Its size, as the server notes it.
        size: Size = "size";
    }
}

property_string! {
    /// The disk where a TPM keeps its state.
    TpmState {
        required
        /// What is behind it.
        file: DiskFile = "file" | "volume";
        /// A volume to copy when it is made.
        import_from: Word = "import-from";
        /// The format.
        format: Word = "format";
        /// Its size, as the server notes it.
        size: Size = "size";
        /// `v1.2` or `v2.0`.
        version: Word = "version";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_in_the_largest_whole_unit() {
        for (text, bytes) in [
            ("32G", 32 << 30),
            ("528K", 528 << 10),
            ("4M", 4 << 20),
            ("1T", 1 << 40),
            ("512", 512),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.bytes(), bytes);
            assert_eq!(size.to_string(), text);
        }
        assert_eq!("1.5G".parse::<Size>().unwrap().to_string(), "1536M");
        for wrong in [
            "",
            "G",
            "1g",
            "-1",
            "1.",
            "1e3",
            "99999999999999T",
            "1.0000000000G",
        ] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_disk_says_what_is_behind_it() {
        let file = |text: &str| text.parse::<Disk>().unwrap().file;
        assert_eq!(file("none,media=cdrom"), DiskFile::None);
        assert!(
            matches!(file("local-lvm:32"), DiskFile::New(_, size) if size == Decimal::from(32))
        );
        assert!(matches!(file("local:cloudinit"), DiskFile::CloudInit(_)));
        assert!(matches!(
            file("file=local:100/vm-100-disk-0.qcow2,size=1G"),
            DiskFile::Volume(_)
        ));
        assert!(matches!(
            file("volume=local:iso/a.iso"),
            DiskFile::Volume(_)
        ));
        assert!(matches!(file("/dev/sdb"), DiskFile::Other(_)));
    }

    #[test]
    fn a_disk_to_import_prints_as_the_server_wants_it() {
        let disk = Disk {
            discard: Word::read("on"),
            ..Disk::import(
                "tank".parse().unwrap(),
                &"tank:base-9000-disk-0".parse().unwrap(),
            )
            .unwrap()
        };
        assert_eq!(
            disk.to_string(),
            "tank:0,import-from=tank:base-9000-disk-0,discard=on"
        );
    }

    #[test]
    fn a_comma_cannot_smuggle_in_a_sub_key() {
        assert!(Word::new("abc,cache=unsafe").is_err());
        assert!("local:1,cache".parse::<Disk>().is_err());
        assert!("local:1,file=local:2".parse::<Disk>().is_err());
    }
}
