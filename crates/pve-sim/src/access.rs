//! Users, tokens, roles and the access control list, and what follows from them.
//!
//! Rights are computed as PVE does: along the path from `/`, an entry for the user or token
//! replaces what came before, group entries count where the user has none, entries without
//! `propagate` count only on their own path, members of a pool get the pool's rights as well,
//! and `NoAccess` cancels everything. A token with separated privileges has what both it and its
//! user have. `root@pam` may everything, but a token of `root@pam` is not `root@pam`.

pub(crate) mod privilege;
pub(crate) mod tfa;
pub(crate) mod ticket;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::pool::Pool;
use crate::release::Release;

/// Who makes a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    user: String,
    token: Option<String>,
}

impl Caller {
    /// A user with a ticket.
    pub fn user_id(user: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            token: None,
        }
    }

    /// An API token of a user.
    pub fn token(user: impl Into<String>, token: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            token: Some(token.into()),
        }
    }

    /// Nobody: the caller of a route that needs no ticket.
    pub(crate) fn nobody() -> Self {
        Self::user_id("")
    }

    /// The user, also of a token: `root@pam`.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The full id: `root@pam` or `root@pam!token`.
    pub fn id(&self) -> String {
        match &self.token {
            None => self.user.clone(),
            Some(token) => format!("{}!{token}", self.user),
        }
    }

    /// Whether this is `root@pam` itself with a ticket.
    pub fn is_root(&self) -> bool {
        self.token.is_none() && self.user == "root@pam"
    }

    /// Whether an API token calls.
    pub fn is_token(&self) -> bool {
        self.token.is_some()
    }
}

/// A user.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct User {
    #[serde(default = "yes")]
    pub(crate) enable: bool,
    #[serde(default)]
    pub(crate) expire: u64,
    /// Salted hash of the password, if the user has one.
    #[serde(default)]
    pub(crate) password: Option<String>,
    #[serde(default)]
    pub(crate) groups: BTreeSet<String>,
    /// `email`, `firstname`, `lastname`, `comment`, `keys`.
    #[serde(default)]
    pub(crate) details: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) tokens: BTreeMap<String, Token>,
    #[serde(default)]
    pub(crate) tfa: tfa::Factors,
}

/// An API token of a user.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Token {
    pub(crate) secret: String,
    pub(crate) privsep: bool,
    pub(crate) expire: u64,
    pub(crate) comment: Option<String>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A group of users.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) comment: Option<String>,
}

/// Whom an entry of the access control list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Subject {
    User,
    Group,
    Token,
}

/// The entries on one path: whether they propagate, by subject and role.
pub(crate) type Entries = BTreeMap<(Subject, String, String), bool>;

/// An authentication realm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Domain {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
}

/// Everything PVE keeps in its user configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) release: Release,
    pub(crate) users: BTreeMap<String, User>,
    pub(crate) groups: BTreeMap<String, Group>,
    /// Roles made by users; the built-in ones come from the release.
    pub(crate) roles: BTreeMap<String, BTreeSet<String>>,
    #[serde(with = "acl_entries")]
    pub(crate) acl: BTreeMap<String, Entries>,
    pub(crate) pools: BTreeMap<String, Pool>,
    pub(crate) domains: BTreeMap<String, Domain>,
    pub(crate) key: ticket::Key,
}

fn yes() -> bool {
    true
}

/// Rights on one path: privilege and whether it propagates.
pub(crate) type Rights = BTreeMap<String, bool>;

impl Access {
    pub(crate) fn new(release: Release, key: ticket::Key) -> Self {
        let domain = |kind: &str, comment: &str| Domain {
            kind: kind.to_owned(),
            options: BTreeMap::from([("comment".to_owned(), comment.to_owned())]),
        };
        let root = User {
            enable: true,
            ..User::default()
        };
        Self {
            release,
            users: BTreeMap::from([("root@pam".to_owned(), root)]),
            groups: BTreeMap::new(),
            roles: BTreeMap::new(),
            acl: BTreeMap::new(),
            pools: BTreeMap::new(),
            domains: BTreeMap::from([
                (
                    "pam".to_owned(),
                    domain("pam", "Linux PAM standard authentication"),
                ),
                (
                    "pve".to_owned(),
                    domain("pve", "Proxmox VE authentication server"),
                ),
            ]),
            key,
        }
    }

