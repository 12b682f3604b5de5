//! `/cluster/replication`: jobs, and what became of them on each node.

use serde_json::{Map, Value, json};

use crate::api::index;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::Perm;
use crate::replication::{Job, SCHEDULE, guest_of};
use crate::route::{Route, delete, get, post, put};
use crate::schema::format::{self, backup};
use crate::schema::{Param, choice, digest, flag, int, number, text, vmid};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/cluster/replication", list).perm(Perm::User),
        post("/cluster/replication", create)
            .perm(Perm::User)
            .params(options())
            .params([
                id(),
                choice("type", &["local"]),
                text("target").format(format::NODE),
            ]),
        get("/cluster/replication/{id}", read)
            .perm(Perm::User)
            .params([id()]),
        put("/cluster/replication/{id}", update)
            .perm(Perm::User)
            .params(options())
            .params([
                id(),
                text("delete")
                    .format(format::CONFIG_ID_LIST)
                    .max_len(4096)
                    .optional(),
                digest(),
            ]),
        delete("/cluster/replication/{id}", remove)
            .perm(Perm::User)
            .params([id(), flag("keep"), flag("force")]),
        get("/nodes/{node}/replication", on_node)
            .perm(Perm::User)
            .protected()
            .params([vmid("guest").optional()]),
        get("/nodes/{node}/replication/{id}", |_| {
            Ok(index("name", &["log", "schedule_now", "status"]))
        })
        .perm(Perm::User)
        .params([id()]),
        get("/nodes/{node}/replication/{id}/status", |call| {
            let id = call.params.text("id").to_owned();
            see(call, &id)?;
            let job = job(call, &id)?;
            Ok(Value::Object(status(call, &id, job)).into())
        })
        .perm(Perm::User)
        .protected()
        .params([id()]),
        get("/nodes/{node}/replication/{id}/log", log)
            .perm(Perm::User)
            .protected()
            .params([
                id(),
                int("start").min(0).optional(),
                int("limit").min(0).optional(),
            ]),
        post("/nodes/{node}/replication/{id}/schedule_now", |call| {
            let id = call.params.text("id").to_owned();
            may(call, &id)?;
            let now = call.world.now();
            job_mut(call, &id)?.state.next_sync = now;
            Ok(Reply::null())
        })
        .perm(Perm::User)
        .params([id()]),
    ]
}

/// `100-0`: a guest and a number.
fn is_id(value: &str) -> bool {
    value.split_once('-').is_some_and(|(guest, job)| {
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        (3..=9).contains(&guest.len())
            && digits(guest)
            && !guest.starts_with('0')
            && (1..=9).contains(&job.len())
            && digits(job)
    })
}

fn id() -> Param {
    text("id").pattern(is_id)
}

fn options() -> Vec<Param> {
    vec![
        text("comment").max_len(4096).optional(),
        flag("disable"),
        number("rate").min(1).optional(),
        choice("remove_job", &["local", "full"]).optional(),
        text("schedule")
            .format(backup::CALENDAR_EVENT)
            .max_len(128)
            .optional(),
        text("source").format(format::NODE).optional(),
    ]
}

fn missing(id: &str) -> Failure {
    Failure::die(format!("no such replication job '{id}'"))
}

fn job<'a>(call: &'a Call<'_>, id: &str) -> Result<&'a Job, Failure> {
    let jobs = &call.world.replication.jobs;
    jobs.get(id).ok_or_else(|| missing(id))
}

fn job_mut<'a>(call: &'a mut Call<'_>, id: &str) -> Result<&'a mut Job, Failure> {
    let jobs = &mut call.world.replication.jobs;
    jobs.get_mut(id).ok_or_else(|| missing(id))
}

fn see(call: &Call<'_>, id: &str) -> Result<(), Failure> {
    call.need(&format!("/vms/{}", guest_of(id)), &["VM.Audit"])
}

/// The right to replicate: since 9 on the guest, before on all storages.
fn may(call: &Call<'_>, id: &str) -> Result<(), Failure> {
    if call.world.release.is_9() {
        call.need(&format!("/vms/{}", guest_of(id)), &["VM.Replicate"])
    } else {
        call.need("/storage", &["Datastore.Allocate"])
    }
}

