//! Everything a machine refers to, found and put together.

use std::collections::BTreeMap;

use api::vm::{
    GuestRef, ImageSource, Provider, UserData, VMClass, VMImage, VirtualMachine,
    VirtualMachineSpec, VirtualMachineStatus,
};
use fleet::{
    ClusterName, GuestIntent, GuestRecord,
    intent::{CloneMode, Payload, Source, TemplateRef},
    record::{Origin, Stage, Subject},
};
use kube::ResourceExt as _;

use super::{
    super::{
        action, apart, image,
        refs::{self, Lookup, Missing},
        translate::{self, InitParts, Invalid, MachineParts},
    },
    record,
};
use crate::context::{Context, namespace, owner};

pub(super) async fn intent(
    context: &Context,
    machine: &VirtualMachine,
    status: &VirtualMachineStatus,
) -> Result<GuestIntent, Lookup> {
    let place = namespace(machine);
    let spec = &machine.spec;
    let record = record(status);
    let recorded = record.identity.as_ref().map(|identity| &identity.cluster);
    let provider = refs::provider(context, &place, spec.provider_ref.as_ref(), recorded)?;
    let cluster = refs::cluster(&provider)?;
    let class = match &spec.class_ref {
        Some(class) => Some(refs::class(context, &place, &class.name)?),
        None => None,
    };
    let policy = match &spec.placement_ref {
        None => None,
        Some(named) => Some(refs::find(&context.stores.policies, &place, &named.name).ok_or_else(|| {
            Missing::new(
                "PlacementPolicyNotFound",
                format!(
                    "there is no VMPlacementPolicy {:?} in namespace {place:?}; create it or change spec.placementRef",
                    named.name
                ),
            )
        })?),
    };
    if let Some(adopt) = spec.adopt.as_ref().filter(|_| record.identity.is_none()) {
        nobody_keeps(context, machine, &cluster, adopt.vmid)?;
    }
    let home = Home {
        cluster: &cluster,
        provider: &provider,
        class: class.as_deref(),
    };
    let source = match source(context, &place, spec, &home) {
        // Where an identity was chosen the guest may exist, and need its origin no longer.
        Err(missing) if record.identity.is_some() && !missing.invalid => refs::forgotten(missing),
        Ok(Source::Empty) if was_copied(&record, spec) => refs::forgotten(Missing::new(
            "OriginRemoved",
            "the spec no longer says what the machine was made from",
        )),
        // What the image is called may have become something else since.
        Ok(Source::Iso { .. } | Source::Volume { .. }) if is_copy(&record) => {
            refs::forgotten(Missing::new(
                "OriginRemoved",
                "the VMImage no longer names what the machine was copied from",
            ))
        }
        other => other?,
    };
    let defaults = provider.spec.defaults.clone().unwrap_or_default();
    let parts = match init_parts(context, &place, spec).await {
        // First-boot data has been read by then; a Secret that was cleaned up since is no loss.
        Err(Lookup::Missing(_)) if has_booted(&record) => InitParts {
            forgotten: true,
            ..InitParts::default()
        },
        other => other?,
    };
    let nodes = context.providers.nodes(&cluster);
    Ok(translate::machine(MachineParts {
        owner: owner(machine)
            .ok_or_else(|| Missing::new("InvalidSpec", "the object has no UID"))?,
        machine,
        class: class.as_deref(),
        provider: &provider,
        provider_nodes: &nodes,
        policy: policy.as_deref(),
        apart: &apart::from(context, machine, policy.as_deref(), &cluster),
        watched_labels: &apart::watched_labels(context, &place),
        source,
        init: translate::init(spec, &defaults, parts)?,
        adopted: super::is_adopted(spec, &record),
        record: &record,
        cluster,
    })?)
}

/// Whether the guest has read what there was to read.
fn has_booted(record: &GuestRecord) -> bool {
    record.booted || record.identity.as_ref().is_some_and(|it| it.adopted)
}

/// Whether there is a guest that was made as a copy.
fn is_copy(record: &GuestRecord) -> bool {
    let identity = record.identity.as_ref();
    let made = identity.filter(|_| record.stage >= Stage::Made);
    made.is_some_and(|it| it.origin == Some(Origin::Copy))
}

/// Whether the machine was made as a copy, though its spec may no longer say so: then its disks came with the source, and
/// what it was made with is not put in their place.
fn was_copied(record: &GuestRecord, spec: &VirtualMachineSpec) -> bool {
    let identity = record.identity.as_ref().filter(|it| !it.adopted);
    identity.is_some_and(|it| {
        // The root disk of a source is remembered under this name where none is declared.
        let declared = spec.disks.iter().any(|disk| disk.name == "root");
        !it.brought.is_empty() || (it.disks.contains_key("root") && !declared)
    })
}

