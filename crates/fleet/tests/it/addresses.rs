//! Addresses that come after a guest has answered.

use std::time::Duration;

use fleet::{
    Outcome, Owner,
    intent::{Dynamic, Nic},
};

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";
const QUESTION: &str = "GET /nodes/{node}/qemu/{vmid}/agent/network-get-interfaces";

fn questions(bench: &Bench) -> u64 {
    let counts = bench.cluster().control().counts();
    counts.get(QUESTION).copied().unwrap_or_default()
}

fn has(bench: &Bench, owner: &Owner, card: &str, address: &str) -> bool {
    let nics = &bench.progress(owner).facts.nics;
    let nic = nics.iter().find(|nic| nic.name == card).expect("a card");
    nic.addresses.iter().any(|it| it.to_string() == address)
}

fn give(bench: &Bench, owner: &Owner, card: &str, address: &str) {
    let identity = bench.record(owner).identity.as_ref().expect("an identity");
    let mac = identity.nics[card].mac.to_string();
    let given = bench.cluster().give_address(
        identity.vmid.get(),
        &mac,
        address.parse().expect("an address"),
    );
    given.expect("a guest");
}

#[tokio::test(start_paused = true)]
async fn a_card_that_is_plugged_in_shows_its_addresses_when_it_has_them() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    let owner = bench.want(intent.clone());
    bench.run().await;
    bench.run_for(Duration::from_mins(10)).await;
    assert!(questions(&bench) > 0, "{}", bench.counts());
    bench.cluster().control().reset_counts();
    bench.run_for(Duration::from_mins(10)).await;
    assert_eq!(
        questions(&bench),
        0,
        "whose cards have addresses is at rest"
    );

    intent.nics.push(Nic {
        name: "dmz".to_owned(),
        bridge: "vmbr0".to_owned(),
        ..Nic::default()
    });
    bench.want(intent);
    bench.run().await;
    let before = bench.matters[&owner].story.len();
    bench.run_for(Duration::from_secs(50)).await;
    give(&bench, &owner, "dmz", "10.9.9.9");
    bench.run_for(Duration::from_mins(10)).await;
    assert!(has(&bench, &owner, "dmz", "10.9.9.9"));
    let after = bench.matters[&owner].story[before..].iter();
    let others: Vec<_> = after
        .filter(|line| !line.starts_with(' ') && *line != "Settled")
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert!((2..=6).contains(&questions(&bench)), "{}", bench.counts());
}

#[tokio::test(start_paused = true)]
async fn a_card_that_never_gets_an_address_is_asked_for_some_minutes_and_hinders_nothing() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    // Only the first card is brought up without any data.
    intent.init = None;
    intent.nics.push(Nic {
        name: "dmz".to_owned(),
        bridge: "vmbr0".to_owned(),
        ..Nic::default()
    });
    let owner = bench.want(intent.clone());
    bench.run().await;
    bench.cluster().control().reset_counts();
    bench.run_for(Duration::from_hours(1)).await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    assert!((4..=8).contains(&questions(&bench)), "{}", bench.counts());
    // A cable that is not plugged in is not waited for.
    intent.nics[1].link_down = Some(true);
    intent.owner = crate::harness::owner("other");
    bench.want(intent);
    bench.run().await;
    bench.cluster().control().reset_counts();
    bench.run_for(Duration::from_hours(1)).await;
    assert_eq!(questions(&bench), 0, "{}", bench.counts());
}

#[tokio::test(start_paused = true)]
async fn an_address_that_came_later_is_found_when_it_is_the_guests_turn() {
    let mut bench = Bench::new();
    bench.options.audit_interval = Duration::from_mins(1);
    bench.restart();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    give(&bench, &owner, "lan", "2001:db8::9");
    bench.run_for(Duration::from_mins(3)).await;
    assert!(has(&bench, &owner, "lan", "2001:db8::9"));
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
}

#[tokio::test(start_paused = true)]
async fn a_card_that_is_to_have_both_families_is_asked_until_it_has_both() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.nics[0].addressing.ipv4 = Dynamic::Dhcp;
    intent.nics[0].addressing.ipv6 = Dynamic::Auto;
    let owner = bench.want(intent);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    give(&bench, &owner, "lan", "2001:db8::9");
    bench.run_for(Duration::from_secs(10)).await;
    assert!(has(&bench, &owner, "lan", "2001:db8::9"));
    bench.cluster().control().reset_counts();
    bench.run_for(Duration::from_mins(4)).await;
    assert_eq!(questions(&bench), 0, "{}", bench.counts());
}
