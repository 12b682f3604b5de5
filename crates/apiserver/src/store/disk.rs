//! The history on disk: one redb file, written by one thread in groups.
//!
//! Every write is one record in `events`, keyed by its revision; the live objects are not stored a second
//! time, because reading the records in order rebuilds them. Compaction removes the records that no
//! reader can ask for, so the file holds one record per live object plus the kept history.
//! A transaction carries all writes that were waiting when it began, and clients are answered only after
//! its commit has reached the disk.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::{mpsc, oneshot};

use super::{
    Error, Inner, Write,
    history::{Entry, Event, History, Keep, Overlay},
};

const EVENTS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("events");
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const FORMAT: u64 = 1;
/// Writes that share one transaction at most.
const GROUP: usize = 512;
/// redb's own cache; everything is in memory already, so it serves only its tree's upper pages.
const CACHE: usize = 4 << 20;

type Reply = oneshot::Sender<Result<Arc<Entry>, Error>>;

pub(super) enum Job {
    Write(Write, Reply),
    /// Asks whether the disk still takes writes.
    Probe(oneshot::Sender<Result<(), Error>>),
    Close(oneshot::Sender<()>),
}

/// The sending side of the writer thread.
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
}

impl Writer {
    pub(super) fn new() -> (Self, mpsc::Receiver<Job>) {
        let (jobs, receiver) = mpsc::channel(4 * GROUP);
        (Self { jobs }, receiver)
    }

    pub(super) async fn send(&self, write: Write, reply: Reply) -> Result<(), Error> {
        let job = Job::Write(write, reply);
        self.jobs.send(job).await.map_err(|_| Error::Closed)
    }

    pub(super) async fn probe(&self) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        let sent = self.jobs.send(Job::Probe(reply)).await;
        sent.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    pub(super) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.jobs.send(Job::Close(done)).await.is_ok() {
            // An error means the thread ended already, which is what was asked for.
            let _ = closed.await;
        }
    }
}

/// Opens the file and reads the history it holds.
pub(super) fn open(path: &Path, keep: Keep) -> Result<(Database, History), Error> {
    let failed = |source: redb::Error| Error::Open {
        path: path.display().to_string(),
        source,
    };
    let file = private(path).map_err(|e| failed(redb::Error::Io(e)))?;
    let database = Database::builder()
        .set_cache_size(CACHE)
        .create_file(file)
        .map_err(|e| failed(e.into()))?;
    prepare(&database).map_err(failed)?;
    let history = load(&database, keep)?;
    Ok((database, history))
}

