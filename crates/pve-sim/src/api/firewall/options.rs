//! Options of a firewall.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{CHANGE, Paths, READ, place};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::route::{Route, get, put};
use crate::schema::format::network;
use crate::schema::{Param, choice, digest, flag, format, int, property, text};

const POLICIES: &[&str] = &["ACCEPT", "REJECT", "DROP"];
const LEVELS: &[&str] = &[
    "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug", "nolog",
];

pub(super) fn routes(paths: &Paths) -> Vec<Route> {
    vec![
        get(paths.options, read).perm(READ),
        put(paths.options, update)
            .perm(CHANGE)
            .params(declared(paths))
            .params([
                text("delete").format(format::CONFIG_ID_LIST).optional(),
                digest(),
            ]),
    ]
}

/// The options of a place.
fn declared(paths: &Paths) -> Vec<Param> {
    let mut params = Vec::new();
    let policies = ["policy_in", "policy_out"].map(|name| choice(name, POLICIES).optional());
    let levels = ["log_level_in", "log_level_out"].map(|name| choice(name, LEVELS).optional());
    if paths.options.contains("{vnet}") {
        params.push(flag("enable"));
        params.push(choice("policy_forward", &["ACCEPT", "DROP"]).optional());
        params.push(choice("log_level_forward", LEVELS).optional());
    } else if paths.options.starts_with("/cluster") {
        params.push(int("enable").min(0).optional());
        params.push(flag("ebtables"));
        params.push(text("log_ratelimit").property(&rate_limit()).optional());
        params.push(choice("policy_forward", &["ACCEPT", "DROP"]).optional());
        params.extend(policies);
    } else if paths.options.contains("{vmid}") {
        params.extend(["enable", "dhcp", "ipfilter", "macfilter", "ndp", "radv"].map(flag));
        params.extend(policies);
        params.extend(levels);
    } else {
        params.extend(
            [
                "enable",
                "ndp",
                "nftables",
                "nosmurfs",
                "tcpflags",
                "protection_synflood",
                "nf_conntrack_allow_invalid",
            ]
            .map(flag),
        );
        params.push(int("nf_conntrack_max").min(32_768).optional());
        params.push(
            int("nf_conntrack_tcp_timeout_established")
                .min(7875)
                .optional(),
        );
        params.push(
            int("nf_conntrack_tcp_timeout_syn_recv")
                .min(30)
                .max(60)
                .optional(),
        );
        params.push(
            text("nf_conntrack_helpers")
                .format(network::FW_HELPERS)
                .optional(),
        );
        params.extend(
            ["protection_synflood_burst", "protection_synflood_rate"].map(|it| int(it).optional()),
        );
        params.extend(
            ["smurf_log_level", "tcp_flags_log_level"].map(|it| choice(it, LEVELS).optional()),
        );
        params.extend(levels);
        params.push(choice("log_level_forward", LEVELS).optional());
        params.push(flag("log_nf_conntrack"));
    }
    params
}

fn rate_limit() -> Arc<property::Format> {
    let rate = |value: &str| {
        value.split_once('/').is_some_and(|(count, unit)| {
            !count.starts_with('0')
                && count.parse::<u32>().is_ok()
                && ["second", "minute", "hour", "day"].contains(&unit)
        })
    };
    property::Format::new([
        flag("enable").required(),
        int("burst").min(0).optional(),
        text("rate").pattern(rate).optional(),
    ])
    .default_key("enable")
    .shared()
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let options = place(call)?.file(call.world).options;
    let mut map: Map<String, Value> = options
        .iter()
        .map(|(name, value)| match value.parse::<u64>() {
            Ok(number) => (name.clone(), json!(number)),
            Err(_) => (name.clone(), json!(value)),
        })
        .collect();
    map.insert("digest".into(), json!(crate::digest::of(&options)));
    Ok(Value::Object(map).into())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let place = place(call)?;
    let declared = declared(place.paths());
    let known = |name: &str| declared.iter().any(|param| param.name() == name);
    let options = &mut place.file_mut(call.world).options;
    crate::digest::check(params.get("digest"), options)?;
    for name in params.list("delete") {
        if !known(name) {
            let text = format!("no such option '{name}'");
            return Err(Failure::param("delete", text));
        }
        options.remove(name);
    }
    let skip = ["node", "vmid", "vnet", "digest", "delete"];
    for (name, value) in params.iter().filter(|(name, _)| !skip.contains(name)) {
        options.insert(name.to_owned(), value.to_owned());
    }
    Ok(Reply::null())
}
