//! The endpoints that act on all guests of a node, and the consoles of nodes.

use crate::api::index;
use crate::guest::{bulk, console};
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, get, post};
use crate::schema::{Param, array, choice, flag, format, int, text};

/// Endpoints of many guests.
pub(super) fn routes(release: Release) -> Vec<Route> {
    let vms = || text("vms").format(format::VMID_LIST).optional();
    // Since 9 a call may say how many guests are worked on at a time.
    let workers = || {
        release
            .is_9()
            .then(|| int("max-workers").min(1).max(64).optional())
    };
    let mut routes = anywhere(release);
    let shell = || all("/nodes/{node}", &["Sys.Console"]);
    routes.extend([
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
    ]);
    routes
}

/// Guests of all nodes at once, since 9.
fn anywhere(release: Release) -> Vec<Route> {
    if !release.is_9() {
        return Vec::new();
    }
    let common = || {
        [
            array("vms").format(format::VMID).optional(),
            int("max-workers").min(1).max(64).optional(),
            int("maxworkers").min(1).max(64).optional(),
        ]
    };
    vec![
        get("/cluster/bulk-action", |_| Ok(index("name", &["guest"]))).perm(Perm::User),
        get("/cluster/bulk-action/guest", |_| {
            let names = ["migrate", "shutdown", "start", "suspend"];
            Ok(index("name", &names))
        })
        .perm(Perm::User),
        post("/cluster/bulk-action/guest/start", bulk::start_anywhere)
            .perm(Perm::User)
            .params(common())
            .params([int("timeout").optional()]),
        post("/cluster/bulk-action/guest/shutdown", bulk::stop_anywhere)
            .perm(Perm::User)
            .params(common())
            .params([flag("force-stop"), int("timeout").optional()]),
        post("/cluster/bulk-action/guest/suspend", bulk::suspend_anywhere)
            .perm(Perm::User)
            .params(common())
            .params([
                flag("to-disk"),
                text("statestorage")
                    .format(format::STORAGE)
                    .requires("to-disk")
                    .optional(),
            ]),
        post("/cluster/bulk-action/guest/migrate", bulk::migrate_anywhere)
            .perm(Perm::User)
            .params(common())
            .params([
                text("target").format(format::NODE),
                flag("online"),
                flag("with-local-disks"),
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
