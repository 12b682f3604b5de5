//! `Provider`: keeps the engine connected to a Proxmox VE cluster, and says how that goes.

mod connection;
mod report;
mod secrets;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::vm::{Provider, ProviderStatus};
use fleet::{ClusterFacts, ClusterName, NodeName, Outcome};
use futures::{
    StreamExt as _,
    future::ready,
    stream::{BoxStream, SelectAll},
};
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    watch,
};
use tokio_stream::wrappers::WatchStream;
use tracing::Level;

use self::connection::{Settings, settings};
pub(crate) use self::secrets::KEEP;
use super::refs::{self, Lookup};
use crate::{
    context::{Context, Error, FIRST_LOOK, namespace},
    hub::Kind,
    kinds::Watches,
    work::Action,
};

/// The Secret used when a Provider names none.
pub(crate) const DEFAULT_SECRET: &str = "pve-credentials";

/// The target of log lines that a Provider's `LOG_LEVEL` asked for.
pub const LOG_TARGET: &str = "oxmox::provider";

/// How long a Provider that cannot be used is left alone at most.
const RECHECK: Duration = Duration::from_mins(1);

type Follow = (ClusterName, watch::Receiver<Arc<ClusterFacts>>);

/// What each cluster is connected with.
pub(crate) struct Connections {
    known: Mutex<BTreeMap<ClusterName, Settings>>,
    follow: UnboundedSender<Follow>,
    followed: Mutex<Option<UnboundedReceiver<Follow>>>,
    /// The Secrets that are kept for a Provider, by its UID.
    held: Mutex<BTreeMap<String, Held>>,
}

/// What was kept, for which generation of the Provider.
type Held = (Option<i64>, Vec<String>);

impl Default for Connections {
    fn default() -> Self {
        let (follow, followed) = unbounded_channel();
        Self {
            known: Mutex::default(),
            follow,
            followed: Mutex::new(Some(followed)),
            held: Mutex::default(),
        }
    }
}

impl Connections {
    fn get(&self, name: &ClusterName) -> Option<Settings> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    fn holds(&self, uid: &str) -> Option<Held> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(uid).cloned()
    }

    fn hold(&self, uid: String, what: Option<Held>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match what {
            Some(what) => drop(held.insert(uid, what)),
            None => drop(held.remove(&uid)),
        }
    }

    /// Nodes the Provider limits itself to.
    pub(crate) fn nodes(&self, name: &ClusterName) -> Vec<String> {
        self.get(name)
            .map(|settings| settings.nodes)
            .unwrap_or_default()
    }

    /// Where a person finds a guest's console on PVE's own pages.
    pub(crate) fn console_url(&self, name: &ClusterName, node: &str, vmid: u32) -> Option<String> {
        let settings = self.get(name)?;
        let base = settings.connection.endpoints.first()?;
        Some(format!(
            "{base}/?console=kvm&novnc=1&node={node}&vmid={vmid}"
        ))
    }

    /// Logs how a look at a guest went. Where its Provider has a `LOG_LEVEL`, that decides what is worth a line, and the
    /// process lets every such line through.
    pub(crate) fn log<K: Kind>(&self, name: &ClusterName, guest: &K, outcome: &Outcome) {
        let (kind, guest) = (K::kind(&()), guest.name_any());
        let Some(most) = self.get(name).and_then(|settings| settings.log) else {
            tracing::debug!(%kind, name = guest, ?outcome, "looked at");
            return;
        };
        let level = match outcome {
            Outcome::Failed { .. } => Level::ERROR,
            Outcome::Waiting { .. } => Level::WARN,
            Outcome::Working { .. } | Outcome::Gone => Level::INFO,
            Outcome::Settled => Level::DEBUG,
            Outcome::Persist => Level::TRACE,
        };
        if level > most {
            return;
        }
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(target: LOG_TARGET, $level, provider = %name, %kind, name = guest, ?outcome, "looked at")
            };
        }
        match level {
            Level::ERROR => line!(Level::ERROR),
            Level::WARN => line!(Level::WARN),
            Level::INFO => line!(Level::INFO),
            Level::DEBUG => line!(Level::DEBUG),
            _ => line!(Level::TRACE),
        }
    }

    /// Has everybody who says something about a cluster look again when it changes.
    pub(crate) fn follow(&self, name: &ClusterName, facts: watch::Receiver<Arc<ClusterFacts>>) {
        // Nobody listens only while everything is being taken down.
        let _ = self.follow.send((name.clone(), facts));
    }

    fn put(&self, name: ClusterName, settings: Settings) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, settings);
    }

    fn remove(&self, name: &ClusterName) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

