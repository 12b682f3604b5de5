//! From what a request carries to a [`User`].

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{AUTHENTICATED, User, rbac::Action};
use crate::{
    api::Api,
    golang,
    status::{About, Result, Status},
};

impl Api {
    /// Who sent a request that came over the network; `certified` is whom the connection's certificate names.
    pub(crate) fn authenticate(
        &self,
        certified: Option<&Arc<User>>,
        headers: &HeaderMap,
    ) -> Result<Arc<User>> {
        if let Some(user) = certified {
            return Ok(Arc::clone(user));
        }
        match bearer(headers) {
            Some(token) => self
                .token_user(token, &[])
                .map(|(user, _)| Arc::new(user))
                .map_err(|_| Status::unauthorized()),
            None => Ok(Arc::new(User::anonymous())),
        }
    }

    /// Applies `Impersonate-*` headers, if the user may use them.
    ///
    /// Whoever may `impersonate` somebody may do everything in their name. Others need two rights: to
    /// be them (`impersonate:user-info`), and to do `action` in their name (`impersonate-on:...`).
    pub(crate) fn impersonate(
        &self,
        user: User,
        headers: &HeaderMap,
        action: Option<&Action<'_>>,
    ) -> Result<User> {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        let groups: Vec<String> = headers
            .get_all("impersonate-group")
            .iter()
            .filter_map(|v| v.to_str().ok().map(str::to_owned))
            .collect();
        let Some(name) = text("impersonate-user") else {
            let uid = text("impersonate-uid").unwrap_or_default();
            if groups.is_empty() && uid.is_empty() {
                return Ok(user);
            }
            let listed: Vec<String> = groups.iter().map(|g| golang::quote(g)).collect();
            return Err(Status::bad_request(format!(
                "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:[]string{{{}}}, Extra:map[string][]string(nil)}} without impersonating a user name",
                golang::quote(uid),
                listed.join(", ")
            )));
        };
        let (namespace, account) = name
            .strip_prefix("system:serviceaccount:")
            .and_then(|rest| rest.split_once(':'))
            .unwrap_or_default();
        let mode = if account.is_empty() {
            "user-info"
        } else {
            "serviceaccount"
        };
        let mut targets = vec![if account.is_empty() {
            ("", "users", name)
        } else {
            (namespace, "serviceaccounts", account)
        }];
        targets.extend(groups.iter().map(|group| ("", "groups", group.as_str())));
        if let Err(denied) = self.may_impersonate(&user, ("impersonate", ""), &targets) {
            let Some(action) = action else {
                return Err(denied);
            };
            let verb = format!("impersonate-on:{mode}:{}", action.verb);
            let action = Action {
                verb: &verb,
                ..*action
            };
            self.demand(&user, &action)?;
            let verb = format!("impersonate:{mode}");
            self.may_impersonate(&user, (&verb, "authentication.k8s.io"), &targets)?;
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

impl Api {
    /// Whether a user may be all of these, each a namespace, resource and name.
    fn may_impersonate(
        &self,
        user: &User,
        (verb, group): (&str, &str),
        targets: &[(&str, &str, &str)],
    ) -> Result<()> {
        targets.iter().try_for_each(|(namespace, resource, name)| {
            self.demand(
                user,
                &Action {
                    verb,
                    namespace,
                    group,
                    resource,
                    subresource: "",
                    name,
                },
            )
        })
    }

    fn demand(&self, user: &User, action: &Action<'_>) -> Result<()> {
        if self.authorize(user, action).allowed {
            return Ok(());
        }
        let about = About {
            group: action.group,
            resource: action.resource,
            name: action.name,
        };
        Err(Status::forbidden(about, &Self::denial(user, action)))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// Whom a certificate (DER, verified by the listener) names: the common name is the user, the
/// organisations are the groups.
pub(crate) fn certificate_user(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok().map(str::to_owned))
        .collect();
    groups.push(AUTHENTICATED.into());
    let digest = Sha256::digest(der)
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
    let credential = vec![format!("X509SHA256={digest}")];
    Some(User {
        name,
        groups,
        uid: String::new(),
        extra: BTreeMap::from([(
            "authentication.kubernetes.io/credential-id".to_owned(),
            credential,
        )]),
    })
}
