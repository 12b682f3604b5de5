//! The way to the server.

use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Args;
use pve::tls::{Fingerprint, Trust, shown_certificate};
use pve::{Client, Error};

use super::report::Report;
use crate::access::Access;

const PATIENCE: Duration = Duration::from_secs(10);

/// How to reach one Proxmox VE.
#[derive(Args)]
pub(super) struct Connection {
    /// Address of a node, such as https://pve1:8006; may be repeated for nodes of the same cluster.
    #[arg(
        long = "endpoint",
        env = "PVE_ENDPOINT",
        value_name = "URL",
        required = true,
        value_delimiter = ','
    )]
    endpoints: Vec<String>,
    #[command(flatten)]
    access: Access,
}

impl Connection {
    /// Who asks, without any secret.
    pub(super) fn who(&self) -> Result<String> {
        Ok(self.access.credentials()?.name().to_owned())
    }

    /// Tries each endpoint; a client for those that are good, or nothing.
    pub(super) async fn open(&self, report: &mut Report) -> Result<Option<Client>> {
        let (credentials, trust) = (self.access.credentials()?, self.access.trust()?);
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
            let insecure = matches!(trust, Trust::Insecure);
            if self.try_endpoint(address, &client, insecure, report).await {
                builder = builder.endpoint(address);
                good += 1;
            }
        }
        if good == 0 {
            return Ok(None);
        }
        Ok(Some(builder.build()?))
    }

    async fn try_endpoint(
        &self,
        address: &str,
        client: &Client,
        insecure: bool,
        report: &mut Report,
    ) -> bool {
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
            (_, Some(fingerprint)) if insecure => report.warn(
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
