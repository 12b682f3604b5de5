//! Aliases and sets of addresses.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::rules::is_name;
use super::verify::Names;
use super::{CHANGE, Paths, READ, place};
use crate::call::{Call, Reply};
use crate::digest;
use crate::failure::Failure;
use crate::firewall::{Alias, Entry, IpSet};
use crate::params::Params;
use crate::route::{Route, delete, get, post, put};
use crate::schema::format::{self, Format};
use crate::schema::{Param, choice, flag, text};

pub(super) fn routes(paths: &Paths) -> Vec<Route> {
    let comment = || text("comment").optional();
    vec![
        get(paths.aliases, aliases).perm(READ),
        post(paths.aliases, create_alias)
            .perm(CHANGE)
            .params([name("name"), cidr(), comment()]),
        get(paths.alias, read_alias).perm(READ),
        put(paths.alias, update_alias).perm(CHANGE).params([
            cidr(),
            comment(),
            name("rename").optional(),
            crate::schema::digest(),
        ]),
        delete(paths.alias, remove_alias)
            .perm(CHANGE)
            .params([crate::schema::digest()]),
        get(paths.ipsets, ipsets).perm(READ),
        post(paths.ipsets, create_ipset).perm(CHANGE).params([
            name("name"),
            name("rename").optional(),
            comment(),
            crate::schema::digest(),
        ]),
        get(paths.ipset, entries).perm(READ),
        post(paths.ipset, create_entry).perm(CHANGE).params([
            text("cidr").format(format::network::IP_CIDR_OR_ALIAS),
            comment(),
            flag("nomatch"),
        ]),
        delete(paths.ipset, remove_ipset)
            .perm(CHANGE)
            .params([flag("force")]),
        get(paths.entry, read_entry).perm(READ),
        put(paths.entry, update_entry).perm(CHANGE).params([
            comment(),
            flag("nomatch"),
            crate::schema::digest(),
        ]),
        delete(paths.entry, remove_entry)
            .perm(CHANGE)
            .params([crate::schema::digest()]),
        get(paths.refs, refs)
            .perm(READ)
            .params([choice("type", &["alias", "ipset"]).optional()]),
    ]
}

fn name(name: &'static str) -> Param {
    text(name).min_len(2).max_len(64).pattern(is_name)
}

fn cidr() -> Param {
    text("cidr").format(Format::One(ip_or_cidr))
}

fn ip_or_cidr(value: &str) -> Result<(), String> {
    if value.parse::<std::net::IpAddr>().is_ok() || format::is_cidr(value) {
        Ok(())
    } else {
        Err("value does not look like a valid IP address or CIDR network".to_owned())
    }
}

fn show_alias(name: &str, alias: &Alias, digest: &str) -> Value {
    let version = if alias.cidr.contains(':') { 6 } else { 4 };
    let mut row =
        json!({ "name": name, "cidr": alias.cidr, "ipversion": version, "digest": digest });
    if let Some(comment) = &alias.comment {
        row["comment"] = json!(comment);
    }
    row
}

fn aliases(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let aliases = place(call)?.file(call.world).aliases;
    let digest = digest::of(&aliases);
    let rows = aliases
        .iter()
        .map(|(name, alias)| show_alias(name, alias, &digest));
    Ok(rows.collect::<Value>().into())
}

/// The proper name of an alias, whose case does not matter.
fn find(aliases: &BTreeMap<String, Alias>, name: &str) -> Option<String> {
    let mut names = aliases.keys();
    names.find(|it| it.eq_ignore_ascii_case(name)).cloned()
}

fn taken(name: &str) -> Failure {
    Failure::param("name", format!("alias '{name}' already exists"))
}

fn no_alias() -> Failure {
    Failure::param("name", "no such alias")
}

fn read_alias(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let aliases = place(call)?.file(call.world).aliases;
    let name = find(&aliases, call.params.text("name")).ok_or_else(no_alias)?;
    let mut row = show_alias(&name, &aliases[&name], "");
    if let Some(row) = row.as_object_mut() {
        row.remove("digest");
    }
    Ok(row.into())
}

fn given(params: &Params) -> Alias {
    Alias {
        cidr: params.text("cidr").to_owned(),
        comment: params.get("comment").map(str::to_owned),
    }
}

fn create_alias(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let aliases = &mut place(call)?.file_mut(call.world).aliases;
    let name = params.text("name");
    if find(aliases, name).is_some() {
        return Err(taken(name));
    }
    aliases.insert(name.to_owned(), given(&params));
    Ok(Reply::null())
}

fn update_alias(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let aliases = &mut place(call)?.file_mut(call.world).aliases;
    digest::check(params.get("digest"), aliases)?;
    let name = params.text("name");
    let old = find(aliases, name).ok_or_else(no_alias)?;
    let new = params.get("rename").unwrap_or(name);
    if !new.eq_ignore_ascii_case(name) && find(aliases, new).is_some() {
        return Err(taken(new));
    }
    aliases.remove(&old);
    aliases.insert(new.to_owned(), given(&params));
    Ok(Reply::null())
}

fn remove_alias(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let aliases = &mut place(call)?.file_mut(call.world).aliases;
    digest::check(params.get("digest"), aliases)?;
    if let Some(name) = find(aliases, params.text("name")) {
        aliases.remove(&name);
    }
    Ok(Reply::null())
}