/// The file, for its owner only: all Secrets are in it, and the directory may be one that others can enter.
fn private(path: &Path) -> io::Result<File> {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

fn prepare(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(EVENTS)?;
        let mut meta = transaction.open_table(META)?;
        if meta.get("format")?.is_none() {
            meta.insert("format", FORMAT)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn load(database: &Database, keep: Keep) -> Result<History, Error> {
    let damaged = |e: redb::Error| Error::Damaged(e.to_string());
    let read = || -> Result<_, redb::Error> {
        let transaction = database.begin_read()?;
        let meta = transaction.open_table(META)?;
        let number = |key: &str| -> Result<u64, redb::Error> {
            Ok(meta.get(key)?.map_or(0, |value| value.value()))
        };
        let standing = (number("format")?, number("revision")?, number("floor")?);
        let mut records = Vec::new();
        for item in transaction.open_table(EVENTS)?.iter()? {
            let (revision, record) = item?;
            records.push((revision.value(), Bytes::copy_from_slice(record.value())));
        }
        Ok((standing, records))
    };
    let ((format, revision, floor), records) = read().map_err(damaged)?;
    if format != FORMAT {
        return Err(Error::Damaged(format!(
            "format {format} is not known to this version, which reads format {FORMAT}"
        )));
    }
    let mut history = History::new(keep);
    let mut names: BTreeMap<String, Arc<str>> = BTreeMap::new();
    for (revision, record) in records {
        let record = Record::decode(&record)
            .ok_or_else(|| Error::Damaged(format!("record {revision} cannot be read")))?;
        let resource = names
            .entry(record.resource.clone())
            .or_insert_with(|| Arc::from(record.resource.as_str()));
        let previous = history.get(resource, &record.key);
        let key = previous
            .as_ref()
            .map_or_else(|| Arc::from(record.key.as_str()), |p| Arc::clone(&p.key));
        history.apply(vec![Arc::new(Event {
            resource: Arc::clone(resource),
            entry: Arc::new(Entry::new(revision, key, record.bytes)),
            previous,
            deleted: record.deleted,
        })]);
    }
    // Records at or below the floor are there for their objects only; what a failed sweep left goes now.
    let garbage = history.compact_to(floor);
    if !garbage.is_empty() {
        sweep(database, &garbage, floor).map_err(damaged)?;
    }
    history.restore(revision, floor);
    Ok(history)
}

/// Starts the writer thread; it ends when the store is closed or dropped.
pub(super) fn start(
    database: Database,
    jobs: mpsc::Receiver<Job>,
    inner: Weak<Inner>,
) -> Result<(), Error> {
    std::thread::Builder::new()
        .name("store-writer".into())
        .spawn(move || {
            let closing = run(&database, jobs, &inner);
            // Whoever waits for the end may open the file again at once.
            drop(database);
            if let Some(done) = closing {
                let _ = done.send(());
            }
        })
        .map(drop)
        .map_err(|e| Error::Io(e.to_string()))
}

/// Commits groups until the store is closed; returns who waits for that.
fn run(
    database: &Database,
    mut jobs: mpsc::Receiver<Job>,
    inner: &Weak<Inner>,
) -> Option<oneshot::Sender<()>> {
    while let Some(first) = jobs.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP
            && let Ok(job) = jobs.try_recv()
        {
            group.push(job);
        }
        let inner = inner.upgrade()?;
        let mut closing = None;
        let mut probes = Vec::new();
        let mut writes = Vec::with_capacity(group.len());
        for job in group {
            match job {
                Job::Write(write, reply) => writes.push((write, reply)),
                Job::Probe(reply) => probes.push(reply),
                Job::Close(done) => closing = Some(done),
            }
        }
        commit_group(database, &inner, writes);
        if !probes.is_empty() {
            // However many ask at once, one small transaction tells them all.
            let told = append(database, &[]).map_err(|error| error.to_string());
            for probe in probes {
                let _ = probe.send(told.clone().map_err(Error::Io));
            }
        }
        if closing.is_some() {
            return closing;
        }
    }
    None
}

fn commit_group(database: &Database, inner: &Inner, writes: Vec<(Write, Reply)>) {
    let mut overlay = Overlay::new();
    let mut events = Vec::with_capacity(writes.len());
    let mut replies = Vec::with_capacity(writes.len());
    {
        let history = inner.read();
        let mut revision = history.revision();
        for (write, reply) in writes {
            if let Err(error) = history.check(&write, Some(&overlay)) {
                let _ = reply.send(Err(error));
                continue;
            }
            revision += 1;
            let event = history.event(&write, revision, Some(&overlay));
            overlay.insert(
                (write.resource, write.key),
                (!event.deleted).then(|| Arc::clone(&event.entry)),
            );
            replies.push((reply, Arc::clone(&event.entry)));
            events.push(event);
        }
    }
    let Some(last) = events.last().map(|event| event.revision()) else {
        return;
    };
    if let Err(error) = append(database, &events) {
        let error = error.to_string();
        for (reply, _) in replies {
            let _ = reply.send(Err(Error::Io(error.clone())));
        }
        return;
    }
    let (garbage, floor) = {
        let mut history = inner.write();
        history.apply(events);
        (history.compact(), history.floor())
    };
    inner.revision.send_replace(last);
    for (reply, entry) in replies {
        let _ = reply.send(Ok(entry));
    }
    if !garbage.is_empty()
        && let Err(error) = sweep(database, &garbage, floor)
    {
        // Nothing is lost by keeping records too long; the next compaction leaves them too, and
        // a restart finds them superseded.
        tracing::warn!(%error, "cannot remove old records from the store");
    }
}

fn append(database: &Database, events: &[Arc<Event>]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(EVENTS)?;
        let mut meta = transaction.open_table(META)?;
        for event in events {
            table.insert(event.revision(), Record::encode(event).as_slice())?;
        }
        match events.last() {
            Some(last) => meta.insert("revision", last.revision())?,
            // Nothing to say is said all the same, so that the disk is asked.
            None => meta.insert("format", FORMAT)?,
        };
    }
    transaction.commit()?;
    Ok(())
}

fn sweep(database: &Database, garbage: &[u64], floor: u64) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(EVENTS)?;
        for revision in garbage {
            table.remove(revision)?;
        }
        transaction.open_table(META)?.insert("floor", floor)?;
    }
    transaction.commit()?;
    Ok(())
}

/// `deleted, resource length, resource, key length, key, JSON`.
struct Record {
    deleted: bool,
    resource: String,
    key: String,
    bytes: Bytes,
}

impl Record {
    fn encode(event: &Event) -> Vec<u8> {
        let (resource, key) = (event.resource.as_bytes(), event.entry.key.as_bytes());
        let mut out = Vec::with_capacity(5 + resource.len() + key.len() + event.entry.bytes.len());
        out.push(u8::from(event.deleted));
        for text in [resource, key] {
            // Names are limited to 253 bytes each long before they get here.
            let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&text[..usize::from(length)]);
        }
        out.extend_from_slice(&event.entry.bytes);
        out
    }

    fn decode(record: &Bytes) -> Option<Self> {
        let mut at = 1;
        let mut text = || {
            let length = record.get(at..at + 2)?;
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            let text = record.get(at + 2..at + 2 + length)?;
            at += 2 + length;
            String::from_utf8(text.to_vec()).ok()
        };
        let (resource, key) = (text()?, text()?);
        Some(Self {
            deleted: *record.first()? == 1,
            resource,
            key,
            bytes: record.slice(at..),
        })
    }
}
