//! Somebody rewrites a guest's notes, and the mark with them.

use std::time::Duration;

use fleet::{Outcome, mark};
use pve::{ConfigChange, GuestConfig, api::guest::ConfigView};

use crate::{
    create::container,
    harness::{Bench, machine},
};

const TEMPLATE: &str = "ubuntu-24-04";

fn notes(text: &str) -> ConfigChange {
    ConfigChange::set(GuestConfig::new().with("description", text))
}

/// The guest of an owner, by the calls that all guests have.
fn guest_of(bench: &Bench, owner: &fleet::Owner) -> pve::Guest {
    let identity = bench.record(owner).identity.clone().unwrap();
    let node = bench.client().node(&identity.node);
    if bench.matters[owner].intent.container.is_some() {
        (*node.lxc(identity.vmid)).clone()
    } else {
        (*node.qemu(identity.vmid)).clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_whose_notes_were_rewritten_is_still_ours_and_is_marked_again() {
    for is_container in [false, true] {
        let mut bench = Bench::new();
        bench.ready().await;
        let intent = if is_container {
            container(&bench).await
        } else {
            machine("web", TEMPLATE)
        };
        let owner = bench.want(intent.clone());
        bench.run().await;
        let guest = guest_of(&bench, &owner);
        guest.configure(&notes("call Anna")).await.unwrap();
        // Nothing is remembered, and something is to be written: the guest is looked at.
        bench.restart();
        bench.ready().await;
        let mut changed = intent;
        changed.options.onboot = Some(true);
        bench.want(changed);
        bench.run().await;
        let story = bench.matters[&owner].story.join("\n");
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled, "{story}");
        let config = guest.config(ConfigView::Next).await.unwrap();
        let text = config.description().unwrap();
        assert_eq!(mark::owner_of(text), Some(owner.clone()), "{story}");
        assert!(text.starts_with("call Anna"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_whose_notes_were_rewritten_is_deleted_with_its_object() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    let vmid = bench.record(&owner).identity.as_ref().unwrap().vmid;
    let guest = guest_of(&bench, &owner);
    guest.configure(&notes("call Anna")).await.unwrap();
    bench.restart();
    bench.ready().await;
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
    assert!(!bench.inventory().await.guests.contains_key(&vmid.get()));
}

/// A container has no UUID: one that has only our container's name may be ours or not.
#[tokio::test(start_paused = true)]
async fn a_container_of_which_nothing_tells_whose_it_is_is_left_alone_and_not_forgotten() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(container(&bench).await);
    bench.run().await;
    let guest = guest_of(&bench, &owner);
    let other = GuestConfig::new()
        .with("description", "call Anna")
        .with("net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:77");
    guest.configure(&ConfigChange::set(other)).await.unwrap();
    bench.restart();
    bench.ready().await;
    bench.delete(&owner);
    bench.call_now(&owner).await;
    bench.run_for(Duration::from_mins(5)).await;
    let outcome = bench.call_now(&owner).await.outcome;
    assert!(matches!(outcome, Outcome::Waiting { .. }), "{outcome:?}");
    assert!(guest.config(ConfigView::Next).await.is_ok());
}
