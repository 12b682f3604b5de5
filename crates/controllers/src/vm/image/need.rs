//! Where an image is needed.

use std::{cmp::Reverse, sync::Arc};

use api::vm::{NamespacedRef, Provider, VMClass, VMImage, VirtualMachineSpec};
use fleet::{ClusterFacts, ClusterName, NodeName, StorageId};
use kube::ResourceExt as _;

use super::super::{
    machine,
    refs::{self, Missing},
    translate,
};
use crate::context::{Context, namespace};

/// One place an image is needed.
pub(super) struct Need {
    pub(super) cluster: ClusterName,
    /// The storage somebody named.
    pub(super) storage: Option<StorageId>,
    pub(super) provider: Arc<Provider>,
    /// Nodes that must have their own copy, because machines are pinned to them and the storage is theirs alone.
    pub(super) nodes: Vec<NodeName>,
}

/// The storage a machine's image is wanted on, if anybody named one.
///
/// The image's own word comes first, then the nearest to the machine: its root disk, its class, its Provider's default.
pub(crate) fn wanted_storage<'a>(
    image: &'a VMImage,
    spec: &'a VirtualMachineSpec,
    class: Option<&'a VMClass>,
    provider: &'a Provider,
) -> Option<&'a String> {
    let root = spec.disks.iter().find(|disk| disk.name == "root");
    let root = root.or(spec.disks.first());
    let of_disk = root.and_then(|disk| disk.storage.as_ref().or(disk.storage_class.as_ref()));
    let of_class = class.and_then(|class| class.spec.storage.as_ref()?.class.as_ref());
    let default = provider
        .spec
        .defaults
        .as_ref()
        .and_then(|defaults| defaults.storage.as_ref());
    image
        .spec
        .storage
        .as_ref()
        .or(of_disk)
        .or(of_class)
        .or(default)
}

/// Everywhere an image is needed: where `spec.providerRef` says, and where machines that name it are.
///
/// A machine whose own references cannot be resolved says so itself and needs nothing yet.
pub(super) fn needs(context: &Context, image: &VMImage) -> Result<Vec<Need>, Missing> {
    let place = namespace(image);
    let mut needs: Vec<Need> = Vec::new();
    if let Some(named) = &image.spec.provider_ref {
        let named = NamespacedRef {
            name: named.name.clone(),
            ..NamespacedRef::default()
        };
        let provider = refs::provider(context, &place, Some(&named), None)?;
        let spec = VirtualMachineSpec::default();
        let storage = storage(wanted_storage(image, &spec, None, &provider))?;
        add(&mut needs, provider, storage, None)?;
    }
    let mut machines = context.stores.machines.state_filter(|machine| {
        namespace(machine) == place
            && machine.metadata.deletion_timestamp.is_none()
            && machine
                .spec
                .image_ref
                .as_ref()
                .is_some_and(|r| r.name == image.name_any())
    });
    machines.sort_by_key(|machine| machine.name_any());
    for machine in machines {
        let recorded = machine.status.as_ref().and_then(machine::recorded_cluster);
        let named = machine.spec.provider_ref.as_ref();
        let Ok(provider) = refs::provider(context, &place, named, recorded.as_ref()) else {
            continue;
        };
        let class = match &machine.spec.class_ref {
            None => None,
            Some(class) => match refs::class(context, &place, &class.name) {
                Ok(class) => Some(class),
                Err(_) => continue,
            },
        };
        let wanted = wanted_storage(image, &machine.spec, class.as_deref(), &provider);
        let Ok(storage) = storage(wanted) else {
            continue;
        };
        add(&mut needs, provider, storage, machine.spec.node.as_deref())?;
    }
    if needs.is_empty()
        && let Ok(only) = refs::provider(context, &place, None, None)
        && !matches!(image.spec.source, Some(api::vm::ImageSource::Url(_)))
    {
        // Nobody asks yet; looking for a template costs nothing and says early that a name is misspelt.
        add(&mut needs, only, None, None)?;
    }
    for need in &mut needs {
        need.keep_nodes_of_local_storage(context);
    }
    Ok(needs)
}

fn storage(name: Option<&String>) -> Result<Option<StorageId>, Missing> {
    let read = name.map(|name| translate::storage("spec.storage", name));
    Ok(read.transpose()?)
}

