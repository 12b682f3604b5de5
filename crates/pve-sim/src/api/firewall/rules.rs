//! Rules, and the security groups that are made of rules.

use serde_json::{Map, Value, json};

use super::{CHANGE, Paths, READ, place, verify};
use crate::call::{Call, Reply};
use crate::digest;
use crate::failure::Failure;
use crate::firewall::{Group, Rule};
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::format::{self, Format, network};
use crate::schema::{Param, choice, int, text};

const LEVELS: &[&str] = &[
    "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug", "nolog",
];

/// Names for protocols and ports, as the datacenter offers them.
pub(super) const MACROS: &[&str] = &[
    "Amanda",
    "Auth",
    "BGP",
    "BitTorrent",
    "BitTorrent32",
    "CVS",
    "Ceph",
    "Citrix",
    "DAAP",
    "DCC",
    "DHCPfwd",
    "DHCPv6",
    "DNS",
    "Distcc",
    "FTP",
    "Finger",
    "GNUnet",
    "GRE",
    "Git",
    "HKP",
    "HTTP",
    "HTTP/3",
    "HTTPS",
    "ICPV2",
    "ICQ",
    "IMAP",
    "IMAPS",
    "IPIP",
    "IPsec",
    "IPsecah",
    "IPsecnat",
    "IRC",
    "Jetdirect",
    "L2TP",
    "LDAP",
    "LDAPS",
    "MDNS",
    "MSNP",
    "MSSQL",
    "Mail",
    "MongoDB",
    "Munin",
    "MySQL",
    "NNTP",
    "NNTPS",
    "NTP",
    "NeighborDiscovery",
    "OSPF",
    "OpenVPN",
    "PBS",
    "PCA",
    "PMG",
    "POP3",
    "POP3S",
    "PPtP",
    "Ping",
    "PostgreSQL",
    "Printer",
    "RDP",
    "RIP",
    "RNDC",
    "Razor",
    "Rdate",
    "Rsync",
    "SANE",
    "SMB",
    "SMBswat",
    "SMTP",
    "SMTPS",
    "SNMP",
    "SPAMD",
    "SPICEproxy",
    "SSH",
    "SVN",
    "SixXS",
    "Squid",
    "Submission",
    "Syslog",
    "TFTP",
    "Telnet",
    "Telnets",
    "Time",
    "Trcrt",
    "VNC",
    "VNCL",
    "Web",
    "Webcache",
    "Webmin",
    "Whois",
];

pub(super) fn routes(paths: &Paths, release: Release) -> Vec<Route> {
    vec![
        get(paths.rules, list).perm(READ),
        post(paths.rules, create)
            .perm(CHANGE)
            .params(options(true, release)),
        get(paths.rule, read).perm(READ).params([pos()]),
        put(paths.rule, update)
            .perm(CHANGE)
            .params(options(false, release))
            .params(moving()),
        delete(paths.rule, remove)
            .perm(CHANGE)
            .params([pos(), crate::schema::digest()]),
    ]
}

pub(super) fn group_routes(release: Release) -> Vec<Route> {
    let modify = || all("/", &["Sys.Modify"]);
    let audit = || all("/", &["Sys.Audit"]);
    vec![
        get("/cluster/firewall/macros", |_| {
            let rows = MACROS
                .iter()
                .map(|name| json!({ "macro": name, "descr": name }));
            Ok(rows.collect::<Value>().into())
        })
        .perm(Perm::User),
        get("/cluster/firewall/groups", groups).perm(Perm::User),
        post("/cluster/firewall/groups", create_group)
            .perm(modify())
            .params([
                group("group"),
                group("rename").optional(),
                text("comment").optional(),
                crate::schema::digest(),
            ]),
        get("/cluster/firewall/groups/{group}", list).perm(audit()),
        post("/cluster/firewall/groups/{group}", create)
            .perm(modify())
            .params(options(true, release)),
        delete("/cluster/firewall/groups/{group}", remove_group).perm(modify()),
        get("/cluster/firewall/groups/{group}/{pos}", read)
            .perm(audit())
            .params([pos()]),
        put("/cluster/firewall/groups/{group}/{pos}", update)
            .perm(modify())
            .params(options(false, release))
            .params(moving()),
        delete("/cluster/firewall/groups/{group}/{pos}", remove)
            .perm(modify())
            .params([pos(), crate::schema::digest()]),
    ]
}

