//! Faults: which requests they hit and what they do to them.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

/// What happens to a request that is hit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Answers with an error instead of acting.
    Error {
        /// The HTTP status.
        status: u16,
        /// PVE's text.
        message: String,
    },
    /// Acts and answers, but later.
    Delay {
        /// Milliseconds before acting.
        ms: u64,
    },
    /// Acts, then closes the connection without an answer.
    DropAnswer,
    /// Closes the connection without acting.
    DropRequest,
    /// Acts, then answers with a proxy status such as 595 or 596.
    Proxy {
        /// 595 to 599.
        status: u16,
    },
    /// Neither acts nor answers until the client gives up.
    Hang,
    /// Acts and answers, but the task it starts dies at the first thing that takes time, and cleans up as it does.
    FailTask {
        /// What it dies of.
        exit: String,
    },
}

/// A fault and the requests it is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// A route (`POST /nodes/{node}/qemu/{vmid}/clone`), a request
    /// (`POST /nodes/pve1/qemu/100/clone`), or either with `*` for any text.
    pub route: String,
    /// How likely a matching request is hit.
    #[serde(default = "always")]
    pub probability: f64,
    /// Hits only the nth matching request, counted from one.
    #[serde(default)]
    pub nth: Option<u64>,
    /// How many requests are hit before the fault is gone.
    #[serde(default)]
    pub times: Option<u64>,
    /// What it does.
    #[serde(flatten)]
    pub action: Action,
}

fn always() -> f64 {
    1.0
}

impl Fault {
    /// A fault that hits every request of `route`.
    pub fn every(route: impl Into<String>, action: Action) -> Self {
        Self {
            route: route.into(),
            probability: 1.0,
            nth: None,
            times: None,
            action,
        }
    }

    /// A fault that hits the next request of `route` only.
    pub fn once(route: impl Into<String>, action: Action) -> Self {
        Self {
            times: Some(1),
            ..Self::every(route, action)
        }
    }

    /// A fault that hits only the `nth` request of `route` from now, counted from one.
    pub fn nth(route: impl Into<String>, nth: u64, action: Action) -> Self {
        Self {
            nth: Some(nth),
            ..Self::every(route, action)
        }
    }

    /// A fault that hits a request of `route` with this probability.
    pub fn sometimes(route: impl Into<String>, probability: f64, action: Action) -> Self {
        Self {
            probability,
            ..Self::every(route, action)
        }
    }
}

impl Action {
    /// A delay.
    pub fn delay(time: Duration) -> Self {
        Self::Delay {
            ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Its name, as in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Error { .. } => "error",
            Self::Delay { .. } => "delay",
            Self::DropAnswer => "drop-answer",
            Self::DropRequest => "drop-request",
            Self::Proxy { .. } => "proxy",
            Self::Hang => "hang",
            Self::FailTask { .. } => "fail-task",
        }
    }

    /// An error that PVE's handlers die of.
    pub fn die(message: impl Into<String>) -> Self {
        Self::Error {
            status: 500,
            message: message.into(),
        }
    }
}

/// A fault with its counters.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) fault: Fault,
    seen: u64,
    hit: u64,
}

impl Armed {
    pub(super) fn new(fault: Fault) -> Self {
        Self {
            fault,
            seen: 0,
            hit: 0,
        }
    }

    /// The action, if this request is hit.
    pub(super) fn hits(&mut self, route: &str, path: &str, rng: &mut StdRng) -> Option<Action> {
        if !matches(&self.fault.route, route) && !matches(&self.fault.route, path) {
            return None;
        }
        self.seen += 1;
        if self.fault.nth.is_some_and(|nth| nth != self.seen) {
            return None;
        }
        if self.fault.probability < 1.0 && rng.random::<f64>() >= self.fault.probability {
            return None;
        }
        self.hit += 1;
        Some(self.fault.action.clone())
    }

    /// Whether it can hit nothing more.
    pub(super) fn is_spent(&self) -> bool {
        self.fault.times.is_some_and(|times| self.hit >= times)
            || self.fault.nth.is_some_and(|nth| self.seen >= nth)
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        if let Some(part) = last.replace(part) {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => rest.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("*", "GET /version"));
        assert!(matches("POST *", "POST /a/b"));
        assert!(matches(
            "* /nodes/{node}/qemu/*/clone",
            "POST /nodes/{node}/qemu/{vmid}/clone"
        ));
        assert!(!matches("POST *", "GET /a/b"));
        assert!(!matches("GET /version", "GET /versions"));
    }

    #[test]
    fn the_nth_matching_request_is_hit_and_no_other() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut armed = Armed::new(Fault::nth("GET *", 2, Action::Hang));
        let mut hits = |text| armed.hits(text, text, &mut rng).is_some();
        assert_eq!(
            ["GET /a", "PUT /a", "GET /b", "GET /c"].map(&mut hits),
            [false, false, true, false]
        );
    }
}
