//! A guest's firewall: its rules and what is said of it as a whole.

use std::collections::BTreeSet;

use pve::{
    api::firewall::{Firewall, Rule},
    params::Params,
};
use serde_json::Value;

use super::{Flow, Pass};
use crate::{
    NodeName,
    facts::Drift,
    intent::{FirewallDirection, FirewallIntent},
    record::Identity,
};

impl Pass<'_> {
    /// Writes the firewall as it is wanted.
    pub(super) async fn firewall(
        &mut self,
        identity: &Identity,
        node: &NodeName,
        want: &FirewallIntent,
    ) -> Flow<()> {
        let firewall = self.handle(node, identity.vmid).firewall();
        let mut options = options(want);
        if self.record.given.firewall {
            let said: BTreeSet<&str> = options.iter().map(|(key, _)| key).collect();
            let all = ["macfilter", "ipfilter", "policy_in", "policy_out"];
            let unsaid: Vec<&str> = all.into_iter().filter(|key| !said.contains(key)).collect();
            options = options.list("delete", unsaid);
        }
        let rules = rules(want);
        // Rules that came with the guest are left alone where none are declared, nor ever were.
        let given = &mut self.record.given;
        let ours = !rules.is_empty() || given.rules.unwrap_or(given.firewall);
        given.rules = Some(ours);
        let there = if ours {
            let there = firewall.rules().await;
            there.map_err(|error| self.node_trouble(node, "reading the firewall", &error))?
        } else {
            Vec::new()
        };
        let written = async {
            replace_rules(&firewall, &there, &rules).await?;
            firewall.set_options(options).await
        };
        let written = written.await;
        written.map_err(|error| self.node_trouble(node, "writing the firewall", &error))?;
        self.memory(|memory| memory.firewall_changed = false);
        Ok(())
    }

    /// Takes note whether somebody changed the firewall, which nothing but a look at it shows.
    pub(super) async fn audit_firewall(
        &mut self,
        identity: &Identity,
        node: &NodeName,
    ) -> Flow<()> {
        let Some(want) = self.intent.options.firewall.clone() else {
            return Ok(());
        };
        if self.record.beside != self.beside_digest() || !self.record.giving.is_nothing() {
            // It is written anyway.
            return Ok(());
        }
        let firewall = self.handle(node, identity.vmid).firewall();
        let rules = rules(&want);
        let seen = async {
            let there = if rules.is_empty() {
                Vec::new()
            } else {
                firewall.rules().await?
            };
            Ok((there, firewall.options().await?))
        };
        let (there, found) = seen
            .await
            .map_err(|error| self.node_trouble(node, "reading the firewall", &error))?;
        let text = |value: &Value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        };
        let is_so = |(key, value): (&str, &str)| found.get(key).map(text).as_deref() == Some(value);
        let changed = !alike(&there, &rules) || !options(&want).iter().all(is_so);
        let corrected = self.intent.policy.correct_drift;
        let before = self.memory(|memory| {
            if changed && !corrected {
                memory.drift.push(Drift {
                    key: "firewall".to_owned(),
                    declared: None,
                    found: None,
                });
            }
            std::mem::replace(&mut memory.firewall_changed, changed)
        });
        if changed && !before {
            let then = if corrected {
                ": it is written again"
            } else {
                ""
            };
            let text = format!("somebody changed the guest's firewall{then}");
            self.warn("Drifted", text);
        }
        Ok(())
    }
}

/// What is said of the firewall as a whole.
fn options(want: &FirewallIntent) -> Params {
    let mut options = Params::new();
    for (key, value) in [
        ("enable", want.enable),
        ("macfilter", want.mac_filter),
        ("ipfilter", want.ip_filter),
    ] {
        options = options.maybe(key, value.map(u8::from));
    }
    options
        .maybe("policy_in", want.policy_in.as_ref())
        .maybe("policy_out", want.policy_out.as_ref())
}

/// Whether these are the same rules, in the same order.
fn alike(there: &[Rule], rules: &[Rule]) -> bool {
    there.len() == rules.len() && begins(there, rules)
}

fn begins(there: &[Rule], rules: &[Rule]) -> bool {
    let plain = |rule: &Rule| Rule {
        pos: None,
        digest: None,
        log: None,
        ..rule.clone()
    };
    let mut pairs = there.iter().zip(rules);
    there.len() >= rules.len() && pairs.all(|(a, b)| plain(a) == plain(b))
}

/// Puts rules in the place of those that are there. At no time there is none, and where one of them is refused the old ones stay
/// as they were: half of the new ones would let through, or keep out, what nobody wants.
async fn replace_rules(firewall: &Firewall, there: &[Rule], rules: &[Rule]) -> pve::Result<()> {
    // A new rule always becomes the first, so the last comes first: those that a try before this one has added are there.
    let heads = |many: &usize| begins(there, &rules[rules.len() - many..]);
    let added = (0..=rules.len()).rev().find(heads).unwrap_or(0);
    for (done, rule) in rules[..rules.len() - added].iter().rev().enumerate() {
        let Err(error) = firewall.add_rule(rule).await else {
            continue;
        };
        if !error.is_unknown() {
            for _ in 0..done {
                firewall.delete_rule(0, None).await?;
            }
        }
        return Err(error);
    }
    let after = u32::try_from(rules.len()).unwrap_or(u32::MAX);
    for _ in &there[added..] {
        firewall.delete_rule(after, None).await?;
    }
    Ok(())
}

/// The rules in PVE's words.
pub(super) fn rules(want: &FirewallIntent) -> Vec<Rule> {
    // PVE takes an empty text for none.
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let own = want.rules.iter().map(|rule| {
        let direction = match rule.direction {
            FirewallDirection::In => "in",
            FirewallDirection::Out => "out",
        };
        let mut out = Rule::new(direction, rule.action.to_uppercase());
        out.macro_name = said(&rule.macro_name);
        out.proto = said(&rule.proto);
        out.source = said(&rule.source);
        out.dest = said(&rule.dest);
        out.dport = said(&rule.dport);
        out.sport = said(&rule.sport);
        out.iface = said(&rule.iface);
        out.comment = said(&rule.comment);
        out
    });
    own.chain(
        want.groups
            .iter()
            .map(|group| Rule::new("group", group.clone())),
    )
    .collect()
}
