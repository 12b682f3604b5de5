//! Where objects live: every object in memory, every write durable before it is acknowledged.
//!
//! The store is one ordered history. Each write takes the next revision and is an [`Event`]: what an
//! object became, and what it was. The live objects are the fold of that history; a watch reads on from a
//! revision; a list at an older revision is the live objects with later events undone. Only the part of the history
//! since the compaction floor is kept, and asking for anything older is answered with [`Compacted`].
//!
//! Readers take what is in memory and never see a write that is not yet durable. Writers hand a
//! [`Write`] with its precondition to [`Store::commit`]. In memory it is applied at once; on
//! disk a writer thread gathers everything waiting into one transaction (see [`disk`]), so sixteen clients cost one
//! `fsync` between them. Watchers pull from the log at their own pace: a slow one holds up nobody, and
//! when the floor passes its position it is told so.

mod disk;
mod encode;
mod history;

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::{oneshot, watch};

use self::history::History;
pub(crate) use self::{
    encode::Encoded,
    history::{Compacted, Entry, Event, Keep, Snapshot},
};

/// A change of one object, applied only if `expect` holds.
#[derive(Debug)]
pub(crate) struct Write {
    /// Group and plural of the resource, such as `apps/deployments`.
    pub(crate) resource: Arc<str>,
    /// `namespace/name`, or `name` for cluster-scoped objects.
    pub(crate) key: String,
    pub(crate) expect: Expect,
    pub(crate) op: Op,
}

/// The precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// No object has that key.
    Absent,
    /// The object is still at that revision.
    Revision(u64),
}

/// What a write does.
#[derive(Debug)]
pub(crate) enum Op {
    Put(Encoded),
    /// Deletes; the encoded object is the final state that watchers are shown.
    Delete(Encoded),
}

impl Op {
    fn encoded(&self) -> &Encoded {
        match self {
            Self::Put(encoded) | Self::Delete(encoded) => encoded,
        }
    }

    fn is_delete(&self) -> bool {
        matches!(self, Self::Delete(_))
    }
}

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The precondition of a write does not hold.
    #[error("the object has changed")]
    Conflict,
    /// The file cannot be opened.
    #[error("cannot open the store at {path}")]
    Open {
        /// Where the file is.
        path: String,
        /// What failed.
        #[source]
        source: redb::Error,
    },
    /// The file holds something this version does not understand.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The write could not be made durable.
    #[error("cannot write to the store: {0}")]
    Io(String),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

/// A shared handle to the store.
#[derive(Clone)]
pub(crate) struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    history: RwLock<History>,
    revision: watch::Sender<u64>,
    writer: Writer,
}

enum Writer {
    Memory,
    Disk(disk::Writer),
}

impl Store {
    /// A store that is gone when the process ends.
    pub(crate) fn in_memory(keep: Keep) -> Self {
        Self::with(History::new(keep), Writer::Memory)
    }

    /// Opens or creates the file, reads everything and starts the writer.
    pub(crate) fn open(path: &Path, keep: Keep) -> Result<Self, Error> {
        let (database, history) = disk::open(path, keep)?;
        let (writer, jobs) = disk::Writer::new();
        let store = Self::with(history, Writer::Disk(writer));
        disk::start(database, jobs, Arc::downgrade(&store.inner))?;
        Ok(store)
    }

    fn with(history: History, writer: Writer) -> Self {
        let (revision, _) = watch::channel(history.revision());
        Self {
            inner: Arc::new(Inner {
                history: RwLock::new(history),
                revision,
                writer,
            }),
        }
    }

    /// Applies a write; returns when it is durable.
    pub(crate) async fn commit(&self, write: Write) -> Result<Arc<Entry>, Error> {
        match &self.inner.writer {
            Writer::Memory => {
                let mut history = self.inner.write();
                history.check(&write, None)?;
                let revision = history.revision() + 1;
                let event = history.event(&write, revision, None);
                let entry = event.entry.clone();
                history.apply(vec![event]);
                history.compact();
                drop(history);
                self.inner.revision.send_replace(revision);
                Ok(entry)
            }
            Writer::Disk(writer) => {
                let (reply, answer) = oneshot::channel();
                writer.send(write, reply).await?;
                answer.await.map_err(|_| Error::Closed)?
            }
        }
    }

    /// Whether writes can be made durable, found out by making one that changes nothing.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        match &self.inner.writer {
            Writer::Memory => Ok(()),
            Writer::Disk(writer) => writer.probe().await,
        }
    }

    /// Waits until everything handed in is durable, then closes the file.
    pub(crate) async fn close(&self) {
        if let Writer::Disk(writer) = &self.inner.writer {
            writer.close().await;
        }
    }

    pub(crate) fn get(&self, resource: &str, key: &str) -> Option<Arc<Entry>> {
        self.inner.read().get(resource, key)
    }

    /// The objects whose key begins with `prefix`, now or at an older revision.
    pub(crate) fn list(
        &self,
        resource: &str,
        prefix: &str,
        at: Option<u64>,
    ) -> Result<Snapshot, Compacted> {
        self.inner.read().list(resource, prefix, at)
    }

    /// The events of one resource after a revision, and the revision they reach to.
    pub(crate) fn events(
        &self,
        resource: &str,
        after: u64,
    ) -> Result<(Vec<Arc<Event>>, u64), Compacted> {
        self.inner.read().events(Some(resource), after)
    }

    /// The events of all resources after a revision, in order.
    pub(crate) fn all_events(&self, after: u64) -> Result<(Vec<Arc<Event>>, u64), Compacted> {
        self.inner.read().events(None, after)
    }

    pub(crate) fn revision(&self) -> u64 {
        *self.inner.revision.borrow()
    }

    /// The revision below which history is gone.
    pub(crate) fn floor(&self) -> u64 {
        self.inner.read().floor()
    }

    /// Wakes when any object changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.revision.subscribe()
    }

    /// Wakes when an object of this resource changes.
    pub(crate) fn changes_of(&self, resource: &Arc<str>) -> watch::Receiver<u64> {
        let found = self.inner.read().changes_of(resource);
        found.unwrap_or_else(|| self.inner.write().subscribe(resource))
    }

    /// The revision of the last change of this resource since the store was opened; zero when there was none.
    pub(crate) fn changed(&self, resource: &str) -> u64 {
        self.inner.read().changed(resource)
    }

    /// How many objects each resource has.
    pub(crate) fn counts(&self) -> Vec<(Arc<str>, usize)> {
        self.inner.read().counts()
    }

    /// Forgets history up to a revision, as if it had aged out.
    pub(crate) fn compact_to(&self, revision: u64) {
        self.inner.write().compact_to(revision);
    }
}

impl Inner {
    // A panic while the lock is held cannot leave the history half-applied in a way that matters
    // more than going on: `apply` only inserts what was computed before.
    fn read(&self) -> RwLockReadGuard<'_, History> {
        self.history.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, History> {
        self.history.write().unwrap_or_else(PoisonError::into_inner)
    }
}
