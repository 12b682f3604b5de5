//! Checks a rule as a whole: what each of its parts needs of the others, and what it refers to.

use std::net::IpAddr;

use super::Place;
use super::rules::{MACROS, is_name};
use crate::call::Call;
use crate::failure::Failure;
use crate::firewall::{File, Rule};

const WITH_PORTS: &[&str] = &[
    "udp", "17", "tcp", "6", "dccp", "33", "sctp", "132", "udplite", "136",
];

/// What a rule can refer to: the names of its own firewall, and those of the cluster.
pub(super) struct Names<'a> {
    pub(super) own: &'a File,
    pub(super) cluster: &'a File,
}

impl Names<'_> {
    /// The address behind an alias, whose case does not matter.
    fn alias(&self, name: &str) -> Option<&str> {
        let files = match name.split_once('/') {
            Some(("dc", _)) => vec![self.cluster],
            Some(("guest", _)) => vec![self.own],
            _ => vec![self.own, self.cluster],
        };
        let name = name.split_once('/').map_or(name, |(_, name)| name);
        files.into_iter().find_map(|file| {
            let mut all = file.aliases.iter();
            let found = all.find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, alias)| alias.cidr.as_str())
        })
    }

    /// Fails unless there is such an alias.
    pub(super) fn need_alias(&self, name: &str) -> Result<(), String> {
        match self.alias(name) {
            Some(_) => Ok(()),
            None => Err(format!("no such alias '{name}'")),
        }
    }

    fn has_set(&self, name: &str) -> bool {
        self.own.ipsets.contains_key(name) || self.cluster.ipsets.contains_key(name)
    }
}

/// The version of the addresses a rule speaks of; they must all be of one.
#[derive(Default)]
struct Version(Option<u8>);

impl Version {
    fn is(&mut self, version: u8) -> Result<(), String> {
        match self.0.replace(version) {
            Some(other) if other != version => {
                Err("detected mixed ipv4/ipv6 addresses in rule".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Takes the version of a list of addresses, networks and ranges.
    fn of(&mut self, list: &str) -> Result<(), String> {
        for item in list.split(',') {
            let first = item.split(['/', '-']).next().unwrap_or_default();
            match first.parse::<IpAddr>() {
                Ok(IpAddr::V4(_)) => self.is(4)?,
                Ok(IpAddr::V6(_)) => self.is(6)?,
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Takes the version of one end of a rule, which may be a name.
    fn of_end(&mut self, value: &str, names: &Names<'_>) -> Result<(), String> {
        self.of(value)?;
        if let Some(set) = value.strip_prefix('+') {
            let plain = set.trim_start_matches("dc/").trim_start_matches("guest/");
            if !plain.starts_with("sdn/") && !names.has_set(plain) {
                return Err(format!("no such ipset '{plain}'"));
            }
        } else if is_name(value.split_once('/').map_or(value, |(_, name)| name)) {
            names.need_alias(value)?;
            self.of(names.alias(value).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// The version of a rule's addresses, as answers show it.
pub(super) fn version(rule: &Rule, names: &Names<'_>) -> Option<u8> {
    let mut version = Version::default();
    if let Some(proto) = of_proto(rule) {
        version.0 = Some(proto);
    }
    for end in ["source", "dest"] {
        // Whatever it referred to may be gone by now.
        let _ = rule.get(end).map(|value| version.of_end(value, names));
    }
    version.0
}

fn of_proto(rule: &Rule) -> Option<u8> {
    match rule.get("proto").map(String::as_str) {
        Some("icmp") => Some(4),
        Some("icmpv6" | "ipv6-icmp") => Some(6),
        _ => None,
    }
}

/// Checks a rule of a call; the name of a macro gets its proper case.
pub(super) fn check(call: &Call<'_>, rule: &mut Rule) -> Result<(), Failure> {
    let own = Place::of(call.world, &call.params).file(call.world);
    let names = Names {
        own: &own,
        cluster: &call.world.firewall.cluster,
    };
    let in_group = call.params.has("group");
    let of_guest = call.params.has("vmid");
    kind(rule, in_group, of_guest)?;
    if let Some(iface) = rule.get("iface") {
        if in_group {
            let text = "parameter -i not allowed for this rule type";
            return Err(Failure::param("type", text));
        }
        let number = iface.strip_prefix("net").unwrap_or_default();
        if of_guest && (number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit())) {
            let text = "value does not match the regex pattern 'net\\d+'";
            return Err(Failure::param("iface", text));
        }
    }
    if let Some(given) = rule.get_mut("macro") {
        let known = MACROS.iter().find(|it| it.eq_ignore_ascii_case(given));
        let text = || Failure::param("macro", format!("unknown macro '{given}'"));
        *given = (*known.ok_or_else(text)?).to_owned();
    }
    let mut version = Version(of_proto(rule));
    ports(rule)?;
    for end in ["source", "dest"] {
        if let Some(value) = rule.get(end) {
            let checked = version.of_end(value, &names);
            checked.map_err(|text| Failure::param(end, text))?;
        }
    }
    Ok(())
}

fn kind(rule: &Rule, in_group: bool, of_guest: bool) -> Result<(), Failure> {
    let action = rule.get("action").map_or("", String::as_str);
    match rule.get("type").map(String::as_str) {
        Some("group") if in_group => Err(Failure::param("type", "security groups not allowed")),
        Some("group") => Ok(()),
        Some("forward") if of_guest => Err(Failure::param("type", "unknown rule type 'forward'")),
        _ if ["ACCEPT", "DROP", "REJECT"].contains(&action) => Ok(()),
        _ => {
            let text = format!("unknown action '{action}'");
            Err(Failure::param("action", text))
        }
    }
}

/// Ports need a protocol that has them; so does the type of a message.
fn ports(rule: &Rule) -> Result<(), Failure> {
    let proto = rule.get("proto").map(String::as_str);
    let messages = ["icmp", "icmpv6", "ipv6-icmp"];
    let needed = |name: &str| {
        let text = format!("missing property - '{name}' requires this property");
        Failure::param("proto", text)
    };
    for name in ["dport", "icmp-type", "sport"] {
        if !rule.contains_key(name) {
            continue;
        }
        let proto = proto.ok_or_else(|| needed(name))?;
        let fits = match name {
            "icmp-type" if !messages.contains(&proto) => return Err(needed(name)),
            "icmp-type" if rule.contains_key("dport") => {
                let text = "'icmp-type' cannot be specified together with 'dport'";
                return Err(Failure::param(name, text));
            }
            "icmp-type" => true,
            "dport" => WITH_PORTS.contains(&proto) || ["icmp", "icmpv6"].contains(&proto),
            _ => WITH_PORTS.contains(&proto),
        };
        if !fits {
            let text = format!("protocol '{proto}' does not support ports");
            return Err(Failure::param(name, text));
        }
    }
    Ok(())
}
