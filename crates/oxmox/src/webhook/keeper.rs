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
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::Instant;
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

/// Who is asked by this configuration.
fn place(client: &extensions::WebhookClientConfig) -> String {
    match (&client.service, &client.url) {
        (Some(service), _) => format!("Service {}/{}", service.namespace, service.name),
        (None, Some(url)) => url.clone(),
        (None, None) => "nobody".to_owned(),
    }
}

/// What comes of several installations that share the definitions: each of them names only one that converts.
///
/// Every change of a definition ends all watches of its kind. So whoever is named in place of us is let be for longer each time.
#[derive(Default)]
struct Contest {
    /// When we were last named by this process.
    won: Option<Instant>,
    /// How often that was soon after it had been before.
    again: u32,
}

impl Contest {
    const SHORTEST: Duration = Duration::from_mins(1);
    const LONGEST: Duration = Duration::from_hours(1);

    /// Whether we may name ourselves in place of another.
    fn is_on(&self) -> bool {
        let pause = (Self::SHORTEST * (1 << self.again.min(6))).min(Self::LONGEST);
        self.won.is_none_or(|at| at.elapsed() >= pause)
    }

    /// We named ourselves in place of another.
    fn win(&mut self) {
        let before = self.won.replace(Instant::now());
        // After so long it is not the same other, who comes every hour at least.
        let soon = before.is_some_and(|at| at.elapsed() < 2 * Self::LONGEST);
        self.again = if soon {
            self.again.saturating_add(1)
        } else {
            0
        };
    }
}

/// Looks after the certificate of one listener.
pub(crate) struct Keeper {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// The only namespace whose objects are looked after.
    pub(crate) watched: Option<String>,
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
        let mut contest = Contest::default();
        loop {
            let next = match self.look(&mut contest).await {
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
    async fn look(&self, contest: &mut Contest) -> Result<()> {
        let bundle = self.shared().await?;
        // Told first: who is served with a certificate must be able to believe it.
        self.tell_definitions(&bundle, contest).await?;
        self.tell_configuration(&bundle).await?;
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

    /// Writes into the definitions whom to ask and whom to believe, where they do not say so.
    async fn tell_definitions(&self, bundle: &Bundle, contest: &mut Contest) -> Result<()> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let wanted = self.published.conversion(bundle);
        let ours = place(&wanted);
        let wanted = extensions::WebhookConversion {
            client_config: Some(wanted),
            conversion_review_versions: vec!["v1".to_owned()],
        };
        let mut untold = Vec::new();
        let mut other = None;
        for plural in PLURALS {
            let name = format!("{plural}.{GROUP}");
            let found = definitions.get_opt(&name).await;
            let found = found.with_context(|| format!("cannot read who converts {name}"))?;
            // Not installed: then there is nothing to convert.
            let Some(found) = found else { continue };
            let told = found.spec.conversion;
            let told = told.filter(|it| it.strategy == "Webhook");
            let told = told.and_then(|it| it.webhook);
            if told.as_ref() == Some(&wanted) {
                continue;
            }
            let named = told.and_then(|it| it.client_config);
            other = other.or(named.map(|it| place(&it)).filter(|named| *named != ours));
            untold.push(name);
        }
        if let Some(other) = other {
            if !contest.is_on() {
                return Ok(());
            }
            if contest.won.is_some() {
                tracing::warn!(
                    "the definitions of {GROUP} had {other} convert and name {ours} again: all installations of a cluster share them. \
                     If both are of one version, either converts for all and this is told less and less often; otherwise bring \
                     them to one version, or remove one of them"
                );
            }
            contest.win();
        }
        let mut webhook = serde_json::to_value(&wanted)?;
        // Of the two ways to reach it there must be one, so the other is taken away.
        for way in ["service", "url"] {
            if webhook["clientConfig"][way].is_null() {
                webhook["clientConfig"][way] = serde_json::Value::Null;
            }
        }
        let conversion =
            json!({ "spec": { "conversion": { "strategy": "Webhook", "webhook": webhook }}});
        for name in untold {
            definitions
                .patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&conversion))
                .await
                .with_context(|| format!("cannot tell {name} who converts"))?;
        }
        Ok(())
    }

    /// Writes into the configuration of admission whom to believe, or all of it where nobody installs one.
    async fn tell_configuration(&self, bundle: &Bundle) -> Result<()> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mut wanted = self.published.admission(bundle);
        if let Some(namespace) = &self.watched {
            let labels = [("kubernetes.io/metadata.name".to_owned(), namespace.clone())];
            for webhook in wanted.webhooks.iter_mut().flatten() {
                // What others look after must not wait for us.
                webhook.namespace_selector = Some(LabelSelector {
                    match_labels: Some(labels.clone().into()),
                    match_expressions: None,
                });
            }
        }
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;