/// Who only looks at a guest leaves no mark on it, so its object is asked. The engine would know, too, but not right after a
/// start.
fn nobody_keeps(
    context: &Context,
    machine: &VirtualMachine,
    cluster: &ClusterName,
    vmid: u32,
) -> Result<(), Missing> {
    let keeps = |other: &VirtualMachine| {
        let status = other.status.as_ref();
        other.uid() != machine.uid()
            && status.is_some_and(|status| {
                status.vmid == Some(vmid) && status.cluster.as_deref() == Some(cluster.as_str())
            })
    };
    match context.stores.machines.state_filter(keeps).first() {
        None => Ok(()),
        Some(keeper) => Err(Missing::new(
            "InUse",
            format!(
                "guest {vmid} is kept by VirtualMachine {}/{}: delete that one first, with deletionPolicy Orphan",
                namespace(&**keeper),
                keeper.name_any()
            ),
        )),
    }
}

/// Where a machine is made, and of what size: what its origin may depend on.
struct Home<'a> {
    cluster: &'a ClusterName,
    provider: &'a Provider,
    class: Option<&'a VMClass>,
}

/// What the machine is made from.
fn source(
    context: &Context,
    place: &str,
    spec: &VirtualMachineSpec,
    home: &Home<'_>,
) -> Result<Source, Missing> {
    let mode = |choice: Option<bool>| {
        if choice == Some(false) {
            CloneMode::Full
        } else {
            CloneMode::Auto
        }
    };
    if let Some(from) = &spec.clone_from {
        let (from, snapshot) = clone_source(context, place, from, home.cluster)?;
        return Ok(Source::Template {
            from,
            mode: mode(spec.linked_clone),
            snapshot,
        });
    }
    if let Some(from) = &spec.restore_from {
        return refs::backup(context, place, from);
    }
    let Some(image) = &spec.image_ref else {
        return Ok(Source::Empty);
    };
    let Some(found) = refs::find(&context.stores.images, place, &image.name) else {
        return Err(Missing::new(
            "ImageNotFound",
            format!(
                "there is no VMImage {:?} in namespace {place:?}; create it or change spec.imageRef",
                image.name
            ),
        ));
    };
    let mode = mode(spec.linked_clone.or(found.spec.linked_clone));
    image_source(&found, mode, spec, home)
}

fn image_source(
    image: &VMImage,
    mode: CloneMode,
    spec: &VirtualMachineSpec,
    home: &Home<'_>,
) -> Result<Source, Missing> {
    let template = |from| {
        Ok(Source::Template {
            from,
            mode,
            snapshot: None,
        })
    };
    if let Some(tag) = &image.spec.tag {
        return template(TemplateRef::Tags(vec![tag.clone()]));
    }
    match &image.spec.source {
        None => Err(Missing::new(
            "InvalidSpec",
            "the VMImage has neither source nor tag",
        )),
        Some(ImageSource::Vmid(id)) => template(TemplateRef::Vmid(translate::vmid(
            "VMImage spec.source",
            *id,
        )?)),
        Some(ImageSource::Name(name)) => template(TemplateRef::Name(name.clone())),
        Some(ImageSource::Volume(volume)) if volume.contains(":iso/") => Ok(Source::Iso {
            volume: volume.clone(),
        }),
        Some(ImageSource::Volume(volume)) => Ok(Source::Volume {
            volume: volume.clone(),
        }),
        Some(ImageSource::Url(url)) => {
            let templates = image.status.iter().flat_map(|status| &status.templates);
            let wanted = image::wanted_storage(image, spec, home.class, home.provider);
            let ready: BTreeMap<_, _> = templates
                .filter(|replica| replica.provider == home.cluster.as_str())
                .filter(|replica| wanted.is_none() || replica.storage.as_ref() == wanted)
                .filter_map(|replica| {
                    let storage = fleet::StorageId::new(replica.storage.as_deref()?).ok()?;
                    let vmid = fleet::Vmid::new(replica.vmid?).ok()?;
                    Some((vmid, image::tag(image, url, &storage)))
                })
                .collect();
            if ready.is_empty() {
                Err(preparing(image))
            } else {
                template(TemplateRef::Image(ready))
            }
        }
    }
}

/// Why an image that comes from the web is not there yet.
fn preparing(image: &VMImage) -> Missing {
    let name = image.name_any();
    let status = image.status.clone().unwrap_or_default();
    let ready = api::vm::condition(&status.conditions, "Ready");
    match ready {
        Some(ready) if status.phase.as_deref() == Some("Failed") => Missing::new(
            "ImageFailed",
            format!(
                "VMImage {name:?} cannot be made a template: {}",
                ready.message
            ),
        ),
        Some(ready) if ready.status == "False" && ready.reason != "NotNeeded" => Missing::new(
            "ImagePreparing",
            format!(
                "VMImage {name:?} is being made a template: {}",
                ready.message
            ),
        ),
        _ => Missing::new(
            "ImagePreparing",
            format!("VMImage {name:?} is about to be made a template"),
        ),
    }
}

