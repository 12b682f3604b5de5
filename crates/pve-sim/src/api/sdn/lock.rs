//! `/cluster/sdn/lock`, `/cluster/sdn/rollback`: changing networks alone, and giving changes up. Since 9.
//!
//! Whoever takes the lock gets a token; until it is given back, every change needs that token. PVE
//! says the same of a missing, a wrong and a spare token.

use serde_json::json;

use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::all;
use crate::release::Release;
use crate::route::{Route, delete, post};
use crate::schema::{Param, flag, text};

/// The token a change may have to bring.
pub(super) fn token(release: Release) -> Option<Param> {
    release.is_9().then(|| text("lock-token").optional())
}

pub(super) fn routes(release: Release) -> Vec<Route> {
    if !release.is_9() {
        return Vec::new();
    }
    let allocate = || all("/sdn", &["SDN.Allocate"]);
    vec![
        post("/cluster/sdn/lock", acquire)
            .perm(allocate())
            .params([flag("allow-pending")]),
        delete("/cluster/sdn/lock", release_lock)
            .perm(allocate())
            .params(token(release))
            .params([flag("force")]),
        post("/cluster/sdn/rollback", rollback)
            .perm(allocate())
            .params(token(release))
            .params([flag("release-lock")]),
    ]
}

/// Fails unless the caller holds the lock, or nobody does.
pub(super) fn check(call: &Call<'_>, failed: &str) -> Result<(), Failure> {
    if call.world.sdn.lock.as_deref() == call.params.get("lock-token") {
        return Ok(());
    }
    Err(Failure::die(format!(
        "{failed}: invalid lock token provided! at /usr/share/perl5/PVE/Network/SDN.pm line 305."
    )))
}

/// Gives the lock back, if the caller asks for it: the default of the schema is not applied.
pub(super) fn release_if_asked(call: &mut Call<'_>) {
    if call.params.flag("release-lock") {
        call.world.sdn.lock = None;
    }
}

fn acquire(call: &mut Call<'_>) -> Result<Reply, Failure> {
    check(call, "Could not acquire global lock")?;
    if !call.params.flag("allow-pending") && call.world.sdn.is_pending() {
        return Err(Failure::die(
            "Could not acquire global lock: configuration already has pending changes",
        ));
    }
    let token = call.world.uuid();
    call.world.sdn.lock = Some(token.clone());
    Ok(json!(token).into())
}

fn release_lock(call: &mut Call<'_>) -> Result<Reply, Failure> {
    if !call.params.flag("force") {
        check(call, "Could not release lock")?;
    }
    call.world.sdn.lock = None;
    Ok(Reply::null())
}

fn rollback(call: &mut Call<'_>) -> Result<Reply, Failure> {
    check(call, "Could not rollback SDN configuration")?;
    call.world.sdn.rollback();
    release_if_asked(call);
    Ok(Reply::null())
}
