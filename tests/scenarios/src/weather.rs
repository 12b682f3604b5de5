//! What goes wrong between the controllers and the Kubernetes API: conflicts, errors, lost answers, a server that
//! restarts, watches that break off.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::{Tally, dice::Dice, gate::BoxError};

/// How likely each mishap is for one changing call, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Refused with 409, as if somebody else had been faster.
    pub conflict: u64,
    /// Refused with 500.
    pub error: u64,
    /// Carried out, and the answer is lost.
    pub lost: u64,
}

/// What becomes of a changing call.
pub(crate) enum Mishap {
    None,
    Refused(u16),
    Lost,
}

/// The state of the line to the Kubernetes API.
#[derive(Debug)]
pub(crate) struct Sky {
    state: Mutex<(Weather, Dice)>,
    down: AtomicBool,
    /// Cancelled with the next cut, for all who watch by then in the order in which they came.
    cut: Mutex<CancellationToken>,
    /// What calls and watches have met with.
    met: Arc<Met>,
}

#[derive(Debug, Default)]
struct Met(Mutex<Tally>);

impl Met {
    fn add(&self, what: &str) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.add(format!("fault: {what}"), 1);
    }
}

impl Default for Sky {
    fn default() -> Self {
        Self {
            state: Mutex::new((Weather::default(), Dice::new(0))),
            down: AtomicBool::new(false),
            cut: Mutex::default(),
            met: Arc::default(),
        }
    }
}

impl Sky {
    pub(crate) fn set(&self, weather: Weather, seed: u64) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = (weather, Dice::new(seed));
    }

    /// The server is away, or back. Going breaks all watches off.
    pub(crate) fn down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
        if down {
            self.cut();
        }
    }

    /// Whether a call finds the server away.
    pub(crate) fn is_down(&self) -> bool {
        let down = self.down.load(Ordering::SeqCst);
        if down {
            self.met.add("api-away");
        }
        down
    }

    /// How often something went wrong with a call or a watch.
    pub(crate) fn met(&self) -> Tally {
        let tally = self.met.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.clone()
    }

    /// Breaks all watches off.
    pub(crate) fn cut(&self) {
        let mut next = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *next).cancel();
    }

    pub(crate) fn draw(&self) -> Mishap {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (weather, dice) = &mut *state;
        if *weather == Weather::default() {
            return Mishap::None;
        }
        let number = dice.below(1000);
        if number < weather.conflict {
            self.met.add("api-conflict");
            Mishap::Refused(409)
        } else if number < weather.conflict + weather.error {
            self.met.add("api-error");
            Mishap::Refused(500)
        } else if number < weather.conflict + weather.error + weather.lost {
            self.met.add("api-lost-answer");
            Mishap::Lost
        } else {
            Mishap::None
        }
    }

    /// An answer that breaks off with the next cut.
    pub(crate) fn breakable<R>(&self, body: R) -> Answer<R> {
        let cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        let (broken, met) = (cut.clone().cancelled_owned(), self.met.clone());
        let broken = async move {
            broken.await;
            met.add("broken-watch");
        };
        Answer::Breakable(Box::pin(body), Box::pin(broken))
    }
}

type Broken = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The body of an answer that came through the line.
pub(crate) enum Answer<R> {
    /// As it was sent.
    Whole(Pin<Box<R>>),
    /// As it was sent, until the line breaks.
    Breakable(Pin<Box<R>>, Broken),
    /// Something the line says itself.
    Said(Option<Bytes>),
    /// Nothing comes any more.
    Over,
}

impl<R> http_body::Body for Answer<R>
where
    R: http_body::Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match this {
            Answer::Whole(body) => body
                .as_mut()
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map_err(Into::into))),
            Answer::Breakable(body, broken) => {
                if broken.as_mut().poll(context).is_ready() {
                    *this = Answer::Over;
                    return Poll::Ready(Some(Err("the connection was reset".into())));
                }
                body.as_mut()
                    .poll_frame(context)
                    .map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Answer::Said(text) => {
                Poll::Ready(text.take().map(|text| Ok(http_body::Frame::data(text))))
            }
            Answer::Over => Poll::Ready(None),
        }
    }
}

/// A refusal in the API server's words.
pub(crate) fn refusal<R>(code: u16) -> http::Response<Answer<R>> {
    let reason = if code == 409 {
        "Conflict"
    } else {
        "InternalError"
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the weather is bad", "reason": reason, "code": code,
    });
    http::Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(Answer::Said(Some(Bytes::from(status.to_string()))))
        .expect("a status and a header make an answer")
}