fn pos() -> Param {
    int("pos").min(0)
}

fn moving() -> [Param; 3] {
    [
        pos(),
        int("moveto").min(0).optional(),
        text("delete").format(format::CONFIG_ID_LIST).optional(),
    ]
}

fn group(name: &'static str) -> Param {
    text(name).min_len(2).max_len(18).pattern(is_name)
}

/// A name as groups, aliases and address sets have it.
pub(super) fn is_name(value: &str) -> bool {
    format::word(
        value,
        |c| c.is_ascii_alphabetic(),
        |c| c.is_ascii_alphanumeric() || c == '-' || c == '_',
    )
}

fn options(new: bool, release: Release) -> Vec<Param> {
    let kinds: &[&str] = if release.is_9() || release == Release::V8_4 {
        &["in", "out", "forward", "group"]
    } else {
        &["in", "out", "group"]
    };
    let action = text("action").min_len(2).max_len(20).pattern(is_name);
    let kind = choice("type", kinds);
    vec![
        if new { action } else { action.optional() },
        if new { kind } else { kind.optional() },
        int("pos").min(0).optional(),
        int("enable").min(0).optional(),
        text("comment").optional(),
        text("macro").max_len(128).optional(),
        text("iface")
            .format(network::IFACE)
            .min_len(2)
            .max_len(20)
            .optional(),
        text("source")
            .format(network::FW_ADDRESSES)
            .max_len(512)
            .optional(),
        text("dest")
            .format(network::FW_ADDRESSES)
            .max_len(512)
            .optional(),
        text("proto").format(network::FW_PROTOCOL).optional(),
        text("sport").format(Format::One(ports)).optional(),
        text("dport").format(Format::One(ports)).optional(),
        text("icmp-type").format(network::FW_ICMP).optional(),
        choice("log", LEVELS).optional(),
        crate::schema::digest(),
    ]
}

/// Ports, ranges and service names, separated by commas.
fn ports(value: &str) -> Result<(), String> {
    let one = |port: &str| {
        let number = |text: &str| text.parse::<u16>().is_ok();
        match port.split_once(':') {
            Some((low, high)) => number(low) && number(high),
            None => {
                number(port)
                    || format::word(
                        port,
                        |c| c.is_ascii_alphabetic(),
                        |c| c.is_ascii_alphanumeric() || c == '-' || c == '_',
                    )
            }
        }
    };
    match value.split(',').find(|port| !one(port)) {
        Some(port) => Err(format!("invalid port '{port}'")),
        None => Ok(()),
    }
}

/// The rules of a call: of a group, or of a place.
fn rules(call: &Call<'_>) -> Result<Vec<Rule>, Failure> {
    match call.params.get("group") {
        Some(name) => match call.world.firewall.groups.get(name) {
            Some(group) => Ok(group.rules.clone()),
            None => Err(no_group(name)),
        },
        None => Ok(place(call)?.file(call.world).rules),
    }
}

fn no_group(name: &str) -> Failure {
    Failure::die(format!("no such security group '{name}'"))
}

fn store(call: &mut Call<'_>, rules: Vec<Rule>) -> Result<(), Failure> {
    match call.params.get("group") {
        Some(name) => {
            let group = call.world.firewall.groups.get_mut(name);
            group.ok_or_else(|| no_group(name))?.rules = rules;
        }
        None => place(call)?.file_mut(call.world).rules = rules,
    }
    Ok(())
}

fn show(call: &Call<'_>, pos: usize, rule: &Rule, digest: &str) -> Value {
    let mut map: Map<String, Value> = rule
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let enable = rule
        .get("enable")
        .and_then(|value| value.parse::<u64>().ok());
    map.insert("enable".into(), json!(enable.unwrap_or(0)));
    map.insert("pos".into(), json!(pos));
    map.insert("digest".into(), json!(digest));
    let own = super::Place::of(call.world, &call.params).file(call.world);
    let names = verify::Names {
        own: &own,
        cluster: &call.world.firewall.cluster,
    };
    if let Some(version) = verify::version(rule, &names) {
        map.insert("ipversion".into(), json!(version));
    }
    Value::Object(map)
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let rules = rules(call)?;
    let digest = digest::of(&rules);
    let rows = rules
        .iter()
        .enumerate()
        .map(|(pos, rule)| show(call, pos, rule, &digest));
    Ok(rows.collect::<Value>().into())
}

