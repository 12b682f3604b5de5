//! PVE tasks under way, and when to ask for them next.
//!
//! A call that changes something has only begun it; its task's end is the truth, and PVE must be asked for it. Two things keep
//! the questions few and yet early. How long a step takes is learned ([`crate::habit`]), so that they are put where the end is
//! likely. And they are put together: a single task is asked for by name, more of them by one list for the whole cluster;
//! of several tasks of one owner only the one that is expected last decides when, because the owner waits for all of them.
//!
//! The list is what each node last told the others: at the end of a task, but for tasks whose daemon was restarted meanwhile
//! only every ten seconds. Who should long have ended by what is known is therefore asked for by name now and then.
//!
//! Only a task's own node knows how it stands. While that is down nobody is asked, and the others do not wait for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use pve::task::TaskEnd;
use tokio::time::Instant;

use crate::{
    NodeName, Owner, Upid,
    habit::{Habit, Pace},
    record::StepKind,
};

/// A task that has not ended as far as we know.
#[derive(Debug, Clone)]
struct Flight {
    owner: Owner,
    step: StepKind,
    of: Option<String>,
    since: Instant,
    due: Instant,
    /// The ages at which it is to be asked for after that, the next one last.
    questions: Vec<Duration>,
    /// We saw it begin, so its length can be learned from.
    from_start: bool,
    /// The age at which it was last seen running.
    running: Duration,
    /// When it was last asked for by its name.
    named: Option<Instant>,
}

/// How a task ended.
pub(crate) type Ended = Result<TaskEnd, pve::Error>;

/// Where a task stands.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    /// It has not ended as far as we know.
    Flying,
    /// It ended.
    Ended(Box<Ended>),
}

/// What to ask PVE now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// For these tasks, by name.
    Each(BTreeSet<Upid>),
    /// For all by one list; and for these by name if the list says that they run.
    All(BTreeSet<Upid>),
}

/// All tasks of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    flying: BTreeMap<Upid, Flight>,
    ended: BTreeMap<Upid, (Ended, Instant)>,
    habits: BTreeMap<Subject, Learned>,
    /// Grows with every lesson: whose last one is oldest is forgotten first.
    lessons: u64,
    /// How many ended well or badly, and how long they took together.
    done: BTreeMap<(StepKind, bool), (u64, Duration)>,
    asked: Option<Instant>,
    /// The nodes that are up, once that was seen.
    up: Option<BTreeSet<NodeName>>,
    /// How long an answer takes: a question is asked that much before it shall be answered.
    answer: Duration,
}

/// What a duration is learned of: a step in general, and what it is done to.
type Subject = (StepKind, Option<String>);

#[derive(Debug)]
struct Learned {
    habit: Habit,
    last: u64,
    /// What it takes on a quiet host: the least that was seen, forgotten slowly.
    quick: Duration,
}

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// Up to this age a task is taken for a short one.
const IMPATIENT: Duration = Duration::from_secs(2);
/// Ends nobody came for are forgotten after this.
const KEPT: Duration = Duration::from_hours(1);
/// So many tasks that should have ended are asked for by name beside a list.
const FEW: usize = 2;
/// A task that should have ended is asked for by name this often while lists show it running.
const NAMED_EVERY: Duration = Duration::from_secs(3);
/// After so many lessons what is known of a single template or guest is better than what is known of all.
const TAUGHT: u32 = 3;
/// What is known of so many single templates and guests is kept.
const SUBJECTS: usize = 400;
/// The part of a new measurement of the answer's time that is believed.
const BELIEVED: u32 = 8;

/// How many times longer than on a quiet host a step takes when its host has too much to do.
const STRETCHED: u32 = 3;

/// Whether the host alone decides how long a step takes: neither a guest's system nor the amount of data.
fn hosts_alone(step: StepKind) -> bool {
    matches!(
        step,
        StepKind::Clone
            | StepKind::Resize
            | StepKind::Configure
            | StepKind::Start
            | StepKind::Stop
            | StepKind::Destroy
            | StepKind::DeleteSnapshot
    )
}

/// What a start is done to that has to wait for a growing disk.
const BEHIND: &str = "behind another task";

/// Whether a step may cost more questions: a snapshot, and the first start of a guest, but not every change of its power.
fn is_eager(step: StepKind, of: Option<&str>) -> bool {
    step == StepKind::Snapshot || of == Some(BEHIND)
}

