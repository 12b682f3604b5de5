//! Which template a machine is cloned from.

use api::infrastructure::v1beta1::{Instance, ProxmoxMachineSpec, TemplateSelector};
use fleet::facts::TemplateFacts;
use fleet::intent::{CloneMode, Source, TemplateRef};
use fleet::{ClusterFacts, Vmid};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::Wait;

/// The source of a machine on an instance.
///
/// A VMID means something on one Proxmox VE only, so the instance's own template goes before a machine's VMID; tags and names are
/// meant for all of them, so there the machine goes first.
pub(super) fn source(
    spec: &ProxmoxMachineSpec,
    instance: Option<&Instance>,
    facts: &ClusterFacts,
) -> Result<Source, Wait> {
    let mode = match spec.full {
        Some(false) => CloneMode::Linked,
        _ => CloneMode::Full,
    };
    Ok(Source::Template {
        from: template(spec, instance, facts)?,
        mode,
        snapshot: spec.snap_name.clone(),
    })
}

/// The templates that a machine on an instance may be made from, as they are now.
pub(in crate::capi) fn templates<'a>(
    spec: &ProxmoxMachineSpec,
    instance: Option<&Instance>,
    facts: &'a ClusterFacts,
) -> Vec<&'a TemplateFacts> {
    let Ok(from) = template(spec, instance, facts) else {
        return Vec::new();
    };
    let fits = |template: &&TemplateFacts| match &from {
        TemplateRef::Vmid(vmid) => template.vmid == *vmid,
        TemplateRef::Guest(subject) => template.vmid == subject.guest,
        TemplateRef::Name(name) => template.name == *name,
        TemplateRef::AnyOf(vmids) => vmids.contains(&template.vmid),
        TemplateRef::Image(vmids) => vmids.contains_key(&template.vmid),
        TemplateRef::Tags(tags) => tags.iter().all(|tag| template.tags.contains(tag)),
        TemplateRef::Gone(_) => false,
    };
    facts.templates.iter().filter(fits).collect()
}

fn template(
    spec: &ProxmoxMachineSpec,
    instance: Option<&Instance>,
    facts: &ClusterFacts,
) -> Result<TemplateRef, Wait> {
    let of_instance = instance.and_then(|instance| instance.template.as_ref());
    match (&spec.template_selector, &spec.template, of_instance) {
        (Some(selector), _, _) => by_tags(selector, &facts.templates),
        (None, Some(IntOrString::String(name)), _) => by_name(name),
        (None, _, Some(template)) => match (&template.template_selector, template.template_id) {
            (Some(selector), _) => by_tags(selector, &facts.templates),
            (None, Some(id)) => by_vmid(id),
            (None, None) => Err(nothing()),
        },
        (None, Some(IntOrString::Int(id)), None) => by_vmid(*id),
        (None, None, None) => Err(nothing()),
    }
}

fn nothing() -> Wait {
    Wait::new(
        "TemplateMissing",
        "set spec.template, or spec.templateSelector.matchTags",
    )
}

fn by_vmid(id: i32) -> Result<TemplateRef, Wait> {
    let vmid = u32::try_from(id).ok().and_then(|id| Vmid::new(id).ok());
    vmid.map(TemplateRef::Vmid)
        .ok_or_else(|| Wait::new("TemplateMissing", format!("{id} is not a VMID")))
}

/// A name, or a VMID written as text.
fn by_name(name: &str) -> Result<TemplateRef, Wait> {
    match name.parse::<i32>() {
        Ok(id) => by_vmid(id),
        Err(_) => Ok(TemplateRef::Name(name.to_owned())),
    }
}

