//! Tickets, CSRF tokens, API tokens and passwords.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Access, Caller};
use crate::failure::Failure;

/// How long a ticket and a CSRF token are valid.
pub(crate) const LIFETIME: u64 = 2 * 60 * 60;
/// How far a CSRF token or ticket may come from the future.
const SKEW: u64 = 300;

/// Signs tickets.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A signature of 256 bytes, the length of an RSA signature.
    fn sign(&self, text: &str) -> String {
        let mut signature = Vec::with_capacity(256);
        for round in 0_u8..8 {
            let hash = Sha256::new()
                .chain_update(self.0)
                .chain_update([round])
                .chain_update(text);
            signature.extend_from_slice(&hash.finalize());
        }
        STANDARD.encode(signature)
    }

    fn short(&self, text: &str) -> String {
        let hash = Sha256::new()
            .chain_update(self.0)
            .chain_update(text)
            .finalize();
        STANDARD.encode(hash).trim_end_matches('=').to_owned()
    }

    /// A new ticket of `user`.
    pub(crate) fn ticket(&self, user: &str, now: u64) -> String {
        let plain = format!("PVE:{user}:{now:08X}");
        let signature = self.sign(&plain);
        format!("{plain}::{signature}")
    }

    /// What `user` gets for the password alone when a second factor is needed.
    fn challenge(&self, user: &str, wanted: &serde_json::Value, now: u64) -> String {
        let escape = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        };
        let wanted: String = wanted.to_string().bytes().map(escape).collect();
        let plain = format!("PVE:!tfa!{wanted}:{now:08X}");
        let signature = self.sign(&format!("{plain}:{user}"));
        format!("{plain}::{signature}")
    }

    /// Whether this is a challenge given to `user` a moment ago.
    fn challenged(&self, challenge: &str, user: &str, now: u64) -> bool {
        challenge
            .split_once("::")
            .is_some_and(|(plain, signature)| {
                let time = plain.rsplit_once(':').map_or("", |(_, time)| time);
                plain.starts_with("PVE:!tfa!")
                    && fresh(time, now)
                    && self.sign(&format!("{plain}:{user}")) == signature
            })
    }

    /// The user of a valid ticket.
    pub(crate) fn user_of(&self, ticket: &str, now: u64) -> Option<String> {
        let (plain, signature) = ticket.split_once("::")?;
        if self.sign(plain) != signature {
            return None;
        }
        let (user, time) = plain.strip_prefix("PVE:")?.rsplit_once(':')?;
        fresh(time, now).then(|| user.to_owned())
    }

    /// A new CSRF token of `user`.
    pub(crate) fn csrf(&self, user: &str, now: u64) -> String {
        let time = format!("{now:08X}");
        let hash = self.short(&format!("{time}:{user}"));
        format!("{time}:{hash}")
    }

    fn csrf_is_valid(&self, token: &str, user: &str, now: u64) -> bool {
        token.split_once(':').is_some_and(|(time, hash)| {
            fresh(time, now) && hash == self.short(&format!("{time}:{user}"))
        })
    }

    /// The stored form of a password.
    pub(crate) fn hash(&self, user: &str, password: &str) -> String {
        self.short(&format!("password:{user}:{password}"))
    }
}

fn fresh(time: &str, now: u64) -> bool {
    u64::from_str_radix(time, 16).is_ok_and(|time| time <= now + SKEW && now < time + LIFETIME)
}

/// What a request brought along to say who it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    pub(crate) ticket: Option<String>,
    pub(crate) api_token: Option<String>,
    pub(crate) csrf: Option<String>,
}

/// What somebody who wants a ticket brings.
#[derive(Clone, Copy)]
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    /// Also a ticket, or the answer to a challenge.
    pub(crate) password: &'a str,
    /// A code beside the password.
    pub(crate) otp: Option<&'a str>,
    pub(crate) challenge: Option<&'a str>,
}

/// What a login led to.
pub(crate) enum Entry {
    Ticket,
    /// A second factor is asked for.
    Challenge(String),
}

