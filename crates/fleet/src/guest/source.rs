//! What a guest is copied from: which one, and what it brings along.

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use pve::{GuestConfig, GuestKind, api::guest::ConfigView};
use tokio::time::Instant;

use super::{Flow, Pass};
use crate::{
    Size, StorageId, Vmid, Waiting,
    desired::ROOT_CANDIDATES,
    intent::{CloneMode, DiskRole, DiskSlot, Source, TemplateRef},
    place::{Reach, Site},
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
            TemplateRef::AnyOf(ids) => ids.contains(&vmid),
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
        let mut problem = None;
        for (vmid, node, template) in found {
            if !view.node_online(&node) {
                continue;
            }
            match self.source_config(vmid, &node).await {
                Ok(config) => {
                    let shared = all_shared(&config, view, &node);
                    let site = Site { vmid, node, shared };
                    originals.push(Original {
                        site,
                        template,
                        config,
                    });
                }
                Err(error) => problem = Some(error),
            }
        }
        match (originals.is_empty(), problem) {
            (false, _) => Ok(originals),
            (true, Some(error)) => Err(self.trouble("reading the source", &error)),
            (true, None) => {
                let message = format!("the nodes with {from} are down");
                Err(self.wait(Waiting::Source, message, Duration::from_secs(30)))
            }
        }
    }

    async fn source_config(
        &self,
        vmid: Vmid,
        node: &crate::NodeName,
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
        let linkable = original.template && snapshot.is_none() && !self.record.full;
        let storage = self.root_storage();
        // A copy in full is what a link becomes when its disk moves to another storage.
        let moves = |storage: &StorageId| reach == Reach::Shared && !is_shared(view, storage);
        let moves = storage.as_ref().is_some_and(moves);
        match mode {
            CloneMode::Linked => true,
            CloneMode::Full => linkable && moves,
            CloneMode::Auto => {
                let stays = storage.is_none_or(|wanted| {
                    root_disk(&original.config).is_some_and(|root| root.storage == Some(wanted))
                });
                // What links to a local disk cannot move away from it.
                linkable && reach != Reach::Move && (stays || moves)
            }
        }
    }

    /// The storage the root disk was declared on.
    pub(super) fn root_storage(&self) -> Option<StorageId> {
        let root = self
            .intent
            .disks
            .iter()
            .find(|disk| disk.role == DiskRole::Root)?;
        root.storage.clone()
    }
}

/// The disk a guest boots from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RootDisk {
    pub(super) slot: DiskSlot,
    pub(super) volume: String,
    pub(super) storage: Option<StorageId>,
    pub(super) size: Option<Size>,
}

/// Finds the disk a guest boots from.
pub(super) fn root_disk(config: &GuestConfig) -> Option<RootDisk> {
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
        let storage = volume
            .split(':')
            .next()
            .and_then(|id| StorageId::new(id).ok());
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

/// Whether all nodes see what is on a storage.
pub(super) fn is_shared(view: &View, storage: &StorageId) -> bool {
    let mut rows = view.storages.iter();
    rows.any(|((id, _), row)| id == storage && row.shared)
}

fn all_shared(config: &GuestConfig, view: &View, node: &crate::NodeName) -> bool {
    volumes(config).iter().all(|(_, volume)| {
        volume
            .split(':')
            .next()
            .and_then(|id| StorageId::new(id).ok())
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