/// The template with these tags. Several of one name are replicas on different nodes, and as good as one.
fn by_tags(selector: &TemplateSelector, templates: &[TemplateFacts]) -> Result<TemplateRef, Wait> {
    let lower = |tags: &[String]| {
        let mut tags: Vec<_> = tags.iter().map(|tag| tag.to_lowercase()).collect();
        tags.sort();
        tags.dedup();
        tags
    };
    let wanted = lower(&selector.match_tags);
    let mut found: Vec<(usize, &TemplateFacts)> = templates
        .iter()
        .filter_map(|template| {
            let has = lower(&template.tags);
            let all = wanted.iter().all(|tag| has.contains(tag));
            all.then(|| (has.len() - wanted.len(), template))
        })
        .collect();
    let fewest = found.iter().map(|(extra, _)| *extra).min();
    match selector.match_policy.as_deref() {
        Some("uniqueSubset") => {}
        Some("bestSubset") => found.retain(|(extra, _)| Some(*extra) == fewest),
        _ => found.retain(|(extra, _)| *extra == 0),
    }
    let tags = wanted.join(", ");
    let Some((_, first)) = found.first() else {
        return Err(Wait::new(
            "TemplateMissing",
            format!("no template has the tags {tags}"),
        ));
    };
    if let Some((_, other)) = found.iter().find(|(_, other)| other.name != first.name) {
        return Err(Wait::new(
            "TemplateAmbiguous",
            format!(
                "templates {:?} and {:?} both match the tags {tags}; give one of them another tag",
                first.name, other.name
            ),
        ));
    }
    Ok(TemplateRef::AnyOf(
        found.iter().map(|(_, template)| template.vmid).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use fleet::Size;

    use super::*;

    fn template(vmid: u32, name: &str, node: &str, tags: &[&str]) -> TemplateFacts {
        TemplateFacts {
            vmid: Vmid::new(vmid).unwrap(),
            name: name.into(),
            node: node.parse().unwrap(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            cpus: 2,
            memory: Size::gib(4),
        }
    }

    fn selector(policy: Option<&str>) -> TemplateSelector {
        TemplateSelector {
            match_tags: vec!["capi".into(), "V1.30.5".into()],
            match_policy: policy.map(Into::into),
        }
    }

    fn vmids(found: Result<TemplateRef, Wait>) -> Vec<u32> {
        match found {
            Ok(TemplateRef::AnyOf(vmids)) => vmids.iter().map(|vmid| vmid.get()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn exact_means_no_other_tags() {
        let templates = [
            template(900, "a", "pve1", &["capi", "v1.30.5"]),
            template(901, "b", "pve1", &["capi", "v1.30.5", "gpu"]),
        ];
        assert_eq!(vmids(by_tags(&selector(None), &templates)), [900]);
    }

    #[test]
    fn replicas_of_one_template_are_all_good() {
        let templates = [
            template(900, "a", "pve1", &["capi", "v1.30.5"]),
            template(901, "a", "pve2", &["capi", "v1.30.5"]),
        ];
        assert_eq!(vmids(by_tags(&selector(None), &templates)), [900, 901]);
    }

    #[test]
    fn the_best_match_does_not_depend_on_the_order() {
        let mut templates = [
            template(900, "a", "pve1", &["capi", "v1.30.5", "gpu", "big"]),
            template(901, "b", "pve1", &["capi", "v1.30.5", "gpu"]),
        ];
        assert_eq!(
            vmids(by_tags(&selector(Some("bestSubset")), &templates)),
            [901]
        );
        templates.reverse();
        assert_eq!(
            vmids(by_tags(&selector(Some("bestSubset")), &templates)),
            [901]
        );
    }

    #[test]
    fn two_different_matches_are_waited_out_and_named() {
        let templates = [
            template(900, "a", "pve1", &["capi", "v1.30.5", "x"]),
            template(901, "b", "pve1", &["capi", "v1.30.5", "y"]),
        ];
        let Err(wait) = by_tags(&selector(Some("uniqueSubset")), &templates) else {
            panic!()
        };
        assert_eq!(wait.reason, "TemplateAmbiguous");
        let Err(wait) = by_tags(&selector(None), &templates) else {
            panic!()
        };
        assert_eq!(wait.reason, "TemplateMissing");
    }

    #[test]
    fn an_instance_replaces_a_vmid_but_not_tags() {
        let mut machine = ProxmoxMachineSpec {
            template: Some(IntOrString::Int(100)),
            ..ProxmoxMachineSpec::default()
        };
        let instance: Instance = serde_json::from_value(serde_json::json!({
            "name": "fra", "template": {"sourceNode": "pve1", "templateID": 1000},
        }))
        .unwrap();
        let facts = ClusterFacts::default();
        let from = |found: Result<Source, Wait>| match found {
            Ok(Source::Template { from, .. }) => from,
            other => panic!("{other:?}"),
        };
        let thousand = TemplateRef::Vmid(Vmid::new(1000).unwrap());
        assert_eq!(from(source(&machine, Some(&instance), &facts)), thousand);
        machine.template = Some(IntOrString::String("ubuntu".into()));
        assert_eq!(
            from(source(&machine, Some(&instance), &facts)),
            TemplateRef::Name("ubuntu".into())
        );
    }
}
