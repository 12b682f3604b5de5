//! What PVE keeps about a guest beside its hardware.

use api::vm::{
    Firewall, HighAvailability, ProviderDefaults, Startup as Written, VirtualMachineSpec,
};
use fleet::{
    GuestRecord,
    intent::{FirewallDirection, FirewallIntent, FirewallRule, Ha, HaState, Options, Startup},
    record::Stage,
};

pub(super) fn options(
    spec: &VirtualMachineSpec,
    defaults: &ProviderDefaults,
    label_tags: Vec<String>,
    record: &GuestRecord,
    adopted: bool,
) -> Options {
    let mut tags = spec.tags.clone();
    if !adopted {
        tags.extend(defaults.tags.iter().cloned());
    }
    // Who declares no tags leaves others to put some on the guest, beside those that stand for labels.
    let keep_tags = tags.is_empty();
    tags.extend(label_tags);
    tags.sort();
    tags.dedup();
    let default_pool = defaults.pool.as_ref().filter(|_| !adopted);
    let (pool, pool_by_default) = pool(spec.pool.as_ref(), default_pool, record);
    Options {
        description: spec.description.clone(),
        tags: (!tags.is_empty()).then_some(tags),
        keep_tags,
        pool,
        pool_by_default,
        onboot: spec.on_boot,
        startup: spec.startup.as_ref().map(startup),
        protection: spec.protection,
        ha: spec.ha.as_ref().and_then(ha),
        firewall: spec.firewall.as_ref().map(firewall),
    }
}

/// The pool a guest is to be in, and whether nobody named it for this one. The default is for new guests: one that has
/// joined its pool stays there, whatever new ones join now.
pub(crate) fn pool(
    named: Option<&String>,
    default: Option<&String>,
    record: &GuestRecord,
) -> (Option<String>, bool) {
    if named.is_some() {
        return (named.cloned(), false);
    }
    let joined = record.given.pool.as_ref();
    let joined = joined.filter(|_| !record.given.named_pool);
    let new = record.stage < Stage::Settled;
    let pool = joined.or(default.filter(|_| new)).cloned();
    let by_default = pool.is_some();
    (pool, by_default)
}

pub(crate) fn ha(written: &HighAvailability) -> Option<Ha> {
    written.enabled.then(|| Ha {
        state: HaState::Managed,
        group: written.group.clone(),
        nodes: written.nodes.clone(),
        strict: false,
        max_restart: written.max_restart,
        max_relocate: written.max_relocate,
    })
}

pub(crate) fn startup(written: &Written) -> Startup {
    Startup {
        order: written.order,
        up: written.up_delay_seconds,
        down: written.down_timeout_seconds,
    }
}

pub(crate) fn firewall(written: &Firewall) -> FirewallIntent {
    let rules = written.rules.iter().map(|rule| FirewallRule {
        direction: if rule.direction == "out" {
            FirewallDirection::Out
        } else {
            FirewallDirection::In
        },
        action: rule.action.clone(),
        proto: rule.protocol.clone(),
        source: rule.source.clone(),
        dest: rule.destination.clone(),
        dport: rule.ports.clone(),
        comment: rule.comment.clone(),
        ..FirewallRule::default()
    });
    FirewallIntent {
        enable: Some(written.enabled),
        policy_in: written.policy_in.clone(),
        policy_out: written.policy_out.clone(),
        groups: written.groups.clone(),
        rules: rules.collect(),
        ..FirewallIntent::default()
    }
}

#[cfg(test)]
mod tests {
    use fleet::record::Given;

    use super::*;

    #[test]
    fn only_new_guests_join_the_pool_of_their_provider() {
        let of = |stage, given: Option<&str>, named_pool| GuestRecord {
            stage,
            given: Given {
                pool: given.map(str::to_owned),
                named_pool,
                ..Given::default()
            },
            ..GuestRecord::default()
        };
        let (new, old) = ("new".to_owned(), "old".to_owned());
        let joins = |record| pool(None, Some(&new), &record).0;
        assert_eq!(joins(of(Stage::New, None, false)), Some(new.clone()));
        assert_eq!(joins(of(Stage::Started, None, false)), Some(new.clone()));
        assert_eq!(
            joins(of(Stage::Started, Some("old"), false)),
            Some(old.clone())
        );
        assert_eq!(
            joins(of(Stage::Settled, Some("old"), false)),
            Some(old.clone())
        );
        assert_eq!(joins(of(Stage::Settled, None, false)), None);
        // What was named for it is left when it is named no longer.
        assert_eq!(joins(of(Stage::Settled, Some("old"), true)), None);
        let named = pool(
            Some(&old),
            Some(&new),
            &of(Stage::Settled, Some("new"), false),
        );
        assert_eq!(named, (Some(old), false));
    }
}
