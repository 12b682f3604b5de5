//! Tasks: what a call that returned has only begun.
//!
//! The end of a task, not the answer of the call, says whether something happened. [`Client::wait`] waits for one
//! task. Whoever waits for many shares a [`Watch`], which asks each node once per tick for its running tasks and then
//! each finished task once for its end, however many there are.

mod watch;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use self::watch::{Watch, ended};
use crate::api::node::Node;
use crate::client::{Call, Client};
use crate::error::{Error, Result};
use crate::id::{NodeName, Vmid};
use crate::params::{Params, escape};
use crate::scalar;
use crate::upid::Upid;

/// How a task that did its work has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskEnd {
    /// Well.
    Ok,
    /// Well, with this many warnings in its log.
    Warnings(u32),
}

impl TaskEnd {
    /// Reads an exit text; whatever is not success becomes the same error a call would have given.
    pub fn from_exit(text: &str) -> Result<Self> {
        if text == "OK" {
            return Ok(Self::Ok);
        }
        if let Some(count) = text.strip_prefix("WARNINGS: ") {
            return Ok(Self::Warnings(count.trim().parse().unwrap_or(1)));
        }
        Err(Error::from_text(None, text, BTreeMap::new()))
    }
}

/// How a task does.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TaskStatus {
    /// `running` or `stopped`.
    pub status: String,
    /// The exit text of a stopped task.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub exitstatus: Option<String>,
    /// What it does.
    #[serde(rename = "type", default, deserialize_with = "scalar::optional")]
    pub kind: Option<String>,
    /// What it works on.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub id: Option<String>,
    /// Whom it works for.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub user: Option<String>,
    /// When it began, in seconds since 1970.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub starttime: Option<u64>,
}

impl TaskStatus {
    /// The end, if there is one.
    pub fn end(&self) -> Option<Result<TaskEnd>> {
        (self.status == "stopped")
            .then(|| TaskEnd::from_exit(self.exitstatus.as_deref().unwrap_or("unexpected status")))
    }
}

/// A task in a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TaskEntry {
    /// Its name.
    pub upid: Upid,
    /// When it began, in seconds since 1970.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub starttime: Option<u64>,
    /// When it ended.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub endtime: Option<u64>,
    /// The exit text, or `RUNNING`.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub status: Option<String>,
}

impl TaskEntry {
    /// Whether it is under way.
    pub fn is_running(&self) -> bool {
        self.endtime.is_none()
            && self
                .status
                .as_deref()
                .is_none_or(|status| status == "RUNNING")
    }

    /// The end, if there is one.
    pub fn end(&self) -> Option<Result<TaskEnd>> {
        (!self.is_running())
            .then(|| TaskEnd::from_exit(self.status.as_deref().unwrap_or("unexpected status")))
    }

    /// How many seconds passed on the node's clock from its begin to its end.
    pub fn seconds(&self) -> Option<u64> {
        self.endtime?.checked_sub(self.starttime?)
    }
}

/// Which tasks of a node to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Only of this guest.
    pub vmid: Option<Vmid>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only of users whose name has this.
    pub user: Option<String>,
    /// Only those that failed.
    pub errors: bool,
    /// Only since this second.
    pub since: Option<u64>,
    /// Only until this second.
    pub until: Option<u64>,
    /// Running or finished ones; finished ones by default.
    pub source: Source,
    /// How many to leave out at the beginning.
    pub start: Option<u32>,
    /// How many to list; the server's default is 50.
    pub limit: Option<u32>,
}

/// Running or finished tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// Finished ones.
    #[default]
    Archive,
    /// Running ones.
    Active,
    /// Both.
    All,
}

#[derive(Deserialize)]
struct LogLine {
    #[serde(default)]
    t: String,
}

impl Node {
    /// Its tasks, newest first.
    pub async fn tasks(&self, filter: &TaskFilter) -> Result<Vec<TaskEntry>> {
        let source = match filter.source {
            Source::Archive => None,
            Source::Active => Some("active"),
            Source::All => Some("all"),
        };
        let params = Params::new()
            .maybe("vmid", filter.vmid)
            .maybe("typefilter", filter.kind.as_ref())
            .maybe("userfilter", filter.user.as_ref())
            .flag("errors", filter.errors)
            .maybe("since", filter.since)
            .maybe("until", filter.until)
            .maybe("source", source)
            .maybe("start", filter.start)
            .maybe("limit", filter.limit);
        self.client
            .call(Call::get("tasks.list", self.path("/tasks")).params(params))
            .await
    }
}

impl Client {
    /// How a task does.
    pub async fn task_status(&self, task: &Upid) -> Result<TaskStatus> {
        self.call(Call::get("tasks.status", path(task, "/status")))
            .await
    }

    /// The lines of a task's log, from `start` on, at most `limit` (0 for all).
    pub async fn task_log(&self, task: &Upid, start: u64, limit: u64) -> Result<Vec<String>> {
        let params = Params::new().with("start", start).with("limit", limit);
        let lines: Vec<LogLine> = self
            .call(Call::get("tasks.log", path(task, "/log")).params(params))
            .await?;
        Ok(lines.into_iter().map(|line| line.t).collect())
    }

    /// Stops a task. This returns at once; the task's end tells when it has stopped.
    pub async fn stop_task(&self, task: &Upid) -> Result<()> {
        self.call(Call::delete("tasks.stop", path(task, ""))).await
    }

    /// Waits for a task's end.
    ///
    /// For more than a few tasks at once share a [`Watch`] instead: its cost does not grow with their number.
    pub async fn wait(&self, task: &Upid) -> Result<TaskEnd> {
        Watch::new(self.clone()).wait(task).await
    }
}

fn path(task: &Upid, rest: &str) -> String {
    let node: &NodeName = task.node();
    format!("/nodes/{node}/tasks/{}{rest}", escape(task.as_str()))
}
