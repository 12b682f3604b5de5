//! From a Provider and its Secret to everything a connection needs.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use api::vm::{EnvVar, Provider};
use fleet::{NodeName, intent::Payload};
use pve::{
    Credentials,
    tls::{Fingerprint, Trust},
};
use tracing::Level;

use super::{
    super::{
        refs::{self, Lookup, Missing},
        translate::{Invalid, provider_nodes},
    },
    DEFAULT_SECRET,
};
use crate::{
    Connection,
    context::{Context, namespace},
};

/// How one cluster is connected.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) connection: Connection,
    pub(crate) nodes: Vec<String>,
    /// What is worth a line in the log, if the Provider says.
    pub(crate) log: Option<Level>,
    root: bool,
    /// Tells credentials apart without keeping them where they could be shown.
    credentials: u64,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("endpoints", &self.connection.endpoints)
            .finish_non_exhaustive()
    }
}

impl Settings {
    pub(super) fn same_place(&self, other: &Self) -> bool {
        self.connection.endpoints == other.connection.endpoints
            && self.connection.trust == other.connection.trust
            && self.nodes == other.nodes
            && self.root == other.root
    }

    pub(super) fn same_credentials(&self, other: &Self) -> bool {
        self.credentials == other.credentials
    }

    pub(super) fn fleet_options(&self) -> fleet::Options {
        fleet::Options {
            root: self.root,
            nodes: self
                .nodes
                .iter()
                .filter_map(|name| NodeName::new(name.as_str()).ok())
                .collect(),
            ..fleet::Options::default()
        }
    }
}

/// Reads what a Provider says, its Secret and its environment entries.
pub(super) async fn settings(context: &Context, provider: &Provider) -> Result<Settings, Lookup> {
    let env = environment(context, provider).await?;
    let secret = credentials_secret(context, provider).await?;
    let in_secret = |key: &str| said(&secret, key);
    let value = |key: &str, variable: &str| in_secret(key).or_else(|| said(&env, variable));
    let endpoint = provider
        .spec
        .endpoint
        .as_deref()
        .or(env.get("PVE_ENDPOINT").map(String::as_str));
    let Some(endpoint) = endpoint else {
        return Err(Invalid::new("spec.endpoint", "is not set").into());
    };
    let mut endpoints = vec![endpoint.trim_end_matches('/').to_owned()];
    endpoints.extend(
        provider
            .spec
            .endpoints
            .iter()
            .map(|more| more.trim_end_matches('/').to_owned()),
    );

    let Some((who, proof)) = login(&secret, &env) else {
        let name = provider
            .spec
            .credential_secret_ref
            .as_ref()
            .map_or(DEFAULT_SECRET, |r| &r.name);
        return Err(Missing::new(
            "CredentialsMissing",
            format!(
                "Secret {name:?} must hold token_id and token_secret, or username and password; create it, or name another one in spec.credentialSecretRef"
            ),
        )
        .into());
    };
    let mut hasher = DefaultHasher::new();
    (who, proof).hash(&mut hasher);
    let credentials = match who {
        Who::Token(id) => Credentials::token(id, proof),
        Who::User(name) => Credentials::password(name, proof),
    };
    let credentials =
        credentials.map_err(|error| Missing::new("CredentialsInvalid", error.to_string()))?;
    let root = matches!(&credentials, Credentials::Password { user, .. } if user.to_string() == "root@pam");
    let insecure = provider.spec.insecure_skip_verify || flag(&env, "PVE_INSECURE_SKIP_VERIFY")?;
    let trust = if insecure {
        Trust::Insecure
    } else {
        trust(
            secret.get("fingerprint").map(String::as_str),
            value("ca.crt", "PVE_CA_BUNDLE"),
        )?
    };
    Ok(Settings {
        connection: Connection {
            endpoints,
            trust,
            credentials,
        },
        nodes: provider_nodes(provider, env.get("PVE_NODE_SELECTOR").map(String::as_str)),
        log: log_level(&env)?,
        root,
        credentials: hasher.finish(),
    })
}

