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

use std::{fmt::Write as _, time::Duration};

use api::vm::{Container, VirtualMachine};

pub(crate) use self::{by_hand::Deed, mischief::Mischief};

use crate::{Bed, Dice, gate::CrashPoint};

/// What happened in one run.
#[derive(Debug)]
pub struct Story {
    /// The seed.
    pub seed: u64,
    /// What was done, in order.
    pub lines: Vec<String>,
    /// What was wrong in the end; empty if nothing.
    pub wrong: Vec<String>,
    /// Calls of the controllers.
    pub calls: u64,
    /// How often the controllers crashed.
    pub crashes: u32,
    /// Every call of the controllers, with its time and its answer.
    pub trace: Vec<String>,
}

impl Story {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            lines: Vec::new(),
            wrong: Vec::new(),
            calls: 0,
            crashes: 0,
            trace: Vec::new(),
        }
    }

    /// The story of a life that ended in a panic.
    pub(crate) fn cut_short(seed: u64, why: String) -> Self {
        Self {
            wrong: vec![why],
            ..Self::new(seed)
        }
    }

    /// The story for a person.
    pub fn tell(&self) -> String {
        let mut text = format!("seed {}\n", self.seed);
        for line in &self.lines {
            let _ = writeln!(text, "  {line}");
        }
        for wrong in &self.wrong {
            let _ = writeln!(text, "  WRONG: {wrong}");
        }
        text
    }

    pub(crate) fn say(&mut self, start: tokio::time::Instant, what: impl std::fmt::Display) {
        let at = start.elapsed().as_secs_f64();
        self.lines.push(format!("{at:>7.1} s  {what}"));
    }
}

const SETUP: &str = include_str!("../tests/it/manifests/simulation.yaml");

/// Runs one seed, on a clock of its own.
pub fn simulate(seed: u64) -> Story {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(live(seed))
}

async fn live(seed: u64) -> Story {
    let mut dice = Dice::new(seed);
    let mut bed = Bed::builder().seed(seed).clusters(2).start().await;
    bed.apply(SETUP).await;
    let mut foreign = bed.foreign().await;
    let mut story = Story::new(seed);
    let start = tokio::time::Instant::now();
    let mut mischief = Mischief::default();
    let mut crash_due = false;
    for turn in 0..12 + dice.below(12) {
        let said = acts::act(&bed, &mut dice, turn).await;
        story.say(start, said);
        if let Some(said) = mischief.turn(&bed, &mut dice).await {
            story.say(start, said);
        }
        pass_time(&mut bed, &mut dice, &mut story, start, &mut crash_due).await;
    }
    mischief.end(&bed);
    story.calls += bed.line().calls();
    bed.line().crash_at(CrashPoint::never());
    bed.crash_operator().await;
    bed.start_operator();
    story.say(start, "all faults end");
    story.wrong = rest::rest(&bed).await;
    mischief.excuse(&mut foreign, &bed.foreign().await);
    story.wrong.extend(bed.check(&foreign).await);
    story.wrong.extend(rest::at_rest_costs_little(&bed).await);
    story.calls += bed.line().calls();
    story.trace = bed.line().trace();
    if !story.wrong.is_empty() {
        let mut names = bed.names::<VirtualMachine>().await;
        names.extend(bed.names::<Container>().await);
        for name in names {
            let events = bed.story(&name).await;
            story.lines.push(format!("events of {name}:\n{events}"));
        }
    }
    story
}

/// The end of a turn: the controllers may be doomed to crash, time passes, and when they have crashed they are started again.
pub(crate) async fn pass_time(
    bed: &mut Bed,
    dice: &mut Dice,
    story: &mut Story,
    start: tokio::time::Instant,
    crash_due: &mut bool,
) {
    if dice.one_in(3) {
        let point = CrashPoint {
            call: 1 + dice.below(12),
            carried_out: dice.one_in(2),
        };
        story.say(start, format!("crash at {point:?}"));
        story.calls += bed.line().calls();
        bed.line().crash_at(point);
        *crash_due = true;
    }
    let pause = Duration::from_millis(100 + dice.below(20_000));
    if !*crash_due {
        return bed.sleep(pause).await;
    }
    let crashed = tokio::time::timeout(pause, bed.line().crashed()).await;
    if crashed.is_ok() {
        story.crashes += 1;
        *crash_due = false;
        bed.crash_operator().await;
        bed.sleep(Duration::from_millis(dice.below(5_000))).await;
        bed.start_operator();
        story.say(start, "crashed and started again");
    }
}
