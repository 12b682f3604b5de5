//! Starting everything, and stopping it.

use std::{future::Future, sync::Arc, time::Duration};

use fleet::Fleet;
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt as _};
use tokio_util::sync::CancellationToken;

use crate::{
    Clock, Connector, GlobalCredentials, Metrics, capi,
    context::{Context, Error, refusal},
    hub::{Kind, Requests, glimpse},
    kinds::{AllRequests, Queues, Watches},
    known::{Key, Known, key_of},
    pace::paced,
    secrets, status, vm,
    work::{Action, work},
};

/// How the controllers are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How Proxmox VE clusters are reached.
    pub connector: Connector,
    /// The time of day.
    pub clock: Clock,
    /// The engine; handed in when other front-ends share it.
    pub fleet: Fleet,
    /// Objects of one kind looked at at the same time.
    pub concurrency: u16,
    /// What the controllers count.
    pub metrics: Metrics,
    /// Credentials for ProxmoxClusters that name none.
    pub capi_credentials: Option<GlobalCredentials>,
    /// The only namespace that is looked after; all when nothing.
    pub namespace: Option<String>,
    /// The only value of the label `cluster.x-k8s.io/watch-filter` whose Cluster API objects are looked after. For all namespaces
    /// nothing else is, see [`Self::is_for_cluster_api_only`].
    pub watch_filter: Option<String>,
    /// Where consoles of machines are served, without a slash at the end; Proxmox VE's own pages are named when nowhere.
    pub console: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connector: Connector::https(pve::Metrics::default()),
            clock: Clock::system(),
            fleet: Fleet::new(),
            concurrency: 64,
            metrics: Metrics::default(),
            capi_credentials: None,
            namespace: None,
            watch_filter: None,
            console: None,
        }
    }
}

impl Options {
    /// Whether machines of `infra.virtrigaud.io` are left to others.
    ///
    /// A filter divides Cluster API's objects among installations that all look at every namespace. Machines carry none, so
    /// every one of those installations would look after all of them; one that is confined to a namespace is alone there.
    pub fn is_for_cluster_api_only(&self) -> bool {
        self.watch_filter.is_some() && self.namespace.is_none()
    }
}

/// How long what is under way may still take when everything is to stop. A Proxmox VE that does not answer keeps it for much
/// longer, and whoever stops us waits half a minute before it kills; the Lease is to be given back before that.
const LAST: Duration = Duration::from_secs(15);

/// Runs all controllers until `stop` is cancelled, then lets what is under way finish, if it does so soon.
///
/// Dropping the future instead stops everything where it stands.
pub async fn run(client: Client, options: Options, stop: CancellationToken) {
    let mut watches = Watches::new();
    let (queues, requests) = Queues::new();
    let context = Arc::new(Context::new(
        client.clone(),
        &options,
        watches.stores(),
        queues.clone(),
    ));
    watches.requeue_own(&queues);
    watches.forget_gone(&context);
    status::wire(&mut watches, &context);
    vm::wire(&mut watches, &context);
    capi::wire(&mut watches, &context);

    options.metrics.follow(&options.fleet);
    let background = FuturesUnordered::new();
    background.push(wake(options.fleet.clone(), queues));
    background
        .push(Box::pin(vm::provider::follow_clusters(context.clone())) as BoxFuture<'static, ()>);
    let namespace = options.namespace.as_deref();
    let watching = paced(&client);
    background.push(glimpse::<Secret>(&watching, namespace, {
        let context = context.clone();
        move |secret, changed| {
            context.unneeded.seen(secret);
            if changed {
                let (place, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
                vm::secret_changed(&context, &place, &name);
                capi::cluster::secret_changed(&context, &place, &name);
            }
        }
    }));
    background.push(Box::pin(secrets::sweep(context.clone())));
    let others = options.is_for_cluster_api_only();
    let watched = |group: &str| !others || group != api::vm::GROUP;
    watches.run(&watching, namespace, watched, &context.events, &background);
    let background = background.for_each(|()| async {});

    let start = Start {
        context: &context,
        options: &options,
        stop: &stop,
    };
    let controllers = start.controllers(requests);
    let controllers = controllers.for_each(|()| async {});

    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST).await;
    };
    // Told to stop, every controller finishes what is under way; what is only due later is left to the next start. What takes
    // too long is left where it stands, which is no worse than a crash there.
    tokio::select! {
        biased;
        () = controllers => {}
        () = background => {}
        () = late => tracing::warn!("stopping although not everything under way is done: the next leader goes on with it"),
    }
}

struct Start<'a> {
    context: &'a Arc<Context>,
    options: &'a Options,
    stop: &'a CancellationToken,
}

