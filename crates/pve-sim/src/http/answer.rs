//! Turns replies and failures into PVE's answers.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, DATE, EXPIRES, HeaderValue, PRAGMA, SERVER,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use hyper::ext::ReasonPhrase;
use serde_json::{Value, json};
use tokio::io::DuplexStream;

use super::websocket::Tunnel;
use crate::clock::http_date;
use crate::failure::{Body, Failure};

/// The format the client chose by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// `/api2/json`
    Json,
    /// `/api2/extjs`: always 200, success in the body.
    Extjs,
}

/// What an answer carries when the call went well.
pub(super) enum Content {
    Data(Value),
    /// Data that is JSON already.
    Json(Vec<u8>),
    Counted(Value, usize),
    Text(String),
    Tunnel(DuplexStream, u16),
}

type Answer = Response<Full<Bytes>>;

const JSON_TYPE: HeaderValue = HeaderValue::from_static("application/json;charset=UTF-8");
const TEXT_TYPE: HeaderValue = HeaderValue::from_static("text/plain");

/// The answer of a call that went well.
pub(super) fn success(content: Content, style: Style, now: u64) -> Answer {
    let (kind, body) = match content {
        Content::Text(text) => (TEXT_TYPE, text.into_bytes()),
        Content::Data(data) => (
            JSON_TYPE,
            wrap(&serde_json::to_vec(&data).unwrap_or_default(), None, style),
        ),
        Content::Json(data) => (JSON_TYPE, wrap(&data, None, style)),
        Content::Tunnel(pipe, port) => {
            let data = json!({ "port": port.to_string() }).to_string();
            let body = wrap(data.as_bytes(), None, style);
            let mut answer = build(200, None, Some(JSON_TYPE), body, now);
            answer.extensions_mut().insert(Tunnel::new(pipe));
            return answer;
        }
        Content::Counted(data, total) => (
            JSON_TYPE,
            wrap(
                &serde_json::to_vec(&data).unwrap_or_default(),
                Some(total),
                style,
            ),
        ),
    };
    build(200, None, Some(kind), body, now)
}

fn wrap(data: &[u8], total: Option<usize>, style: Style) -> Vec<u8> {
    let mut body = Vec::with_capacity(data.len() + 40);
    body.extend_from_slice(b"{\"data\":");
    body.extend_from_slice(data);
    // Perl takes a count of none for no count.
    if let Some(total) = total.filter(|total| *total > 0) {
        body.extend_from_slice(format!(",\"total\":{total}").as_bytes());
    }
    if style == Style::Extjs {
        body.extend_from_slice(b",\"success\":1");
    }
    body.push(b'}');
    body
}

/// The answer of a call that failed.
pub(super) fn failure(failure: &Failure, style: Style, now: u64) -> Answer {
    let message = match failure.body {
        Body::Line => format!("{}\n", failure.message),
        _ => failure.message.clone(),
    };
    let mut body = json!({ "data": null, "message": message });
    if !failure.errors.is_empty() {
        body["errors"] = json!(failure.errors);
    }
    let json_like = matches!(failure.body, Body::Line | Body::Bare);
    if style == Style::Extjs && json_like {
        body["success"] = json!(0);
        body["status"] = json!(failure.status);
        return build(
            200,
            None,
            Some(JSON_TYPE),
            body.to_string().into_bytes(),
            now,
        );
    }
    let (kind, bytes) = match failure.body {
        Body::Empty => (None, Vec::new()),
        Body::Plain => (Some(TEXT_TYPE), failure.message.clone().into_bytes()),
        _ => (Some(JSON_TYPE), body.to_string().into_bytes()),
    };
    build(failure.status, Some(failure.reason()), kind, bytes, now)
}

fn build(
    status: u16,
    reason: Option<&str>,
    kind: Option<HeaderValue>,
    body: Vec<u8>,
    now: u64,
) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    common_headers(answer.headers_mut(), now);
    if let Some(kind) = kind {
        answer.headers_mut().insert(CONTENT_TYPE, kind);
    }
    if let Some(reason) =
        reason.and_then(|text| ReasonPhrase::try_from(text.as_bytes().to_vec()).ok())
    {
        answer.extensions_mut().insert(reason);
    }
    answer
}

fn common_headers(headers: &mut HeaderMap, now: u64) {
    headers.insert(SERVER, HeaderValue::from_static("pve-api-daemon/3.0"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=0"));
    headers.insert(CONNECTION, HeaderValue::from_static("Keep-Alive"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    if let Ok(date) = HeaderValue::from_str(&http_date(now)) {
        headers.insert(EXPIRES, date.clone());
        headers.insert(DATE, date);
    }
}
