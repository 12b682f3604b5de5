//! Firewalls: of the cluster, of nodes, of guests, and security groups.
//!
//! A rule takes effect some ten seconds later, and only if the firewall is on for the datacenter, for the guest, and
//! for the network card (`firewall=1`).

use serde::Deserialize;

use crate::api::guest::Guest;
use crate::api::node::Node;
use crate::client::{Call, Client};
use crate::error::Result;
use crate::params::{Params, escape};
use crate::scalar;

/// One firewall.
#[derive(Debug, Clone)]
pub struct Firewall {
    client: Client,
    base: String,
}

/// One security group: rules that many firewalls share.
#[derive(Debug, Clone)]
pub struct SecurityGroup {
    client: Client,
    name: String,
}

/// A rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Rule {
    /// `in`, `out`, `forward` or `group`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `ACCEPT`, `DROP`, `REJECT`, or the name of a security group.
    pub action: String,
    /// Whether it is on.
    #[serde(deserialize_with = "scalar::flag")]
    pub enable: bool,
    /// Where it comes from.
    #[serde(deserialize_with = "scalar::optional")]
    pub source: Option<String>,
    /// Where it goes to.
    #[serde(deserialize_with = "scalar::optional")]
    pub dest: Option<String>,
    /// The protocol.
    #[serde(deserialize_with = "scalar::optional")]
    pub proto: Option<String>,
    /// The ports it goes to.
    #[serde(deserialize_with = "scalar::optional")]
    pub dport: Option<String>,
    /// The ports it comes from.
    #[serde(deserialize_with = "scalar::optional")]
    pub sport: Option<String>,
    /// The kind of ICMP message.
    #[serde(rename = "icmp-type", deserialize_with = "scalar::optional")]
    pub icmp_type: Option<String>,
    /// The network card, such as `net0`.
    #[serde(deserialize_with = "scalar::optional")]
    pub iface: Option<String>,
    /// A set of protocol and ports by name, such as `SSH`.
    #[serde(rename = "macro", deserialize_with = "scalar::optional")]
    pub macro_name: Option<String>,
    /// How loudly it is logged.
    #[serde(deserialize_with = "scalar::optional")]
    pub log: Option<String>,
    /// A person's note.
    #[serde(deserialize_with = "scalar::optional")]
    pub comment: Option<String>,
    /// Its place; the server's answer only.
    #[serde(deserialize_with = "scalar::optional")]
    pub pos: Option<u32>,
    /// The fingerprint of all rules; the server's answer only.
    #[serde(deserialize_with = "scalar::optional")]
    pub digest: Option<String>,
}

impl Rule {
    /// A rule that is on.
    pub fn new(kind: impl Into<String>, action: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            action: action.into(),
            enable: true,
            ..Self::default()
        }
    }

    fn params(&self) -> Params {
        Params::new()
            .with("type", &self.kind)
            .with("action", &self.action)
            .with("enable", u8::from(self.enable))
            .maybe("source", self.source.as_ref())
            .maybe("dest", self.dest.as_ref())
            .maybe("proto", self.proto.as_ref())
            .maybe("dport", self.dport.as_ref())
            .maybe("sport", self.sport.as_ref())
            .maybe("icmp-type", self.icmp_type.as_ref())
            .maybe("iface", self.iface.as_ref())
            .maybe("macro", self.macro_name.as_ref())
            .maybe("log", self.log.as_ref())
            .maybe("comment", self.comment.as_ref())
    }
}

/// Options of a firewall, as texts by key.
pub type Options = serde_json::Map<String, serde_json::Value>;

/// A named set of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IpSet {
    /// Its name.
    pub name: String,
    /// A person's note.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub comment: Option<String>,
}

/// A member of a set of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IpSetMember {
    /// The address or network.
    pub cidr: String,
    /// Whether it is left out instead of in.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub nomatch: bool,
    /// A person's note.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub comment: Option<String>,
}

impl Client {
    /// The datacenter's firewall.
    pub fn firewall(&self) -> Firewall {
        Firewall {
            client: self.clone(),
            base: "/cluster/firewall".to_owned(),
        }
    }
}

impl Node {
    /// The node's firewall.
    pub fn firewall(&self) -> Firewall {
        Firewall {
            client: self.client.clone(),
            base: self.path("/firewall"),
        }
    }
}

impl Guest {
    /// The guest's firewall.
    pub fn firewall(&self) -> Firewall {
        Firewall {
            client: self.client.clone(),
            base: self.path("/firewall"),
        }
    }
}

impl Firewall {
    /// Its rules, in order.
    pub async fn rules(&self) -> Result<Vec<Rule>> {
        self.client
            .call(Call::get("firewall.rules", self.path("/rules")))
            .await
    }

    /// Adds a rule, always as the first.
    pub async fn add_rule(&self, rule: &Rule) -> Result<()> {
        self.client
            .call(Call::post("firewall.rule.add", self.path("/rules")).params(rule.params()))
            .await
    }

    /// Changes the rule at a place.
    pub async fn change_rule(&self, pos: u32, rule: &Rule, digest: Option<&str>) -> Result<()> {
        let params = rule.params().maybe("digest", digest);
        self.client
            .call(Call::put("firewall.rule.change", self.rule(pos)).params(params))
            .await
    }

