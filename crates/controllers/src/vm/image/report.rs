//! Where an image stands, as status.

use api::vm::{ImageReplica, ImageSource, VMImage, VMImageStatus, condition};
use fleet::{ClusterFacts, NodeName, Outcome, StepKind, Vmid};

use super::{super::refs::Missing, Target, need::Need};
use crate::{conditions::Conditions, context::Context};

/// How one place stands.
pub(super) struct Said {
    place: String,
    needed: bool,
    phase: &'static str,
    reason: &'static str,
    message: String,
}

impl Said {
    pub(super) fn new(target: &Target, needed: bool, outcome: &Outcome) -> Self {
        let (phase, reason, message) = match outcome {
            Outcome::Persist => ("Pending", "Preparing", "about to begin".to_owned()),
            Outcome::Working { step, message } => {
                let phase = match step {
                    StepKind::Download => "Downloading",
                    StepKind::Destroy | StepKind::RemoveVolume => "Deleting",
                    _ => "Importing",
                };
                (phase, phase, message.clone())
            }
            Outcome::Waiting { what, message, .. } => ("Pending", what.as_str(), message.clone()),
            Outcome::Settled | Outcome::Gone => ("Ready", "Prepared", "is a template".to_owned()),
            Outcome::Failed { why, message } => ("Failed", why.as_str(), message.clone()),
        };
        Self {
            place: format!("{} ({})", target.cluster, target.storage),
            needed,
            phase,
            reason,
            message,
        }
    }

    pub(super) fn missing(need: &Need, missing: &Missing) -> Self {
        Self {
            place: need.cluster.to_string(),
            needed: true,
            phase: "Pending",
            reason: missing.reason,
            message: missing.message.clone(),
        }
    }
}

fn begin(context: &Context, image: &VMImage, before: &VMImageStatus) -> Conditions {
    let generation = image.metadata.generation;
    Conditions::new(&before.conditions, context.clock.time(), generation)
}

fn with(
    image: &VMImage,
    before: &VMImageStatus,
    conditions: Conditions,
    phase: &str,
) -> VMImageStatus {
    VMImageStatus {
        conditions: conditions.done(),
        observed_generation: image.metadata.generation,
        phase: Some(phase.to_owned()),
        ..before.clone()
    }
}

/// Something an image refers to is missing.
pub(super) fn unresolved(
    context: &Context,
    image: &VMImage,
    before: &VMImageStatus,
    missing: &Missing,
) -> VMImageStatus {
    let mut now = begin(context, image, before);
    now.set("Ready", false, missing.reason, &missing.message);
    with(
        image,
        before,
        now,
        if missing.invalid { "Failed" } else { "Pending" },
    )
}

/// An image with a URL: as good as the place that is furthest behind.
pub(super) fn progress(
    context: &Context,
    image: &VMImage,
    before: &VMImageStatus,
    said: &[Said],
) -> VMImageStatus {
    let mut now = begin(context, image, before);
    let needed: Vec<&Said> = said.iter().filter(|said| said.needed).collect();
    let behind = needed
        .iter()
        .find(|said| said.phase == "Failed")
        .or(needed.iter().find(|said| said.phase != "Ready"));
    let phase = match behind {
        Some(said) => {
            let message = format!("{}: {}", said.place, said.message);
            now.set("Ready", false, said.reason, message);
            said.phase
        }
        None if needed.is_empty() => {
            let message = "no machine uses it yet; set spec.providerRef to have it prepared now";
            now.set("Ready", false, "NotNeeded", message);
            "Pending"
        }
        None => {
            let places: Vec<&str> = needed.iter().map(|said| said.place.as_str()).collect();
            now.set(
                "Ready",
                true,
                "Prepared",
                format!("a template on {}", places.join(", ")),
            );
            "Ready"
        }
    };
    with(image, before, now, phase)
}

