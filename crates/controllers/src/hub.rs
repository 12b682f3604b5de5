//! One watch per kind, however many controllers care about it.
//!
//! Each kind is watched once. The watch keeps a store that every reconciler reads from, and tells
//! subscribers about each object that changed; a subscriber turns that into requests on some
//! controller's queue. Queues are unbounded, because a lost request is a stuck object; they hold
//! references only, and what empties them ([`crate::work`]) folds repeated ones.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt as _,
        reflector::ObjectRef,
        utils::Backoff,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::Instant,
};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::{
    events::{Events, Severity},
    known::{Known, Notes, is_gone},
    readable::{Readable, Unreadable},
};

/// Bounds every watched kind satisfies.
pub(crate) trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

type Subscriber<K> = Box<dyn Fn(&K) + Send + Sync>;

/// The watch of one kind.
pub(crate) struct Watch<K: Kind> {
    notes: Notes<K>,
    subscribers: Vec<Subscriber<K>>,
}

impl<K: Kind> Watch<K> {
    pub(crate) fn new() -> Self {
        Self {
            notes: Notes::new(),
            subscribers: Vec::new(),
        }
    }

    pub(crate) fn known(&self) -> Known<K> {
        self.notes.known()
    }

    /// Calls `tell` with every object that appears, changes or goes, once the store shows it so.
    pub(crate) fn subscribe(&mut self, tell: impl Fn(&K) + Send + Sync + 'static) {
        self.subscribers.push(Box::new(tell));
    }

    /// Never watches: there is nothing of this kind for us.
    pub(crate) fn pass_over(self) {
        self.notes.is_seen();
    }

    /// Watches until dropped. Of what cannot be read, the object's events tell.
    pub(crate) fn run(self, api: Api<Readable<K>>, events: Arc<Events>) -> BoxFuture<'static, ()> {
        let Self {
            mut notes,
            subscribers,
        } = self;
        Box::pin(async move {
            let watch = watcher::watcher(api, watcher::Config::default())
                .backoff(Pause::of::<K>())
                // Nobody reads who wrote what, and it is the larger part of most objects.
                .modify(|object| object.meta_mut().managed_fields = None);
            let mut watch = std::pin::pin!(watch);
            let mut complaints = FuturesUnordered::new();
            loop {
                let event = tokio::select! {
                    biased;
                    event = watch.next() => event,
                    Some(()) = complaints.next(), if !complaints.is_empty() => continue,
                };
                match event {
                    None => return,
                    Some(Ok(event)) => {
                        let gone = matches!(event, Event::Delete(_));
                        let (event, unreadable) = notes.read(event);
                        if let Some(unreadable) = unreadable.filter(|_| !gone) {
                            complaints.push(complain::<K>(events.clone(), unreadable));
                        }
                        for object in event.into_iter().flat_map(|event| notes.take(event)) {
                            for tell in &subscribers {
                                tell(&object);
                            }
                        }
                    }
                    Some(Err(error)) => {
                        let kind = K::kind(&());
                        // A kind of another project may be installed later; until then there is none of it.
                        if is_not_served(&error) {
                            notes.is_seen();
                            tracing::debug!(%kind, %error, "watch interrupted");
                        } else if is_too_old(&error) {
                            tracing::debug!(%kind, %error, "watch begins anew");
                        } else {
                            tracing::warn!(%kind, %error, "watch interrupted");
                        }
                    }
                }
            }
        })
    }
}

/// Says that an object cannot be read.
async fn complain<K: Kind>(events: Arc<Events>, unreadable: Unreadable) {
    let about = unreadable.about::<K>();
    let (kind, name) = (K::kind(&()), about.name_any());
    let namespace = about.namespace().unwrap_or_default();
    tracing::warn!(%kind, namespace, name, error = %unreadable, "object cannot be read");
    let message = format!(
        "this object cannot be read and is left as it was: {unreadable}; correct the field, or delete the object"
    );
    events
        .say(&about, Severity::Warning, "Unreadable", &message)
        .await;
}

/// How long a watch that broke off waits: longer each time, and every kind a little differently, so that they do not all
/// come back in the same moment.
#[derive(Debug)]
struct Pause {
    spread: u32,
    failures: u32,
    last: Option<Instant>,
}

