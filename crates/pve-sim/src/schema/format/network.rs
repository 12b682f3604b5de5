//! Formats of host networks and firewalls.

use std::net::{IpAddr, Ipv4Addr};

use super::{Format, alnum, alpha, is_cidr, not_valid, require, word};

/// `pve-iface`
pub(crate) const IFACE: Format = Format::One(iface);
/// `pve-iface-list`
pub(crate) const IFACE_LIST: Format = Format::List(iface);
/// `ipv4mask`
pub(crate) const IPV4_MASK: Format = Format::One(ipv4_mask);
/// `ip-list`
pub(crate) const IP_LIST: Format = Format::List(super::ip);
/// `pve-vlan-id-or-range-list`
pub(crate) const VLAN_LIST: Format = Format::List(vlan);
/// `IPorCIDRorAlias`
pub(crate) const IP_CIDR_OR_ALIAS: Format = Format::One(ip_cidr_or_alias);
/// `pve-fw-addr-spec`
pub(crate) const FW_ADDRESSES: Format = Format::One(fw_addresses);
/// `pve-fw-protocol-spec`
pub(crate) const FW_PROTOCOL: Format = Format::One(fw_protocol);
/// `pve-fw-icmp-type-spec`
pub(crate) const FW_ICMP: Format = Format::One(fw_icmp);
/// `pve-fw-conntrack-helper`
pub(crate) const FW_HELPERS: Format = Format::List(fw_helper);

fn iface(value: &str) -> Result<(), String> {
    let (name, number) = match value.split_once([':', '.']) {
        Some((name, number)) => (name, Some(number)),
        None => (value, None),
    };
    let part = |c: char| alnum(c) || c == '_';
    let ok = (2..=21).contains(&name.len())
        && word(name, alpha, part)
        && number.is_none_or(|it| word(it, |c| c.is_ascii_digit(), |c| c.is_ascii_digit()));
    require(ok, || format!("invalid network interface name '{value}'"))
}

fn ipv4_mask(value: &str) -> Result<(), String> {
    let ok = value.parse::<Ipv4Addr>().is_ok_and(|mask| {
        let bits = u32::from(mask);
        bits != 0 && bits.leading_ones() + bits.trailing_zeros() == 32
    });
    not_valid(ok, "IP netmask")
}

fn vlan(value: &str) -> Result<(), String> {
    let tag = |text: &str| {
        text.parse::<u16>()
            .ok()
            .filter(|it| (2..=4094).contains(it))
    };
    let ok = match value.split_once('-') {
        Some((low, high)) => matches!((tag(low), tag(high)), (Some(low), Some(high)) if low < high),
        None => tag(value).is_some(),
    };
    require(ok, || format!("invalid VLAN tag '{value}'"))
}

/// The name of an alias, with the scope it may be written with.
fn is_alias(value: &str) -> bool {
    let name = value
        .strip_prefix("dc/")
        .or_else(|| value.strip_prefix("guest/"))
        .unwrap_or(value);
    name.len() > 1 && word(name, alpha, |c| alnum(c) || matches!(c, '-' | '_'))
}

fn ip_cidr_or_alias(value: &str) -> Result<(), String> {
    let ok = is_alias(value) || value.parse::<IpAddr>().is_ok() || is_cidr(value);
    not_valid(ok, "IP address or CIDR network")
}

/// Whether all of `value` is one address, network or range; the family is IPv6.
fn address_family(value: &str) -> Result<bool, String> {
    let unknown = || format!("invalid IP address: Cannot determine IP version for {value}");
    let family = |text: &str| text.parse::<IpAddr>().ok().map(|ip| ip.is_ipv6());
    if let Some((low, high)) = value.split_once('-') {
        return match (family(low), family(high)) {
            (Some(low), Some(high)) if low == high => Ok(low),
            _ => Err(unknown()),
        };
    }
    let (address, prefix) = value.split_once('/').unwrap_or((value, "1"));
    match (family(address), prefix.parse::<u8>()) {
        (Some(v6), Ok(bits)) if bits <= if v6 { 128 } else { 32 } => Ok(v6),
        _ => Err(unknown()),
    }
}

fn fw_addresses(value: &str) -> Result<(), String> {
    let a_set = value.len() > 1 && value.starts_with('+') && !value.contains(char::is_whitespace);
    if a_set || is_alias(value) {
        return Ok(());
    }
    let items: Vec<&str> = value.split(',').collect();
    require(!items.iter().any(|item| item.is_empty()), || {
        "extraneous commas in list".to_owned()
    })?;
    let families = items
        .iter()
        .map(|item| address_family(item))
        .collect::<Result<Vec<bool>, String>>()?;
    require(families.iter().all(|it| *it == families[0]), || {
        format!("detected mixed ipv4/ipv6 addresses in address list '{value}'")
    })?;
    let a_range = items.iter().any(|item| item.contains('-'));
    require(!a_range || items.len() == 1, || {
        "you can't use a range in a list".to_owned()
    })
}

