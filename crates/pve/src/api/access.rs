//! Users, tokens, roles and who may do what where.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::SecretString;
use serde::Deserialize;

use crate::client::{Call, Client};
use crate::error::Result;
use crate::id::{TokenId, UserId};
use crate::params::{Params, escape};
use crate::scalar::{self, FromScalar};

/// The calls about access.
#[derive(Debug, Clone)]
pub struct Access(Client);

impl Client {
    /// The calls about access.
    pub fn access(&self) -> Access {
        Access(self.clone())
    }
}

/// What somebody may do: privileges by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions(BTreeMap<String, BTreeMap<String, bool>>);

impl Permissions {
    /// Whether a privilege is held on a path, directly or handed down from above.
    ///
    /// A path the server names decides alone, since a grant there replaces what comes from above.
    pub fn has(&self, path: &str, privilege: &str) -> bool {
        if let Some(held) = self.0.get(path) {
            return held.contains_key(privilege);
        }
        let mut above = path;
        while let Some(cut) = above.rfind('/') {
            above = if cut == 0 { "/" } else { &above[..cut] };
            if let Some(held) = self.0.get(above) {
                return held.get(privilege).copied().unwrap_or(false);
            }
            if above == "/" {
                break;
            }
        }
        false
    }

    /// The paths with what is held there, and whether it is handed down.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, bool>)> {
        self.0.iter().map(|(path, held)| (path.as_str(), held))
    }

    /// All privileges held on a path, directly or handed down.
    pub fn on(&self, path: &str) -> BTreeSet<String> {
        let names: BTreeSet<&String> = self.0.values().flat_map(BTreeMap::keys).collect();
        names
            .into_iter()
            .filter(|name| self.has(path, name))
            .cloned()
            .collect()
    }

    /// The paths the server named.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw =
            BTreeMap::<String, BTreeMap<String, serde_json::Value>>::deserialize(deserializer)?;
        let held = |privs: BTreeMap<String, serde_json::Value>| {
            privs
                .into_iter()
                .map(|(name, down)| (name, bool::from_scalar(&down).unwrap_or(false)))
                .collect()
        };
        Ok(Self(
            raw.into_iter()
                .map(|(path, privs)| (path, held(privs)))
                .collect(),
        ))
    }
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Role {
    /// Its name.
    #[serde(rename = "roleid")]
    pub name: String,
    /// Its privileges.
    #[serde(default, deserialize_with = "scalar::list")]
    pub privs: Vec<String>,
    /// Whether it is built in.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub special: bool,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct User {
    /// Its name with realm.
    pub userid: UserId,
    /// Whether it may log in.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub enable: Option<bool>,
    /// When it expires, in seconds since 1970; 0 for never.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub expire: Option<u64>,
    /// A person's note.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub comment: Option<String>,
}

/// A token, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Token {
    /// Its name without the owner's.
    pub tokenid: String,
    /// Whether it has only rights of its own.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub privsep: Option<bool>,
    /// When it expires, in seconds since 1970; 0 for never.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub expire: Option<u64>,
    /// A person's note.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub comment: Option<String>,
}

/// One grant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Grant {
    /// Where.
    pub path: String,
    /// `user`, `group` or `token`.
    #[serde(rename = "type")]
    pub kind: String,
    /// To whom.
    pub ugid: String,
    /// What.
    pub roleid: String,
    /// Whether it is handed down.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub propagate: bool,
}

/// Grants to give or to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclChange {
    /// Where.
    pub path: String,
    /// What.
    pub roles: Vec<String>,
    /// To which users.
    pub users: Vec<UserId>,
    /// To which tokens.
    pub tokens: Vec<TokenId>,
    /// To which groups.
    pub groups: Vec<String>,
    /// Whether it is handed down.
    pub propagate: bool,
    /// Whether to take instead of to give.
    pub delete: bool,
}

/// A new token's value, which is shown once.
#[derive(Debug, Clone, Deserialize)]
pub struct NewToken {
    /// Its name with the owner's.
    #[serde(rename = "full-tokenid")]
    pub id: TokenId,
    /// Its value.
    #[serde(deserialize_with = "secret")]
    pub value: SecretString,
}

impl Access {
    /// What the caller, or another, may do; on one path or on all that matter.
    pub async fn permissions(&self, who: Option<&str>, path: Option<&str>) -> Result<Permissions> {
        let params = Params::new().maybe("userid", who).maybe("path", path);
        self.0
            .call(Call::get("access.permissions", "/access/permissions").params(params))
            .await
    }

