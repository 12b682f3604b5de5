//! `oxmox operator`: the controllers in a real cluster.
//!
//! All state is in the Kubernetes API. Of several replicas the one that holds the Lease acts; the others wait, ready to
//! take over. Health, metrics and webhooks are served by every replica.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use clap::{Args, builder::FalseyValueParser};
use controllers::{Clock, Election, GlobalCredentials, Options};
use kube::Client;
use prometheus_client::{encoding::text::encode, metrics::gauge::Gauge, registry::Registry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::console::{Consoles, Engine};
use crate::listener;
use crate::output;
use crate::webhook::{
    Webhook,
    keeper::{Keeper, Published},
};

/// What `/metrics` speaks, so that Prometheus reads it by the right rules.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long webhooks are served after the work has ended: as long as it takes until nobody is sent here any more.
const FAREWELL: Duration = Duration::from_secs(5);

/// Runs the controllers against the Kubernetes cluster of the kubeconfig, or of the pod this runs in.
#[derive(Args)]
#[command(after_help = "Examples:
  oxmox operator
  oxmox operator --namespace team-a --no-leader-election
  oxmox operator --listen [::]:8080 --webhook-listen [::]:9443 --webhook-service oxmox

oxmox crds | kubectl apply --server-side --force-conflicts -f - installs its kinds; charts/oxmox installs all of it.")]
pub(crate) struct Operator {
    /// Where health (/healthz, /readyz) and metrics (/metrics) are served.
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDR")]
    listen: SocketAddr,
    /// Look after objects of this namespace only; all when left out. No two installations may look after the same objects.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Look after only those Cluster API objects whose label cluster.x-k8s.io/watch-filter has this value. Without --namespace
    /// nothing else is looked after: machines, images and all else of infra.virtrigaud.io are left to installations with a namespace.
    #[arg(long, value_name = "VALUE")]
    watch_filter: Option<String>,
    /// Namespace of the Lease by which replicas agree on who acts, and of the webhook's certificate.
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "default",
        value_name = "NAMESPACE"
    )]
    own_namespace: String,
    /// Name of that Lease: another one for each installation in the namespace.
    #[arg(long, default_value = "oxmox", value_name = "NAME")]
    lease: String,
    /// Name of this replica; unique among them.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
    /// Act at once, without a Lease. Only where no other replica can be running.
    #[arg(long)]
    no_leader_election: bool,
    #[command(flatten)]
    webhook: WebhookArgs,
    #[command(flatten)]
    consoles: ConsoleArgs,
    #[command(flatten)]
    proxmox: Proxmox,
}

/// Consoles of machines.
#[derive(Args)]
#[command(next_help_heading = "Consoles")]
struct ConsoleArgs {
    /// Serve consoles of machines here, in clear text: put what speaks TLS before it. Without it the status of machines names
    /// Proxmox VE's own pages.
    #[arg(long, value_name = "ADDR")]
    console_listen: Option<SocketAddr>,
    /// The address under which people reach it, such as https://console.example.com.
    #[arg(long, value_name = "URL", requires = "console_listen")]
    console_url: Option<String>,
}

/// Conversion and admission of Cluster API objects.
#[expect(
    clippy::struct_field_names,
    reason = "the fields are flags, whose names stand beside those of others"
)]
#[derive(Args)]
#[command(next_help_heading = "Webhooks")]
struct WebhookArgs {
    /// Serve conversion and admission webhooks here. Without it only the stored versions of our kinds can be used.
    #[arg(long, value_name = "ADDR")]
    webhook_listen: Option<SocketAddr>,
    /// Service through which the API server reaches them, in our own namespace; also the name of the
    /// ValidatingWebhookConfiguration. Without it the API server is told the address listened on.
    #[arg(long, value_name = "NAME", requires = "webhook_listen")]
    webhook_service: Option<String>,
    /// Secret in our own namespace that keeps their certificate: another one for each installation there.
    #[arg(long, default_value = "oxmox-webhook", value_name = "NAME")]
    webhook_secret: String,
}

/// Proxmox VE for ProxmoxClusters that name no credentials.
#[expect(
    clippy::struct_field_names,
    reason = "the fields are flags, whose names users of other providers know"
)]
#[derive(Args)]
#[command(next_help_heading = "Default Proxmox VE of Cluster API")]
struct Proxmox {
    /// Address of the Proxmox VE; several, separated by commas, stand in for each other.
    #[arg(long, env = "PROXMOX_URL", value_name = "URL")]
    proxmox_url: Option<String>,
    /// Name of its API token, `user@realm!name`.
    #[arg(long, env = "PROXMOX_TOKEN", value_name = "TOKEN")]
    proxmox_token: Option<String>,
    /// Secret of the API token.
    #[arg(
        long,
        env = "PROXMOX_SECRET",
        value_name = "SECRET",
        hide_env_values = true
    )]
    proxmox_secret: Option<String>,
    /// Believe any certificate. For trials only.
    #[arg(long, env = "PROXMOX_INSECURE", value_parser = FalseyValueParser::new())]
    proxmox_insecure: bool,
    /// PEM file of the authority that signed its certificate.
    #[arg(long, env = "PROXMOX_ROOT_CERT_FILE", value_name = "FILE")]
    proxmox_root_cert_file: Option<PathBuf>,
}

