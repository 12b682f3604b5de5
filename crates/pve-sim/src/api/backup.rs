//! `/cluster/backup`: backup jobs, and what they leave out.

use serde_json::{Map, Value, json};

use crate::backup::Job;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::{Guest, Kind, snapshot};
use crate::permission::all;
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::format::{self, backup};
use crate::schema::{Param, flag, text};

/// Parameters that are numbers in answers.
const NUMBERS: &[&str] = &[
    "all",
    "bwlimit",
    "enabled",
    "ionice",
    "lockwait",
    "maxfiles",
    "pigz",
    "protected",
    "quiet",
    "remove",
    "repeat-missed",
    "stdexcludes",
    "stop",
    "stopwait",
    "zstd",
];

pub(super) fn routes(release: Release) -> Vec<Route> {
    let audit = || all("/", &["Sys.Audit"]);
    let modify = || all("/", &["Sys.Modify"]);
    let id = || {
        text("id")
            .max_len(50)
            .pattern(|it| !it.is_empty() && !it.contains(char::is_whitespace))
    };
    vec![
        get("/cluster/backup", list).perm(audit()),
        post("/cluster/backup", create)
            .perm(modify())
            .params(options(release))
            .params([text("id").format(format::CONFIG_ID).optional()]),
        get("/cluster/backup/{id}", read)
            .perm(audit())
            .params([id()]),
        put("/cluster/backup/{id}", update)
            .perm(modify())
            .params(options(release))
            .params([
                id(),
                text("delete").format(format::CONFIG_ID_LIST).optional(),
            ]),
        delete("/cluster/backup/{id}", remove)
            .perm(modify())
            .params([id()]),
        get("/cluster/backup/{id}/included_volumes", included)
            .perm(audit())
            .params([id()])
            .protected(),
        get("/cluster/backup-info", |_| {
            Ok(json!([{ "subdir": "not-backed-up" }]).into())
        }),
        get("/cluster/backup-info/not-backed-up", left_out)
            .perm(audit())
            .protected(),
    ]
}

fn options(release: Release) -> Vec<Param> {
    let mut params = crate::guest::routes::backup::dump_params(release);
    // A job says when; only a single backup writes to its caller or names the job it belongs to.
    params.retain(|param| !["stdout", "job-id"].contains(&param.name()));
    params.extend([
        text("comment").max_len(512).optional(),
        text("dow")
            .format(backup::DAYS)
            .requires("starttime")
            .optional(),
        flag("enabled"),
        text("node").format(format::NODE).optional(),
        flag("repeat-missed"),
        text("schedule")
            .format(backup::CALENDAR_EVENT)
            .max_len(128)
            .optional(),
        text("starttime").pattern(is_time).optional(),
    ]);
    params
}

/// `2:00`
fn is_time(value: &str) -> bool {
    let number = |text: &str| (1..=2).contains(&text.len()) && text.parse::<u8>().is_ok();
    value
        .split_once(':')
        .is_some_and(|(hour, minute)| number(hour) && number(minute))
}

fn show(call: &Call<'_>, id: &str, job: &Job) -> Map<String, Value> {
    let mut row = Map::new();
    for (name, value) in &job.options {
        let value = match value.parse::<u64>() {
            Ok(number) if NUMBERS.contains(&name.as_str()) => json!(number),
            _ => json!(value),
        };
        row.insert(name.clone(), value);
    }
    row.insert("id".into(), json!(id));
    row.insert("type".into(), json!("vzdump"));
    let next = job.schedule().filter(|_| job.enabled());
    if let Some(next) = next.and_then(|schedule| schedule.next(call.world.now())) {
        row.insert("next-run".into(), json!(next));
    }
    row
}

fn job<'a>(call: &'a Call<'_>) -> Result<(&'a str, &'a Job), Failure> {
    let id = call.params.text("id");
    let found = call.world.backups.by_id.get(id);
    found
        .map(|job| (id, job))
        .ok_or_else(|| Failure::param("id", format!("No such job '{id}'")))
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let jobs = call.world.backups.by_id.iter();
    let rows = jobs.map(|(id, job)| Value::Object(show(call, id, job)));
    Ok(rows.collect::<Value>().into())
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (id, job) = job(call)?;
    Ok(Value::Object(show(call, id, job)).into())
}

