//! Who makes a request, and what they may do.
//!
//! Authentication is always on. A caller is known by a client certificate of the server's own CA (the name is its
//! common name, the groups its organisations), by a bearer token handed to the server, or by a service account token it
//! signed itself; anybody else is `system:anonymous`. What they may do is then up to [`rbac`];
//! only the group `system:masters` is beyond it.

pub(crate) mod authenticate;
pub(crate) mod bootstrap;
pub(crate) mod rbac;
pub(crate) mod tokens;

/// An authenticated user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// A stable identifier, or empty.
    pub uid: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
    /// What the authenticator adds beyond that.
    pub extra: std::collections::BTreeMap<String, Vec<String>>,
}

pub(crate) const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const MASTERS: &str = "system:masters";

impl User {
    /// The administrator: in-process callers are this unless they say otherwise.
    pub fn admin() -> Self {
        Self {
            name: "kubernetes-admin".into(),
            groups: vec![MASTERS.into(), AUTHENTICATED.into()],
            ..Self::default()
        }
    }

    /// A user of a given name, authenticated and in no other group.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            groups: vec![AUTHENTICATED.into()],
            ..Self::default()
        }
    }

    /// Somebody who showed nothing.
    pub(crate) fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            groups: vec![UNAUTHENTICATED.into()],
            ..Self::default()
        }
    }

    /// The service account of that name.
    pub(crate) fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            uid: uid.to_owned(),
            groups: vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}"),
                AUTHENTICATED.into(),
            ],
            ..Self::default()
        }
    }

    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    /// As the `userInfo` of reviews.
    pub(crate) fn to_value(&self) -> serde_json::Value {
        let mut user = serde_json::json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            user["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            user["extra"] = serde_json::json!(self.extra);
        }
        user
    }
}
