//! Leadership by Lease: of several processes exactly one acts.
//!
//! The rules are those every Kubernetes controller plays by. A Lease names its holder and how long that counts.
//! Whether it has run out is judged by one's own monotonic clock since the record was last seen to change, never by
//! comparing clocks of different machines. Writes carry the resource version, so of two that try only one succeeds.
//! A holder that could not renew in time stops before anybody else may start.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::Clock;

/// A candidate for leadership.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are; unique among the candidates.
    pub identity: String,
    /// How long a holder counts after its last sign of life.
    pub lease: Duration,
    /// How long a holder tries to renew before it gives up. Shorter than `lease`.
    pub renew: Duration,
    /// How often a try is made.
    pub retry: Duration,
}

impl Election {
    /// An election with the periods Kubernetes' own components use.
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    /// Campaigns until stopped, and says on `leading` whether we lead. Gives the Lease back at the end.
    pub async fn run(
        self,
        client: Client,
        clock: Clock,
        leading: watch::Sender<bool>,
        stop: CancellationToken,
    ) {
        let api: Api<Lease> = Api::namespaced(client, &self.namespace);
        let mut candidate = Candidate {
            election: &self,
            api,
            clock,
            seen: None,
            renewed: None,
        };
        loop {
            let now = Instant::now();
            match candidate.attempt().await {
                Ok(true) => candidate.renewed = Some(now),
                Ok(false) => candidate.renewed = None,
                Err(error) => tracing::warn!(%error, lease = %self.name, "cannot reach the lease"),
            }
            let holds = candidate
                .renewed
                .is_some_and(|at| at.elapsed() < self.renew);
            leading.send_if_modified(|before| std::mem::replace(before, holds) != holds);
            let pause = match candidate.renewed {
                // Wake in time to give up, even if nothing answers.
                Some(at) => self.retry.min(self.renew.saturating_sub(at.elapsed())),
                None => self.retry,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => break,
            }
        }
        leading.send_replace(false);
        if candidate.renewed.is_some() {
            candidate.give_back().await;
        }
    }

    /// What comes of a try, which is given up when it takes longer than it is worth.
    async fn in_time<T>(&self, call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let limit = self.renew.min(self.retry * 2);
        match tokio::time::timeout(limit, call).await {
            Ok(result) => result,
            Err(_) => Err(kube::Error::Service(
                "the API server did not answer in time".into(),
            )),
        }
    }
}

struct Candidate<'a> {
    election: &'a Election,
    api: Api<Lease>,
    clock: Clock,
    /// The record as last seen, and when it was first seen like this.
    seen: Option<(LeaseSpec, Instant)>,
    renewed: Option<Instant>,
}

impl Candidate<'_> {
    /// Tries to take or keep the Lease; says whether we hold it.
    async fn attempt(&mut self) -> kube::Result<bool> {
        // A call that hangs longer than a try is worth must not hide that time runs out.
        let election = self.election;
        election.in_time(self.attempt_once()).await
    }

    async fn attempt_once(&mut self) -> kube::Result<bool> {
        let Some(lease) = self.api.get_opt(&self.election.name).await? else {
            return self.create().await;
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if self.seen.as_ref().is_none_or(|(seen, _)| *seen != spec) {
            self.seen = Some((spec.clone(), Instant::now()));
        }
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let ours = holder == self.election.identity;
        if !ours && !holder.is_empty() && !self.has_run_out(&spec) {
            return Ok(false);
        }
        let now = MicroTime(self.clock.now());
        let transitions = spec.lease_transitions.unwrap_or(0) + i32::from(!ours);
        let next = Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some(self.election.identity.clone()),
                lease_duration_seconds: i32::try_from(self.election.lease.as_secs()).ok(),
                acquire_time: if ours {
                    spec.acquire_time
                } else {
                    Some(now.clone())
                },
                renew_time: Some(now),
                lease_transitions: Some(transitions),
                ..LeaseSpec::default()
            }),
            ..lease
        };
        match self
            .api
            .replace(&self.election.name, &PostParams::default(), &next)
            .await
        {
            Ok(_) => Ok(true),
            // Somebody else was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn has_run_out(&self, spec: &LeaseSpec) -> bool {
        let seconds = spec
            .lease_duration_seconds
            .and_then(|s| u64::try_from(s).ok());
        let lease = seconds.map_or(self.election.lease, Duration::from_secs);
        self.seen
            .as_ref()
            .is_some_and(|(_, since)| since.elapsed() > lease)
    }

    async fn create(&self) -> kube::Result<bool> {
        let now = MicroTime(self.clock.now());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.election.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.election.identity.clone()),
                lease_duration_seconds: i32::try_from(self.election.lease.as_secs()).ok(),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        };
        match self.api.create(&PostParams::default(), &lease).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets the next one start at once. Best effort: not doing it only costs them the lease time.
    async fn give_back(&self) {
        let given = async {
            let mut lease = self.api.get(&self.election.name).await?;
            if let Some(spec) = &mut lease.spec
                && spec.holder_identity.as_deref() == Some(&self.election.identity)
            {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                self.api
                    .replace(&self.election.name, &PostParams::default(), &lease)
                    .await?;
            }
            Ok::<(), kube::Error>(())
        };
        if let Err(error) = self.election.in_time(given).await {
            tracing::debug!(%error, "the lease was not given back");
        }
    }
}

/// Runs `work` whenever we lead; drops it where it stands when we no longer do.
pub async fn while_leading<F, Fut>(
    mut leading: watch::Receiver<bool>,
    stop: CancellationToken,
    work: F,
) where
    F: Fn(CancellationToken) -> Fut,
    Fut: Future<Output = ()>,
{
    loop {
        tokio::select! {
            changed = leading.wait_for(|leads| *leads) => {
                if changed.is_err() {
                    return;
                }
            }
            () = stop.cancelled() => return,
        }
        tracing::info!("leading");
        tokio::select! {
            () = work(stop.clone()) => {
                if stop.is_cancelled() {
                    return;
                }
            }
            _ = leading.wait_for(|leads| !*leads) => tracing::warn!("no longer leading"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use kube::client::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_cannot_be_given_back_is_not_waited_for() {
        let silent = Arc::new(AtomicBool::new(false));
        let heard = silent.clone();
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let silent = heard.load(Ordering::SeqCst);
            async move {
                if silent {
                    std::future::pending::<()>().await;
                }
                let (code, body) = if request.method() == http::Method::POST {
                    let lease = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"oxmox"}}"#;
                    (201, lease)
                } else {
                    let none = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#;
                    (404, none)
                };
                let body = Body::from(body.as_bytes().to_vec());
                http::Response::builder().status(code).body(body)
            }
        });
        let (say, mut leading) = watch::channel(false);
        let stop = CancellationToken::new();
        let election = Election::new("default", "oxmox", "one");
        let client = Client::new(server, "default");
        let campaign = election.run(client, Clock::system(), say, stop.clone());
        let campaign = tokio::spawn(campaign);
        leading.wait_for(|leads| *leads).await.unwrap();
        silent.store(true, Ordering::SeqCst);
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(10), campaign).await;
        assert!(ended.is_ok(), "it waits for an answer");
    }
}
