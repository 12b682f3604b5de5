//! Where a guest may live.
//!
//! Policies speak of labels, the engine of PVE tags. A label that some policy mentions is put on the guest
//! as a tag, so that guests placed in the same moment keep apart too; the tag travels in the very call
//! that makes the guest. What a policy leaves open (any value, any other value) is answered with the values that other
//! guests are declared with, and a label that is missing with the nodes of those that lack it.

use api::vm::{SelectorOperator, VMPlacementPolicySpec};
use fleet::{
    NodeName,
    intent::{AntiAffinity, Placement},
};

use super::{super::apart::Apart, Invalid, size};

pub(crate) fn placement(
    node: Option<&str>,
    provider_nodes: &[String],
    policy: Option<&VMPlacementPolicySpec>,
    keep: &Apart,
) -> Result<Placement, Invalid> {
    let listed = policy.map_or(&[][..], |policy| &policy.node_selector);
    let allowed: Vec<&str> = match (node, listed, provider_nodes) {
        (Some(node), _, _) => vec![node],
        (None, [], all) => all.iter().map(String::as_str).collect(),
        (None, listed, []) => listed.iter().map(String::as_str).collect(),
        (None, listed, all) => {
            let both: Vec<&str> = listed
                .iter()
                .filter(|name| all.contains(name))
                .map(String::as_str)
                .collect();
            if both.is_empty() {
                return Err(Invalid::new(
                    "spec.placementRef",
                    format!(
                        "the policy's nodes ({}) and the Provider's ({}) have none in common; change one of the lists",
                        listed.join(", "),
                        all.join(", ")
                    ),
                ));
            }
            both
        }
    };
    let constraints = policy
        .and_then(|policy| policy.constraints.clone())
        .unwrap_or_default();
    let apart = policy.map_or(&[][..], |policy| &policy.anti_affinity);
    let declared = apart
        .iter()
        .filter(|term| term.operator == SelectorOperator::In)
        .map(|term| {
            let tag = |value: &String| anti_affinity_tag(&term.key, value);
            term.values.iter().map(tag).collect()
        });
    let said = |tag: &String| declared.clone().any(|tags: Vec<String>| tags.contains(tag));
    let known: Vec<String> = keep.tags.iter().filter(|tag| !said(tag)).cloned().collect();
    let known = (!known.is_empty()).then_some(known);
    Ok(Placement {
        nodes: names("node", allowed)?,
        avoid: names("node", keep.nodes.iter().map(String::as_str).collect())?,
        anti_affinity: declared
            .chain(known)
            .map(|tags| AntiAffinity {
                tags,
                preferred: false,
            })
            .collect(),
        max_guests: constraints.max_vms_per_node,
        min_free_memory: constraints.min_free_memory.map(size),
        cpu_percent: constraints.max_cpu_overcommit.map(|times| times * 100),
        fit_numa: constraints.fit_numa,
        ..Placement::default()
    })
}

fn names(field: &str, names: Vec<&str>) -> Result<Vec<NodeName>, Invalid> {
    names
        .into_iter()
        .map(|name| NodeName::new(name).map_err(|error| Invalid::new(field, error.to_string())))
        .collect()
}

/// The PVE tag a label is written as.
pub(crate) fn anti_affinity_tag(key: &str, value: &str) -> String {
    let text = format!("{key}-{value}").to_lowercase();
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || "_-+.".contains(c) {
            c
        } else {
            '_'
        }
    };
    let tag: String = text.chars().map(fit).collect();
    if tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        tag
    } else {
        format!("_{tag}")
    }
}

/// The tags a guest carries for its labels.
pub(crate) fn label_tags<'a>(
    keys: &[String],
    label: impl Fn(&str) -> Option<&'a str>,
) -> Vec<String> {
    keys.iter()
        .filter_map(|key| Some(anti_affinity_tag(key, label(key)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use api::vm::PlacementConstraints;

    use super::*;

    #[test]
    fn a_label_becomes_a_tag_pve_accepts() {
        assert_eq!(anti_affinity_tag("vm.type", "database"), "vm.type-database");
        assert_eq!(
            anti_affinity_tag("example.com/Role", "A B"),
            "example.com_role-a_b"
        );
    }

    #[test]
    fn a_policy_narrows_the_providers_nodes_and_never_widens_them() {
        let policy = VMPlacementPolicySpec {
            node_selector: vec!["b".into(), "c".into()],
            constraints: Some(PlacementConstraints {
                fit_numa: true,
                ..PlacementConstraints::default()
            }),
            ..VMPlacementPolicySpec::default()
        };
        let all = ["a".to_owned(), "b".to_owned()];
        let place = placement(None, &all, Some(&policy), &Apart::default()).unwrap();
        assert_eq!(place.nodes, [NodeName::new("b").unwrap()]);
        assert!(place.fit_numa);
        let none =
            placement(None, &["z".to_owned()], Some(&policy), &Apart::default()).unwrap_err();
        assert!(none.to_string().contains("none in common"), "{none}");
    }
}
