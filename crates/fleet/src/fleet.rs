//! The fleet itself: clusters come and go, matters are brought to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio_util::task::TaskTracker;

use crate::{
    ActionProgress, ActionRecord, ClusterFacts, ClusterName, GuestIntent, GuestProgress,
    GuestRecord, ImageProgress, ImageRecord, Metrics, Owner, WakeStream, action,
    cluster::{Cluster, State},
    guest, image,
    intent::{BackupIntent, ImageIntent, MigrationIntent, SnapshotIntent},
    survey,
    wakes::Wakes,
    watcher,
};

/// How a cluster is treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The credentials are root's own password, so that root-only options can be set.
    pub root: bool,
    /// Nodes to prefer when an intent selects none; empty is all.
    pub nodes: Vec<crate::NodeName>,
    /// The nodes it had when it was connected last, if anything is kept on it: one that has none of them is another cluster.
    pub known: BTreeSet<crate::NodeName>,
    /// How often one guest, in turn, has its configuration read to find changes that PVE's lists do
    /// not show. This is for the whole cluster: it does not grow with the number of guests.
    pub audit_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root: false,
            nodes: Vec::new(),
            known: BTreeSet::new(),
            audit_interval: Duration::from_mins(1),
        }
    }
}

/// All PVE clusters, and what is done on them.
///
/// Clones share everything. Dropping the last one ends the watchers.
#[derive(Clone)]
pub struct Fleet {
    inner: Arc<Inner>,
}

struct Inner {
    clusters: Mutex<BTreeMap<ClusterName, Arc<Cluster>>>,
    wakes: Wakes,
    tasks: TaskTracker,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let clusters = self
            .clusters
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for cluster in clusters.values() {
            cluster.stop.cancel();
        }
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self::new()
    }
}

