//! The API of one node as a tower service.
//!
//! The checks come in PVE's order: the path as far as the output format (`/api2/json`), the verb,
//! the credentials with their CSRF token, the format's name, the body's encoding, the method behind
//! the path, whether a token may, the declared permission, the node to ask, the parameters, the
//! handler. Only what can be told from the first parts of the path is told to strangers: PVE
//! authenticates before it looks a method up, so nobody without credentials finds out which exist.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, header};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::BoxError;
use super::answer::{self, Content, Style};
use super::{decode, multipart};
use crate::access::Caller;
use crate::access::ticket::Credentials;
use crate::call::{Call, Reply, Upload};
use crate::cluster::Cluster;
use crate::control::Action;
use crate::failure::Failure;
use crate::params::Params;
use crate::permission::Perm;
use crate::route::Route;
use crate::schema::format;

/// How long PVE makes a client wait whose authentication failed.
const REFUSAL: Duration = Duration::from_secs(3);
/// How long it takes to find out that a node does not answer.
const NO_ROUTE: Duration = Duration::from_secs(3);

/// The API of one node; clones are the same node.
#[derive(Clone)]
pub struct Endpoint {
    cluster: Cluster,
    node: String,
}

/// There is no answer: the node is down, or a fault cut the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Nobody accepted the connection.
    Refused,
    /// The connection was cut; the call may have acted.
    Closed,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::Closed => "connection closed before the answer",
        })
    }
}

impl std::error::Error for Lost {
    /// The error a socket would have given: a client can tell that nothing was sent.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        static REFUSED: LazyLock<io::Error> =
            LazyLock::new(|| io::ErrorKind::ConnectionRefused.into());
        match self {
            Self::Refused => Some(&*REFUSED),
            Self::Closed => None,
        }
    }
}

type Answer = Response<Full<Bytes>>;

impl Endpoint {
    pub(crate) fn new(cluster: Cluster, node: String) -> Self {
        Self { cluster, node }
    }