/// A Provider is looked at again when something that uses it comes or goes.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    secrets::wire(watches, context);
    let to = context.clone();
    watches.machines.subscribe(move |machine| {
        let status = machine.status.as_ref();
        look_again(&to, status.and_then(super::machine::recorded_cluster));
    });
    let to = context.clone();
    watches.containers.subscribe(move |container| {
        let status = container.status.as_ref();
        look_again(&to, status.and_then(super::container::recorded_cluster));
    });
    let to = context.clone();
    watches.images.subscribe(move |image| {
        let status = image.status.as_ref();
        look_again(&to, status.into_iter().flat_map(super::image::clusters));
    });
    let to = context.clone();
    watches.backups.subscribe(move |backup| {
        let kept = backup.status.as_ref().and_then(|it| it.record.as_ref());
        let subject = super::action::record(kept).subject;
        look_again(&to, subject.map(|of| of.cluster));
    });
    let to = context.clone();
    watches.snapshots.subscribe(move |snapshot| {
        let kept = snapshot.status.as_ref().and_then(|it| it.record.as_ref());
        let subject = super::action::record(kept).subject;
        look_again(&to, subject.map(|of| of.cluster));
    });
}

fn look_again(context: &Context, clusters: impl IntoIterator<Item = ClusterName>) {
    for cluster in clusters {
        if let Some((place, name)) = cluster.as_str().split_once('/') {
            let provider = ObjectRef::new(name).within(place);
            context.queues.providers.push(provider);
        }
    }
}

/// Looks at the Providers that read a Secret.
pub(crate) fn secret_changed(context: &Context, place: &str, secret: &str) {
    for provider in context.stores.providers.state() {
        let mut read = secrets::names(&provider).into_iter();
        if namespace(&*provider) == place && read.any(|name| name == secret) {
            context
                .providers
                .hold(provider.uid().unwrap_or_default(), None);
            context.queues.providers.push_object(&provider);
        }
    }
}

/// Whether a Provider reads ConfigMaps, which nobody watches.
fn reads_config_map(provider: &Provider) -> bool {
    let env = provider
        .spec
        .runtime
        .iter()
        .flat_map(|runtime| &runtime.env);
    let mut sources = env.filter_map(|var| var.value_from.as_ref());
    sources.any(|from| from.config_map_key_ref.is_some())
}

/// What is said about a cluster; how much of it is in use just now is not.
fn gist(facts: &ClusterFacts) -> ClusterFacts {
    let mut gist = ClusterFacts {
        guests: 0,
        storages: BTreeMap::new(),
        ..facts.clone()
    };
    for node in gist.nodes.values_mut() {
        (node.cpu_used, node.memory_used, node.guests) = (0.0, fleet::Size::ZERO, 0);
    }
    gist
}

/// Looks at a Provider, or at the ProxmoxClusters of a place, whenever there is something new to say about it.
pub(crate) async fn follow_clusters(context: Arc<Context>) {
    let receiver = {
        let mut followed = context
            .providers
            .followed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        followed.take()
    };
    let Some(mut new) = receiver else { return };
    let mut changes: SelectAll<BoxStream<'static, ClusterName>> = SelectAll::new();
    loop {
        tokio::select! {
            biased;
            Some((name, facts)) = new.recv() => {
                let mut said = None;
                let news = WatchStream::from_changes(facts).filter_map(move |facts| {
                    let now = Some(gist(&facts));
                    let is_new = said != now;
                    said = now;
                    ready(is_new.then(|| name.clone()))
                });
                changes.push(news.boxed());
            }
            Some(name) = changes.next(), if !changes.is_empty() => {
                crate::capi::place_changed(&context, &name);
                if let Some((place, name)) = name.as_str().split_once('/') {
                    context.queues.providers.push(ObjectRef::new(name).within(place));
                }
            }
            else => return,
        }
    }
}

