//! `/storage`: the cluster's storage configuration.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{Definition, Kind, Storage, Storages, options};
use crate::call::{Call, Reply};
use crate::digest;
use crate::failure::Failure;
use crate::params::{Params, split_list};

/// Bytes of a storage somebody adds without there being a disk to measure.
const DEFAULT_CAPACITY: u64 = 100 << 30;

/// The digest of `storage.cfg`.
fn digest_of(storages: &Storages) -> String {
    let mut text = String::new();
    for storage in storages.iter() {
        let _ = writeln!(text, "{}: {}", storage.def.kind.name(), storage.def.id);
        let content: Vec<&str> = storage.def.content.iter().map(String::as_str).collect();
        let _ = writeln!(text, "\tcontent {}", content.join(","));
        for (key, value) in &storage.def.options {
            let _ = writeln!(text, "\t{key} {value}");
        }
        let _ = writeln!(text, "\t{:?} {:?}", storage.def.nodes, storage.def.disabled);
    }
    digest::sha1(text.as_bytes())
}

fn row(storage: &Storage, digest: &str) -> Value {
    let def = &storage.def;
    let mut row = Map::new();
    row.insert("storage".to_owned(), json!(def.id));
    row.insert("type".to_owned(), json!(def.kind.name()));
    row.insert("digest".to_owned(), json!(digest));
    let content: Vec<&str> = def.content.iter().map(String::as_str).collect();
    row.insert("content".to_owned(), json!(content.join(",")));
    if !def.nodes.is_empty() {
        let nodes: Vec<&str> = def.nodes.iter().map(String::as_str).collect();
        row.insert("nodes".to_owned(), json!(nodes.join(",")));
    }
    if def.shared && def.kind.shared_by_nature() && def.kind.is_file() {
        row.insert("path".to_owned(), json!(def.root()));
    } else if def.shared && !def.kind.shared_by_nature() {
        row.insert("shared".to_owned(), json!(1));
    }
    if def.disabled {
        row.insert("disable".to_owned(), json!(1));
    }
    for (key, value) in &def.options {
        if key != "password" && key != "keyring" {
            let flag = matches!(key.as_str(), "sparse" | "krbd" | "mkdir" | "saferemove");
            row.insert(
                key.clone(),
                if flag {
                    json!(u8::from(value == "1"))
                } else {
                    json!(value)
                },
            );
        }
    }
    Value::Object(row)
}

/// Whether the caller may know of a storage.
pub(crate) fn visible(call: &Call<'_>, id: &str) -> bool {
    let path = format!("/storage/{id}");
    [
        "Datastore.Audit",
        "Datastore.AllocateSpace",
        "Datastore.Allocate",
    ]
    .iter()
    .any(|privilege| call.may(&path, privilege))
}

/// `GET /storage`
pub(crate) fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let wanted = call.params.get("type");
    let digest = digest_of(&call.world.storages);
    let rows: Vec<Value> = call
        .world
        .storages
        .iter()
        .filter(|storage| wanted.is_none_or(|kind| storage.def.kind.name() == kind))
        .filter(|storage| visible(call, &storage.def.id))
        .map(|storage| row(storage, &digest))
        .collect();
    Ok(Reply::Data(Value::Array(rows)))
}

/// `GET /storage/{storage}`
pub(crate) fn show(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let storage = call.world.storages.get(call.params.text("storage"))?;
    Ok(Reply::Data(row(storage, &digest_of(&call.world.storages))))
}

/// The options of a storage among the parameters of a call.
fn given(params: &Params) -> Vec<&str> {
    let names = params.iter().map(|(name, _)| name);
    names
        .filter(|name| !["storage", "type", "digest", "delete"].contains(name))
        .collect()
}

/// `POST /storage`
pub(crate) fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let id = params.text("storage").to_owned();
    let name = params.text("type").to_owned();
    let kind = Kind::parse(&name).ok_or_else(|| {
        Failure::die(format!(
            "create storage failed: storage type '{name}' is not simulated (dir, nfs, cifs, lvm, lvmthin, zfspool and rbd are)"
        ))
    })?;
    // A directory shares the disk of the node it is on.
    let capacity = match (kind, call.world.storages.get("local")) {
        (Kind::Dir, Ok(local)) => local.def.capacity,
        _ => DEFAULT_CAPACITY,
    };
    let default: &[&str] = if matches!(kind, Kind::ZfsPool | Kind::LvmThin) {
        &["images", "rootdir"]
    } else {
        &["images"]
    };
    let mut def = Definition::new(&id, kind, default, capacity);
    apply(&mut def, &params)?;
    options::check_new(kind, &given(&params), call.world.release)?;
    if call.world.storages.get(&id).is_ok() {
        return Err(Failure::die(format!(
            "create storage failed: storage ID '{id}' already defined"
        )));
    }
    call.world.storages.insert(Storage::new(def));
    Ok(Reply::Data(json!({ "storage": id, "type": name })))
}

fn apply(def: &mut Definition, params: &Params) -> Result<(), Failure> {
    for (name, value) in params.iter() {
        match name {
            "storage" | "type" | "digest" | "delete" => {}
            "content" => {
                // What a type cannot hold is left out with a warning.
                let known = def.kind.contents();
                let list = split_list(value).into_iter();
                def.content = list
                    .filter(|content| known.contains(content))
                    .map(str::to_owned)
                    .collect();
                if def.content.len() > 1 && def.content.contains("none") {
                    let text = "unable to combine 'none' with other content types";
                    return Err(Failure::die(text));
                }
            }
            "nodes" => {
                def.nodes = split_list(value).into_iter().map(str::to_owned).collect();
            }
            "disable" => def.disabled = value == "1",
            "shared" => def.shared = value == "1" || def.kind.shared_by_nature(),
            _ => {
                def.options.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    Ok(())
}

/// `PUT /storage/{storage}`
pub(crate) fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("storage").to_owned();
    let kind = change(call, &id)
        .map_err(|failure| Failure::die(format!("update storage failed: {}", failure.message)))?;
    Ok(Reply::Data(json!({ "storage": id, "type": kind.name() })))
}

fn change(call: &mut Call<'_>, id: &str) -> Result<Kind, Failure> {
    let (params, release) = (call.params.clone(), call.world.release);
    let now = digest_of(&call.world.storages);
    digest::unchanged(params.get("digest"), &now)?;
    let def = call.world.storages.definition_mut(id)?;
    let removed = split_list(params.text("delete"));
    let mut changed = def.clone();
    options::check_change(def.kind, &given(&params), &removed, release)?;
    for option in removed {
        match option {
            "nodes" => changed.nodes.clear(),
            "disable" => changed.disabled = false,
            "shared" => changed.shared = changed.kind.shared_by_nature(),
            other => {
                changed.options.remove(other);
            }
        }
    }
    apply(&mut changed, &params)?;
    let kind = changed.kind;
    *def = changed;
    Ok(kind)
}

/// `DELETE /storage/{storage}`
pub(crate) fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("storage").to_owned();
    let failed = |error: String| Failure::die(format!("delete storage failed: {error}"));
    call.world
        .storages
        .get(&id)
        .map_err(|error| failed(error.to_string()))?;
    call.world.storages.remove(&id);
    call.world.access.forget_storage(&id);
    Ok(Reply::null())
}
