//! One random life: its world, its dice, what goes wrong around it, and what is told about it.

use std::{
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{Bed, CrashPoint, Dice, Guest, Tally, crash::said, simulate::Mischief};

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
    /// What it was made of.
    pub tally: Tally,
    /// Every call of the controllers, with its time and its answer.
    pub trace: Vec<String>,
}

impl Story {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            lines: Vec::new(),
            wrong: Vec::new(),
            calls: 0,
            crashes: 0,
            tally: Tally::default(),
            trace: Vec::new(),
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

/// What was done so far, also if the rest never comes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A life while it is lived.
pub(crate) struct Life {
    pub(crate) bed: Bed,
    pub(crate) dice: Dice,
    pub(crate) story: Story,
    lines: Lines,
    /// What was there before and is none of ours.
    foreign: Vec<Guest>,
    start: Instant,
    mischief: Mischief,
    crash_due: bool,
}

impl Life {
    /// Lives a life on a clock of its own. One that ends in a panic has failed like any other, and what was done
    /// until then is told.
    pub(crate) fn lived<F>(seed: u64, life: impl FnOnce(Lines) -> F) -> Story
    where
        F: Future<Output = Story>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let lines = Lines::default();
        let story = catch_unwind(AssertUnwindSafe(|| runtime.block_on(life(lines.clone()))));
        story.unwrap_or_else(|panic| Story {
            lines: lines.lock().clone(),
            wrong: vec![said(&*panic)],
            ..Story::new(seed)
        })
    }

    /// Begins on a bed that holds nothing of ours yet.
    pub(crate) async fn begin(seed: u64, bed: Bed, lines: Lines) -> Self {
        Self {
            dice: Dice::new(seed),
            story: Story::new(seed),
            lines,
            foreign: bed.foreign().await,
            start: Instant::now(),
            mischief: Mischief::default(),
            crash_due: false,
            bed,
        }
    }

    fn say(&mut self, what: impl std::fmt::Display) {
        let at = self.start.elapsed().as_secs_f64();
        self.lines.lock().push(format!("{at:>7.1} s  {what}"));
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
        // A second crash point would be left over for controllers that nobody starts again.
        if !self.crash_due && self.dice.one_in(3) {
            let point = CrashPoint {
                call: 1 + self.dice.below(12),
                carried_out: self.dice.one_in(2),
            };
            self.say(format!("crash at {point:?}"));
            self.story.calls += self.bed.line().calls();
            self.bed.line().crash_at(point);
            self.crash_due = true;
        }
        assert_eq!(self.bed.died(), Vec::<String>::new());
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

    /// Nothing goes wrong any more. The controllers that were there when it did must get over it themselves, unless
    /// they were about to crash anyway.
    pub(crate) async fn calm_down(&mut self) {
        self.mischief.end(&self.bed);
        self.story.calls += self.bed.line().calls();
        self.bed.line().crash_at(CrashPoint::never());
        self.say("all faults end");
        if self.crash_due || self.dice.one_in(2) {
            self.bed.crash_operator().await;
            self.bed.start_operator();
            self.say("the controllers start again");
        }
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
        for cluster in 0..self.bed.cluster_count() {
            for (action, hits) in self.bed.cluster(cluster).control().hits() {
                self.story.tally.add(format!("fault: {action}"), hits);
            }
        }
        self.story.tally.join(&self.bed.line().mishaps());
        self.story.tally.join(self.mischief.done());
        let crashes = u64::from(self.story.crashes);
        self.story.tally.add("fault: crash", crashes);
        self.story.lines.clone_from(&self.lines.lock());
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
