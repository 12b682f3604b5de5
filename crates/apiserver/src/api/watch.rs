//! Watches: the history read on from a revision, one JSON line an event.
//!
//! A watch keeps no queue. It remembers the revision it has shown and, each time the client can take
//! more, reads what came after that from the store's log. A client that stops reading
//! therefore costs nothing and holds up nobody; when the log has moved on beyond it, it is told to list anew.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

use super::{
    Api,
    context::Context,
    dispatch::Answer,
    list::{Selection, parse_version, refuse},
    render::{self, Form, Renderer},
};
use crate::{
    metrics::Watching,
    object,
    registry::Resource,
    status::{Cause, Result, Status},
    store::{Entry, Event},
    table::Include,
};

const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(40);
/// Events are handed to the transport in pieces of about this size.
const CHUNK: usize = 64 * 1024;

struct Watch {
    api: Arc<Api>,
    renderer: Renderer,
    selection: Selection,
    form: Form,
    include: Include,
    /// Keys outside of this prefix are not shown.
    prefix: String,
    /// Everything up to this revision has been shown.
    shown: u64,
    /// Objects to be shown as added before the history.
    initial: std::vec::IntoIter<Arc<Entry>>,
    /// Send the bookmark that ends the initial events.
    ends_initial: bool,
    bookmarks: bool,
    bookmarked: Instant,
    deadline: Instant,
    changes: watch::Receiver<u64>,
    stop: CancellationToken,
    headers_sent: bool,
    done: bool,
    _open: Watching,
}

impl Api {
    /// `GET` with `watch=true`.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
    ) -> Result<Answer> {
        let query = &context.query;
        let form = render::negotiate(context, resource, true)?;
        let include = Include::parse(query.text("includeObject")).map_err(Status::bad_request)?;
        let mut selection = Selection::read(context, resource)?;
        if !name.is_empty() {
            selection = selection.only(name, resource)?;
        }
        let bookmarks = query.flag("allowWatchBookmarks");
        let send_initial = query
            .get("sendInitialEvents")
            .map(|_| query.flag("sendInitialEvents"));
        check_initial(send_initial, query.text("resourceVersionMatch"), bookmarks)?;
        let version = parse_version(query.text("resourceVersion"))
            .map_err(|why| Status::foreign(500, "", why))?;
        let timeout = query
            .number::<u64>("timeoutSeconds")?
            .filter(|seconds| *seconds > 0)
            .map_or(DEFAULT_TIMEOUT, Duration::from_secs);

        // Subscribing first: what changes between the snapshot and the first wait is not missed.
        let changes = self.store.changes_of(&resource.storage);
        let prefix = if resource.namespaced && !namespace.is_empty() {
            format!("{namespace}/")
        } else {
            String::new()
        };
        let wants_initial = match send_initial {
            Some(wanted) => wanted,
            None => version.is_none_or(|v| v == 0),
        };
        let (initial, shown) = if wants_initial {
            if let Some(version) = version.filter(|v| *v > self.store.revision()) {
                self.wait_for(version).await?;
            }
            let snapshot = self
                .store
                .list(&resource.storage, &prefix, None)
                .map_err(|_| Status::internal("the current state is always there"))?;
            (snapshot.entries, snapshot.revision)
        } else {
            match version.filter(|v| *v > 0) {
                Some(version) => (Vec::new(), version),
                None => (Vec::new(), self.store.revision()),
            }
        };
        if shown < self.store.floor() {
            let status = too_old(shown, self.store.floor());
            return Ok(Answer::stream(Body::from(line(
                "ERROR",
                &status.to_value(),
            ))));
        }
        let now = Instant::now();
        let watch = Watch {
            api: Arc::clone(self),
            renderer: Renderer::new(self, resource),
            selection,
            form,
            include,
            prefix,
            shown,
            initial: initial.into_iter(),
            ends_initial: send_initial == Some(true),
            bookmarks,
            bookmarked: now,
            deadline: now + timeout,
            changes,
            stop: self.stop.clone(),
            headers_sent: false,
            done: false,
            _open: self.metrics.watching(),
        };
        Ok(Answer::stream(Body::from_stream(watch.into_stream())))
    }
}

