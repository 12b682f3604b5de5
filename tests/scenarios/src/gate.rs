//! The line between the controllers and everything else: where calls are counted, lost and cut off.
//!
//! Both the Kubernetes API and Proxmox VE are reached through a [`Gate`]. It numbers the calls, so that a test can end
//! the controllers at the n-th one: before it was sent, or after it was carried out and before its answer arrived.
//! What a crash does to a process is only that: some call was the last.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::{sync::Notify, time::Instant};

use crate::{
    Tally,
    weather::{Answer, Mishap, Sky, Weather, refusal},
};

/// A boxed error, as tower likes it.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Which call is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPoint {
    /// The number of the call, from one.
    pub call: u64,
    /// It is carried out, and only its answer is lost.
    pub carried_out: bool,
}

impl CrashPoint {
    /// No call is the last.
    pub fn never() -> Self {
        Self {
            call: u64::MAX,
            carried_out: false,
        }
    }
}

/// What happens to calls.
#[derive(Debug, Default)]
pub struct Line {
    calls: AtomicU64,
    crash: Mutex<Option<CrashPoint>>,
    crashed: Notify,
    refuse_status: AtomicBool,
    changes_only: AtomicBool,
    journal: Mutex<Vec<String>>,
    trace: Trace,
    sky: Sky,
}

/// Everything that was asked for, with the time: what two runs of one seed must have in common.
#[derive(Debug)]
struct Trace {
    begun: Instant,
    lines: Mutex<Vec<String>>,
    /// The moment of the last line, and how many there were in it.
    moment: Mutex<(Instant, u32)>,
}

/// So many lines in one moment are of somebody who asks again and again without waiting. Time stands still meanwhile, so
/// nothing else would ever end it.
const RESTLESS: u32 = 40_000;

impl Default for Trace {
    fn default() -> Self {
        let begun = Instant::now();
        Self {
            begun,
            lines: Mutex::default(),
            moment: Mutex::new((begun, 0)),
        }
    }
}

impl Trace {
    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, what: std::fmt::Arguments<'_>) {
        let now = Instant::now();
        let at = (now - self.begun).as_secs_f64();
        self.lines().push(format!("{at:>9.3} {what}"));
        let mut moment = self.moment.lock().unwrap_or_else(PoisonError::into_inner);
        *moment = match *moment {
            (before, lines) if before == now => (now, lines + 1),
            _ => (now, 1),
        };
        assert!(moment.1 < RESTLESS, "asks without end: {what}");
    }
}

impl Line {
    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Ends the controllers at a call, counted from now.
    pub fn crash_at(&self, point: CrashPoint) {
        self.calls.store(0, Ordering::SeqCst);
        self.lock_journal().clear();
        *self.crash.lock().unwrap_or_else(PoisonError::into_inner) = Some(point);
    }

    /// Resolves when the crash point was reached.
    pub async fn crashed(&self) {
        self.crashed.notified().await;
    }

    /// Refuses every status that is written, or no longer.
    pub fn refuse_status(&self, refuse: bool) {
        self.refuse_status.store(refuse, Ordering::SeqCst);
    }

    /// Sets what goes wrong with changing calls to the Kubernetes API from now on.
    pub fn weather(&self, weather: Weather, seed: u64) {
        self.sky.set(weather, seed);
    }

    /// The Kubernetes API is away for the controllers, or back again.
    pub fn api_down(&self, down: bool) {
        self.sky.down(down);
    }

    /// Breaks the controllers' watches off.
    pub fn cut_watches(&self) {
        self.sky.cut();
    }

    /// How often something went wrong between the controllers and the Kubernetes API.
    pub(crate) fn mishaps(&self) -> Tally {
        self.sky.met()
    }

    /// The calls since the last crash point was set.
    pub fn journal(&self) -> Vec<String> {
        self.lock_journal().clone()
    }

    /// Every call of the controllers, with its time and how it was answered.
    pub fn trace(&self) -> Vec<String> {
        self.trace.lines().clone()
    }

    /// From now on only changes are calls: a crash at a read is a crash before the next change.
    pub fn count_changes_only(&self) {
        self.changes_only.store(true, Ordering::SeqCst);
    }

