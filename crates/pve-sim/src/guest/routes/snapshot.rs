//! The endpoints of snapshots, which VMs and containers share.

use super::{AUDIT, ON_GUEST, SNAPSHOT, snapname};
use crate::guest::{Kind, snapshot};
use crate::permission::{Perm, all, any};
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, flag, text};

/// Endpoints of snapshots of one kind of guest.
pub(super) fn routes(kind: Kind) -> Vec<Route> {
    let rollback = any(ON_GUEST, &["VM.Snapshot", "VM.Snapshot.Rollback"]);
    let show = any(
        ON_GUEST,
        &["VM.Snapshot", "VM.Snapshot.Rollback", "VM.Audit"],
    );
    let routes = match kind {
        Kind::Qemu => vec![
            get("/nodes/{node}/qemu/{vmid}/snapshot", |call| {
                snapshot::list(call, Kind::Qemu)
            }),
            post("/nodes/{node}/qemu/{vmid}/snapshot", |call| {
                snapshot::take(call, Kind::Qemu)
            })
            .params([flag("vmstate")]),
            get(
                "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}",
                snapshot::index,
            ),
            delete("/nodes/{node}/qemu/{vmid}/snapshot/{snapname}", |call| {
                snapshot::delete(call, Kind::Qemu)
            }),
            get(
                "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/config",
                |call| snapshot::show(call, Kind::Qemu),
            ),
            put(
                "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/config",
                |call| snapshot::describe(call, Kind::Qemu),
            ),
            post(
                "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback",
                |call| snapshot::rollback(call, Kind::Qemu),
            ),
        ],
        Kind::Lxc => vec![
            get("/nodes/{node}/lxc/{vmid}/snapshot", |call| {
                snapshot::list(call, Kind::Lxc)
            }),
            post("/nodes/{node}/lxc/{vmid}/snapshot", |call| {
                snapshot::take(call, Kind::Lxc)
            }),
            get(
                "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}",
                snapshot::index,
            ),
            delete("/nodes/{node}/lxc/{vmid}/snapshot/{snapname}", |call| {
                snapshot::delete(call, Kind::Lxc)
            }),
            get(
                "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}/config",
                |call| snapshot::show(call, Kind::Lxc),
            ),
            put(
                "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}/config",
                |call| snapshot::describe(call, Kind::Lxc),
            ),
            post(
                "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}/rollback",
                |call| snapshot::rollback(call, Kind::Lxc),
            ),
        ],
    };
    let perms = [
        all(ON_GUEST, AUDIT),
        all(ON_GUEST, SNAPSHOT),
        Perm::User,
        all(ON_GUEST, SNAPSHOT),
        show,
        all(ON_GUEST, SNAPSHOT),
        rollback,
    ];
    let params: [Vec<Param>; 7] = [
        vec![],
        vec![snapname(), text("description").optional()],
        vec![snapname()],
        vec![snapname(), flag("force")],
        vec![snapname()],
        vec![snapname(), text("description").optional()],
        vec![snapname(), flag("start")],
    ];
    routes
        .into_iter()
        .zip(perms)
        .zip(params)
        .map(|((route, perm), params)| route.perm(perm).params(params))
        .collect()
}
