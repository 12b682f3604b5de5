//! The named formats of PVE's schemas.
//!
//! Each is a check with PVE's text. A list format checks every item of a list. Those of one subject
//! only are in its module: [`network`], [`storage`], [`backup`].

pub(crate) mod backup;
pub(crate) mod network;
pub(crate) mod storage;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::property;
use crate::access::privilege;
use crate::params::split_list;
use crate::release::Release;

/// A check of one text; the error is PVE's text without its newline.
pub(crate) type Check = fn(&str) -> Result<(), String>;

/// How the text of a value must look.
#[derive(Clone, Debug)]
pub(crate) enum Format {
    /// One value.
    One(Check),
    /// A list of such values.
    List(Check),
    /// A check that knows the release.
    ByRelease(fn(&str, Release) -> Result<(), String>),
    /// A property string.
    Property(Arc<property::Format>),
}

impl Format {
    pub(crate) fn check(&self, path: &str, value: &str, release: Release) -> Result<(), String> {
        match self {
            Self::One(check) => check(value),
            Self::List(check) => split_list(value).into_iter().try_for_each(check),
            Self::ByRelease(check) => check(value, release),
            Self::Property(format) => format.check(path, value, release).map(drop),
        }
    }
}

/// `pve-vmid`
pub(crate) const VMID: Format = Format::One(vmid);
/// `pve-vmid-list`
pub(crate) const VMID_LIST: Format = Format::List(vmid);
/// `pve-node`
pub(crate) const NODE: Format = Format::One(node);
/// `pve-node-list`
pub(crate) const NODE_LIST: Format = Format::List(node);
/// `dns-name`
pub(crate) const DNS_NAME: Format = Format::One(dns_name);
/// `dns-name-list`
pub(crate) const DNS_NAME_LIST: Format = Format::List(dns_name);
/// `pve-storage-id`
pub(crate) const STORAGE: Format = Format::One(storage);
/// `pve-storage-id-list`
pub(crate) const STORAGE_LIST: Format = Format::List(storage);
/// `pve-configid`
pub(crate) const CONFIG_ID: Format = Format::One(config_id);
/// `pve-configid-list`
pub(crate) const CONFIG_ID_LIST: Format = Format::List(config_id);
/// `mac-addr`
pub(crate) const MAC: Format = Format::One(mac);
/// `address`
pub(crate) const ADDRESS: Format = Format::One(address);
/// `ip`
pub(crate) const IP: Format = Format::One(ip);
/// `ipv4`
pub(crate) const IPV4: Format = Format::One(ipv4);
/// `ipv6`
pub(crate) const IPV6: Format = Format::One(ipv6);
/// `CIDR`
pub(crate) const CIDR: Format = Format::One(cidr);
/// `pve-ipv4-config`
pub(crate) const IPV4_CONFIG: Format = Format::One(ipv4_config);
/// `pve-ipv6-config`
pub(crate) const IPV6_CONFIG: Format = Format::One(ipv6_config);
/// `address-list`
pub(crate) const ADDRESS_LIST: Format = Format::List(address);
/// `pve-bridge-id`
pub(crate) const BRIDGE: Format = Format::One(bridge);
/// `pve-tag-list`
pub(crate) const TAG_LIST: Format = Format::List(tag);
/// `urlencoded`
pub(crate) const URLENCODED: Format = Format::One(urlencoded);
/// `email-opt`
pub(crate) const EMAIL: Format = Format::One(email);
/// `pve-userid`
pub(crate) const USER: Format = Format::One(user);
/// `pve-userid-list`
pub(crate) const USER_LIST: Format = Format::List(user);
/// `pve-tokenid-list`
pub(crate) const TOKEN_LIST: Format = Format::List(token);
/// `pve-groupid`
pub(crate) const GROUP: Format = Format::One(group);
/// `pve-groupid-list`
pub(crate) const GROUP_LIST: Format = Format::List(group);
/// `pve-roleid`
pub(crate) const ROLE: Format = Format::One(role);
/// `pve-roleid-list`
pub(crate) const ROLE_LIST: Format = Format::List(role);
/// `pve-realm`
pub(crate) const REALM: Format = Format::One(realm);
/// `pve-poolid`
pub(crate) const POOL: Format = Format::One(pool);
/// `pve-priv-list`
pub(crate) const PRIVILEGE_LIST: Format = Format::ByRelease(privileges);

