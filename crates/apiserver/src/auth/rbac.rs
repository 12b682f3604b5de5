//! Role-based access control: roles, the bindings that grant them, and the question whether they allow an action.
//!
//! The bindings and roles of the store are compiled into one [`Policy`], which is kept until one of
//! them changes.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::User;
use crate::{api::Api, object, registry::text};

const GROUP: &str = "rbac.authorization.k8s.io";

/// What somebody wants to do to a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Action<'a> {
    pub(crate) verb: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) name: &'a str,
}

/// Whether something is allowed, and by what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    pub(crate) reason: String,
}

/// One rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) urls: Vec<String>,
}

impl Rule {
    pub(crate) fn read(value: &Value) -> Self {
        let list = |field: &str| {
            object::strings(&value[field])
                .into_iter()
                .map(str::to_owned)
                .collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    pub(crate) fn allows(&self, action: &Action<'_>) -> bool {
        let has = |list: &[String], value: &str| list.iter().any(|v| v == "*" || v == value);
        let combined = if action.subresource.is_empty() {
            action.resource.to_owned()
        } else {
            format!("{}/{}", action.resource, action.subresource)
        };
        let resource = self.resources.iter().any(|rule| {
            rule == "*"
                || *rule == combined
                || (!action.subresource.is_empty()
                    && rule.strip_prefix("*/") == Some(action.subresource))
        });
        has(&self.verbs, action.verb)
            && has(&self.groups, action.group)
            && resource
            && (self.names.is_empty() || self.names.iter().any(|n| n == action.name))
    }

    fn allows_path(&self, verb: &str, path: &str) -> bool {
        self.verbs.iter().any(|v| v == "*" || v == verb)
            && self.urls.iter().any(|url| match url.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => url == path,
            })
    }

    /// Whether this rule allows everything another one does.
    fn covers(&self, other: &Self) -> bool {
        let within = |mine: &[String], theirs: &[String]| {
            theirs
                .iter()
                .all(|t| mine.iter().any(|m| m == "*" || m == t))
        };
        let resources = other.resources.iter().all(|theirs| {
            self.resources.iter().any(|mine| {
                mine == "*"
                    || mine == theirs
                    || mine
                        .strip_prefix("*/")
                        .is_some_and(|sub| theirs.split_once('/').is_some_and(|(_, s)| s == sub))
            })
        });
        let names =
            self.names.is_empty() || (!other.names.is_empty() && within(&self.names, &other.names));
        let urls = other.urls.iter().all(|theirs| {
            self.urls.iter().any(|mine| {
                mine == theirs
                    || mine
                        .strip_suffix('*')
                        .is_some_and(|p| theirs.starts_with(p))
            })
        });
        within(&self.verbs, &other.verbs)
            && within(&self.groups, &other.groups)
            && resources
            && names
            && urls
    }

    /// Splits into rules of one verb, group and resource each, so that several rules can cover it together.
    fn atoms(&self) -> Vec<Self> {
        let mut atoms = Vec::new();
        for verb in &self.verbs {
            for url in &self.urls {
                atoms.push(Self {
                    verbs: vec![verb.clone()],
                    urls: vec![url.clone()],
                    ..Self::default()
                });
            }
            for group in &self.groups {
                for resource in &self.resources {
                    let mut atom = Self {
                        verbs: vec![verb.clone()],
                        groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..Self::default()
                    };
                    if self.names.is_empty() {
                        atoms.push(atom);
                        continue;
                    }
                    for name in &self.names {
                        atom.names = vec![name.clone()];
                        atoms.push(atom.clone());
                    }
                }
            }
        }
        atoms
    }
}

struct Binding {
    /// `ClusterRoleBinding "x" of ClusterRole "y"`: how a decision names it.
    label: String,
    /// Where it holds; `None` is everywhere.
    namespace: Option<String>,
    subjects: Vec<Subject>,
    rules: Vec<Rule>,
}

enum Subject {
    User(String),
    Group(String),
}

impl Binding {
    fn holds_for(&self, user: &User, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
            && self.subjects.iter().any(|subject| match subject {
                Subject::User(name) => *name == user.name,
                Subject::Group(group) => user.groups.contains(group),
            })
    }
}

/// All bindings with the rules they grant.
#[derive(Default)]
pub(crate) struct Policy {
    bindings: Vec<Binding>,
}

/// The compiled policy and the revisions it was made from.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Option<([u64; 4], Arc<Policy>)>>);

const TABLES: [&str; 4] = [
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/rolebindings",
];

impl Api {
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let revisions = TABLES.map(|storage| self.store.changed(storage));
        let mut cache = self
            .policies
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &*cache {
            Some((made_from, policy)) if *made_from == revisions => Arc::clone(policy),
            _ => {
                let policy = Arc::new(self.compile_policy());
                *cache = Some((revisions, Arc::clone(&policy)));
                policy
            }
        }
    }

