//! Storages: where guests' disks, installation media, backups and templates live.
//!
//! A [`Definition`] is what `storage.cfg` says; a [`Store`] is what is really there. A shared storage has
//! one store that every node sees, a local one a store per node: the same volume id on two nodes is two
//! different disks. [`Storages`] ties both together and is the only door: it resolves volume ids, checks
//! that a storage is enabled on a node, and turns PVE's plugin rules ([`kind`]) into volumes.
//!
//! Nothing here knows HTTP, tasks or time: the caller says what time it is and waits as long as it likes.

mod appliance_list;
pub(crate) mod config;
pub(crate) mod content;
pub(crate) mod kind;
pub(crate) mod name;
mod options;
pub(crate) mod ova;
pub(crate) mod prune;
mod routes;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod transfer;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub(crate) use kind::{Feature, Format, Kind, State};
pub(crate) use name::{Content, Name, split_volid};
pub(crate) use store::{Alloc, Archive, ArchivedDisk, Store, Volume};

/// Failures of storage operations; the texts are PVE's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("storage '{0}' does not exist")]
    NoStorage(String),
    #[error("storage '{0}' is disabled")]
    Disabled(String),
    #[error("storage '{storage}' is not available on node '{node}'")]
    NotOnNode { storage: String, node: String },
    #[error("unable to parse {plugin} volume name '{name}'")]
    VolumeName { plugin: &'static str, name: String },
    #[error("unable to parse volume ID '{0}'\n")]
    VolumeId(String),
    #[error("volume '{0}' does not exist")]
    NoVolume(String),
    #[error("disk image '{0}' already exists")]
    Exists(String),
    #[error("illegal name '{name}' - should be 'vm-{vmid}-*'")]
    IllegalName { name: String, vmid: u32 },
    #[error("unsupported format '{0}'")]
    Format(&'static str),
    #[error("base volume '{0}' is still in use by linked cloned")]
    BaseInUse(String),
    #[error("storage '{storage}' does not support content-type '{content}'")]
    Content {
        storage: String,
        content: &'static str,
    },
    #[error("{0}")]
    NoSpace(String),
    #[error("can't rollback, snapshot '{snap}' does not exist on '{volid}'")]
    NoSnapshot { snap: String, volid: String },
    #[error("can't rollback, '{snap}' is not most recent snapshot on '{volid}'")]
    NotNewest { snap: String, volid: String },
    #[error("unable to find free volume name in directory '{0}'")]
    NoFreeName(String),
}

/// One entry of the cluster's storage configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Definition {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) content: BTreeSet<String>,
    pub(crate) shared: bool,
    pub(crate) disabled: bool,
    /// Nodes it is restricted to; empty means all.
    pub(crate) nodes: BTreeSet<String>,
    /// Everything else the configuration carries (`path`, `vgname`, `pool`, `server`, …), as written.
    pub(crate) options: BTreeMap<String, String>,
    /// Bytes a store of it holds.
    pub(crate) capacity: u64,
}

/// A storage: its configuration and what it holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Storage {
    pub(crate) def: Definition,
    stores: BTreeMap<String, Store>,
}

/// All storages of one PVE cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Storages {
    entries: BTreeMap<String, Storage>,
}

/// Total, used and free bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) total: u64,
    pub(crate) used: u64,
    pub(crate) avail: u64,
}

impl Definition {
    pub(crate) fn new(id: &str, kind: Kind, content: &[&str], capacity: u64) -> Definition {
        Definition {
            id: id.to_owned(),
            kind,
            content: content.iter().map(|&c| c.to_owned()).collect(),
            shared: kind.shared_by_nature(),
            disabled: false,
            nodes: BTreeSet::new(),
            options: BTreeMap::new(),
            capacity,
        }
    }

    pub(crate) fn holds(&self, content: &str) -> bool {
        self.content.contains(content)
    }

    /// The directory, volume group or pool volumes are in.
    pub(crate) fn root(&self) -> String {
        let given = match self.kind {
            Kind::Dir | Kind::Nfs | Kind::Cifs => self.options.get("path"),
            Kind::Lvm | Kind::LvmThin => self.options.get("vgname"),
            Kind::ZfsPool | Kind::Rbd => self.options.get("pool"),
        };
        given.cloned().unwrap_or_else(|| match self.kind {
            Kind::Dir | Kind::Nfs | Kind::Cifs => format!("/mnt/pve/{}", self.id),
            Kind::Rbd => "rbd".to_owned(),
            Kind::Lvm | Kind::LvmThin | Kind::ZfsPool => self.id.clone(),
        })
    }

