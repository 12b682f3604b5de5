//! The way to the server: addresses, credentials, certificates.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use pve::tls::{Fingerprint, Trust, shown_certificate};
use pve::{Client, Credentials, Error};

use super::report::Report;

const PATIENCE: Duration = Duration::from_secs(10);

/// How to reach one Proxmox VE.
#[derive(Args)]
pub(super) struct Connection {
    /// Address of a node, such as https://pve1:8006; may be repeated for nodes of the same cluster.
    #[arg(long = "endpoint", value_name = "URL", required = true)]
    endpoints: Vec<String>,
    /// API token, as user@realm!name=value.
    #[arg(
        long,
        env = "OXMOX_PVE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    token: Option<String>,
    /// File that holds the API token, so that it does not show in the list of processes.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// User with realm, in place of a token.
    #[arg(long, conflicts_with_all = ["token", "token_file"], requires = "password")]
    user: Option<String>,
    /// Password of the user.
    #[arg(long, env = "OXMOX_PVE_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Certificate authority of the cluster, in PEM (/etc/pve/pve-root-ca.pem on a node).
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// SHA-256 fingerprint of a node's certificate; may be repeated.
    #[arg(long = "fingerprint", value_name = "SHA256", conflicts_with = "ca")]
    fingerprints: Vec<Fingerprint>,
    /// Believe any certificate. Whoever is in between can read the token.
    #[arg(long, conflicts_with_all = ["ca", "fingerprints"])]
    insecure: bool,
}

impl Connection {
    /// Who asks, without any secret.
    pub(super) fn who(&self) -> Result<String> {
        Ok(self.credentials()?.name().to_owned())
    }

    fn credentials(&self) -> Result<Credentials> {
        if let (Some(user), Some(password)) = (&self.user, &self.password) {
            return Ok(Credentials::password(user, password)?);
        }
        let line = match (&self.token, &self.token_file) {
            (Some(token), _) => token.clone(),
            (None, Some(file)) => std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?,
            (None, None) => {
                bail!("no credentials: give --token, --token-file, or --user and --password")
            }
        };
        Ok(Credentials::token_line(&line)?)
    }

    fn trust(&self) -> Result<Trust> {
        Ok(if let Some(file) = &self.ca {
            let pem = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            Trust::Authority(pem)
        } else if !self.fingerprints.is_empty() {
            Trust::Fingerprints(self.fingerprints.clone())
        } else if self.insecure {
            Trust::Insecure
        } else {
            Trust::System
        })
    }

    /// Tries each endpoint; a client for those that are good, or nothing.
    pub(super) async fn open(&self, report: &mut Report) -> Result<Option<Client>> {
        let (credentials, trust) = (self.credentials()?, self.trust()?);
        let mut builder = Client::builder()
            .credentials(credentials.clone())
            .trust(trust.clone());
        let mut good = 0;
        for address in &self.endpoints {
            let client = Client::builder()
                .credentials(credentials.clone())
                .trust(trust.clone())
                .endpoint(address)
                .build()
                .map_err(|error| anyhow!(error))?;
            if self.try_endpoint(address, &client, report).await {
                builder = builder.endpoint(address);
                good += 1;
            }
        }
        if good == 0 {
            return Ok(None);
        }
        Ok(Some(builder.build()?))
    }

    async fn try_endpoint(&self, address: &str, client: &Client, report: &mut Report) -> bool {
        let Some(uri) = client
            .endpoints()
            .into_iter()
            .map(|endpoint| endpoint.uri)
            .next()
        else {
            return false;
        };
        let (host, port) = (
            uri.host().unwrap_or_default(),
            uri.port_u16().unwrap_or(8006),
        );
        let mut fingerprint = None;
        if uri.scheme_str() == Some("https") {
            match shown_certificate(host, port, PATIENCE).await {
                Ok(certificate) => fingerprint = Some(Fingerprint::of(&certificate)),
                Err(error) => {
                    report.fail(
                        "reach",
                        error.to_string(),
                        format!("check the address and that {host} accepts port {port}"),
                    );
                    return false;
                }
            }
        } else {
            report.warn("tls", format!("{address} is not encrypted"), "use https://");
        }
        let result = client.version().await;
        match (&result, fingerprint) {
            (Err(error), Some(fingerprint)) if is_about_certificate(error) => {
                report.fail(
                    "tls",
                    format!("{address} shows a certificate that is not believed: {}", chain(error)),
                    format!(
                        "if `openssl x509 -noout -sha256 -fingerprint -in /etc/pve/local/pve-ssl.pem` on the node \
                         says the same, pin it: --fingerprint {fingerprint}"
                    ),
                );
                return false;
            }
            (_, Some(fingerprint)) if self.insecure => report.warn(
                "tls",
                format!("{address} is believed without a check"),
                format!("pin its certificate instead: --fingerprint {fingerprint}"),
            ),
            (_, Some(fingerprint)) => report.ok(
                "tls",
                format!("{address} is believed; its fingerprint is {fingerprint}"),
            ),
            (_, None) => {}
        }
        match result {
            Ok(_) => {
                report.ok("reach", format!("{address} answers"));
                true
            }
            Err(error @ Error::Unauthenticated { .. }) => {
                let name = self.who().unwrap_or_default();
                report.fail(
                    "login",
                    format!("{address}: {error}"),
                    format!(
                        "check that {name} exists, has not expired, and that the secret is its own"
                    ),
                );
                false
            }
            Err(error) => {
                report.fail(
                    "reach",
                    format!("{address}: {}", chain(&error)),
                    "see the cause",
                );
                false
            }
        }
    }
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}

fn is_about_certificate(error: &Error) -> bool {
    matches!(error, Error::Unreachable { .. }) && chain(error).contains("certificate")
}
