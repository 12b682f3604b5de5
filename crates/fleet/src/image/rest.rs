//! What went wrong with an image, and how long it rests after that.

use std::time::Duration;

use pve::Retry;
use tokio::time::Instant;

use super::{Work, failed};
use crate::{
    Event, Outcome, Waiting,
    image::Flow,
    record::StepKind,
    trouble::{self, Trouble},
};

/// How long a download or an import that came to nothing is let be at first, and at most.
const LARGE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(30));

/// After how long a file with another checksum is fetched again: somebody may put the right one there.
const MISMATCH: Duration = Duration::from_hours(1);

impl Work<'_> {
    /// Comes back when what is large may be tried again, however often somebody looks meanwhile.
    pub(super) fn rested(&mut self) -> Flow<()> {
        let Some((until, outcome)) = self.remembered(|memory| memory.rest.clone()) else {
            return Ok(());
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        Err(match outcome {
            Outcome::Waiting { what, message, .. } => self.wait(what, message, left),
            other => other,
        })
    }

    /// A step has ended well: what failed before it is over.
    pub(super) fn recovered(&self) {
        self.remembered(|memory| {
            memory.failures = 0;
            memory.rest = None;
        });
    }

    pub(super) fn trouble(&mut self, doing: &str, error: &pve::Error) -> Outcome {
        self.note(doing, error, trouble::backoff)
    }

    /// A task that has failed. What moved gigabytes is not tried again as soon as what moved none.
    pub(super) fn not_done(&mut self, step: StepKind, error: &pve::Error) -> Outcome {
        if step == StepKind::Download && error.to_string().contains("checksum mismatch: got") {
            let text = format!(
                "the file at {} has another checksum than declared: correct the file, or make another image with the \
                 right checksum",
                self.intent.url
            );
            return self.note(&text, error, |_| MISMATCH);
        }
        let large = matches!(step, StepKind::Download | StepKind::Create);
        let soon = matches!(error.retry(), Retry::Soon | Retry::Verify);
        let pause: fn(u32) -> Duration = if large && !soon {
            |failures| (LARGE.0 * (1 << (failures.clamp(1, 9) - 1))).min(LARGE.1)
        } else {
            trouble::backoff
        };
        self.note("preparing the image", error, pause)
    }

    fn note(
        &mut self,
        doing: &str,
        error: &pve::Error,
        pause: impl Fn(u32) -> Duration,
    ) -> Outcome {
        let failures = self.remembered(|memory| {
            memory.failures += 1;
            memory.failures
        });
        let text = format!("{doing}: {}", trouble::line(error));
        if failures == 1 || failures.is_power_of_two() {
            self.events.push(Event::warning("Retrying", text.clone()));
        }
        let pause = pause(failures);
        let judged = trouble::judge(error);
        if judged != Trouble::Verify {
            self.let_others_make_it();
        }
        let outcome = match judged {
            Trouble::Never(why) => failed(why, text),
            Trouble::Verify => self.wait(Waiting::Error, text, pause),
            Trouble::Wait(what) => self.wait(what, text, pause),
        };
        let rest = Some((Instant::now() + pause, outcome.clone()));
        self.remembered(|memory| memory.rest = rest);
        outcome
    }
}
