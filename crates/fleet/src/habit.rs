//! How long something usually takes, and when to ask whether it has ended: a task of PVE, or the boot of a guest.
//!
//! PVE tells nobody that a task has ended; it must be asked, every question is a request, and between two questions the end
//! goes unnoticed. So the questions are put where the end is likely. A [`Habit`] is what is believed of a step's duration: a
//! probability for each of a few hundred spans, each some percent longer than the one before. It is learned from what a
//! question can tell: the end came after the last vain question and before the one that found it. Such an answer moves a part
//! of the belief into that interval, spread as was believed before; what was long ago is forgotten by and by.
//!
//! Some steps end on the beat: PVE looks once a second whether a guest has gone. For those a span is a second, and a question is
//! put right after a beat or not at all.
//!
//! From the belief follow the questions: those with the least expected sum of waiting unnoticed and of questions asked, where
//! every further question costs more than the one before. That is a small dynamic programme over the spans that are likely
//! at all. Steps that always take the same time are asked for once, just after it; those that vary, two or three times.

use std::time::Duration;

/// Spans per doubling of the duration: each is 4.4 % longer than the one before.
const FINE: u16 = 16;
/// The shortest span, in seconds.
const SHORTEST: f64 = 0.016;
/// From 16 ms to more than two hours.
const SPANS: u16 = FINE * 19;
/// How far the first belief spreads around the guess: two thirds are within this factor's logarithm.
const DOUBT: f64 = 0.35;
/// What is less likely than this is not planned for.
const UNLIKELY: f64 = 3e-4;
/// The least part of the belief that one answer moves.
const LEAST_LESSON: f64 = 0.1;
/// How much of an answer to the very first question may come from a range that was thought impossible.
const OPEN_MIND: f64 = 0.3;
/// The unnoticed time, in seconds, that one question is worth at least.
const QUESTION: f64 = 0.004;
/// The same as a part of the usual duration: who takes minutes is not asked for every second.
const QUESTION_PART: f64 = 0.005;
/// What the first, second, … question costs. There are no more: the last one comes when all that is likely is over.
const SHORT_COSTS: &[f64] = &[1.0, 1.3, 2.0, 6.0, 40.0];
/// The same where the end is waited for by somebody who has requests to spare.
const EAGER_COSTS: &[f64] = &[1.0, 1.1, 1.3, 1.6, 2.0, 4.0, 40.0];
const LONG_COSTS: &[f64] = &[1.0, 2.0, 4.0];
const CALM_COSTS: &[f64] = &[1.0, 2.0];
/// From here on a step is a long one, in seconds.
const LONG: f64 = 2.0;

/// How long after a beat the end of what ends on one can be seen, in seconds.
const AFTER_BEAT: f64 = 0.135;
/// How many beats are told apart; after that they are minutes.
const BEATS: u16 = 120;

/// When something may end at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// At any time.
    Free,
    /// Every second.
    Beats,
}

/// What is believed of a step's duration.
#[derive(Debug, Clone)]
pub(crate) struct Habit {
    pace: Pace,
    belief: Vec<f64>,
    lessons: u32,
    questions: Vec<Duration>,
}

impl Habit {
    /// What is believed before anything was seen.
    pub(crate) fn guess(usual: Duration, pace: Pace) -> Self {
        let belief = pace
            .ends()
            .map(|end| (-((end / usual.as_secs_f64()).ln() / DOUBT).powi(2) / 2.0).exp())
            .collect();
        let mut habit = Self {
            pace,
            belief,
            lessons: 0,
            questions: Vec::new(),
        };
        habit.weigh();
        habit
    }

    /// The same belief, open to be taught otherwise.
    pub(crate) fn begun_anew(&self) -> Self {
        Self {
            lessons: 0,
            ..self.clone()
        }
    }

    /// How often it was learned from.
    pub(crate) fn lessons(&self) -> u32 {
        self.lessons
    }

    /// The ages at which to ask for a task, as long as it has not ended.
    pub(crate) fn questions(&self) -> &[Duration] {
        &self.questions
    }

    /// The ages at which to ask when somebody waits who has requests to spare.
    pub(crate) fn eager(&self) -> Vec<Duration> {
        let usual = self.quantile(0.5);
        if usual < LONG {
            return plan(&self.likely(), worth(usual), EAGER_COSTS);
        }
        self.questions.clone()
    }

    /// The ages at which to ask when nobody is in a hurry: when nearly every task has ended, and for a long step once before.
    pub(crate) fn unhurried(&self) -> Vec<Duration> {
        let usual = self.quantile(0.5);
        if usual < LONG {
            return vec![Duration::from_secs_f64(self.quantile(0.95))];
        }
        plan(&self.likely(), worth(usual), CALM_COSTS)
    }

