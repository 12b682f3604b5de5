//! From Secrets to connected Proxmox VE clusters.
//!
//! Many ProxmoxClusters may live on one Proxmox VE. They share one connection, and so one watcher: it is named after the place
//! and the user, not after the object that asked for it first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::infrastructure::v1beta1::{Instance, ProxmoxCluster};
use api::vm::NamespacedRef;
use fleet::ClusterName;
use k8s_openapi::ByteString;
use kube::ResourceExt as _;
use pve::tls::Trust;
use tokio::time::Instant;

use super::credentials::{Server, connection};
use super::{Stop, Wait};
use crate::Connection;
use crate::context::{Context, namespace};

/// Credentials for ProxmoxClusters that name none, from the process's own configuration.
#[derive(Clone, Default)]
pub struct GlobalCredentials {
    /// Address of the Proxmox VE.
    pub url: String,
    /// API token's id, `user@realm!name`.
    pub token: String,
    /// API token's secret.
    pub secret: String,
    /// Do not verify the certificate.
    pub insecure: bool,
    /// PEM of the authority to believe.
    pub root_ca: Option<String>,
}

impl fmt::Debug for GlobalCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalCredentials")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Which places are connected, and with which credentials.
#[derive(Default)]
pub(crate) struct Places(Mutex<Connected>);

#[derive(Default)]
struct Connected {
    places: BTreeMap<ClusterName, Place>,
    /// Where the instances of ProxmoxClusters are, by UID and name, as their Secrets said when they were read last. Each
    /// of a hundred machines asks for it several times while it comes up.
    instances: BTreeMap<(String, Option<String>), Known<ClusterName>>,
    /// The ProxmoxClusters whose Secrets are held, by UID.
    held: BTreeMap<String, Known<()>>,
}

/// What was found out about a ProxmoxCluster as it was then.
#[derive(Clone)]
struct Known<T> {
    what: T,
    generation: Option<i64>,
    at: Instant,
}

impl<T: Clone> Known<T> {
    fn of(cluster: &ProxmoxCluster, what: T) -> Self {
        Self {
            what,
            generation: cluster.metadata.generation,
            at: Instant::now(),
        }
    }

    fn still(&self, cluster: &ProxmoxCluster) -> Option<T> {
        let same = self.generation == cluster.metadata.generation;
        (same && self.at.elapsed() < AGE).then(|| self.what.clone())
    }
}

/// How long what a Secret said is believed. Most changes are seen in a watch; those of other namespaces may not be.
const AGE: Duration = Duration::from_mins(5);

impl Places {
    fn lock(&self) -> MutexGuard<'_, Connected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where an instance is, if that was found out for the cluster as it is now, lately, and no Secret has changed since.
    pub(super) fn known(
        &self,
        cluster: &ProxmoxCluster,
        instance: Option<&Instance>,
    ) -> Option<ClusterName> {
        let connected = self.lock();
        let known = connected.instances.get(&key(cluster, instance))?;
        known.still(cluster)
    }

    /// Whether the Secrets of a cluster are held already.
    pub(super) fn is_held(&self, cluster: &ProxmoxCluster) -> bool {
        let uid = cluster.uid().unwrap_or_default();
        let connected = self.lock();
        let known = connected.held.get(&uid);
        known.is_some_and(|known| known.still(cluster).is_some())
    }

    /// The Secrets of a cluster are held now.
    pub(super) fn hold(&self, cluster: &ProxmoxCluster) {
        let uid = cluster.uid().unwrap_or_default();
        self.lock().held.insert(uid, Known::of(cluster, ()));
    }

    /// They are not, or not all of them.
    pub(super) fn let_go(&self, cluster: &ProxmoxCluster) {
        let uid = cluster.uid().unwrap_or_default();
        self.lock().held.remove(&uid);
    }

    /// The UIDs of the ProxmoxClusters that are on a place, as far as that was found out.
    fn users(&self, place: &ClusterName) -> BTreeSet<String> {
        let connected = self.lock();
        let instances = connected.instances.iter();
        let here = instances.filter(|(_, known)| known.what == *place);
        here.map(|((uid, _), _)| uid.clone()).collect()
    }

    /// Has the Secrets of a cluster read again.
    pub(super) fn forget(&self, cluster: &ProxmoxCluster) {
        let uid = cluster.uid().unwrap_or_default();
        let mut connected = self.lock();
        connected.instances.retain(|(of, _), _| *of != uid);
        connected.held.remove(&uid);
    }
}

fn key(cluster: &ProxmoxCluster, instance: Option<&Instance>) -> (String, Option<String>) {
    let name = instance.map(|instance| instance.name.clone());
    (cluster.uid().unwrap_or_default(), name)
}

#[derive(Clone, PartialEq)]
struct Place {
    endpoints: Vec<String>,
    trust: Trust,
    /// Tells credentials apart without keeping them.
    credentials: u64,
}

