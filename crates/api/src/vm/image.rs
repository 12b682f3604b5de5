//! `VMImage`: what a machine is made from.

use std::{borrow::Cow, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::common::{ConditionList, LocalRef};

/// What a machine is made from: a template on PVE, an installer ISO, or a disk image from the web.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMImage",
    plural = "vmimages",
    namespaced,
    status = "VMImageStatus",
    shortname = "vmimg",
    shortname = "vmi",
    category = "oxmox",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must not be longer than 63 characters"),
    doc = "What a machine is made from: a template on PVE, an installer ISO, or a disk image from the web.",
    printcolumn(name = "Source", type_ = "string", json_path = ".spec.source"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.source) != has(self.tag)").message("give source (a template's name or VMID, a URL, or storage:iso/file.iso) or tag, exactly one"),
    validation = Rule::new("!has(self.checksum) || (has(self.source) && string(self.source).startsWith('http'))").message("checksum is compared when a URL is downloaded; give a URL as source, or remove it"),
    validation = Rule::new("!has(self.storage) || (has(self.source) && string(self.source).startsWith('http'))").message("storage says where the template of a URL is kept; give a URL as source, or remove it"),
    validation = Rule::new("!has(self.source) || !string(self.source).startsWith('http') || !(string(self.source).endsWith('.gz') || string(self.source).endsWith('.xz') || string(self.source).endsWith('.zst') || string(self.source).endsWith('.bz2') || string(self.source).endsWith('.lzo') || string(self.source).endsWith('.zip'))").message("PVE does not unpack disk images that it downloads: give the URL of a qcow2, raw or vmdk file"),
    validation = Rule::new("!has(oldSelf.source) || !string(oldSelf.source).startsWith('http') || (has(self.source) && self.source == oldSelf.source && has(self.checksum) == has(oldSelf.checksum) && (!has(self.checksum) || self.checksum == oldSelf.checksum))").message("source and checksum of a download cannot change, since templates and machines were made from it: make another VMImage")
)]
pub struct VMImageSpec {
    /// A template's name or VMID (`ubuntu-22-template`, `9000`), a disk image's URL (`https://…`), or an
    /// ISO on a PVE storage (`local:iso/debian-12.iso`). Templates are found on whatever node they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ImageSource>,
    /// Instead of `source`: a template carrying this PVE tag. Of several, each machine is made from the one
    /// nearest to its node, and of those from the one with the lowest VMID.
    #[schemars(length(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Expected digest of a downloaded image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// Storage to keep the template made from a URL; the machine's disk storage when left out.
    #[schemars(length(min = 1, max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Prepare a URL image (or look for a template) on this Provider now, instead of when a machine first
    /// needs it. It is then kept there while the VMImage exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<LocalRef>,
    /// Clone linked (default) or full where machines do not say. Linked clones need a template on a
    /// storage that can; others fall back to full, and the machine says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linked_clone: Option<bool>,
}

/// Where an image comes from, told apart by its form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// A template (or VM) by id.
    Vmid(u32),
    /// A template by name.
    Name(String),
    /// An ISO (or disk image) already on a PVE storage, as a volume id.
    Volume(String),
    /// A disk image to download.
    Url(String),
}

impl ImageSource {
    fn parse(text: &str) -> Self {
        if let Ok(vmid) = text.parse() {
            Self::Vmid(vmid)
        } else if text.starts_with("https://") || text.starts_with("http://") {
            Self::Url(text.to_owned())
        } else if text.contains(":iso/") || text.contains(":import/") {
            Self::Volume(text.to_owned())
        } else {
            Self::Name(text.to_owned())
        }
    }
}

impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vmid(id) => id.fmt(f),
            Self::Name(text) | Self::Volume(text) | Self::Url(text) => f.write_str(text),
        }
    }
}

impl Serialize for ImageSource {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ImageSource {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u32),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(vmid) => Ok(Self::Vmid(vmid)),
            Written::Text(text) if text.is_empty() => {
                Err(de::Error::custom("an image source is not empty"))
            }
            Written::Text(text) => Ok(Self::parse(&text)),
        }
    }
}

impl JsonSchema for ImageSource {
    fn schema_name() -> Cow<'static, str> {
        "ImageSource".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "minLength": 1,
            "maxLength": 2048,
            "minimum": 100,
            "maximum": 999_999_999,
        })
    }
}

/// A digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.value.size() == (has(self.algorithm) && self.algorithm == 'sha512' ? 128 : 64)").message("value has 64 hexadecimal digits for sha256 and 128 for sha512: set algorithm to what the digest is")
)]
pub struct Checksum {
    /// Algorithm.
    #[serde(default)]
    pub algorithm: ChecksumAlgorithm,
    /// The digest in hexadecimal.
    #[schemars(length(min = 64, max = 128), regex(pattern = r"^[0-9a-fA-F]+$"))]
    pub value: String,
}

/// A digest algorithm PVE can check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumAlgorithm {
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

/// Where an image stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMImageStatus {
    /// `Ready`.
    #[schemars(schema_with = "ConditionList::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word: Pending, Downloading, Importing, Ready or Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The templates it stands for, per Provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<ImageReplica>,
    /// What the engine recorded before it acted, so that it finds its own work again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<super::record::FleetRecord>,
}

/// One template an image stands for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageReplica {
    /// The Provider it is on.
    pub provider: String,
    /// The node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its VMID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmid: Option<u32>,
    /// Its storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_source_says_what_it_is() {
        for (json, meant) in [
            (
                "\"ubuntu-22-template\"",
                ImageSource::Name("ubuntu-22-template".into()),
            ),
            ("\"9000\"", ImageSource::Vmid(9000)),
            ("9000", ImageSource::Vmid(9000)),
            (
                "\"https://x.org/a.img\"",
                ImageSource::Url("https://x.org/a.img".into()),
            ),
            (
                "\"local:iso/d.iso\"",
                ImageSource::Volume("local:iso/d.iso".into()),
            ),
        ] {
            assert_eq!(serde_json::from_str::<ImageSource>(json).unwrap(), meant);
        }
    }
}
