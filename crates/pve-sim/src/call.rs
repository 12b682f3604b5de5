//! What a handler is given and what it may answer.
//!
//! A handler is a plain function over the locked [`World`]: it may read and change state, but
//! never wait. What takes time is handed back: a [`Reply::Task`] becomes a worker of PVE, a
//! [`Reply::Later`] is awaited while the call keeps its daemon worker occupied.

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::io::DuplexStream;

use crate::access::Caller;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::params::Params;
use crate::task::{Task, Worker};
use crate::world::World;

/// A handler of one route.
pub(crate) type Handler = fn(&mut Call<'_>) -> Result<Reply, Failure>;

/// One call after authentication, permission check and validation.
pub(crate) struct Call<'a> {
    /// All state of the PVE cluster, locked for this handler.
    pub(crate) world: &'a mut World,
    /// Path, query and body parameters.
    pub(crate) params: Params,
    /// Who calls.
    pub(crate) caller: &'a Caller,
    /// The node whose proxy took the request.
    pub(crate) entry: &'a str,
    /// The file of an upload.
    pub(crate) upload: Option<Upload>,
    /// The cluster, for work that outlives the handler. Its world is locked while the handler
    /// runs: use [`Call::world`], not [`Cluster::world`].
    pub(crate) cluster: &'a Cluster,
}

/// The file part of a multipart upload.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    /// The name the client gave the file.
    pub(crate) filename: String,
    /// Its length in bytes.
    pub(crate) size: u64,
    /// Its hash by the algorithm the client named before the file, in lower-case hex.
    pub(crate) checksum: Option<String>,
    /// Its content, unless it is larger than what the simulator keeps.
    pub(crate) content: Option<Bytes>,
}

/// Continues a call without the world being locked.
pub(crate) type Continuation =
    Box<dyn FnOnce(Cluster) -> BoxFuture<'static, Result<Reply, Failure>> + Send>;

/// What a handler answers.
pub(crate) enum Reply {
    /// `{"data": value}`
    Data(Value),
    /// `{"data": …}` with data that is already JSON.
    Json(Vec<u8>),
    /// `{"data": value, "total": n}`
    Counted(Value, usize),
    /// Starts a worker; answers its UPID.
    Task(Task),
    /// Goes on asynchronously, keeping the daemon worker occupied.
    Later(Continuation),
    /// A text that is no JSON.
    Text(String),
    /// A WebSocket to what listens on a port of the node.
    Tunnel(DuplexStream, u16),
}

impl Reply {
    /// `{"data": null}`
    pub(crate) fn null() -> Self {
        Self::Data(Value::Null)
    }

    /// Goes on asynchronously.
    pub(crate) fn later<F, R>(go_on: F) -> Self
    where
        F: FnOnce(Cluster) -> R + Send + 'static,
        R: Future<Output = Result<Reply, Failure>> + Send + 'static,
    {
        Self::Later(Box::new(move |cluster| Box::pin(go_on(cluster))))
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        Self::Data(value)
    }
}

impl Call<'_> {
    /// The node in the path.
    pub(crate) fn node(&self) -> String {
        self.params.text("node").to_owned()
    }

    /// The guest in the path.
    pub(crate) fn vmid(&self) -> u32 {
        self.params.vmid("vmid").unwrap_or_default()
    }

    /// Fails with 403 unless the caller has all `privileges` on `path`.
    pub(crate) fn need(&self, path: &str, privileges: &[&str]) -> Result<(), Failure> {
        self.world.access.need(self.caller, path, privileges)
    }

    /// Whether the caller has `privilege` on `path`.
    pub(crate) fn may(&self, path: &str, privilege: &str) -> bool {
        self.world.access.may(self.caller, path, privilege)
    }

    /// Answers with a worker of this caller on the node in the path.
    pub(crate) fn task<F, R>(&self, kind: &'static str, id: impl std::fmt::Display, run: F) -> Reply
    where
        F: FnOnce(Worker) -> R + Send + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let node = self.params.get("node").unwrap_or(self.entry);
        Reply::Task(Task::new(node, kind, id, self.caller, run))
    }

    /// Answers with a worker of this caller on the node that was asked, whatever node is in the path.
    pub(crate) fn task_here<F, R>(
        &self,
        kind: &'static str,
        id: impl std::fmt::Display,
        run: F,
    ) -> Reply
    where
        F: FnOnce(Worker) -> R + Send + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        Reply::Task(Task::new(self.entry, kind, id, self.caller, run))
    }
}
