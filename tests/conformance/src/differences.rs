//! Where our server differs from kube-apiserver on purpose.

/// One deliberate difference.
#[derive(Debug)]
pub struct Difference {
    /// The case, or the beginning of its name up to a `*`.
    pub case: &'static str,
    /// The step, by its label; `*` stands for all.
    pub step: &'static str,
    /// The place in a step, `*` standing for one member or, at the end, for everything below.
    pub path: &'static str,
    /// Why ours is right for what it is.
    pub reason: &'static str,
}

/// All deliberate differences.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "definitions::scale_maps_replicas",
        step: "applied scale",
        path: "/body/*",
        reason: "kube-apiserver cannot apply to the scale of any custom object (500); ours can, and refuses this one because it has no replicas to begin with",
    },
    Difference {
        case: "*",
        step: "*",
        path: "/body/columnDefinitions/*/description",
        reason: "Kubernetes' prose, which ours does not carry and kubectl does not show",
    },
    Difference {
        case: "*",
        step: "*",
        path: "/body/object/columnDefinitions/*/description",
        reason: "Kubernetes' prose, which ours does not carry and kubectl does not show",
    },
    Difference {
        case: "definitions::without_columns_a_table_has_the_age",
        step: "*",
        path: "/*/description",
        reason: "Kubernetes' prose, which ours does not carry and kubectl does not show",
    },
    Difference {
        case: "apply::apply_reads_yaml",
        step: "broken yaml",
        path: "/body/message",
        reason: "the words in which a parser of YAML complains are its own",
    },
    Difference {
        case: "kubectl::access",
        step: "kubectl auth can-i --list --as=system:serviceaccount:$NS:robot",
        path: "/stdout",
        reason: "tokens of ours are for itself alone, so nobody may read the keys of an issuer that it is not",
    },
    Difference {
        case: "front::discovery_can_be_had_in_one_piece",
        step: "*",
        path: "/subresources",
        reason: "no kubelet is behind ours, so pods and nodes have no exec, log or proxy",
    },
];

impl Difference {
    pub(crate) fn covers(&self, case: &str, step: &str, path: &str) -> bool {
        let case_fits = match self.case.strip_suffix('*') {
            Some(start) => case.starts_with(start),
            None => case == self.case,
        };
        case_fits && (self.step == "*" || self.step == step) && fits(self.path, path)
    }
}

fn fits(pattern: &str, path: &str) -> bool {
    let mut members = path.split('/');
    let mut patterns = pattern.split('/').peekable();
    while let Some(pattern) = patterns.next() {
        let Some(member) = members.next() else {
            return false;
        };
        if pattern == "*" && patterns.peek().is_none() {
            return true;
        }
        if pattern != "*" && pattern != member {
            return false;
        }
    }
    members.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_has_its_reason() {
        assert!(DIFFERENCES.iter().all(|d| d.reason.len() > 20));
    }

    #[test]
    fn a_star_stands_for_one_member_or_for_the_rest() {
        assert!(fits("/body/*/a", "/body/0/a"));
        assert!(!fits("/body/*/a", "/body/0/1/a"));
        assert!(fits("/body/*", "/body/0/1/a"));
        assert!(!fits("/body", "/body/a"));
    }
}