fn clone_source(
    context: &Context,
    place: &str,
    from: &api::vm::CloneFrom,
    cluster: &ClusterName,
) -> Result<(TemplateRef, Option<String>), Missing> {
    let name = &from.vm_ref.name;
    let source = refs::find(&context.stores.machines, place, name).ok_or_else(|| {
        Missing::new(
            "SourceNotFound",
            format!("there is no VirtualMachine {name:?} in namespace {place:?} to copy"),
        )
    })?;
    let identity = source.status.as_ref().and_then(|status| {
        let record = record(status);
        record.identity.filter(|_| record.stage >= Stage::Made)
    });
    let identity = identity.ok_or_else(|| {
        Missing::new(
            "WaitingForSource",
            format!("VirtualMachine {name:?} does not exist on PVE yet"),
        )
    })?;
    if identity.cluster != *cluster {
        return Err(Missing::new(
            "InvalidSpec",
            format!(
                "VirtualMachine {name:?} is on another cluster ({}); copies stay on theirs",
                identity.cluster
            ),
        ));
    }
    let snapshot = match &from.snapshot_ref {
        None => None,
        Some(snapshot) => Some(taken_of(context, place, &snapshot.name, name)?),
    };
    let subject = Subject {
        owner: owner(&*source).filter(|_| !identity.adopted),
        keeper: owner(&*source).filter(|_| identity.adopted),
        likeness: identity.likeness(),
        cluster: identity.cluster,
        guest: identity.vmid,
    };
    Ok((TemplateRef::Guest(subject), snapshot))
}

/// What PVE calls a snapshot that was taken of a machine.
fn taken_of(
    context: &Context,
    place: &str,
    snapshot: &str,
    machine: &str,
) -> Result<String, Missing> {
    let found = refs::find(&context.stores.snapshots, place, snapshot);
    let other = found
        .as_ref()
        .filter(|found| found.spec.vm_ref != GuestRef::machine(machine));
    if let Some(other) = other {
        let of = &other.spec.vm_ref.name;
        let text = format!("VMSnapshot {snapshot:?} is of {of:?}, not of {machine:?}");
        return Err(Invalid::new("spec.cloneFrom.snapshotRef", text).into());
    }
    let taken = found.and_then(|found| {
        let status = found.status.as_ref()?;
        let taken = action::record(status.record.as_ref()).done;
        status.snapshot_name.clone().filter(|_| taken)
    });
    taken.ok_or_else(|| {
        let text = format!("VMSnapshot {snapshot:?} is not taken yet");
        Missing::new("WaitingForSource", text)
    })
}

async fn init_parts(
    context: &Context,
    place: &str,
    spec: &VirtualMachineSpec,
) -> Result<InitParts, Lookup> {
    let Some(data) = &spec.user_data else {
        return Ok(InitParts::default());
    };
    if let Some((field, other)) = plain_payload(data) {
        let user_data = Some(refs::text(context, place, field, other).await?);
        return Ok(InitParts {
            user_data,
            ..InitParts::default()
        });
    }
    let Some(cloud_init) = &data.cloud_init else {
        return Ok(InitParts::default());
    };
    let field = "spec.userData.cloudInit";
    let user_data: Option<Payload> = if let Some(text) = &cloud_init.inline {
        Some(Payload::from(text.as_str()))
    } else if let Some(secret) = &cloud_init.secret_ref {
        Some(refs::from_secret(context, place, field, secret, "userData").await?)
    } else if let Some(map) = &cloud_init.config_map_ref {
        Some(refs::from_config_map(context, place, field, map, "userData").await?)
    } else {
        None
    };
    let mut parts = InitParts {
        user_data,
        ..InitParts::default()
    };
    if let Some(from) = &cloud_init.vendor_data {
        let field = "spec.userData.cloudInit.vendorData";
        parts.vendor_data = Some(refs::text(context, place, field, from).await?);
    }
    if let Some(from) = &cloud_init.network_data {
        let field = "spec.userData.cloudInit.networkData";
        parts.network_data = Some(refs::text(context, place, field, from).await?);
    }
    if let Some(from) = &cloud_init.meta_data {
        let field = "spec.userData.cloudInit.metaData";
        parts.meta_data = Some(refs::text(context, place, field, from).await?);
    }
    if let Some(secret) = &cloud_init.password_secret_ref {
        parts.password = Some(refs::password(context, place, field, secret).await?);
    }
    if let Some(secret) = &cloud_init.ssh_keys_secret_ref {
        let keys = refs::from_secret(context, place, field, secret, "ssh-publickey").await?;
        let lines = keys.as_text().unwrap_or_default().lines().map(str::trim);
        parts.ssh_keys = lines
            .filter(|line| !line.is_empty())
            .map(ToOwned::to_owned)
            .collect();
    }
    Ok(parts)
}

fn plain_payload(data: &UserData) -> Option<(&'static str, &api::vm::DataSource)> {
    let ignition = data
        .ignition
        .as_ref()
        .map(|source| ("spec.userData.ignition", source));
    ignition.or_else(|| {
        data.raw
            .as_ref()
            .map(|source| ("spec.userData.raw", source))
    })
}