    /// What was written to the Kubernetes API since the journal was forgotten.
    pub fn kubernetes_writes(&self) -> Vec<String> {
        let mut all = self.journal();
        all.retain(|call| !call.contains(" /api2/"));
        all
    }

    /// Forgets the calls so far.
    pub fn forget(&self) {
        self.lock_journal().clear();
    }

    fn lock_journal(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers a call; says what is to become of it.
    fn enter(&self, what: String) -> Fate {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        self.lock_journal().push(what);
        let mut crash = self.crash.lock().unwrap_or_else(PoisonError::into_inner);
        match *crash {
            Some(point) if point.call == number => {
                *crash = None;
                if point.carried_out {
                    Fate::LastCarriedOut
                } else {
                    Fate::Last
                }
            }
            _ => Fate::Normal,
        }
    }
}

enum Fate {
    Normal,
    Last,
    LastCarriedOut,
}

/// A service behind the line.
#[derive(Clone)]
pub(crate) struct Gate<S> {
    inner: S,
    line: Arc<Line>,
    kubernetes: bool,
}

impl<S> Gate<S> {
    /// Proxmox VE, behind the line.
    pub(crate) fn pve(inner: S, line: Arc<Line>) -> Self {
        Self {
            inner,
            line,
            kubernetes: false,
        }
    }

    /// The Kubernetes API, behind the line.
    pub(crate) fn kubernetes(inner: S, line: Arc<Line>) -> Self {
        Self {
            inner,
            line,
            kubernetes: true,
        }
    }
}

impl<S, B, R> tower::Service<http::Request<B>> for Gate<S>
where
    S: tower::Service<http::Request<B>, Response = http::Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + 'static,
    B: Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = http::Response<Answer<R>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let mut inner = self.inner.clone();
        let (line, kubernetes) = (self.line.clone(), self.kubernetes);
        let path = request.uri().path().to_owned();
        line.trace
            .write(format_args!("{} {}", request.method(), request.uri()));
        let watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let reads = request.method() == http::Method::GET;
        let what = format!("{} {path}", request.method());
        Box::pin(async move {
            let (traced, asked) = (line.clone(), path.clone());
            let call = async move {
                let answer: Result<http::Response<R>, BoxError> =
                    inner.call(request).await.map_err(Into::into);
                match &answer {
                    Ok(answer) => traced
                        .trace
                        .write(format_args!("{} for {asked}", answer.status())),
                    Err(error) => traced.trace.write(format_args!("{error} for {asked}")),
                }
                answer
            };
            if kubernetes {
                if line.sky.is_down() {
                    return Err("connection refused".into());
                }
                if path.ends_with("/status") && line.refuse_status.load(Ordering::SeqCst) {
                    return Err("the status cannot be written".into());
                }
                // Reads of the Kubernetes API change nothing and hold no secret of ours: crashing there is crashing
                // before the next call, and watches would number differently in every run.
                if reads {
                    let answer: http::Response<R> = call.await?;
                    return Ok(answer.map(|body| {
                        if watch {
                            line.sky.breakable(body)
                        } else {
                            Answer::Whole(Box::pin(body))
                        }
                    }));
                }
            }
            let counted = !(reads && line.changes_only.load(Ordering::SeqCst));
            let fate = if counted {
                line.enter(what)
            } else {
                Fate::Normal
            };
            match fate {
                Fate::Normal => {}
                Fate::Last => {
                    line.crashed.notify_one();
                    return std::future::pending().await;
                }
                Fate::LastCarriedOut => {
                    let _ = call.await;
                    line.crashed.notify_one();
                    return std::future::pending().await;
                }
            }
            let mishap = if kubernetes {
                line.sky.draw()
            } else {
                Mishap::None
            };
            match mishap {
                Mishap::Refused(code) => Ok(refusal(code)),
                Mishap::Lost => {
                    call.await?;
                    Err("the connection was reset".into())
                }
                Mishap::None => {
                    let answer: http::Response<R> = call.await?;
                    Ok(answer.map(|body| Answer::Whole(Box::pin(body))))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "asks without end")]
    async fn who_asks_again_and_again_without_waiting_is_stopped() {
        let trace = Trace::default();
        for _ in 0..2 {
            for _ in 0..RESTLESS / 2 {
                trace.write(format_args!("GET /version"));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..RESTLESS {
            trace.write(format_args!("GET /version"));
        }
    }
}
