//! What is known of tasks that run or have run.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::Upid;

/// How many finished tasks a node remembers.
const ARCHIVE: usize = 1000;
/// The first process id of workers.
const FIRST_PID: u32 = 10_000;

/// One task.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) upid: Upid,
    pub(crate) state: State,
    pub(crate) log: Vec<String>,
}

/// Whether a task still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Ended { status: String, endtime: u64 },
}

impl Record {
    /// The exit text, if the task has ended.
    pub(crate) fn exit(&self) -> Option<&str> {
        match &self.state {
            State::Running => None,
            State::Ended { status, .. } => Some(status),
        }
    }
}

/// All tasks of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Tasks {
    records: BTreeMap<String, Record>,
    /// UPIDs of finished tasks by node, oldest first.
    archive: BTreeMap<String, VecDeque<String>>,
    next_pid: u32,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            records: BTreeMap::new(),
            archive: BTreeMap::new(),
            next_pid: FIRST_PID,
        }
    }
}

impl Tasks {
    /// A process id nobody has.
    pub(crate) fn pid(&mut self) -> u32 {
        self.next_pid += 1;
        self.next_pid
    }

    /// Records a task as running.
    pub(crate) fn begin(&mut self, upid: Upid) {
        let key = upid.to_string();
        let record = Record {
            upid,
            state: State::Running,
            log: Vec::new(),
        };
        self.records.insert(key, record);
    }

    pub(crate) fn log(&mut self, upid: &Upid, line: &str) {
        if let Some(record) = self.records.get_mut(&upid.to_string()) {
            record.log.extend(line.split('\n').map(str::to_owned));
        }
    }

    /// Records the end of a task that still runs; `died` is what it died of.
    pub(crate) fn end(&mut self, upid: &str, died: Option<&str>, now: u64) {
        let Some(record) = self.records.get_mut(upid) else {
            return;
        };
        if record.state != State::Running {
            return;
        }
        let status = if let Some(text) = died {
            record.log.push(format!("TASK ERROR: {text}"));
            text.to_owned()
        } else {
            record.log.push("TASK OK".to_owned());
            "OK".to_owned()
        };
        self.close(upid, status, now);
    }

    /// Records that a task was killed and could not say anything more.
    pub(crate) fn kill(&mut self, upid: &str, now: u64) {
        if self
            .records
            .get(upid)
            .is_some_and(|record| record.state == State::Running)
        {
            self.close(upid, "unexpected status".to_owned(), now);
        }
    }

    fn close(&mut self, upid: &str, status: String, now: u64) {
        let Some(record) = self.records.get_mut(upid) else {
            return;
        };
        record.state = State::Ended {
            status,
            endtime: now,
        };
        let archive = self.archive.entry(record.upid.node.clone()).or_default();
        archive.push_back(upid.to_owned());
        if archive.len() > ARCHIVE
            && let Some(oldest) = archive.pop_front()
        {
            self.records.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, upid: &str) -> Option<&Record> {
        self.records.get(upid)
    }

    /// Running tasks, those of `node` only if given.
    pub(crate) fn active<'a>(
        &'a self,
        node: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Record> + 'a {
        self.records.values().filter(move |record| {
            record.state == State::Running && node.is_none_or(|node| node == record.upid.node)
        })
    }

    /// Finished tasks of `node`, newest first.
    pub(crate) fn archive<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Record> + 'a {
        let newest_first = self
            .archive
            .get(node)
            .into_iter()
            .flat_map(|list| list.iter().rev());
        newest_first.filter_map(|upid| self.records.get(upid))
    }
}

/// The form tasks are kept in between two runs of the simulator.
#[derive(Serialize, Deserialize)]
struct Kept {
    next_pid: u32,
    ended: Vec<(String, String, u64, Vec<String>)>,
    running: Vec<(String, Vec<String>)>,
}

impl Serialize for Tasks {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut kept = Kept {
            next_pid: self.next_pid,
            ended: Vec::new(),
            running: Vec::new(),
        };
        for upid in self.archive.values().flatten() {
            if let Some(record) = self.records.get(upid)
                && let State::Ended { status, endtime } = &record.state
            {
                kept.ended
                    .push((upid.clone(), status.clone(), *endtime, record.log.clone()));
            }
        }
        for record in self.active(None) {
            kept.running
                .push((record.upid.to_string(), record.log.clone()));
        }
        kept.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Tasks {
    /// Tasks that ran when the state was kept are dead now, as after a host's power loss.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kept = Kept::deserialize(deserializer)?;
        let mut tasks = Self {
            next_pid: kept.next_pid,
            ..Self::default()
        };
        let cut = |(upid, log): (String, Vec<String>)| {
            let start = upid
                .parse()
                .map(|upid: Upid| upid.starttime)
                .unwrap_or_default();
            (upid, "unexpected status".to_owned(), start, log)
        };
        for (upid, status, endtime, log) in kept
            .ended
            .into_iter()
            .chain(kept.running.into_iter().map(cut))
        {
            if let Ok(parsed) = upid.parse::<Upid>() {
                tasks.begin(parsed);
                if let Some(record) = tasks.records.get_mut(&upid) {
                    record.log = log;
                }
                tasks.close(&upid, status, endtime);
            }
        }
        Ok(tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(tasks: &mut Tasks) -> String {
        let pid = tasks.pid();
        let upid = Upid {
            node: "pve1".into(),
            pid,
            pstart: 1,
            starttime: 1,
            kind: "qmstart".into(),
            id: "100".into(),
            user: "root@pam".into(),
        };
        tasks.begin(upid.clone());
        upid.to_string()
    }

    #[test]
    fn the_archive_forgets_the_oldest() {
        let mut tasks = Tasks::default();
        let first = begin(&mut tasks);
        tasks.end(&first, None, 2);
        for _ in 0..ARCHIVE {
            let upid = begin(&mut tasks);
            tasks.end(&upid, None, 2);
        }
        assert!(tasks.get(&first).is_none());
        assert_eq!(tasks.archive("pve1").count(), ARCHIVE);
    }

    #[test]
    fn tasks_running_at_the_end_of_a_run_are_dead_in_the_next() {
        let mut tasks = Tasks::default();
        let done = begin(&mut tasks);
        tasks.end(&done, Some("no space"), 2);
        let cut = begin(&mut tasks);
        let kept = serde_json::to_string(&tasks).unwrap();
        let tasks: Tasks = serde_json::from_str(&kept).unwrap();
        assert_eq!(tasks.get(&done).and_then(Record::exit), Some("no space"));
        assert_eq!(
            tasks.get(&cut).and_then(Record::exit),
            Some("unexpected status")
        );
    }
}
