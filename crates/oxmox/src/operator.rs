//! `oxmox operator`: the controllers in a real cluster.
//!
//! All state is in the Kubernetes API. Of several replicas the one that holds the Lease acts; the others wait, ready to
//! take over. Health and metrics are served by every replica.

use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use axum::{Router, http::StatusCode, routing::get};
use clap::Args;
use controllers::{Clock, Election, Options};
use kube::Client;
use prometheus_client::{encoding::text::encode, metrics::gauge::Gauge, registry::Registry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::output;

/// Runs the controllers against the Kubernetes cluster of the kubeconfig, or of the pod this runs in.
#[derive(Args)]
pub(crate) struct Operator {
    /// Where health (/healthz, /readyz) and metrics (/metrics) are served.
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDR")]
    listen: SocketAddr,
    /// Namespace of the Lease by which replicas agree on who acts.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    namespace: String,
    /// Name of this replica; unique among them.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
    /// Act at once, without a Lease. Only where no other replica can be running.
    #[arg(long)]
    no_leader_election: bool,
}

impl Operator {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<ExitCode> {
        let client = Client::try_default()
            .await
            .context("cannot find a Kubernetes cluster")?;
        let stop = CancellationToken::new();
        let mut registry = Registry::default();
        let metrics = controllers::Metrics::register(&mut registry);
        let leader: Gauge<i64, std::sync::atomic::AtomicI64> = Gauge::default();
        registry.register("oxmox_leader", "Whether this replica acts", leader.clone());
        let ready = Arc::new(AtomicBool::new(false));
        let listener = tokio::net::TcpListener::bind(self.listen)
            .await
            .with_context(|| format!("cannot listen on {}", self.listen))?;
        let web = tokio::spawn(
            axum::serve(listener, routes(Arc::new(registry), ready.clone()))
                .with_graceful_shutdown(stop.clone().cancelled_owned())
                .into_future(),
        );
        tokio::spawn(watch_readiness(client.clone(), ready, stop.clone()));
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
            ..Options::default()
        };
        if self.no_leader_election {
            leader.set(1);
            controllers::run(client, options, stop.clone()).await;
        } else {
            self.campaign(client, options, leader, stop.clone()).await;
        }
        stop.cancel();
        let _ = web.await;
        Ok(ExitCode::SUCCESS)
    }

    async fn campaign(
        self,
        client: Client,
        options: Options,
        leader: Gauge<i64, std::sync::atomic::AtomicI64>,
        stop: CancellationToken,
    ) {
        let identity = self
            .identity
            .unwrap_or_else(|| format!("oxmox-{}", uuid::Uuid::new_v4()));
        let (say, leading) = watch::channel(false);
        let election = Election::new(self.namespace, "oxmox", identity);
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
            async move {
                let _lead = Leading(leader);
                controllers::run(client, options, stop).await;
            }
        })
        .await;
        retire.cancel();
        let _ = campaign.await;
    }
}

/// Clears the gauge when the work ends, however it ends.
struct Leading(Gauge<i64, std::sync::atomic::AtomicI64>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.set(0);
    }
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

fn routes(registry: Arc<Registry>, ready: Arc<AtomicBool>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route(
            "/readyz",
            get(move || async move {
                if ready.load(Ordering::Relaxed) {
                    (StatusCode::OK, "ok\n")
                } else {
                    (
                        StatusCode::SERVICE_UNAVAILABLE,
                        "the API server does not answer\n",
                    )
                }
            }),
        )
        .route(
            "/metrics",
            get(move || async move {
                let mut text = String::new();
                match encode(&mut text, &registry) {
                    Ok(()) => (StatusCode::OK, text),
                    Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
                }
            }),
        )
}
