//! Validated names of the things a Proxmox VE cluster is made of.
//!
//! Every name that travels in a URL or a property string is checked once, where it enters the program, so that
//! the rest of the code can put it into a path without another thought.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that is not a valid name of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a valid {kind}: {rule}")]
pub struct InvalidId {
    /// What the text was meant to be.
    pub kind: &'static str,
    /// The text that was refused.
    pub text: String,
    /// The rule it breaks.
    pub rule: &'static str,
}

/// The number of a guest, unique in its cluster over virtual machines and containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vmid(u32);

impl Vmid {
    /// The lowest number Proxmox VE gives to a guest.
    pub const MIN: Vmid = Vmid(100);
    /// The highest number Proxmox VE gives to a guest.
    pub const MAX: Vmid = Vmid(999_999_999);

    /// Checks the range.
    pub fn new(number: u32) -> Result<Self, InvalidId> {
        let id = Self(number);
        if (Self::MIN..=Self::MAX).contains(&id) {
            Ok(id)
        } else {
            Err(Self::refuse(number.to_string()))
        }
    }

    /// The plain number.
    pub fn get(self) -> u32 {
        self.0
    }

    fn refuse(text: String) -> InvalidId {
        InvalidId {
            kind: "VM ID",
            text,
            rule: "a number from 100 to 999999999",
        }
    }
}

impl fmt::Display for Vmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Vmid {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        text.parse::<u32>()
            .map_err(|_| Self::refuse(text.to_owned()))
            .and_then(Self::new)
    }
}

impl TryFrom<u32> for Vmid {
    type Error = InvalidId;

    fn try_from(number: u32) -> Result<Self, InvalidId> {
        Self::new(number)
    }
}

impl Serialize for Vmid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de> Deserialize<'de> for Vmid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: String = crate::scalar::required(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks the text.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                let check: fn(&str) -> bool = $check;
                if check(&text) { Ok(Self(text)) } else { Err(InvalidId { kind: $kind, text, rule: $rule }) }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidId;

            fn try_from(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text: String = crate::scalar::required(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    };
}

string_id! {
    /// The name of a node: one DNS label.
    NodeName, "node name", "a DNS label of letters, digits and inner hyphens, at most 63 long", |text| {
        !text.is_empty()
            && text.len() <= 63
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !text.starts_with('-')
            && !text.ends_with('-')
    }
}

string_id! {
    /// The name of a storage, as configured for the whole cluster.
    StorageId, "storage ID",
    "begins with a letter, ends with a letter or digit, has only letters, digits, '-', '_' and '.' between",
    |text| {
        text.len() >= 2
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    }
}

string_id! {
    /// The name of one volume: `storage:name`.
    VolumeId, "volume ID", "a storage ID, a colon, and a name without blanks or commas", |text| {
        text.split_once(':').is_some_and(|(storage, name)| {
            StorageId::new(storage).is_ok()
                && !name.is_empty()
                && !name.contains(|c: char| c == ',' || c.is_whitespace() || c.is_control())
        })
    }
}

impl VolumeId {
    /// The storage that holds the volume.
    pub fn storage(&self) -> StorageId {
        StorageId(self.0.split(':').next().unwrap_or_default().to_owned())
    }

    /// What follows the storage's name.
    pub fn name(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, name)| name)
    }
}

string_id! {
    /// The name of a resource pool; since 8.1 up to three levels, separated by slashes.
    PoolId, "pool ID", "up to three parts of letters, digits, '.', '-' and '_', separated by '/'", |text| {
        text.split('/').count() <= 3
            && text.split('/').all(|part| {
                !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b))
            })
    }
}

string_id! {
    /// The name of a snapshot.
    SnapshotName, "snapshot name",
    "a letter, then letters, digits, '-' and '_', 2 to 40 long, neither 'current' nor 'pending'",
    |text| {
        (2..=40).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
            && text != "current"
            && text != "pending"
    }
}

string_id! {
    /// A user with its realm: `name@realm`.
    UserId, "user ID", "a name, '@' and a realm, without '/', ':' or blanks", |text| {
        text.len() <= 64
            && text.rsplit_once('@').is_some_and(|(name, realm)| {
                !name.is_empty()
                    && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
                    && !realm.is_empty()
                    && realm.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b))
            })
    }
}