/// How long a step takes on a quiet host, until this cluster has taught better.
fn first_guess(step: StepKind) -> Duration {
    Duration::from_millis(match step {
        StepKind::UploadSeed
        | StepKind::RemoveSeed
        | StepKind::RemoveVolume
        | StepKind::Pause
        | StepKind::Resume => 100,
        StepKind::Destroy | StepKind::Configure => 120,
        StepKind::Resize
        | StepKind::MakeTemplate
        | StepKind::Snapshot
        | StepKind::DeleteSnapshot
        | StepKind::Rollback => 200,
        StepKind::Clone | StepKind::Create => 250,
        StepKind::Start => 350,
        StepKind::Stop => 1_200,
        StepKind::Suspend | StepKind::Migrate | StepKind::MoveDisk => 2_000,
        // A guest's operating system decides; it is seldom done sooner.
        StepKind::Shutdown | StepKind::Reboot => 5_000,
        StepKind::Restore | StepKind::Backup | StepKind::Download => 3_000,
    })
}

/// What is believed of a step before anything was seen.
fn first_belief(step: StepKind) -> Habit {
    Habit::guess(first_guess(step), pace(step))
}

/// When a step may end: PVE looks once a second whether a guest that shuts down has gone.
fn pace(step: StepKind) -> Pace {
    match step {
        StepKind::Shutdown => Pace::Beats,
        _ => Pace::Free,
    }
}

/// How often PVE looks whether a guest has gone.
const BEAT: Duration = Duration::from_secs(1);

/// What else than the step decides how long it takes, and comes again: the template that is copied, the guest that shuts down.
fn subject(step: StepKind, upid: &Upid) -> Option<String> {
    let own = matches!(
        step,
        StepKind::Clone
            | StepKind::Shutdown
            | StepKind::Reboot
            | StepKind::Snapshot
            | StepKind::Suspend
            | StepKind::Backup
            | StepKind::Migrate
    );
    own.then(|| format!("{} {}", upid.kind(), upid.id()))
}

impl Tasks {
    /// Takes note of a task. `from_start` if it was started just now.
    pub(crate) fn note(
        &mut self,
        upid: &Upid,
        owner: &Owner,
        step: StepKind,
        now: Instant,
        from_start: bool,
    ) {
        if self.flying.contains_key(upid) || self.ended.contains_key(upid) {
            return;
        }
        let of = if step == StepKind::Start && self.any_of(owner) {
            Some(BEHIND.to_owned())
        } else {
            subject(step, upid)
        };
        let mut questions = Vec::new();
        if from_start {
            let habit = self.habit(step, of.as_ref());
            questions = if is_eager(step, of.as_deref()) {
                habit.eager()
            } else {
                habit.questions().to_vec()
            };
            questions.reverse();
        }
        let mut flight = Flight {
            owner: owner.clone(),
            step,
            of,
            since: now,
            due: now,
            questions,
            from_start,
            running: Duration::ZERO,
            named: None,
        };
        if from_start {
            flight.plan(now, self.answer);
        }
        self.flying.insert(upid.clone(), flight);
    }

    /// Nobody waits for the end of this task alone: it is asked for when it has ended almost surely.
    pub(crate) fn no_hurry(&mut self, upid: &Upid) {
        let Some(flight) = self.flying.get(upid).filter(|flight| flight.from_start) else {
            return;
        };
        let mut questions = self.habit(flight.step, flight.of.as_ref()).unhurried();
        questions.reverse();
        let answer = self.answer;
        if let Some(flight) = self.flying.get_mut(upid) {
            flight.questions = questions;
            flight.plan(flight.since, answer);
        }
    }

    /// What is believed of how long this will take.
    fn habit(&self, step: StepKind, of: Option<&String>) -> Habit {
        let known = |of: Option<String>| self.habits.get(&(step, of)).map(|it| &it.habit);
        of.and_then(|of| known(Some(of.clone())))
            .filter(|habit| habit.lessons() >= TAUGHT)
            .or_else(|| known(None))
            .cloned()
            .unwrap_or_else(|| first_belief(step))
    }

    /// Whether a step almost surely takes no longer than this.
    pub(crate) fn ends_within(&self, step: StepKind, limit: Duration) -> bool {
        let ages = self.habit(step, None).unhurried();
        ages.last().is_none_or(|age| *age <= limit)
    }

    /// Where a task stands; `None` if it was never noted.
    pub(crate) fn standing(&self, upid: &Upid) -> Option<Standing> {
        if self.flying.contains_key(upid) {
            return Some(Standing::Flying);
        }
        self.ended
            .get(upid)
            .map(|(ended, _)| Standing::Ended(Box::new(ended.clone())))
    }

