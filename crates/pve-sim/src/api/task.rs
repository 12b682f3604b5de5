//! `/nodes/{node}/tasks` and `/cluster/tasks`.

use std::cmp::Reverse;

use serde_json::{Map, Value, json};

use crate::access::Caller;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::Perm;
use crate::release::Release;
use crate::route::{Route, delete, get};
use crate::schema::{choice, flag, format, int, text, vmid};
use crate::task::{Record, State, Upid};
use crate::world::World;

/// How many finished tasks of a node the whole cluster is told about.
const BROADCAST: usize = 25;

pub(super) fn routes(_: Release) -> Vec<Route> {
    vec![
        get("/cluster/tasks", cluster_tasks).perm(Perm::User),
        get("/nodes/{node}/tasks", list).perm(Perm::User).params([
            int("start").min(0).default("0"),
            int("limit").min(0).default("50"),
            text("userfilter").optional(),
            text("typefilter").optional(),
            vmid("vmid").optional(),
            flag("errors"),
            choice("source", &["archive", "active", "all"]).default("archive"),
            int("since").optional(),
            int("until").optional(),
            text("statusfilter")
                .format(format::Format::List(status_kind))
                .optional(),
        ]),
        get("/nodes/{node}/tasks/{upid}", |_| {
            Ok(json!([{ "name": "log" }, { "name": "status" }]).into())
        })
        .perm(Perm::User),
        delete("/nodes/{node}/tasks/{upid}", stop)
            .perm(Perm::User)
            .without_quorum(),
        get("/nodes/{node}/tasks/{upid}/status", status)
            .perm(Perm::User)
            .protected(),
        get("/nodes/{node}/tasks/{upid}/log", log)
            .perm(Perm::User)
            .protected()
            .params([
                int("start").min(0).default("0"),
                int("limit").min(0).default("50"),
                flag("download"),
            ]),
    ]
}

fn status_kind(value: &str) -> Result<(), String> {
    if ["ok", "error", "warning", "unknown"].contains(&value) {
        Ok(())
    } else {
        Err(format!(
            "value '{value}' does not look like a valid task status"
        ))
    }
}

/// The kind of an exit text that `statusfilter` knows.
fn kind_of(exit: &str) -> &'static str {
    match exit {
        "OK" => "ok",
        "unexpected status" => "unknown",
        warning if warning.starts_with("WARNINGS") => "warning",
        _ => "error",
    }
}

/// Whether the caller may see a task: its own, those of its tokens, or with `Sys.Audit`.
fn may_see(world: &World, caller: &Caller, upid: &Upid, privilege: &str) -> bool {
    let owner = &upid.user;
    *owner == caller.id()
        || (!caller.is_token() && owner.split('!').next() == Some(caller.user()))
        || world
            .access
            .may(caller, &format!("/nodes/{}", upid.node), privilege)
}

fn fields(upid: &Upid) -> Map<String, Value> {
    let Value::Object(map) = json!({
        "upid": upid.to_string(), "node": upid.node, "pid": upid.pid, "pstart": upid.pstart,
        "starttime": upid.starttime, "type": upid.kind, "id": upid.id, "user": upid.user,
    }) else {
        return Map::new();
    };
    map
}

