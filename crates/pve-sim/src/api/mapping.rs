//! `/cluster/mapping`: names for devices and directories of several nodes.

use serde_json::{Map, Value, json};

use crate::call::{Call, Handler, Reply};
use crate::failure::Failure;
use crate::mapping::Mapping;
use crate::params::Params;
use crate::permission::{Perm, all};
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, array, digest, flag, format, text};

/// Paths and handlers of one kind, since a path pattern is known at compile time.
struct Kind {
    list: &'static str,
    one: &'static str,
    acl: &'static str,
    handlers: [Handler; 5],
}

const KINDS: [Kind; 3] = [
    Kind {
        list: "/cluster/mapping/pci",
        one: "/cluster/mapping/pci/{id}",
        acl: "/mapping/pci/{id}",
        handlers: [
            |call| list(call, "pci"),
            |call| create(call, "pci"),
            |call| read(call, "pci"),
            |call| update(call, "pci"),
            |call| remove(call, "pci"),
        ],
    },
    Kind {
        list: "/cluster/mapping/usb",
        one: "/cluster/mapping/usb/{id}",
        acl: "/mapping/usb/{id}",
        handlers: [
            |call| list(call, "usb"),
            |call| create(call, "usb"),
            |call| read(call, "usb"),
            |call| update(call, "usb"),
            |call| remove(call, "usb"),
        ],
    },
    Kind {
        list: "/cluster/mapping/dir",
        one: "/cluster/mapping/dir/{id}",
        acl: "/mapping/dir/{id}",
        handlers: [
            |call| list(call, "dir"),
            |call| create(call, "dir"),
            |call| read(call, "dir"),
            |call| update(call, "dir"),
            |call| remove(call, "dir"),
        ],
    },
];

pub(super) fn routes() -> Vec<Route> {
    let mut routes = vec![
        get("/cluster/mapping", |_| {
            Ok(json!([{ "name": "dir" }, { "name": "pci" }, { "name": "usb" }]).into())
        })
        .perm(Perm::User),
    ];
    for Kind {
        list,
        one,
        acl,
        handlers,
    } in KINDS
    {
        let [on_list, on_create, on_read, on_update, on_remove] = handlers;
        // Changing one takes a right on it; adding and removing one on all of its kind.
        let modify = || all(acl, &["Mapping.Modify"]);
        let of_kind = || all(acl.trim_end_matches("/{id}"), &["Mapping.Modify"]);
        let new = [text("id").format(format::CONFIG_ID), array("map")];
        routes.extend([
            get(list, on_list)
                .perm(Perm::User)
                .params([text("check-node").format(format::NODE).optional()]),
            post(list, on_create)
                .perm(of_kind())
                .params(options(list))
                .params(new),
            get(one, on_read).perm(Perm::Or(vec![
                all(acl, &["Mapping.Use"]),
                modify(),
                all(acl, &["Mapping.Audit"]),
            ])),
            put(one, on_update)
                .perm(modify())
                .params(options(list))
                .params([
                    if one.contains("/usb/") {
                        array("map")
                    } else {
                        array("map").optional()
                    },
                    text("delete").format(format::CONFIG_ID_LIST).optional(),
                    digest(),
                ]),
            delete(one, on_remove).perm(of_kind()),
        ]);
    }
    routes
}

fn options(path: &str) -> Vec<Param> {
    let mut all = vec![text("description").max_len(4096).optional()];
    if path.contains("/pci") {
        all.extend(["mdev", "live-migration-capable"].map(flag));
    }
    all
}

fn show(id: &str, kind: &str, mapping: &Mapping) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("id".into(), json!(id));
    map.insert("type".into(), json!(kind));
    map.insert("map".into(), json!(mapping.map));
    if let Some(description) = &mapping.description {
        map.insert("description".into(), json!(description));
    }
    for (name, value) in &mapping.options {
        map.insert(
            name.clone(),
            json!(value.parse::<u64>().unwrap_or_default()),
        );
    }
    map.insert("digest".into(), json!(crate::digest::of(mapping)));
    map
}

