//! Puts objects into the API server, as `kubectl apply` would.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{conditions, wait::await_condition};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

const MANAGER: &str = "oxmox-up";
const NAMESPACE: &str = "default";

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

/// How a Provider is logged in to and believed.
pub(crate) struct Credentials {
    /// Entries of its Secret; those without a value are left out.
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
    let entries: serde_json::Map<String, Value> = credentials
        .entries
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), Value::String(value?))))
        .collect();
    object(
        client,
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret},
            "stringData": entries,
        }),
    )
    .await?;
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
