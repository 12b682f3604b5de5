//! What PVE keeps beside a guest: pool, high availability, firewall.

use std::time::Duration;

use fleet::{
    Outcome, PowerFact,
    intent::{FirewallIntent, FirewallRule, Ha, Power},
};
use pve::{GuestKind, HaSid, PoolId};

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";

#[tokio::test(start_paused = true)]
async fn a_guest_is_in_its_pool_from_the_call_that_makes_it_and_moves_with_the_declaration() {
    let mut bench = Bench::new();
    bench.ready().await;
    let (tenant, other) = (
        PoolId::new("tenant").unwrap(),
        PoolId::new("other").unwrap(),
    );
    for pool in [&tenant, &other] {
        bench.client().pools().create(pool, None).await.unwrap();
    }
    let mut intent = machine("web", TEMPLATE);
    intent.options.pool = Some("tenant".to_owned());
    let owner = bench.want(intent.clone());
    bench.run().await;
    let vmid = bench.record(&owner).identity.as_ref().unwrap().vmid;
    let members = |pool: &pve::api::pool::Pool| {
        pool.members
            .iter()
            .filter_map(|m| m.vmid)
            .collect::<Vec<_>>()
    };
    let pool = bench.client().pools().get(&tenant).await.unwrap();
    assert_eq!(members(&pool), [vmid]);

    bench.run_for(std::time::Duration::from_secs(30)).await;
    intent.options.pool = Some("other".to_owned());
    bench.want(intent);
    bench.run().await;
    let pool = bench.client().pools().get(&other).await.unwrap();
    assert_eq!(members(&pool), [vmid]);
    let pool = bench.client().pools().get(&tenant).await.unwrap();
    assert!(members(&pool).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_guest_under_high_availability_is_started_followed_and_leaves_nothing_there() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.options.ha = Some(Ha {
        nodes: vec!["pve1".to_owned(), "pve2".to_owned()],
        max_restart: Some(2),
        ..Ha::default()
    });
    let owner = bench.want(intent);
    bench.run().await;
    assert_eq!(
        bench.progress(&owner).outcome,
        Outcome::Settled,
        "{}",
        bench.stories()
    );
    let counts = bench.cluster().control().counts();
    let starts = counts.get("POST /nodes/{node}/qemu/{vmid}/status/start");
    assert!(starts.is_none_or(|n| *n == 1), "{}", bench.counts());
    let vmid = bench.record(&owner).identity.as_ref().unwrap().vmid;
    let sid = HaSid::of(GuestKind::Qemu, vmid);
    let resource = bench.client().ha().resource(&sid).await.unwrap();
    assert_eq!(resource.state.as_deref(), Some("started"));
    assert_eq!(resource.max_restart, Some(2));
    let rules = bench.client().ha().rules().await.unwrap();
    assert!(
        rules.iter().any(|rule| rule.resources == [sid.clone()]),
        "{rules:?}"
    );

    bench.delete(&owner);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
    let left = bench.client().ha().resources().await.unwrap();
    assert!(left.iter().all(|resource| resource.sid != sid), "{left:?}");
    let rules = bench.client().ha().rules().await.unwrap();
    assert!(
        rules.iter().all(|rule| !rule.resources.contains(&sid)),
        "{rules:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_declared_beside_a_guest_is_taken_back() {
    let mut bench = Bench::new();
    bench.ready().await;
    let tenant = PoolId::new("tenant").unwrap();
    bench.client().pools().create(&tenant, None).await.unwrap();
    let plain = machine("web", TEMPLATE);
    let mut intent = plain.clone();
    intent.options.pool = Some("tenant".to_owned());
    intent.options.ha = Some(Ha {
        nodes: vec!["pve1".to_owned()],
        ..Ha::default()
    });
    intent.options.firewall = Some(FirewallIntent {
        enable: Some(true),
        rules: vec![FirewallRule {
            action: "accept".to_owned(),
            ..FirewallRule::default()
        }],
        ..FirewallIntent::default()
    });
    let owner = bench.want(intent);
    bench.run().await;
    bench.run_for(std::time::Duration::from_secs(30)).await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let client = bench.client();
    assert_eq!(client.pools().get(&tenant).await.unwrap().members.len(), 1);

    bench.want(plain);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let pool = client.pools().get(&tenant).await.unwrap();
    assert!(pool.members.is_empty(), "{pool:?}");
    assert!(client.ha().resources().await.unwrap().is_empty());
    assert!(client.ha().rules().await.unwrap().is_empty());
    let node = bench.progress(&owner).facts.node.clone().unwrap();
    let guest = client.node(&node).qemu(identity.vmid);
    assert!(guest.firewall().rules().await.unwrap().is_empty());
    assert!(guest.status().await.unwrap().is_running());
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_somebody_took_out_of_its_pool_is_put_back_and_one_that_had_none_joins() {
    let mut bench = Bench::new();
    bench.ready().await;
    let tenant = PoolId::new("tenant").unwrap();
    bench.client().pools().create(&tenant, None).await.unwrap();
    let mut intent = machine("web", TEMPLATE);
    let owner = bench.want(intent.clone());
    bench.run().await;
    bench.run_for(std::time::Duration::from_secs(30)).await;
    intent.options.pool = Some("tenant".to_owned());
    bench.want(intent);
    bench.run().await;
    let vmid = bench.record(&owner).identity.as_ref().unwrap().vmid;
    let members = async |bench: &Bench| bench.client().pools().get(&tenant).await.unwrap().members;
    assert_eq!(members(&bench).await.len(), 1);

    bench.run_for(std::time::Duration::from_mins(6)).await;
    let out = pve::api::pool::PoolChange {
        vms: vec![vmid],
        delete: true,
        ..Default::default()
    };
    bench.client().pools().update(&tenant, &out).await.unwrap();
    bench.run_for(std::time::Duration::from_mins(1)).await;
    assert_eq!(members(&bench).await.len(), 1, "{}", bench.stories());
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_said_about_high_availability_and_firewall_is_taken_back() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.options.ha = Some(Ha {
        nodes: vec!["pve1".to_owned()],
        max_restart: Some(3),
        ..Ha::default()
    });
    intent.options.firewall = Some(FirewallIntent {
        enable: Some(true),
        policy_in: Some("ACCEPT".to_owned()),
        ..FirewallIntent::default()
    });
    let owner = bench.want(intent.clone());
    bench.run().await;
    intent.options.ha = Some(Ha::default());
    let firewall = intent.options.firewall.as_mut().unwrap();
    firewall.policy_in = None;
    bench.want(intent);
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let client = bench.client();
    assert!(client.ha().rules().await.unwrap().is_empty());
    let resource = client
        .ha()
        .resource(&HaSid::of(GuestKind::Qemu, identity.vmid))
        .await
        .unwrap();
    assert_eq!(resource.max_restart.unwrap_or(1), 1);
    let guest = client.node(&identity.node).qemu(identity.vmid);
    let options = guest.firewall().options().await.unwrap();
    assert_eq!(options.get("policy_in"), None, "{options:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_given_before_the_rest_was_refused_is_taken_back() {
    let mut bench = Bench::new();
    bench.ready().await;
    let plain = machine("web", TEMPLATE);
    let owner = bench.want(plain.clone());
    bench.run().await;
    let mut intent = plain.clone();
    intent.options.firewall = Some(FirewallIntent {
        enable: Some(true),
        policy_in: Some("DROP".to_owned()),
        ..FirewallIntent::default()
    });
    intent.options.ha = Some(Ha {
        nodes: vec!["nowhere".to_owned()],
        ..Ha::default()
    });
    bench.want(intent);
    bench.call_now(&owner).await;
    bench.run_for(Duration::from_secs(30)).await;
    let client = bench.client();
    assert!(!client.ha().resources().await.unwrap().is_empty());
    assert_ne!(bench.progress(&owner).outcome, Outcome::Settled);

    // It says that again of a guest whose front-end has just been started.
    bench.restart();
    bench.want(plain);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let identity = bench.record(&owner).identity.clone().unwrap();
    let guest = client.node(&identity.node).qemu(identity.vmid);
    assert!(client.ha().resources().await.unwrap().is_empty());
    let options = guest.firewall().options().await.unwrap();
    assert_eq!(options["enable"], 0);
}

/// A machine that high availability starts on one node only.
fn kept_on_one_node() -> fleet::GuestIntent {
    let mut intent = machine("web", TEMPLATE);
    intent.placement.nodes = vec!["pve1".parse().unwrap()];
    intent.options.ha = Some(Ha {
        nodes: vec!["pve1".to_owned()],
        strict: true,
        ..Ha::default()
    });
    intent
}

#[tokio::test(start_paused = true)]
async fn a_guest_with_a_node_rule_is_switched_off_and_on() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = kept_on_one_node();
    let owner = bench.want(intent.clone());
    bench.run().await;
    for (power, is) in [
        (Power::Off, PowerFact::Stopped),
        (Power::On, PowerFact::Running),
    ] {
        bench.run_for(Duration::from_secs(30)).await;
        intent.power = power;
        bench.want(intent.clone());
        bench.run().await;
        let progress = bench.progress(&owner);
        assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
        assert_eq!(progress.facts.power, is);
    }
    assert_eq!(bench.client().ha().rules().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn high_availability_that_somebody_took_back_is_no_longer_declared_without_trouble() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(kept_on_one_node());
    bench.run().await;
    let vmid = bench.record(&owner).identity.as_ref().unwrap().vmid;
    let sid = HaSid::of(GuestKind::Qemu, vmid);
    bench.client().ha().remove(&sid).await.unwrap();
    let gone = bench.client().ha().remove(&sid).await.unwrap_err();
    assert!(gone.is_not_found(), "{gone}");
    bench.want(machine("web", TEMPLATE));
    let progress = bench.call_now(&owner).await;
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_high_availability_gave_up_runs_by_itself_when_the_cause_is_gone() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(kept_on_one_node());
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let guest = bench.client().node(&identity.node).qemu(identity.vmid);
    // With this and without NUMA no start succeeds.
    let cause = pve::GuestConfig::new().with("hugepages", "2");
    let broken = pve::ConfigChange::set(cause);
    guest.configure(&broken).await.unwrap();
    bench.cluster().kill_guest(identity.vmid.get()).unwrap();
    bench.cluster().control().reset_counts();
    bench.run_for(Duration::from_mins(10)).await;
    assert!(!guest.status().await.unwrap().is_running());
    let story = bench.matters[&owner].story.join("\n");
    assert!(story.contains("GivenUp"), "{story}");
    let counts = bench.cluster().control().counts();
    let told = counts.get("PUT /cluster/ha/resources/{sid}");
    let told = told.copied().unwrap_or_default();
    assert!((1..=8).contains(&told), "{}", bench.counts());

    let mended = pve::ConfigChange::delete(["hugepages"]);
    guest.configure(&mended).await.unwrap();
    bench.run_for(Duration::from_mins(10)).await;
    assert!(
        guest.status().await.unwrap().is_running(),
        "{}",
        bench.stories()
    );
    assert_eq!(bench.call_now(&owner).await.outcome, Outcome::Settled);
}

#[tokio::test(start_paused = true)]
async fn a_running_guest_that_high_availability_gave_up_can_be_stopped_and_removed() {
    for removed in [false, true] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = kept_on_one_node();
        let owner = bench.want(intent.clone());
        bench.run().await;
        bench.run_for(Duration::from_secs(30)).await;
        let vmid = bench.record(&owner).identity.as_ref().unwrap().vmid;
        bench.cluster().give_up_guest(vmid.get()).unwrap();
        bench.run_for(Duration::from_secs(30)).await;
        assert_eq!(
            bench.call_now(&owner).await.facts.ha.as_deref(),
            Some("error")
        );
        if removed {
            bench.delete(&owner);
            bench.run().await;
            assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
        } else {
            intent.power = Power::Off;
            bench.want(intent);
            bench.run().await;
            let progress = bench.progress(&owner);
            assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
            assert_eq!(progress.facts.power, PowerFact::Stopped);
        }
    }
}