    /// The cluster behind it.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The node it belongs to.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Result<Answer, Lost>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let started = Instant::now();
        self.cluster.start_services();
        let (parts, body) = request.into_parts();
        if parts.uri.path().starts_with("/sim/") {
            return Ok(crate::control::http::answer(self, &parts, body).await);
        }
        if !self
            .cluster
            .world(|world| world.nodes.get(&self.node).is_some_and(|it| it.up))
        {
            return Err(Lost::Refused);
        }
        let (style, path) = match api_path(parts.uri.path()) {
            Ok(found) => found,
            Err(failure) => return Ok(answer::failure(&failure, Style::Json, self.now())),
        };
        let result = self.call(&parts, body, style.as_ref(), &path).await;
        let result = match result {
            Ok(content) => Ok(content),
            Err(Stop::Lost(lost)) => return Err(lost),
            Err(Stop::Failed(failure)) => Err(failure),
        };
        let style = style.unwrap_or(Style::Json);
        match result {
            Ok(content) => Ok(answer::success(content, style, self.now())),
            Err(failure) => {
                if failure.status == 401 && self.cluster.world(|world| world.slow_refusals) {
                    sleep_until(started + REFUSAL).await;
                }
                Ok(answer::failure(&failure, style, self.now()))
            }
        }
    }

    fn now(&self) -> u64 {
        self.cluster.world(|world| world.now())
    }

    async fn call<B>(
        &self,
        parts: &Parts,
        body: B,
        style: Result<&Style, &String>,
        path: &str,
    ) -> Result<Content, Stop>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let method = &parts.method;
        if ![Method::GET, Method::POST, Method::PUT, Method::DELETE].contains(method) {
            let text = format!("method '{method}' not available");
            return Err(Failure::empty(501, text).into());
        }
        let found = self.cluster.table().find(method, path);
        let action = match &found {
            Some((route, _)) => self
                .cluster
                .control()
                .arrive(&route.name(), &format!("{method} {path}")),
            None => None,
        };
        let after = self.before(action).await?;
        let open = found
            .as_ref()
            .is_some_and(|(route, _)| matches!(route.perm, Perm::World));
        let is_upload = found.as_ref().is_some_and(|(route, _)| route.upload);
        let credentials = credentials(parts);
        let caller = if open && credentials.api_token.is_none() {
            Caller::nobody()
        } else {
            let changes = method != Method::GET && !is_upload;
            self.cluster.world(|world| {
                world
                    .access
                    .authenticate(&credentials, changes, world.now())
            })?
        };
        if let Err(format) = style {
            let text = format!("no formatter for uri {path}, format {format}");
            return Err(Failure::empty(501, text).into());
        }
        let (mut params, upload) = read(parts, body, is_upload).await?;
        let Some((route, in_path)) = found else {
            return Err(Failure::not_implemented(method.as_str(), path).into());
        };
        merge(&mut params, &in_path)?;
        let fatal = match &after {
            After::FailTask(exit) => Some(exit.as_str()),
            _ => None,
        };
        let reply = self.routed(&route, params, upload, &caller, fatal).await?;
        match after {
            After::Answer | After::FailTask(_) => Ok(reply),
            After::Drop => Err(Stop::Lost(Lost::Closed)),
            After::Proxy(status) => Err(Failure::proxy(status, "Connection timed out").into()),
        }
    }

    /// What a fault does before the call is made.
    async fn before(&self, action: Option<Action>) -> Result<After, Stop> {
        match action {
            None => Ok(After::Answer),
            Some(Action::Error { status, message }) => {
                Err(Failure::die(message).with_status(status).into())
            }
            Some(Action::Delay { ms }) => {
                sleep(Duration::from_millis(ms)).await;
                Ok(After::Answer)
            }
            Some(Action::DropRequest) => Err(Stop::Lost(Lost::Closed)),
            Some(Action::DropAnswer) => Ok(After::Drop),
            Some(Action::Proxy { status }) => Ok(After::Proxy(status)),
            Some(Action::Hang) => std::future::pending().await,
            Some(Action::FailTask { exit }) => Ok(After::FailTask(exit)),
        }
    }

    async fn routed(
        &self,
        route: &Route,
        params: Params,
        upload: Option<Upload>,
        caller: &Caller,
        fatal: Option<&str>,
    ) -> Result<Content, Stop> {
        if !route.token && caller.is_token() {
            let path = route.path;
            let text = format!("URI '{path}' not available with API token, need proper ticket.\n");
            return Err(Failure::denied(text).into());
        }
        let target = if route.on_node && params.text("node") != "localhost" {
            params.text("node").to_owned()
        } else {
            self.node.clone()
        };
        let target = target.as_str();
        let (latency, reachable) = self.cluster.world(|world| {
            route.perm.check(world, caller, &params)?;
            if !world.nodes.contains_key(target) {
                return Err(Failure::die(format!(
                    "hostname lookup '{target}' failed - failed to get address info for: \
                     {target}: Temporary failure in name resolution"
                )));
            }
            let changes = route.method != Method::GET;
            let latency = if world.latency.is_none() {
                Duration::ZERO
            } else {
                world
                    .latency
                    .request(&route.name(), changes, &mut world.rng)
            };
            Ok((latency, world.reaches(&self.node, target)))
        })?;
        if !reachable {
            sleep(NO_ROUTE).await;
            return Err(Failure::proxy(595, "No route to host").into());
        }
        let workers = self.cluster.workers(target, route.protected);
        let _busy = match workers {
            Some(workers) => workers.acquire_owned().await.ok(),
            None => None,
        };
        if !latency.is_zero() {
            sleep(latency).await;
        }
        let reply = self.handle(route, params, upload, caller, target)?;
        Ok(self.finish(reply, fatal).await?)
    }

    fn handle(
        &self,
        route: &Route,
        mut params: Params,
        upload: Option<Upload>,
        caller: &Caller,
        target: &str,
    ) -> Result<Reply, Failure> {
        if params.get("node") == Some("localhost") {
            params.set("node", target);
        }
        self.cluster.world(|world| {
            route
                .schema
                .check(&mut params, world.release)
                .map_err(Failure::params)?;
            if route.writes {
                world.need_quorum(target)?;
            }
            let mut call = Call {
                world,
                params,
                caller,
                entry: &self.node,
                upload,
                cluster: &self.cluster,
            };
            (route.handler)(&mut call)
        })
    }

    async fn finish(&self, mut reply: Reply, fatal: Option<&str>) -> Result<Content, Failure> {
        loop {
            match reply {
                Reply::Data(value) => return Ok(Content::Data(value)),
                Reply::Json(bytes) => return Ok(Content::Json(bytes)),
                Reply::Counted(value, total) => return Ok(Content::Counted(value, total)),
                Reply::Text(text) => return Ok(Content::Text(text)),
                Reply::Tunnel(pipe, port) => return Ok(Content::Tunnel(pipe, port)),
                Reply::Task(mut task) => {
                    task.fatal = fatal.map(str::to_owned);
                    let upid = self.cluster.start(task);
                    return Ok(Content::Data(json!(upid.to_string())));
                }
                Reply::Later(go_on) => reply = go_on(self.cluster.clone()).await?,
            }
        }
    }
}

