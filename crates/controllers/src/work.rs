//! Looking at objects: many at once, each by one worker at a time, in the order in which they were asked for.
//!
//! A request that repeats one still waiting is the same request, and the earlier time counts. One that comes while its
//! object is being looked at leads to another look afterwards. There is no hash map here and no chance: the same
//! requests at the same times are looked at in the same order, which is what lets a simulated run be repeated.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    time::Duration,
};

use futures::{Stream, StreamExt as _, stream::FuturesUnordered};
use tokio::time::Instant;

/// What a look at an object leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    again: Option<Duration>,
}

impl Action {
    /// To be looked at again after this time at the latest.
    pub(crate) fn requeue(after: Duration) -> Self {
        Self { again: Some(after) }
    }

    /// The same, and after this time at the latest.
    pub(crate) fn within(self, after: Duration) -> Self {
        Self::requeue(self.again.map_or(after, |again| again.min(after)))
    }

    /// To be looked at when something has changed.
    pub(crate) fn await_change() -> Self {
        Self { again: None }
    }
}

/// Objects that wait for a look.
struct Waiting<T> {
    at: BTreeMap<T, (Instant, u64)>,
    order: BTreeSet<(Instant, u64, T)>,
    asked: u64,
}

impl<T: Ord + Clone> Waiting<T> {
    fn new() -> Self {
        Self {
            at: BTreeMap::new(),
            order: BTreeSet::new(),
            asked: 0,
        }
    }

    fn ask(&mut self, object: T, at: Instant) {
        if let Some((before, number)) = self.at.get(&object).copied() {
            if before <= at {
                return;
            }
            self.order.remove(&(before, number, object.clone()));
        }
        self.asked += 1;
        self.at.insert(object.clone(), (at, self.asked));
        self.order.insert((at, self.asked, object));
    }

    /// The next one whose time has come.
    fn due(&mut self, now: Instant) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        let (_, _, object) = self.order.pop_first()?;
        self.at.remove(&object);
        Some(object)
    }

    fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _, _)| *at)
    }
}

/// Looks at objects as they are asked for, at most `limit` at once.
///
/// Ends once `requests` has ended and every look under way is over; what is only due later is left. Dropping it
/// stops every look where it stands.
pub(crate) async fn work<T, F, Fut>(requests: impl Stream<Item = T>, limit: usize, look: F)
where
    T: Ord + Clone,
    F: Fn(T) -> Fut,
    Fut: Future<Output = Action>,
{
    let mut requests = std::pin::pin!(requests);
    let mut waiting: Waiting<T> = Waiting::new();
    // What is being looked at, and whether it was asked for again meanwhile.
    let mut looked_at: BTreeMap<T, bool> = BTreeMap::new();
    let mut looks = FuturesUnordered::new();
    let mut open = true;
    loop {
        while open && looks.len() < limit.max(1) {
            let Some(object) = waiting.due(Instant::now()) else {
                break;
            };
            looked_at.insert(object.clone(), false);
            let look = look(object.clone());
            looks.push(async move { (object, look.await) });
        }
        let next = waiting
            .next()
            .filter(|_| open && looks.len() < limit.max(1));
        tokio::select! {
            biased;
            request = requests.next(), if open => match request {
                None => open = false,
                Some(object) => match looked_at.get_mut(&object) {
                    Some(again) => *again = true,
                    None => waiting.ask(object, Instant::now()),
                },
            },
            Some((object, action)) = looks.next(), if !looks.is_empty() => {
                let again = looked_at.remove(&object) == Some(true);
                if again {
                    waiting.ask(object, Instant::now());
                } else if let Some(after) = action.again {
                    waiting.ask(object, Instant::now() + after);
                }
            }
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            else => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use tokio::sync::mpsc::unbounded_channel;
    use tokio_stream::wrappers::UnboundedReceiverStream;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    type Log = Rc<RefCell<Vec<String>>>;

    /// Looks that take a second each and are wanted again as `then` says.
    fn looks(log: &Log, then: fn(&str) -> Action) -> impl Fn(&'static str) -> LookFuture {
        let log = log.clone();
        move |object| {
            let log = log.clone();
            Box::pin(async move {
                log.borrow_mut().push(format!("{object} begins"));
                tokio::time::sleep(SECOND).await;
                log.borrow_mut().push(format!("{object} ends"));
                then(object)
            })
        }
    }

    type LookFuture = std::pin::Pin<Box<dyn Future<Output = Action>>>;

    #[tokio::test(start_paused = true)]
    async fn requests_are_looked_at_in_their_order_and_within_the_limit() {
        let log = Log::default();
        let requests = futures::stream::iter(["c", "a", "b", "b"])
            .chain(futures::stream::once(tokio::time::sleep(5 * SECOND)).map(|()| "d"));
        // The stream's end leaves what waits, so the last request comes when the others are done.
        work(requests, 2, looks(&log, |_| Action::await_change())).await;
        let log = log.borrow();
        assert_eq!(
            log[..6],
            [
                "c begins", "a begins", "c ends", "a ends", "b begins", "b ends"
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_during_a_look_leads_to_another_one_afterwards() {
        let log = Log::default();
        let (ask, requests) = unbounded_channel();
        let asking = async move {
            ask.send("a").unwrap();
            tokio::time::sleep(SECOND / 2).await;
            ask.send("a").unwrap();
            ask.send("a").unwrap();
            tokio::time::sleep(3 * SECOND).await;
        };
        let requests = UnboundedReceiverStream::new(requests);
        tokio::join!(
            asking,
            work(requests, 8, looks(&log, |_| Action::await_change()))
        );
        let log = log.borrow();
        assert_eq!(*log, ["a begins", "a ends", "a begins", "a ends"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_times_counts_and_is_the_only_one() {
        let log = Log::default();
        let (ask, requests) = unbounded_channel();
        let begun = Instant::now();
        let asking = async move {
            ask.send("a").unwrap();
            // In the middle of the pause after the first look.
            tokio::time::sleep(30 * SECOND).await;
            ask.send("a").unwrap();
            tokio::time::sleep(55 * SECOND).await;
        };
        let requests = UnboundedReceiverStream::new(requests);
        let minute = |_: &str| Action::requeue(Duration::from_mins(1));
        tokio::join!(asking, work(requests, 8, looks(&log, minute)));
        assert_eq!(log.borrow().len(), 4, "{:?}", log.borrow());
        assert!(begun.elapsed() >= 85 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_under_way_is_finished_when_no_more_are_asked_for() {
        let log = Log::default();
        let (ask, requests) = unbounded_channel();
        let asking = async move {
            ask.send("a").unwrap();
            tokio::time::sleep(SECOND / 2).await;
            ask.send("b").unwrap();
        };
        let requests = UnboundedReceiverStream::new(requests);
        let again = |_: &str| Action::requeue(SECOND);
        tokio::join!(asking, work(requests, 1, looks(&log, again)));
        assert_eq!(*log.borrow(), ["a begins", "a ends"]);
    }
}
