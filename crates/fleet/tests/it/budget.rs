//! What things cost, counted by the simulator.

use std::time::Duration;

use fleet::intent::Power;

use crate::harness::{Bench, machine};

const TEMPLATE: &str = "ubuntu-24-04";

#[tokio::test(start_paused = true)]
async fn one_machine_alone_costs_at_most_sixteen_requests_and_six_to_remove() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    println!("create alone: {}\n{}", bench.requests(), bench.counts());
    assert!(
        bench.requests() <= 16,
        "{}\n{}",
        bench.requests(),
        bench.counts()
    );
    bench.cluster().control().reset_counts();
    bench.delete(&owner);
    bench.run().await;
    println!("remove alone: {}\n{}", bench.requests(), bench.counts());
    assert!(
        bench.requests() <= 6,
        "{}\n{}",
        bench.requests(),
        bench.counts()
    );
}

#[tokio::test(start_paused = true)]
async fn each_of_a_hundred_costs_at_most_ten_requests_and_four_to_remove() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owners: Vec<_> = (0..100)
        .map(|n| bench.want(machine(&format!("web-{n}"), TEMPLATE)))
        .collect();
    bench.run().await;
    println!("create a hundred: {}\n{}", bench.requests(), bench.counts());
    assert!(
        bench.requests() <= 1000,
        "{}\n{}",
        bench.requests(),
        bench.counts()
    );
    bench.cluster().control().reset_counts();
    for owner in &owners {
        bench.delete(owner);
    }
    bench.run().await;
    println!("remove a hundred: {}\n{}", bench.requests(), bench.counts());
    assert!(
        bench.requests() <= 400,
        "{}\n{}",
        bench.requests(),
        bench.counts()
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_of_power_costs_at_most_four_requests() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    bench.want(intent.clone());
    bench.run().await;
    bench.run_for(Duration::from_mins(30)).await;
    bench.cluster().control().reset_counts();
    intent.power = Power::Off;
    bench.want(intent);
    bench.run().await;
    println!("power off: {}\n{}", bench.requests(), bench.counts());
    assert!(
        bench.requests() <= 4,
        "{}\n{}",
        bench.requests(),
        bench.counts()
    );
}

#[tokio::test(start_paused = true)]
async fn machines_at_rest_cost_nothing_and_their_cluster_a_tenth_of_a_request_a_second() {
    let mut bench = Bench::new();
    bench.ready().await;
    for n in 0..10 {
        bench.want(machine(&format!("web-{n}"), TEMPLATE));
    }
    bench.run().await;
    bench.run_for(Duration::from_mins(1)).await;
    bench.cluster().control().reset_counts();
    bench.run_for(Duration::from_mins(10)).await;
    println!(
        "ten minutes at rest: {}\n{}",
        bench.requests(),
        bench.counts()
    );
    // A look every ten seconds, and a survey of quorum, privileges and three nodes' bridges every five minutes.
    assert!(
        bench.requests() <= 61 + 2 * 5,
        "{}\n{}",
        bench.requests(),
        bench.counts()
    );
}
