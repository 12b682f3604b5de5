//! Keeps the webhook's certificate in a Secret, and tells the API server whom to believe.
//!
//! Every replica does this, and none needs to know of the others: the Secret is written with the version it was read at, so
//! of two that renew at once one loses, reads again and finds the work done.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::infrastructure::{CONVERT_PATH, GROUP, admission};
use controllers::Clock;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1 as registration;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Certificate;
use super::certificates::Bundle;

/// How often it is looked at.
const LOOK: Duration = Duration::from_mins(1);
/// How soon after a failure.
const AGAIN: Duration = Duration::from_secs(5);
const MANAGER: &str = "oxmox-webhook";
const PLURALS: [&str; 4] = [
    "proxmoxclusters",
    "proxmoxclustertemplates",
    "proxmoxmachines",
    "proxmoxmachinetemplates",
];

/// How an API server reaches the webhook.
#[derive(Clone, Debug)]
pub(crate) enum Published {
    /// Through a Service; its configuration is installed with it.
    Service {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service, and of the ValidatingWebhookConfiguration.
        name: String,
    },
    /// At an address that the API server can reach, such as on its own host.
    Address(SocketAddr),
}

impl Published {
    /// Names the certificate is for.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::Service { namespace, name } => vec![
                name.clone(),
                format!("{name}.{namespace}"),
                format!("{name}.{namespace}.svc"),
                format!("{name}.{namespace}.svc.cluster.local"),
            ],
            Self::Address(address) => vec!["localhost".to_owned(), address.ip().to_string()],
        }
    }

    /// How conversion is asked for.
    pub(crate) fn conversion(&self, bundle: &Bundle) -> extensions::WebhookClientConfig {
        let ca_bundle = Some(ByteString(bundle.trust().into_bytes()));
        match self {
            Self::Service { namespace, name } => extensions::WebhookClientConfig {
                ca_bundle,
                ..api::infrastructure::through_service(namespace, name)
            },
            Self::Address(address) => extensions::WebhookClientConfig {
                url: Some(format!("https://{address}{CONVERT_PATH}")),
                ca_bundle,
                service: None,
            },
        }
    }

    /// The whole configuration of admission, where nobody has installed one.
    pub(crate) fn admission(&self, bundle: &Bundle) -> ValidatingWebhookConfiguration {
        let ca_bundle = Some(ByteString(bundle.trust().into_bytes()));
        let path = admission::VALIDATE_PATH;
        match self {
            Self::Service { namespace, name } => admission::configuration(
                name,
                registration::WebhookClientConfig {
                    service: Some(registration::ServiceReference {
                        namespace: namespace.clone(),
                        name: name.clone(),
                        path: Some(path.to_owned()),
                        port: Some(443),
                    }),
                    ca_bundle,
                    url: None,
                },
            ),
            Self::Address(address) => admission::configuration(
                "oxmox",
                registration::WebhookClientConfig {
                    url: Some(format!("https://{address}{path}")),
                    ca_bundle,
                    service: None,
                },
            ),
        }
    }
}

/// Looks after the certificate of one listener.
pub(crate) struct Keeper {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// Namespace of the Secret.
    pub(crate) namespace: String,
    /// Name of the Secret.
    pub(crate) secret: String,
    pub(crate) published: Published,
    pub(crate) certificate: Arc<Certificate>,
    /// Set once there is a certificate to serve with and the API server was told.
    pub(crate) ready: Arc<AtomicBool>,
}

impl Keeper {
    /// Looks after it until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            let next = match self.look().await {
                Ok(()) => {
                    self.ready.store(true, Ordering::Relaxed);
                    LOOK
                }
                Err(error) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "the webhook's certificate was not renewed or told; trying again"
                    );
                    AGAIN
                }
            };
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Renews the certificate if it is time, serves with it, and tells the API server.
    pub(crate) async fn look(&self) -> Result<()> {
        let bundle = self.shared().await?;
        // Told first: who is served with a certificate must be able to believe it.
        self.tell(&bundle).await?;
        self.certificate.set(&bundle)
    }

    /// The bundle all replicas share.
    async fn shared(&self) -> Result<Bundle> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let (names, name) = (self.published.names(), self.secret.as_str());
        for _ in 0..5 {
            let found = api
                .get_opt(name)
                .await
                .with_context(|| format!("cannot read Secret {name} in {}", self.namespace))?;
            let kept = found
                .as_ref()
                .and_then(|secret| Bundle::from_entries(secret.data.as_ref()?));
            let Some(next) = Bundle::renewed(kept.as_ref(), &names, self.clock.now())? else {
                return kept.context("a bundle that needs no renewal is there");
            };
            let mut secret = Secret {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    ..ObjectMeta::default()
                },
                data: Some(next.to_entries()),
                ..Secret::default()
            };
            let written = match found {
                None => api.create(&PostParams::default(), &secret).await,
                Some(found) => {
                    secret.metadata = found.metadata;
                    secret.type_ = found.type_;
                    api.replace(name, &PostParams::default(), &secret).await
                }
            };
            match written {
                Ok(_) => {
                    tracing::info!("the webhook's certificate was renewed");
                    return Ok(next);
                }
                // Another replica was faster; what it wrote is as good.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!("cannot write Secret {name} in {}", self.namespace)
                    });
                }
            }
        }
        anyhow::bail!("Secret {name} changes faster than it can be read")
    }

    /// Writes into definitions and configuration whom to ask and whom to believe.
    async fn tell(&self, bundle: &Bundle) -> Result<()> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let mut client = serde_json::to_value(self.published.conversion(bundle))?;
        // Of the two ways to reach it there must be one, so the other is taken away.
        for way in ["service", "url"] {
            if client[way].is_null() {
                client[way] = serde_json::Value::Null;
            }
        }
        let conversion = json!({ "spec": { "conversion": {
            "strategy": "Webhook",
            "webhook": { "conversionReviewVersions": ["v1"], "clientConfig": client },
        }}});
        for plural in PLURALS {
            let name = format!("{plural}.{GROUP}");
            let patched = definitions
                .patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&conversion))
                .await;
            match patched {
                // Not installed: then there is nothing to convert.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other.with_context(|| format!("cannot tell {name} who converts"))?),
            }
        }
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let wanted = self.published.admission(bundle);
        let name = wanted.metadata.name.clone().unwrap_or_default();
        match &self.published {
            Published::Address(_) => {
                let params = PatchParams::apply(MANAGER).force();
                api.patch(&name, &params, &Patch::Apply(&wanted)).await?;
            }
            Published::Service { .. } => {
                let Some(mut found) = api.get_opt(&name).await? else {
                    return Ok(());
                };
                let trust = Some(ByteString(bundle.trust().into_bytes()));
                let before = found.clone();
                for webhook in found.webhooks.iter_mut().flatten() {
                    webhook.client_config.ca_bundle.clone_from(&trust);
                }
                if found != before {
                    api.replace(&name, &PostParams::default(), &found)
                        .await
                        .with_context(|| format!("cannot tell {name} whom to believe"))?;
                }
            }
        }
        Ok(())
    }
}
