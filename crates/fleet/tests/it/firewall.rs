//! A guest's firewall.

use std::time::Duration;

use fleet::{
    Outcome, Owner,
    intent::{FirewallIntent, FirewallRule},
};

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";

fn rule(dport: &str) -> FirewallRule {
    FirewallRule {
        action: "accept".to_owned(),
        proto: Some("tcp".to_owned()),
        dport: Some(dport.to_owned()),
        ..FirewallRule::default()
    }
}

fn guest(bench: &Bench, owner: &Owner) -> pve::Qemu {
    let identity = bench.record(owner).identity.clone().unwrap();
    bench.client().node(&identity.node).qemu(identity.vmid)
}

async fn ports(bench: &Bench, owner: &Owner) -> Vec<String> {
    let rules = guest(bench, owner).firewall().rules().await.unwrap();
    rules.into_iter().filter_map(|rule| rule.dport).collect()
}

#[tokio::test(start_paused = true)]
async fn rules_that_somebody_made_stay_until_rules_are_declared_and_then_the_declared_ones_go() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    let owner = bench.want(intent.clone());
    bench.run().await;
    let guest = guest(&bench, &owner);
    let by_hand = pve::api::firewall::Rule {
        kind: "in".to_owned(),
        action: "ACCEPT".to_owned(),
        enable: true,
        proto: Some("tcp".to_owned()),
        dport: Some("8080".to_owned()),
        ..Default::default()
    };
    guest.firewall().add_rule(&by_hand).await.unwrap();
    for (rules, left) in [
        (vec![], vec!["8080"]),
        (vec![rule("22")], vec!["22"]),
        (vec![], vec![]),
    ] {
        intent.options.firewall = Some(FirewallIntent {
            enable: Some(true),
            rules,
            ..FirewallIntent::default()
        });
        bench.want(intent.clone());
        bench.run().await;
        assert_eq!(ports(&bench, &owner).await, left, "{}", bench.stories());
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_rules_leaves_no_moment_without_any() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.options.firewall = Some(FirewallIntent {
        enable: Some(true),
        rules: vec![rule("22"), rule("443")],
        ..FirewallIntent::default()
    });
    let owner = bench.want(intent.clone());
    bench.run().await;
    intent.options.firewall.as_mut().unwrap().rules = vec![rule("22"), rule("80")];
    bench.want(intent);
    // It comes to an end after the first change.
    let route = "DELETE /nodes/{node}/qemu/{vmid}/firewall/rules/{pos}";
    let stop = pve_sim::Action::die("no space left on device");
    let id = bench
        .cluster()
        .control()
        .inject(pve_sim::Fault::every(route, stop));
    bench.call_now(&owner).await;
    assert_eq!(ports(&bench, &owner).await, ["22", "80", "22", "443"]);
    bench.cluster().control().remove(id);
    bench.run().await;
    assert_eq!(ports(&bench, &owner).await, ["22", "80"]);
}

#[tokio::test(start_paused = true)]
async fn rules_of_which_one_is_refused_leave_those_that_are_there() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.options.firewall = Some(FirewallIntent {
        enable: Some(true),
        rules: vec![rule("22")],
        ..FirewallIntent::default()
    });
    let owner = bench.want(intent.clone());
    bench.run().await;
    let refused = FirewallRule {
        action: "accept".to_owned(),
        source: Some("+nosuchset".to_owned()),
        macro_name: Some("NoSuchMacro".to_owned()),
        ..FirewallRule::default()
    };
    intent.options.firewall.as_mut().unwrap().rules = vec![rule("22"), refused, rule("80")];
    bench.want(intent);
    for _ in 0..3 {
        let progress = bench.call_now(&owner).await;
        assert!(
            !matches!(progress.outcome, Outcome::Settled),
            "{}",
            bench.stories()
        );
    }
    assert_eq!(ports(&bench, &owner).await, ["22"], "{}", bench.stories());
}

