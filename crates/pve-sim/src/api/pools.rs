//! `/pools`: resource pools, by query as since 8.1 and by path as before.

use serde_json::{Map, Value, json};

use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all};
use crate::pool::Pool;
use crate::resources;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, choice, flag, format, text};

pub(super) fn routes() -> Vec<Route> {
    let allocate = || all("/pool/{poolid}", &["Pool.Allocate"]);
    let pool = || text("poolid").format(format::POOL);
    let kind = || choice("type", &["qemu", "lxc", "storage"]).optional();
    vec![
        get("/pools", list)
            .perm(Perm::User)
            .params([pool().optional(), kind().requires("poolid")]),
        post("/pools", create)
            .perm(allocate())
            .params([pool(), text("comment").optional()]),
        put("/pools", update)
            .perm(allocate())
            .params([pool()])
            .params(changes()),
        delete("/pools", remove).perm(allocate()).params([pool()]),
        get("/pools/{poolid*}", read)
            .perm(all("/pool/{poolid}", &["Pool.Audit"]))
            .params([pool(), kind()]),
        put("/pools/{poolid*}", update)
            .perm(allocate())
            .params([pool()])
            .params(changes()),
        delete("/pools/{poolid*}", remove)
            .perm(allocate())
            .params([pool()]),
    ]
}

fn changes() -> [Param; 5] {
    [
        text("comment").optional(),
        text("vms").format(format::VMID_LIST).optional(),
        text("storage").format(format::STORAGE_LIST).optional(),
        flag("delete"),
        flag("allow-move"),
    ]
}

fn missing(id: &str) -> Failure {
    Failure::die(format!("pool '{id}' does not exist"))
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    if call.params.has("poolid") {
        let id = call.params.text("poolid").to_owned();
        call.need(&format!("/pool/{id}"), &["Pool.Audit"])?;
        let mut one = content(call, &id)?;
        one.insert("poolid".into(), json!(id));
        return Ok(json!([one]).into());
    }
    let seen = |id: &str| {
        let path = format!("/pool/{id}");
        call.may(&path, "Pool.Audit") || call.may(&path, "Pool.Allocate")
    };
    let pools = call.world.access.pools.iter().filter(|(id, _)| seen(id));
    let rows = pools.map(|(id, pool)| {
        let mut map = Map::new();
        map.insert("poolid".into(), json!(id));
        if let Some(comment) = &pool.comment {
            map.insert("comment".into(), json!(comment));
        }
        Value::Object(map)
    });
    Ok(rows.collect::<Value>().into())
}

fn content(call: &Call<'_>, id: &str) -> Result<Map<String, Value>, Failure> {
    let pool = call.world.access.pools.get(id).ok_or_else(|| missing(id))?;
    let kind = call.params.get("type");
    let members = resources::pool_members(call.world, pool, kind, call.entry);
    let mut map = Map::new();
    map.insert("poolid".into(), json!(id));
    map.insert("members".into(), members);
    if let Some(comment) = &pool.comment {
        map.insert("comment".into(), json!(comment));
    }
    Ok(map)
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("poolid").to_owned();
    Ok(Value::Object(content(call, &id)?).into())
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("poolid").to_owned();
    let comment = call.params.get("comment").map(str::to_owned);
    let pools = &mut call.world.access.pools;
    let failed = |text: String| Err(Failure::die(format!("create pool failed: {text}")));
    if pools.contains_key(&id) {
        return failed(format!("pool '{id}' already exists"));
    }
    if let Some((parent, _)) = id.rsplit_once('/')
        && !pools.contains_key(parent)
    {
        return failed(format!("parent '{parent}' of pool '{id}' does not exist"));
    }
    pools.insert(
        id,
        Pool {
            comment,
            ..Pool::default()
        },
    );
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let id = params.text("poolid");
    let failed = |text: String| Failure::die(format!("update pools failed: {text}"));
    if !call.world.access.pools.contains_key(id) {
        return Err(failed(format!("pool '{id}' does not exist")));
    }
    let remove = params.flag("delete");
    for vmid in params
        .list("vms")
        .into_iter()
        .filter_map(|it| it.parse().ok())
    {
        call.need(&format!("/vms/{vmid}"), &["VM.Allocate"])
            .or_else(|_| call.need(&format!("/pool/{id}"), &["Pool.Allocate"]))?;
        let now = call.world.access.pool_of(vmid).map(str::to_owned);
        match (remove, now.as_deref()) {
            (true, Some(pool)) if pool == id => call.world.access.leave_pool(vmid),
            (true, _) => return Err(failed(format!("VM {vmid} is not a pool member"))),
            (false, Some(pool)) if pool == id => {
                return Err(failed(format!("VM {vmid} is already a pool member")));
            }
            (false, Some(pool)) if !params.flag("allow-move") => {
                return Err(failed(format!(
                    "VM {vmid} belongs already to pool '{pool}' and 'allow-move' is not set"
                )));
            }
            (false, _) => call.world.access.join_pool(vmid, id),
        }
    }
    for storage in params.list("storage") {
        let access = &mut call.world.access;
        let Some(pool) = access.pools.get_mut(id) else {
            return Err(missing(id));
        };
        let done = if remove {
            pool.storages.remove(storage)
        } else {
            pool.storages.insert(storage.to_owned())
        };
        if !done {
            let not = if remove { "not" } else { "already" };
            return Err(failed(format!(
                "Storage '{storage}' is {not} a pool member"
            )));
        }
    }
    if let Some(comment) = params.get("comment")
        && let Some(pool) = call.world.access.pools.get_mut(id)
    {
        pool.comment = Some(comment.to_owned());
    }
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("poolid").to_owned();
    let failed = |text: String| Err(Failure::die(format!("delete pool failed: {text}")));
    let world = &*call.world;
    let pools = &world.access.pools;
    let Some(pool) = pools.get(&id) else {
        return failed(format!("pool '{id}' does not exist"));
    };
    // Members that are gone are no members.
    let mut guests = pool.guests.iter();
    if let Some(vmid) = guests.find(|vmid| world.guests.exists(**vmid)) {
        return failed(format!("pool '{id}' is not empty (contains VM {vmid})"));
    }
    let mut storages = pool.storages.iter();
    if let Some(storage) = storages.find(|storage| world.storages.get(storage).is_ok()) {
        return failed(format!(
            "pool '{id}' is not empty (contains storage '{storage}')"
        ));
    }
    let below = format!("{id}/");
    if let Some(child) = pools.keys().find(|name| name.starts_with(&below)) {
        return failed(format!(
            "pool '{id}' is not empty (contains pool '{child}')"
        ));
    }
    call.world.access.pools.remove(&id);
    call.world.access.acl.remove(&format!("/pool/{id}"));
    Ok(Reply::null())
}
