//! The load: what each server is asked to do, and how long it took.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use testbed::http::Client;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::{report::Row, subject::Subject};

const JSON: &[(&str, &str)] = &[
    ("content-type", "application/json"),
    ("accept", "application/json"),
];
const MAPS: &str = "/api/v1/namespaces/bench/configmaps";
/// How many changes the latency of watches is taken from.
const OBSERVED: usize = 500;
const LISTS: usize = 5;

/// Puts one server through everything.
pub(crate) async fn measure(subject: &Subject, objects: usize, clients: usize) -> Result<Row> {
    let admin = subject.client()?;
    sleep(Duration::from_secs(3)).await;
    let idle = subject.memory()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}});
    expect(&admin, Method::POST, "/api/v1/namespaces", &namespace).await?;

    let connections = (0..clients)
        .map(|_| subject.client())
        .collect::<Result<Vec<_>>>()?;
    tell("creating");
    let creates = rate(&connections, objects, |name| {
        (Method::POST, MAPS.to_owned(), config_map(name, "created"))
    })
    .await?;
    let loaded = subject.memory()?;
    tell("updating");
    let updates = rate(&connections, objects, |name| {
        let path = format!("{MAPS}/object-{name}");
        (Method::PUT, path, config_map(name, "updated"))
    })
    .await?;
    tell("listing");
    let list = list(&admin, objects).await?;
    tell("watching");
    let (watch_p50, watch_p99) = latency(&admin, &subject.client()?).await?;
    Ok(Row {
        server: subject.kind.name().to_owned(),
        start_seconds: subject.started_in.as_secs_f64(),
        memory_idle_mb: megabytes(idle),
        memory_loaded_mb: megabytes(loaded),
        creates_per_second: creates,
        updates_per_second: updates,
        list_seconds: list,
        watch_p50_ms: watch_p50,
        watch_p99_ms: watch_p99,
    })
}

/// Progress for whoever waits.
fn tell(phase: &str) {
    anstream::eprintln!("  {phase}");
}

#[expect(
    clippy::cast_precision_loss,
    reason = "figures for people, far below 2^52"
)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// An object of about half a kilobyte, as controllers write them.
fn config_map(name: usize, state: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("object-{name}"),
            "labels": {"app.kubernetes.io/name": "bench", "shard": (name % 16).to_string()},
        },
        "data": {
            "state": state,
            "number": name.to_string(),
            "text": "x".repeat(256),
        },
    })
}

async fn expect(client: &Client, method: Method, path: &str, body: &Value) -> Result<()> {
    let body = Bytes::from(body.to_string());
    let answer = client.send(&method, path, JSON, body).await?;
    ensure!(
        answer.status.is_success(),
        "{method} {path}: {} {}",
        answer.status,
        String::from_utf8_lossy(&answer.body)
    );
    Ok(())
}

/// Writes `count` objects through all connections at once; returns writes per second.
#[expect(
    clippy::cast_precision_loss,
    reason = "figures for people, far below 2^52"
)]
async fn rate(
    connections: &[Client],
    count: usize,
    write: impl Fn(usize) -> (Method, String, Value) + Clone + Send + Sync + 'static,
) -> Result<f64> {
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let writers = connections.iter().map(|client| {
        let (client, next, write) = (client.clone(), Arc::clone(&next), write.clone());
        tokio::spawn(async move {
            loop {
                let name = next.fetch_add(1, Ordering::Relaxed);
                if name >= count {
                    return anyhow::Ok(());
                }
                let (method, path, body) = write(name);
                expect(&client, method, &path, &body).await?;
            }
        })
    });
    for written in try_join_all(writers).await? {
        written?;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// The median time to list everything.
async fn list(client: &Client, objects: usize) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..LISTS {
        let start = Instant::now();
        let answer = client.send(&Method::GET, MAPS, JSON, Bytes::new()).await?;
        times.push(start.elapsed().as_secs_f64());
        let found = answer.body.windows(9).filter(|w| w == b"\"number\":");
        // The record of who owns which fields names them as `f:number`.
        let found = found.count();
        ensure!(found == objects, "listed {found} of {objects} objects");
    }
    times.sort_by(f64::total_cmp);
    Ok(times[LISTS / 2])
}

/// The time from sending a change to seeing it in a watch: the median and the 99th percentile, in milliseconds.
async fn latency(writer: &Client, watcher: &Client) -> Result<(f64, f64)> {
    let path = format!("{MAPS}?watch=true&fieldSelector=metadata.name=object-0");
    let response = watcher
        .open(&Method::GET, &path, JSON, Bytes::new())
        .await?;
    let (seen, mut events) = mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        let mut body = response.into_body();
        let mut text = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else {
                continue;
            };
            text.extend_from_slice(&data);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let at = Instant::now();
                if seen.send((at, line)).is_err() {
                    return;
                }
            }
        }
    });
    // The object as it is comes first.
    events.recv().await;
    let mut times = Vec::with_capacity(OBSERVED);
    for change in 0..OBSERVED {
        let state = format!("change-{change}");
        let body = config_map(0, &state);
        let sent = Instant::now();
        expect(writer, Method::PUT, &format!("{MAPS}/object-0"), &body).await?;
        let Some((at, line)) = events.recv().await else {
            bail!("the watch ended");
        };
        let needle = format!("\"{state}\"");
        ensure!(
            line.windows(needle.len()).any(|w| w == needle.as_bytes()),
            "the watch shows something else"
        );
        times.push(at.duration_since(sent).as_secs_f64() * 1e3);
    }
    reading.abort();
    times.sort_by(f64::total_cmp);
    Ok((times[OBSERVED / 2], times[OBSERVED * 99 / 100]))
}