fn position(call: &Call<'_>, rules: &[Rule]) -> Result<usize, Failure> {
    let pos = usize::try_from(call.params.uint("pos").unwrap_or(0)).unwrap_or(usize::MAX);
    if pos < rules.len() {
        Ok(pos)
    } else {
        Err(Failure::die(format!("no rule at position {pos}")))
    }
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let rules = rules(call)?;
    let pos = position(call, &rules)?;
    Ok(show(call, pos, &rules[pos], &digest::of(&rules)).into())
}

const SKIPPED: [&str; 9] = [
    "vnet", "node", "vmid", "pos", "digest", "group", "moveto", "delete", "enable",
];

/// Takes over what the call gives, and checks what it refers to.
fn apply(call: &Call<'_>, rule: &mut Rule) -> Result<(), Failure> {
    for (name, value) in call
        .params
        .iter()
        .filter(|(name, _)| !SKIPPED.contains(name))
    {
        // An empty value takes the property away.
        if matches!(value, "" | "-") {
            rule.remove(name);
        } else {
            rule.insert(name.to_owned(), value.to_owned());
        }
    }
    if let Some(enable) = call.params.get("enable") {
        rule.insert("enable".to_owned(), enable.to_owned());
    }
    for name in call.params.list("delete") {
        rule.remove(name);
    }
    verify::check(call, rule)
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let mut rules = rules(call)?;
    digest::check(call.params.get("digest"), &rules)?;
    let mut rule = Rule::new();
    apply(call, &mut rule)?;
    // PVE puts every new rule first, whatever `pos` says.
    rules.insert(0, rule);
    store(call, rules)?;
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let mut rules = rules(call)?;
    digest::check(call.params.get("digest"), &rules)?;
    let pos = position(call, &rules)?;
    if let Some(to) = call.params.uint("moveto") {
        let to = usize::try_from(to).unwrap_or(usize::MAX);
        let rule = rules.remove(pos);
        let at = if to > pos { to - 1 } else { to };
        rules.insert(at.min(rules.len()), rule);
    } else {
        let mut rule = rules[pos].clone();
        apply(call, &mut rule)?;
        rules[pos] = rule;
    }
    store(call, rules)?;
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let mut rules = rules(call)?;
    digest::check(call.params.get("digest"), &rules)?;
    let pos = position(call, &rules)?;
    rules.remove(pos);
    store(call, rules)?;
    Ok(Reply::null())
}

fn groups(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let digest = digest::of(&call.world.firewall.groups);
    let rows = call.world.firewall.groups.iter().map(|(name, group)| {
        let mut row = json!({ "group": name, "digest": digest });
        if let Some(comment) = &group.comment {
            row["comment"] = json!(comment);
        }
        row
    });
    Ok(rows.collect::<Value>().into())
}

fn create_group(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("group").to_owned();
    let comment = call.params.get("comment").map(str::to_owned);
    let groups = &mut call.world.firewall.groups;
    digest::check(call.params.get("digest"), groups)?;
    let refused = |text: &str| Err(Failure::param("group", format!("Security group {text}")));
    match call.params.get("rename") {
        Some(old) => {
            if !groups.contains_key(old) {
                return refused(&format!("'{old}' does not exist"));
            }
            if old != name && groups.contains_key(&name) {
                return refused(&format!("'{name}' does already exist"));
            }
            let mut group = groups.remove(old).unwrap_or_default();
            group.comment = comment.or(group.comment);
            groups.insert(name, group);
        }
        None if groups.contains_key(&name) => {
            return refused(&format!("'{name}' already exists"));
        }
        None => {
            groups.insert(
                name,
                Group {
                    comment,
                    rules: Vec::new(),
                },
            );
        }
    }
    Ok(Reply::null())
}

fn remove_group(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("group").to_owned();
    let groups = &mut call.world.firewall.groups;
    match groups.get(&name) {
        None => Err(no_group(&name)),
        Some(group) if !group.rules.is_empty() => Err(Failure::die(format!(
            "Security group '{name}' is not empty"
        ))),
        Some(_) => {
            groups.remove(&name);
            Ok(Reply::null())
        }
    }
}