impl Access {
    /// Who the credentials belong to. `changes` says whether a CSRF token is needed.
    pub(crate) fn authenticate(
        &self,
        credentials: &Credentials,
        changes: bool,
        now: u64,
    ) -> Result<Caller, Failure> {
        if let Some(token) = &credentials.api_token {
            return self
                .token_caller(token, now)
                .ok_or_else(|| Failure::unauthorized("Authentication failed!"));
        }
        let Some(ticket) = &credentials.ticket else {
            return Err(Failure::unauthorized("No ticket"));
        };
        let user = self
            .key
            .user_of(ticket, now)
            .filter(|user| self.is_active(user, now))
            .ok_or_else(|| Failure::unauthorized("Authentication failed!"))?;
        if changes {
            let valid = credentials
                .csrf
                .as_deref()
                .is_some_and(|csrf| self.key.csrf_is_valid(csrf, &user, now));
            if !valid {
                return Err(Failure::unauthorized(
                    "Permission denied - invalid csrf token",
                ));
            }
        }
        Ok(Caller::user_id(user))
    }

    fn token_caller(&self, text: &str, now: u64) -> Option<Caller> {
        let (id, secret) = text.split_once('=')?;
        let (user, name) = id.split_once('!')?;
        let token = self.users.get(user)?.tokens.get(name)?;
        let alive = token.expire == 0 || token.expire > now;
        (alive && token.secret == secret && self.is_active(user, now))
            .then(|| Caller::token(user, name))
    }

    fn is_active(&self, user: &str, now: u64) -> bool {
        self.users
            .get(user)
            .is_some_and(|user| user.enable && (user.expire == 0 || user.expire > now))
    }

    /// Checks a password.
    pub(crate) fn check_password(
        &self,
        user: &str,
        password: &str,
        now: u64,
    ) -> Result<(), Failure> {
        let known = self
            .users
            .get(user)
            .and_then(|user| user.password.as_deref());
        if self.is_active(user, now) && known == Some(&self.key.hash(user, password)) {
            Ok(())
        } else {
            Err(Failure::bad_login())
        }
    }

    /// Lets a user in by password, by a ticket of the same user, or by the second factor that the
    /// challenge asked for.
    pub(crate) fn login(&mut self, login: &Login<'_>, now: u64) -> Result<Entry, Failure> {
        let Login { user, password, .. } = *login;
        if let Some(challenge) = login.challenge {
            let known = self.is_active(user, now) && self.key.challenged(challenge, user, now);
            let factors = self.users.get_mut(user).map(|user| &mut user.tfa);
            let right = factors.is_some_and(|factors| known && factors.accept(password, now));
            return right
                .then_some(Entry::Ticket)
                .ok_or_else(Failure::bad_login);
        }
        let by_ticket = self.key.user_of(password, now).as_deref() == Some(user);
        if by_ticket && self.is_active(user, now) {
            return Ok(Entry::Ticket);
        }
        self.check_password(user, password, now)?;
        let Some(factors) = self.users.get_mut(user).map(|user| &mut user.tfa) else {
            return Err(Failure::bad_login());
        };
        if !factors.required() {
            return Ok(Entry::Ticket);
        }
        let Some(code) = login.otp else {
            let wanted = factors.challenge();
            return Ok(Entry::Challenge(self.key.challenge(user, &wanted, now)));
        };
        let right = factors.accept(&format!("totp:{code}"), now);
        right
            .then_some(Entry::Ticket)
            .ok_or_else(Failure::bad_login)
    }

    /// Sets the password of `user`, if there is such a user.
    pub(crate) fn set_password(&mut self, user: &str, password: &str) -> bool {
        let hash = self.key.hash(user, password);
        match self.users.get_mut(user) {
            Some(user) => {
                user.password = Some(hash);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_valid_for_two_hours() {
        let key = Key::new([1; 32]);
        let ticket = key.ticket("root@pam", 1000);
        assert!(ticket.starts_with("PVE:root@pam:000003E8::"));
        assert_eq!(
            key.user_of(&ticket, 1000 + LIFETIME - 1).as_deref(),
            Some("root@pam")
        );
        assert_eq!(key.user_of(&ticket, 1000 + LIFETIME), None);
        assert_eq!(Key::new([2; 32]).user_of(&ticket, 1000), None);
    }

    #[test]
    fn a_csrf_token_is_bound_to_the_user() {
        let key = Key::new([1; 32]);
        let token = key.csrf("root@pam", 1000);
        assert!(key.csrf_is_valid(&token, "root@pam", 1001));
        assert!(!key.csrf_is_valid(&token, "u@pve", 1001));
        assert!(!key.csrf_is_valid(&token, "root@pam", 1000 + LIFETIME));
    }
}