fn require(ok: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if ok { Ok(()) } else { Err(text()) }
}

fn not_valid(ok: bool, what: &str) -> Result<(), String> {
    require(ok, || format!("value does not look like a valid {what}"))
}

/// Whether `text` is made of `first` and then `rest` characters only, and is not empty.
pub(crate) fn word(text: &str, first: fn(char) -> bool, rest: fn(char) -> bool) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(first) && chars.all(rest)
}

fn alnum(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

fn alpha(c: char) -> bool {
    c.is_ascii_alphabetic()
}

fn vmid(value: &str) -> Result<(), String> {
    let ok = (3..=9).contains(&value.len())
        && !value.starts_with('0')
        && value.bytes().all(|b| b.is_ascii_digit());
    not_valid(ok, "VM ID")
}

fn label(value: &str) -> bool {
    word(value, alnum, |c| alnum(c) || c == '-') && !value.ends_with('-') && value.len() <= 63
}

fn node(value: &str) -> Result<(), String> {
    not_valid(label(value), "node name")
}

fn dns_name(value: &str) -> Result<(), String> {
    not_valid(value.split('.').all(label), "DNS name")
}

fn storage(value: &str) -> Result<(), String> {
    let ok = value.len() > 1
        && word(value, alpha, |c| alnum(c) || matches!(c, '-' | '_' | '.'))
        && value.ends_with(alnum);
    require(ok, || {
        format!("storage ID '{value}' contains illegal characters")
    })
}

pub(crate) fn is_config_id(value: &str) -> bool {
    value.len() > 1 && word(value, alpha, |c| alnum(c) || matches!(c, '-' | '_'))
}

fn config_id(value: &str) -> Result<(), String> {
    require(is_config_id(value), || {
        format!("invalid configuration ID '{value}'")
    })
}

/// Whether `value` is a unicast MAC address.
pub(crate) fn is_mac(value: &str) -> bool {
    let parts: Vec<_> = value.split(':').collect();
    parts.len() == 6
        && parts
            .iter()
            .all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
        && u8::from_str_radix(parts[0], 16).is_ok_and(|first| first & 1 == 0)
}

fn mac(value: &str) -> Result<(), String> {
    not_valid(is_mac(value), "unicast MAC address")
}

fn ip(value: &str) -> Result<(), String> {
    not_valid(value.parse::<IpAddr>().is_ok(), "IP address")
}

fn ipv4(value: &str) -> Result<(), String> {
    not_valid(value.parse::<Ipv4Addr>().is_ok(), "IPv4 address")
}

fn ipv6(value: &str) -> Result<(), String> {
    not_valid(value.parse::<Ipv6Addr>().is_ok(), "IPv6 address")
}

fn network<A: std::str::FromStr>(value: &str, bits: u8) -> bool {
    value.split_once('/').is_some_and(|(address, prefix)| {
        address.parse::<A>().is_ok() && prefix.parse::<u8>().is_ok_and(|it| it > 0 && it <= bits)
    })
}

pub(crate) fn is_cidr(value: &str) -> bool {
    network::<Ipv4Addr>(value, 32) || network::<Ipv6Addr>(value, 128)
}

fn cidr(value: &str) -> Result<(), String> {
    not_valid(is_cidr(value), "CIDR network")
}

fn ipv4_config(value: &str) -> Result<(), String> {
    let ok = value == "dhcp" || value == "manual" || network::<Ipv4Addr>(value, 32);
    not_valid(ok, "ipv4 network configuration")
}

fn ipv6_config(value: &str) -> Result<(), String> {
    let ok = matches!(value, "auto" | "dhcp" | "manual") || network::<Ipv6Addr>(value, 128);
    not_valid(ok, "ipv6 network configuration")
}

fn address(value: &str) -> Result<(), String> {
    let ok = value.parse::<IpAddr>().is_ok() || value.split('.').all(label);
    require(ok, || {
        format!("value does not look like a valid address: {value}")
    })
}

fn bridge(value: &str) -> Result<(), String> {
    let part = |c: char| alnum(c) || matches!(c, '-' | '_' | '.');
    require(word(value, part, part), || {
        format!("value '{value}' does not look like a valid bridge ID")
    })
}

fn tag(value: &str) -> Result<(), String> {
    let ok = word(
        value,
        |c| alnum(c) || c == '_',
        |c| alnum(c) || matches!(c, '_' | '-' | '+' | '.'),
    );
    require(ok, || "invalid characters in tag".to_owned())
}

fn urlencoded(value: &str) -> Result<(), String> {
    let bytes = value.as_bytes();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.~-".contains(&b);
    let mut at = 0;
    let mut ok = true;
    while ok && at < bytes.len() {
        if bytes[at] == b'%' {
            let code = bytes.get(at + 1..at + 3);
            ok = code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit));
            at += 3;
        } else {
            ok = plain(bytes[at]);
            at += 1;
        }
    }
    require(ok, || format!("invalid urlencoded string: {value}"))
}

