//! Workers: what PVE forks for everything that takes time.
//!
//! A handler answers with a [`Task`]; the cluster gives it a UPID, records it as running and runs
//! its future on tokio's time. The future works through its [`Worker`]: it writes log lines, takes
//! locks, looks at or changes the world, and lets time pass. When it ends, the record gets the
//! exit text (`OK` or what it died of) and moves to the archive.
//!
//! Stopping a task makes the next [`Worker::sleep`] (or lock) fail, so that `?` leads through the
//! worker's own cleaning up, as a signal does in PVE; five seconds later it is killed, which
//! leaves no exit text: `unexpected status`.

mod record;
pub(crate) mod run;
mod upid;

use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::access::Caller;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::{self, Held, Mode};
use crate::world::World;

pub(crate) use record::{Record, State, Tasks};
pub use upid::Upid;

/// The future of a worker.
pub(crate) type Run = Box<dyn FnOnce(Worker) -> BoxFuture<'static, Result<(), Failure>> + Send>;

/// A worker that is to be started.
pub(crate) struct Task {
    pub(crate) node: String,
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    pub(crate) user: String,
    /// What it dies of at the first thing that takes time.
    pub(crate) fatal: Option<String>,
    pub(crate) run: Run,
}

impl Task {
    /// A worker of `caller` on `node`. `kind` and `id` become part of the UPID.
    pub(crate) fn new<F, R>(
        node: &str,
        kind: &'static str,
        id: impl std::fmt::Display,
        caller: &Caller,
        run: F,
    ) -> Self
    where
        F: FnOnce(Worker) -> R + Send + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        Self {
            node: node.to_owned(),
            kind,
            id: id.to_string(),
            user: caller.id(),
            fatal: None,
            run: Box::new(move |worker| Box::pin(run(worker))),
        }
    }
}

/// A running worker's view of the world.
#[derive(Clone)]
pub(crate) struct Worker {
    cluster: Cluster,
    upid: Upid,
    stop: CancellationToken,
}

impl Worker {
    /// The node it runs on.
    pub(crate) fn node(&self) -> &str {
        &self.upid.node
    }

    /// The cluster it belongs to.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Looks at or changes the world, which is locked meanwhile.
    pub(crate) fn world<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        self.cluster.world(act)
    }

    /// Writes a line to the task's log.
    pub(crate) fn log(&self, line: impl AsRef<str>) {
        self.world(|world| world.tasks.log(&self.upid, line.as_ref()));
    }

    /// Lets time pass; fails when the task is stopped meanwhile.
    pub(crate) async fn sleep(&self, time: Duration) -> Result<(), Failure> {
        if time.is_zero() && !self.stop.is_cancelled() {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Failure::die("received interrupt")),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    /// Lets the time pass that `step` takes by the latency model.
    pub(crate) async fn take(&self, step: Step) -> Result<(), Failure> {
        let time = self.world(|world| world.step_time(step));
        self.sleep(time).await
    }

    /// Lets the time pass that `step` takes for `gib` GiB.
    pub(crate) async fn take_per_gib(&self, step: Step, gib: f64) -> Result<(), Failure> {
        let time = self.world(|world| world.step_time(step));
        self.sleep(time.mul_f64(gib.max(0.0))).await
    }

    /// Locks a file on the worker's node, as `flock` does, waiting at most `wait`.
    pub(crate) async fn lock_file(
        &self,
        path: &str,
        mode: Mode,
        wait: Duration,
    ) -> Result<Held, Failure> {
        let key = lock::file_key(self.node(), path);
        if let Some(held) = self.cluster.locks().try_now(&key, mode) {
            return Ok(held);
        }
        self.log("trying to acquire lock...");
        let held = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(Failure::die("received interrupt")),
            held = self.cluster.locks().wait(&key, mode, wait) => held,
        };
        if let Some(held) = held {
            self.log(" OK");
            Ok(held)
        } else {
            Err(lock::file_timeout(path))
        }
    }

    /// Takes a lock of the cluster file system, such as `storage-ceph`.
    pub(crate) async fn lock_cfs(&self, name: &str) -> Result<Held, Failure> {
        self.cluster.lock_cfs(self.node(), name).await
    }

    /// Starts another worker.
    pub(crate) fn start(&self, task: Task) -> Upid {
        self.cluster.start(task)
    }
}