impl Pause {
    const SHORTEST: Duration = Duration::from_millis(800);
    const LONGEST: Duration = Duration::from_secs(30);
    /// A watch that did not fail for so long is well again.
    const WELL: Duration = Duration::from_mins(2);

    fn of<K: Kind>() -> Self {
        let mut hasher = DefaultHasher::new();
        K::kind(&()).hash(&mut hasher);
        let spread = u32::try_from(hasher.finish() % 1_000).unwrap_or_default();
        Self {
            spread,
            failures: 0,
            last: None,
        }
    }
}

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if self
            .last
            .replace(now)
            .is_some_and(|last| now - last > Self::WELL)
        {
            self.failures = 0;
        }
        let pause = (Self::SHORTEST * (1 << self.failures.min(6))).min(Self::LONGEST);
        self.failures = self.failures.saturating_add(1);
        Some(pause + pause * self.spread / 1_000)
    }
}

impl Backoff for Pause {
    /// Called with everything but an error. That something came is no proof that the watch is well: before each list comes
    /// the news that there will be one, even of a kind that is not served. Only time tells.
    fn reset(&mut self) {}
}

fn is_not_served(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404
    )
}

/// Whether what a watch would go on from is forgotten: it lists again, as it does every now and then.
fn is_too_old(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code == 410,
        _ => false,
    }
}

/// Watches a kind without keeping it. Says of each object whether it has changed since it was first listed, or may have.
pub(crate) fn glimpse<K>(
    client: &Client,
    namespace: Option<&str>,
    tell: impl Fn(&K, bool) + Send + Sync + 'static,
) -> BoxFuture<'static, ()>
where
    K: Kind + Resource<Scope = NamespaceResourceScope>,
{
    let api: Api<K> = in_namespace(client, namespace);
    Box::pin(async move {
        let events = watcher::watcher(api, watcher::Config::default()).backoff(Pause::of::<K>());
        let mut events = std::pin::pin!(events);
        let mut listed = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(object) | Event::Delete(object)) => {
                    tell(&object, true);
                }
                // Whatever is listed anew may have changed while nobody watched.
                Ok(Event::InitApply(object)) => tell(&object, listed),
                Ok(Event::InitDone) => listed = true,
                Ok(Event::Init) => {}
                Err(error) => {
                    let kind = K::kind(&());
                    tracing::debug!(%kind, %error, "watch interrupted");
                }
            }
        }
    })
}

/// The objects of one namespace, or of all.
pub(crate) fn in_namespace<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Kind + Resource<Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Where requests to reconcile objects of one kind are put.
pub(crate) struct Queue<K: Kind> {
    sender: UnboundedSender<ObjectRef<K>>,
}

impl<K: Kind> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
        }
    }
}

/// The other end of a queue.
pub(crate) struct Requests<K: Kind>(UnboundedReceiver<ObjectRef<K>>);

impl<K: Kind> Requests<K> {
    pub(crate) fn stream(self) -> impl Stream<Item = ObjectRef<K>> {
        UnboundedReceiverStream::new(self.0)
    }
}

impl<K: Kind> Queue<K> {
    pub(crate) fn new() -> (Self, Requests<K>) {
        let (sender, receiver) = unbounded_channel();
        (Self { sender }, Requests(receiver))
    }

    pub(crate) fn push(&self, object: ObjectRef<K>) {
        // Nobody listens any more only while everything is being taken down.
        let _ = self.sender.send(object);
    }

    pub(crate) fn push_object(&self, object: &K) {
        self.push(ObjectRef::from_obj(object));
    }
}

/// Lets through only changes that someone other than a status writer made.
///
/// Status is our own output; waking for it would only make every write cost a second look.
pub(crate) struct SpecChanges {
    seen: Mutex<BTreeMap<String, u64>>,
}

