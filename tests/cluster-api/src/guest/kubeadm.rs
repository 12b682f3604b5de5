//! `kubeadm init` and `kubeadm join`, as far as others can tell.

use std::collections::BTreeMap;

use pve_sim::Boot;
use serde::Deserialize;
use serde_json::Value;

use super::cloud_init::CloudInit;
use super::kubelet::Kubelet;
use super::{Failure, Guests, again, api_server, join};

/// `nodeRegistration` of both kinds of configuration.
#[derive(Clone, Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeRegistration {
    pub(super) name: Option<String>,
    pub(super) kubelet_extra_args: Vec<Argument>,
    pub(super) taints: Option<Vec<Value>>,
}

/// An extra argument.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) value: String,
}

impl NodeRegistration {
    pub(super) fn argument(&self, name: &str) -> Option<&str> {
        let mut all = self.kubelet_extra_args.iter();
        all.find(|argument| argument.name == name)
            .map(|argument| argument.value.as_str())
    }
}

/// `ClusterConfiguration`, as far as an API server needs it.
#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClusterConfiguration {
    pub(super) control_plane_endpoint: String,
    pub(super) kubernetes_version: String,
    pub(super) api_server: Component,
    pub(super) etcd: Etcd,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Component {
    pub(super) extra_args: Vec<Argument>,
    #[serde(rename = "certSANs")]
    pub(super) cert_sans: Vec<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Etcd {
    pub(super) external: Option<ExternalEtcd>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ExternalEtcd {
    pub(super) endpoints: Vec<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct InitConfiguration {
    node_registration: NodeRegistration,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JoinConfiguration {
    node_registration: NodeRegistration,
    discovery: Discovery,
    control_plane: Option<Value>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Discovery {
    bootstrap_token: Option<join::Token>,
}

/// Runs the kubeadm command that the bootstrap data asks for; nothing if it asks for none.
pub(super) async fn run(
    guests: &Guests,
    boot: &Boot,
    data: &CloudInit,
) -> Result<Option<Kubelet>, Failure> {
    let command = |word: &str| {
        let prefix = format!("kubeadm {word} --config ");
        data.commands.iter().find_map(|line| {
            let (_, rest) = line.split_once(&prefix)?;
            rest.split_whitespace().next()
        })
    };
    if let Some(file) = command("init") {
        return init(guests, boot, data, &documents(data, file)?)
            .await
            .map(Some);
    }
    if let Some(file) = command("join") {
        return join(boot, data, &documents(data, file)?).await.map(Some);
    }
    Ok(None)
}

/// The configuration documents of a file, by kind.
fn documents(data: &CloudInit, file: &str) -> Result<BTreeMap<String, Value>, Failure> {
    let text = data
        .files
        .get(file)
        .ok_or_else(|| format!("{file} was not written"))?;
    let all: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let kind = |document: &Value| document["kind"].as_str().map(str::to_owned);
    Ok(all
        .into_iter()
        .filter_map(|document| Some((kind(&document)?, document)))
        .collect())
}

fn one<T: serde::de::DeserializeOwned>(
    documents: &BTreeMap<String, Value>,
    kind: &str,
) -> Result<T, Failure> {
    let document = documents
        .get(kind)
        .ok_or_else(|| format!("there is no {kind}"))?;
    Ok(serde_json::from_value(document.clone())?)
}

fn node_name(registration: &NodeRegistration, boot: &Boot) -> String {
    let own = registration.name.clone().filter(|name| !name.is_empty());
    own.unwrap_or_else(|| boot.hostname.clone())
}

async fn init(
    guests: &Guests,
    boot: &Boot,
    data: &CloudInit,
    documents: &BTreeMap<String, Value>,
) -> Result<Kubelet, Failure> {
    let cluster: ClusterConfiguration = one(documents, "ClusterConfiguration")?;
    let init: InitConfiguration = one(documents, "InitConfiguration")?;
    let name = node_name(&init.node_registration, boot);
    let server = api_server::start(guests, &name, data, &cluster).await?;
    let configuration = serde_saphyr::to_string(&documents["ClusterConfiguration"])?;
    again(|| server.prepare(&configuration)).await?;
    // The first kubelet is introduced by the authority itself.
    let identity = server
        .authority
        .client(&format!("system:node:{name}"), &["system:nodes"])?;
    let kubelet = Kubelet {
        name: name.clone(),
        endpoint: cluster.control_plane_endpoint.clone(),
        authority: server.authority.cert().to_owned(),
        identity,
        registration: init.node_registration,
    };
    again(|| kubelet.register(boot)).await?;
    again(|| server.mark_control_plane(&name)).await?;
    Ok(kubelet)
}

async fn join(
    boot: &Boot,
    data: &CloudInit,
    documents: &BTreeMap<String, Value>,
) -> Result<Kubelet, Failure> {
    let join: JoinConfiguration = one(documents, "JoinConfiguration")?;
    let token = join
        .discovery
        .bootstrap_token
        .ok_or("the join configuration has no bootstrap token")?;
    let name = node_name(&join.node_registration, boot);
    let authority = again(|| token.discover()).await?;
    let identity = again(|| token.introduce(&authority, &name)).await?;
    let kubelet = Kubelet {
        name: name.clone(),
        endpoint: token.api_server_endpoint.clone(),
        authority,
        identity,
        registration: join.node_registration,
    };
    again(|| kubelet.register(boot)).await?;
    if join.control_plane.is_some() {
        let server = api_server::joined(data, &token.api_server_endpoint)?;
        again(|| server.mark_control_plane(&name)).await?;
    }
    Ok(kubelet)
}
