//! How to log in to a Proxmox VE and whom to believe there, from the command line or the environment.
//!
//! The variables are those that a Provider's `runtime.env` knows, so that what configures one in a cluster configures this
//! process, too. A secret in a variable or a file does not show in the list of processes.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use pve::Credentials;
use pve::tls::{Fingerprint, Trust};

/// What a certificate in PEM begins with.
const PEM: &str = "-----BEGIN";

/// The variable that has any certificate believed.
const INSECURE: &str = "PVE_INSECURE_SKIP_VERIFY";

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
    /// Believe any certificate. Whoever is in between can read the credentials: for trials only
    /// [env: PVE_INSECURE_SKIP_VERIFY, unless --fingerprint or --ca].
    #[arg(long, conflicts_with_all = ["fingerprints", "ca"])]
    insecure: bool,
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
        // Who types whom to believe is not told otherwise by the environment.
        let other = || variable("PVE_CA_BUNDLE").filter(|_| !self.says_whom_to_believe());
        let Some(said) = self.ca.clone().or_else(other) else {
            return Ok(None);
        };
        if said.trim_start().starts_with(PEM) {
            return Ok(Some(said));
        }
        let text = std::fs::read_to_string(&said).with_context(|| format!("cannot read {said}"))?;
        Ok(Some(text))
    }

    /// Whether any certificate is believed.
    pub(crate) fn insecure(&self) -> Result<bool> {
        self.insecure_in(variable)
    }

    fn insecure_in(&self, variable: impl Fn(&str) -> Option<String>) -> Result<bool> {
        if self.says_whom_to_believe() {
            return Ok(self.insecure);
        }
        variable(INSECURE).map_or(Ok(false), |text| flag(INSECURE, &text))
    }

    /// Whether it is typed whom to believe.
    fn says_whom_to_believe(&self) -> bool {
        self.insecure || self.ca.is_some() || !self.fingerprints.is_empty()
    }

    /// Whom to believe.
    pub(crate) fn trust(&self) -> Result<Trust> {
        self.trust_in(variable)
    }

    fn trust_in(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Trust> {
        if self.insecure_in(&variable)? {
            return Ok(Trust::Insecure);
        }
        Ok(match self.authority_in(variable)? {
            Some(authority) => Trust::Authority(authority),
            None if self.fingerprints.is_empty() => Trust::System,
            None => Trust::Fingerprints(self.fingerprints.clone()),
        })
    }
}

/// What a variable that is a flag says, in the words a Provider's `runtime.env` takes.
fn flag(name: &str, text: &str) -> Result<bool> {
    match text.to_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => bail!("{name} is {text:?}: it must be true or false (or 1, yes, on; 0, no, off)"),
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

    /// What is typed after `oxmox`.
    fn typed(args: &[&str]) -> Result<Access, clap::Error> {
        use clap::FromArgMatches as _;
        let command = Access::augment_args(clap::Command::new("oxmox").no_binary_name(true));
        Access::from_arg_matches(&command.try_get_matches_from(args)?)
    }

    #[test]
    fn whom_to_believe_is_typed_whatever_the_environment_says() {
        let print = ["AB"; 32].join(":");
        let pem = format!("{PEM} CERTIFICATE");
        let careless = |name: &str| match name {
            INSECURE => Some("true".to_owned()),
            "PVE_CA_BUNDLE" => Some(format!("{pem} of the environment")),
            _ => None,
        };
        let bundle = |name: &str| careless(name).filter(|_| name != INSECURE);
        let trust = |args: &[&str], variable: &dyn Fn(&str) -> Option<String>| {
            let access = typed(args).unwrap();
            assert_eq!(
                access.insecure_in(variable).unwrap(),
                matches!(access.trust_in(variable).unwrap(), Trust::Insecure)
            );
            access.trust_in(variable).unwrap()
        };
        let pinned = ["--fingerprint", &print];
        for environment in [&careless as &dyn Fn(&str) -> _, &bundle] {
            let believed = trust(&pinned, environment);
            assert!(matches!(believed, Trust::Fingerprints(prints) if prints.len() == 1));
            let believed = trust(&[&format!("--ca={pem}")], environment);
            assert!(matches!(believed, Trust::Authority(text) if text == pem));
            assert!(matches!(
                trust(&["--insecure"], environment),
                Trust::Insecure
            ));
        }
        // What is not heeded is not written down, either.
        let stored = |args: &[&str]| typed(args).unwrap().authority_in(careless).unwrap();
        assert_eq!((stored(&pinned), stored(&["--insecure"])), (None, None));
        assert!(matches!(trust(&[], &careless), Trust::Insecure));
        assert!(matches!(trust(&[], &bundle), Trust::Authority(_)));
        assert!(matches!(trust(&[], &|_: &str| None), Trust::System));
        assert!(typed(&["--insecure", "--ca", "a"]).is_err());
        assert!(typed(&["--insecure", "--fingerprint", &print]).is_err());
    }

    #[test]
    fn a_variable_that_is_neither_true_nor_false_is_refused_by_its_name() {
        let of = |text: &str| {
            let text = text.to_owned();
            Access::default().insecure_in(|name| (name == INSECURE).then(|| text.clone()))
        };
        assert!(of("Yes").unwrap());
        assert!(!of("0").unwrap());
        let refused = of("maybe").unwrap_err().to_string();
        assert!(
            refused.contains(INSECURE) && refused.contains("true or false"),
            "{refused}"
        );
    }
}
