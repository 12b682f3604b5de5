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
async fn machines_at_rest_cost_nothing_and_their_cluster_a_fifth_of_a_request_a_second() {
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
    // A look every five seconds, and a survey of release, quorum, privileges and three nodes' bridges every five minutes.
    assert!(
        bench.requests() <= 121 + 2 * 6,
        "{}\n{}",
        bench.requests(),
        bench.counts()
    );
}

/// The same with the times of a real host: tasks take time, and asking for them costs.
#[tokio::test(start_paused = true)]
async fn alone_on_a_host_that_takes_its_time_sixteen_to_make_four_for_power_and_six_to_remove() {
    for seed in 0..8 {
        let mut bench = Bench::life_like(seed);
        bench.ready().await;
        let mut intent = machine("web", TEMPLATE);
        let owner = bench.want(intent.clone());
        bench.run().await;
        let made = bench.own_requests();
        assert!(made <= 16, "seed {seed}: {made}\n{}", bench.counts());

        bench.run_for(Duration::from_mins(30)).await;
        bench.cluster().control().reset_counts();
        intent.power = Power::Off;
        bench.want(intent.clone());
        bench.run().await;
        let off = bench.own_requests();
        assert!(off <= 4, "seed {seed}: {off}\n{}", bench.counts());

        bench.run_for(Duration::from_mins(30)).await;
        bench.cluster().control().reset_counts();
        intent.power = Power::On;
        bench.want(intent);
        bench.run().await;
        let on = bench.own_requests();
        assert!(on <= 4, "seed {seed}: {on}\n{}", bench.counts());

        bench.run_for(Duration::from_mins(30)).await;
        bench.cluster().control().reset_counts();
        bench.delete(&owner);
        bench.run().await;
        let removed = bench.own_requests();
        assert!(removed <= 6, "seed {seed}: {removed}\n{}", bench.counts());
        println!("seed {seed}: make {made}, off {off}, on {on}, remove {removed}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_hundred_on_hosts_that_take_their_time_each_costs_ten_to_make_and_four_to_remove() {
    let mut bench = Bench::life_like(7);
    bench.ready().await;
    let owners: Vec<_> = (0..100)
        .map(|n| bench.want(machine(&format!("web-{n}"), TEMPLATE)))
        .collect();
    bench.run().await;
    println!(
        "make a hundred: {}\n{}",
        bench.own_requests(),
        bench.counts()
    );
    assert!(bench.own_requests() <= 1000, "{}", bench.counts());
    bench.run_for(Duration::from_mins(5)).await;
    bench.cluster().control().reset_counts();
    for owner in &owners {
        bench.delete(owner);
    }
    bench.run().await;
    println!(
        "remove a hundred: {}\n{}",
        bench.own_requests(),
        bench.counts()
    );
    assert!(bench.own_requests() <= 400, "{}", bench.counts());
}
