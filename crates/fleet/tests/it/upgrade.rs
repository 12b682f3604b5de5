//! A cluster that is upgraded while it is watched.

use std::time::Duration;

use fleet::{Failure, Outcome};
use pve_sim::{Release, Simulator};

use crate::harness::{Bench, cluster_name, machine};

#[tokio::test(start_paused = true)]
async fn what_an_older_release_could_not_do_is_done_after_an_upgrade() {
    let of = |release| Simulator::builder().seed(7).release(release).build();
    let before = of(Release::V8_4);
    let old = before.clusters().next().unwrap();
    let mut bench = Bench::with(of(Release::V9_2));
    let credentials = pve::Credentials::password("root@pam", "oxmox").unwrap();
    let client = pve::Client::builder()
        .endpoint("https://old:8006")
        .service(old.endpoint("pve1"))
        .endpoint("https://new:8006")
        .service(bench.cluster().endpoint("pve1"))
        .credentials(credentials)
        .build()
        .unwrap();
    bench.restart_with(client);
    bench.ready().await;
    let mut intent = machine("web", "ubuntu-24-04");
    intent.hardware.memory.ksm = Some(false);
    let owner = bench.want(intent);
    bench.run().await;
    let refused = bench.progress(&owner).outcome.clone();
    assert!(
        matches!(&refused, Outcome::Failed { why: Failure::Invalid, message } if message.contains("8.4")),
        "{refused:?}"
    );
    old.kill_node("pve1");
    bench.run_for(Duration::from_mins(6)).await;
    let facts = bench.fleet.facts(&cluster_name()).unwrap();
    assert_eq!(facts.version.as_deref(), Some(Release::V9_2.version()));
    bench.run().await;
    let story = bench.matters[&owner].story.join("\n");
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled, "{story}");
}
