//! Starts, runs and stops workers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{Task, Upid, Worker};
use crate::cluster::Cluster;
use crate::world::World;

/// How long a stopped worker may clean up before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// The workers that run now.
#[derive(Debug, Default)]
pub(crate) struct Running {
    table: Mutex<BTreeMap<String, Handle>>,
}

#[derive(Debug)]
struct Handle {
    node: String,
    stop: CancellationToken,
    abort: Option<AbortHandle>,
}

impl Running {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<String, Handle>) -> T) -> T {
        act(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn stop_token(&self, upid: &str) -> Option<CancellationToken> {
        self.with(|table| table.get(upid).map(|handle| handle.stop.clone()))
    }

    fn kill(&self, upid: &str) {
        let handle = self.with(|table| table.remove(upid));
        if let Some(abort) = handle.and_then(|handle| handle.abort) {
            abort.abort();
        }
    }
}

impl Cluster {
    /// Starts a worker; must be called within a tokio runtime and without the world locked.
    pub(crate) fn start(&self, task: Task) -> Upid {
        self.world(|world| self.start_in(world, task))
    }

    /// Starts a worker while the world is locked.
    pub(crate) fn start_in(&self, world: &mut World, task: Task) -> Upid {
        let upid = Upid {
            node: task.node,
            pid: world.tasks.pid(),
            pstart: world.clock.ticks(),
            starttime: world.clock.now(),
            kind: task.kind.to_owned(),
            id: task.id,
            user: task.user,
        };
        world.tasks.begin(upid.clone());
        world.journal.task_started(&upid, world.clock.now());
        let key = upid.to_string();
        let stop = CancellationToken::new();
        if task.fatal.is_some() {
            stop.cancel();
        }
        let worker = Worker {
            cluster: self.clone(),
            upid: upid.clone(),
            stop: stop.clone(),
        };
        let handle = Handle {
            node: upid.node.clone(),
            stop,
            abort: None,
        };
        self.running()
            .with(|table| table.insert(key.clone(), handle));
        let cluster = self.clone();
        let work = (task.run)(worker);
        let name = key.clone();
        let joined = self.tracker().spawn(async move {
            let result = work.await;
            cluster.world(|world| {
                let now = world.clock.now();
                let died = result
                    .as_ref()
                    .err()
                    .map(crate::failure::Failure::exit_text)
                    .map(|text| task.fatal.unwrap_or(text));
                world.tasks.end(&name, died.as_deref(), now);
                world
                    .journal
                    .task_ended(&name, died.as_deref().unwrap_or("OK"), now);
            });
            cluster.running().with(|table| table.remove(&name));
            cluster.task_ended().notify_waiters();
        });
        let abort = joined.abort_handle();
        self.running().with(|table| {
            if let Some(handle) = table.get_mut(&key) {
                handle.abort = Some(abort);
            }
        });
        upid
    }

    /// Asks a worker to stop, and kills it if it does not.
    pub(crate) fn stop_task(&self, upid: &str) {
        let Some(stop) = self.running().stop_token(upid) else {
            return;
        };
        stop.cancel();
        let cluster = self.clone();
        let upid = upid.to_owned();
        self.tracker().spawn(async move {
            tokio::time::sleep(GRACE).await;
            cluster.kill_task(&upid);
        });
    }

    fn kill_task(&self, upid: &str) {
        self.running().kill(upid);
        self.world(|world| world.tasks.kill(upid, world.clock.now()));
        self.task_ended().notify_waiters();
    }

    /// Kills all workers of a node, as a power loss does.
    pub(crate) fn kill_tasks_of(&self, node: &str) {
        let upids: Vec<String> = self.running().with(|table| {
            let of_node = table.iter().filter(|(_, handle)| handle.node == node);
            of_node.map(|(upid, _)| upid.clone()).collect()
        });
        for upid in upids {
            self.kill_task(&upid);
        }
    }

    /// Waits until the task has ended; returns its exit text.
    pub async fn wait_task(&self, upid: &Upid) -> String {
        let key = upid.to_string();
        loop {
            let ended = self.task_ended().notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let exit = self.world(|world| match world.tasks.get(&key) {
                None => Some("unexpected status".to_owned()),
                Some(record) => record.exit().map(str::to_owned),
            });
            match exit {
                Some(exit) => return exit,
                None => ended.await,
            }
        }
    }
}