    /// The users.
    pub async fn users(&self) -> Result<Vec<User>> {
        self.0
            .call(Call::get("access.users", "/access/users"))
            .await
    }

    /// Adds a user; in the realm `pve` with a password.
    pub async fn create_user(
        &self,
        user: &UserId,
        password: Option<&str>,
        comment: Option<&str>,
    ) -> Result<()> {
        let params = Params::new()
            .with("userid", user)
            .maybe("password", password)
            .maybe("comment", comment);
        self.0
            .call(Call::post("access.user.create", "/access/users").params(params))
            .await
    }

    /// Removes a user.
    pub async fn delete_user(&self, user: &UserId) -> Result<()> {
        self.0
            .call(Call::delete("access.user.delete", user_path(user, "")))
            .await
    }

    /// A user's tokens.
    pub async fn tokens(&self, user: &UserId) -> Result<Vec<Token>> {
        self.0
            .call(Call::get("access.tokens", user_path(user, "/token")))
            .await
    }

    /// Adds a token.
    pub async fn create_token(
        &self,
        id: &TokenId,
        privsep: bool,
        comment: Option<&str>,
    ) -> Result<NewToken> {
        let params = Params::new()
            .with("privsep", u8::from(privsep))
            .maybe("comment", comment);
        self.0
            .call(Call::post("access.token.create", token_path(id)).params(params))
            .await
    }

    /// Gives a token another value; since 9.1.
    pub async fn regenerate_token(&self, id: &TokenId) -> Result<NewToken> {
        let params = Params::new().with("regenerate", 1);
        self.0
            .call(Call::put("access.token.regenerate", token_path(id)).params(params))
            .await
    }

    /// Removes a token.
    pub async fn delete_token(&self, id: &TokenId) -> Result<()> {
        self.0
            .call(Call::delete("access.token.delete", token_path(id)))
            .await
    }

    /// The roles.
    pub async fn roles(&self) -> Result<Vec<Role>> {
        self.0
            .call(Call::get("access.roles", "/access/roles"))
            .await
    }

    /// Adds a role. Names that begin with `PVE` are the server's own.
    pub async fn create_role(&self, name: &str, privs: &BTreeSet<String>) -> Result<()> {
        let params = Params::new().with("roleid", name).list("privs", privs);
        self.0
            .call(Call::post("access.role.create", "/access/roles").params(params))
            .await
    }

    /// Replaces a role's privileges.
    pub async fn update_role(&self, name: &str, privs: &BTreeSet<String>) -> Result<()> {
        let params = Params::new().list("privs", privs);
        let path = format!("/access/roles/{}", escape(name));
        self.0
            .call(Call::put("access.role.update", path).params(params))
            .await
    }

    /// Removes a role.
    pub async fn delete_role(&self, name: &str) -> Result<()> {
        self.0
            .call(Call::delete(
                "access.role.delete",
                format!("/access/roles/{}", escape(name)),
            ))
            .await
    }

    /// All grants the caller may see.
    pub async fn acl(&self) -> Result<Vec<Grant>> {
        self.0.call(Call::get("access.acl", "/access/acl")).await
    }

    /// Gives or takes grants.
    pub async fn change_acl(&self, change: &AclChange) -> Result<()> {
        let params = Params::new()
            .with("path", &change.path)
            .list("roles", &change.roles)
            .list("users", &change.users)
            .list("tokens", &change.tokens)
            .list("groups", &change.groups)
            .with("propagate", u8::from(change.propagate))
            .flag("delete", change.delete);
        self.0
            .call(Call::put("access.acl.change", "/access/acl").params(params))
            .await
    }
}

fn secret<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

fn user_path(user: &UserId, rest: &str) -> String {
    format!("/access/users/{}{rest}", escape(user.as_str()))
}

fn token_path(id: &TokenId) -> String {
    user_path(&id.user(), &format!("/token/{}", escape(id.token())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_named_path_decides() {
        let permissions: Permissions = serde_json::from_str(
            r#"{"/": {"VM.Audit": 1, "Sys.Audit": 0}, "/vms/100": {"VM.Clone": 1}, "/pool": {"VM.Allocate": "1"}}"#,
        )
        .unwrap();
        assert!(permissions.has("/vms/101", "VM.Audit"));
        assert!(permissions.has("/", "Sys.Audit"));
        assert!(
            !permissions.has("/nodes/pve1", "Sys.Audit"),
            "not handed down"
        );
        assert!(permissions.has("/vms/100", "VM.Clone"));
        assert!(
            !permissions.has("/vms/100", "VM.Audit"),
            "the grant on the path replaces the one above"
        );
        assert!(permissions.has("/pool/a/b", "VM.Allocate"));
    }
}
