//! Guests whose processors stand still, which PVE's list does not show.

use std::time::Duration;

use fleet::{PowerFact, intent::Power};

use crate::{
    change::settled,
    harness::{Bench, machine},
};

const TEMPLATE: &str = "ubuntu-24-04";

#[tokio::test(start_paused = true)]
async fn a_paused_guest_is_paused_once_and_resumed_also_by_who_did_not_pause_it() {
    let (mut bench, owner, qemu) = settled().await;
    let count = |bench: &Bench, what: &str| {
        let counts = bench.cluster().control().counts();
        let route = format!("POST /nodes/{{node}}/qemu/{{vmid}}/status/{what}");
        counts.get(&route).copied().unwrap_or_default()
    };
    let mut intent = machine("web", TEMPLATE);
    intent.power = Power::Paused;
    bench.want(intent.clone());
    bench.run().await;
    for _ in 0..3 {
        bench.run_for(Duration::from_mins(1)).await;
        bench.call_now(&owner).await;
        assert_eq!(bench.progress(&owner).facts.power, PowerFact::Paused);
    }
    assert_eq!(count(&bench, "suspend"), 1, "{}", bench.counts());
    let status = qemu.status().await.unwrap();
    assert_eq!(status.qmpstatus.as_deref(), Some("paused"));

    bench.restart();
    bench.ready().await;
    bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).facts.power, PowerFact::Paused);
    assert_eq!(bench.own_requests(), 0, "{}", bench.counts());

    intent.power = Power::On;
    bench.want(intent);
    bench.run().await;
    assert_eq!(bench.progress(&owner).facts.power, PowerFact::Running);
    bench.run_for(Duration::from_mins(1)).await;
    assert_eq!(bench.progress(&owner).facts.power, PowerFact::Running);
    assert_eq!(count(&bench, "resume"), 1, "{}", bench.counts());
    let status = qemu.status().await.unwrap();
    assert_eq!(status.qmpstatus.as_deref(), Some("running"));
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_shall_be_paused_is_so_again_after_somebody_restarts_it_or_lets_it_go_on() {
    for restarts in [true, false] {
        let (mut bench, owner, qemu) = settled().await;
        if !restarts {
            // Only a look at the guest itself shows it.
            bench.options.audit_interval = Duration::from_mins(2);
            bench.restart();
            bench.ready().await;
        }
        let mut intent = machine("web", TEMPLATE);
        intent.power = Power::Paused;
        bench.want(intent);
        bench.run().await;
        bench.run_for(Duration::from_mins(1)).await;
        let client = bench.client();
        if restarts {
            let stop = pve::api::guest::power::Stop::default();
            client.wait(&qemu.stop(stop).await.unwrap()).await.unwrap();
            client.wait(&qemu.start().await.unwrap()).await.unwrap();
        } else {
            client.wait(&qemu.resume().await.unwrap()).await.unwrap();
        }
        bench.run_for(Duration::from_mins(5)).await;
        let story = bench.matters[&owner].story.join("\n");
        let status = qemu.status().await.unwrap();
        assert_eq!(status.qmpstatus.as_deref(), Some("paused"), "{story}");
        assert_eq!(bench.progress(&owner).facts.power, PowerFact::Paused);
    }
}