    const EPOCH: &str = "2026-01-01T00:00:00Z";

    /// The kinds as they are installed from a file.
    fn kinds() -> Vec<CustomResourceDefinition> {
        let of_nobody = api::infrastructure::through_service("oxmox-system", "oxmox");
        api::infrastructure::crds(&of_nobody)
    }

    /// An API server on which the kinds are installed.
    async fn server() -> Client {
        let server = apiserver::InMemory::with(apiserver::Clock::at(EPOCH.parse().unwrap()), 1);
        let client = Client::new(server.service(), "default");
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let params = PostParams::default();
        for definition in kinds() {
            definitions.create(&params, &definition).await.unwrap();
        }
        client
    }

    fn keeper(client: &Client, namespace: &str, published: Published) -> Keeper {
        Keeper {
            client: client.clone(),
            clock: Clock::starting_at(EPOCH.parse().unwrap()),
            watched: None,
            namespace: namespace.to_owned(),
            secret: "oxmox-webhook".to_owned(),
            published,
            certificate: Arc::default(),
            ready: Arc::default(),
        }
    }

    /// Runs the keeper of an installation in a namespace of its own.
    async fn install(client: &Client, namespace: &str) {
        let made = Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let params = PostParams::default();
        namespaces.create(&params, &made).await.unwrap();
        let published = Published::Service {
            namespace: namespace.to_owned(),
            name: "oxmox".to_owned(),
        };
        let keeper = keeper(client, namespace, published);
        tokio::spawn(keeper.run(CancellationToken::new()));
    }

    /// The generation of each definition, and who converts.
    async fn told(client: &Client) -> Vec<(i64, String)> {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let mut told = Vec::new();
        for plural in PLURALS {
            let found = definitions.get(&format!("{plural}.{GROUP}")).await.unwrap();
            let webhook = found.spec.conversion.unwrap().webhook.unwrap();
            let named = place(&webhook.client_config.unwrap());
            told.push((found.metadata.generation.unwrap(), named));
        }
        told
    }

    #[tokio::test(start_paused = true)]
    async fn two_installations_name_themselves_in_place_of_each_other_less_and_less_often() {
        let client = server().await;
        install(&client, "one").await;
        tokio::time::sleep(LOOK / 2).await;
        let (generation, named) = told(&client).await.remove(0);
        assert_eq!(named, "Service one/oxmox");
        install(&client, "two").await;
        tokio::time::sleep(LOOK).await;
        let (taken, _) = told(&client).await.remove(0);
        assert!(taken > generation, "the first time nobody waits");
        tokio::time::sleep(Duration::from_hours(1)).await;
        for (now, named) in told(&client).await {
            assert!(now - generation <= 15, "{named}: {now}");
        }
        let (before, _) = told(&client).await.remove(0);
        tokio::time::sleep(Duration::from_hours(5)).await;
        let (now, _) = told(&client).await.remove(0);
        assert!(now - before <= 2 * 6, "{}", now - before);
    }

    #[tokio::test(start_paused = true)]
    async fn definitions_that_are_installed_anew_name_us_within_a_minute_and_others_are_not_touched()
     {
        let client = server().await;
        install(&client, "one").await;
        tokio::time::sleep(LOOK / 2).await;
        let before = told(&client).await;
        tokio::time::sleep(Duration::from_hours(3)).await;
        assert_eq!(told(&client).await, before, "nothing is written anew");
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in kinds() {
            let name = definition.metadata.name.clone().unwrap();
            let params = PatchParams::apply("kubectl").force();
            let patch = Patch::Apply(&definition);
            definitions.patch(&name, &params, &patch).await.unwrap();
        }
        let named = |told: Vec<(i64, String)>| told.into_iter().map(|(_, named)| named);
        let others = named(told(&client).await).filter(|named| *named != "Service one/oxmox");
        assert_eq!(others.count(), PLURALS.len());
        tokio::time::sleep(LOOK).await;
        let mut all = named(told(&client).await);
        assert!(all.all(|named| named == "Service one/oxmox"));
    }

    #[tokio::test(start_paused = true)]
    async fn admission_of_one_namespace_is_not_asked_about_others() {
        let client = server().await;
        let address = "127.0.0.1:9443".parse().unwrap();
        let mut keeper = keeper(&client, "default", Published::Address(address));
        keeper.watched = Some("team-a".to_owned());
        keeper.look(&mut Contest::default()).await.unwrap();
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client);
        let webhooks = api.get("oxmox").await.unwrap().webhooks.unwrap();
        let selector = webhooks[0].namespace_selector.clone().unwrap();
        let labels = selector.match_labels.unwrap();
        assert_eq!(labels["kubernetes.io/metadata.name"], "team-a");
    }
}