    fn compile_policy(&self) -> Policy {
        let mut bindings = Vec::new();
        for (plural, kind) in [
            ("clusterrolebindings", "ClusterRoleBinding"),
            ("rolebindings", "RoleBinding"),
        ] {
            let Ok(snapshot) = self.store.list(&format!("{GROUP}/{plural}"), "", None) else {
                continue;
            };
            for entry in snapshot.entries {
                let binding = entry.value();
                let namespace = object::namespace(&binding);
                let role = &binding["roleRef"];
                let (role_kind, role_name) = (text(role, "kind"), text(role, "name"));
                let rules = self.role_rules(role_kind, namespace, role_name);
                let Some(rules) = rules else { continue };
                let name = object::name(&binding);
                let shown = if namespace.is_empty() {
                    name.to_owned()
                } else {
                    format!("{name}/{namespace}")
                };
                let subjects = binding["subjects"].as_array().into_iter().flatten();
                for subject in subjects {
                    let subject_name = text(subject, "name");
                    let (parsed, spelled) = match text(subject, "kind") {
                        "User" => (
                            Subject::User(subject_name.to_owned()),
                            format!("User \"{subject_name}\""),
                        ),
                        "Group" => (
                            Subject::Group(subject_name.to_owned()),
                            format!("Group \"{subject_name}\""),
                        ),
                        "ServiceAccount" => {
                            let ns = match text(subject, "namespace") {
                                "" => namespace,
                                given => given,
                            };
                            (
                                Subject::User(format!("system:serviceaccount:{ns}:{subject_name}")),
                                format!("ServiceAccount \"{subject_name}/{ns}\""),
                            )
                        }
                        _ => continue,
                    };
                    bindings.push(Binding {
                        label: format!(
                            "RBAC: allowed by {kind} \"{shown}\" of {role_kind} \"{role_name}\" to {spelled}"
                        ),
                        namespace: (kind == "RoleBinding").then(|| namespace.to_owned()),
                        subjects: vec![parsed],
                        rules: rules.clone(),
                    });
                }
            }
        }
        Policy { bindings }
    }

