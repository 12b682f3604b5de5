//! Replication: copies of guests' volumes on another node, renewed by the calendar.
//!
//! Only volumes on local ZFS pools can be replicated. A job runs on the node its guest is on; what it
//! copied waits on the target, saves a migration there the way, and goes when the job does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::guest::drive::Drive;
use crate::guest::{Guest, snapshot};
use crate::schedule::Schedule;
use crate::storage::Kind;
use crate::world::World;

/// How often a job runs unless it says otherwise.
pub(crate) const SCHEDULE: &str = "*/15";
/// How long after a failure a job is tried again, in seconds; longer with every failure.
const RETRY: u64 = 5 * 60;

/// All replication jobs of a cluster, by id: `100-0`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Replication {
    pub(crate) jobs: BTreeMap<String, Job>,
}

/// A replication job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Job {
    /// As the configuration keeps them.
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) state: State,
}

/// What became of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) last_sync: u64,
    pub(crate) last_try: u64,
    pub(crate) next_sync: u64,
    pub(crate) fail_count: u64,
    pub(crate) error: Option<String>,
    pub(crate) log: Vec<String>,
    /// Volumes on the target.
    pub(crate) copies: Vec<String>,
}

/// The guest a job's id names.
pub(crate) fn guest_of(id: &str) -> u32 {
    let guest = id.split_once('-').map_or(id, |(guest, _)| guest);
    guest.parse().unwrap_or_default()
}

impl Job {
    pub(crate) fn target(&self) -> &str {
        self.options.get("target").map_or("", String::as_str)
    }

    fn disabled(&self) -> bool {
        self.options.get("disable").is_some_and(|it| it == "1")
    }

    /// The next time after `now` that the calendar names.
    pub(crate) fn next(&self, now: u64) -> u64 {
        let text = self
            .options
            .get("schedule")
            .map_or(SCHEDULE, String::as_str);
        let next = Schedule::parse(text).and_then(|it| it.next(now));
        next.unwrap_or(u64::MAX)
    }
}

/// Runs the jobs whose time has come.
pub(crate) fn round(cluster: &Cluster) {
    cluster.world(|world| {
        let now = world.now();
        let due = world.replication.jobs.iter().filter(|(_, job)| {
            let going = job.options.contains_key("remove_job");
            going || !job.disabled() && job.state.next_sync <= now
        });
        let due: Vec<String> = due.map(|(id, _)| id.clone()).collect();
        for id in due {
            run(world, &id, now);
        }
    });
}

fn run(world: &mut World, id: &str, now: u64) {
    let Some(mut job) = world.replication.jobs.remove(id) else {
        return;
    };
    let vmid = guest_of(id);
    let source = world.guests.get(vmid).map(|guest| guest.node.clone());
    let target = job.target().to_owned();
    let up = |node: &str| world.nodes.get(node).is_some_and(|node| node.up);
    if source.as_deref().is_some_and(|source| !up(source)) {
        // Nobody is there to run it.
        world.replication.jobs.insert(id.to_owned(), job);
        return;
    }
    if let Some(how) = job.options.get("remove_job") {
        if how == "full" && up(&target) {
            drop_copies(world, &job);
        }
        return;
    }
    let result = match source {
        Some(source) => sync(world, vmid, &source, &target, &job.state.copies),
        None => Err(Failure::die(format!("guest '{vmid}' does not exist"))),
    };
    let state = &mut job.state;
    state.last_try = now;
    state.log = vec![format!("{now} {id}: start replication job")];
    match result {
        Ok(copies) => {
            state
                .log
                .push(format!("{now} {id}: guest => VM {vmid}, running => 0"));
            state
                .log
                .push(format!("{now} {id}: volumes => {}", copies.join(",")));
            state.log.push(format!("{now} {id}: end replication job"));
            state.last_sync = now;
            state.fail_count = 0;
            state.error = None;
            state.copies = copies;
            job.state.next_sync = job.next(now);
        }
        Err(failure) => {
            let text = failure.exit_text();
            state.log.push(format!(
                "{now} {id}: end replication job with error: {text}"
            ));
            state.fail_count += 1;
            state.error = Some(text);
            state.next_sync = now + RETRY * state.fail_count.min(3);
        }
    }
    world.replication.jobs.insert(id.to_owned(), job);
}

/// The volumes of a guest that are replicated; one that cannot be is an error.
pub(crate) fn volumes(world: &World, guest: &Guest) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for (option, volid) in snapshot::volumes(guest.kind, &guest.config.current) {
        let drive = guest.config.get(&option).map(Drive::parse);
        if drive.is_some_and(|drive| drive.get("replicate") == Some("0")) {
            continue;
        }
        let def = &world.storages.parse(&volid)?.0.def;
        if def.shared {
            continue;
        }
        if def.kind != Kind::ZfsPool {
            let text = format!("missing replicate feature on volume '{volid}'");
            return Err(Failure::die(text));
        }
        found.push(volid);
    }
    Ok(found)
}

fn sync(
    world: &mut World,
    vmid: u32,
    source: &str,
    target: &str,
    before: &[String],
) -> Result<Vec<String>, Failure> {
    if !world.reaches(source, target) {
        let text = format!("command '/usr/bin/ssh root@{target}' failed: exit code 255");
        return Err(Failure::die(text));
    }
    let guest = world.guests.get(vmid);
    let guest = guest.ok_or_else(|| Failure::die(format!("guest '{vmid}' does not exist")))?;
    guest.check_lock()?;
    let wanted = volumes(world, guest)?;
    if wanted.is_empty() {
        return Err(Failure::die("no replicatable volumes found"));
    }
    for old in before.iter().filter(|old| !wanted.contains(old)) {
        world.storages.free(target, old)?;
    }
    for volid in &wanted {
        world.storages.replicate(volid, source, target)?;
    }
    Ok(wanted)
}

/// Removes what a job copied.
pub(crate) fn drop_copies(world: &mut World, job: &Job) {
    for volid in &job.state.copies {
        // A copy that is gone, or on a storage that is, needs no removal.
        let _ = world.storages.free(job.target(), volid);
    }
}

/// A guest is about to move: a copy on the node it goes to is used up, and its job runs back.
pub(crate) fn turn(world: &mut World, vmid: u32, from: &str, to: &str) {
    let mut jobs = std::mem::take(&mut world.replication.jobs);
    for (_, job) in jobs.iter_mut().filter(|(id, _)| guest_of(id) == vmid) {
        if job.target() == to {
            drop_copies(world, job);
            job.state.copies.clear();
            job.options.insert("target".to_owned(), from.to_owned());
        }
    }
    world.replication.jobs = jobs;
}

/// A destroyed guest takes its jobs along.
pub(crate) fn forget(world: &mut World, vmid: u32) {
    let of_guest = |id: &String| guest_of(id) == vmid;
    let ids: Vec<String> = world
        .replication
        .jobs
        .keys()
        .filter(|id| of_guest(id))
        .cloned()
        .collect();
    for id in ids {
        if let Some(job) = world.replication.jobs.remove(&id) {
            drop_copies(world, &job);
        }
    }
}

/// Refuses to destroy a guest that somebody replicates.
pub(crate) fn check_none(world: &World, vmid: u32) -> Result<(), Failure> {
    let mut ids = world.replication.jobs.keys();
    match ids.find(|id| guest_of(id) == vmid) {
        None => Ok(()),
        Some(id) => Err(Failure::die(format!(
            "There is a replication job '{id}' for guest '{vmid}' - Please remove that first."
        ))),
    }
}
