use fleet::Outcome;

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";

#[tokio::test(start_paused = true)]
async fn a_removed_machine_leaves_nothing_behind() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
    assert!(
        bench
            .client()
            .cluster()
            .is_free(identity.vmid)
            .await
            .unwrap()
    );
}
