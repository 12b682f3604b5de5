//! Somebody who works on a node: a worker with a log, or a call that answers when it is done.
//!
//! `POST config` forks a worker and `PUT config` does the same work within the call; what they do to
//! disks is one code over a [`Hand`].

use std::time::Duration;

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::{Held, Mode};
use crate::task::Worker;
use crate::world::World;

/// A worker, or a call that does a worker's work.
#[derive(Clone)]
pub(crate) struct Hand {
    cluster: Cluster,
    node: String,
    worker: Option<Worker>,
}

impl Hand {
    pub(crate) fn of_call(cluster: Cluster, node: &str) -> Hand {
        Hand {
            cluster,
            node: node.to_owned(),
            worker: None,
        }
    }

    pub(crate) fn of_worker(worker: &Worker) -> Hand {
        Hand {
            cluster: worker.cluster().clone(),
            node: worker.node().to_owned(),
            worker: Some(worker.clone()),
        }
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) fn world<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        self.cluster.world(act)
    }

    /// A line for the log; a call has none.
    pub(crate) fn log(&self, line: impl AsRef<str>) {
        if let Some(worker) = &self.worker {
            worker.log(line);
        }
    }

    pub(crate) async fn sleep(&self, time: Duration) -> Result<(), Failure> {
        if let Some(worker) = &self.worker {
            return worker.sleep(time).await;
        }
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        Ok(())
    }

    pub(crate) async fn take(&self, step: Step) -> Result<(), Failure> {
        let time = self.world(|world| world.step_time(step));
        self.sleep(time).await
    }

    pub(crate) async fn take_per_gib(&self, step: Step, gib: f64) -> Result<(), Failure> {
        let time = self.world(|world| world.step_time(step));
        self.sleep(time.mul_f64(gib.max(0.0))).await
    }

    pub(crate) async fn lock_cfs(&self, name: &str) -> Result<Held, Failure> {
        self.cluster.lock_cfs(&self.node, name).await
    }

    pub(crate) async fn lock_file(
        &self,
        path: &str,
        mode: Mode,
        wait: Duration,
    ) -> Result<Held, Failure> {
        match &self.worker {
            Some(worker) => worker.lock_file(path, mode, wait).await,
            None => self.cluster.lock_file(&self.node, path, mode, wait).await,
        }
    }
}
