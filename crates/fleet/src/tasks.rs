//! PVE tasks under way, and when to ask for them next.
//!
//! Tasks are asked for together: one list for the whole cluster, however many there are, and a single
//! status when there is only one. How long a kind of step takes is learned, so the first question
//! comes about when the answer will be there; a question that came too early is repeated after about as
//! long again. A guest that takes its time to shut down so costs two or three questions, not one a second.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use pve::task::TaskEnd;
use tokio::time::Instant;

use crate::{Owner, Upid, record::StepKind};

/// A task that has not ended as far as we know.
#[derive(Debug, Clone)]
struct Flight {
    owner: Owner,
    step: StepKind,
    since: Instant,
    due: Instant,
    /// We saw it begin, so its length can be learned from.
    from_start: bool,
    /// It was asked for before it had ended.
    early: bool,
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

/// All tasks of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    flying: BTreeMap<Upid, Flight>,
    ended: BTreeMap<Upid, (Ended, Instant)>,
    usual: BTreeMap<StepKind, Duration>,
    /// How many ended well or badly, and how long they took together.
    done: BTreeMap<(StepKind, bool), (u64, Duration)>,
    asked: Option<Instant>,
}

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// Up to this age a task is taken for a short one.
const IMPATIENT: Duration = Duration::from_secs(2);
/// Ends nobody came for are forgotten after this.
const KEPT: Duration = Duration::from_hours(1);

