//! What a guest is copied from: which one, and what it brings along.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::join_all};
use pve::{GuestConfig, GuestKind, api::guest::ConfigView};
use tokio::time::Instant;

use super::{Flow, Pass};
use crate::{
    NodeName, Size, StorageId, Vmid, Waiting,
    cluster::Whereabouts,
    desired::ROOT_CANDIDATES,
    image::is_of_image,
    intent::{CloneMode, Disk, DiskRole, DiskSlot, Source, TemplateRef},
    place::{File, Reach, Site},
    prop::Prop,
    view::View,
};

/// A guest to copy, with its configuration.
#[derive(Debug, Clone)]
pub(super) struct Original {
    pub(super) site: Site,
    pub(super) template: bool,
    pub(super) config: Arc<GuestConfig>,
}

/// How long a source's configuration is believed.
const BELIEVED: Duration = Duration::from_mins(5);

impl Pass<'_> {
    /// The guests the source names; waits while there are none.
    pub(super) async fn originals(&mut self, view: &View) -> Flow<Vec<Original>> {
        let Source::Template { from, .. } = &self.intent.source else {
            return Ok(Vec::new());
        };
        let wanted = |vmid: Vmid, row: &crate::view::GuestRow| match from {
            TemplateRef::Vmid(id) => *id == vmid,
            TemplateRef::Guest(subject) => subject.guest == vmid,
            TemplateRef::AnyOf(ids) => row.template && ids.contains(&vmid),
            TemplateRef::Image(templates) => {
                let tag = templates.get(&vmid);
                row.template && tag.is_some_and(|tag| row.tags.contains(tag))
            }
            TemplateRef::Name(name) => row.template && &row.name == name,
            TemplateRef::Tags(tags) => {
                row.template
                    && !tags.is_empty()
                    && tags
                        .iter()
                        .all(|tag| row.tags.contains(&tag.to_lowercase()))
            }
            TemplateRef::Gone(_) => false,
        };
        let found: Vec<_> = view
            .guests
            .iter()
            .filter(|(vmid, row)| row.kind == self.kind() && wanted(**vmid, row))
            .map(|(vmid, row)| (*vmid, row.node.clone(), row.template))
            .collect();
        if found.is_empty() {
            let message = match from {
                TemplateRef::Gone(why) => why.clone(),
                from => format!("no template with {from} on the cluster"),
            };
            return Err(self.wait(Waiting::Source, message, Duration::from_secs(15)));
        }
        let mut originals = Vec::new();
        let (mut problem, mut other) = (None, None);
        for (vmid, node, template) in found {
            if !view.node_online(&node) {
                continue;
            }
            match self.source_config(vmid, &node).await {
                Ok(config) if !self.is_meant(from, vmid, &config) => other = Some(vmid),
                Ok(config) => {
                    let disks_shared = all_shared(&volumes(&config), view, &node);
                    let shared = disks_shared && all_shared(&discs(&config), view, &node);
                    let site = Site {
                        vmid,
                        node,
                        shared,
                        disks_shared,
                        storages: self.storages_kept(&config),
                    };
                    originals.push(Original {
                        site,
                        template,
                        config,
                    });
                }
                Err(error) => problem = Some(error),
            }
        }
        match (originals.is_empty(), problem, other) {
            (false, ..) => Ok(originals),
            (true, Some(error), _) => Err(self.trouble("reading the source", &error)),
            (true, None, Some(vmid)) => {
                let message = format!("guest {vmid} is not the one that is to be copied");
                Err(self.wait(Waiting::Source, message, Duration::from_secs(30)))
            }
            (true, None, None) => {
                let message = format!("the nodes with {from} are down");
                Err(self.wait(Waiting::Source, message, Duration::from_secs(30)))
            }
        }
    }

    /// Whether a guest is the one that was named, and not only of the same number.
    fn is_meant(&self, from: &TemplateRef, vmid: Vmid, config: &GuestConfig) -> bool {
        let subject = match from {
            TemplateRef::Guest(subject) => subject,
            TemplateRef::Image(templates) => {
                let tag = templates.get(&vmid);
                return tag.is_some_and(|tag| is_of_image(config, tag, vmid));
            }
            _ => return true,
        };
        let (owner, keeper) = (subject.owner.as_ref(), subject.keeper.as_ref());
        let likeness = &subject.likeness;
        likeness.is_meant(owner, keeper, self.kind(), config)
    }

    /// The storages that a copy stays on: those of the source, unless the copy's own was named.
    fn storages_kept(&self, config: &GuestConfig) -> BTreeSet<StorageId> {
        if self.root_storage().is_some() {
            return BTreeSet::new();
        }
        let all = volumes(config);
        all.iter()
            .filter_map(|(_, volume)| storage_of(volume))
            .collect()
    }

    async fn source_config(
        &self,
        vmid: Vmid,
        node: &NodeName,
    ) -> Result<Arc<GuestConfig>, pve::Error> {
        let now = Instant::now();
        let reading = {
            let mut state = self.cluster.state();
            if let Some((config, at)) = state.sources.get(&vmid)
                && now - *at < BELIEVED
            {
                return Ok(config.clone());
            }
            // A hundred copies that are begun at once read their source once.
            let begun = state.reading.get(&vmid);
            let begun = begun.filter(|reading| reading.peek().is_none()).cloned();
            begun.unwrap_or_else(|| {
                let guest = self.handle(node, vmid);
                let read = async move { guest.config(ConfigView::Current).await.map(Arc::new) };
                let reading = read.boxed().shared();
                state.reading.insert(vmid, reading.clone());
                reading
            })
        };
        let config = reading.await;
        let mut state = self.cluster.state();
        state.reading.remove(&vmid);
        let config = config?;
        state.sources.insert(vmid, (config.clone(), now));
        Ok(config)
    }

    /// The file the source names, and the nodes that have it; nothing if all nodes see the same. Waits while there is none.
    pub(super) async fn file(&mut self, view: &View) -> Flow<Option<File>> {
        let volume = self.intent.source.file();
        let Some((volume, storage)) = volume.and_then(|v| Some((v.to_owned(), storage_of(v)?)))
        else {
            return Ok(None);
        };
        if is_shared(view, &storage) {
            return Ok(None);
        }
        let on = match self.nodes_with(view, &volume, &storage).await {
            Ok(on) => on,
            Err(error) => return Err(self.trouble("looking for the source", &error)),
        };
        if on.is_empty() {
            let message = format!("no node has '{volume}': put it there, or correct its name");
            return Err(self.wait(Waiting::Source, message, Duration::from_secs(15)));
        }
        Ok(Some(File { volume, on }))
    }

    /// Asks every node that is up for a file. Who comes meanwhile waits for the same answer.
    async fn nodes_with(
        &self,
        view: &View,
        volume: &str,
        storage: &StorageId,
    ) -> pve::Result<Whereabouts> {
        let mut files = self.cluster.files.lock().await;
        let now = Instant::now();
        files.retain(|_, (_, at)| now - *at < BELIEVED);
        if let Some((on, _)) = files.get(volume) {
            return Ok(on.clone());
        }
        let kind = volume
            .split_once(':')
            .and_then(|(_, name)| name.split_once('/'));
        let kind = kind.map(|(kind, _)| kind);
        let has = |node: &&NodeName| {
            let row = view.storage(storage, node);
            view.node_online(node) && row.is_some_and(|row| row.available)
        };
        let nodes: Vec<&NodeName> = view.nodes.keys().filter(has).collect();
        let lists = nodes.iter().map(|node| async {
            let storage = self.cluster.client.node(node).storage(storage);
            storage.content(kind, None).await
        });
        let mut on = BTreeSet::new();
        let mut problem = None;
        for (node, list) in nodes.iter().zip(join_all(lists).await) {
            match list {
                Ok(list) if list.iter().any(|it| it.volid.as_str() == volume) => {
                    on.insert((*node).clone());
                }
                Ok(_) => {}
                Err(error) => problem = Some(error),
            }
        }
        let on = Arc::new(on);
        match problem {
            Some(error) if on.is_empty() => return Err(error),
            None if !on.is_empty() => drop(files.insert(volume.to_owned(), (on.clone(), now))),
            _ => {}
        }
        Ok(on)
    }

    /// Whether a copy that cannot be linked may be a full one.
    pub(super) fn may_be_full(&self) -> bool {
        matches!(
            &self.intent.source,
            Source::Template {
                mode: CloneMode::Auto,
                ..
            }
        )
    }

    /// Whether the copy shall be linked.
    pub(super) fn linked(&self, view: &View, original: &Original, reach: Reach) -> bool {
        let Source::Template { mode, snapshot, .. } = &self.intent.source else {
            return false;
        };
        let linkable =
            original.template && snapshot.is_none() && !self.record.full && !self.is_thick();
        let storage = self.root_storage();
        let moves = self.moves_away(view, reach);
        match mode {
            CloneMode::Linked => true,
            CloneMode::Full => linkable && moves,
            CloneMode::Auto => {
                let stays = storage.is_none_or(|wanted| {
                    root_disk(&original.config).is_some_and(|root| root.storage == Some(wanted))
                });
                // What links to a local disk cannot move away from it.
                let tied = reach == Reach::Move && !original.site.disks_shared;
                linkable && !tied && (stays || moves)
            }
        }
    }

    /// Whether the root disk of a copy is moved to where it shall be, which makes a copy in full of a link.
    pub(super) fn moves_away(&self, view: &View, reach: Reach) -> bool {
        let storage = self.root_storage();
        reach == Reach::Shared && storage.is_some_and(|storage| !is_shared(view, &storage))
    }

    /// The root disk as it was declared.
    pub(super) fn root(&self) -> Option<&Disk> {
        let mut disks = self.intent.disks.iter();
        disks.find(|disk| disk.role == DiskRole::Root)
    }

    /// The storage the root disk was declared on.
    pub(super) fn root_storage(&self) -> Option<StorageId> {
        self.root()?.storage.clone()
    }

    /// Whether the root disk shall take all its space at once, which a link never does.
    pub(super) fn is_thick(&self) -> bool {
        self.root().is_some_and(|root| root.thin == Some(false))
    }
}