fn may_see(call: &Call<'_>, kind: &str, id: &str) -> bool {
    let path = format!("/mapping/{kind}/{id}");
    ["Mapping.Modify", "Mapping.Use", "Mapping.Audit"]
        .iter()
        .any(|name| call.may(&path, name))
}

fn list(call: &Call<'_>, kind: &str) -> Result<Reply, Failure> {
    let mut rows = Vec::new();
    for (id, mapping) in call.world.mappings.by_kind.get(kind).into_iter().flatten() {
        if !may_see(call, kind, id) {
            continue;
        }
        let mut row = show(id, kind, mapping);
        if let Some(node) = call.params.get("check-node") {
            let mut checks = Vec::new();
            if !call.world.mappings.is_on(kind, id, node) {
                let text = format!("No mapping for node '{node}'.");
                checks.push(json!({ "severity": "warning", "message": text }));
            }
            row.insert("checks".into(), json!(checks));
        }
        rows.push(Value::Object(row));
    }
    Ok(Value::Array(rows).into())
}

fn missing(kind: &str, id: &str) -> Failure {
    Failure::die(format!("mapping '{id}' not found in {kind} mappings"))
}

fn read(call: &Call<'_>, kind: &str) -> Result<Reply, Failure> {
    let id = call.params.text("id");
    if !may_see(call, kind, id) {
        return Err(Failure::denied_all());
    }
    let mapping = call
        .world
        .mappings
        .get(kind, id)
        .ok_or_else(|| missing(kind, id))?;
    Ok(Value::Object(show(id, kind, mapping)).into())
}

fn apply(mapping: &mut Mapping, params: &Params) {
    if params.has("map") {
        mapping.map = params.array("map").into_iter().map(str::to_owned).collect();
    }
    if let Some(description) = params.get("description") {
        mapping.description = Some(description.to_owned());
    }
    for name in ["mdev", "live-migration-capable"] {
        if let Some(value) = params.get(name) {
            mapping.options.insert(name.to_owned(), value.to_owned());
        }
    }
}

fn check_map(call: &Call<'_>) -> Result<(), Failure> {
    for entry in call.params.array("map") {
        let node = entry.split(',').find_map(|part| part.strip_prefix("node="));
        match node {
            None => {
                let text = "invalid format - format error\nmap.node: property is missing and it is not optional\n";
                return Err(Failure::param("map", text));
            }
            Some(node) => {
                call.world.node(node)?;
            }
        }
    }
    Ok(())
}

fn create(call: &mut Call<'_>, kind: &str) -> Result<Reply, Failure> {
    check_map(call)?;
    let params = call.params.clone();
    let id = params.text("id").to_owned();
    let mappings = call
        .world
        .mappings
        .by_kind
        .entry(kind.to_owned())
        .or_default();
    if mappings.contains_key(&id) {
        let text = format!("create {kind} mapping failed: {kind} ID '{id}' already defined");
        return Err(Failure::die(text));
    }
    let mut mapping = Mapping::default();
    apply(&mut mapping, &params);
    mappings.insert(id, mapping);
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>, kind: &str) -> Result<Reply, Failure> {
    check_map(call)?;
    let params = call.params.clone();
    let id = params.text("id");
    let mappings = call
        .world
        .mappings
        .by_kind
        .entry(kind.to_owned())
        .or_default();
    let mapping = mappings.get_mut(id).ok_or_else(|| missing(kind, id))?;
    crate::digest::check(params.get("digest"), mapping)?;
    apply(mapping, &params);
    for name in params.list("delete") {
        if name == "description" {
            mapping.description = None;
        }
        mapping.options.remove(name);
    }
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>, kind: &str) -> Result<Reply, Failure> {
    let id = call.params.text("id").to_owned();
    let mappings = call
        .world
        .mappings
        .by_kind
        .entry(kind.to_owned())
        .or_default();
    mappings.remove(&id).ok_or_else(|| missing(kind, &id))?;
    Ok(Reply::null())
}