fn add(
    needs: &mut Vec<Need>,
    provider: Arc<Provider>,
    storage: Option<StorageId>,
    node: Option<&str>,
) -> Result<(), Missing> {
    let cluster = refs::cluster(&provider)?;
    let node = node.and_then(|node| NodeName::new(node).ok());
    let known = needs
        .iter_mut()
        .find(|need| need.cluster == cluster && need.storage == storage);
    if let Some(known) = known {
        known.nodes.extend(node);
        known.nodes.sort();
        known.nodes.dedup();
    } else {
        needs.push(Need {
            cluster,
            storage,
            provider,
            nodes: node.into_iter().collect(),
        });
    }
    Ok(())
}

impl Need {
    /// The storage to keep it on: the one that was named, else the one most machines can use.
    pub(super) fn choose(&self, context: &Context) -> Result<StorageId, Missing> {
        if let Some(storage) = &self.storage {
            return Ok(storage.clone());
        }
        let facts = context
            .fleet
            .facts(&self.cluster)
            .filter(|facts| facts.reachable);
        let Some(facts) = facts else {
            return Err(Missing::new(
                "ProviderNotReady",
                format!("Provider {} is not connected yet", self.cluster),
            ));
        };
        roomiest(&facts).ok_or_else(|| {
            Missing::new(
                "NoStorage",
                format!(
                    "no storage of {} may hold disk images; allow content 'images' on one, or name one in spec.storage",
                    self.cluster
                ),
            )
        })
    }

    fn keep_nodes_of_local_storage(&mut self, context: &Context) {
        let facts = context.fleet.facts(&self.cluster);
        let shared = self.storage.as_ref().is_none_or(|storage| {
            facts
                .as_ref()
                .and_then(|facts| facts.storages.get(storage))
                .is_none_or(|facts| facts.shared)
        });
        if shared {
            self.nodes.clear();
        }
    }
}

/// The storage for disk images that the most nodes share, of these the one with the most room.
fn roomiest(facts: &ClusterFacts) -> Option<StorageId> {
    let fit = facts
        .storages
        .iter()
        .filter(|(_, storage)| storage.content.iter().any(|content| content == "images"));
    let best = fit.max_by_key(|(id, storage)| {
        let room = storage.nodes.values().map(|space| space.free().as_bytes());
        // Of equals the first by name, so that the choice repeats.
        (
            storage.shared,
            room.max().unwrap_or_default(),
            Reverse((*id).clone()),
        )
    });
    best.map(|(id, _)| id.clone())
}

#[cfg(test)]
mod tests {
    use fleet::Size;
    use fleet::facts::{Space, StorageFacts};

    use super::*;

    fn storage(shared: bool, content: &str, free: u64) -> StorageFacts {
        let space = Space {
            total: Size::gib(free),
            used: Size::default(),
        };
        StorageFacts {
            kind: "dir".into(),
            shared,
            content: vec![content.into()],
            nodes: [(NodeName::new("pve1").unwrap(), space)].into(),
        }
    }

    #[test]
    fn shared_storage_is_preferred_to_larger_local_storage() {
        let id = |name: &str| StorageId::new(name).unwrap();
        let facts = ClusterFacts {
            storages: [
                (id("big"), storage(false, "images", 900)),
                (id("ceph"), storage(true, "images", 100)),
                (id("iso"), storage(true, "iso", 9000)),
            ]
            .into(),
            ..ClusterFacts::default()
        };
        assert_eq!(roomiest(&facts), Some(id("ceph")));
        assert_eq!(roomiest(&ClusterFacts::default()), None);
    }

    #[test]
    fn the_images_own_storage_comes_before_the_machines() {
        let image = |storage: Option<&str>| {
            let spec = api::vm::VMImageSpec {
                storage: storage.map(ToOwned::to_owned),
                ..api::vm::VMImageSpec::default()
            };
            VMImage::new("noble", spec)
        };
        let provider = Provider::new("pve", api::vm::ProviderSpec::default());
        let spec: VirtualMachineSpec = serde_json::from_value(serde_json::json!({
            "disks": [{"name": "data", "size": "1Gi"}, {"name": "root", "size": "9Gi", "storage": "ceph"}],
        }))
        .unwrap();
        let (own, none) = (image(Some("nvme")), image(None));
        let wanted = |image| wanted_storage(image, &spec, None, &provider).cloned();
        assert_eq!(wanted(&own).as_deref(), Some("nvme"));
        assert_eq!(wanted(&none).as_deref(), Some("ceph"));
    }
}
