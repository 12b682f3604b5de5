//! High availability: groups on 8, rules on 9.

use serde::Deserialize;

use crate::client::{Call, Client};
use crate::error::Result;
use crate::id::{HaSid, NodeName};
use crate::params::{Params, escape};
use crate::scalar;

/// The calls about high availability.
#[derive(Debug, Clone)]
pub struct Ha(Client);

impl Client {
    /// The calls about high availability.
    pub fn ha(&self) -> Ha {
        Ha(self.clone())
    }
}

/// A guest that high availability cares for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HaResource {
    /// The guest.
    pub sid: HaSid,
    /// What it shall be: `started`, `stopped`, `disabled` or `ignored`.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub state: Option<String>,
    /// How often it is started again on its node.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub max_restart: Option<u32>,
    /// How often it is moved to another node.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub max_relocate: Option<u32>,
    /// Its group; before 9.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub group: Option<String>,
    /// Whether it goes back to the better node; since 9.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub failback: Option<bool>,
    /// A person's note.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub comment: Option<String>,
}

impl HaResource {
    /// A guest that shall run.
    pub fn started(sid: HaSid) -> Self {
        Self {
            sid,
            state: Some("started".to_owned()),
            max_restart: None,
            max_relocate: None,
            group: None,
            failback: None,
            comment: None,
        }
    }

    fn params(&self) -> Params {
        Params::new()
            .maybe("state", self.state.as_ref())
            .maybe("max_restart", self.max_restart)
            .maybe("max_relocate", self.max_relocate)
            .maybe("group", self.group.as_ref())
            .choice("failback", self.failback)
            .maybe("comment", self.comment.as_ref())
    }
}

/// A group of nodes; before 9.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HaGroup {
    /// Its name.
    pub group: String,
    /// Nodes with priorities: `pve1:2,pve2`.
    pub nodes: String,
    /// Whether its guests run nowhere else.
    #[serde(deserialize_with = "scalar::flag")]
    pub restricted: bool,
    /// Whether its guests stay where they are when a better node comes back.
    #[serde(deserialize_with = "scalar::flag")]
    pub nofailback: bool,
    /// A person's note.
    #[serde(deserialize_with = "scalar::optional")]
    pub comment: Option<String>,
}

/// A rule; since 9.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaRule {
    /// Its name.
    pub name: String,
    /// The guests it is about.
    pub resources: Vec<HaSid>,
    /// What it says.
    pub kind: HaRuleKind,
    /// Whether it is off.
    pub disable: bool,
    /// A person's note.
    pub comment: Option<String>,
}

/// What a rule says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HaRuleKind {
    /// The guests run on these nodes, with priorities: `pve1:2,pve2`; strictly or if possible.
    NodeAffinity {
        /// The nodes.
        nodes: String,
        /// Whether they run nowhere else.
        strict: bool,
    },
    /// The guests run together, or apart.
    ResourceAffinity {
        /// Whether together.
        together: bool,
    },
}

#[derive(Deserialize)]
struct RawRule {
    rule: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "scalar::list")]
    resources: Vec<String>,
    #[serde(default, deserialize_with = "scalar::optional")]
    nodes: Option<String>,
    #[serde(default, deserialize_with = "scalar::flag")]
    strict: bool,
    #[serde(default, deserialize_with = "scalar::optional")]
    affinity: Option<String>,
    #[serde(default, deserialize_with = "scalar::flag")]
    disable: bool,
    #[serde(default, deserialize_with = "scalar::optional")]
    comment: Option<String>,
}

impl RawRule {
    /// Rules of kinds this crate does not know are left out.
    fn typed(self) -> Option<HaRule> {
        let kind = match self.kind.as_str() {
            "node-affinity" => HaRuleKind::NodeAffinity {
                nodes: self.nodes.unwrap_or_default(),
                strict: self.strict,
            },
            "resource-affinity" => HaRuleKind::ResourceAffinity {
                together: self.affinity.as_deref() == Some("positive"),
            },
            _ => return None,
        };
        let resources = self
            .resources
            .iter()
            .filter_map(|sid| sid.parse().ok())
            .collect();
        Some(HaRule {
            name: self.rule,
            resources,
            kind,
            disable: self.disable,
            comment: self.comment,
        })
    }
}

impl HaRule {
    fn params(&self) -> Params {
        let params = match &self.kind {
            HaRuleKind::NodeAffinity { nodes, strict } => Params::new()
                .with("type", "node-affinity")
                .with("nodes", nodes)
                .with("strict", u8::from(*strict)),
            HaRuleKind::ResourceAffinity { together } => Params::new()
                .with("type", "resource-affinity")
                .with("affinity", if *together { "positive" } else { "negative" }),
        };
        params
            .list("resources", &self.resources)
            .with("disable", u8::from(self.disable))
            .maybe("comment", self.comment.as_ref())
    }
}

/// A line of what high availability does now.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HaState {
    /// Such as `service:vm:101`, `quorum`, `master`, `lrm:pve1`.
    pub id: String,
    /// What the line is about: `service`, `quorum`, `master`, `lrm`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// A text about it.
    #[serde(default)]
    pub status: String,
    /// The guest.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub sid: Option<String>,
    /// The node.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub node: Option<NodeName>,
    /// The state of the guest: `started`, `fence`, `recovery`, `error`, ...
    #[serde(default, deserialize_with = "scalar::optional")]
    pub state: Option<String>,
    /// The state that was asked for.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub request_state: Option<String>,
    /// Whether there is a quorum.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub quorate: Option<bool>,
}

