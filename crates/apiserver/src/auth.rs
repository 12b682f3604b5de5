//! Who makes a request, and what they may do.

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

impl User {
    /// The administrator: in-process callers are this unless they say otherwise.
    pub fn admin() -> Self {
        Self {
            name: "kubernetes-admin".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
            ..Self::default()
        }
    }

    /// A user of a given name, authenticated and in no other group.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            groups: vec!["system:authenticated".into()],
            ..Self::default()
        }
    }

    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}
