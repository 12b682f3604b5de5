//! Random lives of machines, with everything that can go wrong, from one seed.
//!
//! A run does random things ([`acts`]) to a few objects on two Proxmox VE clusters while everything around them
//! misbehaves ([`mischief`]): Proxmox VE loses answers, refuses, hangs and dies; the Kubernetes API conflicts, fails, restarts and drops
//! its watches; the controllers crash between two calls. Then the faults end, everything comes to rest ([`rest`]), and the
//! invariants are checked. The same seed takes the same course, so a failure is replayed by its number; the story
//! says what was done when.

mod acts;
mod by_hand;
mod mischief;
mod rest;

use api::vm::{Container, VirtualMachine};

pub(crate) use self::{by_hand::Deed, mischief::Mischief};

use crate::{Bed, Story, life::Life};

const SETUP: &str = include_str!("../tests/it/manifests/simulation.yaml");

/// Runs one seed, on a clock of its own.
pub fn simulate(seed: u64) -> Story {
    Life::lived(live(seed))
}

async fn live(seed: u64) -> Story {
    let bed = Bed::builder().seed(seed).clusters(2).start().await;
    bed.apply(SETUP).await;
    let mut life = Life::begin(seed, bed).await;
    for turn in 0..12 + life.dice.below(12) {
        let done = acts::act(&life.bed, &mut life.dice, turn).await;
        life.end_turn(done).await;
    }
    life.calm_down().await;
    let stuck = rest::rest(&life.bed).await;
    life.judge(stuck).await;
    let costs = rest::at_rest_costs_little(&life.bed).await;
    life.story.wrong.extend(costs);
    let mut names = life.bed.names::<VirtualMachine>().await;
    names.extend(life.bed.names::<Container>().await);
    life.told(names).await
}
