//! Storages as a node sees them: space, activity, formats.

use serde_json::{Value, json};

use super::config::visible;
use super::{Space, Storage};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::params::split_list;

fn row(storage: &Storage, node: &str) -> Value {
    let def = &storage.def;
    let content: Vec<&str> = def.content.iter().map(String::as_str).collect();
    let on = !def.disabled && def.on_node(node);
    let Space { total, used, avail } = if on {
        storage.space(node)
    } else {
        Space {
            total: 0,
            used: 0,
            avail: 0,
        }
    };
    json!({
        "type": def.kind.name(),
        "content": content.join(","),
        "enabled": u8::from(on),
        "active": u8::from(on),
        "shared": u8::from(def.shared),
        "total": total,
        "used": used,
        "avail": avail,
    })
}

/// `GET /nodes/{node}/storage`
pub(crate) fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let contents = call.params.get("content").map(split_list);
    let target = call.params.get("target").map(str::to_owned);
    let only = call.params.get("storage");
    if let Some(id) = only {
        call.world.storages.get(id)?;
    }
    let mut rows = Vec::new();
    for storage in call.world.storages.iter() {
        let def = &storage.def;
        let holds = contents
            .as_ref()
            .is_none_or(|wanted| wanted.iter().any(|content| def.holds(content)));
        let reachable = target
            .as_ref()
            .is_none_or(|target| *target == node || (def.shared && def.on_node(target)));
        let enabled = !def.disabled && def.on_node(&node);
        let skipped = !def.on_node(&node)
            || (call.params.flag("enabled") && !enabled)
            || only.is_some_and(|id| id != def.id);
        if !holds || !reachable || skipped || !visible(call, &def.id) {
            continue;
        }
        let mut row = row(storage, &node);
        row["storage"] = json!(def.id);
        let space = storage.space(&node);
        if enabled && space.total > 0 {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a share needs no more precision"
            )]
            let share = space.used as f64 / space.total as f64;
            row["used_fraction"] = json!(share);
        }
        if call.params.flag("format") {
            let (supported, default) = def.kind.formats();
            let names: Vec<&str> = supported.iter().map(|format| format.name()).collect();
            let flags: serde_json::Map<String, Value> = names
                .iter()
                .map(|name| ((*name).to_owned(), json!(1)))
                .collect();
            row["format"] = json!([flags, default.name()]);
            row["formats"] = json!({ "supported": names, "default": default.name() });
        }
        rows.push(row);
    }
    Ok(Reply::Data(Value::Array(rows)))
}

/// `GET /nodes/{node}/storage/{storage}`: what is below.
pub(crate) fn index(_call: &mut Call<'_>) -> Result<Reply, Failure> {
    let names = [
        "content",
        "download-url",
        "file-restore",
        "import-metadata",
        "prunebackups",
        "rrd",
        "rrddata",
        "status",
        "upload",
    ];
    Ok(Reply::Data(
        names.iter().map(|name| json!({ "subdir": name })).collect(),
    ))
}

/// `GET /nodes/{node}/storage/{storage}/status`
pub(crate) fn show(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let known = call.world.storages.get(call.params.text("storage"));
    match known {
        Ok(storage) if storage.def.on_node(&node) => Ok(Reply::Data(row(storage, &node))),
        _ => Err(Failure::param("storage", "No such storage.")),
    }
}