/// What is left to do to a request's answer.
enum After {
    Answer,
    Drop,
    Proxy(u16),
    FailTask(String),
}

/// Why a call has no content to answer with.
enum Stop {
    Failed(Failure),
    Lost(Lost),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The style (or the format that has none) and the path within the API.
fn api_path(path: &str) -> Result<(Result<Style, String>, String), Failure> {
    let Some(rest) = path.strip_prefix("/api2") else {
        return Err(Failure::plain(500, format!("no such file '{path}'")));
    };
    let in_api = rest.strip_prefix('/').map(|it| it.trim_start_matches('/'));
    let (format, rest) = in_api
        .map(|rest| rest.split_once('/').unwrap_or((rest, "")))
        .unwrap_or_default();
    let is_format = format::word(
        format,
        |c| c.is_ascii_lowercase(),
        |c| c.is_ascii_lowercase() || c.is_ascii_digit(),
    );
    if !is_format || format.len() < 2 {
        return Err(Failure::empty(501, "no such uri"));
    }
    let style = match format {
        "json" => Ok(Style::Json),
        "extjs" => Ok(Style::Extjs),
        other => Err(other.to_owned()),
    };
    let path = decode::unescape(rest, false);
    let path = path.trim_matches('/');
    Ok((style, format!("/{path}")))
}

fn credentials(parts: &Parts) -> Credentials {
    let text = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let mut found = Credentials {
        csrf: text("CSRFPreventionToken").map(str::to_owned),
        ..Credentials::default()
    };
    if let Some(value) = text("Authorization") {
        if let Some(token) = value.strip_prefix("PVEAPIToken=") {
            found.api_token = Some(decode::unescape(token.trim(), false));
        } else if let Some(ticket) = value.strip_prefix("PVEAuthCookie=") {
            found.ticket = Some(decode::unescape(ticket, false));
        }
    }
    if let Some(cookies) = text("Cookie")
        && let Some(ticket) = cookies
            .split(';')
            .find_map(|it| it.trim().strip_prefix("PVEAuthCookie="))
    {
        found.ticket = Some(decode::unescape(ticket, false)).filter(|ticket| !ticket.is_empty());
    }
    found
}

async fn read<B>(
    parts: &Parts,
    body: B,
    is_upload: bool,
) -> Result<(Params, Option<Upload>), Failure>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let kind = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default();
    let mut params = Params::new();
    let mut upload = None;
    if is_upload && kind.starts_with("multipart/form-data") {
        let boundary = kind
            .split_once("boundary=")
            .map(|(_, it)| it.trim_matches('"'));
        let boundary = boundary.ok_or_else(|| Failure::plain(501, "no multipart boundary"))?;
        let body = Box::pin(body);
        (params, upload) = multipart::read(body, boundary).await?;
    } else {
        let body = Limited::new(Box::pin(body), decode::BODY_LIMIT)
            .collect()
            .await;
        let body = body
            .map_err(|_| Failure::plain(501, "for data too large"))?
            .to_bytes();
        match parts.method {
            Method::DELETE if !body.is_empty() => {
                return Err(Failure::empty(
                    501,
                    "Unexpected content for method 'DELETE'",
                ));
            }
            Method::GET | Method::DELETE => {}
            _ => {
                let text = String::from_utf8_lossy(&body);
                let base = kind.split(';').next().unwrap_or_default().trim();
                match base {
                    "" | "application/x-www-form-urlencoded" => decode::form(&text, &mut params),
                    "application/json" => decode::json(&text, &mut params)?,
                    other => {
                        let text = format!("upload 'Content-Type '{other}' not implemented");
                        return Err(Failure::plain(506, text));
                    }
                }
            }
        }
    }
    if let Some(query) = parts.uri.query() {
        let mut over = Params::new();
        decode::form(query, &mut over);
        params.merge(over);
    }
    Ok((params, upload))
}

/// Joins the parameters of the path; one given elsewhere must agree.
fn merge(params: &mut Params, in_path: &Params) -> Result<(), Failure> {
    for (name, value) in in_path.iter() {
        if params.get(name).is_some_and(|other| other != value) {
            let text = "duplicate parameter (already defined in URI) with conflicting values!";
            return Err(Failure::param(name, text));
        }
        params.set(name, value);
    }
    Ok(())
}

impl<B> tower::Service<Request<B>> for Endpoint
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = Lost;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Lost>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let endpoint = self.clone();
        Box::pin(async move { endpoint.answer(request).await })
    }
}

impl From<Infallible> for Lost {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
