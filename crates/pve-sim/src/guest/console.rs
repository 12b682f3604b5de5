//! Consoles: tickets for VNC and terminal proxies.
//!
//! PVE starts a proxy process that waits ten seconds for a client and answers with the port and the
//! ticket to present there. There is no screen behind it here, so every proxy ends unvisited.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::RngExt as _;
use serde_json::json;

use super::{Kind, read};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::task::Task;

const CLIENT_WAIT: Duration = Duration::from_secs(10);

/// `POST …/vncproxy`
pub(crate) fn vnc(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    proxy(call, kind, "vncproxy", true)
}

/// `POST …/termproxy`
pub(crate) fn terminal(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let guest = read::guest(call, kind)?;
    let has_port = guest
        .config
        .current
        .keys()
        .any(|o| super::options::is(o, "serial"));
    if kind == Kind::Qemu && !has_port {
        return Err(Failure::die("unable to find a serial interface"));
    }
    proxy(call, kind, "vncproxy", false)
}

fn proxy(
    call: &mut Call<'_>,
    kind: Kind,
    task: &'static str,
    certificate: bool,
) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    read::guest(call, kind)?;
    let secret: [u8; 32] = call.world.rng.random();
    let ticket = format!(
        "PVEVNC:{:08X}::{}",
        call.world.now(),
        STANDARD.encode(secret)
    );
    let port = call.world.rng.random_range(5900..6000_u16);
    let work = Task::new(&node, task, vmid, call.caller, move |worker| async move {
        worker.log(format!("starting vnc proxy on port {port}"));
        worker.sleep(CLIENT_WAIT).await?;
        Err(Failure::die("connection timed out"))
    });
    let upid = call.cluster.start_in(call.world, work);
    let mut answer = json!({
        "user": call.caller.id(),
        "ticket": ticket,
        "port": port.to_string(),
        "upid": upid.to_string(),
    });
    if certificate {
        answer["cert"] = json!("");
    }
    Ok(Reply::Data(answer))
}
