//! Images that become templates.

use sha2::{Digest, Sha256};

use crate::{ClusterName, NodeName, Owner, StorageId, cloudinit::hex, intent::VmidRange};

/// The kind of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChecksumKind {
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

impl ChecksumKind {
    /// The kind in PVE's parameters.
    pub fn as_str(self) -> &'static str {
        match self {
            ChecksumKind::Sha256 => "sha256",
            ChecksumKind::Sha512 => "sha512",
        }
    }
}

/// A checksum of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// Its kind.
    pub kind: ChecksumKind,
    /// Its digits, in hexadecimal.
    pub hex: String,
}

/// A cloud image that shall be a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageIntent {
    /// Who asks.
    pub owner: Owner,
    /// The cluster it shall be on.
    pub cluster: ClusterName,
    /// The template's name.
    pub name: String,
    /// Where it comes from: an HTTP or HTTPS address of a qcow2, raw or vmdk image. PVE
    /// unpacks nothing that it imports.
    pub url: String,
    /// What it must be. Without one, the URL itself is what makes two images the same.
    pub checksum: Option<Checksum>,
    /// The storage the template's disk shall be on.
    pub storage: StorageId,
    /// The storage the download is kept on until it is imported (content `import`); `None` takes
    /// the first that fits.
    pub download_storage: Option<StorageId>,
    /// The nodes that need it; empty is any one, which is enough for shared storage.
    pub nodes: Vec<NodeName>,
    /// The VMIDs its templates may get.
    pub vmids: VmidRange,
    /// The pool its templates are made in. One that was made in another stays there.
    pub pool: Option<String>,
    /// UEFI rather than BIOS.
    pub uefi: bool,
    /// Tags of the template.
    pub tags: Vec<String>,
}

/// Counts the ways in which templates have been made: one that was made in another way is not used.
const MAKING: u32 = 2;

/// The tag that is on every template of an image: what makes two images the same.
pub fn image_tag(
    url: &str,
    checksum: Option<&Checksum>,
    storage: &StorageId,
    uefi: bool,
) -> String {
    format!("oxmox-image-{}", key(url, checksum, storage, uefi))
}

fn key(url: &str, checksum: Option<&Checksum>, storage: &StorageId, uefi: bool) -> String {
    let what = match checksum {
        Some(sum) => format!("{}:{}", sum.kind.as_str(), sum.hex.to_lowercase()),
        None => url.to_owned(),
    };
    let text = format!("{MAKING} {what} {storage} {uefi}");
    hex(&Sha256::digest(text)[..6])
}

impl ImageIntent {
    /// What makes two images the same, in few characters.
    pub(crate) fn key(&self) -> String {
        let checksum = self.checksum.as_ref();
        key(&self.url, checksum, &self.storage, self.uefi)
    }

    /// The tag of its templates.
    pub(crate) fn tag(&self) -> String {
        image_tag(&self.url, self.checksum.as_ref(), &self.storage, self.uefi)
    }
}
