//! The cluster's log: what `GET /cluster/log` shows.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::task::Upid;

const KEPT: usize = 500;

/// The last entries of the log.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Journal {
    entries: VecDeque<Entry>,
    count: u64,
}

/// One line of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) uid: u64,
    pub(crate) time: u64,
    pub(crate) node: String,
    pub(crate) user: String,
    pub(crate) tag: String,
    pub(crate) pri: u8,
    pub(crate) msg: String,
}

impl Journal {
    pub(crate) fn write(
        &mut self,
        node: &str,
        user: &str,
        tag: &str,
        pri: u8,
        msg: String,
        now: u64,
    ) {
        self.count += 1;
        self.entries.push_back(Entry {
            uid: self.count,
            time: now,
            node: node.to_owned(),
            user: user.to_owned(),
            tag: tag.to_owned(),
            pri,
            msg,
        });
        if self.entries.len() > KEPT {
            self.entries.pop_front();
        }
    }

    pub(crate) fn task_started(&mut self, upid: &Upid, now: u64) {
        self.write(
            &upid.node,
            &upid.user,
            "pvedaemon",
            6,
            format!("starting task {upid}"),
            now,
        );
    }

    pub(crate) fn task_ended(&mut self, upid: &str, exit: &str, now: u64) {
        let Ok(parsed) = upid.parse::<Upid>() else {
            return;
        };
        let pri = if exit == "OK" { 6 } else { 3 };
        let msg = format!("end task {upid} {exit}");
        self.write(&parsed.node, &parsed.user, "pvedaemon", pri, msg, now);
    }

    /// Entries, newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }
}