/// The disk a guest boots from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RootDisk {
    pub(crate) slot: DiskSlot,
    pub(crate) volume: String,
    pub(crate) storage: Option<StorageId>,
    pub(crate) size: Option<Size>,
}

/// Finds the disk a guest boots from.
pub(crate) fn root_disk(config: &GuestConfig) -> Option<RootDisk> {
    let boot = config.get("boot").map(|text| Prop::parse("boot", text));
    let order = boot
        .as_ref()
        .and_then(|boot| boot.get("order"))
        .unwrap_or_default();
    let candidates = order
        .split(';')
        .chain(config.get("bootdisk"))
        .chain(ROOT_CANDIDATES.iter().copied());
    for candidate in candidates {
        let (Ok(slot), Some(text)) = (candidate.parse::<DiskSlot>(), config.get(candidate)) else {
            continue;
        };
        if text.contains("media=cdrom") {
            continue;
        }
        let prop = Prop::parse(candidate, text);
        let volume = prop.get("file").unwrap_or_default().to_owned();
        let storage = storage_of(&volume);
        return Some(RootDisk {
            slot,
            volume,
            storage,
            size: prop.get("size").and_then(Size::from_pve),
        });
    }
    None
}

/// The volumes of a guest, first-boot drives and CDs left out.
pub(crate) fn volumes(config: &GuestConfig) -> Vec<(String, String)> {
    config
        .iter()
        .filter(|(key, value)| {
            let drive = key.parse::<DiskSlot>().is_ok()
                || key.starts_with("efidisk")
                || key.starts_with("tpmstate")
                || *key == "rootfs"
                || (key.starts_with("mp") && key[2..].parse::<u8>().is_ok());
            drive && !value.contains("media=cdrom") && value.contains(':')
        })
        .map(|(key, value)| {
            let prop = Prop::parse(key, value);
            let volume = prop.get("file").or(prop.get("volume")).unwrap_or_default();
            (key.to_owned(), volume.to_owned())
        })
        .collect()
}