impl Ha {
    /// The guests it cares for.
    pub async fn resources(&self) -> Result<Vec<HaResource>> {
        self.0
            .call(Call::get("ha.resources", "/cluster/ha/resources"))
            .await
    }

    /// One guest it cares for.
    pub async fn resource(&self, sid: &HaSid) -> Result<HaResource> {
        self.0
            .call(Call::get("ha.resource", resource_path(sid)))
            .await
    }

    /// Takes a guest into care.
    pub async fn add(&self, resource: &HaResource) -> Result<()> {
        self.check(resource).await?;
        let params = Params::new().with("sid", &resource.sid);
        let params = resource
            .params()
            .iter()
            .fold(params, |params, (key, value)| {
                params.with(key.to_owned(), value)
            });
        self.0
            .call(Call::post("ha.add", "/cluster/ha/resources").params(params))
            .await
    }

    /// Changes how a guest is cared for; what is absent stays as it is.
    pub async fn update(&self, resource: &HaResource) -> Result<()> {
        self.check(resource).await?;
        self.0
            .call(Call::put("ha.update", resource_path(&resource.sid)).params(resource.params()))
            .await
    }

    /// Says anew how a guest is cared for: what is absent goes back to what PVE does by itself, but for its state.
    pub async fn replace(&self, resource: &HaResource) -> Result<()> {
        self.check(resource).await?;
        let absent = [
            ("max_restart", resource.max_restart.is_none()),
            ("max_relocate", resource.max_relocate.is_none()),
            ("group", resource.group.is_none()),
        ];
        let absent = absent.into_iter().filter_map(|(key, is)| is.then_some(key));
        let params = resource.params().list("delete", absent);
        self.0
            .call(Call::put("ha.replace", resource_path(&resource.sid)).params(params))
            .await
    }

    /// Takes a guest out of care.
    pub async fn remove(&self, sid: &HaSid) -> Result<()> {
        self.0
            .call(Call::delete("ha.remove", resource_path(sid)))
            .await
    }

    /// What it does now.
    pub async fn status(&self) -> Result<Vec<HaState>> {
        self.0
            .call(Call::get("ha.status", "/cluster/ha/status/current"))
            .await
    }

    /// Groups; before 9.
    pub async fn groups(&self) -> Result<Vec<HaGroup>> {
        self.groups_only().await?;
        self.0
            .call(Call::get("ha.groups", "/cluster/ha/groups"))
            .await
    }

    /// Adds a group; before 9.
    pub async fn create_group(&self, group: &HaGroup) -> Result<()> {
        self.groups_only().await?;
        let params = Params::new()
            .with("group", &group.group)
            .with("nodes", &group.nodes)
            .flag("restricted", group.restricted)
            .flag("nofailback", group.nofailback)
            .maybe("comment", group.comment.as_ref());
        self.0
            .call(Call::post("ha.group.create", "/cluster/ha/groups").params(params))
            .await
    }

    /// Removes a group; before 9.
    pub async fn delete_group(&self, name: &str) -> Result<()> {
        self.groups_only().await?;
        self.0
            .call(Call::delete(
                "ha.group.delete",
                format!("/cluster/ha/groups/{}", escape(name)),
            ))
            .await
    }

    /// Rules; since 9.
    pub async fn rules(&self) -> Result<Vec<HaRule>> {
        let rules: Vec<RawRule> = self
            .0
            .call(Call::get("ha.rules", "/cluster/ha/rules"))
            .await?;
        Ok(rules.into_iter().filter_map(RawRule::typed).collect())
    }

    /// Adds a rule; since 9. All its guests must be cared for already.
    pub async fn create_rule(&self, rule: &HaRule) -> Result<()> {
        let params = Params::new().with("rule", &rule.name);
        let params = rule.params().iter().fold(params, |params, (key, value)| {
            params.with(key.to_owned(), value)
        });
        self.0
            .call(Call::post("ha.rule.create", "/cluster/ha/rules").params(params))
            .await
    }

    /// Replaces a rule; since 9.
    pub async fn update_rule(&self, rule: &HaRule) -> Result<()> {
        self.0
            .call(Call::put("ha.rule.update", rule_path(&rule.name)).params(rule.params()))
            .await
    }

    /// Removes a rule; since 9.
    pub async fn delete_rule(&self, name: &str) -> Result<()> {
        self.0
            .call(Call::delete("ha.rule.delete", rule_path(name)))
            .await
    }

    async fn check(&self, resource: &HaResource) -> Result<()> {
        if resource.group.is_some() {
            self.groups_only().await?;
        }
        Ok(())
    }

    async fn groups_only(&self) -> Result<()> {
        self.0
            .require(
                "high availability by groups",
                "8.4 or earlier (use rules)",
                |release| release.major < 9,
            )
            .await
    }
}

fn resource_path(sid: &HaSid) -> String {
    format!("/cluster/ha/resources/{}", escape(sid.as_str()))
}

fn rule_path(name: &str) -> String {
    format!("/cluster/ha/rules/{}", escape(name))
}