impl Start<'_> {
    /// The loops of all kinds that are looked after.
    fn controllers(&self, requests: AllRequests) -> FuturesUnordered<BoxFuture<'static, ()>> {
        let controllers = FuturesUnordered::new();
        let stores = &self.context.stores;
        controllers.push(self.controller(
            &stores.proxmox_clusters,
            requests.proxmox_clusters,
            capi::cluster::reconcile,
        ));
        controllers.push(self.controller(
            &stores.proxmox_machines,
            requests.proxmox_machines,
            capi::machine::reconcile,
        ));
        controllers.push(self.controller(
            &stores.proxmox_templates,
            requests.proxmox_templates,
            capi::template::reconcile,
        ));
        if !self.options.is_for_cluster_api_only() {
            controllers.push(self.controller(
                &stores.providers,
                requests.providers,
                vm::provider::reconcile,
            ));
            controllers.push(self.controller(
                &stores.machines,
                requests.machines,
                vm::machine::reconcile,
            ));
            controllers.push(self.controller(
                &stores.containers,
                requests.containers,
                vm::container::reconcile,
            ));
            controllers.push(self.controller(&stores.classes, requests.classes, vm::usage::class));
            controllers.push(self.controller(
                &stores.policies,
                requests.policies,
                vm::usage::policy,
            ));
            controllers.push(self.controller(
                &stores.images,
                requests.images,
                vm::image::reconcile,
            ));
            controllers.push(self.controller(
                &stores.clones,
                requests.clones,
                vm::clone::reconcile,
            ));
            controllers.push(self.controller(
                &stores.restores,
                requests.restores,
                vm::restore::reconcile,
            ));
            controllers.push(self.controller(&stores.sets, requests.sets, vm::set::reconcile));
            controllers.push(self.controller(
                &stores.schedules,
                requests.schedules,
                vm::schedule::reconcile,
            ));
            controllers.push(self.controller(
                &stores.snapshots,
                requests.snapshots,
                vm::snapshot::reconcile,
            ));
            controllers.push(self.controller(
                &stores.migrations,
                requests.migrations,
                vm::transfer::reconcile,
            ));
            controllers.push(self.controller(
                &stores.backups,
                requests.backups,
                vm::transfer::backup,
            ));
        }
        // Kinds that are read, not reconciled: a queue nobody empties would only grow. Those of machines left to others end here too.
        drop((
            requests.addresses,
            requests.capi_clusters,
            requests.capi_machines,
            requests.claims,
            requests.pools,
        ));
        controllers
    }

    /// The loop that reconciles one kind.
    fn controller<K, F, Fut>(
        &self,
        store: &Known<K>,
        requests: Requests<K>,
        reconcile: F,
    ) -> BoxFuture<'static, ()>
    where
        K: Kind,
        F: Fn(Arc<K>, Arc<Context>) -> Fut + Send + Sync + Copy + 'static,
        Fut: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        let (context, store, stop) = (self.context.clone(), store.clone(), self.stop.clone());
        let limit = usize::from(self.options.concurrency);
        let metrics = self.options.metrics.clone();
        Box::pin(async move {
            // What an object refers to must have been seen before it can be said to be missing.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = context.stores.ready() => {}
            }
            let queue = requests
                .stream()
                .map(|reference| key_of(&reference))
                .take_until(stop.cancelled_owned());
            let look = |key: Key| {
                let (context, metrics) = (context.clone(), metrics.clone());
                let object = store.find(&key);
                async move {
                    // It went while it waited for its turn.
                    let Some(object) = object else {
                        return Action::await_change();
                    };
                    let result = reconcile(object.clone(), context.clone()).await;
                    metrics.looked(&K::kind(&()), result.is_ok());
                    match result {
                        Ok(action) => {
                            context.failures.clear(&object.uid().unwrap_or_default());
                            action
                        }
                        Err(error) => {
                            let Error::Kube(cause) = &error;
                            if let Some(message) = refusal(cause) {
                                context.warn(&*object, "Refused", message).await;
                            }
                            context.retry(&*object, &error)
                        }
                    }
                }
            };
            work(queue, limit, look).await;
        })
    }
}

/// Passes the engine's calls on to the objects concerned.
fn wake(fleet: Fleet, queues: Queues) -> BoxFuture<'static, ()> {
    let mut wakes = fleet.wakes();
    // The stream must not keep the engine alive, nor end with it.
    drop(fleet);
    Box::pin(async move {
        while let Some(owner) = wakes.next_owner().await {
            queues.wake(&owner);
        }
    })
}
