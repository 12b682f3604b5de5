//! What people do to images from the web, and when those rest.

use std::fmt::Write as _;

use api::vm::{VMImage, VirtualMachine, condition};
use kube::ResourceExt as _;
use serde_json::json;
use sha2::Digest as _;

use super::acts::{Done, delete};
use crate::{Bed, Dice};

/// Images that come and go. They are the same file, so they share their templates.
pub(super) const NAMES: [&str; 2] = ["noble", "noble-mirror"];

const CONTENT: &[u8] = b"QFI\xfb a small disk image";

fn address(name: &str) -> String {
    format!("https://images.example.com/{name}.qcow2")
}

/// Puts the files there for Proxmox VE to fetch.
pub(super) fn serve(bed: &Bed) {
    for cluster in 0..bed.cluster_count() {
        for name in NAMES {
            bed.cluster(cluster)
                .control()
                .serve(address(name), CONTENT.to_vec());
        }
    }
}

/// Makes an image, or deletes it.
pub(super) async fn act(bed: &Bed, dice: &mut Dice) -> Done {
    let name = dice.pick(&NAMES);
    if let Some(image) = bed.api::<VMImage>().get_opt(name).await.unwrap() {
        if image.metadata.deletion_timestamp.is_some() {
            return Done::nothing(format!("image {name} is going"));
        }
        delete::<VMImage>(bed, name).await;
        return Done::a("delete an image", format!("delete image {name}"));
    }
    let digest = sha2::Sha256::digest(CONTENT);
    let digest = digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    let kept = dice.pick(&[None, Some("pve"), Some("pve-1")]);
    let mut document = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1",
        "kind": "VMImage",
        "metadata": { "name": name },
        "spec": { "source": address(name), "checksum": { "value": digest } },
    });
    if let Some(provider) = kept {
        document["spec"]["providerRef"] = json!({ "name": provider });
    }
    bed.try_apply(&document).await.unwrap();
    Done::a("create an image", format!("image {name}, kept on {kept:?}"))
}

/// Whether a machine that is not made yet never will be, because its image has gone or goes.
pub(super) fn is_gone(images: &[VMImage], machine: &VirtualMachine) -> bool {
    let Some(named) = &machine.spec.image_ref else {
        return false;
    };
    let mut images = images.iter();
    let image = images.find(|image| image.name_any() == named.name);
    image.is_none_or(|image| image.metadata.deletion_timestamp.is_some())
}

/// Why an image is not where it can get.
pub(super) fn unsettled(image: &VMImage, machines: &[VirtualMachine]) -> Option<String> {
    let (name, status) = (image.name_any(), image.status.clone().unwrap_or_default());
    let linked: Vec<&VirtualMachine> = machines
        .iter()
        .filter(|machine| {
            let named = machine.spec.image_ref.as_ref();
            named.is_some_and(|it| NAMES.contains(&it.name.as_str()))
        })
        .collect();
    if image.metadata.deletion_timestamp.is_some() {
        // A template outlives its image for as long as disks are linked to it, whichever image they were made from.
        return linked
            .is_empty()
            .then(|| format!("image {name} does not go: {status:?}"));
    }
    let ready = condition(&status.conditions, "Ready");
    let current = status.observed_generation == image.metadata.generation;
    let rests = ready.is_some_and(|it| it.status == "True" || it.reason == "NotNeeded");
    if !current || !rests {
        return Some(format!("image {name}: {status:?}"));
    }
    // What nobody asks for any more goes an hour later, unless disks of a machine are linked to it, whose image may be another.
    let asked = |provider: &str| {
        let kept = image.spec.provider_ref.as_ref().map(|it| it.name.as_str());
        let mut used = linked
            .iter()
            .filter_map(|it| Some(it.spec.provider_ref.as_ref()?.name.as_str()));
        let name = provider.rsplit('/').next().unwrap_or_default();
        kept == Some(name) || used.any(|it| it == name)
    };
    let stale =
        NAMES.contains(&name.as_str()) && status.templates.iter().any(|it| !asked(&it.provider));
    stale.then(|| format!("image {name} keeps what nobody asks for: {status:?}"))
}