fn check_initial(send: Option<bool>, matching: &str, bookmarks: bool) -> Result<()> {
    let field = "resourceVersionMatch";
    let mut causes = Vec::new();
    match send {
        None if !matching.is_empty() => causes.push(Cause::forbidden(
            field,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        Some(_) if matching != "NotOlderThan" => {
            causes.push(Cause::forbidden(
                field,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
            if !matching.is_empty() {
                causes.push(Cause::unsupported(field, matching, &["NotOlderThan"]));
            }
        }
        _ => {}
    }
    if send == Some(true) && !bookmarks && matching == "NotOlderThan" {
        causes.push(Cause::forbidden(
            "sendInitialEvents",
            "sendInitialEvents requires setting allowWatchBookmarks to true",
        ));
    }
    refuse(causes)
}

fn too_old(asked: u64, floor: u64) -> Status {
    Status::expired(format!("too old resource version: {asked} ({floor})"))
}

impl Watch {
    fn into_stream(self) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
        stream::unfold(self, |mut watch| async move {
            let chunk = watch.next_chunk().await?;
            Some((Ok(chunk), watch))
        })
    }

    /// The next piece of the stream; `None` ends it.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = Vec::new();
        while out.len() < CHUNK {
            let Some(entry) = self.initial.next() else {
                break;
            };
            if let Err(status) = self.show(&mut out, "ADDED", &entry, None).await {
                return Some(self.fail(out, &status));
            }
        }
        if self.initial.as_slice().is_empty() && self.ends_initial {
            self.ends_initial = false;
            let mut mark = self.bookmark();
            mark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            out.extend_from_slice(&line("BOOKMARK", &mark));
        }
        loop {
            if !out.is_empty() {
                self.headers_sent = true;
                return Some(out.into());
            }
            self.changes.borrow_and_update();
            match self
                .api
                .store
                .events(&self.renderer.resource.storage, self.shown)
            {
                Err(compacted) => {
                    self.done = true;
                    let status = too_old(self.shown, compacted.floor);
                    return Some(line("ERROR", &status.to_value()).into());
                }
                Ok((events, revision)) => {
                    for event in events {
                        if out.len() >= CHUNK {
                            break;
                        }
                        self.shown = event.revision();
                        if let Err(status) = self.show_event(&mut out, &event).await {
                            return Some(self.fail(out, &status));
                        }
                    }
                    if out.is_empty() {
                        // Whoever asks for the future waits until it is there.
                        self.shown = self.shown.max(revision);
                    }
                }
            }
            if out.is_empty() && !self.wait(&mut out).await {
                return None;
            }
        }
    }

    /// Waits for a change; false when the watch is over.
    async fn wait(&mut self, out: &mut Vec<u8>) -> bool {
        let next_mark = self.bookmarked + BOOKMARK_EVERY;
        let mark = async {
            if self.bookmarks {
                time::sleep_until(next_mark).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            changed = self.changes.changed() => changed.is_ok(),
            () = time::sleep_until(self.deadline) => false,
            () = mark => {
                self.bookmarked = Instant::now();
                let mark = self.bookmark();
                out.extend_from_slice(&line("BOOKMARK", &mark));
                true
            }
        }
    }

    fn bookmark(&self) -> Value {
        json!({
            "kind": self.renderer.resource.kind,
            "apiVersion": self.renderer.resource.api_version(),
            "metadata": {"resourceVersion": self.shown.to_string()},
        })
    }

    /// Ends the watch with what went wrong: an object that cannot be shown is not left out in silence.
    fn fail(&mut self, mut out: Vec<u8>, status: &Status) -> Bytes {
        self.done = true;
        out.extend_from_slice(&line("ERROR", &status.to_value()));
        out.into()
    }

    async fn show_event(&self, out: &mut Vec<u8>, event: &Event) -> Result<()> {
        if !event.entry.key.starts_with(&self.prefix) {
            return Ok(());
        }
        let kind = match (event.deleted, event.previous.is_some()) {
            (true, _) => "DELETED",
            (false, true) => "MODIFIED",
            (false, false) => "ADDED",
        };
        self.show(out, kind, &event.entry, event.previous.as_deref())
            .await
    }

    /// Shows one change; with selectors it is a change of what matches.
    async fn show(
        &self,
        out: &mut Vec<u8>,
        kind: &'static str,
        entry: &Entry,
        previous: Option<&Entry>,
    ) -> Result<()> {
        if self.selection.is_empty() && self.form == Form::Object {
            write_line(out, kind, &self.renderer.bytes(entry).await?);
            return Ok(());
        }
        let mut value = self.renderer.value(entry).await?;
        let matches = self.selection.matches(&value);
        let before = match previous {
            Some(previous) => Some(self.renderer.value(previous).await?),
            None => None,
        };
        let before = before.filter(|before| self.selection.matches(before));
        let matched = before.is_some();
        if let ("MODIFIED", false, Some(mut before)) = (kind, matches, before) {
            // Who selects never sees what no longer fits, only that it is gone.
            let revision = object::resource_version(&value).to_owned();
            object::set_meta(&mut before, "resourceVersion", revision);
            value = before;
        }
        let kind = match (kind, matched, matches) {
            ("ADDED", _, true) | ("MODIFIED", false, true) => "ADDED",
            ("DELETED", true, _) | ("MODIFIED", true, false) => "DELETED",
            ("MODIFIED", true, true) => "MODIFIED",
            _ => return Ok(()),
        };
        value = match self.form {
            Form::Object => value,
            Form::Metadata => render::metadata_only(&value),
            Form::Table => {
                let resource = &self.renderer.resource;
                let headers = !self.headers_sent && out.is_empty();
                self.api
                    .watch_table(resource, &value, self.include, headers)
            }
        };
        out.extend_from_slice(&line(kind, &value));
        Ok(())
    }
}

fn line(kind: &str, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_line(&mut out, kind, object.to_string().as_bytes());
    out
}

fn write_line(out: &mut Vec<u8>, kind: &str, object: &[u8]) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object.trim_ascii_end());
    out.extend_from_slice(b"}\n");
}