/// Names of `/etc/protocols` that rules are written with.
const PROTOCOLS: &[&str] = &[
    "ip",
    "icmp",
    "igmp",
    "ggp",
    "ipencap",
    "st",
    "tcp",
    "egp",
    "igp",
    "pup",
    "udp",
    "hmp",
    "xns-idp",
    "rdp",
    "iso-tp4",
    "dccp",
    "xtp",
    "ddp",
    "idpr-cmtp",
    "ipv6",
    "ipv6-route",
    "ipv6-frag",
    "idrp",
    "rsvp",
    "gre",
    "esp",
    "ah",
    "skip",
    "ipv6-icmp",
    "icmpv6",
    "ipv6-nonxt",
    "ipv6-opts",
    "rspf",
    "vmtp",
    "eigrp",
    "ospf",
    "ax.25",
    "ipip",
    "etherip",
    "encap",
    "pim",
    "ipcomp",
    "vrrp",
    "l2tp",
    "isis",
    "sctp",
    "fc",
    "mobility-header",
    "udplite",
    "mpls-in-ip",
    "manet",
    "hip",
    "shim6",
    "wesp",
    "rohc",
    "ethernet",
];

fn fw_protocol(value: &str) -> Result<(), String> {
    let ok = value.is_empty() || PROTOCOLS.contains(&value) || value.parse::<u8>().is_ok();
    require(ok, || format!("unknown protocol '{value}'"))
}

const ICMP_TYPES: &[&str] = &[
    "any",
    "echo-reply",
    "pong",
    "destination-unreachable",
    "network-unreachable",
    "host-unreachable",
    "protocol-unreachable",
    "port-unreachable",
    "fragmentation-needed",
    "source-route-failed",
    "network-unknown",
    "host-unknown",
    "network-prohibited",
    "host-prohibited",
    "TOS-network-unreachable",
    "TOS-host-unreachable",
    "communication-prohibited",
    "host-precedence-violation",
    "precedence-cutoff",
    "source-quench",
    "redirect",
    "network-redirect",
    "host-redirect",
    "TOS-network-redirect",
    "TOS-host-redirect",
    "echo-request",
    "ping",
    "router-advertisement",
    "router-solicitation",
    "time-exceeded",
    "ttl-exceeded",
    "ttl-zero-during-transit",
    "ttl-zero-during-reassembly",
    "parameter-problem",
    "ip-header-bad",
    "required-option-missing",
    "timestamp-request",
    "timestamp-reply",
    "address-mask-request",
    "address-mask-reply",
    "no-route",
    "beyond-scope",
    "address-unreachable",
    "failed-policy",
    "reject-route",
    "packet-too-big",
    "bad-header",
    "unknown-header-type",
    "unknown-option",
    "neighbor-solicitation",
    "neighbour-solicitation",
    "neighbor-advertisement",
    "neighbour-advertisement",
];

fn fw_icmp(value: &str) -> Result<(), String> {
    let numbers = |text: &str| text.split('/').all(|part| part.parse::<u8>().is_ok());
    let ok = value.is_empty() || ICMP_TYPES.contains(&value) || numbers(value);
    require(ok, || format!("invalid icmp-type value '{value}'"))
}

fn fw_helper(value: &str) -> Result<(), String> {
    let known = [
        "amanda",
        "ftp",
        "irc",
        "netbios-ns",
        "pptp",
        "sane",
        "sip",
        "snmp",
        "tftp",
    ];
    require(known.contains(&value), || {
        format!("unknown conntrack helper '{value}'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_rule_are_sets_aliases_lists_or_one_range() {
        for good in [
            "+dc/web",
            "guest/lan",
            "10.0.0.1,10.1.0.0/16",
            "10.0.0.1-10.0.0.9",
            "fd00::/8",
        ] {
            assert_eq!(fw_addresses(good), Ok(()), "{good}");
        }
        let bad = [
            ("10.0.0.1,", "extraneous commas in list"),
            (
                "10.0.0.1-10.0.0.2,10.0.0.3",
                "you can't use a range in a list",
            ),
            (
                "10.0.0.1,fd00::1",
                "detected mixed ipv4/ipv6 addresses in address list '10.0.0.1,fd00::1'",
            ),
            (
                "1.2.3",
                "invalid IP address: Cannot determine IP version for 1.2.3",
            ),
        ];
        for (value, text) in bad {
            assert_eq!(fw_addresses(value), Err(text.to_owned()));
        }
    }

    #[test]
    fn a_netmask_is_a_run_of_ones() {
        assert!(ipv4_mask("255.255.240.0").is_ok());
        assert!(ipv4_mask("255.0.255.0").is_err());
        assert!(ipv4_mask("0.0.0.0").is_err());
    }
}
