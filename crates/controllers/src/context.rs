//! What every reconciler has at hand.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::vm::condition;
use fleet::{ClusterName, Fleet, Owner};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Clock, Connector, Options,
    events::{Events, Severity},
    hub::Kind,
    kinds::{Queues, Stores},
    status::Statuses,
    work::Action,
};

/// The finalizer that keeps an object until what it stands for is gone from PVE.
pub(crate) const FINALIZER: &str = "infra.virtrigaud.io/oxmox";

/// The finalizer of a kind. Kinds that other providers served before keep the name those used, so that a take-over leaves none behind.
fn finalizer<K: Kind>() -> &'static str {
    match &*K::kind(&()) {
        "ProxmoxCluster" => "proxmoxcluster.infrastructure.cluster.x-k8s.io",
        "ProxmoxMachine" => "proxmoxmachine.infrastructure.cluster.x-k8s.io",
        _ => FINALIZER,
    }
}

/// What every reconciler has at hand.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) fleet: Fleet,
    pub(crate) connector: Connector,
    pub(crate) clock: Clock,
    pub(crate) events: Arc<Events>,
    pub(crate) statuses: Statuses,
    pub(crate) stores: Stores,
    pub(crate) queues: Queues,
    pub(crate) providers: crate::vm::provider::Connections,
    pub(crate) places: crate::capi::Places,
    pub(crate) unneeded: crate::secrets::Unneeded,
    pub(crate) capi_credentials: Option<crate::GlobalCredentials>,
    pub(crate) watch_filter: Option<String>,
    pub(crate) is_for_cluster_api_only: bool,
    pub(crate) console: Option<String>,
    pub(crate) chosen: crate::capi::Chosen,
    pub(crate) identified: crate::capi::Identified,
    pub(crate) unnoticed: crate::capi::Unnoticed,
    /// Address claims that the watch may not show yet.
    pub(crate) asked: crate::capi::Asked,
    pub(crate) paces: crate::capi::Paces,
    pub(crate) failures: Failures,
    /// When this process took over.
    began: Instant,
}

/// For so long after it took over, a process may not have connected a cluster yet.
const BEGINNING: Duration = Duration::from_mins(1);
/// How long to wait for a look at a cluster.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(1);

/// Why an object could not be reconciled this time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The Kubernetes API refused something or did not answer.
    #[error("the Kubernetes API did not do what was asked")]
    Kube(#[from] kube::Error),
}

/// How often each object failed in a row.
#[derive(Default)]
pub(crate) struct Failures(Mutex<BTreeMap<String, u32>>);

impl Failures {
    fn next(&self, uid: &str) -> u32 {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(uid.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    pub(crate) fn clear(&self, uid: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }
}

impl Context {
    pub(crate) fn new(client: Client, options: &Options, stores: Stores, queues: Queues) -> Self {
        Self {
            events: Arc::new(Events::new(client.clone(), options.clock)),
            client,
            fleet: options.fleet.clone(),
            connector: options.connector.clone(),
            clock: options.clock,
            statuses: Statuses::default(),
            stores,
            queues,
            providers: crate::vm::provider::Connections::default(),
            places: crate::capi::Places::default(),
            unneeded: crate::secrets::Unneeded::default(),
            capi_credentials: options.capi_credentials.clone(),
            watch_filter: options.watch_filter.clone(),
            is_for_cluster_api_only: options.is_for_cluster_api_only(),
            console: options.console.clone(),
            chosen: crate::capi::Chosen::default(),
            identified: crate::capi::Identified::default(),
            unnoticed: crate::capi::Unnoticed::default(),
            asked: crate::capi::Asked::default(),
            paces: crate::capi::Paces::default(),
            failures: Failures::default(),
            began: Instant::now(),
        }
    }

    /// Whether this process has not looked at a cluster yet, and nothing is wrong with that: what was said before still
    /// holds.
    pub(crate) fn is_unseen(&self, cluster: &ClusterName) -> bool {
        match self.fleet.facts(cluster) {
            Some(facts) => !facts.reachable && facts.problem.is_none(),
            None => self.began.elapsed() < BEGINNING,
        }
    }

    /// Says that something went its way.
    pub(crate) async fn normal<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        reason: &str,
        message: &str,
    ) {
        self.events
            .say(about, Severity::Normal, reason, message)
            .await;
    }

    /// Says that something did not.
    pub(crate) async fn warn<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        reason: &str,
        message: &str,
    ) {
        self.events
            .say(about, Severity::Warning, reason, message)
            .await;
    }