/// How long a step takes on a quiet host, until this cluster has taught better.
fn first_guess(step: StepKind) -> Duration {
    Duration::from_millis(match step {
        StepKind::UploadSeed | StepKind::RemoveSeed | StepKind::RemoveVolume => 150,
        StepKind::Destroy | StepKind::Configure => 200,
        StepKind::Clone
        | StepKind::Create
        | StepKind::Resize
        | StepKind::MakeTemplate
        | StepKind::Snapshot
        | StepKind::DeleteSnapshot
        | StepKind::Rollback => 300,
        StepKind::Start => 450,
        StepKind::Stop => 1_250,
        StepKind::Suspend | StepKind::Migrate | StepKind::MoveDisk => 2_000,
        // A guest's operating system decides; it is seldom done sooner.
        StepKind::Shutdown | StepKind::Reboot => 5_000,
        StepKind::Restore | StepKind::Backup | StepKind::Download => 3_000,
    })
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
        let wait = if from_start {
            self.usual
                .get(&step)
                .copied()
                .unwrap_or_else(|| first_guess(step))
                .clamp(SHORTEST, LONGEST)
        } else {
            Duration::ZERO
        };
        let flight = Flight {
            owner: owner.clone(),
            step,
            since: now,
            due: now + wait,
            from_start,
            early: false,
        };
        self.flying.insert(upid.clone(), flight);
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

    /// The tasks under way.
    pub(crate) fn flying(&self) -> BTreeSet<Upid> {
        self.flying.keys().cloned().collect()
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
        let first = self.flying.values().map(|flight| flight.due).min()?;
        // The more are under way, the more one answer brings: the pace need not grow with them.
        let gap = Duration::from_millis(match self.flying.len() {
            0..=2 => 0,
            3..=8 => 250,
            9..=30 => 500,
            _ => 1000,
        });
        Some(self.asked.map_or(first, |asked| first.max(asked + gap)))
    }

    /// A question was asked and these had not ended.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.asked = Some(now);
        for flight in self.flying.values_mut() {
            if flight.due <= now {
                let age = now - flight.since;
                // Short steps are asked for again soon; who already took seconds will take seconds more.
                let again = if age < IMPATIENT { age / 2 } else { age };
                flight.due = now + again.clamp(SHORTEST, LONGEST);
                flight.early = true;
            }
        }
    }

    /// A task has ended. Returns its owner, and what it did.
    pub(crate) fn end(
        &mut self,
        upid: &Upid,
        ended: Ended,
        now: Instant,
    ) -> Option<(Owner, StepKind)> {
        let flight = self.flying.remove(upid)?;
        let done = self.done.entry((flight.step, ended.is_ok())).or_default();
        *done = (done.0 + 1, done.1 + (now - flight.since));
        if flight.from_start && ended.is_ok() {
            let took = now - flight.since;
            let usual = self
                .usual
                .entry(flight.step)
                .or_insert_with(|| first_guess(flight.step));
            // Whoever was asked too early teaches to wait longer. An end that was there at the first question says
            // only that there was no need to ask sooner: the guess creeps down until it is too early now and then.
            *usual = if flight.early {
                (*usual + took.max(*usual)) / 2
            } else {
                (*usual * 19 + took.min(*usual * 19 / 20)) / 20
            };
        }
        self.ended.retain(|_, (_, at)| now - *at < KEPT);
        self.ended.insert(upid.clone(), (ended, now));
        Some((flight.owner, flight.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upid(n: u32) -> Upid {
        format!("UPID:pve1:{n:08X}:00000001:65000000:qmstart:100:root@pam:")
            .parse()
            .unwrap()
    }

    fn owner() -> Owner {
        Owner::new("o").unwrap()
    }

    #[test]
    fn a_step_that_takes_longer_than_thought_is_asked_for_later_next_time() {
        let start = Instant::now();
        let mut tasks = Tasks::default();
        tasks.note(&upid(1), &owner(), StepKind::Clone, start, true);
        let first = tasks.due().unwrap();
        tasks.asked(first);
        tasks.end(&upid(1), Ok(TaskEnd::Ok), start + Duration::from_secs(2));
        tasks.note(&upid(2), &owner(), StepKind::Clone, start, true);
        assert!(tasks.due().unwrap() > first + Duration::from_millis(500));
    }

    #[test]
    fn a_step_that_has_always_ended_by_then_is_asked_for_a_little_sooner() {
        let start = Instant::now();
        let mut tasks = Tasks::default();
        tasks.note(&upid(1), &owner(), StepKind::Start, start, true);
        let first = tasks.due().unwrap();
        tasks.end(&upid(1), Ok(TaskEnd::Ok), first);
        tasks.note(&upid(2), &owner(), StepKind::Start, start, true);
        assert!(tasks.due().unwrap() < first);
    }

    #[test]
    fn a_guest_that_shuts_down_slowly_is_not_asked_for_every_second() {
        let start = Instant::now();
        let mut tasks = Tasks::default();
        tasks.note(&upid(1), &owner(), StepKind::Shutdown, start, true);
        let mut questions = 0;
        while tasks.due().unwrap() < start + Duration::from_mins(1) {
            tasks.asked(tasks.due().unwrap());
            questions += 1;
        }
        assert!(questions <= 7, "{questions} questions in a minute");
    }

    #[test]
    fn an_end_is_kept_until_its_owner_has_seen_it() {
        let now = Instant::now();
        let mut tasks = Tasks::default();
        tasks.note(&upid(1), &owner(), StepKind::Start, now, true);
        assert!(matches!(tasks.standing(&upid(1)), Some(Standing::Flying)));
        assert_eq!(
            tasks.end(&upid(1), Ok(TaskEnd::Ok), now),
            Some((owner(), StepKind::Start))
        );
        assert!(matches!(tasks.standing(&upid(1)), Some(Standing::Ended(_))));
        assert_eq!(tasks.due(), None);
        tasks.settle(&upid(1));
        assert!(tasks.standing(&upid(1)).is_none());
    }

    #[test]
    fn many_tasks_are_not_asked_for_more_often_than_once_a_second() {
        let now = Instant::now();
        let mut tasks = Tasks::default();
        for n in 0..100 {
            tasks.note(&upid(n), &owner(), StepKind::Start, now, true);
        }
        let first = tasks.due().unwrap();
        tasks.asked(first);
        assert!(tasks.due().unwrap() >= first + Duration::from_secs(1));
    }
}
