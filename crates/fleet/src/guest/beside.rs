//! What PVE keeps beside a guest's configuration: pool, high availability, firewall.

use pve::{
    GuestKind, HaSid, PoolId,
    api::{
        firewall::Rule,
        ha::{HaResource, HaRule, HaRuleKind},
        pool::PoolChange,
    },
    params::Params,
};

use super::{Flow, Pass, failed};
use crate::{
    Failure, NodeName,
    cloudinit::hex,
    intent::{FirewallDirection, FirewallIntent, Ha, HaState, Power},
    record::Identity,
    view::View,
};

use sha2::{Digest, Sha256};

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

    /// Brings pool, high availability and firewall to what is wanted.
    pub(super) async fn beside(
        &mut self,
        view: &View,
        identity: &Identity,
        node: &NodeName,
    ) -> Flow<()> {
        if let Some(pool) = self.intent.options.pool.clone() {
            self.join_pool(view, identity, &pool).await?;
        }
        if let Some(firewall) = self.intent.options.firewall.clone() {
            self.firewall(identity, node, &firewall).await?;
        }
        if let Some(ha) = self.intent.options.ha.clone() {
            self.high_availability(identity, &ha).await?;
        }
        self.record.beside = self.beside_digest();
        Ok(())
    }

    async fn join_pool(&mut self, view: &View, identity: &Identity, pool: &str) -> Flow<()> {
        let seen = view
            .guests
            .get(&identity.vmid)
            .and_then(|row| row.pool.as_deref());
        // The call that made the guest has put it there already.
        if seen == Some(pool) || self.memory(|memory| memory.made.is_some()) && seen.is_none() {
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

    async fn high_availability(&mut self, identity: &Identity, ha: &Ha) -> Flow<()> {
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
        let kind = if self.kind() == GuestKind::Lxc {
            GuestKind::Lxc
        } else {
            GuestKind::Qemu
        };
        let sid = HaSid::of(kind, identity.vmid);
        let state = match (ha.state, self.intent.power) {
            (HaState::Ignored, _) => "ignored",
            (HaState::Managed, Power::On | Power::Paused) => "started",
            (HaState::Managed, _) => "stopped",
        };
        let mut resource = HaResource::started(sid.clone());
        resource.state = Some(state.to_owned());
        resource.group.clone_from(&ha.group);
        resource.max_restart = ha.max_restart;
        resource.max_relocate = ha.max_relocate;
        let client = self.cluster.client.ha();
        let sent = match client.add(&resource).await {
            Err(pve::Error::AlreadyExists { .. }) => client.update(&resource).await,
            other => other,
        };
        if let Err(error) = sent {
            return Err(self.trouble("giving the guest to high availability", &error));
        }
        if ha.nodes.is_empty() {
            return Ok(());
        }
        let rule = HaRule {
            name: format!("oxmox-{}", identity.vmid),
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

    async fn firewall(
        &mut self,
        identity: &Identity,
        node: &NodeName,
        want: &FirewallIntent,
    ) -> Flow<()> {
        let firewall = self.handle(node, identity.vmid).firewall();
        let mut options = Params::new();
        for (key, value) in [
            ("enable", want.enable),
            ("macfilter", want.mac_filter),
            ("ipfilter", want.ip_filter),
        ] {
            options = options.maybe(key, value.map(u8::from));
        }
        options = options
            .maybe("policy_in", want.policy_in.as_ref())
            .maybe("policy_out", want.policy_out.as_ref());
        let rules = rules(want);
        let there = match firewall.rules().await {
            Ok(there) => there,
            Err(error) => return Err(self.node_trouble(node, "reading the firewall", &error)),
        };
        let plain = |rule: &Rule| Rule {
            pos: None,
            digest: None,
            log: None,
            ..rule.clone()
        };
        let same = there.len() == rules.len()
            && there.iter().zip(&rules).all(|(a, b)| plain(a) == plain(b));
        let written = async {
            if !same {
                for _ in &there {
                    firewall.delete_rule(0, None).await?;
                }
                // A new rule always becomes the first.
                for rule in rules.iter().rev() {
                    firewall.add_rule(rule).await?;
                }
            }
            firewall.set_options(options).await
        };
        let written = written.await;
        written.map_err(|error| self.node_trouble(node, "writing the firewall", &error))
    }
}

fn rules(want: &FirewallIntent) -> Vec<Rule> {
    let own = want.rules.iter().map(|rule| {
        let direction = match rule.direction {
            FirewallDirection::In => "in",
            FirewallDirection::Out => "out",
        };
        let mut out = Rule::new(direction, rule.action.to_uppercase());
        out.macro_name.clone_from(&rule.macro_name);
        out.proto.clone_from(&rule.proto);
        out.source.clone_from(&rule.source);
        out.dest.clone_from(&rule.dest);
        out.dport.clone_from(&rule.dport);
        out.sport.clone_from(&rule.sport);
        out.iface.clone_from(&rule.iface);
        out.comment.clone_from(&rule.comment);
        out
    });
    own.chain(
        want.groups
            .iter()
            .map(|group| Rule::new("group", group.clone())),
    )
    .collect()
}
