//! Bearer tokens: those handed to the server, and service account tokens it signs itself.
//!
//! A service account token is a JWT signed with ES256. It is bound to the account's uid, and
//! optionally to a pod or secret: when what it is bound to is gone, so is the token.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
        UnparsedPublicKey,
    },
};
use serde_json::{Value, json};

use super::User;
use crate::{api::Api, object, registry::text};

/// Who issues tokens, and for whom by default.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The key that service account tokens are signed with.
pub(crate) struct Signer {
    key: EcdsaKeyPair,
    id: String,
    random: SystemRandom,
}

/// What a token is for.
pub(crate) struct Claims<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) account: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) audiences: Vec<String>,
    pub(crate) issued: Timestamp,
    pub(crate) expires: Timestamp,
    /// Kind, name and uid of the object that the token dies with.
    pub(crate) bound: Option<(String, String, String)>,
    pub(crate) id: String,
}

/// The signing key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the key for service account tokens: {0}")]
pub(crate) struct KeyError(String);

impl Signer {
    /// A new key, as PKCS#8.
    pub(crate) fn generate() -> Result<Vec<u8>, KeyError> {
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map(|document| document.as_ref().to_vec())
            .map_err(|error| KeyError(error.to_string()))
    }

    pub(crate) fn new(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random)
            .map_err(|error| KeyError(error.to_string()))?;
        let digest = ring::digest::digest(&ring::digest::SHA256, key.public_key().as_ref());
        Ok(Self {
            id: URL_SAFE_NO_PAD.encode(digest),
            key,
            random,
        })
    }

    pub(crate) fn sign(&self, claims: &Claims<'_>) -> Option<String> {
        let header = json!({"alg": "ES256", "kid": self.id});
        let mut private = json!({
            "namespace": claims.namespace,
            "serviceaccount": {"name": claims.account, "uid": claims.uid},
        });
        if let Some((kind, name, uid)) = &claims.bound {
            private[kind.to_lowercase()] = json!({"name": name, "uid": uid});
        }
        let payload = json!({
            "aud": claims.audiences,
            "exp": claims.expires.as_second(),
            "iat": claims.issued.as_second(),
            "nbf": claims.issued.as_second(),
            "iss": ISSUER,
            "jti": claims.id,
            "kubernetes.io": private,
            "sub": format!("system:serviceaccount:{}:{}", claims.namespace, claims.account),
        });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&payload));
        let signature = self.key.sign(&self.random, signed.as_bytes()).ok()?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The payload of a token this key has signed.
    fn verify(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        if header["alg"] != "ES256" {
            return None;
        }
        let public = self.key.public_key().as_ref();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public)
            .verify(signed.as_bytes(), &decode(signature)?)
            .ok()?;
        serde_json::from_slice(&decode(payload)?).ok()
    }
}

/// Why a token stands for nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// Not ours, expired, or of something that is gone.
    #[error("invalid bearer token")]
    Invalid,
    /// Good, but for these audiences only.
    #[error("the token is for other audiences")]
    Audience(Vec<String>),
}

/// Tokens handed to the server, by their text.
pub(crate) type StaticTokens = BTreeMap<String, User>;

impl Api {
    /// The user of a token, and the audiences it is good for among those asked about.
    pub(crate) fn token_user(
        &self,
        token: &str,
        audiences: &[&str],
    ) -> Result<(User, Vec<String>), TokenError> {
        let wanted: Vec<&str> = if audiences.is_empty() {
            vec![ISSUER]
        } else {
            audiences.to_vec()
        };
        // Compared through a map of all tokens: the time it takes says nothing about a token's text
        // that an attacker could use over TLS and a map's comparisons of random strings.
        if let Some(user) = self.tokens.get(token) {
            return Ok((
                user.clone(),
                wanted.iter().map(|a| (*a).to_owned()).collect(),
            ));
        }
        let payload = self.signer.verify(token).ok_or(TokenError::Invalid)?;
        if payload["iss"] != ISSUER {
            return Err(TokenError::Invalid);
        }
        let now = self.clock.now().as_second();
        let time = |claim: &str| payload[claim].as_i64().ok_or(TokenError::Invalid);
        if time("exp")? <= now || time("nbf")? > now {
            return Err(TokenError::Invalid);
        }
        let given = object::strings(&payload["aud"]);
        let shared: Vec<String> = wanted
            .iter()
            .filter(|audience| given.contains(audience))
            .map(|audience| (*audience).to_owned())
            .collect();
        if shared.is_empty() {
            let given = given.into_iter().map(str::to_owned).collect();
            return Err(TokenError::Audience(given));
        }
        let private = &payload["kubernetes.io"];
        let (namespace, account) = (text(private, "namespace"), &private["serviceaccount"]);
        let (name, uid) = (text(account, "name"), text(account, "uid"));
        self.exists("/serviceaccounts", namespace, name, uid)?;
        let mut user = User::service_account(namespace, name, uid);
        for (kind, storage) in [("pod", "/pods"), ("secret", "/secrets")] {
            let bound = &private[kind];
            if bound.is_object() {
                self.exists(storage, namespace, text(bound, "name"), text(bound, "uid"))?;
                if kind == "pod" {
                    for (key, field) in [("pod-name", "name"), ("pod-uid", "uid")] {
                        user.extra.insert(
                            format!("authentication.kubernetes.io/{key}"),
                            vec![text(bound, field).to_owned()],
                        );
                    }
                }
            }
        }
        user.extra.insert(
            "authentication.kubernetes.io/credential-id".into(),
            vec![format!("JTI={}", text(&payload, "jti"))],
        );
        Ok((user, shared))
    }

    fn exists(
        &self,
        storage: &str,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), TokenError> {
        let entry = self.store.get(storage, &format!("{namespace}/{name}"));
        match entry {
            Some(entry) if object::uid(&entry.value()) == uid => Ok(()),
            _ => Err(TokenError::Invalid),
        }
    }
}