    /// The ages at which to ask when a question in vain keeps others waiting for so long.
    pub(crate) fn dear(&self, question: Duration) -> Vec<Duration> {
        let worth = worth(self.quantile(0.5)).max(question.as_secs_f64());
        plan(&self.likely(), worth, LONG_COSTS)
    }

    /// A task had not ended at the age `after`, and had at the age `by`.
    pub(crate) fn learn(&mut self, after: Duration, by: Duration) {
        let (after, by) = (after.as_secs_f64(), by.as_secs_f64());
        let pace = self.pace;
        let part = |from: f64, to: f64| {
            pace.spans().map(move |(start, end)| {
                (end.min(to) - start.max(from)).max(0.0) / (end - start).max(f64::EPSILON)
            })
        };
        let mut lesson: Vec<f64> = self
            .belief
            .iter()
            .zip(part(after, by))
            .map(|(believed, part)| believed * part)
            .collect();
        if total(&lesson) < UNLIKELY {
            lesson = part(after, by).collect();
        }
        scale(&mut lesson);
        if after <= 0.0 {
            // An end that was there at the first question may have been there long before. Without some faith in that,
            // nobody would ever ask sooner.
            let mut sooner: Vec<f64> = part(by * 0.6, by).collect();
            scale(&mut sooner);
            for (learned, sooner) in lesson.iter_mut().zip(sooner) {
                *learned = *learned * (1.0 - OPEN_MIND) + sooner * OPEN_MIND;
            }
        }
        // The first lessons count for more than the guess.
        let weight = (1.5 / f64::from(self.lessons + 2)).max(LEAST_LESSON);
        for (believed, learned) in self.belief.iter_mut().zip(lesson) {
            *believed = *believed * (1.0 - weight) + learned * weight;
        }
        self.lessons = self.lessons.saturating_add(1);
        self.weigh();
    }

    fn weigh(&mut self) {
        scale(&mut self.belief);
        let usual = self.quantile(0.5);
        let costs = if usual < LONG {
            SHORT_COSTS
        } else {
            LONG_COSTS
        };
        self.questions = plan(&self.likely(), worth(usual), costs);
    }

    /// The spans that are likely at all.
    fn likely(&self) -> Vec<Span> {
        let spans = self.pace.spans().zip(&self.belief);
        spans
            .filter(|(_, likely)| **likely > UNLIKELY)
            .map(|((start, end), likely)| Span {
                middle: match self.pace {
                    Pace::Free => f64::midpoint(start, end),
                    Pace::Beats => end,
                },
                end,
                likely: *likely,
            })
            .collect()
    }

    fn quantile(&self, part: f64) -> f64 {
        let mut sum = 0.0;
        let mut reached = SHORTEST;
        for (end, likely) in self.pace.ends().zip(&self.belief) {
            reached = end;
            sum += likely;
            if sum >= part {
                break;
            }
        }
        reached
    }
}

/// A range of durations in which a task may end.
struct Span {
    /// When it is believed to end.
    middle: f64,
    end: f64,
    likely: f64,
}

/// The unnoticed time, in seconds, that a question for something that usually takes so long is worth.
fn worth(usual: f64) -> f64 {
    (usual * QUESTION_PART).max(QUESTION)
}

/// The questions with the least expected cost. Each is at the end of a span.
///
/// `left[i]` is the expected cost still to come when a task has not ended before span `i`. It is computed from the last possible
/// question back to the first one, which makes the choice of each question a comparison of its possible places.
fn plan(spans: &[Span], worth: f64, costs: &[f64]) -> Vec<Duration> {
    let mut chosen: Vec<Vec<usize>> = Vec::new();
    let mut left = vec![0.0; spans.len() + 1];
    for (number, cost) in costs.iter().enumerate().rev() {
        let last = number + 1 == costs.len();
        let mut before = vec![0.0; spans.len() + 1];
        let mut places = vec![0; spans.len()];
        for from in 0..spans.len() {
            let open: f64 = spans[from..].iter().map(|span| span.likely).sum();
            let (mut found, mut middles) = (0.0, 0.0);
            let mut best = f64::INFINITY;
            for (place, span) in spans.iter().enumerate().skip(from) {
                found += span.likely;
                middles += span.likely * span.middle;
                // The last question comes when all that is likely is over.
                if last && place + 1 < spans.len() {
                    continue;
                }
                let unnoticed = found * span.end - middles;
                let whole = worth * cost * open + unnoticed + left[place + 1];
                if whole < best {
                    best = whole;
                    places[from] = place;
                }
            }
            before[from] = best;
        }
        left = before;
        chosen.push(places);
    }
    let mut questions = Vec::new();
    let mut from = 0;
    for places in chosen.iter().rev() {
        let Some(place) = places.get(from) else { break };
        questions.push(Duration::from_secs_f64(spans[*place].end));
        from = place + 1;
    }
    questions
}

