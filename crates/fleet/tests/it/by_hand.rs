//! Guests change, and are lost, behind our back.

use std::time::Duration;

use fleet::{
    Failure, Outcome, PowerFact,
    intent::{Agent, Init, InitMode, Loss},
};
use pve::{ConfigChange, GuestConfig, api::guest::ConfigView};

use crate::{
    change::settled,
    harness::{Bench, machine},
};

const TEMPLATE: &str = "ubuntu-24-04";

#[tokio::test(start_paused = true)]
async fn a_guest_switched_off_by_hand_is_seen_and_started_again() {
    let (mut bench, owner, qemu) = settled().await;
    qemu.stop(pve::api::guest::power::Stop::default())
        .await
        .unwrap();
    bench.run_for(Duration::from_secs(90)).await;
    assert_eq!(
        bench.progress(&owner).facts.power,
        PowerFact::Running,
        "{}",
        bench.matters[&owner].story.join("\n")
    );
    assert!(qemu.status().await.unwrap().is_running());
}

#[tokio::test(start_paused = true)]
async fn a_tag_taken_off_by_hand_comes_back_and_what_is_not_owned_is_left_alone() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.options.tags = Some(vec!["prod".to_owned()]);
    let owner = bench.want(intent);
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let by_hand = GuestConfig::new().with("tags", "other").with("onboot", 1);
    qemu.configure(&ConfigChange::set(by_hand)).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let config = qemu.config(ConfigView::Current).await.unwrap();
    assert_eq!(
        config.get("tags"),
        Some("prod"),
        "{}",
        bench.matters[&owner].story.join("\n")
    );
    assert_eq!(config.get("onboot"), Some("1"));
}

async fn destroy(client: &pve::Client, qemu: &pve::Qemu) {
    let stop = pve::api::guest::power::Stop::default();
    let task = qemu.stop(stop).await.unwrap();
    client.wait(&task).await.unwrap();
    let delete = pve::api::guest::DeleteGuest::default();
    let task = qemu.delete(delete).await.unwrap();
    client.wait(&task).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_removed_behind_our_back_is_reported_or_made_anew_as_the_policy_says() {
    for (loss, again) in [(Loss::Report, false), (Loss::Recreate, true)] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = machine("web", TEMPLATE);
        intent.policy.loss = loss;
        intent.init = Some(Init {
            mode: InitMode::Native,
            password: Some("geheim".into()),
            ..Init::default()
        });
        let owner = bench.want(intent);
        bench.run().await;
        bench.run_for(Duration::from_secs(30)).await;
        let identity = bench.record(&owner).identity.clone().unwrap();
        let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
        destroy(&bench.client(), &qemu).await;
        bench.run_for(Duration::from_mins(5)).await;
        let outcome = &bench.progress(&owner).outcome;
        if again {
            assert_eq!(
                *outcome,
                Outcome::Settled,
                "{}",
                bench.matters[&owner].story.join("\n")
            );
            assert_eq!(bench.inventory().await.of(&owner).len(), 1);
            // What the lost one was told does not speak against the new one.
            assert!(!bench.progress(&owner).facts.stale_first_boot);
        } else {
            assert!(
                matches!(
                    outcome,
                    Outcome::Failed {
                        why: Failure::Lost,
                        ..
                    }
                ),
                "{outcome:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_vmid_that_was_given_away_is_not_taken_for_the_lost_guest_after_a_restart() {
    // In a list, one that has its name as well looks just like it.
    for name in ["db", "web"] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut silent = machine("web", TEMPLATE);
        silent.hardware.agent = Some(Agent {
            enabled: false,
            fstrim: None,
        });
        let lost = bench.want(silent);
        bench.run().await;
        bench.run_for(Duration::from_secs(30)).await;
        assert_eq!(
            bench.inventory().await.seeds().len(),
            1,
            "not read for sure yet"
        );
        let identity = bench.record(&lost).identity.clone().unwrap();
        let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
        destroy(&bench.client(), &qemu).await;
        bench.run_for(Duration::from_secs(30)).await;
        bench.restart();
        bench.ready().await;
        let heirs = fleet::GuestIntent {
            name: name.to_owned(),
            ..machine("db", TEMPLATE)
        };
        let heir = bench.want(heirs.clone());
        bench.run().await;
        assert_eq!(
            bench.record(&heir).identity.as_ref().unwrap().vmid,
            identity.vmid
        );
        assert_eq!(
            bench.inventory().await.seeds().len(),
            0,
            "nobody will read it"
        );

        bench.restart();
        bench.ready().await;
        let progress = bench.call_now(&lost).await;
        assert!(
            matches!(
                progress.outcome,
                Outcome::Failed {
                    why: Failure::Lost,
                    ..
                }
            ),
            "{progress:?}"
        );
        assert_eq!(progress.facts.node, None, "that is the other one's");
        bench.want(heirs);
        bench.run().await;
        assert_eq!(bench.progress(&heir).outcome, Outcome::Settled);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_list_shows_to_have_changed_while_nobody_looked_is_read_and_nothing_else() {
    let (mut bench, web, qemu) = settled().await;
    let db = bench.want(machine("db", TEMPLATE));
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let by_hand = GuestConfig::new().with("name", "shop");
    qemu.configure(&ConfigChange::set(by_hand)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await;
    bench.restart();
    bench.ready().await;
    bench.want(machine("web", TEMPLATE));
    bench.want(machine("db", TEMPLATE));
    bench.run().await;
    for owner in [&web, &db] {
        assert_eq!(bench.progress(owner).outcome, Outcome::Settled);
    }
    let config = qemu.config(ConfigView::Current).await.unwrap();
    assert_eq!(config.get("name"), Some("web"));
    let counts = bench.cluster().control().counts();
    let reads = counts.get("GET /nodes/{node}/qemu/{vmid}/config");
    // The other one is this test's.
    assert_eq!(reads, Some(&2), "{}", bench.counts());
}
