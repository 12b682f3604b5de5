//! The control surface over HTTP: `/sim/…` beside PVE's API.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};

use super::Fault;
use crate::http::{BoxError, Endpoint};

const BODY_LIMIT: usize = 1 << 20;

/// Answers a request for `/sim/…`.
pub(crate) async fn answer<B>(endpoint: &Endpoint, parts: &Parts, body: B) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let body = Limited::new(Box::pin(body), BODY_LIMIT).collect().await;
    let body = body
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let (status, value) = match act(endpoint, parts, &body) {
        Ok(value) => (StatusCode::OK, value),
        Err((status, text)) => (status, json!({ "error": text })),
    };
    let mut response = Response::new(Full::new(Bytes::from(format!("{value}\n"))));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

type Outcome = Result<Value, (StatusCode, String)>;

fn act(endpoint: &Endpoint, parts: &Parts, body: &[u8]) -> Outcome {
    let cluster = endpoint.cluster();
    let control = cluster.control();
    let path = parts.uri.path().trim_start_matches("/sim/");
    let path: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    match (&parts.method, &path[..]) {
        (&Method::GET, ["counts"]) => Ok(json!(control.counts())),
        (&Method::DELETE, ["counts"]) => {
            control.reset_counts();
            Ok(Value::Null)
        }
        (&Method::GET, ["routes"]) => Ok(json!(cluster.table().names())),
        (&Method::GET, ["faults"]) => Ok(json!(control.faults())),
        (&Method::POST, ["faults"]) => {
            let fault: Fault = serde_json::from_slice(body).map_err(bad)?;
            Ok(json!({ "id": control.inject(fault) }))
        }
        (&Method::DELETE, ["faults"]) => {
            control.clear();
            Ok(Value::Null)
        }
        (&Method::DELETE, ["faults", id]) => match id.parse() {
            Ok(id) if control.remove(id) => Ok(Value::Null),
            _ => Err((StatusCode::NOT_FOUND, format!("no fault '{id}'"))),
        },
        (&Method::GET, ["state"]) => cluster
            .world(|world| serde_json::to_value(world))
            .map_err(bad),
        (&Method::POST, ["nodes", node, act @ ("kill" | "revive" | "blind")]) => {
            if !cluster.nodes().iter().any(|known| known == node) {
                return Err((StatusCode::NOT_FOUND, format!("no node '{node}'")));
            }
            match *act {
                "kill" => cluster.kill_node(node),
                "blind" => cluster.blind_node(node),
                _ => cluster.revive_node(node),
            }
            Ok(Value::Null)
        }
        (&Method::POST, ["partition"]) => {
            let parts: Vec<Vec<String>> = serde_json::from_slice(body).map_err(bad)?;
            cluster.partition(&parts);
            Ok(Value::Null)
        }
        (&Method::DELETE, ["partition"]) => {
            cluster.heal();
            Ok(Value::Null)
        }
        (&Method::POST, ["quorum", "lose"]) => {
            cluster.lose_quorum();
            Ok(Value::Null)
        }
        (method, ["guests", rest @ ..]) => super::guest::act(cluster, method, rest, body),
        _ => Err((
            StatusCode::NOT_FOUND,
            format!("no control '{} /sim/{}'", parts.method, path.join("/")),
        )),
    }
}

fn bad(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, error.to_string())
}
