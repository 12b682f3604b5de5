//! `/cluster/options`: `datacenter.cfg`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, get, put};
use crate::schema::{Param, choice, flag, format, int, number, property, text};
use crate::world::World;

/// The range of ids that are offered unless the datacenter says otherwise.
const NEXT_ID: (u32, u32) = (100, 1_000_000);

pub(super) fn routes(release: Release) -> Vec<Route> {
    vec![
        get("/cluster/options", read).perm(Perm::Or(vec![all("/", &["Sys.Audit"]), Perm::User])),
        put("/cluster/options", update)
            .perm(all("/", &["Sys.Modify"]))
            .params(params(release)),
    ]
}

/// Options that are property strings, and their keys.
fn properties(release: Release) -> Vec<(&'static str, property::Format)> {
    use property::Format;
    let words = |keys: &[&'static str]| Format::new(keys.iter().map(|key| text(key).optional()));
    let traffic = || {
        Format::new([
            choice("type", &["secure", "insecure"]),
            text("network").format(format::CIDR).optional(),
        ])
        .default_key("type")
    };
    let policies = ["freeze", "failover", "conditional", "migrate"];
    let mut all = vec![
        (
            "bwlimit",
            Format::new(
                ["default", "restore", "migration", "clone", "move"]
                    .map(|key| number(key).min(0).optional()),
            ),
        ),
        ("crs", Format::new(scheduling(release))),
        ("ha", Format::new([choice("shutdown_policy", &policies)])),
        ("migration", traffic()),
        (
            "next-id",
            // Its limits are only told, never checked.
            Format::new(["lower", "upper"].map(|key| int(key).optional())),
        ),
        ("notify", Format::new(notifications())),
        (
            "tag-style",
            Format::new([
                choice("shape", &["full", "circle", "dense", "none"]).optional(),
                text("color-map").pattern(is_colors).optional(),
                choice("ordering", &["config", "alphabetical"]).optional(),
                flag("case-sensitive"),
            ]),
        ),
        ("u2f", words(&["appid", "origin"])),
        (
            "user-tag-access",
            Format::new([
                choice("user-allow", &["none", "list", "existing", "free"]).optional(),
                text("user-allow-list").pattern(is_tags).optional(),
            ]),
        ),
        (
            "webauthn",
            Format::new([
                text("rp").optional(),
                text("origin").optional(),
                text("id").optional(),
                flag("allow-subdomains"),
            ]),
        ),
    ];
    if release.is_9() {
        // Replication got its own network after 8.4.
        all.push(("replication", traffic()));
    }
    all
}

/// `crs`: how the manager of high availability spreads guests.
fn scheduling(release: Release) -> Vec<Param> {
    let start = flag("ha-rebalance-on-start");
    if !release.is_9() {
        return vec![choice("ha", &["basic", "static"]).optional(), start];
    }
    let tuned = |param: Param| param.requires("ha-auto-rebalance").optional();
    let percent = |name| tuned(number(name).min(0).max(100));
    vec![
        choice("ha", &["basic", "static", "dynamic"]).optional(),
        start,
        flag("ha-auto-rebalance"),
        tuned(number("ha-auto-rebalance-hold-duration").min(0)),
        percent("ha-auto-rebalance-margin"),
        percent("ha-auto-rebalance-threshold"),
        tuned(choice(
            "ha-auto-rebalance-method",
            &["bruteforce", "topsis"],
        )),
    ]
}

/// `notify`: what the cluster writes letters about, and to whom.
fn notifications() -> Vec<Param> {
    let when = ["always", "never"];
    let mut all = vec![
        choice("fencing", &when).optional(),
        choice("package-updates", &["auto", "always", "never"]).optional(),
        choice("replication", &when).optional(),
    ];
    let targets = [
        "target-fencing",
        "target-package-updates",
        "target-replication",
    ];
    all.extend(targets.map(|name| text(name).optional()));
    all
}

const KEYBOARDS: &[&str] = &[
    "de", "de-ch", "da", "en-gb", "en-us", "es", "fi", "fr", "fr-be", "fr-ca", "fr-ch", "hu", "is",
    "it", "ja", "lt", "mk", "nl", "no", "pl", "pt", "pt-br", "sv", "sl", "tr",
];
const LANGUAGES: &[&str] = &[
    "ar", "ca", "da", "de", "en", "es", "eu", "fa", "fr", "hr", "he", "it", "ja", "ka", "kr", "nb",
    "nl", "nn", "pl", "pt_BR", "ru", "sl", "sv", "tr", "ukr", "zh_CN", "zh_TW",
];

fn is_tag(value: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    format::word(value, part, |c| {
        c.is_ascii_alphanumeric() || "_-+.".contains(c)
    })
}

fn is_tags(value: &str) -> bool {
    value.split(';').all(is_tag)
}

/// `tag:000000:ffffff;other:ff0000`
fn is_colors(value: &str) -> bool {
    let color = |text: &str| text.len() == 6 && text.bytes().all(|b| b.is_ascii_hexdigit());
    value.split(';').all(|entry| {
        let mut parts = entry.split(':');
        let tag = parts.next().is_some_and(is_tag);
        let colors: Vec<&str> = parts.collect();
        tag && (1..=2).contains(&colors.len()) && colors.into_iter().all(color)
    })
}

fn params(release: Release) -> Vec<Param> {
    let mut params = vec![
        text("delete").format(format::CONFIG_ID_LIST).optional(),
        choice("console", &["applet", "vv", "html5", "xtermjs"]).optional(),
        text("consent-text").max_len(65_536).optional(),
        text("description").max_len(65_536).optional(),
        text("email_from").format(format::EMAIL).optional(),
        choice("fencing", &["watchdog", "hardware", "both"]).optional(),
        text("http_proxy")
            .pattern(|value| value.starts_with("http://"))
            .optional(),
        choice("keyboard", KEYBOARDS).optional(),
        choice("language", LANGUAGES).optional(),
        text("mac_prefix").format(format::MAC_PREFIX).optional(),
        int("max_workers").min(1).optional(),
        flag("migration_unsecure"),
        text("registered-tags").pattern(is_tags).optional(),
    ];
    if release.is_9() {
        params.push(text("location").optional());
    }
    for (name, format) in properties(release) {
        params.push(text(name).property(&format.shared()).optional());
    }
    params
}

/// Lower bound and upper bound (excluded) of ids that are offered.
pub(super) fn next_id_range(world: &World) -> (u32, u32) {
    let Some(text) = world.options.get("next-id") else {
        return NEXT_ID;
    };
    let value = |key: &str| {
        let mut parts = text.split(',').filter_map(|part| part.split_once('='));
        parts
            .find(|(name, _)| *name == key)
            .and_then(|(_, value)| value.parse().ok())
    };
    (
        value("lower").unwrap_or(NEXT_ID.0),
        value("upper").unwrap_or(NEXT_ID.1),
    )
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let world = &*call.world;
    let mut map = Map::new();
    map.insert("mac_prefix".into(), json!("BC:24:11"));
    map.insert("description".into(), json!(""));
    let formats = properties(call.world.release);
    for (name, value) in &world.options {
        let format = formats
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, format)| format);
        let shown = match format {
            // Property strings that the web interface reads are given in parts.
            Some(format) if name != "u2f" && name != "webauthn" => json!(format.parse(value)),
            _ if name == "registered-tags" => json!(value.split(';').collect::<Vec<_>>()),
            _ => json!(value),
        };
        map.insert(name.clone(), shown);
    }
    let mut tags: BTreeSet<&str> = BTreeSet::new();
    for guest in world.guests.iter() {
        tags.extend(guest.tags().into_iter().flat_map(|tags| tags.split(';')));
    }
    if let Some(registered) = world.options.get("registered-tags") {
        tags.extend(registered.split(';'));
    }
    map.insert("allowed-tags".into(), json!(tags));
    Ok(Value::Object(map).into())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    for name in params.list("delete") {
        call.world.options.remove(name);
    }
    for (name, value) in params.iter().filter(|(name, _)| *name != "delete") {
        call.world.options.insert(name.to_owned(), value.to_owned());
    }
    Ok(Reply::null())
}
