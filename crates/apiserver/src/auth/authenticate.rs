//! From what a request carries to a [`User`].

use std::collections::BTreeMap;

use http::{HeaderMap, header};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{AUTHENTICATED, User, rbac::Action};
use crate::{
    api::Api,
    status::{About, Result, Status},
};

/// The certificate a client showed, verified by the listener (DER).
#[derive(Debug, Clone)]
pub(crate) struct PeerCertificate(pub(crate) Vec<u8>);

impl Api {
    /// Who sent a request that came over the network.
    pub(crate) fn authenticate(
        &self,
        certificate: Option<&PeerCertificate>,
        headers: &HeaderMap,
    ) -> Result<User> {
        if let Some(user) = certificate.and_then(|PeerCertificate(der)| certificate_user(der)) {
            return Ok(user);
        }
        match bearer(headers) {
            Some(token) => self
                .token_user(token, &[])
                .map(|(user, _)| user)
                .ok_or_else(Status::unauthorized),
            None => Ok(User::anonymous()),
        }
    }

    /// Applies `Impersonate-*` headers, if the user may use them.
    pub(crate) fn impersonate(&self, user: User, headers: &HeaderMap) -> Result<User> {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        let groups: Vec<String> = headers
            .get_all("impersonate-group")
            .iter()
            .filter_map(|v| v.to_str().ok().map(str::to_owned))
            .collect();
        let Some(name) = text("impersonate-user") else {
            if !groups.is_empty() || text("impersonate-uid").is_some() {
                return Err(Status::internal(
                    "requested []v1.ObjectReference without impersonating a user",
                ));
            }
            return Ok(user);
        };
        let (namespace, account) = name
            .strip_prefix("system:serviceaccount:")
            .and_then(|rest| rest.split_once(':'))
            .unwrap_or_default();
        let allowed = |namespace: &str, resource: &str, object: &str| {
            let action = Action {
                verb: "impersonate",
                namespace,
                group: "",
                resource,
                subresource: "",
                name: object,
            };
            if self.authorize(&user, &action).allowed {
                return Ok(());
            }
            let about = About {
                group: "",
                resource,
                name: object,
            };
            let why = Self::denial(&user, &action);
            Err(Status::forbidden(about, &why))
        };
        if account.is_empty() {
            allowed("", "users", name)?;
        } else {
            allowed(namespace, "serviceaccounts", account)?;
        }
        for group in &groups {
            allowed("", "groups", group)?;
        }
        let mut acted = if account.is_empty() {
            User {
                name: name.to_owned(),
                groups,
                ..User::default()
            }
        } else {
            let mut acted = User::service_account(namespace, account, "");
            if !groups.is_empty() {
                acted.groups = groups;
            }
            acted
        };
        if let Some(uid) = text("impersonate-uid") {
            uid.clone_into(&mut acted.uid);
        }
        if acted.name != "system:anonymous" && !acted.groups.iter().any(|g| g == AUTHENTICATED) {
            acted.groups.push(AUTHENTICATED.into());
        }
        Ok(acted)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// The common name is the user, the organisations are the groups.
fn certificate_user(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok().map(str::to_owned))
        .collect();
    groups.push(AUTHENTICATED.into());
    Some(User {
        name,
        groups,
        uid: String::new(),
        extra: BTreeMap::new(),
    })
}
