//! What PVE keeps beside a guest's configuration: pool, high availability and, in a room of its own, firewall.

use std::time::Duration;

use pve::{
    HaSid, PoolId,
    api::{
        ha::{HaResource, HaRule, HaRuleKind},
        pool::PoolChange,
    },
};

use super::{Flow, LAG, Pass, failed, firewall};
use crate::{
    Failure, NodeName, Outcome, PowerFact,
    cloudinit::hex,
    intent::{FirewallIntent, Ha, HaState, Power},
    record::{Given, Identity},
    view::View,
};

use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// Between two tries to put right what is not shown as it was put.
const REPEAT: Duration = Duration::from_mins(5);

impl Pass<'_> {
    /// A digest of what is wanted beside the configuration; `None` if nothing is.
    pub(super) fn beside_digest(&self) -> Option<String> {
        let options = &self.intent.options;
        if options.pool.is_none() && options.ha.is_none() && options.firewall.is_none() {
            return None;
        }
        let on = matches!(self.intent.power, Power::On);
        let text = format!(
            "{:?}{:?}{:?}{on}",
            options.pool, options.ha, options.firewall
        );
        Some(hex(&Sha256::digest(text)[..8]))
    }

    /// Whether somebody took the guest out of its pool or out of high availability, as far as a look at everything shows.
    /// What is not shown although it was put right is left at that for a while: not everybody may see it.
    pub(super) fn is_moved(&self, view: &View, identity: &Identity) -> bool {
        let Some(row) = view.guests.get(&identity.vmid) else {
            return false;
        };
        let (given, options) = (&self.record.given, &self.intent.options);
        let pool = given.pool.is_some() && given.pool == options.pool && given.pool != row.pool;
        let ha = given.ha && options.ha.is_some() && row.ha.is_none();
        let at = self.memory(|memory| memory.beside.max(memory.made));
        (pool || ha) && at.is_none_or(|at| view.asked > at + REPEAT)
    }

    /// Brings pool, high availability and firewall to what is wanted.
    pub(super) async fn beside(
        &mut self,
        view: &View,
        identity: &Identity,
        node: &NodeName,
    ) -> Flow<()> {
        let options = self.intent.options.clone();
        let given = self.record.given.clone();
        let mut giving = self.record.giving.clone();
        let rule = options.ha.as_ref().is_some_and(|ha| !ha.nodes.is_empty());
        giving.ha |= options.ha.is_some() && !given.ha;
        giving.rule |= rule && !given.rule;
        giving.firewall |= options.firewall.is_some() && !given.firewall;
        if giving != self.record.giving {
            self.record.giving = giving;
            return Err(Outcome::Persist);
        }
        match &options.pool {
            Some(pool) => self.join_pool(view, identity, pool).await?,
            None => self.leave_pool(view, identity, given.pool).await?,
        }
        self.record.given.named_pool = options.pool.is_some() && !options.pool_by_default;
        self.record.given.pool = options.pool;
        match &options.firewall {
            Some(firewall) => self.firewall(identity, node, firewall).await?,
            None if given.firewall || giving.firewall => {
                let none = FirewallIntent {
                    enable: Some(false),
                    ..FirewallIntent::default()
                };
                self.firewall(identity, node, &none).await?;
            }
            None => {}
        }
        self.record.given.firewall = options.firewall.is_some();
        self.record.given.rules = options
            .firewall
            .as_ref()
            .map(|it| !firewall::rules(it).is_empty());
        self.record.giving.firewall = false;
        match &options.ha {
            Some(ha) => self.high_availability(view, identity, ha).await?,
            None if given.ha || giving.ha => self.leave_high_availability(identity).await?,
            None => {}
        }
        self.record.given.ha = options.ha.is_some();
        self.record.given.rule = rule;
        self.record.giving = Given::default();
        self.record.beside = self.beside_digest();
        let now = Instant::now();
        self.memory(|memory| memory.beside = Some(now));
        Ok(())
    }

    /// Takes the guest out of the pool it was put into, if it is still there.
    async fn leave_pool(
        &mut self,
        view: &View,
        identity: &Identity,
        given: Option<String>,
    ) -> Flow<()> {
        let row = view.guests.get(&identity.vmid);
        let seen = row.and_then(|row| row.pool.clone());
        let Some(pool) = given.filter(|given| Some(given) == seen.as_ref()) else {
            return Ok(());
        };
        let id = PoolId::new(pool)
            .map_err(|error| failed(Failure::Invalid, format!("pool: {error}")))?;
        let change = PoolChange {
            vms: vec![identity.vmid],
            delete: true,
            ..PoolChange::default()
        };
        let left = self.cluster.client.pools().update(&id, &change).await;
        left.map_err(|error| self.trouble("leaving the pool", &error))
    }

    /// Takes the guest back from high availability; it stays as it is.
    async fn leave_high_availability(&mut self, identity: &Identity) -> Flow<()> {
        self.remove_rule(identity).await?;
        let sid = HaSid::of(self.kind(), identity.vmid);
        match self.cluster.client.ha().remove(&sid).await {
            Err(error) if !error.is_not_found() => {
                Err(self.trouble("taking the guest back from high availability", &error))
            }
            _ => Ok(()),
        }
    }

    /// Removes the rule that says on which nodes the guest is preferred.
    async fn remove_rule(&mut self, identity: &Identity) -> Flow<()> {
        let client = self.cluster.client.ha();
        let rule = rule_name(identity);
        let rules = match client.rules().await {
            Ok(rules) => rules,
            Err(error) if error.is_unknown() => {
                return Err(self.trouble("reading the rules of high availability", &error));
            }
            // PVE 8 has none.
            Err(_) => Vec::new(),
        };
        if !rules.iter().any(|known| known.name == rule) {
            return Ok(());
        }
        match client.delete_rule(&rule).await {
            Err(error) if !error.is_not_found() => {
                Err(self.trouble("removing the guest's node rule", &error))
            }
            _ => Ok(()),
        }
    }

    async fn join_pool(&mut self, view: &View, identity: &Identity, pool: &str) -> Flow<()> {
        let seen = view
            .guests
            .get(&identity.vmid)
            .and_then(|row| row.pool.as_deref());
        // The call that made the guest has put it there already, and the list will show it.
        let new = self.record.beside.is_none()
            && self.memory(|memory| memory.made.is_some_and(|made| view.asked < made + LAG));
        if seen == Some(pool) || new && seen.is_none() {
            return Ok(());
        }
        let id = PoolId::new(pool)
            .map_err(|error| failed(Failure::Invalid, format!("pool: {error}")))?;
        let change = PoolChange {
            vms: vec![identity.vmid],
            allow_move: seen.is_some(),
            ..PoolChange::default()
        };
        match self.cluster.client.pools().update(&id, &change).await {
            Ok(()) | Err(pve::Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(self.trouble("joining the pool", &error)),
        }
    }

    async fn high_availability(&mut self, view: &View, identity: &Identity, ha: &Ha) -> Flow<()> {
        let major = self
            .cluster
            .state()
            .release
            .map_or(9, |release| release.major);
        if major >= 9 && ha.group.is_some() {
            let text = "ha.group: PVE 9 has rules instead of groups: use ha.nodes";
            return Err(failed(Failure::Unsupported, text));
        }
        if major < 9 && !ha.nodes.is_empty() {
            let text = "ha.nodes: needs PVE 9: use ha.group";
            return Err(failed(Failure::Unsupported, text));
        }
        let sid = HaSid::of(self.kind(), identity.vmid);
        let row = view.guests.get(&identity.vmid);
        let runs = row.is_some_and(|row| row.power == PowerFact::Running);
        let state = match (ha.state, self.intent.power) {
            (HaState::Ignored, _) => "ignored",
            (HaState::Managed, Power::On | Power::Paused) => "started",
            // Whoever leaves its power to others keeps it as it is.
            (HaState::Managed, Power::Unmanaged { .. }) if runs => "started",
            (HaState::Managed, _) => "stopped",
        };
        let mut resource = HaResource::started(sid.clone());
        resource.state = Some(state.to_owned());
        resource.group.clone_from(&ha.group);
        resource.max_restart = ha.max_restart;
        resource.max_relocate = ha.max_relocate;
        let client = self.cluster.client.ha();
        let sent = match client.add(&resource).await {
            Err(pve::Error::AlreadyExists { .. }) => {
                if matches!(self.intent.power, Power::Unmanaged { .. }) {
                    resource.state = None;
                }
                client.replace(&resource).await
            }
            other => other,
        };
        if let Err(error) = sent {
            return Err(self.trouble("giving the guest to high availability", &error));
        }
        if ha.nodes.is_empty() {
            if self.record.given.rule || self.record.giving.rule {
                self.remove_rule(identity).await?;
            }
            return Ok(());
        }
        let rule = HaRule {
            name: rule_name(identity),
            resources: vec![sid],
            kind: HaRuleKind::NodeAffinity {
                nodes: ha.nodes.join(","),
                strict: ha.strict,
            },
            disable: false,
            comment: None,
        };
        let sent = match client.create_rule(&rule).await {
            Err(pve::Error::AlreadyExists { .. }) => client.update_rule(&rule).await,
            Err(pve::Error::Parameters { errors, .. })
                if errors.values().any(|text| text.contains("already")) =>
            {
                client.update_rule(&rule).await
            }
            other => other,
        };
        sent.map_err(|error| self.trouble("writing the guest's node rule", &error))
    }
}

/// The rule that says on which nodes a guest is preferred.
fn rule_name(identity: &Identity) -> String {
    format!("oxmox-{}", identity.vmid)
}
