//! Who asks.

use std::fmt;

use secrecy::SecretString;

use crate::error::Result;
use crate::id::{InvalidId, TokenId, UserId};

/// Who asks.
#[derive(Clone)]
pub enum Credentials {
    /// An API token.
    Token {
        /// The token's name with its owner.
        id: TokenId,
        /// Its value.
        secret: SecretString,
    },
    /// A user with a password, for the few things tokens may not do.
    Password {
        /// The user.
        user: UserId,
        /// The password.
        password: SecretString,
    },
}

impl Credentials {
    /// A token from its name and value.
    pub fn token(id: &str, secret: impl Into<String>) -> Result<Self, InvalidId> {
        Ok(Self::Token {
            id: id.parse()?,
            secret: SecretString::from(secret.into()),
        })
    }

    /// A token from the form the header has: `user@realm!name=value`.
    pub fn token_line(line: &str) -> Result<Self, InvalidId> {
        // The text is not repeated in the error: it holds the secret.
        let refuse = || InvalidId {
            kind: "API token",
            text: "…".to_owned(),
            rule: "user@realm!name=value",
        };
        let line = line.trim();
        let line = line.strip_prefix("PVEAPIToken=").unwrap_or(line);
        let (id, secret) = line
            .split_once('=')
            .filter(|(_, secret)| !secret.is_empty())
            .ok_or_else(refuse)?;
        Self::token(id, secret).map_err(|_| refuse())
    }

    /// A user with a password.
    pub fn password(user: &str, password: impl Into<String>) -> Result<Self, InvalidId> {
        Ok(Self::Password {
            user: user.parse()?,
            password: SecretString::from(password.into()),
        })
    }

    /// Who it is, without any secret.
    pub fn name(&self) -> &str {
        match self {
            Self::Token { id, .. } => id.as_str(),
            Self::Password { user, .. } => user.as_str(),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Token { .. } => "Token",
            Self::Password { .. } => "Password",
        };
        f.debug_tuple(kind).field(&self.name()).finish()
    }
}
