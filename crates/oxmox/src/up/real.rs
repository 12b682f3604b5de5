//! A real Proxmox VE to look after, from the command line or the environment.
//!
//! The variables are those that a Provider's `runtime.env` knows, so that what configures one in a cluster configures this process, too.

use anyhow::{Context as _, Result, bail};
use clap::Args;
use kube::Client;

use super::apply;

/// What a certificate in PEM begins with.
const PEM: &str = "-----BEGIN";

/// A Proxmox VE to look after.
#[derive(Args)]
pub(super) struct RealPve {
    /// Address of a Proxmox VE, such as https://pve.example.com:8006.
    #[arg(
        long,
        env = "PVE_ENDPOINT",
        value_name = "URL",
        conflicts_with = "demo"
    )]
    pve: Option<String>,
    /// API token, `user@realm!name=secret`.
    #[arg(long, env = "PVE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The token's name, `user@realm!name`, if its secret comes apart.
    #[arg(long, env = "PVE_TOKEN_ID", value_name = "ID")]
    token_id: Option<String>,
    /// The token's secret.
    #[arg(
        long,
        env = "PVE_TOKEN_SECRET",
        value_name = "SECRET",
        hide_env_values = true,
        requires = "token_id"
    )]
    token_secret: Option<String>,
    /// User with realm, in place of a token.
    #[arg(long, env = "PVE_USERNAME", value_name = "USER")]
    username: Option<String>,
    /// Password of the user.
    #[arg(
        long,
        env = "PVE_PASSWORD",
        value_name = "PASSWORD",
        hide_env_values = true,
        requires = "username"
    )]
    password: Option<String>,
    /// SHA-256 fingerprint of its certificate, instead of a known authority.
    #[arg(long, value_name = "SHA256", conflicts_with = "ca")]
    fingerprint: Option<String>,
    /// The authority that signed its certificate: a PEM file, or the PEM text itself.
    #[arg(long, env = "PVE_CA_BUNDLE", value_name = "FILE")]
    ca: Option<String>,
    /// Believe any certificate. For trials only.
    #[arg(long, env = "PVE_INSECURE_SKIP_VERIFY")]
    insecure: bool,
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
    /// Whether there is all it takes, before anything is started.
    pub(super) fn check(&self) -> Result<()> {
        match self.pve {
            Some(_) => self.login().map(drop),
            None => Ok(()),
        }
    }

    /// Writes it down as the Provider `default`, if there is one.
    pub(super) async fn write_down(&self, client: &Client) -> Result<()> {
        let Some(url) = &self.pve else {
            return Ok(());
        };
        let mut entries = self.login()?;
        entries.push(("fingerprint", self.fingerprint.clone()));
        entries.push(("ca.crt", self.authority()?));
        let nodes = self.nodes.iter().map(|node| node.trim().to_owned());
        let credentials = apply::Credentials {
            entries,
            insecure: self.insecure,
            nodes: nodes.filter(|node| !node.is_empty()).collect(),
        };
        apply::provider(client, "default", url, credentials).await
    }

    /// The entries of the Secret that say who we are: a token where there is one.
    fn login(&self) -> Result<Vec<(&'static str, Option<String>)>> {
        let whole = match &self.token {
            None => None,
            Some(token) => match token.split_once('=') {
                Some((id, secret)) => Some((id.to_owned(), secret.to_owned())),
                None => bail!("--token must be `user@realm!name=secret`"),
            },
        };
        let apart = self.token_id.clone().zip(self.token_secret.clone());
        if let Some((id, secret)) = whole.or(apart) {
            return Ok(vec![("token_id", Some(id)), ("token_secret", Some(secret))]);
        }
        match (&self.username, &self.password) {
            (Some(user), Some(password)) => Ok(vec![
                ("username", Some(user.clone())),
                ("password", Some(password.clone())),
            ]),
            _ => bail!(
                "no credentials for --pve: give --token, or --username and --password (or PVE_TOKEN_ID and PVE_TOKEN_SECRET, PVE_USERNAME and PVE_PASSWORD)"
            ),
        }
    }

    fn authority(&self) -> Result<Option<String>> {
        let Some(said) = &self.ca else {
            return Ok(None);
        };
        if said.trim_start().starts_with(PEM) {
            return Ok(Some(said.clone()));
        }
        let text = std::fs::read_to_string(said).with_context(|| format!("cannot read {said}"))?;
        Ok(Some(text))
    }
}
