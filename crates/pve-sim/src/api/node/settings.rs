//! What a node is told about itself: its own options, name servers, hosts, time zone, subscription.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

use super::node_mut;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, digest, flag, format, int, one_of, property, text};

/// How many names a node may ask certificates for.
const DOMAINS: u16 = 6;

static ACME: LazyLock<Arc<property::Format>> = LazyLock::new(|| {
    property::Format::new([
        text("account").format(format::CONFIG_ID).optional(),
        text("domains").optional(),
    ])
    .shared()
});
static ACME_DOMAIN: LazyLock<Arc<property::Format>> = LazyLock::new(|| {
    property::Format::new([
        text("domain").format(format::DNS_NAME),
        text("alias").format(format::DNS_NAME).optional(),
        text("plugin").format(format::CONFIG_ID).optional(),
    ])
    .default_key("domain")
    .shared()
});
static WAKE_ON_LAN: LazyLock<Arc<property::Format>> = LazyLock::new(|| {
    property::Format::new([
        text("mac").format(format::MAC),
        text("bind-interface")
            .format(format::network::IFACE)
            .optional(),
        text("broadcast-address").format(format::IPV4).optional(),
    ])
    .default_key("mac")
    .shared()
});

pub(super) fn routes(release: Release) -> Vec<Route> {
    let audit = || all("/nodes/{node}", &["Sys.Audit"]);
    let modify = || all("/nodes/{node}", &["Sys.Modify"]);
    vec![
        get("/nodes/{node}/config", config)
            .perm(all("/", &["Sys.Audit"]))
            .params([one_of("property", properties(release)).optional()]),
        put("/nodes/{node}/config", set_config)
            .perm(all("/", &["Sys.Modify"]))
            .params(options(release))
            .params([
                text("delete").format(format::CONFIG_ID_LIST).optional(),
                text("digest").max_len(40).optional(),
            ]),
        get("/nodes/{node}/dns", dns).perm(audit()),
        put("/nodes/{node}/dns", set_dns).perm(modify()).params([
            text("search"),
            text("dns1").format(format::IP).optional(),
            text("dns2").format(format::IP).optional(),
            text("dns3").format(format::IP).optional(),
        ]),
        get("/nodes/{node}/hosts", hosts)
            .perm(all("/", &["Sys.Audit"]))
            .protected(),
        post("/nodes/{node}/hosts", set_hosts)
            .perm(modify())
            .params([text("data"), digest()]),
        get("/nodes/{node}/time", time).perm(audit()),
        put("/nodes/{node}/time", set_time)
            .perm(modify())
            .params([text("timezone")]),
        get("/nodes/{node}/subscription", subscription).perm(Perm::User),
        // Asking the vendor anew finds what was there: a simulation has no vendor.
        post("/nodes/{node}/subscription", |_| Ok(Reply::null()))
            .perm(modify())
            .params([flag("force")]),
        put("/nodes/{node}/subscription", set_subscription)
            .perm(modify())
            .params([text("key").max_len(32).pattern(is_key)]),
        delete("/nodes/{node}/subscription", |call| {
            node_mut(call)?.subscription = None;
            Ok(Reply::null())
        })
        .perm(modify()),
    ]
}

fn options(release: Release) -> Vec<Param> {
    let mut all = vec![
        text("acme").property(&ACME).optional(),
        text("acmedomain")
            .property(&ACME_DOMAIN)
            .indexed(DOMAINS)
            .optional(),
        int("ballooning-target").min(0).max(100).optional(),
        text("description").max_len(65_536).optional(),
        int("startall-onboot-delay").min(0).max(300).optional(),
        text("wakeonlan").property(&WAKE_ON_LAN).optional(),
    ];
    if release.is_9() {
        all.push(text("location").optional());
    }
    all
}

fn properties(release: Release) -> Vec<String> {
    let mut names = vec!["acme".to_owned()];
    names.extend((0..DOMAINS).map(|number| format!("acmedomain{number}")));
    names.extend(["ballooning-target", "description"].map(str::to_owned));
    if release.is_9() {
        names.push("location".to_owned());
    }
    names.extend(["startall-onboot-delay", "wakeonlan"].map(str::to_owned));
    names
}

fn config(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let options = &call.world.node(call.params.text("node"))?.options;
    let wanted = call.params.get("property");
    let mut map = Map::new();
    for (name, value) in options {
        if wanted.is_none_or(|wanted| wanted == name) {
            let number = ["ballooning-target", "startall-onboot-delay"].contains(&name.as_str());
            let value = match value.parse::<u64>() {
                Ok(value) if number => json!(value),
                _ => json!(value),
            };
            map.insert(name.clone(), value);
        }
    }
    map.insert("digest".into(), json!(crate::digest::of(options)));
    Ok(Value::Object(map).into())
}

