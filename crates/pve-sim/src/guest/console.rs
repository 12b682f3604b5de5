//! Consoles: tickets for VNC, SPICE and terminal proxies, key strokes, the monitor.
//!
//! PVE starts a proxy process that waits ten seconds for a client and answers with the port and the
//! ticket to present there; a WebSocket leads to it. What is behind it: [`crate::console`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::RngExt as _;
use serde_json::{Value, json};

use super::configure::root_only;
use super::live::Machine;
use super::{Guest, Kind, options, read};
use crate::call::{Call, Reply};
use crate::console::Show;
use crate::failure::Failure;
use crate::task::Task;

/// `POST …/vncproxy`
pub(crate) fn vnc(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    read::guest(call, kind)?;
    let mut answer = proxy(call, "vncproxy", &call.vmid().to_string(), Show::Screen);
    answer["cert"] = json!("");
    if call.params.flag("generate-password") {
        let secret: [u8; 6] = call.world.rng.random();
        answer["password"] = json!(STANDARD.encode(secret));
    }
    Ok(Reply::Data(answer))
}

/// `POST …/termproxy`
pub(crate) fn terminal(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let guest = read::guest(call, kind)?;
    let mut ports = guest
        .config
        .current
        .keys()
        .filter(|o| options::is(o, "serial"));
    if kind == Kind::Qemu {
        match call.params.get("serial") {
            Some(port) if guest.config.get(port).is_none() => {
                return Err(Failure::die(format!(
                    "unable to find serial interface '{port}'"
                )));
            }
            None if ports.next().is_none() => {
                return Err(Failure::die("unable to find a serial interface"));
            }
            _ => {}
        }
    }
    Ok(Reply::Data(proxy(
        call,
        "vncproxy",
        &call.vmid().to_string(),
        Show::Serial,
    )))
}

/// `POST /nodes/{node}/termproxy`
pub(crate) fn node_terminal(call: &mut Call<'_>) -> Result<Reply, Failure> {
    for_root(call)?;
    Ok(Reply::Data(proxy(call, "vncshell", "", Show::Serial)))
}

/// `POST /nodes/{node}/vncshell`
pub(crate) fn node_vnc(call: &mut Call<'_>) -> Result<Reply, Failure> {
    for_root(call)?;
    let mut answer = proxy(call, "vncshell", "", Show::Screen);
    answer["cert"] = json!("");
    Ok(Reply::Data(answer))
}

/// Everything but a login prompt is a root shell.
fn for_root(call: &Call<'_>) -> Result<(), Failure> {
    let asks = call.params.get("cmd").is_some_and(|cmd| cmd != "login");
    if asks && !call.caller.is_root() {
        return Err(Failure::denied("user != root@pam"));
    }
    Ok(())
}

/// Starts a proxy that waits for its visitor.
fn proxy(call: &mut Call<'_>, task: &'static str, id: &str, show: Show) -> Value {
    let node = call.node();
    let secret: [u8; 32] = call.world.rng.random();
    let now = call.world.now();
    let ticket = format!("PVEVNC:{now:08X}::{}", STANDARD.encode(secret));
    let port = call.world.rng.random_range(5900..6000_u16);
    let user = call.caller.id();
    let place = (node.clone(), port);
    let vmid = id.parse().unwrap_or_default();
    let proxy = call.world.consoles.wait(place, vmid, &user, &ticket, show);
    let work = Task::new(&node, task, id, call.caller, move |worker| async move {
        worker.log(format!("starting vnc proxy on port {port}"));
        proxy.serve(worker).await
    });
    let upid = call.cluster.start_in(call.world, work);
    json!({
        "user": user, "ticket": ticket, "port": port.to_string(), "upid": upid.to_string(),
    })
}

/// `GET …/vncwebsocket`
pub(crate) fn websocket(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    read::guest(call, kind)?;
    let vmid = call.vmid();
    let port = call.params.text("port").parse().unwrap_or_default();
    let ticket = call.params.text("vncticket").to_owned();
    let user = call.caller.id();
    let place = (call.node(), port);
    let pipe = call.world.consoles.visit(&place, vmid, &user, &ticket)?;
    Ok(Reply::Tunnel(pipe, port))
}

fn running<'a>(call: &'a Call<'_>) -> Result<&'a Guest, Failure> {
    let guest = read::guest(call, Kind::Qemu)?;
    if guest.is_running() {
        Ok(guest)
    } else {
        Err(Failure::die(format!("VM {} not running", call.vmid())))
    }
}

/// `POST …/spiceproxy`
pub(crate) fn spice(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let guest = running(call)?;
    let card = guest.config.get("vga").unwrap_or_default();
    let card = card.split(',').next().unwrap_or_default();
    if !card.trim_start_matches("type=").starts_with("qxl") {
        return Err(Failure::die("VM has no SPICE compatible graphics card"));
    }
    let title = format!("VM {vmid} - {}", guest.name());
    let secret: [u8; 16] = call.world.rng.random();
    let proxy = match call.params.get("proxy") {
        Some(proxy) => proxy.to_owned(),
        None => call.world.node(&node)?.ip.clone(),
    };
    let now = call.world.now();
    Ok(Reply::Data(json!({
        "type": "spice", "title": title, "proxy": format!("http://{proxy}:3128"),
        "host": format!("pvespiceproxy:{now:08X}:{vmid}:{node}::{}", STANDARD.encode(secret)),
        "tls-port": 61_000, "password": STANDARD.encode(secret), "delete-this-file": 1,
        "secure-attention": "Ctrl+Alt+Ins", "toggle-fullscreen": "Shift+F11",
        "release-cursor": "Ctrl+Alt+R",
    })))
}

/// `PUT …/sendkey`
pub(crate) fn send_key(call: &mut Call<'_>) -> Result<Reply, Failure> {
    root_only(call, &["skiplock"])?;
    let vmid = call.vmid();
    running(call)?;
    let key = call.params.text("key");
    let known = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if let Some(bad) = key.split('-').find(|part| !known(part)) {
        return Err(Failure::die(format!(
            "VM {vmid} qmp command 'human-monitor-command' failed - invalid parameter: {bad}"
        )));
    }
    Ok(Reply::null())
}

/// `POST …/monitor`: the few commands whose answer follows from what is simulated.
pub(crate) fn monitor(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let guest = read::guest(call, Kind::Qemu)?;
    if !guest.is_running() {
        // What the monitor cannot do is told as its answer.
        let text = format!("ERROR: VM {} not running\n", call.vmid());
        return Ok(Reply::Data(json!(text)));
    }
    let command = call.params.text("command").trim();
    let paused = guest
        .run
        .as_ref()
        .is_some_and(|run| run.state == Machine::Paused);
    let text = match command {
        "info status" if paused => "VM status: paused\n".to_owned(),
        "info status" => "VM status: running\n".to_owned(),
        "info version" => "10.1.2 (pve-qemu-kvm)\n".to_owned(),
        "info name" => format!("{}\n", guest.name()),
        "info kvm" if guest.config.get("kvm") == Some("0") => "kvm support: disabled\n".to_owned(),
        "info kvm" => "kvm support: enabled\n".to_owned(),
        "info balloon" => {
            let memory = guest
                .config
                .get("memory")
                .map_or(512, super::create::memory_of);
            format!("balloon: actual={memory} max_mem={memory}\n")
        }
        other => format!("unknown command: '{other}'\n"),
    };
    Ok(Reply::Data(json!(text)))
}