    /// The privileges of a role, built-in or not.
    pub(crate) fn role(&self, name: &str) -> Option<BTreeSet<String>> {
        privilege::role(name, self.release)
            .map(|privileges| privileges.into_iter().map(str::to_owned).collect())
            .or_else(|| self.roles.get(name).cloned())
    }

    /// Roles of one user or token on `path`, and whether each propagates.
    fn roles_on(&self, id: &str, subject: Subject, path: &str) -> BTreeMap<String, bool> {
        let groups = match subject {
            Subject::User => self.users.get(id).map(|user| &user.groups),
            _ => None,
        };
        let mut roles = BTreeMap::new();
        for prefix in prefixes(path) {
            let Some(entries) = self.acl.get(prefix) else {
                continue;
            };
            let is_final = prefix == path;
            let collect = |who: &dyn Fn(Subject, &str) -> bool| -> BTreeMap<String, bool> {
                entries
                    .iter()
                    .filter(|((kind, name, _), propagate)| {
                        who(*kind, name) && (is_final || **propagate)
                    })
                    .map(|((_, _, role), propagate)| (role.clone(), *propagate))
                    .collect()
            };
            let mut found = collect(&|kind, name| kind == subject && name == id);
            if found.is_empty()
                && let Some(groups) = groups
            {
                found = collect(&|kind, name| kind == Subject::Group && groups.contains(name));
            }
            if !found.is_empty() {
                roles = found;
            }
        }
        roles
    }

    /// Roles on `path` with those its pool gives; none where one of them is `NoAccess`.
    fn roles_for(&self, id: &str, subject: Subject, path: &str) -> BTreeMap<String, bool> {
        let mut roles = self.roles_on(id, subject, path);
        if !roles.contains_key("NoAccess")
            && let Some(pool) = self.pool_of_path(path)
        {
            roles.extend(self.roles_on(id, subject, &format!("/pool/{pool}")));
        }
        if roles.contains_key("NoAccess") {
            roles.clear();
        }
        roles
    }

    fn role_has(&self, role: &str, privilege: &str) -> bool {
        if role == "Administrator" {
            return privilege::exists(privilege, self.release);
        }
        match privilege::role(role, self.release) {
            Some(known) => known.into_iter().any(|name| name == privilege),
            None => self
                .roles
                .get(role)
                .is_some_and(|it| it.contains(privilege)),
        }
    }

    fn rights_of(&self, id: &str, subject: Subject, path: &str) -> Rights {
        let mut rights = Rights::new();
        for (role, propagate) in self.roles_for(id, subject, path) {
            for privilege in self.role(&role).unwrap_or_default() {
                let flag = rights.entry(privilege).or_insert(false);
                *flag |= propagate;
            }
        }
        rights
    }

    fn pool_of_path(&self, path: &str) -> Option<&str> {
        if let Some(vmid) = path.strip_prefix("/vms/") {
            return self.pool_of(vmid.parse().ok()?);
        }
        let storage = path.strip_prefix("/storage/")?;
        let holds = |pool: &Pool| pool.storages.contains(storage);
        self.pools
            .iter()
            .find(|(_, pool)| holds(pool))
            .map(|(name, _)| name.as_str())
    }

    /// The pool a guest is in.
    pub(crate) fn pool_of(&self, vmid: u32) -> Option<&str> {
        let holds = |pool: &Pool| pool.guests.contains(&vmid);
        self.pools
            .iter()
            .find(|(_, pool)| holds(pool))
            .map(|(name, _)| name.as_str())
    }

