//! What the Secrets of a ProxmoxCluster say: which Proxmox VE, as whom, believing whom.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use pve::Credentials;
use pve::tls::Trust;

use super::Wait;
use crate::Connection;

/// What a ProxmoxCluster says about where its Proxmox VE is, beside its credentials.
#[derive(Clone, Copy, Default)]
pub(super) struct Server<'a> {
    pub(super) name: Option<&'a str>,
    /// It stands in for an address that the credentials lack.
    pub(super) may_be_added: bool,
    /// It is the Proxmox VE that the credentials are for.
    pub(super) must_agree: bool,
}

impl Server<'_> {
    /// The addresses to use, given those that come with the credentials.
    fn endpoints(&self, url: Option<&str>) -> Result<Vec<String>, Wait> {
        let plain = |url: &str| url.trim().trim_end_matches('/').to_owned();
        let invalid = |text: String| Wait::new("CredentialsInvalid", text);
        let named = self.name.map(|name| plain(&address(name)));
        let known = url.map(|url| url.split(',').map(plain).collect::<Vec<_>>());
        match (known, named) {
            (Some(known), Some(named)) if self.must_agree && !known.contains(&named) => {
                Err(invalid(format!(
                    "spec.server is {named}, and the credentials are for {}: leave spec.server out, or name a Secret for it in spec.credentialsRef",
                    known.join(", ")
                )))
            }
            (Some(known), _) => Ok(known),
            (None, Some(named)) if self.may_be_added => Ok(vec![named]),
            (None, Some(_)) => Err(invalid(
                "the credentials Secret has no \"url\": add it, since spec.server is used only with a Secret of the same namespace".to_owned(),
            )),
            (None, None) => Err(missing("url")),
        }
    }
}

fn missing(key: &str) -> Wait {
    Wait::new(
        "CredentialsInvalid",
        format!("the credentials Secret has no {key:?}; add it"),
    )
}

/// What the entries of a Secret mean, and a mark by which a change of credentials is seen.
pub(super) fn connection(
    server: &Server<'_>,
    entries: &BTreeMap<String, String>,
) -> Result<(Connection, u64), Wait> {
    let entry = |key: &str| {
        entries
            .get(key)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    };
    let endpoints = server.endpoints(entry("url"))?;
    let token = entry("token").ok_or_else(|| missing("token"))?;
    let secret = entry("secret").ok_or_else(|| missing("secret"))?;
    let invalid = |what: &str, error: &dyn fmt::Display| {
        Wait::new(
            "CredentialsInvalid",
            format!("{what} in the credentials Secret: {error}"),
        )
    };
    let credentials =
        Credentials::token(token, secret).map_err(|error| invalid("token", &error))?;
    let trust = if entry("insecure").is_some_and(is_true) {
        Trust::Insecure
    } else if let Some(print) = entry("fingerprint") {
        let print = print
            .parse()
            .map_err(|error: pve::Error| invalid("fingerprint", &error))?;
        Trust::Fingerprints(vec![print])
    } else if let Some(authority) = entry("root_ca") {
        Trust::Authority(authority.to_owned())
    } else {
        Trust::System
    };
    let mut mark = DefaultHasher::new();
    (token, secret).hash(&mut mark);
    Ok((
        Connection {
            endpoints,
            trust,
            credentials,
        },
        mark.finish(),
    ))
}

/// A bare host name is Proxmox VE's usual port over HTTPS.
fn address(server: &str) -> String {
    if server.contains("://") {
        server.to_owned()
    } else if server.contains(':') {
        format!("https://{server}")
    } else {
        format!("https://{server}:8006")
    }
}

fn is_true(text: &str) -> bool {
    matches!(
        text.to_lowercase().as_str(),
        "1" | "on" | "true" | "yes" | "y"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    const WHOLE: [(&str, &str); 3] = [
        ("url", "https://pve.example:8006/"),
        ("token", "capi@pve!key"),
        ("secret", "00000000-0000-0000-0000-000000000000"),
    ];

    #[test]
    fn certificates_are_verified_unless_the_secret_says_otherwise() {
        let (made, _) = connection(&Server::default(), &entries(&WHOLE)).unwrap();
        assert_eq!(made.trust, Trust::System);
        assert_eq!(made.endpoints, ["https://pve.example:8006"]);
        let mut loose = entries(&WHOLE);
        loose.insert("insecure".into(), "yes".into());
        assert_eq!(
            connection(&Server::default(), &loose).unwrap().0.trust,
            Trust::Insecure
        );
    }

    #[test]
    fn the_server_field_stands_in_for_a_missing_url_of_its_own_keys_only() {
        let mut server = Server {
            name: Some("proxmox.example.com"),
            may_be_added: true,
            must_agree: true,
        };
        let (made, _) = connection(&server, &entries(&WHOLE[1..])).unwrap();
        assert_eq!(made.endpoints, ["https://proxmox.example.com:8006"]);
        server.may_be_added = false;
        let Err(wait) = connection(&server, &entries(&WHOLE[1..])) else {
            panic!("keys of others were taken elsewhere")
        };
        assert!(wait.message.contains("same namespace"), "{}", wait.message);
    }

    #[test]
    fn a_server_that_the_keys_are_not_for_is_refused() {
        let mut server = Server {
            name: Some("pve.example"),
            may_be_added: false,
            must_agree: true,
        };
        assert!(connection(&server, &entries(&WHOLE)).is_ok());
        server.name = Some("elsewhere.example");
        let Err(wait) = connection(&server, &entries(&WHOLE)) else {
            panic!("accepted without effect")
        };
        assert!(wait.message.contains("credentialsRef"), "{}", wait.message);
        // An instance with keys of its own is somewhere else by design.
        server.must_agree = false;
        let (made, _) = connection(&server, &entries(&WHOLE)).unwrap();
        assert_eq!(made.endpoints, ["https://pve.example:8006"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let Err(wait) = connection(&Server::default(), &entries(&WHOLE[..2])) else {
            panic!("accepted")
        };
        assert!(wait.message.contains("secret"), "{}", wait.message);
    }
}
