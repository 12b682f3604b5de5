//! How to log in to a Proxmox VE and whom to believe there, from the command line or the environment.
//!
//! The variables are those that a Provider's `runtime.env` knows, so that what configures one in a cluster configures this
//! process, too. A secret in a variable or a file does not show in the list of processes.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, builder::BoolishValueParser};
use pve::Credentials;
use pve::tls::{Fingerprint, Trust};

/// What a certificate in PEM begins with.
const PEM: &str = "-----BEGIN";

/// Credentials and trust.
#[derive(Args)]
pub(crate) struct Access {
    /// API token, `user@realm!name=secret`.
    #[arg(long, env = "PVE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// File that holds the API token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
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
    #[arg(
        long,
        visible_alias = "user",
        env = "PVE_USERNAME",
        value_name = "USER"
    )]
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
    /// SHA-256 fingerprint of a node's certificate, instead of a known authority; may be repeated.
    #[arg(long = "fingerprint", value_name = "SHA256", conflicts_with = "ca")]
    pub(crate) fingerprints: Vec<Fingerprint>,
    /// The authority that signed its certificate (/etc/pve/pve-root-ca.pem on a node): a PEM file, or the PEM text itself.
    #[arg(long, env = "PVE_CA_BUNDLE", value_name = "FILE")]
    ca: Option<String>,
    /// Believe any certificate. Whoever is in between can read the credentials: for trials only.
    #[arg(long, env = "PVE_INSECURE_SKIP_VERIFY", value_parser = BoolishValueParser::new())]
    pub(crate) insecure: bool,
}

/// Who we are.
pub(crate) enum Login {
    /// By a token.
    Token { id: String, secret: String },
    /// By a password.
    Password { user: String, password: String },
}

impl Access {
    /// Who we are: what is said of a token goes before a user.
    pub(crate) fn login(&self) -> Result<Login> {
        let file = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let line = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => Some(file(path)?),
            (None, None) => None,
        };
        if let Some(line) = line {
            let line = line.trim();
            let line = line.strip_prefix("PVEAPIToken=").unwrap_or(line);
            let Some((id, secret)) = line.split_once('=').filter(|(_, it)| !it.is_empty()) else {
                bail!("the token must be `user@realm!name=secret`")
            };
            let (id, secret) = (id.to_owned(), secret.to_owned());
            return Ok(Login::Token { id, secret });
        }
        if let (Some(id), Some(secret)) = (self.token_id.clone(), self.token_secret.clone()) {
            return Ok(Login::Token { id, secret });
        }
        match (self.username.clone(), self.password.clone()) {
            (Some(user), Some(password)) => Ok(Login::Password { user, password }),
            _ => bail!(
                "no credentials: give --token or --token-file, or --username and --password (or PVE_TOKEN_ID and PVE_TOKEN_SECRET, PVE_USERNAME and PVE_PASSWORD)"
            ),
        }
    }

    /// The same for the client.
    pub(crate) fn credentials(&self) -> Result<Credentials> {
        Ok(match self.login()? {
            Login::Token { id, secret } => Credentials::token(&id, secret)?,
            Login::Password { user, password } => Credentials::password(&user, password)?,
        })
    }

    /// The authority's certificates as PEM text.
    pub(crate) fn authority(&self) -> Result<Option<String>> {
        let Some(said) = &self.ca else {
            return Ok(None);
        };
        if said.trim_start().starts_with(PEM) {
            return Ok(Some(said.clone()));
        }
        let text = std::fs::read_to_string(said).with_context(|| format!("cannot read {said}"))?;
        Ok(Some(text))
    }

    /// Whom to believe.
    pub(crate) fn trust(&self) -> Result<Trust> {
        Ok(match self.authority()? {
            _ if self.insecure => Trust::Insecure,
            Some(authority) => Trust::Authority(authority),
            None if self.fingerprints.is_empty() => Trust::System,
            None => Trust::Fingerprints(self.fingerprints.clone()),
        })
    }
}