/// Who logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Who<'a> {
    Token(&'a str),
    User(&'a str),
}

/// Who logs in, and with what: a whole pair in the Secret goes before what the environment completes.
fn login<'a>(
    secret: &'a BTreeMap<String, String>,
    env: &'a BTreeMap<String, String>,
) -> Option<(Who<'a>, &'a str)> {
    let own = |key| said(secret, key);
    let any = |key, variable| own(key).or_else(|| said(env, variable));
    let token = |id, proof| Some((Who::Token(id?), proof?));
    let user = |name, proof| Some((Who::User(name?), proof?));
    token(own("token_id"), own("token_secret"))
        .or_else(|| user(own("username"), own("password")))
        .or_else(|| {
            let id = any("token_id", "PVE_TOKEN_ID");
            token(id, any("token_secret", "PVE_TOKEN_SECRET"))
        })
        .or_else(|| {
            let name = any("username", "PVE_USERNAME");
            user(name, any("password", "PVE_PASSWORD"))
        })
}

/// What is empty is as good as not there.
fn said<'a>(values: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    let text = values.get(key).map(|text| text.trim());
    text.filter(|text| !text.is_empty())
}

/// Whose certificates are trusted. What is empty is as good as not there: a template that fills Secrets in leaves such entries.
fn trust(prints: Option<&str>, authority: Option<&str>) -> Result<Trust, Missing> {
    let each = prints
        .into_iter()
        .flat_map(|prints| prints.split([',', '\n']));
    let each = each.map(str::trim).filter(|text| !text.is_empty());
    let read: Result<Vec<Fingerprint>, pve::Error> = each.map(str::parse).collect();
    let read = read.map_err(|error| {
        let text = format!("fingerprint in the Secret: {error}");
        Missing::new("CredentialsInvalid", text)
    })?;
    if !read.is_empty() {
        return Ok(Trust::Fingerprints(read));
    }
    let Some(authority) = authority else {
        return Ok(Trust::System);
    };
    let trust = Trust::Authority(authority.to_owned());
    pve::tls::client_config(&trust).map_err(|error| {
        let text = format!(
            "ca.crt in the Secret, or PVE_CA_BUNDLE, must be certificates as PEM text: {error}"
        );
        Missing::new("CredentialsInvalid", text)
    })?;
    Ok(trust)
}

fn log_level(env: &BTreeMap<String, String>) -> Result<Option<Level>, Invalid> {
    let Some(word) = env.get("LOG_LEVEL").filter(|word| !word.is_empty()) else {
        return Ok(None);
    };
    match word.to_lowercase().as_str() {
        "error" => Ok(Some(Level::ERROR)),
        "warn" | "warning" => Ok(Some(Level::WARN)),
        "info" => Ok(Some(Level::INFO)),
        "debug" => Ok(Some(Level::DEBUG)),
        "trace" => Ok(Some(Level::TRACE)),
        _ => Err(Invalid::new(
            "spec.runtime.env LOG_LEVEL",
            format!("{word:?} is no level: write error, warn, info, debug or trace"),
        )),
    }
}

fn flag(env: &BTreeMap<String, String>, name: &str) -> Result<bool, Invalid> {
    match env.get(name).map(|text| text.to_lowercase()).as_deref() {
        None | Some("" | "false" | "0" | "no" | "off") => Ok(false),
        Some("true" | "1" | "yes" | "on") => Ok(true),
        Some(other) => Err(Invalid::new(
            format!("spec.runtime.env {name}"),
            format!("{other:?} is neither true nor false"),
        )),
    }
}