    pub(crate) fn on_node(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.contains(node)
    }

    /// The whole volume takes its space at once.
    pub(crate) fn thick(&self) -> bool {
        match self.kind {
            Kind::Lvm => true,
            Kind::ZfsPool => self.options.get("sparse").is_none_or(|v| v == "0"),
            Kind::Dir | Kind::Nfs | Kind::Cifs => self
                .options
                .get("preallocation")
                .is_some_and(|v| v == "full" || v == "falloc"),
            Kind::LvmThin | Kind::Rbd => false,
        }
    }
}

impl Storage {
    pub(crate) fn new(def: Definition) -> Storage {
        Storage {
            def,
            stores: BTreeMap::new(),
        }
    }

    fn slot(&self, node: &str) -> String {
        if self.def.shared {
            String::new()
        } else {
            node.to_owned()
        }
    }

    /// What is on this storage as seen from `node`.
    pub(crate) fn store(&self, node: &str) -> Option<&Store> {
        self.stores.get(&self.slot(node))
    }

    pub(crate) fn space(&self, node: &str) -> Space {
        let used = self.store(node).map_or(0, |store| store.used(&self.def));
        let total = self.def.capacity;
        Space {
            total,
            used: used.min(total),
            avail: total.saturating_sub(used),
        }
    }
}