impl Proxmox {
    fn credentials(&self) -> Result<Option<GlobalCredentials>> {
        // An empty variable is one that was not set: manifests with placeholders leave those.
        let said = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
        let given = (
            said(&self.proxmox_url),
            said(&self.proxmox_token),
            said(&self.proxmox_secret),
        );
        let (url, token, secret) = match given {
            (None, None, None) => return Ok(None),
            (Some(url), Some(token), Some(secret)) => (url, token, secret),
            _ => bail!("set all of PROXMOX_URL, PROXMOX_TOKEN and PROXMOX_SECRET, or none"),
        };
        let file = self.proxmox_root_cert_file.as_ref();
        let root_ca = file
            .filter(|path| !path.as_os_str().is_empty())
            .map(|path| {
                std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read {}", path.display()))
            });
        Ok(Some(GlobalCredentials {
            url,
            token,
            secret,
            insecure: self.proxmox_insecure,
            root_ca: root_ca.transpose()?,
        }))
    }
}

impl Operator {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<ExitCode> {
        self.check()?;
        let client = Client::try_default()
            .await
            .context("cannot find a Kubernetes cluster")?;
        let stop = CancellationToken::new();
        let mut registry = Registry::default();
        let metrics = controllers::Metrics::register(&mut registry);
        let connector = controllers::Connector::https(pve::Metrics::register(&mut registry));
        let leader: Gauge<i64, std::sync::atomic::AtomicI64> = Gauge::default();
        registry.register("oxmox_leader", "Whether this replica acts", leader.clone());
        let ready = Ready::default();
        let webhook = self.serve_webhooks(&client, &ready, &stop).await?;
        let consoles = match self.consoles.console_listen {
            None => None,
            Some(at) => {
                let namespace = self.namespace.clone();
                Some(Consoles::listen(at, client.clone(), namespace, Clock::system()).await?)
            }
        };
        let console = consoles.as_ref().map(|consoles| {
            let said = self.consoles.console_url.as_deref();
            let own = format!("http://{}", consoles.address());
            said.map_or(own, |url| url.trim_end_matches('/').to_owned())
        });
        let engine = consoles.as_ref().map(Consoles::engine).unwrap_or_default();
        let listener = tokio::net::TcpListener::bind(self.listen)
            .await
            .with_context(|| format!("cannot listen on {}", self.listen))?;
        output::say(format_args!(
            "health and metrics  http://{}",
            listener.local_addr().unwrap_or(self.listen)
        ));
        let routes = routes(Arc::new(registry), ready.clone());
        let web = tokio::spawn(listener::serve(listener, None, routes, stop.clone()));
        tokio::spawn(watch_readiness(client.clone(), ready.api, stop.clone()));
        tokio::spawn({
            let stop = stop.clone();
            async move {
                crate::signals::interrupted().await;
                output::say("stopping");
                stop.cancel();
            }
        });
        let options = Options {
            metrics,
            capi_credentials: self.proxmox.credentials()?,
            namespace: self.namespace.clone(),
            watch_filter: self.watch_filter.clone(),
            connector,
            console,
            ..Options::default()
        };
        if self.no_leader_election {
            leader.set(1);
            engine.set(Some(options.fleet.clone()));
            controllers::run(client, options, stop.clone()).await;
        } else {
            self.campaign(client, options, leader, engine, stop.clone())
                .await;
        }
        stop.cancel();
        let _ = web.await;
        if webhook.is_some() {
            // The work is somebody else's by now. The API server still comes to this listener until it has heard that it goes.
            tokio::time::sleep(FAREWELL).await;
        }
        drop((webhook, consoles));
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses what would have no effect, and says what others are to look after.
    fn check(&self) -> Result<()> {
        if self.namespace.is_some() {
            return Ok(());
        }
        let Some(filter) = &self.watch_filter else {
            return Ok(());
        };
        if self.consoles.console_listen.is_some() {
            bail!(
                "--console-listen shows machines of infra.virtrigaud.io, which --watch-filter leaves to another installation: \
                 leave it out, or add --namespace"
            );
        }
        tracing::info!(
            watch_filter = filter,
            "only objects of Cluster API with this label are looked after, and nothing of infra.virtrigaud.io"
        );
        Ok(())
    }