    /// The rules of a role, or `None` when it does not exist.
    pub(crate) fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        let entry = match kind {
            "ClusterRole" => self.store.get(&format!("{GROUP}/clusterroles"), name),
            "Role" => self
                .store
                .get(&format!("{GROUP}/roles"), &format!("{namespace}/{name}")),
            _ => None,
        }?;
        Some(rules_of(&entry.value()))
    }

    /// Whether a user may act on a resource.
    pub(crate) fn authorize(&self, user: &User, action: &Action<'_>) -> Decision {
        if user.is_master() {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        let policy = self.policy();
        let by = policy
            .bindings
            .iter()
            .filter(|binding| binding.holds_for(user, action.namespace))
            .find(|binding| binding.rules.iter().any(|rule| rule.allows(action)));
        Decision {
            allowed: by.is_some(),
            reason: by.map(|binding| binding.label.clone()).unwrap_or_default(),
        }
    }

    /// Whether a user may use a path that names no resource.
    pub(crate) fn authorize_path(&self, user: &User, verb: &str, path: &str) -> Decision {
        if user.is_master() {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        let policy = self.policy();
        let by = policy
            .bindings
            .iter()
            .filter(|binding| binding.namespace.is_none() && binding.holds_for(user, ""))
            .find(|binding| {
                binding
                    .rules
                    .iter()
                    .any(|rule| rule.allows_path(verb, path))
            });
        Decision {
            allowed: by.is_some(),
            reason: by.map(|binding| binding.label.clone()).unwrap_or_default(),
        }
    }

    /// All rules that hold for a user in a namespace.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> Vec<Rule> {
        if user.is_master() {
            let all = || vec!["*".to_owned()];
            return vec![
                Rule {
                    verbs: all(),
                    groups: all(),
                    resources: all(),
                    ..Rule::default()
                },
                Rule {
                    verbs: all(),
                    urls: all(),
                    ..Rule::default()
                },
            ];
        }
        self.policy()
            .bindings
            .iter()
            .filter(|binding| binding.holds_for(user, namespace))
            .flat_map(|binding| binding.rules.iter().cloned())
            .collect()
    }

    /// The rules among `wanted` that a user does not hold in a namespace.
    pub(crate) fn beyond(&self, user: &User, namespace: &str, wanted: &[Rule]) -> Vec<Rule> {
        let held = self.rules_for(user, namespace);
        wanted
            .iter()
            .flat_map(Rule::atoms)
            .filter(|atom| !held.iter().any(|rule| rule.covers(atom)))
            .collect()
    }

    /// Why an action is refused, in Kubernetes' words.
    pub(crate) fn denial(user: &User, action: &Action<'_>) -> String {
        let resource = if action.subresource.is_empty() {
            action.resource.to_owned()
        } else {
            format!("{}/{}", action.resource, action.subresource)
        };
        let scope = if action.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{}\"", action.namespace)
        };
        format!(
            "User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {scope}",
            user.name, action.verb, action.group
        )
    }
}

/// Joins rules that differ only in their verbs.
pub(crate) fn compact(rules: &[Rule]) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    for rule in rules {
        let same = |other: &&mut Rule| {
            (&other.groups, &other.resources, &other.names, &other.urls)
                == (&rule.groups, &rule.resources, &rule.names, &rule.urls)
        };
        match out.iter_mut().find(same) {
            Some(found) => {
                for verb in &rule.verbs {
                    if !found.verbs.contains(verb) {
                        found.verbs.push(verb.clone());
                    }
                }
            }
            None => out.push(rule.clone()),
        }
    }
    out
}

pub(crate) fn rules_of(role: &Value) -> Vec<Rule> {
    role["rules"]
        .as_array()
        .map(|rules| rules.iter().map(Rule::read).collect())
        .unwrap_or_default()
}

/// The rules of all cluster roles that an aggregating role selects, without repetition.
pub(crate) fn aggregate(api: &Api, role: &Value) -> Option<Value> {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array()?;
    let selectors: Vec<_> = selectors
        .iter()
        .filter_map(crate::selector::LabelSelector::from_object)
        .collect();
    let snapshot = api
        .store
        .list(&format!("{GROUP}/clusterroles"), "", None)
        .ok()?;
    let mut rules: Vec<Value> = Vec::new();
    for entry in snapshot.entries {
        let other = entry.value();
        if object::name(&other) == object::name(role)
            || !selectors.iter().any(|selector| selector.matches(&other))
        {
            continue;
        }
        for rule in other["rules"].as_array().into_iter().flatten() {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(json!(rules))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(value: &Value) -> Rule {
        Rule::read(value)
    }

    fn action<'a>(verb: &'a str, resource: &'a str, subresource: &'a str) -> Action<'a> {
        Action {
            verb,
            namespace: "",
            group: "",
            resource,
            subresource,
            name: "x",
        }
    }

    #[test]
    fn a_resource_does_not_grant_its_subresources() {
        let pods = rule(&json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
        assert!(pods.allows(&action("get", "pods", "")));
        assert!(!pods.allows(&action("get", "pods", "log")));
        assert!(!pods.allows(&action("list", "pods", "")));
        let logs = rule(&json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/log"]}));
        assert!(logs.allows(&action("get", "pods", "log")));
        assert!(!logs.allows(&action("get", "pods", "")));
    }

    #[test]
    fn names_narrow_a_rule() {
        let narrow = rule(
            &json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["y"]}),
        );
        assert!(!narrow.allows(&action("get", "pods", "")));
    }

    #[test]
    fn a_rule_covers_only_what_it_contains() {
        let all = rule(&json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        let one = rule(&json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
        assert!(all.covers(&one));
        assert!(!one.covers(&all));
    }
}
