//! The endpoints that act on all guests of a node, and the consoles of nodes.

use crate::guest::{bulk, console};
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, post};
use crate::schema::{Param, choice, flag, format, int, text};

/// Endpoints of many guests.
pub(super) fn routes(release: Release) -> Vec<Route> {
    let vms = || text("vms").format(format::VMID_LIST).optional();
    // Since 9 a call may say how many guests are worked on at a time.
    let workers = || {
        release
            .is_9()
            .then(|| int("max-workers").min(1).max(64).optional())
    };
    let shell = || all("/nodes/{node}", &["Sys.Console"]);
    vec![
        post("/nodes/{node}/startall", bulk::start)
            .perm(Perm::User)
            .params([vms(), flag("force")])
            .params(workers()),
        post("/nodes/{node}/stopall", bulk::stop)
            .perm(Perm::User)
            .params([
                vms(),
                flag("force-stop"),
                int("timeout").min(0).max(7200).optional(),
            ])
            .params(workers()),
        post("/nodes/{node}/suspendall", bulk::suspend)
            .perm(Perm::User)
            .params([vms()])
            .params(workers()),
        post("/nodes/{node}/migrateall", bulk::migrate)
            .perm(Perm::User)
            .params([
                vms(),
                text("target").format(format::NODE),
                flag("with-local-disks"),
                int("maxworkers").min(1).max(64).optional(),
            ])
            .params(workers()),
        post("/nodes/{node}/termproxy", console::node_terminal)
            .perm(shell())
            .params(commands(release)),
        post("/nodes/{node}/vncshell", console::node_vnc)
            .perm(shell())
            .params(commands(release))
            .params([
                flag("websocket"),
                int("width").min(16).max(4096).optional(),
                int("height").min(16).max(2160).optional(),
            ]),
    ]
}

fn commands(release: Release) -> [Param; 2] {
    let known = if release.is_9() {
        ["ceph_install", "login", "upgrade"]
    } else {
        ["ceph_install", "upgrade", "login"]
    };
    [
        choice("cmd", &known).optional(),
        text("cmd-opts").requires("cmd").optional(),
    ]
}