fn set_config(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let options: &mut BTreeMap<String, String> = &mut node_mut(call)?.options;
    crate::digest::check(params.get("digest"), options)?;
    for name in params.list("delete") {
        options.remove(name);
    }
    let skip = ["node", "delete", "digest"];
    for (name, value) in params.iter().filter(|(name, _)| !skip.contains(name)) {
        options.insert(name.to_owned(), value.to_owned());
    }
    Ok(Reply::null())
}

fn dns(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.world.node(call.params.text("node"))?;
    let mut map = Map::new();
    map.insert("search".into(), json!(node.search_domain));
    for (at, server) in node.dns.iter().enumerate() {
        map.insert(format!("dns{}", at + 1), json!(server));
    }
    Ok(Value::Object(map).into())
}

fn set_dns(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let node = node_mut(call)?;
    params.text("search").clone_into(&mut node.search_domain);
    let servers = ["dns1", "dns2", "dns3"]
        .into_iter()
        .filter_map(|name| params.get(name));
    node.dns = servers.map(str::to_owned).collect();
    Ok(Reply::null())
}

/// The file of names: as somebody wrote it, or the nodes of the cluster.
fn hosts_of(call: &Call<'_>) -> Result<String, Failure> {
    let written = &call.world.node(call.params.text("node"))?.hosts;
    let of_cluster = || {
        let nodes = call.world.nodes.iter();
        nodes
            .flat_map(|(name, node)| [node.ip.as_str(), " ", name, "\n"])
            .collect()
    };
    Ok(written.clone().unwrap_or_else(of_cluster))
}

fn hosts(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let data = hosts_of(call)?;
    Ok(json!({ "data": data, "digest": crate::digest::sha1(data.as_bytes()) }).into())
}

fn set_hosts(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let now = crate::digest::sha1(hosts_of(call)?.as_bytes());
    crate::digest::unchanged(call.params.get("digest"), &now)?;
    let data = call.params.text("data").to_owned();
    node_mut(call)?.hosts = Some(data);
    Ok(Reply::null())
}

fn time(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (now, node) = (call.world.now(), call.world.node(call.params.text("node"))?);
    let zone = node.timezone.as_deref().unwrap_or("UTC");
    // All nodes keep their clocks in UTC; of the zones only the names are known here.
    Ok(json!({ "timezone": zone, "time": now, "localtime": now }).into())
}

fn set_time(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let zone = call.params.text("timezone").to_owned();
    let part = |part: &str| format::word(part, |c| c.is_ascii_alphabetic(), is_zone_letter);
    if !zone.split('/').all(part) {
        let text = format!("No such timezone: '{zone}'");
        return Err(Failure::die(text));
    }
    node_mut(call)?.timezone = Some(zone);
    Ok(Reply::null())
}

fn is_zone_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-+".contains(c)
}

/// `pve2c-0123456789`
fn is_key(value: &str) -> bool {
    let parts = value.trim().strip_prefix("pve").and_then(|rest| {
        let (kind, rest) = rest.split_at_checked(2)?;
        Some((kind, rest.strip_prefix('-')?))
    });
    parts.is_some_and(|(kind, rest)| {
        let mut kind = kind.chars();
        let hex = rest.strip_prefix("arm-").unwrap_or(rest);
        kind.next().is_some_and(|c| "1248".contains(c))
            && kind.next().is_some_and(|c| "cbsp".contains(c))
            && hex.len() == 10
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

const SHOP: &str = "https://www.proxmox.com/en/proxmox-virtual-environment/pricing";

fn subscription(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("node");
    let node = call.world.node(name)?;
    let server = crate::digest::sha1(name.as_bytes())[..32].to_ascii_uppercase();
    let Some(key) = &node.subscription else {
        return Ok(json!({
            "status": "notfound", "message": "There is no subscription key",
            "serverid": server, "url": SHOP,
        })
        .into());
    };
    let mut row = json!({
        "status": "new", "message": "subscription information too old", "url": SHOP,
        "serverid": server, "sockets": node.sockets,
    });
    // The key is for those who may see the host's settings.
    if call.may("/", "Sys.Audit") {
        row["key"] = json!(key);
    }
    row["level"] = json!(key.trim().get(4..5));
    Ok(row.into())
}

fn set_subscription(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let key = call.params.text("key").trim().to_owned();
    let node = node_mut(call)?;
    let sockets: u32 = key.get(3..4).and_then(|it| it.parse().ok()).unwrap_or(0);
    if sockets < node.sockets {
        let text = format!("wrong number of sockets ({sockets} < {})", node.sockets);
        return Err(Failure::die(text));
    }
    node.subscription = Some(key);
    Ok(Reply::null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_one_form() {
        assert!(is_key("pve2c-0123456789") && is_key(" pve8p-arm-abcdef0123 "));
        for bad in [
            "pve3c-0123456789",
            "pve2c-012345678",
            "pve2c-012345678G",
            "pbs2c-0123456789",
            "",
        ] {
            assert!(!is_key(bad), "{bad}");
        }
    }
}
