//! One simulated PVE cluster, and the way into it.
//!
//! [`Cluster`] is a cheap handle: the locked [`World`], the routing table, the workers that run,
//! the locks they hold, and the faults a test has injected. [`Cluster::endpoint`] is what a client
//! talks to: the API of one node as a tower service.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Notify, Semaphore};
use tokio_util::task::TaskTracker;

use crate::api;
use crate::control::Control;
use crate::failure::Failure;
use crate::http::Endpoint;
use crate::latency::Latency;
use crate::lock::{self, Held, Locks, Mode};
use crate::route::Table;
use crate::task::run::Running;
use crate::world::World;

/// Worker processes of a node's daemon, and as many of its proxy.
const WORKERS: usize = 3;

/// One simulated PVE cluster; clones are the same cluster.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    world: Mutex<World>,
    table: Table,
    locks: Locks,
    running: Running,
    tracker: TaskTracker,
    task_ended: Notify,
    processes: BTreeMap<String, Processes>,
    control: Control,
    serving: AtomicBool,
}

/// The processes of a node that answer calls.
struct Processes {
    daemon: Arc<Semaphore>,
    proxy: Arc<Semaphore>,
}

impl Cluster {
    pub(crate) fn new(world: World, seed: u64) -> Self {
        let processes = world.nodes.keys().map(|name| {
            let workers = || Arc::new(Semaphore::new(WORKERS));
            (
                name.clone(),
                Processes {
                    daemon: workers(),
                    proxy: workers(),
                },
            )
        });
        let inner = Inner {
            table: Table::new(api::routes(world.release)),
            locks: Locks::default(),
            running: Running::default(),
            tracker: TaskTracker::new(),
            task_ended: Notify::new(),
            processes: processes.collect(),
            control: Control::new(seed),
            serving: AtomicBool::new(false),
            world: Mutex::new(world),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Looks at or changes the world, which is locked meanwhile: do not wait inside.
    pub fn world<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.lock_world())
    }

    fn lock_world(&self) -> MutexGuard<'_, World> {
        self.inner
            .world
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes as long as this model says from now on: a host that got busy, or quiet again.
    pub fn set_latency(&self, latency: Latency) {
        self.world(|world| world.latency = latency);
    }

    /// The cluster's name.
    pub fn name(&self) -> String {
        self.world(|world| world.name.clone())
    }

    /// The names of its nodes.
    pub fn nodes(&self) -> Vec<String> {
        self.inner.processes.keys().cloned().collect()
    }

    /// The API of `node`, or of the first node if there is none of that name.
    pub fn endpoint(&self, node: &str) -> Endpoint {
        let known = self.inner.processes.get_key_value(node);
        let name = known
            .or_else(|| self.inner.processes.first_key_value())
            .map(|(name, _)| name);
        Endpoint::new(self.clone(), name.cloned().unwrap_or_default())
    }

    /// Faults, counters and other things tests do from outside.
    pub fn control(&self) -> &Control {
        &self.inner.control
    }

    /// Starts what runs on the nodes by itself, with the first request: there is a runtime then.
    pub(crate) fn start_services(&self) {
        if !self.inner.serving.swap(true, Ordering::Relaxed) {
            self.world(crate::resources::report);
            self.resume_boots();
            self.inner
                .tracker
                .spawn(crate::service::run(Arc::downgrade(&self.inner)));
        }
    }

    pub(crate) fn from_weak(inner: &Weak<Inner>) -> Option<Self> {
        inner.upgrade().map(|inner| Self { inner })
    }

    pub(crate) fn table(&self) -> &Table {
        &self.inner.table
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.inner.locks
    }

    pub(crate) fn running(&self) -> &Running {
        &self.inner.running
    }

    pub(crate) fn task_ended(&self) -> &Notify {
        &self.inner.task_ended
    }

    /// Runs what outlives a call: boots of guests, services of nodes.
    pub(crate) fn tracker(&self) -> &TaskTracker {
        &self.inner.tracker
    }

    /// The processes that answer calls on `node`.
    pub(crate) fn workers(&self, node: &str, daemon: bool) -> Option<Arc<Semaphore>> {
        let processes = self.inner.processes.get(node)?;
        Some(Arc::clone(if daemon {
            &processes.daemon
        } else {
            &processes.proxy
        }))
    }

    /// Locks a file on `node` as `flock` does, for calls that are no task.
    pub(crate) async fn lock_file(
        &self,
        node: &str,
        path: &str,
        mode: Mode,
        wait: std::time::Duration,
    ) -> Result<Held, Failure> {
        let key = lock::file_key(node, path);
        self.locks()
            .wait(&key, mode, wait)
            .await
            .ok_or_else(|| lock::file_timeout(path))
    }

    /// Takes a lock of the cluster file system from `node`.
    pub(crate) async fn lock_cfs(&self, node: &str, name: &str) -> Result<Held, Failure> {
        if !self.world(|world| world.quorate(node)) {
            return Err(Failure::die(format!("cfs-lock '{name}' error: no quorum!")));
        }
        let key = format!("cfs:{name}");
        let held = self.locks().wait(&key, Mode::Exclusive, lock::CFS_WAIT);
        held.await.ok_or_else(|| lock::cfs_timeout(name))
    }
}