fn email(value: &str) -> Result<(), String> {
    let ok = value.is_empty()
        || value.split_once('@').is_some_and(|(name, host)| {
            word(name, alnum, |c| alnum(c) || "+-_.~".contains(c)) && host.split('.').all(label)
        });
    not_valid(ok, "email address")
}

/// Whether `value` is `name@realm`.
pub(crate) fn is_user(value: &str) -> bool {
    value.rsplit_once('@').is_some_and(|(name, realm)| {
        !name.is_empty()
            && !name.contains([':', '/', ' ', '\t', '\n'])
            && realm_ok(realm)
            && value.len() <= 64
    })
}

fn realm_ok(value: &str) -> bool {
    value.len() > 1 && word(value, alpha, |c| alnum(c) || matches!(c, '.' | '-' | '_'))
}

fn user(value: &str) -> Result<(), String> {
    let len = value.len();
    require(len >= 3, || format!("user name '{value}' is too short"))?;
    require(len <= 64, || {
        format!("user name '{value}' is too long ({len} > 64)")
    })?;
    require(is_user(value), || {
        format!("value '{value}' does not look like a valid user name")
    })
}

fn token(value: &str) -> Result<(), String> {
    let ok = value
        .split_once('!')
        .is_some_and(|(user, name)| is_user(user) && is_token_name(name));
    require(ok, || {
        format!("value '{value}' does not look like a valid token ID")
    })
}

/// Whether `value` may name a token of a user.
pub(crate) fn is_token_name(value: &str) -> bool {
    value.len() > 1 && word(value, alpha, |c| alnum(c) || matches!(c, '.' | '-' | '_'))
}

fn name_ok(value: &str) -> bool {
    let part = |c: char| alnum(c) || matches!(c, '.' | '-' | '_');
    word(value, part, part)
}

fn group(value: &str) -> Result<(), String> {
    require(name_ok(value), || {
        format!("group name '{value}' contains invalid characters")
    })
}

fn role(value: &str) -> Result<(), String> {
    require(name_ok(value), || {
        format!("role name '{value}' contains invalid characters")
    })
}

fn realm(value: &str) -> Result<(), String> {
    not_valid(realm_ok(value), "realm")
}

fn pool(value: &str) -> Result<(), String> {
    let parts: Vec<_> = value.split('/').collect();
    require(
        parts.len() <= 3 && parts.iter().all(|part| name_ok(part)),
        || format!("pool name '{value}' contains invalid characters"),
    )
}

fn privileges(value: &str, release: Release) -> Result<(), String> {
    split_list(value).into_iter().try_for_each(|name| {
        require(privilege::exists(name, release), || {
            format!("invalid privilege '{name}'")
        })
    })
}

/// `mac-prefix`
pub(crate) const MAC_PREFIX: Format = Format::One(mac_prefix);

fn mac_prefix(value: &str) -> Result<(), String> {
    let parts: Vec<_> = value.split(':').collect();
    let ok = (1..=3).contains(&parts.len())
        && parts
            .iter()
            .all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
        && u8::from_str_radix(parts[0], 16).is_ok_and(|first| first & 1 == 0);
    not_valid(ok, "unicast MAC address prefix")
}
