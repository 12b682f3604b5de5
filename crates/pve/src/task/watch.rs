//! Waits for many tasks at the cost of one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Source, TaskEnd, TaskFilter};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::id::NodeName;
use crate::upid::Upid;

/// More tasks than a node ever runs at once.
const ALL: u32 = 5000;

/// Waits for tasks; clones share the asking.
///
/// There is no task of its own behind it: whoever waits takes a turn at asking for all, and hands on when its own
/// task has ended or its wait was given up.
#[derive(Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    waiting: Mutex<Waiting>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    tasks: BTreeMap<Upid, Vec<oneshot::Sender<Result<TaskEnd>>>>,
    /// When somebody last began to wait: what is new is looked at more often.
    newest: Option<Instant>,
}

impl Watch {
    /// A watch over the tasks of one cluster.
    pub fn new(client: Client) -> Self {
        let turn = tokio::sync::Mutex::new(());
        Self {
            shared: Arc::new(Shared {
                client,
                waiting: Mutex::default(),
                turn,
            }),
        }
    }

    /// Waits for a task's end.
    ///
    /// A node that does not answer is asked again until it does: give up by dropping the future. What can never be
    /// answered (no such task, no rights) is an error.
    pub async fn wait(&self, task: &Upid) -> Result<TaskEnd> {
        let (sender, mut receiver) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            waiting.tasks.entry(task.clone()).or_default().push(sender);
            waiting.newest = Some(Instant::now());
        }
        let gone = || Error::Unreachable {
            text: "the wait was lost".to_owned(),
            cause: None,
        };
        let _turn = tokio::select! {
            biased;
            end = &mut receiver => return end.unwrap_or_else(|_| Err(gone())),
            turn = self.shared.turn.lock() => turn,
        };
        loop {
            // The end may have been found between the last tick and this turn.
            if let Ok(end) = receiver.try_recv() {
                return end;
            }
            tokio::time::sleep(self.pause()).await;
            let tasks = self.wanted();
            for (task, end) in ended(&self.shared.client, &tasks).await {
                let senders = self.waiting().tasks.remove(&task).unwrap_or_default();
                for sender in senders {
                    // Whoever gave up waiting does not mind.
                    let _ = sender.send(end.clone());
                }
            }
        }
    }

    /// The tasks somebody still waits for.
    fn wanted(&self) -> BTreeSet<Upid> {
        let mut waiting = self.waiting();
        waiting.tasks.retain(|_, senders| {
            senders.retain(|sender| !sender.is_closed());
            !senders.is_empty()
        });
        waiting.tasks.keys().cloned().collect()
    }

    /// Short while a task is new, since most end within a second or two; then longer.
    fn pause(&self) -> Duration {
        let age = self
            .waiting()
            .newest
            .map_or(Duration::MAX, |newest| newest.elapsed());
        match age.as_secs() {
            0..2 => Duration::from_millis(250),
            2..10 => Duration::from_millis(500),
            10..60 => Duration::from_secs(1),
            _ => Duration::from_secs(2),
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.shared
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of these tasks have ended, and how: one request per node, and one per ended task.
///
/// A task that is not in the result runs, or its node did not answer.
pub async fn ended(client: &Client, tasks: &BTreeSet<Upid>) -> BTreeMap<Upid, Result<TaskEnd>> {
    let mut by_node: BTreeMap<&NodeName, Vec<&Upid>> = BTreeMap::new();
    for task in tasks {
        by_node.entry(task.node()).or_default().push(task);
    }
    let asked = by_node
        .into_iter()
        .map(|(node, tasks)| ended_on(client, node, tasks));
    futures::future::join_all(asked)
        .await
        .into_iter()
        .flatten()
        .collect()
}

async fn ended_on(
    client: &Client,
    node: &NodeName,
    tasks: Vec<&Upid>,
) -> Vec<(Upid, Result<TaskEnd>)> {
    let filter = TaskFilter {
        source: Source::Active,
        limit: Some(ALL),
        ..TaskFilter::default()
    };
    let running: BTreeSet<Upid> = match client.node(node).tasks(&filter).await {
        Ok(list) => list
            .into_iter()
            .filter(super::TaskEntry::is_running)
            .map(|entry| entry.upid)
            .collect(),
        Err(error) if is_passing(&error) => return Vec::new(),
        Err(error) => {
            return tasks
                .into_iter()
                .map(|task| (task.clone(), Err(error.clone())))
                .collect();
        }
    };
    let mut found = Vec::new();
    for task in tasks.into_iter().filter(|task| !running.contains(*task)) {
        match client.task_status(task).await {
            Ok(status) => found.extend(status.end().map(|end| (task.clone(), end))),
            Err(error) if is_passing(&error) => {}
            Err(error) => found.push((task.clone(), Err(error))),
        }
    }
    found
}

/// Whether the next tick may bring the answer this one did not.
fn is_passing(error: &Error) -> bool {
    matches!(
        error,
        Error::Unreachable { .. }
            | Error::OutcomeUnknown { .. }
            | Error::LockTimeout { .. }
            | Error::NoQuorum { .. }
    )
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.waiting().tasks.keys()).finish()
    }
}
