//! What PVE keeps about a guest beside its hardware.

use api::vm::{
    Firewall, HighAvailability, ProviderDefaults, Startup as Written, VirtualMachineSpec,
};
use fleet::intent::{
    FirewallDirection, FirewallIntent, FirewallRule, Ha, HaState, Options, Startup,
};

pub(super) fn options(
    spec: &VirtualMachineSpec,
    defaults: &ProviderDefaults,
    label_tags: Vec<String>,
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
    let default_pool = defaults.pool.clone().filter(|_| !adopted);
    Options {
        description: spec.description.clone(),
        tags: (!tags.is_empty()).then_some(tags),
        keep_tags,
        pool: spec.pool.clone().or(default_pool),
        onboot: spec.on_boot,
        startup: spec.startup.as_ref().map(startup),
        protection: spec.protection,
        ha: spec.ha.as_ref().and_then(ha),
        firewall: spec.firewall.as_ref().map(firewall),
    }
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