    /// Listens for the API server's questions, if asked to, and keeps the certificate.
    async fn serve_webhooks(
        &self,
        client: &Client,
        ready: &Ready,
        stop: &CancellationToken,
    ) -> Result<Option<Webhook>> {
        let Some(listen) = self.webhook.webhook_listen else {
            ready.webhook.store(true, Ordering::Relaxed);
            return Ok(None);
        };
        let webhook = Webhook::listen(listen).await?;
        let published = match &self.webhook.webhook_service {
            Some(name) => Published::Service {
                namespace: self.own_namespace.clone(),
                name: name.clone(),
            },
            None => Published::Address(webhook.address()),
        };
        let keeper = Keeper {
            client: client.clone(),
            clock: Clock::system(),
            watched: self.namespace.clone(),
            namespace: self.own_namespace.clone(),
            secret: self.webhook.webhook_secret.clone(),
            published,
            certificate: webhook.certificate(),
            ready: ready.webhook.clone(),
        };
        tokio::spawn(keeper.run(stop.clone()));
        Ok(Some(webhook))
    }

    async fn campaign(
        self,
        client: Client,
        options: Options,
        leader: Gauge<i64, std::sync::atomic::AtomicI64>,
        engine: Engine,
        stop: CancellationToken,
    ) {
        let identity = self
            .identity
            .unwrap_or_else(|| format!("oxmox-{}", uuid::Uuid::new_v4()));
        let (say, leading) = watch::channel(false);
        let election = Election::new(self.own_namespace, self.lease, identity);
        // The Lease is given back only after the work has stopped, so the election has a stop of its own.
        let retire = CancellationToken::new();
        let campaign =
            tokio::spawn(election.run(client.clone(), Clock::system(), say, retire.clone()));
        controllers::while_leading(leading, stop, |stop| {
            leader.set(1);
            let (client, leader) = (client.clone(), leader.clone());
            // Another leader may have acted meanwhile: begin with an engine that knows nothing.
            let options = Options {
                fleet: fleet::Fleet::new(),
                ..options.clone()
            };
            engine.set(Some(options.fleet.clone()));
            let engine = engine.clone();
            async move {
                let _lead = Leading(leader, engine);
                controllers::run(client, options, stop).await;
            }
        })
        .await;
        retire.cancel();
        let _ = campaign.await;
    }
}

/// Clears the gauge and lets go of the engine when the work ends, however it ends.
struct Leading(Gauge<i64, std::sync::atomic::AtomicI64>, Engine);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.set(0);
        self.1.set(None);
    }
}

/// What must be so before a replica is ready.
#[derive(Clone, Default)]
struct Ready {
    /// The API server answers.
    api: Arc<AtomicBool>,
    /// Webhooks can be served, or need not be.
    webhook: Arc<AtomicBool>,
}

/// Ready is who reaches the API server.
async fn watch_readiness(client: Client, ready: Arc<AtomicBool>, stop: CancellationToken) {
    loop {
        let limit = Duration::from_secs(5);
        let answered = tokio::time::timeout(limit, client.apiserver_version()).await;
        ready.store(matches!(answered, Ok(Ok(_))), Ordering::Relaxed);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(10)) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn routes(registry: Arc<Registry>, ready: Ready) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route(
            "/readyz",
            get(move || async move {
                let problem = if !ready.api.load(Ordering::Relaxed) {
                    "the API server does not answer\n"
                } else if !ready.webhook.load(Ordering::Relaxed) {
                    "there is no certificate for webhooks yet\n"
                } else {
                    return (StatusCode::OK, "ok\n");
                };
                (StatusCode::SERVICE_UNAVAILABLE, problem)
            }),
        )
        .route(
            "/metrics",
            get(move || async move {
                let mut text = String::new();
                match encode(&mut text, &registry) {
                    Ok(()) => (StatusCode::OK, [(CONTENT_TYPE, OPEN_METRICS)], text),
                    Err(_) => (
                        StatusCode::INTERNAL_SERVER_ERROR,
                        [(CONTENT_TYPE, OPEN_METRICS)],
                        String::new(),
                    ),
                }
            }),
        )
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use clap::Parser as _;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn who_looks_after_cluster_api_only_shows_no_consoles() {
        let check = |more: &[&str]| {
            let args = ["oxmox", "operator", "--console-listen", "127.0.0.1:0"];
            let cli = Cli::try_parse_from(args.iter().chain(more)).unwrap();
            match cli.command {
                Command::Operator(operator) => operator.check(),
                _ => panic!("an operator was asked for"),
            }
        };
        check(&[]).unwrap();
        check(&["--watch-filter", "blue", "--namespace", "team-a"]).unwrap();
        let refused = check(&["--watch-filter", "blue"]).unwrap_err();
        assert!(refused.to_string().contains("--namespace"), "{refused}");
    }

    #[tokio::test]
    async fn metrics_are_served_as_what_they_are() {
        let routes = routes(Arc::new(Registry::default()), Ready::default());
        let asked = Request::get("/metrics").body(Body::empty()).unwrap();
        let answer = routes.oneshot(asked).await.unwrap();
        assert_eq!(answer.headers()[CONTENT_TYPE], OPEN_METRICS);
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(text.ends_with(b"# EOF\n"), "{text:?}");
    }
}
