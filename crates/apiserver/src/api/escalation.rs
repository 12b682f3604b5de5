//! Nobody may grant more than they have.

use serde_json::Value;

use super::{Api, context::Context, meta::about};
use crate::{
    auth::rbac::{self, Action, Rule},
    object,
    registry::{Resource, text},
    status::{Result, Status},
};

const GROUP: &str = "rbac.authorization.k8s.io";

impl Api {
    /// Refuses roles and bindings that would give away rights their writer does not hold.
    pub(crate) fn check_escalation(
        &self,
        context: &Context,
        resource: &Resource,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<()> {
        if resource.group != GROUP || context.user.is_master() {
            return Ok(());
        }
        let namespace = object::namespace(new);
        let name = object::name(new);
        let may = |verb: &str, plural: &str, name: &str| {
            let action = Action {
                verb,
                namespace,
                group: GROUP,
                resource: plural,
                subresource: "",
                name,
            };
            self.authorize(&context.user, &action).allowed
        };
        let wanted = match resource.plural.as_str() {
            "roles" | "clusterroles" => {
                let unchanged = old.is_some_and(|old| {
                    old["rules"] == new["rules"] && old["aggregationRule"] == new["aggregationRule"]
                });
                if unchanged || may("escalate", &resource.plural, name) {
                    return Ok(());
                }
                if new["aggregationRule"].is_object() {
                    // What it will hold is not known yet, so it takes the right to everything.
                    vec![Rule::everything()]
                } else {
                    rbac::rules_of(new)
                }
            }
            _ => {
                let role = &new["roleRef"];
                let unchanged = old.is_some_and(|old| {
                    old["roleRef"] == *role && old["subjects"] == new["subjects"]
                });
                let (kind, role) = (text(role, "kind"), text(role, "name"));
                let plural = if kind == "ClusterRole" {
                    "clusterroles"
                } else {
                    "roles"
                };
                if unchanged || may("bind", plural, role) {
                    return Ok(());
                }
                match self.role_rules(kind, namespace, role) {
                    Some(rules) => rules,
                    None => {
                        return Err(Status::not_found(crate::status::About {
                            group: GROUP,
                            resource: if kind == "ClusterRole" {
                                "clusterroles"
                            } else {
                                "roles"
                            },
                            name: role,
                        }));
                    }
                }
            }
        };
        let missing = self.beyond(&context.user, namespace, &wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let rules: Vec<String> = rbac::compact(&missing).iter().map(Rule::shown).collect();
        Err(Status::forbidden(
            about(resource, name),
            &format!(
                "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
                crate::golang::quote(&context.user.name),
                shown(&context.user.groups),
                rules.join("\n")
            ),
        ))
    }
}

fn shown(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|item| crate::golang::quote(item)).collect();
    format!("[{}]", quoted.join(" "))
}

impl Rule {
    fn everything() -> Self {
        let all = || vec!["*".to_owned()];
        Self {
            verbs: all(),
            groups: all(),
            resources: all(),
            ..Self::default()
        }
    }

    /// The rule as Go prints it in errors.
    fn shown(&self) -> String {
        let mut parts = Vec::new();
        let list = |list: &[String]| {
            let quoted: Vec<String> = list.iter().map(|item| crate::golang::quote(item)).collect();
            format!("[{}]", quoted.join(" "))
        };
        for (name, values) in [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.names),
            ("NonResourceURLs", &self.urls),
            ("Verbs", &self.verbs),
        ] {
            if !values.is_empty() {
                parts.push(format!("{name}:{}", list(values)));
            }
        }
        format!("{{{}}}", parts.join(", "))
    }
}