#[tokio::test(start_paused = true)]
async fn firewall_rules_are_written_in_order_and_only_when_they_differ() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.options.firewall = Some(FirewallIntent {
        enable: Some(true),
        policy_in: Some("DROP".to_owned()),
        rules: vec![rule("22"), rule("443")],
        ..FirewallIntent::default()
    });
    let owner = bench.want(intent.clone());
    bench.run().await;
    let guest = guest(&bench, &owner);
    let ports = |rules: &[pve::api::firewall::Rule]| {
        let ports = rules.iter().filter_map(|rule| rule.dport.clone());
        ports.collect::<Vec<_>>()
    };
    let rules = guest.firewall().rules().await.unwrap();
    assert_eq!(ports(&rules), ["22", "443"]);

    intent.options.firewall.as_mut().unwrap().rules = vec![rule("443"), rule("22"), rule("80")];
    bench.want(intent.clone());
    bench.run().await;
    let rules = guest.firewall().rules().await.unwrap();
    assert_eq!(ports(&rules), ["443", "22", "80"]);

    bench.cluster().control().reset_counts();
    bench.want(intent);
    bench.run().await;
    assert_eq!(bench.requests(), 0, "{}", bench.counts());
}

#[tokio::test(start_paused = true)]
async fn rules_that_came_with_a_guest_stay_while_none_are_declared() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    let owner = bench.want(intent.clone());
    bench.run().await;
    let guest = guest(&bench, &owner);
    let theirs = pve::api::firewall::Rule::new("in", "ACCEPT");
    guest.firewall().add_rule(&theirs).await.unwrap();
    for policy in [None, Some("DROP")] {
        intent.options.firewall = Some(FirewallIntent {
            enable: Some(true),
            policy_in: policy.map(str::to_owned),
            ..FirewallIntent::default()
        });
        bench.want(intent.clone());
        bench.run().await;
        assert_eq!(guest.firewall().rules().await.unwrap().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_with_empty_texts_is_like_one_without_them() {
    let mut bench = Bench::new();
    bench.options.audit_interval = Duration::from_secs(10);
    bench.restart();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    let empty = || Some(String::new());
    intent.options.firewall = Some(FirewallIntent {
        enable: Some(true),
        rules: vec![FirewallRule {
            source: empty(),
            dest: empty(),
            sport: empty(),
            iface: empty(),
            macro_name: empty(),
            comment: empty(),
            ..rule("22")
        }],
        ..FirewallIntent::default()
    });
    let owner = bench.want(intent);
    bench.run().await;
    bench.run_for(Duration::from_mins(1)).await;
    bench.cluster().control().reset_counts();
    bench.run_for(Duration::from_mins(5)).await;
    let counts = bench.cluster().control().counts();
    let read = counts.get("GET /nodes/{node}/qemu/{vmid}/firewall/rules");
    assert!(read.is_some(), "{}", bench.counts());
    let written = counts.get("PUT /nodes/{node}/qemu/{vmid}/firewall/options");
    assert_eq!(written, None, "{}", bench.counts());
    assert_eq!(ports(&bench, &owner).await, ["22"]);
}

#[tokio::test(start_paused = true)]
async fn a_firewall_changed_by_hand_is_written_again_or_told_of() {
    for correct in [true, false] {
        let mut bench = Bench::new();
        bench.options.audit_interval = Duration::from_secs(10);
        bench.restart();
        bench.ready().await;
        let mut intent = machine("web", TEMPLATE);
        intent.policy.correct_drift = correct;
        intent.options.firewall = Some(FirewallIntent {
            enable: Some(true),
            policy_in: Some("DROP".to_owned()),
            rules: vec![rule("22"), rule("443")],
            ..FirewallIntent::default()
        });
        let owner = bench.want(intent);
        bench.run().await;
        bench.run_for(Duration::from_mins(1)).await;
        let identity = bench.record(&owner).identity.clone().unwrap();
        let guest = bench.client().node(&identity.node).qemu(identity.vmid);
        guest.firewall().delete_rule(0, None).await.unwrap();
        bench.cluster().control().reset_counts();
        bench.run_for(Duration::from_mins(2)).await;
        let drift = &bench.progress(&owner).facts.drift;
        let told = drift.iter().any(|drift| drift.key == "firewall");
        assert_eq!(told, !correct, "{}", bench.stories());
        let left: &[&str] = if correct { &["22", "443"] } else { &["443"] };
        assert_eq!(ports(&bench, &owner).await, left, "{}", bench.stories());
        // Written once, and only read after that.
        let counts = bench.cluster().control().counts();
        let written = counts.get("PUT /nodes/{node}/qemu/{vmid}/firewall/options");
        assert_eq!(written.copied().unwrap_or(0), u64::from(correct));
    }
}