    /// Says why an object is not Ready, unless it was said before.
    pub(crate) async fn complain<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        before: &[Condition],
        now: &[Condition],
    ) {
        let why = |conditions| {
            let ready: &Condition = condition(conditions, "Ready")?;
            (ready.status == "False").then_some((&ready.reason, &ready.message))
        };
        if let Some((reason, message)) = why(now).filter(|now| why(before) != Some(*now)) {
            self.warn(about, reason, message).await;
        }
    }

    /// Passes on what the engine wants people to know.
    pub(crate) async fn tell<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        events: &[fleet::Event],
    ) {
        for event in events {
            let severity = if event.warning {
                Severity::Warning
            } else {
                Severity::Normal
            };
            self.events
                .say(about, severity, event.reason, &event.message)
                .await;
        }
    }

    /// Puts the finalizer on an object. Done before anything is done for it.
    pub(crate) async fn hold<K>(&self, object: &K) -> Result<(), Error>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        self.hold_with(object, json!({})).await
    }

    /// Puts the finalizer on an object and changes it otherwise, in one write; in none where there is nothing to write.
    pub(crate) async fn hold_with<K>(
        &self,
        object: &K,
        more: serde_json::Value,
    ) -> Result<(), Error>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        let mut finalizers = object.finalizers().to_vec();
        let held = finalizers.iter().any(|f| f == finalizer::<K>());
        if !held {
            finalizers.push(finalizer::<K>().to_owned());
        }
        if held && more.as_object().is_none_or(serde_json::Map::is_empty) {
            return Ok(());
        }
        self.change(object, finalizers, more).await
    }

    /// Lets an object go: what it stood for is gone.
    pub(crate) async fn release<K>(&self, object: &K) -> Result<(), Error>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        if object.finalizers().iter().any(|f| f == finalizer::<K>()) {
            let rest = object
                .finalizers()
                .iter()
                .filter(|f| *f != finalizer::<K>())
                .cloned()
                .collect();
            match self.set_finalizers(object, rest).await {
                Err(Error::Kube(kube::Error::Api(status))) if status.code == 404 => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget<K: Kind>(&self, object: &K) {
        let uid = object.uid().unwrap_or_default();
        self.statuses.forget(&uid);
        self.events.forget(&uid);
        self.failures.clear(&uid);
    }

    async fn set_finalizers<K>(&self, object: &K, finalizers: Vec<String>) -> Result<(), Error>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        self.change(object, finalizers, json!({})).await
    }

    async fn change<K>(
        &self,
        object: &K,
        finalizers: Vec<String>,
        mut patch: serde_json::Value,
    ) -> Result<(), Error>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        let api: Api<K> = self.api(object);
        // The version makes this fail, and be tried again, if someone else changed the list meanwhile.
        let metadata = &mut patch["metadata"];
        metadata["resourceVersion"] = json!(object.resource_version());
        metadata["uid"] = json!(object.uid());
        metadata["finalizers"] = json!(finalizers);
        api.patch(
            &object.name_any(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await?;
        Ok(())
    }

    /// The API of an object's kind in its namespace.
    pub(crate) fn api<K>(&self, object: &K) -> Api<K>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &namespace(object))
    }

    /// The API of a kind in a namespace.
    pub(crate) fn api_in<K>(&self, namespace: &str) -> Api<K>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// A Secret, if it exists.
    pub(crate) async fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Secret>, Error> {
        Ok(Api::namespaced(self.client.clone(), namespace)
            .get_opt(name)
            .await?)
    }

    /// A ConfigMap, if it exists.
    pub(crate) async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ConfigMap>, Error> {
        Ok(Api::namespaced(self.client.clone(), namespace)
            .get_opt(name)
            .await?)
    }

    /// When to try again after an error: soon, then more and more slowly.
    pub(crate) fn retry<K: Kind>(&self, object: &K, error: &Error) -> Action {
        let count = self.failures.next(&object.uid().unwrap_or_default());
        let conflict = matches!(error, Error::Kube(kube::Error::Api(status)) if status.code == 409);
        if conflict && count <= 3 {
            return Action::requeue(Duration::from_millis(50));
        }
        if count > 3 {
            tracing::warn!(kind = %K::kind(&()), name = %object.name_any(), error = %chain(error), "will try again");
        }
        Action::requeue(Duration::from_millis(500 << count.min(7)))
    }
}

/// What the API server said if it refused what was asked for, and will again.
pub(crate) fn refusal(error: &kube::Error) -> Option<&str> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 413 | 422) => {
            Some(&status.message)
        }
        _ => None,
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// An object's namespace.
pub(crate) fn namespace<K: Resource>(object: &K) -> String {
    object.namespace().unwrap_or_else(|| "default".to_owned())
}

/// The key under which an object owns things on PVE.
///
/// The UID makes it unique for ever; kind, namespace and name are for the person who reads a guest's notes.
pub(crate) fn owner<K: Kind>(object: &K) -> Option<Owner> {
    let (kind, uid) = (K::kind(&()), object.uid()?);
    let place = namespace(object);
    Owner::new(format!("{kind}/{place}/{}/{uid}", object.name_any()))
        .or_else(|_| Owner::new(format!("{kind}///{uid}")))
        .ok()
}

/// Kind, namespace and name of the object behind an owner key.
pub(crate) fn owned_by(owner: &Owner) -> Option<(&str, &str, &str)> {
    let mut parts = owner.as_str().splitn(4, '/');
    let found = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().map(|_| found)
}
