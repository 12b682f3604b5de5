//! Puts objects into the API server, as `kubectl apply` would.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{conditions, wait::await_condition};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

const MANAGER: &str = "oxmox-up";
pub(super) const NAMESPACE: &str = "default";

/// Installs Oxmox's own kinds and waits until they are served.
pub(crate) async fn definitions(client: &Client, conversion: &WebhookClientConfig) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut all = api::crds();
    all.extend(api::infrastructure::crds(conversion));
    for crd in &all {
        let name = crd.name_any();
        api.patch(&name, &params(), &Patch::Apply(crd))
            .await
            .with_context(|| format!("the API server refused {name}"))?;
    }
    for crd in &all {
        let served = conditions::is_crd_established();
        await_condition(api.clone(), &crd.name_any(), served).await?;
    }
    Ok(())
}

/// Has the API server ask before it stores an object.
pub(super) async fn admission(
    client: &Client,
    configuration: &ValidatingWebhookConfiguration,
) -> Result<()> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    api.patch(
        &configuration.name_any(),
        &params(),
        &Patch::Apply(configuration),
    )
    .await
    .context("the API server refused the admission webhook")?;
    Ok(())
}

fn params() -> PatchParams {
    PatchParams::apply(MANAGER).force()
}

/// Applies every document of a YAML text.
pub(crate) async fn documents(client: &Client, text: &str) -> Result<()> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).context("the YAML cannot be read")?;
    for document in documents {
        object(client, document).await?;
    }
    Ok(())
}

/// Applies one object.
pub(crate) async fn object(client: &Client, document: Value) -> Result<()> {
    let object: DynamicObject =
        serde_json::from_value(document).context("not a Kubernetes object")?;
    let Some(types) = &object.types else {
        bail!("the object has no kind")
    };
    let kind = GroupVersionKind::try_from(types).context("its apiVersion cannot be read")?;
    let (resource, _) = kube::discovery::pinned_kind(client, &kind)
        .await
        .with_context(|| format!("the API server does not know {}", kind.kind))?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    let name = object.name_any();
    api.patch(&name, &params(), &Patch::Apply(&object))
        .await
        .with_context(|| format!("the API server refused {} {name}", kind.kind))?;
    Ok(())
}

/// The entries of a Provider's Secret that are known.
const ENTRIES: [&str; 6] = [
    "token_id",
    "token_secret",
    "username",
    "password",
    "fingerprint",
    "ca.crt",
];

/// How a Provider is logged in to and believed.
pub(crate) struct Credentials {
    /// Entries of its Secret; those without a value, or not here at all, are taken out of it.
    pub(crate) entries: Vec<(&'static str, Option<String>)>,
    /// Believe any certificate.
    pub(crate) insecure: bool,
    /// The nodes guests are placed on; empty is all.
    pub(crate) nodes: Vec<String>,
}

/// Writes down a Provider and its Secret.
pub(crate) async fn provider(
    client: &Client,
    name: &str,
    url: &str,
    credentials: Credentials,
) -> Result<()> {
    let secret = format!("{name}-credentials");
    object(
        client,
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}}),
    )
    .await?;
    // What another run wrote and this one does not say would go before what it says: a token before a password.
    let mut entries: BTreeMap<&str, Option<ByteString>> =
        ENTRIES.iter().map(|key| (*key, None)).collect();
    let said = credentials.entries.into_iter();
    entries.extend(said.map(|(key, value)| (key, value.map(|text| ByteString(text.into_bytes())))));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let data = json!({"data": entries});
    secrets
        .patch(&secret, &PatchParams::default(), &Patch::Merge(&data))
        .await
        .with_context(|| format!("the API server refused Secret {secret}"))?;
    object(
        client,
        json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "Provider",
            "metadata": {"name": name},
            "spec": {
                "type": "proxmox", "endpoint": url, "credentialSecretRef": {"name": secret},
                "insecureSkipVerify": credentials.insecure, "nodeSelector": credentials.nodes,
            },
        }),
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_an_earlier_run_said_of_credentials_and_this_one_does_not_is_gone() {
        let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
        let server = apiserver::InMemory::with(apiserver::Clock::at(epoch), 1);
        let client = Client::new(server.service(), NAMESPACE);
        let conversion = WebhookClientConfig {
            url: Some("https://127.0.0.1:1/convert".to_owned()),
            ..WebhookClientConfig::default()
        };
        definitions(&client, &conversion).await.unwrap();
        let say = async |entries: &[(&'static str, &str)]| {
            let entries = entries.iter();
            let entries = entries.map(|(key, value)| (*key, Some((*value).to_owned())));
            let credentials = Credentials {
                entries: entries.collect(),
                insecure: false,
                nodes: Vec::new(),
            };
            let url = "https://pve.example.com:8006";
            provider(&client, "default", url, credentials)
                .await
                .unwrap();
            let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
            let secret = secrets.get("default-credentials").await.unwrap();
            secret.data.unwrap_or_default()
        };
        let token = [
            ("token_id", "a@pve!b"),
            ("token_secret", "c"),
            ("fingerprint", "AB"),
        ];
        assert_eq!(say(&token).await.len(), 3);
        let after = say(&[("username", "root@pam"), ("password", "d")]).await;
        let keys: Vec<&String> = after.keys().collect();
        assert_eq!(keys, ["password", "username"]);
    }
}
