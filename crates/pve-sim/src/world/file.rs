//! World files: any simulated installation, described in YAML.
//!
//! A file lists clusters. Whatever a cluster leaves out is as in the default world: three nodes
//! `pve1` to `pve3`, storages `local`, `data`, `local-lvm`, `tank`, `ceph` and `nfs`, a virtual
//! network `tenant`, templates of Ubuntu and Talos, one foreign VM. A cluster that lists its
//! nodes or storages starts without guests unless it lists them too.
//!
//! ```yaml
//! clusters:
//!   - name: east
//!     release: "9.2"              # otherwise what the command line says
//!     nodes:
//!       - name: pve1
//!         sockets: 2              # all sizes have the defaults of the default world
//!         cores: 16               # of all sockets together
//!         cpus: 32
//!         numa-cells: 2
//!         memory-gib: 128
//!         disk-gib: 100
//!         bridges: [vmbr0, vmbr1]
//!         pci: [{ id: "0000:01:00.0", class: "0x030200", vendor: "0x10de", device: "0x2230", iommugroup: 12 }]
//!         usb: [{ busnum: 1, devnum: 4, vendid: "1050", prodid: "0407" }]
//!     storages:
//!       - { id: local, type: dir, content: [iso, vztmpl, import, snippets, backup], capacity-gib: 100 }
//!       - { id: ceph, type: rbd, content: [images, rootdir], capacity-gib: 10240, options: { pool: rbd } }
//!     zones: [{ id: simple, type: simple }]
//!     vnets: [{ id: tenant, zone: simple }]
//!     images:
//!       ubuntu-24.04: { id: ubuntu, name: Ubuntu, version: "24.04" }
//!     guests:
//!       - vmid: 9000
//!         node: pve1
//!         storage: ceph
//!         disk-gib: 4
//!         image: ubuntu-24.04
//!         template: true
//!         options: { name: ubuntu, cores: "2", memory: "2048", net0: "virtio,bridge=vmbr0" }
//!     groups: [admins]
//!     users:
//!       - id: oxmox@pve
//!         password: "secret-one"
//!         groups: [admins]
//!         tokens: [{ id: op, secret: 11111111-2222-3333-4444-555555555555, privsep: false }]
//!       - id: person@pve
//!         password: "secret-two"
//!         totp: GEZDGNBVGY3TQOJQ    # a second factor: the secret of its one-time passwords, base 32
//!     roles: [{ id: Operator, privs: [VM.Audit, VM.Allocate] }]
//!     acl: [{ path: /, user: oxmox@pve, role: Administrator }]
//!     pools: [{ id: prod, guests: [9000], storages: [ceph] }]
//!     options: { mac_prefix: "BC:24:11" }      # the datacenter's options
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::guest::image::Image;
use crate::node::{Pci, Usb};
use crate::release::Release;

/// A world file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorldFile {
    pub(crate) clusters: Vec<ClusterSpec>,
}