    /// Moves the rule at a place to another.
    pub async fn move_rule(&self, pos: u32, to: u32, digest: Option<&str>) -> Result<()> {
        let params = Params::new().with("moveto", to).maybe("digest", digest);
        self.client
            .call(Call::put("firewall.rule.change", self.rule(pos)).params(params))
            .await
    }

    /// Removes the rule at a place.
    pub async fn delete_rule(&self, pos: u32, digest: Option<&str>) -> Result<()> {
        let params = Params::new().maybe("digest", digest);
        self.client
            .call(Call::delete("firewall.rule.delete", self.rule(pos)).params(params))
            .await
    }

    /// Its options.
    pub async fn options(&self) -> Result<Options> {
        self.client
            .call(Call::get("firewall.options", self.path("/options")))
            .await
    }

    /// Changes options, such as `enable` and `policy_in`.
    pub async fn set_options(&self, options: Params) -> Result<()> {
        self.client
            .call(Call::put("firewall.options.set", self.path("/options")).params(options))
            .await
    }

    /// Its sets of addresses.
    pub async fn ipsets(&self) -> Result<Vec<IpSet>> {
        self.client
            .call(Call::get("firewall.ipsets", self.path("/ipset")))
            .await
    }

    /// Adds a set of addresses.
    pub async fn create_ipset(&self, name: &str, comment: Option<&str>) -> Result<()> {
        let params = Params::new().with("name", name).maybe("comment", comment);
        self.client
            .call(Call::post("firewall.ipset.create", self.path("/ipset")).params(params))
            .await
    }

    /// Removes an empty set of addresses.
    pub async fn delete_ipset(&self, name: &str) -> Result<()> {
        let path = self.path(&format!("/ipset/{}", escape(name)));
        self.client
            .call(Call::delete("firewall.ipset.delete", path))
            .await
    }

    /// The members of a set of addresses.
    pub async fn ipset(&self, name: &str) -> Result<Vec<IpSetMember>> {
        self.client
            .call(Call::get(
                "firewall.ipset",
                self.path(&format!("/ipset/{}", escape(name))),
            ))
            .await
    }

    /// Adds a member to a set of addresses.
    pub async fn add_to_ipset(&self, name: &str, member: &IpSetMember) -> Result<()> {
        let params = Params::new()
            .with("cidr", &member.cidr)
            .flag("nomatch", member.nomatch)
            .maybe("comment", member.comment.as_ref());
        let path = self.path(&format!("/ipset/{}", escape(name)));
        self.client
            .call(Call::post("firewall.ipset.add", path).params(params))
            .await
    }

    /// Removes a member from a set of addresses.
    pub async fn remove_from_ipset(&self, name: &str, cidr: &str) -> Result<()> {
        let path = self.path(&format!("/ipset/{}/{}", escape(name), escape(cidr)));
        self.client
            .call(Call::delete("firewall.ipset.remove", path))
            .await
    }

    fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.base)
    }

    fn rule(&self, pos: u32) -> String {
        self.path(&format!("/rules/{pos}"))
    }
}

/// A security group in the list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SecurityGroupEntry {
    /// Its name.
    pub group: String,
    /// A person's note.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub comment: Option<String>,
}

impl Client {
    /// The security groups.
    pub async fn security_groups(&self) -> Result<Vec<SecurityGroupEntry>> {
        self.call(Call::get("firewall.groups", "/cluster/firewall/groups"))
            .await
    }

    /// One security group.
    pub fn security_group(&self, name: impl Into<String>) -> SecurityGroup {
        SecurityGroup {
            client: self.clone(),
            name: name.into(),
        }
    }
}

impl SecurityGroup {
    /// Makes it, without rules.
    pub async fn create(&self, comment: Option<&str>) -> Result<()> {
        let params = Params::new()
            .with("group", &self.name)
            .maybe("comment", comment);
        self.client
            .call(Call::post("firewall.group.create", "/cluster/firewall/groups").params(params))
            .await
    }

    /// Removes it; its rules must be gone.
    pub async fn delete(&self) -> Result<()> {
        self.client
            .call(Call::delete("firewall.group.delete", self.path()))
            .await
    }

    /// Its rules, in order.
    pub async fn rules(&self) -> Result<Vec<Rule>> {
        self.client
            .call(Call::get("firewall.group.rules", self.path()))
            .await
    }

    /// Adds a rule, always as the first.
    pub async fn add_rule(&self, rule: &Rule) -> Result<()> {
        self.client
            .call(Call::post("firewall.group.rule.add", self.path()).params(rule.params()))
            .await
    }

    /// Removes the rule at a place.
    pub async fn delete_rule(&self, pos: u32, digest: Option<&str>) -> Result<()> {
        let params = Params::new().maybe("digest", digest);
        let path = format!("{}/{pos}", self.path());
        self.client
            .call(Call::delete("firewall.group.rule.delete", path).params(params))
            .await
    }

    fn path(&self) -> String {
        format!("/cluster/firewall/groups/{}", escape(&self.name))
    }
}