/// An image that is on PVE already, or is not.
pub(super) fn found(
    context: &Context,
    image: &VMImage,
    before: &VMImageStatus,
    needs: &[Need],
) -> VMImageStatus {
    let mut now = begin(context, image, before);
    if let Some(ImageSource::Volume(volume)) = &image.spec.source {
        let message = format!("{volume} is looked for on the node a machine is made on");
        now.set("Ready", true, "Usable", message);
        return with(image, before, now, "Ready");
    }
    let (mut templates, mut missing, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for need in needs {
        let facts = context
            .fleet
            .facts(&need.cluster)
            .filter(|facts| facts.reachable);
        let Some(facts) = facts else {
            unknown.push(need.cluster.to_string());
            continue;
        };
        let here = matching(context, image, need, &facts);
        if here.is_empty() {
            missing.push(need.cluster.to_string());
        }
        templates.extend(here);
    }
    templates.sort_by_key(|replica| (replica.provider.clone(), replica.vmid));
    templates.dedup();
    let what = match (&image.spec.tag, &image.spec.source) {
        (Some(tag), _) => format!("template with tag {tag:?}"),
        (None, Some(ImageSource::Vmid(vmid))) => format!("VM {vmid}"),
        (None, Some(source)) => format!("template named {:?}", source.to_string()),
        (None, None) => "template".to_owned(),
    };
    let phase = if !missing.is_empty() {
        let places = missing.join(", ");
        let message = format!("there is no {what} on {places}; make it, or change the source");
        now.set("Ready", false, "TemplateNotFound", message);
        "Pending"
    } else if !unknown.is_empty() {
        let message = format!("{} cannot be asked now", unknown.join(", "));
        now.set(
            "Ready",
            crate::conditions::Truth::Unknown,
            "ProviderNotReady",
            message,
        );
        "Pending"
    } else if needs.is_empty() {
        let message = "no machine uses it yet; set spec.providerRef to have it looked for now";
        now.set("Ready", false, "NotNeeded", message);
        "Pending"
    } else {
        let ids: Vec<String> = templates
            .iter()
            .filter_map(|replica| {
                Some(format!("{} on {}", replica.vmid?, replica.node.as_deref()?))
            })
            .collect();
        now.set("Ready", true, "Found", ids.join(", "));
        "Ready"
    };
    VMImageStatus {
        templates,
        ..with(image, before, now, phase)
    }
}

fn matching(
    context: &Context,
    image: &VMImage,
    need: &Need,
    facts: &ClusterFacts,
) -> Vec<ImageReplica> {
    let replica = |node: &fleet::NodeName, vmid: fleet::Vmid| ImageReplica {
        provider: need.cluster.to_string(),
        node: Some(node.to_string()),
        vmid: Some(vmid.get()),
        storage: None,
    };
    if let (None, Some(ImageSource::Vmid(id))) = (&image.spec.tag, &image.spec.source) {
        // Any guest may be copied, template or not.
        let Ok(vmid) = fleet::Vmid::new(*id) else {
            return Vec::new();
        };
        let node = context.fleet.node_of(&need.cluster, vmid);
        return node.iter().map(|node| replica(node, vmid)).collect();
    }
    let fits = |template: &&fleet::facts::TemplateFacts| match (&image.spec.tag, &image.spec.source)
    {
        (Some(tag), _) => template.tags.contains(&tag.to_lowercase()),
        (None, Some(ImageSource::Name(name))) => template.name == *name,
        _ => false,
    };
    let found = facts.templates.iter().filter(fits);
    found
        .map(|template| replica(&template.node, template.vmid))
        .collect()
}

/// Takes over which templates there are on one storage of one cluster.
pub(super) fn templates(
    status: &mut VMImageStatus,
    target: &Target,
    templates: &[(NodeName, Vmid)],
) {
    let (cluster, storage) = (target.cluster.to_string(), target.storage.to_string());
    status.templates.retain(|replica| {
        replica.provider != cluster || replica.storage.as_ref() != Some(&storage)
    });
    status
        .templates
        .extend(templates.iter().map(|(node, vmid)| ImageReplica {
            provider: cluster.clone(),
            node: Some(node.to_string()),
            vmid: Some(vmid.get()),
            storage: Some(storage.clone()),
        }));
    status
        .templates
        .sort_by_key(|replica| (replica.provider.clone(), replica.vmid));
}

/// Says when an image can no longer come.
pub(super) async fn announce(context: &Context, image: &VMImage, status: &VMImageStatus) {
    if status.phase.as_deref() == Some("Failed")
        && let Some(ready) = condition(&status.conditions, "Ready")
    {
        context.warn(image, &ready.reason, &ready.message).await;
    }
}