impl Fleet {
    /// A fleet without clusters.
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                clusters: Mutex::default(),
                wakes: Wakes::default(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// Connects a cluster and begins to watch it. One with the same name is replaced.
    ///
    /// To change credentials alone use [`pve::Client::set_credentials`] on the client that was
    /// handed in, or [`Fleet::set_credentials`]: nothing under way is disturbed.
    pub fn connect(&self, name: ClusterName, client: pve::Client, options: Options) {
        let cluster = Cluster::new(client, options, self.inner.wakes.clone());
        let old = self.clusters().insert(name, cluster.clone());
        if let Some(old) = old {
            old.stop.cancel();
            // Whoever was waiting for the old one asks the new one.
            let owners: Vec<Owner> = old.state().guests.keys().cloned().collect();
            cluster.wake(&owners);
        }
        self.inner.tasks.spawn(survey::watch(cluster.clone()));
        self.inner.tasks.spawn(watcher::watch(cluster));
    }

    /// Disconnects a cluster. Its guests stay as they are; intents for it wait.
    pub fn disconnect(&self, name: &ClusterName) {
        if let Some(cluster) = self.clusters().remove(name) {
            cluster.stop.cancel();
        }
    }

    /// Replaces a cluster's credentials without losing a request. False if it is not connected.
    pub fn set_credentials(&self, name: &ClusterName, credentials: pve::Credentials) -> bool {
        let Some(cluster) = self.cluster(name) else {
            return false;
        };
        cluster.client.set_credentials(credentials);
        cluster.refresh();
        cluster.survey.notify_one();
        true
    }

    /// Names of the connected clusters.
    pub fn connected(&self) -> Vec<ClusterName> {
        self.clusters().keys().cloned().collect()
    }

    /// The client of a cluster, for what the fleet does not do: consoles and reports.
    pub fn client(&self, name: &ClusterName) -> Option<pve::Client> {
        self.cluster(name).map(|cluster| cluster.client.clone())
    }

    /// What is known about a cluster just now, without asking it.
    pub fn facts(&self, name: &ClusterName) -> Option<ClusterFacts> {
        self.cluster(name)
            .map(|cluster| cluster.state().facts.clone())
    }

    /// Whether guests are to leave a node, because PVE says that it is in maintenance.
    pub fn is_left(&self, name: &ClusterName, node: &crate::NodeName) -> bool {
        let view = self.cluster(name).and_then(|cluster| cluster.view());
        view.is_some_and(|view| view.is_left(node))
    }

    /// Asks a cluster for the devices that guests can be given, unless that was done a moment ago: they are facts then. What cannot be
    /// read stays as it was.
    pub async fn learn_devices(&self, name: &ClusterName) {
        if let Some(cluster) = self.cluster(name) {
            let _ = crate::guest::devices::learn(&cluster).await;
        }
    }

    /// The node a guest is on, ours or not, as the last look at its cluster showed it.
    pub fn node_of(&self, name: &ClusterName, guest: crate::Vmid) -> Option<crate::NodeName> {
        let view = self.cluster(name)?.view()?;
        view.guests.get(&guest).map(|row| row.node.clone())
    }

    /// What is known about a cluster, and every change of it.
    pub fn watch(
        &self,
        name: &ClusterName,
    ) -> Option<tokio::sync::watch::Receiver<Arc<ClusterFacts>>> {
        self.cluster(name)
            .map(|cluster| cluster.published.subscribe())
    }

    /// What is known and was done, for Prometheus. Does not keep the fleet alive.
    pub fn metrics(&self) -> Metrics {
        Metrics(Observer(Arc::downgrade(&self.inner)))
    }

    /// Owners whose matter may have moved, from now on.
    pub fn wakes(&self) -> WakeStream {
        self.inner.wakes.subscribe()
    }

    /// Brings a guest one step nearer to what is wanted.
    ///
    /// See the crate's documentation for the rules of calling it.
    pub async fn guest(&self, intent: &GuestIntent, record: &GuestRecord) -> GuestProgress {
        match self.cluster(&intent.cluster) {
            Some(cluster) => guest::keep(&cluster, intent, record).await,
            None => guest::not_connected(intent, record),
        }
    }

    /// Brings the end of a guest one step nearer, as its policy says.
    ///
    /// [`crate::Outcome::Gone`] says that nothing of it is left that its owner must care for.
    pub async fn delete(&self, intent: &GuestIntent, record: &GuestRecord) -> GuestProgress {
        match self.cluster(&intent.cluster) {
            Some(cluster) => guest::remove(&cluster, intent, record).await,
            None => guest::remove_unseen(intent, record),
        }
    }

    /// Brings a snapshot one step nearer to what is wanted of it.
    pub async fn snapshot(&self, intent: &SnapshotIntent, record: &ActionRecord) -> ActionProgress {
        match self.cluster(&intent.cluster) {
            Some(cluster) => action::snapshot(&cluster, intent, record).await,
            None => action::not_connected(&intent.cluster, record),
        }
    }

    /// Brings a move to another node one step nearer to its end.
    pub async fn migrate(&self, intent: &MigrationIntent, record: &ActionRecord) -> ActionProgress {
        match self.cluster(&intent.cluster) {
            Some(cluster) => action::migrate(&cluster, intent, record).await,
            None => action::not_connected(&intent.cluster, record),
        }
    }

    /// Brings a backup one step nearer to its end.
    pub async fn backup(&self, intent: &BackupIntent, record: &ActionRecord) -> ActionProgress {
        match self.cluster(&intent.cluster) {
            Some(cluster) => action::backup(&cluster, intent, record).await,
            None => action::not_connected(&intent.cluster, record),
        }
    }

    /// Removes a backup that [`Fleet::backup`] made.
    pub async fn delete_backup(
        &self,
        intent: &BackupIntent,
        record: &ActionRecord,
    ) -> ActionProgress {
        match self.cluster(&intent.cluster) {
            Some(cluster) => action::delete_backup(&cluster, intent, record).await,
            None if !record.begun => action::nothing_begun(record),
            None => action::not_connected(&intent.cluster, record),
        }
    }

    /// Brings an image one step nearer to being a template where it is needed.
    pub async fn image(&self, intent: &ImageIntent, record: &ImageRecord) -> ImageProgress {
        match self.cluster(&intent.cluster) {
            Some(cluster) => image::keep(&cluster, intent, record).await,
            None => image::not_connected(&intent.cluster, record),
        }
    }

    /// Removes the templates of an image, once nothing is linked to them.
    pub async fn delete_image(&self, intent: &ImageIntent, record: &ImageRecord) -> ImageProgress {
        match self.cluster(&intent.cluster) {
            Some(cluster) => image::remove(&cluster, intent, record).await,
            None if record.replicas.is_empty() => image::nothing_begun(record),
            None => image::not_connected(&intent.cluster, record),
        }
    }

    /// Forgets an owner without doing anything: it is no longer this process's business.
    pub fn forget(&self, owner: &Owner) {
        let clusters: Vec<_> = self.clusters().values().cloned().collect();
        for cluster in clusters {
            cluster.forget(owner);
            cluster.state().images.retain(|(of, _), _| of != owner);
        }
    }

    pub(crate) fn cluster(&self, name: &ClusterName) -> Option<Arc<Cluster>> {
        self.clusters().get(name).cloned()
    }

    fn clusters(&self) -> std::sync::MutexGuard<'_, BTreeMap<ClusterName, Arc<Cluster>>> {
        self.inner
            .clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who looks at a fleet without keeping it alive.
pub(crate) struct Observer(Weak<Inner>);

impl Observer {
    /// Reads every cluster.
    pub(crate) fn read<T>(&self, read: impl Fn(ClusterName, &State) -> T) -> Vec<T> {
        let Some(inner) = self.0.upgrade() else {
            return Vec::new();
        };
        let clusters = inner
            .clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        clusters
            .iter()
            .map(|(name, cluster)| read(name.clone(), &cluster.state()))
            .collect()
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet")
            .field("clusters", &self.connected())
            .finish()
    }
}