    /// The end was taken note of by its owner.
    pub(crate) fn settle(&mut self, upid: &Upid) {
        self.ended.remove(upid);
    }

    /// Nobody is interested in this owner's tasks any more.
    pub(crate) fn forget(&mut self, owner: &Owner) {
        self.flying.retain(|_, flight| &flight.owner != owner);
    }

    /// Whether the owner has tasks under way.
    pub(crate) fn any_of(&self, owner: &Owner) -> bool {
        self.flying.values().any(|flight| &flight.owner == owner)
    }

    /// The tasks under way that can be asked for.
    pub(crate) fn names(&self) -> BTreeSet<Upid> {
        self.in_reach().map(|(upid, _)| upid.clone()).collect()
    }

    /// The tasks under way on nodes that are down.
    pub(crate) fn out_of_reach(&self) -> Vec<Upid> {
        let names = self.flying.keys();
        names.filter(|upid| !self.reaches(upid)).cloned().collect()
    }

    /// Takes note of the nodes that are up. Returns who had tasks on one that was, and has none left that can be asked for.
    pub(crate) fn reach(&mut self, up: BTreeSet<NodeName>) -> BTreeSet<Owner> {
        let before = self.up.replace(up);
        let was_up = |node| before.as_ref().is_none_or(|before| before.contains(node));
        let lost = self.flying.iter().filter(|(upid, _)| was_up(upid.node()));
        let lost = lost.filter(|(upid, _)| !self.reaches(upid));
        let kept: BTreeSet<&Owner> = self.in_reach().map(|(_, flight)| &flight.owner).collect();
        let owners = lost.map(|(_, flight)| &flight.owner);
        owners
            .filter(|owner| !kept.contains(owner))
            .cloned()
            .collect()
    }

    /// Whether a task can be asked for: nothing says that its node is down.
    pub(crate) fn reaches(&self, upid: &Upid) -> bool {
        self.up.as_ref().is_none_or(|up| up.contains(upid.node()))
    }

    fn in_reach(&self) -> impl Iterator<Item = (&Upid, &Flight)> {
        self.flying.iter().filter(|(upid, _)| self.reaches(upid))
    }

    /// How many tasks are under way.
    pub(crate) fn flying(&self) -> usize {
        self.flying.len()
    }

    /// The tasks that ended so far: step, result, how many, and their seconds together.
    pub(crate) fn done(&self) -> Vec<(String, &'static str, u64, f64)> {
        let word = |well: bool| if well { "ok" } else { "error" };
        self.done
            .iter()
            .map(|((step, well), (times, took))| {
                (format!("{step:?}"), word(*well), *times, took.as_secs_f64())
            })
            .collect()
    }

    /// When to ask next, if at all.
    pub(crate) fn due(&self) -> Option<Instant> {
        let first = self.owners_due().into_values().min()?;
        // The more are under way, the more one answer brings: the pace need not grow with them.
        let gap = Duration::from_millis(match self.in_reach().count() {
            0..=2 => 0,
            3..=8 => 100,
            9..=30 => 250,
            _ => 500,
        });
        Some(self.asked.map_or(first, |asked| first.max(asked + gap)))
    }

    /// An owner waits for all of its tasks: the last one decides.
    fn owners_due(&self) -> BTreeMap<&Owner, Instant> {
        let mut owners: BTreeMap<&Owner, Instant> = BTreeMap::new();
        for (_, flight) in self.in_reach() {
            let due = owners.entry(&flight.owner).or_insert(flight.due);
            *due = (*due).max(flight.due);
        }
        owners
    }

    /// What to ask now.
    pub(crate) fn question(&self, now: Instant) -> Question {
        if self.in_reach().nth(1).is_some() {
            let overdue = self.in_reach().filter(|(_, flight)| {
                flight.questions.is_empty()
                    && flight.due <= now
                    && flight.named.is_none_or(|at| now - at >= NAMED_EVERY)
            });
            return Question::All(overdue.map(|(upid, _)| upid.clone()).take(FEW).collect());
        }
        let owners = self.owners_due();
        let due = self
            .in_reach()
            .filter(|(_, flight)| owners.get(&flight.owner).is_some_and(|due| *due <= now));
        Question::Each(due.map(|(upid, _)| upid.clone()).collect())
    }