fn show(call: &Call<'_>, id: &str, job: &Job) -> Map<String, Value> {
    let mut map: Map<String, Value> = job
        .options
        .iter()
        .map(|(name, value)| match value.parse::<f64>() {
            Ok(number) if name == "rate" => (name.clone(), json!(number)),
            _ if name == "disable" => (name.clone(), json!(u8::from(value == "1"))),
            _ => (name.clone(), json!(value)),
        })
        .collect();
    let number: u64 = id
        .rsplit('-')
        .next()
        .and_then(|it| it.parse().ok())
        .unwrap_or(0);
    map.insert("id".into(), json!(id));
    map.insert("guest".into(), json!(guest_of(id)));
    map.insert("jobnum".into(), json!(number));
    if let Some(guest) = call.world.guests.get(guest_of(id)) {
        map.insert("source".into(), json!(guest.node));
    }
    map
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let jobs = call.world.replication.jobs.iter();
    let seen = jobs.filter(|(id, _)| see(call, id).is_ok());
    let rows = seen.map(|(id, job)| Value::Object(show(call, id, job)));
    Ok(rows.collect::<Value>().into())
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("id");
    see(call, id)?;
    let job = job(call, id)?;
    let mut row = show(call, id, job);
    row.insert("digest".into(), json!(crate::digest::of(&job.options)));
    Ok(Value::Object(row).into())
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let (id, target) = (params.text("id"), params.text("target"));
    may(call, id)?;
    let vmid = guest_of(id);
    let jobs = &call.world.replication.jobs;
    if jobs.contains_key(id) {
        let text = format!("replication job '{id}' already exists");
        return Err(Failure::die(text));
    }
    let same = |(other, job): &(&String, &Job)| guest_of(other) == vmid && job.target() == target;
    if let Some((other, _)) = jobs.iter().find(same) {
        let text =
            format!("replication job '{other}' for guest '{vmid}' to '{target}' already exists");
        return Err(Failure::die(text));
    }
    call.world.node(target)?;
    let guest = call.world.guests.get(vmid);
    let guest = guest.ok_or_else(|| Failure::die(format!("guest '{vmid}' does not exist")))?;
    if guest.node == target || params.get("source") == Some(target) {
        return Err(Failure::param("target", "target is local node."));
    }
    crate::replication::volumes(call.world, guest)?;
    let mut job = Job::default();
    for (name, value) in params.iter().filter(|(name, _)| *name != "id") {
        job.options.insert(name.to_owned(), value.to_owned());
    }
    job.state.next_sync = job.next(call.world.now());
    call.world.replication.jobs.insert(id.to_owned(), job);
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let (id, now) = (params.text("id"), call.world.now());
    may(call, id)?;
    let job = job_mut(call, id)?;
    crate::digest::check(params.get("digest"), &job.options)?;
    for name in params.list("delete") {
        job.options.remove(name);
    }
    let skip = ["id", "delete", "digest"];
    for (name, value) in params.iter().filter(|(name, _)| !skip.contains(name)) {
        job.options.insert(name.to_owned(), value.to_owned());
    }
    if job.state.fail_count == 0 {
        job.state.next_sync = job.next(now);
    }
    Ok(Reply::null())
}

/// Marks a job to be removed by its node, with its copies; or removes it at once.
fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let id = params.text("id");
    may(call, id)?;
    job(call, id)?;
    if params.flag("force") {
        call.world.replication.jobs.remove(id);
    } else {
        let how = if params.flag("keep") { "local" } else { "full" };
        let job = job_mut(call, id)?;
        job.options.insert("remove_job".to_owned(), how.to_owned());
    }
    Ok(Reply::null())
}

fn status(call: &Call<'_>, id: &str, job: &Job) -> Map<String, Value> {
    let mut row = show(call, id, job);
    let state = &job.state;
    row.entry("schedule").or_insert_with(|| json!(SCHEDULE));
    row.insert("last_sync".into(), json!(state.last_sync));
    row.insert("last_try".into(), json!(state.last_try));
    row.insert("next_sync".into(), json!(state.next_sync));
    row.insert("fail_count".into(), json!(state.fail_count));
    row.insert(
        "duration".into(),
        json!(if state.last_try > 0 { 1.0 } else { 0.0 }),
    );
    if let Some(error) = &state.error {
        row.insert("error".into(), json!(error));
    }
    let kind = call.world.guests.get(guest_of(id)).map(|it| it.kind.name());
    row.insert("vmtype".into(), json!(kind));
    row
}

fn on_node(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, wanted) = (call.params.text("node"), call.params.vmid("guest"));
    let jobs = call.world.replication.jobs.iter().filter(|(id, _)| {
        let vmid = guest_of(id);
        let here = call
            .world
            .guests
            .get(vmid)
            .is_some_and(|it| it.node == node);
        here && wanted.is_none_or(|wanted| wanted == vmid) && see(call, id).is_ok()
    });
    let rows = jobs.map(|(id, job)| Value::Object(status(call, id, job)));
    Ok(rows.collect::<Value>().into())
}

fn log(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("id");
    if !call.may(&format!("/nodes/{}", call.params.text("node")), "Sys.Audit") {
        see(call, id)?;
    }
    let lines = &job(call, id)?.state.log;
    let number = |name: &str, default: usize| {
        let given = call.params.uint(name);
        given.map_or(default, |it| usize::try_from(it).unwrap_or(usize::MAX))
    };
    let rows = (1_usize..)
        .zip(lines)
        .skip(number("start", 0))
        .take(number("limit", 50))
        .map(|(n, line)| json!({ "n": n, "t": line }));
    Ok(Reply::Counted(rows.collect(), lines.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_by_its_guest_and_a_number() {
        assert!(is_id("100-0") && is_id("999999999-12"));
        for bad in ["100", "99-0", "012-0", "100-", "abc-0", "100-0-1"] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
