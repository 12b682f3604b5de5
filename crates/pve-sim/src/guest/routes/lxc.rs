//! The endpoints of containers.

use super::{
    ALLOCATE, AUDIT, CONSOLE, DISK, MIGRATE, ON_GUEST, POWER, bwlimit, clone_params, clone_perm,
    feature_params, of_snapshot, rrd_params, storage,
};
use crate::guest::{Kind, console, destroy, lxc, migrate, patterns, read, volumes};
use crate::permission::{Perm, all, any};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{flag, format, guest_digest, int, one_of, text, vmid};

const LXC_CONFIG: &[&str] = &[
    "VM.Config.Disk",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
];

/// `rootfs` and the mount points.
fn mounts() -> Vec<String> {
    let points = (0..256).map(|number| format!("mp{number}"));
    std::iter::once("rootfs".to_owned()).chain(points).collect()
}

fn unused() -> impl Iterator<Item = String> {
    (0..256).map(|number| format!("unused{number}"))
}

/// Endpoints of containers.
pub(super) fn routes(release: Release) -> Vec<Route> {
    let mut on_create = lxc::options::lxc(release);
    on_create.extend([
        vmid("vmid"),
        text("ostemplate").max_len(255),
        bwlimit(),
        flag("force"),
        flag("ignore-unpack-errors"),
        text("password").min_len(5).optional(),
        text("pool").format(format::POOL).optional(),
        flag("restore"),
        text("ssh-public-keys").optional(),
        flag("start"),
        storage(),
        flag("unique").requires("restore"),
    ]);
    if release.is_9() {
        on_create.push(flag("ha-managed"));
    }
    let mut on_put = lxc::options::lxc(release);
    on_put.extend([
        text("delete").format(format::CONFIG_ID_LIST).optional(),
        text("revert").format(format::CONFIG_ID_LIST).optional(),
        guest_digest(),
    ]);
    let mut on_clone = clone_params();
    on_clone.push(text("hostname").format(format::DNS_NAME).optional());
    let config = "/nodes/{node}/lxc/{vmid}/config";
    let perm = || all(ON_GUEST, POWER);
    let mut routes = vec![
        get("/nodes/{node}/lxc", lxc::api::list)
            .perm(Perm::User)
            .protected(),
        post("/nodes/{node}/lxc", lxc::create::create)
            .perm(Perm::User)
            .params(on_create),
        get("/nodes/{node}/lxc/{vmid}", lxc::api::index).perm(Perm::User),
        delete("/nodes/{node}/lxc/{vmid}", |call| {
            destroy::destroy(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, ALLOCATE))
        .params([
            flag("purge"),
            flag("force"),
            flag("destroy-unreferenced-disks"),
        ]),
        get(config, lxc::api::config)
            .perm(all(ON_GUEST, AUDIT))
            .params([flag("current"), of_snapshot()]),
        put(config, lxc::api::put)
            .perm(any(ON_GUEST, LXC_CONFIG))
            .params(on_put),
        get("/nodes/{node}/lxc/{vmid}/pending", lxc::api::pending).perm(all(ON_GUEST, AUDIT)),
        post("/nodes/{node}/lxc/{vmid}/clone", lxc::clone::clone)
            .perm(clone_perm())
            .params(on_clone),
        put("/nodes/{node}/lxc/{vmid}/resize", lxc::volumes::resize)
            .perm(all(ON_GUEST, DISK))
            .params([
                one_of("disk", mounts()),
                text("size").pattern(patterns::new_size),
                guest_digest(),
            ]),
        post(
            "/nodes/{node}/lxc/{vmid}/move_volume",
            lxc::volumes::move_volume,
        )
        .perm(all(ON_GUEST, DISK))
        .params([
            one_of("volume", mounts().into_iter().chain(unused())),
            vmid("target-vmid").optional(),
            one_of("target-volume", mounts().into_iter().chain(unused())).optional(),
            text("target-digest").max_len(40).optional(),
            storage(),
            flag("delete"),
            bwlimit(),
            guest_digest(),
        ]),
        post("/nodes/{node}/lxc/{vmid}/template", |call| {
            volumes::template(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, ALLOCATE)),
        get("/nodes/{node}/lxc/{vmid}/feature", |call| {
            volumes::feature(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, AUDIT))
        .params(feature_params())
        .protected(),
        get("/nodes/{node}/lxc/{vmid}/interfaces", lxc::api::interfaces)
            .perm(all(ON_GUEST, AUDIT))
            .protected(),
        get("/nodes/{node}/lxc/{vmid}/rrddata", read::rrddata)
            .perm(all(ON_GUEST, AUDIT))
            .params(rrd_params()),
        post("/nodes/{node}/lxc/{vmid}/migrate", |call| {
            migrate::migrate(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, MIGRATE))
        .params([
            text("target").format(format::NODE),
            flag("online"),
            flag("restart"),
            text("target-storage")
                .format(format::storage::STORAGE_PAIRS)
                .optional(),
            int("timeout").optional(),
            bwlimit(),
        ]),
        post("/nodes/{node}/lxc/{vmid}/vncproxy", |call| {
            console::vnc(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, CONSOLE))
        .params([
            flag("websocket"),
            int("width").min(16).max(4096).optional(),
            int("height").min(16).max(2160).optional(),
        ]),
        post("/nodes/{node}/lxc/{vmid}/termproxy", |call| {
            console::terminal(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, CONSOLE)),
        get("/nodes/{node}/lxc/{vmid}/vncwebsocket", |call| {
            console::websocket(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, CONSOLE))
        .params(super::websocket_params()),
    ];
    routes.extend([
        get("/nodes/{node}/lxc/{vmid}/status", lxc::api::status_index).perm(Perm::User),
        get("/nodes/{node}/lxc/{vmid}/status/current", lxc::api::current)
            .perm(all(ON_GUEST, AUDIT))
            .protected(),
        post(
            "/nodes/{node}/lxc/{vmid}/status/start",
            lxc::power::start_call,
        )
        .perm(perm())
        .params([flag("skiplock"), flag("debug")]),
        post("/nodes/{node}/lxc/{vmid}/status/stop", lxc::power::stop)
            .perm(perm())
            .params([flag("skiplock"), flag("overrule-shutdown")]),
        post(
            "/nodes/{node}/lxc/{vmid}/status/shutdown",
            lxc::power::shutdown,
        )
        .perm(perm())
        .params([flag("forceStop"), int("timeout").min(0).optional()]),
        post("/nodes/{node}/lxc/{vmid}/status/reboot", lxc::power::reboot)
            .perm(perm())
            .params([int("timeout").min(0).optional()]),
        post(
            "/nodes/{node}/lxc/{vmid}/status/suspend",
            lxc::power::suspend,
        )
        .perm(perm()),
        post("/nodes/{node}/lxc/{vmid}/status/resume", lxc::power::resume).perm(perm()),
    ]);
    if release.is_9() {
        routes.push(
            get(
                "/nodes/{node}/lxc/{vmid}/migrate",
                migrate::container_precondition,
            )
            .perm(all(ON_GUEST, MIGRATE))
            .protected()
            .params([text("target").format(format::NODE).optional()]),
        );
    }
    routes
}
