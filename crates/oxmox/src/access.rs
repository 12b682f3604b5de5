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
///
/// Variables are not clap's business here: what is typed goes before all of them, not only before the one of its name.
#[derive(Args, Default)]
pub(crate) struct Access {
    /// API token, `user@realm!name=secret` [env: PVE_TOKEN].
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// File that holds the API token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The token's name, `user@realm!name`, if its secret comes apart [env: PVE_TOKEN_ID].
    #[arg(long, value_name = "ID")]
    token_id: Option<String>,
    /// The token's secret [env: PVE_TOKEN_SECRET].
    #[arg(long, value_name = "SECRET")]
    token_secret: Option<String>,
    /// User with realm, in place of a token [env: PVE_USERNAME].
    #[arg(long, visible_alias = "user", value_name = "USER")]
    username: Option<String>,
    /// Password of the user [env: PVE_PASSWORD].
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,
    /// SHA-256 fingerprint of a node's certificate, instead of a known authority; may be repeated.
    #[arg(long = "fingerprint", value_name = "SHA256", conflicts_with = "ca")]
    pub(crate) fingerprints: Vec<Fingerprint>,
    /// The authority that signed its certificate (/etc/pve/pve-root-ca.pem on a node): a PEM file, or the PEM text itself
    /// [env: PVE_CA_BUNDLE].
    #[arg(long, value_name = "FILE")]
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

/// A variable of the environment that says something.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

impl Access {
    /// Who we are: what is typed goes before the environment, and in each a token before a user.
    pub(crate) fn login(&self) -> Result<Login> {
        self.login_in(variable)
    }

    fn login_in(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Login> {
        let file = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        if let Some(token) = &self.token {
            return whole_token(token);
        }
        if let Some(path) = &self.token_file {
            return whole_token(&file(path)?);
        }
        // Half of it typed and half in a variable, where it does not show in the list of processes, is one login.
        let id = || self.token_id.clone().or_else(|| variable("PVE_TOKEN_ID"));
        let secret = || {
            self.token_secret
                .clone()
                .or_else(|| variable("PVE_TOKEN_SECRET"))
        };
        let user = || self.username.clone().or_else(|| variable("PVE_USERNAME"));
        let password = || self.password.clone().or_else(|| variable("PVE_PASSWORD"));
        let token_typed = self.token_id.is_some() || self.token_secret.is_some();
        let user_typed = self.username.is_some() || self.password.is_some();
        if !token_typed
            && !user_typed
            && let Some(token) = variable("PVE_TOKEN")
        {
            return whole_token(&token);
        }
        if (token_typed || !user_typed)
            && let (Some(id), Some(secret)) = (id(), secret())
        {
            return Ok(Login::Token { id, secret });
        }
        if (user_typed || !token_typed)
            && let (Some(user), Some(password)) = (user(), password())
        {
            return Ok(Login::Password { user, password });
        }
        bail!(
            "no credentials: give --token or --token-file, or --username and --password (or PVE_TOKEN_ID and PVE_TOKEN_SECRET, PVE_USERNAME and PVE_PASSWORD)"
        )
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
        self.authority_in(variable)
    }

    fn authority_in(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>> {
        // Who types a fingerprint believes that, whatever the environment says.
        let other = || variable("PVE_CA_BUNDLE").filter(|_| self.fingerprints.is_empty());
        let Some(said) = self.ca.clone().or_else(other) else {
            return Ok(None);
        };
        if said.trim_start().starts_with(PEM) {
            return Ok(Some(said));
        }
        let text = std::fs::read_to_string(&said).with_context(|| format!("cannot read {said}"))?;
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

/// A token with its name, as PVE shows it once.
fn whole_token(line: &str) -> Result<Login> {
    let line = line.trim();
    let line = line.strip_prefix("PVEAPIToken=").unwrap_or(line);
    let Some((id, secret)) = line.split_once('=').filter(|(_, it)| !it.is_empty()) else {
        bail!("the token must be `user@realm!name=secret`")
    };
    let (id, secret) = (id.to_owned(), secret.to_owned());
    Ok(Login::Token { id, secret })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(access: &Access, variables: &[(&str, &str)]) -> String {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        };
        match access.login_in(variable) {
            Ok(Login::Token { id, secret }) => format!("{id}={secret}"),
            Ok(Login::Password { user, password }) => format!("{user}/{password}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_typed_goes_before_whatever_the_environment_says() {
        let production = [
            ("PVE_TOKEN", "live@pve!x=1"),
            ("PVE_TOKEN_ID", "live@pve!y"),
            ("PVE_TOKEN_SECRET", "2"),
            ("PVE_USERNAME", "live@pve"),
            ("PVE_PASSWORD", "3"),
        ];
        let nothing = Access::default();
        assert_eq!(who(&nothing, &production), "live@pve!x=1");
        assert_eq!(who(&nothing, &production[1..]), "live@pve!y=2");
        assert_eq!(who(&nothing, &production[3..]), "live@pve/3");
        assert!(who(&nothing, &[]).starts_with("no credentials"));
        let user = Access {
            username: Some("root@pam".to_owned()),
            password: Some("oxmox".to_owned()),
            ..Access::default()
        };
        assert_eq!(who(&user, &production), "root@pam/oxmox");
        let half = Access {
            username: Some("root@pam".to_owned()),
            ..Access::default()
        };
        assert_eq!(who(&half, &production), "root@pam/3");
        assert!(who(&half, &production[..3]).starts_with("no credentials"));
        let token = Access {
            token_id: Some("a@pve!b".to_owned()),
            ..Access::default()
        };
        assert_eq!(who(&token, &production), "a@pve!b=2");
    }

    #[test]
    fn a_fingerprint_that_is_typed_is_believed_instead_of_the_environments_authority() {
        let bundle = |name: &str| (name == "PVE_CA_BUNDLE").then(|| format!("{PEM} CERTIFICATE"));
        let print: Fingerprint = ["AB"; 32].join(":").parse().unwrap();
        let typed = Access {
            fingerprints: vec![print],
            ..Access::default()
        };
        assert_eq!(typed.authority_in(bundle).unwrap(), None);
        assert!(Access::default().authority_in(bundle).unwrap().is_some());
    }
}