    /// All rights of `caller` on `path`.
    pub(crate) fn rights(&self, caller: &Caller, path: &str) -> Rights {
        let of_user = || {
            if caller.user == "root@pam" {
                privilege::all(self.release)
                    .map(|name| (name.to_owned(), true))
                    .collect()
            } else {
                self.rights_of(&caller.user, Subject::User, path)
            }
        };
        if !self.is_separated(caller) {
            return of_user();
        }
        let user: Rights = of_user();
        self.rights_of(&caller.id(), Subject::Token, path)
            .into_iter()
            .filter_map(|(name, flag)| user.get(&name).map(|of_user| (name, flag && *of_user)))
            .collect()
    }

    /// Whether `caller` has `privilege` on `path`.
    ///
    /// Asked once for every guest of a list, so it looks only for the one privilege.
    pub(crate) fn may(&self, caller: &Caller, path: &str, privilege: &str) -> bool {
        let granted = |id: &str, subject| {
            let roles = self.roles_for(id, subject, path);
            roles.keys().any(|role| self.role_has(role, privilege))
        };
        let of_user = || {
            if caller.user == "root@pam" {
                privilege::exists(privilege, self.release)
            } else {
                granted(&caller.user, Subject::User)
            }
        };
        caller.is_root()
            || of_user() && (!self.is_separated(caller) || granted(&caller.id(), Subject::Token))
    }

    /// Whether `caller` has `privilege` on guests, to be asked for many of them.
    ///
    /// A guest in no pool and without entries of its own gives what every such guest gives, so that is
    /// looked up once.
    pub(crate) fn may_on_guests(&self, caller: &Caller, privilege: &str) -> impl Fn(u32) -> bool {
        let common = self.may(caller, "/vms/0", privilege);
        let named = self
            .acl
            .keys()
            .filter_map(|path| path.strip_prefix("/vms/"));
        let pooled = self.pools.values().flat_map(|pool| &pool.guests);
        let special: BTreeMap<u32, bool> = named
            .filter_map(|vmid| vmid.parse().ok())
            .chain(pooled.copied())
            .map(|vmid| (vmid, self.may(caller, &format!("/vms/{vmid}"), privilege)))
            .collect();
        move |vmid| special.get(&vmid).copied().unwrap_or(common)
    }

    /// Whether the caller is a token that has only rights of its own.
    fn is_separated(&self, caller: &Caller) -> bool {
        let Some(token) = &caller.token else {
            return false;
        };
        let user = self.users.get(&caller.user);
        user.and_then(|user| user.tokens.get(token))
            .is_none_or(|token| token.privsep)
    }

    /// Fails with 403 unless `caller` has all `privileges` on `path`.
    pub(crate) fn need(
        &self,
        caller: &Caller,
        path: &str,
        privileges: &[&str],
    ) -> Result<(), Failure> {
        if caller.is_root() {
            return Ok(());
        }
        let rights = self.rights(caller, path);
        match privileges.iter().find(|name| !rights.contains_key(**name)) {
            None => Ok(()),
            Some(missing) => Err(Failure::denied(format!("{path}, {missing}"))),
        }
    }
}

/// `/`, `/vms`, `/vms/100` for `/vms/100`.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let inner = path
        .match_indices('/')
        .map(|(at, _)| at)
        .filter(|at| *at > 0);
    std::iter::once("/")
        .chain(inner.map(|at| &path[..at]))
        .chain((path != "/").then_some(path))
}