fn row(record: &Record) -> Value {
    let mut map = fields(&record.upid);
    match &record.state {
        State::Running => {
            map.insert("status".into(), json!("RUNNING"));
        }
        State::Ended { status, endtime } => {
            map.insert("endtime".into(), json!(endtime));
            map.insert("status".into(), json!(status));
        }
    }
    Value::Object(map)
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let (world, params) = (&*call.world, &call.params);
    let source = params.text("source");
    let active = world
        .tasks
        .active(Some(&node))
        .filter(|_| source != "archive");
    let mut active: Vec<_> = active.collect();
    active.sort_by_key(|record| Reverse((record.upid.starttime, record.upid.pid)));
    let archive = world.tasks.archive(&node).filter(|_| source != "active");
    let statuses = params.list("statusfilter");
    let vmid = params.get("vmid");
    let wanted = |record: &&Record| {
        let upid = &record.upid;
        let exit = record.exit();
        let contains = |name: &str, text: &str| params.get(name).is_none_or(|it| text.contains(it));
        contains("userfilter", &upid.user)
            && params
                .get("typefilter")
                .is_none_or(|kind| upid.kind == kind)
            && vmid.is_none_or(|vmid| upid.id == vmid)
            && (!params.flag("errors") || exit.is_some_and(|exit| kind_of(exit) != "ok"))
            && params
                .uint("since")
                .is_none_or(|since| upid.starttime >= since)
            && params
                .uint("until")
                .is_none_or(|until| upid.starttime <= until)
            && (statuses.is_empty() || exit.is_some_and(|exit| statuses.contains(&kind_of(exit))))
            && may_see(world, call.caller, upid, "Sys.Audit")
    };
    let found: Vec<_> = active.into_iter().chain(archive).filter(wanted).collect();
    let start = usize::try_from(params.uint("start").unwrap_or(0)).unwrap_or(usize::MAX);
    let limit = match params.uint("limit") {
        None | Some(0) => usize::MAX,
        Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let rows: Vec<_> = found
        .iter()
        .skip(start)
        .take(limit)
        .map(|record| row(record))
        .collect();
    let total = found.len();
    if source == "active" {
        return Ok(Value::Array(rows).into());
    }
    Ok(Reply::Counted(Value::Array(rows), total))
}

fn cluster_tasks(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let world = &*call.world;
    let mut records: Vec<&Record> = world.tasks.active(None).collect();
    for node in world.nodes.keys() {
        records.extend(world.tasks.archive(node).take(BROADCAST));
    }
    // Everybody's or one's own; but the owner's name, less the token, is compared with the caller's, token and all.
    let all = world.access.may(call.caller, "/", "Sys.Audit");
    let own = |record: &&Record| {
        let owner = record.upid.user.split('!').next();
        !call.caller.is_token() && owner == Some(call.caller.user())
    };
    records.retain(|record| all || own(record));
    records.sort_by_key(|record| Reverse((record.upid.starttime, record.upid.pid)));
    // A node that is down tells nobody that its tasks have ended with it.
    let runs = |upid: &Upid| {
        let node = world.nodes.get(&upid.node);
        node.is_some_and(|node| node.cut.contains(&upid.to_string()))
    };
    let rows = records.into_iter().map(|record| {
        let mut map = fields(&record.upid);
        map.remove("pid");
        map.remove("pstart");
        if let State::Ended { status, endtime } = &record.state
            && !runs(&record.upid)
        {
            map.insert("endtime".into(), json!(endtime));
            map.insert("status".into(), json!(status));
            map.insert("saved".into(), json!(1));
        }
        Value::Object(map)
    });
    Ok(rows.collect::<Value>().into())
}

/// The UPID in the path, which must be one of the node in the path.
fn upid(call: &Call<'_>) -> Result<Upid, Failure> {
    let text = call.params.text("upid");
    text.parse()
        .map_err(|_| Failure::param("upid", "unable to parse worker upid"))
}

fn need_audit(call: &Call<'_>, upid: &Upid, privilege: &str) -> Result<(), Failure> {
    if may_see(call.world, call.caller, upid, privilege) {
        Ok(())
    } else {
        Err(Failure::denied(format!(
            "/nodes/{}, {privilege}",
            upid.node
        )))
    }
}

fn status(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let upid = upid(call)?;
    need_audit(call, &upid, "Sys.Audit")?;
    let record = call.world.tasks.get(&upid.to_string());
    let record = record.filter(|record| record.upid.node == call.params.text("node"));
    let Some(record) = record else {
        return Err(Failure::param("upid", "no such task"));
    };
    let mut map = fields(&upid);
    if let Some((user, token)) = upid.user.split_once('!') {
        map.insert("user".into(), json!(user));
        map.insert("tokenid".into(), json!(token));
    }
    match record.exit() {
        None => map.insert("status".into(), json!("running")),
        Some(exit) => {
            map.insert("exitstatus".into(), json!(exit));
            map.insert("status".into(), json!("stopped"))
        }
    };
    Ok(Value::Object(map).into())
}

fn log(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let upid = upid(call)?;
    need_audit(call, &upid, "Sys.Audit")?;
    let record = call.world.tasks.get(&upid.to_string());
    let missing = ["unable to open file - No such file or directory".to_owned()];
    let lines = record.map_or(&missing[..], |record| &record.log);
    if call.params.flag("download") {
        return Ok(Reply::Text(
            lines
                .iter()
                .flat_map(|line| [line.as_str(), "\n"])
                .collect(),
        ));
    }
    let line = |(at, text): (usize, &String)| json!({ "n": at + 1, "t": text });
    if record.is_none() && !call.world.release.is_9() {
        return Ok(Reply::Counted(line((0, &missing[0])), 1));
    }
    let start = usize::try_from(call.params.uint("start").unwrap_or(0)).unwrap_or(usize::MAX);
    let limit = match call.params.uint("limit") {
        None | Some(0) => usize::MAX,
        Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let rows: Value = lines
        .iter()
        .enumerate()
        .skip(start)
        .take(limit)
        .map(line)
        .collect();
    Ok(Reply::Counted(rows, lines.len()))
}

fn stop(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let upid = upid(call)?;
    need_audit(call, &upid, "Sys.Modify")?;
    call.cluster.stop_task(&upid.to_string());
    Ok(Reply::null())
}
