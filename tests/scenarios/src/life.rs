//! One random life: its world, its dice, what goes wrong around it, and what is told about it.

use std::{fmt::Write as _, time::Duration};

use tokio::time::Instant;

use crate::{Bed, CrashPoint, Dice, Guest, simulate::Mischief};

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
}

/// A life while it is lived.
pub(crate) struct Life {
    pub(crate) bed: Bed,
    pub(crate) dice: Dice,
    pub(crate) story: Story,
    /// What was there before and is none of ours.
    foreign: Vec<Guest>,
    start: Instant,
    mischief: Mischief,
    crash_due: bool,
}

impl Life {
    /// Lives a life on a clock of its own.
    pub(crate) fn lived(life: impl Future<Output = Story>) -> Story {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(life)
    }

    /// Begins on a bed that holds nothing of ours yet.
    pub(crate) async fn begin(seed: u64, bed: Bed) -> Self {
        Self {
            dice: Dice::new(seed),
            story: Story::new(seed),
            foreign: bed.foreign().await,
            start: Instant::now(),
            mischief: Mischief::default(),
            crash_due: false,
            bed,
        }
    }

    fn say(&mut self, what: impl std::fmt::Display) {
        let at = self.start.elapsed().as_secs_f64();
        self.story.lines.push(format!("{at:>7.1} s  {what}"));
    }

    /// The end of a turn: what was done is told, something may go wrong, and time passes.
    pub(crate) async fn end_turn(&mut self, done: String) {
        self.say(done);
        if let Some(said) = self.mischief.turn(&self.bed, &mut self.dice).await {
            self.say(said);
        }
        self.pass_time().await;
    }

    /// The controllers may be doomed to crash, time passes, and when they have crashed they are started again.
    async fn pass_time(&mut self) {
        if self.dice.one_in(3) {
            let point = CrashPoint {
                call: 1 + self.dice.below(12),
                carried_out: self.dice.one_in(2),
            };
            self.say(format!("crash at {point:?}"));
            self.story.calls += self.bed.line().calls();
            self.bed.line().crash_at(point);
            self.crash_due = true;
        }
        let pause = Duration::from_millis(100 + self.dice.below(20_000));
        if !self.crash_due {
            return self.bed.sleep(pause).await;
        }
        let crashed = tokio::time::timeout(pause, self.bed.line().crashed()).await;
        if crashed.is_ok() {
            self.story.crashes += 1;
            self.crash_due = false;
            self.bed.crash_operator().await;
            let down = Duration::from_millis(self.dice.below(5_000));
            self.bed.sleep(down).await;
            self.bed.start_operator();
            self.say("crashed and started again");
        }
    }

    /// Nothing goes wrong any more; the controllers begin anew.
    pub(crate) async fn calm_down(&mut self) {
        self.mischief.end(&self.bed);
        self.story.calls += self.bed.line().calls();
        self.bed.line().crash_at(CrashPoint::never());
        self.bed.crash_operator().await;
        self.bed.start_operator();
        self.say("all faults end");
    }

    /// Everything has come to rest, but for what is `stuck`: the invariants are checked.
    pub(crate) async fn judge(&mut self, stuck: Vec<String>) {
        self.story.wrong = stuck;
        let now = self.bed.foreign().await;
        self.mischief.excuse(&mut self.foreign, &now);
        self.story.wrong.extend(self.bed.check(&self.foreign).await);
    }

    /// The story of it all; of one that ended badly with the events of these objects.
    pub(crate) async fn told(mut self, names: Vec<String>) -> Story {
        self.story.calls += self.bed.line().calls();
        self.story.trace = self.bed.line().trace();
        if !self.story.wrong.is_empty() {
            for name in names {
                let events = self.bed.story(&name).await;
                self.story
                    .lines
                    .push(format!("events of {name}:\n{events}"));
            }
        }
        self.story
    }
}