/// The Secret's entries. A Secret named in the spec must exist; the default one may be missing when the
/// environment entries hold the credentials.
async fn credentials_secret(
    context: &Context,
    provider: &Provider,
) -> Result<BTreeMap<String, String>, Lookup> {
    let own = namespace(provider);
    let named = provider.spec.credential_secret_ref.as_ref();
    let place = named.and_then(|r| r.namespace.as_deref()).unwrap_or(&own);
    if place != own {
        return Err(Invalid::new(
            "spec.credentialSecretRef.namespace",
            format!(
                "a Provider reads Secrets of its own namespace {own:?} only; copy the Secret there"
            ),
        )
        .into());
    }
    let name = named.map_or(DEFAULT_SECRET, |r| r.name.as_str());
    match context.secret(place, name).await? {
        Some(secret) => Ok(refs::entries(secret)),
        None if named.is_none() => Ok(BTreeMap::new()),
        None => Err(Missing::new(
            "SecretNotFound",
            format!("there is no Secret {name:?} in namespace {place:?}; create it with token_id and token_secret"),
        )
        .into()),
    }
}

async fn environment(
    context: &Context,
    provider: &Provider,
) -> Result<BTreeMap<String, String>, Lookup> {
    let mut read = BTreeMap::new();
    let vars = provider
        .spec
        .runtime
        .iter()
        .flat_map(|runtime| &runtime.env);
    for var in vars {
        if let Some(value) = value(context, &namespace(provider), var).await? {
            read.insert(var.name.clone(), value);
        }
    }
    Ok(read)
}

async fn value(context: &Context, place: &str, var: &EnvVar) -> Result<Option<String>, Lookup> {
    let field = format!("spec.runtime.env {}", var.name);
    let kept: Payload = match (&var.value, &var.value_from) {
        (Some(value), _) => return Ok(Some(value.clone())),
        (None, None) => return Ok(None),
        (None, Some(from)) => match (&from.secret_key_ref, &from.config_map_key_ref) {
            (Some(key), _) => refs::from_secret(context, place, &field, key, &var.name).await?,
            (None, Some(key)) => {
                refs::from_config_map(context, place, &field, key, &var.name).await?
            }
            (None, None) => return Ok(None),
        },
    };
    match kept.as_text() {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(Invalid::new(field, "is not text").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_level_is_one_of_five_words() {
        let level = |word: &str| log_level(&BTreeMap::from([("LOG_LEVEL".into(), word.into())]));
        for word in ["error", "warn", "info", "Debug", "TRACE"] {
            assert!(level(word).unwrap().is_some(), "{word}");
        }
        assert_eq!(level(""), Ok(None));
        let refused = level("loud").unwrap_err().to_string();
        assert!(
            refused.contains("LOG_LEVEL") && refused.contains("trace"),
            "{refused}"
        );
    }

    #[test]
    fn a_whole_pair_of_the_secret_goes_before_the_environment() {
        let map = |entries: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            entries.iter().map(owned).collect()
        };
        let env = map(&[("PVE_TOKEN_ID", "a@pve!env"), ("PVE_TOKEN_SECRET", "e")]);
        let root = map(&[("username", "root@pam"), ("password", "p")]);
        assert_eq!(login(&root, &env), Some((Who::User("root@pam"), "p")));
        let both = map(&[
            ("username", "root@pam"),
            ("password", "p"),
            ("token_id", "a@pve!own"),
            ("token_secret", "s"),
        ]);
        assert_eq!(login(&both, &env), Some((Who::Token("a@pve!own"), "s")));
        let half = map(&[("token_id", "a@pve!own"), ("password", " ")]);
        assert_eq!(login(&half, &env), Some((Who::Token("a@pve!own"), "e")));
        assert_eq!(login(&half, &map(&[("PVE_PASSWORD", "p")])), None);
    }

    #[test]
    fn an_empty_fingerprint_is_none() {
        for empty in ["", " ", "\n", " , \n,"] {
            assert_eq!(trust(Some(empty), None), Ok(Trust::System), "{empty:?}");
        }
        let print = ["AB"; 32].join(":");
        let two = format!("{print}\n{print},");
        let Ok(Trust::Fingerprints(read)) = trust(Some(&two), None) else {
            panic!("{two} is not read");
        };
        assert_eq!(read.len(), 2);
        assert!(trust(Some("AB:CD"), None).is_err());
    }
}