    /// A question was asked and `running` had not ended when it was answered. Whoever is still under way is asked for again
    /// later, answered or not.
    pub(crate) fn asked(
        &mut self,
        question: &Question,
        running: &BTreeSet<Upid>,
        asked: Instant,
        now: Instant,
    ) {
        self.asked = Some(asked);
        let took = (now - asked).min(SHORTEST);
        self.answer = (self.answer * (BELIEVED - 1) + took) / BELIEVED;
        for (upid, flight) in &mut self.flying {
            let (asked, named) = match question {
                Question::Each(each) => (each.contains(upid), each.contains(upid)),
                Question::All(named) => (true, named.contains(upid)),
            };
            if named {
                flight.named = Some(now);
            }
            if running.contains(upid) {
                flight.running = now - flight.since;
            }
            if asked && flight.due <= now {
                flight.plan(now, self.answer);
            }
        }
    }

    /// A task has ended, after so many seconds where PVE says so. Returns its owner, and whether it took far longer than it does
    /// on a quiet host.
    pub(crate) fn end(
        &mut self,
        upid: &Upid,
        ended: Ended,
        seconds: Option<u64>,
        now: Instant,
    ) -> Option<(Owner, bool)> {
        let flight = self.flying.remove(upid)?;
        let slow = ended.is_ok() && self.is_slow(&flight);
        let took = now - flight.since;
        let done = self.done.entry((flight.step, ended.is_ok())).or_default();
        *done = (done.0 + 1, done.1 + took);
        if flight.from_start && ended.is_ok() {
            let (after, by) = flight.ended_between(took, seconds);
            // What had to wait for another task says nothing of what it takes by itself.
            if flight.of.as_deref() != Some(BEHIND) {
                self.learn(&(flight.step, None), after, by);
            }
            if flight.of.is_some() {
                self.learn(&(flight.step, flight.of), after, by);
            }
        }
        self.ended.retain(|_, (_, at)| now - *at < KEPT);
        self.ended.insert(upid.clone(), (ended, now));
        Some((flight.owner, slow))
    }

    /// Whether a task was seen running at an age at which it would long have ended on a quiet host.
    fn is_slow(&self, flight: &Flight) -> bool {
        let of = (flight.step, flight.of.clone());
        let general = (flight.step, None);
        let known = self.habits.get(&of).or_else(|| self.habits.get(&general));
        let quick = known
            .filter(|learned| learned.habit.lessons() >= TAUGHT)
            .map(|learned| learned.quick);
        flight.from_start
            && hosts_alone(flight.step)
            && quick.is_some_and(|quick| flight.running > quick * STRETCHED + SHORTEST)
    }

    fn learn(&mut self, subject: &Subject, after: Duration, by: Duration) {
        self.lessons += 1;
        if !self.habits.contains_key(subject) {
            let general = self.habits.get(&(subject.0, None));
            let guess = || first_belief(subject.0);
            let habit = general.map_or_else(guess, |general| general.habit.begun_anew());
            let last = self.lessons;
            let learned = Learned {
                habit,
                last,
                quick: by,
            };
            self.habits.insert(subject.clone(), learned);
            self.forget_oldest_subject();
        }
        if let Some(learned) = self.habits.get_mut(subject) {
            learned.habit.learn(after, by);
            learned.last = self.lessons;
            learned.quick = by.min(learned.quick * 51 / 50);
        }
    }

    fn forget_oldest_subject(&mut self) {
        let single = self.habits.iter().filter(|((_, of), _)| of.is_some());
        if single.clone().count() > SUBJECTS
            && let Some((oldest, _)) = single.min_by_key(|(_, learned)| learned.last)
        {
            let oldest = oldest.clone();
            self.habits.remove(&oldest);
        }
    }
}

impl Flight {
    /// The ages between which it ended: it was seen running at the one, and had ended by the other. What ends on the beat ended
    /// right after the second that PVE names.
    fn ended_between(&self, took: Duration, seconds: Option<u64>) -> (Duration, Duration) {
        let told = (self.running, took);
        let Some(beat) = seconds.filter(|_| pace(self.step) == Pace::Beats) else {
            return told;
        };
        let by = took.min(Duration::from_secs(beat) + BEAT / 4);
        let after = self.running.max(by.saturating_sub(BEAT));
        if after < by { (after, by) } else { told }
    }

    /// Puts the next question.
    fn plan(&mut self, now: Instant, answer: Duration) {
        let earliest = now + answer;
        while let Some(age) = self.questions.pop() {
            let at = self.since + age;
            // A question that would be answered right after this one tells nothing new.
            if at > earliest {
                self.due = (at - answer).max(now);
                return;
            }
        }
        let age = now - self.since;
        // Short steps are asked for again soon; who already took seconds will take seconds more.
        let again = if age < IMPATIENT { age / 2 } else { age };
        self.due = now + again.clamp(SHORTEST, LONGEST);
    }
}

#[cfg(test)]
mod tests;
