//! An open watch.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::session::Session;

/// How long the next event may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// An open watch of one session.
#[derive(Debug)]
pub struct Watch<'a> {
    session: &'a Session,
    status: u16,
    body: Incoming,
    buffer: Vec<u8>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(session: &'a Session, response: http::Response<Incoming>) -> Self {
        let status = response.status().as_u16();
        Self {
            session,
            status,
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }

    /// Writes down the status with which the watch was opened.
    pub async fn opened(&self, label: &str) {
        self.session
            .note(label, json!({"status": self.status}))
            .await;
    }

    /// The next event, unmasked; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(event(&line));
            }
            let Ok(frame) = timeout(PATIENCE, self.body.frame()).await else {
                return Some(json!("no event in time"));
            };
            match frame
                .and_then(Result::ok)
                .map(|frame| frame.into_data().unwrap_or_default())
            {
                Some(data) => self.buffer.extend_from_slice(&data),
                None if self.buffer.is_empty() => return None,
                None => return Some(event(&std::mem::take(&mut self.buffer))),
            }
        }
    }

    /// Writes down the next `count` events.
    pub async fn expect(&mut self, label: &str, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        for _ in 0..count {
            let event = self.next().await.unwrap_or_else(|| json!("end of stream"));
            let over = event.is_string();
            events.push(event);
            if over {
                break;
            }
        }
        self.session.note(label, json!(events)).await;
        events
    }

    /// Writes down all events until the server ends the stream.
    pub async fn until_end(&mut self, label: &str) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let over = event.is_string();
            events.push(event);
            if over {
                break;
            }
        }
        self.session.note(label, json!(events)).await;
        events
    }

    /// Writes down events up to and including the first of type `kind`.
    pub async fn until(&mut self, label: &str, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let over = event.is_string() || event["type"] == kind;
            events.push(event);
            if over {
                break;
            }
        }
        self.session.note(label, json!(events)).await;
        events
    }
}

fn event(line: &[u8]) -> Value {
    serde_json::from_slice(line)
        .unwrap_or_else(|_| json!(String::from_utf8_lossy(&Bytes::copy_from_slice(line))))
}