pub(crate) async fn reconcile(
    provider: Arc<Provider>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let uid = provider.uid().unwrap_or_default();
    let before: ProviderStatus = context.statuses.newest(&uid, provider.status.as_ref());
    let name = match refs::cluster(&provider) {
        Ok(name) => name,
        Err(missing) => {
            let status = report::unusable(&context, &provider, &before, &missing);
            context
                .statuses
                .write(
                    &context.client,
                    &*provider,
                    provider.status.as_ref(),
                    &status,
                )
                .await?;
            return Ok(Action::await_change());
        }
    };
    let leaving = provider.metadata.deletion_timestamp.is_some();
    let users = if leaving {
        report::users(&context, &name)
    } else {
        Vec::new()
    };
    if leaving && users.is_empty() {
        context.fleet.disconnect(&name);
        context.providers.remove(&name);
        context.release(&*provider).await?;
        context
            .providers
            .hold(provider.uid().unwrap_or_default(), None);
        return Ok(Action::await_change());
    }
    let mut going = None;
    if !leaving {
        context.hold(&*provider).await?;
        going = secrets::hold(&context, &provider).await?;
    }
    let connected = match settings(&context, &provider).await {
        Ok(wanted) => connect(&provider, &context, &name, wanted).await,
        Err(Lookup::Missing(missing)) => Err(missing),
        Err(Lookup::Failed(error)) => return Err(error),
    };
    let hindered = match connected {
        // Guests are looked after until the last of them is gone, also by a process that has only just begun.
        Ok(()) if leaving => Some(in_use(&users)),
        Err(_) if leaving && context.providers.get(&name).is_some() => Some(in_use(&users)),
        Err(missing) => Some(missing),
        Ok(()) => None,
    };
    if let Some(missing) = hindered {
        context
            .warn(&*provider, missing.reason, &missing.message)
            .await;
        let status = report::unusable(&context, &provider, &before, &missing);
        context
            .statuses
            .write(
                &context.client,
                &*provider,
                provider.status.as_ref(),
                &status,
            )
            .await?;
        return Ok(Action::requeue(going.unwrap_or(RECHECK).min(RECHECK)));
    }
    if !before.conditions.is_empty() && context.is_unseen(&name) {
        return Ok(Action::requeue(FIRST_LOOK));
    }
    let facts = context.fleet.facts(&name).unwrap_or_default();
    let status = report::known(&context, &provider, &name, &before, &facts);
    announce(&provider, &context, &before, &status).await;
    context
        .statuses
        .write(
            &context.client,
            &*provider,
            provider.status.as_ref(),
            &status,
        )
        .await?;
    // Refused credentials are read again though nobody told of new ones: a Provider that missed them would stay so for ever.
    let again = facts.refused || reads_config_map(&provider);
    let again = going.or(again.then_some(RECHECK));
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// Connects the engine if it is not, or not like this. New credentials alone disturb nothing under way.
async fn connect(
    provider: &Provider,
    context: &Context,
    name: &ClusterName,
    wanted: Settings,
) -> Result<(), refs::Missing> {
    let known = context.providers.get(name);
    // Somebody has said that it is the same cluster all the same.
    let facts = context.fleet.facts(name);
    let accepted = facts.is_some_and(|facts| facts.stranger) && nodes(provider).is_empty();
    if !accepted
        && known
            .as_ref()
            .is_some_and(|known| known.same_place(&wanted))
    {
        if known.is_some_and(|known| !known.same_credentials(&wanted)) {
            context
                .fleet
                .set_credentials(name, wanted.connection.credentials.clone());
            context
                .normal(
                    provider,
                    "CredentialsRotated",
                    "the new credentials are in use",
                )
                .await;
        }
        context.providers.put(name.clone(), wanted);
        return Ok(());
    }
    let client = context
        .connector
        .connect(&wanted.connection)
        .map_err(|error| refs::Missing::new("ConnectionInvalid", error.to_string()))?;
    let options = fleet::Options {
        known: known_nodes(provider, context, name),
        ..wanted.fleet_options()
    };
    context.fleet.connect(name.clone(), client, options);
    if let Some(facts) = context.fleet.watch(name) {
        context.providers.follow(name, facts);
    }
    context.providers.put(name.clone(), wanted);
    for machine in context.stores.machines.state() {
        context.queues.machines.push_object(&machine);
    }
    for container in context.stores.containers.state() {
        context.queues.containers.push_object(&container);
    }
    Ok(())
}

/// The nodes that the cluster had when it was looked at last. Another one may answer as long as nothing is kept on it.
fn known_nodes(provider: &Provider, context: &Context, name: &ClusterName) -> BTreeSet<NodeName> {
    let nodes = nodes(provider);
    if nodes.is_empty() || report::users(context, name).is_empty() {
        return BTreeSet::new();
    }
    nodes
}

fn nodes(provider: &Provider) -> BTreeSet<NodeName> {
    let nodes = provider.status.iter().flat_map(|status| &status.nodes);
    let names = nodes.filter_map(|node| NodeName::new(node.name.as_str()).ok());
    names.collect()
}

async fn announce(
    provider: &Provider,
    context: &Context,
    before: &ProviderStatus,
    now: &ProviderStatus,
) {
    let state = |status: &ProviderStatus| {
        api::vm::condition(&status.conditions, "Ready")
            .map(|c| (c.status.clone(), c.reason.clone()))
    };
    if state(before) == state(now) {
        return;
    }
    if let Some(ready) = api::vm::condition(&now.conditions, "Ready") {
        match ready.status.as_str() {
            "True" => context.normal(provider, "Connected", &ready.message).await,
            "False" => context.warn(provider, &ready.reason, &ready.message).await,
            _ => {}
        }
    }
}

/// A Provider goes when no guest is left that only it can reach.
fn in_use(users: &[String]) -> refs::Missing {
    let users = users.join(", ");
    let text = format!("still needed to look after {users}; delete them first");
    refs::Missing::new("InUse", text)
}