/// Takes over what the call gives; exactly one way to choose guests must remain.
fn apply(call: &Call<'_>, job: &mut Job) -> Result<(), Failure> {
    for (name, value) in call.params.iter() {
        if !["id", "delete", "starttime", "dow"].contains(&name) {
            job.options.insert(name.to_owned(), value.to_owned());
        }
    }
    if let Some(time) = call.params.get("starttime") {
        let days = call.params.get("dow").unwrap_or_default();
        let schedule = format!("{days} {time}").trim().to_owned();
        job.options.insert("schedule".to_owned(), schedule);
    }
    for name in call.params.list("delete") {
        job.options.remove(name);
    }
    for name in ["tmpdir", "dumpdir", "script"] {
        if call.params.has(name) && !call.caller.is_root() {
            return Err(Failure::param(name, "Only root may set this option."));
        }
    }
    let chosen = |name: &str| job.options.get(name).is_some_and(|it| it != "0");
    let ways = ["all", "vmid", "pool"]
        .iter()
        .filter(|it| chosen(it))
        .count();
    if ways == 0 {
        return Err(Failure::param("vmid", "property is missing"));
    }
    if ways > 1 {
        let text = "option 'all', 'vmid' and 'pool' are mutually exclusive";
        return Err(Failure::param("vmid", text));
    }
    if !job.options.contains_key("schedule") {
        let text = "property is missing and it is not optional";
        return Err(Failure::param("schedule", text));
    }
    if let Some(storage) = call.params.get("storage") {
        call.world.storages.get(storage)?;
    }
    Ok(())
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let mut job = Job::default();
    job.options.insert("enabled".to_owned(), "1".to_owned());
    apply(call, &mut job)?;
    let named = call.params.get("id").map(str::to_owned);
    let id = named.unwrap_or_else(|| {
        let uuid = call.world.uuid();
        format!("backup-{}", &uuid[..13])
    });
    if call.world.backups.by_id.contains_key(&id) {
        return Err(Failure::die(format!("Job '{id}' already exists")));
    }
    call.world.backups.by_id.insert(id, job);
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (id, before) = job(call)?;
    let (id, mut changed) = (id.to_owned(), before.clone());
    // Another way to choose guests replaces the one before.
    for name in ["all", "vmid", "pool"] {
        if call.params.has(name) {
            for other in ["all", "vmid", "pool"] {
                changed.options.remove(other);
            }
        }
    }
    apply(call, &mut changed)?;
    call.world.backups.by_id.insert(id, changed);
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (id, _) = job(call)?;
    let id = id.to_owned();
    call.world.backups.by_id.remove(&id);
    Ok(Reply::null())
}

/// `GET …/included_volumes`: a tree of guests and their volumes.
fn included(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (_, job) = job(call)?;
    let guests = call.world.guests.iter();
    let children = guests
        .filter(|guest| job.includes(call.world, guest))
        .map(|guest| {
            let volumes = snapshot::volumes(guest.kind, &guest.config.current);
            let volumes = volumes.into_iter().map(|(option, volid)| {
                let value = guest.config.get(&option).unwrap_or_default();
                let saved = match guest.kind {
                    Kind::Qemu => !value.split(',').any(|part| part == "backup=0"),
                    Kind::Lxc => option == "rootfs" || value.split(',').any(|it| it == "backup=1"),
                };
                json!({
                    "id": format!("{}:{option}", guest.vmid), "name": volid,
                    "included": u8::from(saved), "leaf": 1,
                    "reason": if saved { "enabled" } else { "disabled" },
                })
            });
            json!({
                "id": guest.vmid, "name": guest.name(), "type": guest.kind.name(), "leaf": 0,
                "children": volumes.collect::<Vec<_>>(),
            })
        });
    let children: Vec<Value> = children.collect();
    Ok(json!({ "id": "root", "leaf": 0, "children": children }).into())
}

/// `GET /cluster/backup-info/not-backed-up`
fn left_out(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let world = &*call.world;
    let saved = |guest: &Guest| {
        let mut jobs = world.backups.by_id.values();
        jobs.any(|job| job.enabled() && job.includes(world, guest))
    };
    let rows = world.guests.iter().filter(|guest| !saved(guest)).map(
        |guest| json!({ "vmid": guest.vmid, "name": guest.name(), "type": guest.kind.name() }),
    );
    Ok(rows.collect::<Value>().into())
}
