//! A real Proxmox VE to look after.

use anyhow::Result;
use clap::Args;
use kube::Client;

use super::apply;
use crate::access::{Access, Login, variable};
use crate::output;

/// A Proxmox VE to look after.
#[derive(Args)]
pub(super) struct RealPve {
    /// Address of a Proxmox VE, such as https://pve.example.com:8006 [env: PVE_ENDPOINT, unless --demo].
    #[arg(long, value_name = "URL", conflicts_with = "demo")]
    pve: Option<String>,
    #[command(flatten)]
    access: Access,
    /// The nodes machines are placed on, separated by commas; all when left out.
    #[arg(
        long,
        env = "PVE_NODE_SELECTOR",
        value_name = "NODES",
        value_delimiter = ','
    )]
    nodes: Vec<String>,
}

impl RealPve {
    /// Whether there is all it takes, before anything is started. A demo has nothing to do with the Proxmox VE of the environment.
    pub(super) fn check(&mut self, demo: bool) -> Result<()> {
        if self.pve.is_none() && !demo {
            self.pve = variable("PVE_ENDPOINT");
        }
        if self.pve.is_some() {
            self.access.login()?;
            self.access.trust()?;
        }
        Ok(())
    }

    /// Writes it down as the Provider `default`, if there is one.
    pub(super) async fn write_down(&self, client: &Client) -> Result<()> {
        let Some(url) = &self.pve else {
            return Ok(());
        };
        let mut entries = match self.access.login()? {
            Login::Token { id, secret } => {
                vec![("token_id", Some(id)), ("token_secret", Some(secret))]
            }
            Login::Password { user, password } => {
                vec![("username", Some(user)), ("password", Some(password))]
            }
        };
        let prints = self.access.fingerprints.iter().map(ToString::to_string);
        let prints: Vec<String> = prints.collect();
        entries.push((
            "fingerprint",
            (!prints.is_empty()).then(|| prints.join(",")),
        ));
        entries.push(("ca.crt", self.access.authority()?));
        let nodes = self.nodes.iter().map(|node| node.trim().to_owned());
        let credentials = apply::Credentials {
            entries,
            insecure: self.access.insecure()?,
            nodes: nodes.filter(|node| !node.is_empty()).collect(),
        };
        apply::provider(client, "default", url, credentials).await
    }

    /// Asks it who it is and says what came of it: the commonest mistakes show here. Returns whether it answered.
    pub(super) async fn greet(&self) -> Result<bool> {
        let Some(url) = &self.pve else {
            return Ok(true);
        };
        let pve = pve::Client::builder()
            .credentials(self.access.credentials()?)
            .trust(self.access.trust()?)
            .endpoint(url)
            .build()?;
        let answer = async { Ok((pve.version().await?, pve.nodes().await?)) };
        match answer.await {
            Ok((version, nodes)) => {
                let nodes: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
                output::say(format_args!(
                    "Proxmox VE   {url} ({}: {})",
                    version.version,
                    nodes.join(", ")
                ));
                Ok(true)
            }
            Err::<_, pve::Error>(error) => {
                output::say(format_args!("Proxmox VE   {url} cannot be used yet"));
                output::error(&anyhow::Error::new(error));
                output::say(format_args!(
                    "  it is tried again by and by; `oxmox doctor --endpoint {url}` with the same credentials says what to do"
                ));
                Ok(false)
            }
        }
    }
}