impl Pace {
    /// The ends of all spans, in seconds.
    fn ends(self) -> impl Iterator<Item = f64> {
        (0..SPANS).map(move |number| match self {
            Self::Free => SHORTEST * (f64::from(number) / f64::from(FINE)).exp2(),
            Self::Beats if number < BEATS => f64::from(number) + AFTER_BEAT,
            Self::Beats => f64::from(BEATS) + f64::from(number - BEATS) * 60.0 + AFTER_BEAT,
        })
    }

    /// Begin and end of all spans.
    fn spans(self) -> impl Iterator<Item = (f64, f64)> {
        self.ends()
            .scan(0.0, |start, end| Some((std::mem::replace(start, end), end)))
    }
}

fn total(values: &[f64]) -> f64 {
    values.iter().sum()
}

fn scale(values: &mut [f64]) {
    let whole = total(values);
    if whole > 0.0 {
        for value in values {
            *value /= whole;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// Asks as planned for a task that takes `took`; learns; says how late its end was noticed, and after how many questions.
    fn follow(habit: &mut Habit, took: Duration) -> (Duration, usize) {
        let mut planned = habit.questions().to_vec().into_iter();
        let (mut last, mut count) = (Duration::ZERO, 0);
        loop {
            let at = planned.next().unwrap_or(last * 3 / 2).max(last + millis(1));
            count += 1;
            if at >= took {
                habit.learn(last, at);
                return (at.saturating_sub(took), count);
            }
            last = at;
        }
    }

    /// Durations that go round between a fast and a slow one.
    fn varied(fast: u64, slow: u64) -> impl Iterator<Item = Duration> {
        (0_u64..).map(move |n| millis(fast + n * 37 % 11 * (slow - fast) / 10))
    }

    #[test]
    fn what_always_takes_the_same_time_is_asked_for_just_after_it() {
        let mut habit = Habit::guess(millis(450), Pace::Free);
        for _ in 0..30 {
            follow(&mut habit, millis(300));
        }
        let (late, count) = follow(&mut habit, millis(300));
        assert!(count <= 2, "{count} questions");
        assert!(late <= millis(20), "noticed {late:?} late");
    }

    #[test]
    fn what_varies_a_little_is_noticed_soon_for_two_questions_on_average() {
        let mut habit = Habit::guess(millis(450), Pace::Free);
        let mut times = varied(250, 410);
        for took in times.by_ref().take(20) {
            follow(&mut habit, took);
        }
        let (mut late, mut count) = (Duration::ZERO, 0);
        for took in times.take(22) {
            let (more, questions) = follow(&mut habit, took);
            late += more;
            count += questions;
        }
        assert!(late / 22 <= millis(50), "noticed {:?} late", late / 22);
        assert!(count <= 44, "{count} questions about 22 tasks");
    }

    #[test]
    fn what_takes_seconds_is_never_asked_for_more_than_three_times() {
        let mut habit = Habit::guess(millis(5_000), Pace::Free);
        for took in varied(3_200, 9_000).take(22) {
            let (_, questions) = follow(&mut habit, took);
            assert!(questions <= 3, "{questions} questions about {took:?}");
        }
    }

    #[test]
    fn a_wrong_guess_is_unlearned_in_both_directions() {
        for (guess, took) in [(100, 20_000), (2_000, 400)] {
            let mut habit = Habit::guess(millis(guess), Pace::Free);
            for _ in 0..40 {
                follow(&mut habit, millis(took));
            }
            let (late, _) = follow(&mut habit, millis(took));
            assert!(
                late <= millis(took) / 5,
                "guessed {guess}, took {took}, noticed {late:?} late"
            );
        }
    }

    #[test]
    fn a_change_of_habits_is_followed() {
        let mut habit = Habit::guess(millis(300), Pace::Free);
        for took in [300, 3_000] {
            for _ in 0..30 {
                follow(&mut habit, millis(took));
            }
            let (late, count) = follow(&mut habit, millis(took));
            assert!(late <= millis(took) / 5, "{took}: noticed {late:?} late");
            assert!(count <= 3, "{took}: {count} questions");
        }
    }

    #[test]
    fn without_hurry_a_short_step_is_asked_for_when_nearly_all_have_ended() {
        let mut habit = Habit::guess(millis(450), Pace::Free);
        for took in varied(250, 410).take(40) {
            follow(&mut habit, took);
        }
        let questions = habit.unhurried();
        assert_eq!(questions.len(), 1);
        assert!(
            questions[0] >= millis(390) && questions[0] <= millis(600),
            "{questions:?}"
        );
        assert_eq!(Habit::guess(millis(5_000), Pace::Free).unhurried().len(), 2);
    }

    #[test]
    fn questions_come_in_order() {
        for guess in [16, 100, 1_000, 60_000, 3_600_000] {
            let habit = Habit::guess(millis(guess), Pace::Free);
            assert!(!habit.questions().is_empty());
            assert!(habit.questions().is_sorted());
        }
    }
}
