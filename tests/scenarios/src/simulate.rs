//! Random lives of machines, with everything that can go wrong, from one seed.
//!
//! A run does random things ([`acts`]) to a few objects on two Proxmox VE clusters while everything around them
//! misbehaves ([`mischief`]): Proxmox VE loses answers, refuses, hangs and dies; the Kubernetes API conflicts, fails, restarts and drops
//! its watches; the controllers crash between two calls. Then the faults end, everything comes to rest ([`rest`]), and the
//! invariants are checked. The same seed takes the same course, so a failure is replayed by its number; the story
//! says what was done when.

mod acts;
mod backups;
mod by_hand;
mod images;
mod machines;
mod mischief;
mod rest;
mod schedules;

use api::vm::{Container, VirtualMachine};

use self::schedules::Kept;
pub(crate) use self::{by_hand::Deed, mischief::Mischief};

use crate::{
    Bed, Story,
    life::{Life, Lines},
};

const SETUP: &str = include_str!("../tests/it/manifests/simulation.yaml");

/// What must have happened at least once in some hundred lives.
pub const MUST_HAPPEN: &[&str] = &[
    "act: back up",
    "act: by hand",
    "act: change a container",
    "act: class",
    "act: class of a set",
    "act: copy",
    "act: create",
    "act: create a container",
    "act: create a schedule",
    "act: create a set",
    "act: create an image",
    "act: delete a container",
    "act: delete a machine",
    "act: delete a schedule",
    "act: delete a set",
    "act: delete an image",
    "act: delete an object",
    "act: firewall",
    "act: first-boot data",
    "act: grow",
    "act: label",
    "act: migrate",
    "act: mount point",
    "act: power",
    "act: restart",
    "act: restore",
    "act: retention",
    "act: revert",
    "act: scale a set",
    "act: second disk",
    "act: second interface",
    "act: snapshot",
    "act: suspend a schedule",
    "act: tag",
    "fault: api-away",
    "fault: api-conflict",
    "fault: api-error",
    "fault: api-lost-answer",
    "fault: broken-watch",
    "fault: crash",
    "fault: delay",
    "fault: drop-answer",
    "fault: drop-request",
    "fault: error",
    "fault: fail-task",
    "fault: forgotten-history",
    "fault: hang",
    "fault: node-death",
    "fault: proxy",
    "ready: Container",
    "ready: VMBackup",
    "ready: VMClone",
    "ready: VMImage",
    "ready: VMMigration",
    "ready: VMRestore",
    "ready: VMSet",
    "ready: VMSnapshot",
    "ready: VirtualMachine",
];

/// Runs one seed, on a clock of its own.
pub fn simulate(seed: u64) -> Story {
    Life::lived(seed, |lines| live(seed, lines))
}

async fn live(seed: u64, lines: Lines) -> Story {
    let bed = Bed::builder().seed(seed).clusters(2).start().await;
    images::serve(&bed);
    bed.apply(SETUP).await;
    let mut life = Life::begin(seed, bed, lines).await;
    let mut lost = Vec::new();
    for turn in 0..12 + life.dice.below(12) {
        let done = acts::act(&life.bed, &mut life.dice, turn).await;
        if let Some(kind) = done.kind {
            life.story.tally.add(format!("act: {kind}"), 1);
        }
        let kept = Kept::now(&life.bed).await;
        life.end_turn(done.said).await;
        lost.extend(kept.lost(&life.bed).await);
    }
    let kept = Kept::now(&life.bed).await;
    life.calm_down().await;
    schedules::suspend(&life.bed).await;
    let stuck = rest::rest(&life.bed).await;
    life.judge(stuck).await;
    lost.extend(kept.lost(&life.bed).await);
    life.story.wrong.extend(lost);
    life.story.wrong.extend(schedules::wrong(&life.bed).await);
    rest::count_reached(&life.bed, &mut life.story.tally).await;
    let costs = rest::at_rest_costs_little(&life.bed).await;
    life.story.wrong.extend(costs);
    let mut names = life.bed.names::<VirtualMachine>().await;
    names.extend(life.bed.names::<Container>().await);
    life.told(names).await
}