mod acl_entries {
    //! Keeps the access control list as a list of entries, since JSON has no tuple keys.

    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Entries, Subject};

    type Row = (String, Subject, String, String, bool);

    pub(super) fn serialize<S: Serializer>(
        acl: &BTreeMap<String, Entries>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let rows: Vec<_> = acl
            .iter()
            .flat_map(|(path, entries)| {
                entries
                    .iter()
                    .map(move |((kind, name, role), flag)| (path, kind, name, role, flag))
            })
            .collect();
        rows.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, Entries>, D::Error> {
        let mut acl = BTreeMap::<String, Entries>::new();
        for (path, kind, name, role, flag) in Vec::<Row>::deserialize(deserializer)? {
            acl.entry(path)
                .or_default()
                .insert((kind, name, role), flag);
        }
        Ok(acl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        let mut access = Access::new(Release::V9_2, ticket::Key::new([7; 32]));
        access.users.insert(
            "u@pve".into(),
            User {
                enable: true,
                ..User::default()
            },
        );
        access
    }

    fn grant(access: &mut Access, path: &str, subject: Subject, who: &str, role: &str) {
        let entries = access.acl.entry(path.into()).or_default();
        entries.insert((subject, who.into(), role.into()), true);
    }

    #[test]
    fn a_more_specific_path_replaces_what_propagates_to_it() {
        let mut access = access();
        let caller = Caller::user_id("u@pve");
        grant(&mut access, "/", Subject::User, "u@pve", "PVEVMAdmin");
        assert!(access.may(&caller, "/vms/100", "VM.Allocate"));
        grant(
            &mut access,
            "/vms/100",
            Subject::User,
            "u@pve",
            "PVEAuditor",
        );
        assert!(!access.may(&caller, "/vms/100", "VM.Allocate"));
        assert!(access.may(&caller, "/vms/100", "VM.Audit"));
        grant(&mut access, "/vms", Subject::User, "u@pve", "NoAccess");
        assert!(!access.may(&caller, "/vms/101", "VM.Audit"));
    }

    #[test]
    fn many_guests_are_judged_as_each_alone() {
        let mut access = access();
        let caller = Caller::user_id("u@pve");
        grant(&mut access, "/vms", Subject::User, "u@pve", "PVEAuditor");
        grant(&mut access, "/vms/101", Subject::User, "u@pve", "NoAccess");
        grant(&mut access, "/pool/p", Subject::User, "u@pve", "NoAccess");
        let pool = access.pools.entry("p".into()).or_default();
        pool.guests.insert(102);
        let together = access.may_on_guests(&caller, "VM.Audit");
        for (vmid, seen) in [(100, true), (101, false), (102, false)] {
            assert_eq!(together(vmid), seen, "{vmid}");
            assert_eq!(
                access.may(&caller, &format!("/vms/{vmid}"), "VM.Audit"),
                seen
            );
        }
    }

    #[test]
    fn members_of_a_pool_get_its_rights() {
        let mut access = access();
        let caller = Caller::user_id("u@pve");
        let pool = Pool {
            guests: [100].into(),
            ..Pool::default()
        };
        access.pools.insert("p".into(), pool);
        grant(&mut access, "/pool/p", Subject::User, "u@pve", "PVEVMUser");
        assert!(access.may(&caller, "/vms/100", "VM.PowerMgmt"));
        assert!(!access.may(&caller, "/vms/101", "VM.PowerMgmt"));
    }

    #[test]
    fn a_separated_token_has_what_both_have() {
        let mut access = access();
        let token = Token {
            secret: String::new(),
            privsep: true,
            expire: 0,
            comment: None,
        };
        access
            .users
            .get_mut("u@pve")
            .expect("made")
            .tokens
            .insert("t".into(), token);
        let caller = Caller::token("u@pve", "t");
        grant(&mut access, "/vms", Subject::User, "u@pve", "PVEVMUser");
        assert!(!access.may(&caller, "/vms/100", "VM.Audit"));
        grant(&mut access, "/vms", Subject::Token, "u@pve!t", "PVEVMAdmin");
        assert!(access.may(&caller, "/vms/100", "VM.Audit"));
        assert!(!access.may(&caller, "/vms/100", "VM.Allocate"));
    }

    #[test]
    fn a_token_of_root_is_not_root() {
        let access = access();
        assert!(Caller::user_id("root@pam").is_root());
        assert!(!Caller::token("root@pam", "t").is_root());
        assert!(!access.may(&Caller::token("root@pam", "t"), "/vms/1", "VM.Audit"));
    }
}
