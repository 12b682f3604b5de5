//! The ways a call of the API fails, in PVE's own words.
//!
//! PVE knows few status codes: 400 for parameters, 401 for authentication, 403 for missing
//! privileges, 500 for everything a handler dies of (there is neither 404 nor 409), 501 and 506
//! for requests it cannot route or decode, and 595 to 599 when another node could not be asked.

use std::collections::BTreeMap;

/// A failed call: status, text, and the parameters at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status} {message}")]
pub struct Failure {
    /// The HTTP status.
    pub status: u16,
    /// The text without its final newline; the first line is the reason phrase.
    pub message: String,
    /// Texts per parameter, for status 400.
    pub errors: BTreeMap<String, String>,
    pub(crate) body: Body,
}

/// What the body of a failed call looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// `{"data":null,"message":"text\n"}`: what a handler died of.
    Line,
    /// The same without the newline: the router's own answers.
    Bare,
    /// Nothing at all: authentication failures.
    Empty,
    /// The text itself, not JSON: requests that could not be decoded.
    Plain,
}

impl Failure {
    fn new(status: u16, message: impl Into<String>, body: Body) -> Self {
        Self {
            status,
            message: message.into(),
            errors: BTreeMap::new(),
            body,
        }
    }

    /// A handler that dies: 500 with `message`.
    pub fn die(message: impl Into<String>) -> Self {
        Self::new(500, message, Body::Line)
    }

    /// One parameter that is wrong: 400.
    pub fn param(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::params(BTreeMap::from([(name.into(), text.into())]))
    }

    /// All parameters that are wrong: 400.
    pub fn params(errors: BTreeMap<String, String>) -> Self {
        Self {
            errors,
            ..Self::new(400, "Parameter verification failed.", Body::Line)
        }
    }

    /// A missing privilege: 403 `Permission check failed (what)`.
    pub fn denied(what: impl AsRef<str>) -> Self {
        Self::new(
            403,
            format!("Permission check failed ({})", what.as_ref()),
            Body::Line,
        )
    }

    /// A denial where several alternatives would have been enough: 403 without details.
    pub fn denied_all() -> Self {
        Self::new(403, "Permission check failed", Body::Line)
    }

    /// A 403 with a text of its own.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, message, Body::Line)
    }

    /// An authentication failure without a body: 401.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, message, Body::Empty)
    }

    /// A failure of `POST /access/ticket`: 401 with a body.
    pub fn bad_login() -> Self {
        Self::new(401, "authentication failure", Body::Line)
    }

    /// No such path or verb: 501.
    pub fn not_implemented(method: &str, path: &str) -> Self {
        Self::new(
            501,
            format!("Method '{method} {path}' not implemented"),
            Body::Bare,
        )
    }

    /// Another node could not be asked: 595 to 599, whose outcome is unknown to the caller.
    pub fn proxy(status: u16, message: impl Into<String>) -> Self {
        Self::new(status, message, Body::Empty)
    }

    /// A request the server could not decode, answered in plain text.
    pub(crate) fn plain(status: u16, message: impl Into<String>) -> Self {
        Self::new(status, message, Body::Plain)
    }

    /// A request refused before it was looked at, with an empty body.
    pub(crate) fn empty(status: u16, message: impl Into<String>) -> Self {
        Self::new(status, message, Body::Empty)
    }

    /// The same failure with any status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// The exit text a worker that dies of this reports: one line, and what the call was refused
    /// for with its status.
    pub fn exit_text(&self) -> String {
        let mut text = self.message.trim_end().replace('\n', " ");
        if matches!(self.status, 400 | 403) {
            text = format!("{} {text}", self.status);
        }
        for (name, error) in &self.errors {
            text = format!("{text} {name}: {}", error.trim_end().replace('\n', " "));
        }
        text
    }

    /// The reason phrase of the status line.
    pub(crate) fn reason(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }
}