/// The storage of a volume.
pub(crate) fn storage_of(volume: &str) -> Option<StorageId> {
    let (storage, _) = volume.split_once(':')?;
    StorageId::new(storage).ok()
}

/// Whether all nodes see what is on a storage.
pub(super) fn is_shared(view: &View, storage: &StorageId) -> bool {
    let mut rows = view.storages.iter();
    rows.any(|((id, _), row)| id == storage && row.shared)
}

/// The volumes in a guest's CD drives, PVE's own first-boot disc among them.
pub(super) fn discs(config: &GuestConfig) -> Vec<(String, String)> {
    config
        .iter()
        .filter(|(key, value)| key.parse::<DiskSlot>().is_ok() && value.contains("media=cdrom"))
        .filter_map(|(key, value)| {
            let prop = Prop::parse(key, value);
            let volume = prop.get("file").filter(|file| file.contains(':'))?;
            Some((key.to_owned(), volume.to_owned()))
        })
        .collect()
}

fn all_shared(volumes: &[(String, String)], view: &View, node: &NodeName) -> bool {
    volumes.iter().all(|(_, volume)| {
        storage_of(volume)
            .and_then(|id| view.storage(&id, node).map(|row| row.shared))
            .unwrap_or(false)
    })
}

/// The processors a guest of this configuration has.
pub(crate) fn default_cpus(config: &GuestConfig, kind: GuestKind) -> u32 {
    let number = |key: &str| config.get(key).and_then(|text| text.parse::<u32>().ok());
    match kind {
        GuestKind::Qemu => number("cores").unwrap_or(1) * number("sockets").unwrap_or(1),
        GuestKind::Lxc => number("cores").unwrap_or(1),
    }
}

/// The memory a guest of this configuration has.
pub(crate) fn default_memory(config: &GuestConfig) -> Size {
    let text = config.get("memory").unwrap_or("512");
    let number = text.strip_prefix("current=").unwrap_or(text);
    Size::mib(number.parse().unwrap_or(512))
}
