//! The endpoints of VMs, containers and backups.

mod agent;
pub(crate) mod backup;
mod bulk;
mod lxc;
mod qemu;
mod snapshot;

use super::Kind;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::Route;
use crate::schema::{Param, choice, flag, format, int, number, text, vmid};

const AUDIT: &[&str] = &["VM.Audit"];
const POWER: &[&str] = &["VM.PowerMgmt"];
const DISK: &[&str] = &["VM.Config.Disk"];
const ALLOCATE: &[&str] = &["VM.Allocate"];
const SNAPSHOT: &[&str] = &["VM.Snapshot"];
const MIGRATE: &[&str] = &["VM.Migrate"];
const CONSOLE: &[&str] = &["VM.Console"];
const ON_GUEST: &str = "/vms/{vmid}";

/// All endpoints of guests.
pub(crate) fn routes(release: Release) -> Vec<Route> {
    let mut all = qemu::routes(release);
    all.extend(snapshot::routes(Kind::Qemu));
    all.extend(agent::routes(release));
    all.extend(lxc::routes(release));
    all.extend(snapshot::routes(Kind::Lxc));
    all.extend(backup::routes(release));
    all.extend(bulk::routes(release));
    all
}

fn snapname() -> Param {
    text("snapname").format(format::CONFIG_ID).max_len(40)
}

fn of_snapshot() -> Param {
    text("snapshot")
        .format(format::CONFIG_ID)
        .max_len(40)
        .optional()
}

/// Where a console's proxy listens, and the ticket for it.
fn websocket_params() -> [Param; 2] {
    [
        int("port").min(5900).max(5999),
        text("vncticket").max_len(512),
    ]
}

fn bwlimit() -> Param {
    number("bwlimit").min(0).optional()
}

fn storage() -> Param {
    text("storage").format(format::STORAGE).optional()
}

/// The rights a clone takes.
fn clone_perm() -> Perm {
    Perm::And(vec![
        all(ON_GUEST, &["VM.Clone"]),
        Perm::Or(vec![
            all("/vms/{newid}", ALLOCATE),
            Perm::And(vec![Perm::Given("pool"), all("/pool/{pool}", ALLOCATE)]),
        ]),
    ])
}

fn clone_params() -> Vec<Param> {
    vec![
        vmid("newid"),
        text("description").optional(),
        flag("full"),
        text("pool").format(format::POOL).optional(),
        snapname().optional(),
        storage(),
        text("target").format(format::NODE).optional(),
        bwlimit(),
    ]
}

fn rrd_params() -> [Param; 2] {
    [
        choice("timeframe", &["hour", "day", "week", "month", "year"]),
        choice("cf", &["AVERAGE", "MAX"]).optional(),
    ]
}

fn feature_params() -> [Param; 2] {
    [
        choice("feature", &["snapshot", "clone", "copy"]),
        snapname().optional(),
    ]
}