impl SpecChanges {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::default(),
        })
    }

    pub(crate) fn is_new<K: Kind>(&self, object: &K) -> bool {
        self.is_new_with(object, ())
    }

    /// The same, with the part of a status that matters: somebody else writes it.
    pub(crate) fn is_new_with<K: Kind>(&self, object: &K, part: impl Hash) -> bool {
        let meta = object.meta();
        let mut hasher = DefaultHasher::new();
        part.hash(&mut hasher);
        meta.uid.hash(&mut hasher);
        meta.generation.hash(&mut hasher);
        meta.labels.hash(&mut hasher);
        meta.annotations.hash(&mut hasher);
        meta.finalizers.hash(&mut hasher);
        for owner in meta.owner_references.iter().flatten() {
            owner.uid.hash(&mut hasher);
        }
        meta.deletion_timestamp
            .as_ref()
            .map(|t| t.0)
            .hash(&mut hasher);
        let key = format!(
            "{}/{}",
            object.namespace().unwrap_or_default(),
            object.name_any()
        );
        let print = hasher.finish();
        let mut seen = self
            .seen
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if is_gone(object) {
            seen.remove(&key);
            return true;
        }
        seen.insert(key, print) != Some(print)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use api::cluster_api::{Cluster, ClusterSpec};
    use futures::FutureExt as _;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use kube::client::Body;

    use super::*;

    fn events() -> Arc<Events> {
        let client = Client::new(
            tower::service_fn(|_: http::Request<Body>| {
                std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
            }),
            "default",
        );
        Arc::new(Events::new(client, crate::Clock::system()))
    }

    /// An API server that thinks for a second and then lists nothing.
    fn slow_server() -> Client {
        let service = tower::service_fn(|request: http::Request<Body>| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if request.uri().query().unwrap_or_default().contains("watch") {
                std::future::pending::<()>().await;
            }
            let list = r#"{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"ClusterList","metadata":{"resourceVersion":"1"},"items":[]}"#;
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(
                list.as_bytes().to_vec(),
            )))
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn everybody_who_waits_for_a_watch_is_told() {
        let watch = Watch::<Cluster>::new();
        let waiting = [watch.known(), watch.known(), watch.known()];
        let running = watch.run(Api::all(slow_server()), events());
        let all = futures::future::join_all(waiting.iter().map(|known| known.ready().boxed()));
        let limit = Duration::from_mins(1);
        tokio::select! {
            () = running => panic!("the watch ended"),
            told = tokio::time::timeout(limit, all) => assert!(told.is_ok(), "some still wait"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_not_served_is_asked_for_more_and_more_seldom() {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = asked.clone();
        let service = tower::service_fn(move |_: http::Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async {
                let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#;
                let answer = http::Response::builder().status(404);
                answer.body(Body::from(status.as_bytes().to_vec()))
            }
        });
        let watch = Watch::<Cluster>::new();
        let known = watch.known();
        let running = watch.run(Api::all(Client::new(service, "default")), events());
        let hour = tokio::time::timeout(Duration::from_hours(1), running);
        assert!(hour.await.is_err(), "the watch goes on");
        known.ready().await;
        let asked = asked.load(Ordering::SeqCst);
        assert!((50..130).contains(&asked), "{asked} times in an hour");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_listed_anew_is_told_of_as_if_it_had_changed() {
        let lists = Arc::new(AtomicU32::new(0));
        let counted = lists.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let watches = request.uri().query().unwrap_or_default().contains("watch");
            let lists = if watches {
                counted.load(Ordering::SeqCst)
            } else {
                counted.fetch_add(1, Ordering::SeqCst) + 1
            };
            async move {
                if watches && lists > 1 {
                    std::future::pending::<()>().await;
                }
                let answer = if watches {
                    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}"#
                } else {
                    r#"{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"ClusterList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a","namespace":"default"},"spec":{}}]}"#
                };
                let answer = format!("{answer}\n").into_bytes();
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(answer)))
            }
        });
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let running = glimpse::<Cluster>(
            &Client::new(service, "default"),
            None,
            move |object, changed| {
                heard.lock().unwrap().push((object.name_any(), changed));
            },
        );
        let minute = tokio::time::timeout(Duration::from_mins(1), running);
        assert!(minute.await.is_err(), "the watch goes on");
        assert_eq!(lists.load(Ordering::SeqCst), 2);
        let a = |changed| ("a".to_owned(), changed);
        assert_eq!(*told.lock().unwrap(), [a(false), a(true)]);
    }

    #[test]
    fn a_new_owner_is_a_change() {
        let changes = SpecChanges::new();
        let mut object = Cluster::new("a", ClusterSpec::default());
        assert!(changes.is_new(&object));
        assert!(!changes.is_new(&object));
        object.metadata.owner_references = Some(vec![OwnerReference {
            uid: "1".into(),
            ..OwnerReference::default()
        }]);
        assert!(changes.is_new(&object));
    }
}
