//! What an operating system image does once a guest boots from it.

use serde::{Deserialize, Serialize};

/// An operating system as far as the host can tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Image {
    /// Reads a cloud-init seed.
    pub(crate) cloud_init: bool,
    /// Has the QEMU guest agent installed and enabled.
    pub(crate) agent: bool,
    /// Shuts down when the power button is pressed.
    pub(crate) acpi: bool,
    /// `id` of `/etc/os-release`.
    pub(crate) id: String,
    /// `name` of `/etc/os-release`.
    pub(crate) name: String,
    /// `version-id` of `/etc/os-release`.
    pub(crate) version: String,
    /// Bytes its disk really holds.
    pub(crate) data: u64,
}

impl Default for Image {
    fn default() -> Self {
        Image {
            cloud_init: true,
            agent: true,
            acpi: true,
            id: "linux".to_owned(),
            name: "Linux".to_owned(),
            version: "1".to_owned(),
            data: 800 << 20,
        }
    }
}

impl Image {
    /// A Ubuntu cloud image with the agent installed.
    pub(crate) fn ubuntu() -> Image {
        Image {
            id: "ubuntu".to_owned(),
            name: "Ubuntu".to_owned(),
            version: "24.04".to_owned(),
            ..Image::default()
        }
    }

    /// A Talos image with the agent extension.
    pub(crate) fn talos() -> Image {
        Image {
            id: "talos".to_owned(),
            name: "Talos".to_owned(),
            version: "1.11.0".to_owned(),
            data: 300 << 20,
            ..Image::default()
        }
    }
}

/// The image name of disk files that somebody uploaded or downloaded.
pub(crate) const GENERIC: &str = "generic";