impl Storages {
    pub(crate) fn insert(&mut self, storage: Storage) {
        self.entries.insert(storage.def.id.clone(), storage);
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Storage> {
        self.entries.remove(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Storage> {
        self.entries.values()
    }

    pub(crate) fn get(&self, id: &str) -> Result<&Storage, Error> {
        self.entries
            .get(id)
            .ok_or_else(|| Error::NoStorage(id.to_owned()))
    }

    pub(crate) fn definition_mut(&mut self, id: &str) -> Result<&mut Definition, Error> {
        self.entries
            .get_mut(id)
            .map(|s| &mut s.def)
            .ok_or_else(|| Error::NoStorage(id.to_owned()))
    }

    /// The storage, provided it may be used on this node.
    pub(crate) fn enabled(&self, id: &str, node: &str) -> Result<&Storage, Error> {
        let storage = self.get(id)?;
        if storage.def.disabled {
            return Err(Error::Disabled(id.to_owned()));
        }
        if !storage.def.on_node(node) {
            return Err(Error::NotOnNode {
                storage: id.to_owned(),
                node: node.to_owned(),
            });
        }
        Ok(storage)
    }

    /// Splits a volume id into its storage and parsed name.
    pub(crate) fn parse(&self, volid: &str) -> Result<(&Storage, Name), Error> {
        let (id, name) = split_volid(volid).ok_or_else(|| Error::VolumeId(volid.to_owned()))?;
        let storage = self.get(id)?;
        Ok((storage, Name::parse(storage.def.kind, name)?))
    }

    /// The volume behind an id, as seen from `node`.
    pub(crate) fn volume(&self, node: &str, volid: &str) -> Result<&Volume, Error> {
        let (storage, name) = self.parse(volid)?;
        self.enabled(&storage.def.id, node)?;
        storage
            .store(node)
            .and_then(|store| store.get(&name.key()))
            .ok_or_else(|| Error::NoVolume(volid.to_owned()))
    }

    /// The same, to be changed.
    pub(crate) fn volume_mut(&mut self, node: &str, volid: &str) -> Result<&mut Volume, Error> {
        let (storage, name) = self.parse(volid)?;
        let id = storage.def.id.clone();
        self.store_mut(&id, node)?
            .1
            .get_mut(&name.key())
            .ok_or_else(|| Error::NoVolume(volid.to_owned()))
    }

    /// The path PVE would print for a volume.
    pub(crate) fn path(&self, volid: &str) -> Result<String, Error> {
        let (storage, name) = self.parse(volid)?;
        Ok(name.path(storage.def.kind, &storage.def.root()))
    }

    fn store_mut(&mut self, id: &str, node: &str) -> Result<(&Definition, &mut Store), Error> {
        self.enabled(id, node)?;
        let storage = self
            .entries
            .get_mut(id)
            .ok_or_else(|| Error::NoStorage(id.to_owned()))?;
        let slot = storage.slot(node);
        Ok((&storage.def, storage.stores.entry(slot).or_default()))
    }

    /// Creates an image and returns its volume id.
    pub(crate) fn alloc(
        &mut self,
        id: &str,
        node: &str,
        alloc: Alloc<'_>,
    ) -> Result<String, Error> {
        let (def, store) = self.store_mut(id, node)?;
        store.alloc(def, alloc)
    }

    /// Refuses to write `bytes` more than a store has room for.
    pub(crate) fn check_room(&self, id: &str, node: &str, bytes: u64) -> Result<(), Error> {
        let storage = self.enabled(id, node)?;
        match storage.store(node) {
            Some(store) => store.room_for(&storage.def, "", bytes),
            None => Ok(()),
        }
    }

    /// Puts a file (ISO, container template, import image, snippet, backup) on a file storage.
    pub(crate) fn put_file(
        &mut self,
        id: &str,
        node: &str,
        content: Content,
        file: &str,
        volume: Volume,
    ) -> Result<String, Error> {
        let (def, store) = self.store_mut(id, node)?;
        store.put_file(def, content, file, volume)
    }

    /// Brings the volume as it is on one node to another, over what was there.
    pub(crate) fn replicate(&mut self, volid: &str, from: &str, to: &str) -> Result<(), Error> {
        let volume = self.volume(from, volid)?.clone();
        let id = self.parse(volid)?.0.def.id.clone();
        self.put(&id, to, volume)
    }

    /// Puts a whole volume on a storage, over one of the same name.
    pub(crate) fn put(&mut self, id: &str, node: &str, volume: Volume) -> Result<(), Error> {
        let (def, store) = self.store_mut(id, node)?;
        store.put(def, volume)
    }

    /// Removes a volume. A base with linked clones is refused; a missing volume is `Ok(false)`.
    pub(crate) fn free(&mut self, node: &str, volid: &str) -> Result<bool, Error> {
        let (storage, name) = self.parse(volid)?;
        let id = storage.def.id.clone();
        let (def, store) = self.store_mut(&id, node)?;
        store.free(def, &name)
    }

    /// Renames an image to a base image and returns the new id.
    pub(crate) fn make_base(&mut self, node: &str, volid: &str) -> Result<String, Error> {
        let (storage, name) = self.parse(volid)?;
        let id = storage.def.id.clone();
        let (def, store) = self.store_mut(&id, node)?;
        store
            .make_base(def, &name)
            .ok_or_else(|| Error::NoVolume(volid.to_owned()))
    }

    /// Makes a copy-on-write child of a base (or of a snapshot, where the plugin can).
    pub(crate) fn link(
        &mut self,
        node: &str,
        volid: &str,
        vmid: u32,
        now: u64,
    ) -> Result<String, Error> {
        let (storage, name) = self.parse(volid)?;
        let id = storage.def.id.clone();
        let (def, store) = self.store_mut(&id, node)?;
        store.link(def, &name, vmid, now)
    }

    /// Hands an image to another guest on the same storage.
    pub(crate) fn rename(&mut self, node: &str, volid: &str, vmid: u32) -> Result<String, Error> {
        let (storage, name) = self.parse(volid)?;
        let id = storage.def.id.clone();
        let (def, store) = self.store_mut(&id, node)?;
        store.rename(def, &name, vmid)
    }

    /// Whether a plugin offers a feature for this volume (or a snapshot of it).
    pub(crate) fn has_feature(&self, feature: Feature, volid: &str, snapshot: bool) -> bool {
        self.parse(volid).is_ok_and(|(storage, name)| {
            let state = match (snapshot, name.is_base()) {
                (true, _) => State::Snap,
                (false, true) => State::Base,
                (false, false) => State::Current,
            };
            storage.def.kind.has(feature, state, name.format)
        })
    }

    /// The image volumes a guest owns on every storage the node can use.
    pub(crate) fn owned_by(&self, node: &str, vmid: u32) -> Vec<String> {
        let usable = self
            .entries
            .values()
            .filter(|s| !s.def.disabled && s.def.on_node(node));
        usable
            .flat_map(|storage| {
                let store = storage.store(node);
                store.into_iter().flat_map(move |store| {
                    store
                        .iter()
                        .filter(move |(_, v)| {
                            v.name.vmid == Some(vmid)
                                && matches!(v.name.content, Content::Images | Content::RootDir)
                        })
                        .map(move |(_, v)| {
                            format!("{}:{}", storage.def.id, v.name.volname(storage.def.kind))
                        })
                })
            })
            .collect()
    }
}

/// The endpoints of storages.
pub(crate) fn routes(release: crate::release::Release) -> Vec<crate::route::Route> {
    routes::routes(release)
}

#[cfg(test)]
mod tests;
