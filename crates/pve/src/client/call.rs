//! One request and one answer, before and after they have types.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Body;
use crate::error::{Error, Result};
use crate::params::Params;

/// One request to the API.
pub(crate) struct Call {
    /// What metrics and spans call it.
    pub(crate) name: &'static str,
    pub(crate) method: Method,
    /// The path below `/api2/json`, escaped.
    pub(crate) path: String,
    pub(crate) payload: Payload,
    pub(crate) deadline: Option<Duration>,
    /// The key of a wish to go on as a WebSocket.
    pub(crate) upgrade: Option<String>,
    /// Whether doing it twice is the same as doing it once.
    safe: bool,
}

pub(crate) enum Payload {
    Params(Params),
    /// A body that can be sent once, with its content type and length.
    Stream {
        content_type: String,
        length: u64,
        body: Option<Body>,
    },
}

impl Call {
    pub(crate) fn new(name: &'static str, method: Method, path: impl Into<String>) -> Self {
        Self {
            name,
            safe: method == Method::GET,
            method,
            path: path.into(),
            payload: Payload::Params(Params::new()),
            deadline: None,
            upgrade: None,
        }
    }

    pub(crate) fn get(name: &'static str, path: impl Into<String>) -> Self {
        Self::new(name, Method::GET, path)
    }

    pub(crate) fn post(name: &'static str, path: impl Into<String>) -> Self {
        Self::new(name, Method::POST, path)
    }

    pub(crate) fn put(name: &'static str, path: impl Into<String>) -> Self {
        Self::new(name, Method::PUT, path)
    }

    pub(crate) fn delete(name: &'static str, path: impl Into<String>) -> Self {
        Self::new(name, Method::DELETE, path)
    }

    pub(crate) fn params(mut self, params: Params) -> Self {
        self.payload = Payload::Params(params);
        self
    }

    /// Sends a body that is there once.
    pub(crate) fn stream(&mut self, content_type: String, length: u64, body: Body) {
        self.payload = Payload::Stream {
            content_type,
            length,
            body: Some(body),
        };
    }

    pub(crate) fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Wishes to go on as a WebSocket. Such a call is made once: what it leads to has one visitor.
    pub(crate) fn upgrade(mut self, key: String) -> Self {
        self.upgrade = Some(key);
        self.safe = false;
        self
    }

    /// Declares that repeating the call does no harm, though it is no GET.
    pub(crate) fn harmless(mut self) -> Self {
        self.safe = true;
        self
    }

    /// Whether the call changes nothing, so that repeating it is always safe.
    pub(crate) fn is_read(&self) -> bool {
        self.safe
    }

    /// Whether the request can be built a second time.
    pub(crate) fn is_repeatable(&self) -> bool {
        match &self.payload {
            Payload::Params(_) => true,
            Payload::Stream { body, .. } => body.is_some(),
        }
    }
}

/// An answer that was read to its end.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    /// The text of the status line, where the transport hands it on.
    pub(crate) phrase: Option<String>,
    /// The connection, once the server has agreed to go on as a WebSocket.
    pub(crate) upgrade: Option<hyper::upgrade::OnUpgrade>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    errors: Option<BTreeMap<String, Value>>,
}

impl Answer {
    /// What the server said about a failure.
    pub(crate) fn reason(&self) -> String {
        if let Ok(Failure {
            message: Some(message),
            ..
        }) = serde_json::from_slice(&self.body)
        {
            return message.trim().to_owned();
        }
        if let Some(phrase) = self.phrase.as_deref().filter(|phrase| !phrase.is_empty()) {
            return phrase.to_owned();
        }
        let body = String::from_utf8_lossy(&self.body);
        let line = body.lines().next().unwrap_or_default().trim();
        if line.is_empty() {
            format!("HTTP status {}", self.status)
        } else {
            line.chars().take(500).collect()
        }
    }

    /// Makes an error of every status but success.
    pub(crate) fn checked(self) -> Result<Self> {
        if (200..300).contains(&self.status) || self.upgrade.is_some() {
            return Ok(self);
        }
        let errors = serde_json::from_slice::<Failure>(&self.body)
            .ok()
            .and_then(|failure| failure.errors);
        let errors = errors
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| match value {
                Value::String(text) => (key, text),
                other => (key, other.to_string()),
            })
            .collect();
        Err(Error::from_text(Some(self.status), &self.reason(), errors))
    }

    /// Decodes the `data`.
    pub(crate) fn decode<T: DeserializeOwned>(&self, call: &'static str) -> Result<T> {
        match serde_json::from_slice::<Envelope<T>>(&self.body) {
            Ok(envelope) => Ok(envelope.data),
            Err(cause) => Err(Error::Decode {
                call,
                cause: Arc::new(cause),
            }),
        }
    }
}

/// The wrapper around every answer.
#[derive(Deserialize)]
struct Envelope<T> {
    data: T,
}
