//! What the fleet is asked for.

use api::vm::{ChecksumAlgorithm, Provider, VMImage};
use fleet::{
    NodeName, StorageId,
    intent::{Checksum, ChecksumKind, ImageIntent},
};
use kube::ResourceExt as _;

use super::{
    super::{refs::Missing, translate},
    Target,
};
use crate::context::owner;

/// Whether templates boot by UEFI rather than BIOS.
const UEFI: bool = false;

pub(super) fn intent(
    image: &VMImage,
    url: &str,
    target: &Target,
    provider: &Provider,
    nodes: &[NodeName],
) -> Result<ImageIntent, Missing> {
    let defaults = provider.spec.defaults.as_ref();
    let import = defaults.and_then(|defaults| defaults.import_storage.as_deref());
    let import =
        import.map(|name| translate::storage("Provider spec.defaults.importStorage", name));
    Ok(ImageIntent {
        owner: owner(image).ok_or_else(|| Missing::new("InvalidSpec", "the object has no UID"))?,
        cluster: target.cluster.clone(),
        name: image.name_any(),
        url: url.to_owned(),
        checksum: checksum(image),
        storage: target.storage.clone(),
        download_storage: import.transpose()?,
        nodes: nodes.to_vec(),
        vmids: translate::vmids(provider)?,
        pool: defaults.and_then(|defaults| defaults.pool.clone()),
        uefi: UEFI,
        tags: Vec::new(),
    })
}

fn checksum(image: &VMImage) -> Option<Checksum> {
    image.spec.checksum.as_ref().map(|sum| Checksum {
        kind: match sum.algorithm {
            ChecksumAlgorithm::Sha256 => ChecksumKind::Sha256,
            ChecksumAlgorithm::Sha512 => ChecksumKind::Sha512,
        },
        hex: sum.value.clone(),
    })
}

/// What the templates of an image with a URL are known by on a storage.
pub(crate) fn tag(image: &VMImage, url: &str, storage: &StorageId) -> String {
    fleet::intent::image_tag(url, checksum(image).as_ref(), storage, UEFI)
}