fn ipsets(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let ipsets = place(call)?.file(call.world).ipsets;
    let digest = digest::of(&ipsets);
    let rows = ipsets.iter().map(|(name, set)| {
        let mut row = json!({ "name": name, "digest": digest });
        if let Some(comment) = &set.comment {
            row["comment"] = json!(comment);
        }
        row
    });
    Ok(rows.collect::<Value>().into())
}

fn create_ipset(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let ipsets = &mut place(call)?.file_mut(call.world).ipsets;
    digest::check(params.get("digest"), ipsets)?;
    let name = params.text("name").to_owned();
    let comment = params.get("comment").map(str::to_owned);
    match params.get("rename") {
        Some(old) => {
            if !ipsets.contains_key(old) {
                let text = format!("IPSet '{old}' does not exist");
                return Err(Failure::param("name", text));
            }
            if old != name && ipsets.contains_key(&name) {
                let text = format!("IPSet '{name}' does already exist");
                return Err(Failure::param("name", text));
            }
            let mut set = ipsets.remove(old).unwrap_or_default();
            set.comment = comment.or(set.comment);
            ipsets.insert(name, set);
        }
        None if ipsets.contains_key(&name) => {
            return Err(Failure::param(
                "name",
                format!("IPSet '{name}' already exists"),
            ));
        }
        None => {
            ipsets.insert(
                name,
                IpSet {
                    comment,
                    ..IpSet::default()
                },
            );
        }
    }
    Ok(Reply::null())
}

/// The set in the path.
fn ipset<'a>(call: &'a mut Call<'_>) -> Result<&'a mut IpSet, Failure> {
    let name = call.params.text("name").to_owned();
    let place = place(call)?;
    let sets = &mut place.file_mut(call.world).ipsets;
    sets.get_mut(&name)
        .ok_or_else(|| Failure::die(format!("no such IPSet '{name}'")))
}

fn show_entry(cidr: &str, entry: &Entry, digest: &str) -> Value {
    let mut row = json!({ "cidr": cidr, "digest": digest });
    if let Some(comment) = &entry.comment {
        row["comment"] = json!(comment);
    }
    if entry.nomatch {
        row["nomatch"] = json!(1);
    }
    row
}

fn entries(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let set = ipset(call)?;
    let digest = digest::of(set);
    let rows = set
        .entries
        .iter()
        .map(|(cidr, entry)| show_entry(cidr, entry, &digest));
    Ok(rows.collect::<Value>().into())
}

fn create_entry(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let cidr = params.text("cidr").to_owned();
    ipset(call)?;
    if ip_or_cidr(&cidr).is_err() {
        let own = place(call)?.file(call.world);
        let names = Names {
            own: &own,
            cluster: &call.world.firewall.cluster,
        };
        names.need_alias(&cidr).map_err(Failure::die)?;
    }
    let set = ipset(call)?;
    if set.entries.contains_key(&cidr) {
        return Err(Failure::param(
            "cidr",
            format!("address '{cidr}' already exists"),
        ));
    }
    let comment = params.get("comment").map(str::to_owned);
    set.entries.insert(
        cidr,
        Entry {
            comment,
            nomatch: params.flag("nomatch"),
        },
    );
    Ok(Reply::null())
}

fn remove_ipset(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("name").to_owned();
    let force = call.params.flag("force");
    ipset(call)?;
    let ipsets = &mut place(call)?.file_mut(call.world).ipsets;
    if ipsets.get(&name).is_some_and(|set| !set.entries.is_empty()) && !force {
        return Err(Failure::die(format!("IPSet '{name}' is not empty")));
    }
    ipsets.remove(&name);
    Ok(Reply::null())
}

fn read_entry(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let cidr = call.params.text("cidr").to_owned();
    let set = ipset(call)?;
    let digest = digest::of(set);
    match set.entries.get(&cidr) {
        Some(entry) => Ok(show_entry(&cidr, entry, &digest).into()),
        None => Err(Failure::param("cidr", "no such IP/Network")),
    }
}

fn update_entry(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let set = ipset(call)?;
    digest::check(params.get("digest"), set)?;
    let Some(entry) = set.entries.get_mut(params.text("cidr")) else {
        return Err(Failure::param("cidr", "no such IP/Network"));
    };
    if let Some(comment) = params.get("comment") {
        entry.comment = Some(comment.to_owned());
    }
    if let Some(nomatch) = params.bool("nomatch") {
        entry.nomatch = nomatch;
    }
    Ok(Reply::null())
}

fn remove_entry(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let set = ipset(call)?;
    digest::check(params.get("digest"), set)?;
    set.entries.remove(params.text("cidr"));
    Ok(Reply::null())
}

fn refs(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let kind = call.params.get("type");
    let own = place(call)?.file(call.world);
    let mut rows = Vec::new();
    for (scope, file) in [("dc", &call.world.firewall.cluster), ("guest", &own)] {
        if scope == "guest" && !call.params.has("vmid") {
            continue;
        }
        if kind.is_none_or(|kind| kind == "alias") {
            rows.extend(file.aliases.iter().map(|(name, alias)| {
                json!({
                    "type": "alias", "name": name, "ref": format!("{scope}/{name}"),
                    "scope": scope, "comment": alias.comment,
                })
            }));
        }
        if kind.is_none_or(|kind| kind == "ipset") {
            rows.extend(file.ipsets.iter().map(|(name, set)| {
                json!({
                    "type": "ipset", "name": name, "ref": format!("+{scope}/{name}"),
                    "scope": scope, "comment": set.comment,
                })
            }));
        }
    }
    Ok(Value::Array(rows).into())
}