/// A world file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is no YAML, or has fields nobody knows.
    #[error("the world file cannot be read: {0}")]
    Syntax(String),
    /// It describes something that cannot be.
    #[error("cluster '{cluster}': {problem}")]
    Content {
        /// The cluster.
        cluster: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl WorldFile {
    /// Reads a world from YAML.
    pub fn parse(yaml: &str) -> Result<Self, FileError> {
        // The parser's limits are for strangers' input; a world of 10,000 guests is larger.
        let options = serde_saphyr::options! { budget: None };
        let file: Self = serde_saphyr::from_str_with_options(yaml, options)
            .map_err(|error| FileError::Syntax(error.to_string()))?;
        if file.clusters.is_empty() {
            return Err(FileError::Syntax("it lists no clusters".to_owned()));
        }
        Ok(file)
    }
}

impl Default for WorldFile {
    fn default() -> Self {
        Self {
            clusters: vec![ClusterSpec::named("pve")],
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ClusterSpec {
    pub(crate) name: String,
    pub(crate) release: Option<Release>,
    pub(crate) nodes: Option<Vec<NodeSpec>>,
    pub(crate) storages: Option<Vec<StorageSpec>>,
    pub(crate) zones: Option<Vec<ZoneSpec>>,
    pub(crate) vnets: Option<Vec<VnetSpec>>,
    #[serde(default)]
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) guests: Option<Vec<GuestSpec>>,
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    #[serde(default)]
    pub(crate) users: Vec<UserSpec>,
    #[serde(default)]
    pub(crate) roles: Vec<RoleSpec>,
    #[serde(default)]
    pub(crate) acl: Vec<AclSpec>,
    #[serde(default)]
    pub(crate) pools: Vec<PoolSpec>,
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
}

impl ClusterSpec {
    /// A cluster that is as the default world.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            release: None,
            nodes: None,
            storages: None,
            zones: None,
            vnets: None,
            images: BTreeMap::new(),
            guests: None,
            groups: Vec::new(),
            users: Vec::new(),
            roles: Vec::new(),
            acl: Vec::new(),
            pools: Vec::new(),
            options: BTreeMap::new(),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    pub(crate) ip: Option<String>,
    pub(crate) sockets: Option<u32>,
    pub(crate) cores: Option<u32>,
    pub(crate) cpus: Option<u32>,
    pub(crate) numa_cells: Option<u32>,
    pub(crate) memory_gib: Option<u64>,
    pub(crate) disk_gib: Option<u64>,
    pub(crate) bridges: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) pci: Vec<Pci>,
    #[serde(default)]
    pub(crate) usb: Vec<Usb>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct StorageSpec {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) content: Vec<String>,
    pub(crate) capacity_gib: u64,
    pub(crate) shared: Option<bool>,
    #[serde(default)]
    pub(crate) disabled: bool,
    #[serde(default)]
    pub(crate) nodes: Vec<String>,
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZoneSpec {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VnetSpec {
    pub(crate) id: String,
    pub(crate) zone: String,
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct GuestSpec {
    pub(crate) vmid: u32,
    pub(crate) node: String,
    pub(crate) storage: Option<String>,
    #[serde(default)]
    pub(crate) disk_gib: u64,
    pub(crate) image: Option<String>,
    #[serde(default)]
    pub(crate) template: bool,
    #[serde(default)]
    pub(crate) running: bool,
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserSpec {
    pub(crate) id: String,
    pub(crate) password: Option<String>,
    pub(crate) totp: Option<String>,
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    #[serde(default)]
    pub(crate) tokens: Vec<TokenSpec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenSpec {
    pub(crate) id: String,
    pub(crate) secret: String,
    #[serde(default = "yes")]
    pub(crate) privsep: bool,
    /// Seconds since 1970; 0 is never.
    #[serde(default)]
    pub(crate) expire: u64,
    pub(crate) comment: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoleSpec {
    pub(crate) id: String,
    pub(crate) privs: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AclSpec {
    pub(crate) path: String,
    pub(crate) role: String,
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) token: Option<String>,
    #[serde(default = "yes")]
    pub(crate) propagate: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolSpec {
    pub(crate) id: String,
    pub(crate) comment: Option<String>,
    #[serde(default)]
    pub(crate) guests: Vec<u32>,
    #[serde(default)]
    pub(crate) storages: Vec<String>,
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_in_the_documentation_is_a_world() {
        let source = include_str!("file.rs");
        let lines: Vec<&str> = source
            .lines()
            .skip_while(|line| !line.starts_with("//! ```yaml"))
            .skip(1)
            .take_while(|line| !line.starts_with("//! ```"))
            .map(|line| line.strip_prefix("//! ").unwrap_or_default())
            .collect();
        let yaml = lines.join("\n");
        let file = WorldFile::parse(&yaml).unwrap();
        let clock = crate::clock::Clock::starting_at(1_794_700_000);
        let world = file.clusters[0].build(Release::V8_4, 0, clock).unwrap();
        assert_eq!(world.release, Release::V9_2);
        assert!(
            world
                .guests
                .get(9000)
                .is_some_and(crate::guest::Guest::is_template)
        );
        assert_eq!(world.access.pool_of(9000), Some("prod"));
    }

    #[test]
    fn a_field_nobody_knows_is_refused() {
        let error = WorldFile::parse("clusters: [{ name: a, nodez: [] }]").unwrap_err();
        assert!(error.to_string().contains("nodez"), "{error}");
    }

    #[test]
    fn a_guest_on_a_node_that_is_not_there_is_refused() {
        let yaml = "clusters: [{ name: a, guests: [{ vmid: 100, node: nowhere }] }]";
        let file = WorldFile::parse(yaml).unwrap();
        let clock = crate::clock::Clock::starting_at(1_794_700_000);
        let error = file.clusters[0].build(Release::V9_2, 0, clock).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cluster 'a': guest 100 is on an unknown node 'nowhere'"
        );
    }
}
