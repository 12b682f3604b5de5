//! What a machine needs of the instance that takes it.

use api::infrastructure::v1beta1::{NodeGroup, ProxmoxMachineSpec};
use fleet::NodeName;
use fleet::facts::Mappings;

use super::super::Wait;
use super::super::machine::{memory, templates};
use super::instances::Used;

/// What a machine must find on one node of an instance to have room there.
#[derive(Clone, Debug, Default)]
pub(in crate::capi) struct Need<'a> {
    /// Memory, in bytes.
    pub(super) memory: u64,
    /// The nodes it may be on, where it says so itself.
    nodes: &'a [String],
    /// What it is made from.
    spec: Option<&'a ProxmoxMachineSpec>,
}

impl<'a> Need<'a> {
    /// What a machine asks for, in a group of nodes or anywhere.
    pub(in crate::capi) fn of(
        spec: &'a ProxmoxMachineSpec,
        group: Option<&'a NodeGroup>,
    ) -> Result<Self, Wait> {
        let nodes = match (&spec.node_name, group) {
            (Some(node), _) => std::slice::from_ref(node),
            (None, Some(group)) => &group.nodes,
            (None, None) => spec.allowed_nodes.as_deref().unwrap_or_default(),
        };
        Ok(Self {
            memory: memory(spec.memory.as_ref())?.map_or(0, |bytes| bytes.0),
            nodes,
            spec: Some(spec),
        })
    }

    pub(super) fn allows(&self, used: &Used, node: &NodeName) -> bool {
        let of_instance = used.listed.as_ref().map(|listed| listed.nodes.as_slice());
        let nodes = match self.nodes {
            [] => of_instance.unwrap_or_default(),
            own => own,
        };
        nodes.is_empty() || nodes.iter().any(|name| name == node.as_str())
    }

    pub(super) fn finds_template(&self, used: &Used) -> bool {
        let found = |spec| !templates(spec, used.listed.as_ref(), &used.facts).is_empty();
        self.spec.is_none_or(found)
    }

    pub(super) fn finds_devices(&self, used: &Used, node: &NodeName) -> bool {
        let has = |known: &Mappings, name: &String| {
            let there = known.get(name);
            there.is_some_and(|nodes| nodes.contains_key(node))
        };
        let known = &used.facts.devices;
        let hardware = self.spec.and_then(|spec| spec.hardware.as_ref());
        hardware.is_none_or(|wanted| {
            let mut pci = wanted.pci_devices.iter();
            let mut usb = wanted.usb_devices.iter();
            pci.all(|device| has(&known.pci, &device.mapping))
                && usb.all(|device| has(&known.usb, &device.mapping))
        })
    }
}

/// Whether a machine asks for devices, which are learnt of only for those that do.
pub(in crate::capi) fn has_devices(spec: &ProxmoxMachineSpec) -> bool {
    let hardware = spec.hardware.as_ref();
    hardware.is_some_and(|it| !it.pci_devices.is_empty() || !it.usb_devices.is_empty())
}

#[cfg(test)]
mod tests {
    use fleet::facts::{NodeFacts, TemplateFacts};
    use fleet::{ClusterFacts, ClusterName, Size, Vmid};
    use serde_json::json;

    use super::super::instances::none_answers;
    use super::*;

    /// An instance that answers, with these nodes and one template.
    fn used(name: &str, nodes: &[&str]) -> Used {
        let node = |name: &&str| {
            let facts = NodeFacts {
                online: true,
                memory: Size::gib(64),
                ..NodeFacts::default()
            };
            (name.parse().unwrap(), facts)
        };
        Used {
            instance: Some(name.to_owned()),
            place: Ok(ClusterName::new(name).unwrap()),
            facts: ClusterFacts {
                reachable: true,
                nodes: nodes.iter().map(node).collect(),
                templates: vec![TemplateFacts {
                    vmid: Vmid::new(900).unwrap(),
                    name: "ubuntu".into(),
                    node: nodes[0].parse().unwrap(),
                    tags: Vec::new(),
                    cpus: 2,
                    memory: Size::gib(4),
                }],
                ..ClusterFacts::default()
            },
            listed: serde_json::from_value(json!({"name": name})).unwrap(),
        }
    }

    fn spec(more: &serde_json::Value) -> ProxmoxMachineSpec {
        let mut spec = json!({"template": "ubuntu", "memory": 4096});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn only_an_instance_with_a_node_that_is_allowed_is_one_to_choose() {
        let (txl, fra) = (used("txl", &["txl-1", "txl-2"]), used("fra", &["fra-1"]));
        for more in [
            json!({"nodeName": "fra-1"}),
            json!({"allowedNodes": ["fra-1", "fra-9"]}),
        ] {
            let spec = spec(&more);
            let need = Need::of(&spec, None).unwrap();
            assert!(!txl.candidate(0, &need).ready, "{spec:?}");
            assert!(fra.candidate(0, &need).ready, "{spec:?}");
        }
        let (spec, rack) = (
            spec(&json!({})),
            serde_json::from_value(json!({"name": "rack", "nodes": ["txl-2"]})).unwrap(),
        );
        let need = Need::of(&spec, Some(&rack)).unwrap();
        assert!(txl.candidate(0, &need).fits);
        assert!(!fra.candidate(0, &need).ready);
    }

    #[test]
    fn an_instance_without_the_template_does_not_fit() {
        let (txl, spec) = (
            used("txl", &["txl-1"]),
            spec(&json!({"template": "debian"})),
        );
        assert!(!txl.candidate(0, &Need::of(&spec, None).unwrap()).fits);
    }

    #[test]
    fn an_instance_without_quorum_is_down_and_one_not_yet_asked_is_not() {
        let mut txl = used("txl", &["txl-1"]);
        assert!(txl.is_ready() && !txl.is_down());
        txl.facts.quorate = Some(false);
        assert!(!txl.is_ready() && txl.is_down());
        let said = none_answers(std::slice::from_ref(&txl)).unwrap();
        assert!(said.contains("has no quorum"), "{said}");
        txl.facts = ClusterFacts::default();
        assert!(!txl.is_ready() && !txl.is_down());
        txl.facts.problem = Some("connection refused".into());
        assert!(txl.is_down());
    }

    #[test]
    fn nobody_waits_where_there_is_no_room() {
        let (txl, large) = (used("txl", &["txl-1"]), spec(&json!({"memory": "100Gi"})));
        assert!(txl.is_out_of_question(&Need::of(&large, None).unwrap()));
        let small = spec(&json!({}));
        assert!(!txl.is_out_of_question(&Need::of(&small, None).unwrap()));
    }
}