string_id! {
    /// An API token with its owner: `name@realm!token`.
    TokenId, "token ID", "a user ID, '!' and a name of letters, digits, '.', '-' and '_'", |text| {
        text.rsplit_once('!').is_some_and(|(user, token)| {
            UserId::new(user).is_ok()
                && token.starts_with(|c: char| c.is_ascii_alphabetic())
                && token.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b))
        })
    }
}

impl TokenId {
    /// The user who owns the token.
    pub fn user(&self) -> UserId {
        UserId(
            self.0
                .rsplit_once('!')
                .map_or(self.0.as_str(), |(user, _)| user)
                .to_owned(),
        )
    }

    /// The token's own name.
    pub fn token(&self) -> &str {
        self.0.rsplit_once('!').map_or("", |(_, token)| token)
    }
}

string_id! {
    /// A guest as high availability names it: `vm:101` or `ct:102`.
    HaSid, "HA resource ID", "'vm:' or 'ct:' and a VM ID", |text| {
        text.split_once(':').is_some_and(|(kind, id)| matches!(kind, "vm" | "ct") && id.parse::<Vmid>().is_ok())
    }
}

impl HaSid {
    /// The resource of a guest.
    pub fn of(kind: GuestKind, vmid: Vmid) -> Self {
        Self(match kind {
            GuestKind::Qemu => format!("vm:{vmid}"),
            GuestKind::Lxc => format!("ct:{vmid}"),
        })
    }
}

/// The two families of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestKind {
    /// A virtual machine.
    Qemu,
    /// A container.
    Lxc,
}

impl GuestKind {
    /// The word for the kind in paths.
    pub fn as_str(self) -> &'static str {
        match self {
            GuestKind::Qemu => "qemu",
            GuestKind::Lxc => "lxc",
        }
    }
}

impl fmt::Display for GuestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A network card's hardware address, printed the way Proxmox VE prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, octet) in self.0.iter().enumerate() {
            write!(f, "{}{octet:02X}", if at == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl FromStr for MacAddress {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refuse = || InvalidId {
            kind: "MAC address",
            text: text.to_owned(),
            rule: "six hexadecimal octets with colons",
        };
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or_else(refuse)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(refuse());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| refuse())?;
        }
        if parts.next().is_some() {
            Err(refuse())
        } else {
            Ok(Self(octets))
        }
    }
}

impl Serialize for MacAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_to_the_rules_of_proxmox_ve() {
        assert!("99".parse::<Vmid>().is_err());
        assert!("1000000000".parse::<Vmid>().is_err());
        assert_eq!("100".parse::<Vmid>(), Ok(Vmid::MIN));
        assert!(NodeName::new("pve-1").is_ok());
        assert!(NodeName::new("pve/1").is_err());
        assert!(StorageId::new("local-lvm").is_ok());
        assert!(StorageId::new("1x").is_err());
        assert!(PoolId::new("a/b/c").is_ok());
        assert!(PoolId::new("a/b/c/d").is_err());
        assert!(SnapshotName::new("current").is_err());
        assert!(TokenId::new("root@pam!ci").is_ok());
        assert!(TokenId::new("root@pam").is_err());
    }

    #[test]
    fn a_volume_knows_its_storage() {
        let volume = VolumeId::new("local:100/vm-100-disk-0.qcow2").unwrap();
        assert_eq!(volume.storage().as_str(), "local");
        assert_eq!(volume.name(), "100/vm-100-disk-0.qcow2");
        assert!(VolumeId::new("local:a,b").is_err());
    }

    #[test]
    fn a_mac_address_prints_in_capitals() {
        let mac: MacAddress = "bc:24:11:00:0a:ff".parse().unwrap();
        assert_eq!(mac.to_string(), "BC:24:11:00:0A:FF");
        assert!("bc:24:11:00:0a".parse::<MacAddress>().is_err());
        assert!("bc:24:11:00:0a:+f".parse::<MacAddress>().is_err());
    }

    #[test]
    fn a_vmid_reads_from_a_number_or_a_text() {
        assert_eq!(serde_json::from_str::<Vmid>("101").unwrap().get(), 101);
        assert_eq!(serde_json::from_str::<Vmid>("\"101\"").unwrap().get(), 101);
    }
}