/// Connects the Proxmox VE of an instance, or of a cluster that lists none; the nearest credentials win.
pub(super) async fn connect(
    context: &Context,
    cluster: &ProxmoxCluster,
    instance: Option<&Instance>,
) -> Result<ClusterName, Stop> {
    let reference = instance
        .and_then(|instance| instance.credentials_ref.as_ref())
        .or(cluster.spec.credentials_ref.as_ref());
    let entries = match reference {
        Some(reference) => secret(context, cluster, reference).await?,
        None => global(context)?,
    };
    // Who writes a ProxmoxCluster may say where to take keys to only if the keys are of the same namespace: others would learn them.
    let own = namespace(cluster);
    let keys_are_own = reference.is_some_and(|it| it.namespace.as_ref().is_none_or(|n| *n == own));
    // An instance with credentials of its own is elsewhere.
    let elsewhere = instance.is_some_and(|instance| instance.credentials_ref.is_some());
    let server = Server {
        name: cluster.spec.server.as_deref(),
        may_be_added: keys_are_own,
        must_agree: !elsewhere,
    };
    let (connection, credentials) = connection(&server, &entries)?;
    let user = entries.get("token").cloned().unwrap_or_default();
    let name = place_name(&connection, &user)?;
    let place = Place {
        endpoints: connection.endpoints.clone(),
        trust: connection.trust.clone(),
        credentials,
    };
    let known = context
        .places
        .lock()
        .places
        .insert(name.clone(), place.clone());
    match known {
        Some(known) if known == place => {}
        Some(known) if known.endpoints == place.endpoints && known.trust == place.trust => {
            context.fleet.set_credentials(&name, connection.credentials);
        }
        _ => {
            let client = context
                .connector
                .connect(&connection)
                .map_err(|error| Wait::new("CredentialsInvalid", error.to_string()))?;
            context
                .fleet
                .connect(name.clone(), client, fleet::Options::default());
            if let Some(facts) = context.fleet.watch(&name) {
                context.providers.follow(&name, facts);
            }
        }
    }
    let found = Known::of(cluster, name.clone());
    let key = key(cluster, instance);
    context.places.lock().instances.insert(key, found);
    Ok(name)
}

/// Looks at the ProxmoxClusters that are on a place.
pub(crate) fn place_changed(context: &Context, place: &ClusterName) {
    let users = context.places.users(place);
    if users.is_empty() {
        return;
    }
    for cluster in context.stores.proxmox_clusters.state() {
        if cluster.uid().is_some_and(|uid| users.contains(&uid)) {
            context.queues.proxmox_clusters.push_object(&cluster);
        }
    }
}

async fn secret(
    context: &Context,
    cluster: &ProxmoxCluster,
    reference: &NamespacedRef,
) -> Result<BTreeMap<String, String>, Stop> {
    let own = namespace(cluster);
    let place = reference.namespace.as_deref().unwrap_or(&own);
    let Some(secret) = context.secret(place, &reference.name).await? else {
        return Err(Wait::new(
            "CredentialsNotFound",
            format!(
                "there is no Secret {:?} in namespace {place:?}; create it with url, token and secret",
                reference.name
            ),
        )
        .into());
    };
    let text = |(key, ByteString(bytes)): (String, ByteString)| {
        Some((key, String::from_utf8(bytes).ok()?.trim().to_owned()))
    };
    Ok(secret
        .data
        .unwrap_or_default()
        .into_iter()
        .filter_map(text)
        .collect())
}

fn global(context: &Context) -> Result<BTreeMap<String, String>, Wait> {
    let Some(global) = &context.capi_credentials else {
        return Err(Wait::new(
            "CredentialsNotFound",
            "spec.credentialsRef names no Secret and the operator was started without PROXMOX_URL, PROXMOX_TOKEN and PROXMOX_SECRET",
        ));
    };
    let mut entries: BTreeMap<String, String> = [
        ("url", global.url.clone()),
        ("token", global.token.clone()),
        ("secret", global.secret.clone()),
        ("insecure", global.insecure.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    entries.extend(global.root_ca.clone().map(|ca| ("root_ca".to_owned(), ca)));
    Ok(entries)
}

fn place_name(connection: &Connection, user: &str) -> Result<ClusterName, Wait> {
    let first = connection.endpoints.first().map_or("", String::as_str);
    let host = first.split_once("://").map_or(first, |(_, host)| host);
    let plain = |text: &str| -> String {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._:@-".contains(c);
        text.chars()
            .map(|c| if fits(c) { c } else { '+' })
            .collect()
    };
    ClusterName::new(format!("pve/{}/{}", plain(host), plain(user)))
        .map_err(|error| Wait::new("CredentialsInvalid", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_and_user_are_one_connection() {
        let entries = [
            ("url", "https://pve.example:8006/"),
            ("token", "capi@pve!key"),
            ("secret", "00000000-0000-0000-0000-000000000000"),
        ];
        let entries = entries
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let (made, _) = connection(&Server::default(), &entries).unwrap();
        let name = place_name(&made, "capi@pve!key").unwrap();
        assert_eq!(name.as_str(), "pve/pve.example:8006/capi@pve+key");
    }
}
