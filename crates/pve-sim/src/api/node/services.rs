//! `/nodes/{node}/services`: the programs a node runs.

use serde_json::{Value, json};

use crate::call::{Call, Handler, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::permission::all;
use crate::release::Release;
use crate::route::{Route, get, post};
use crate::schema::{Param, one_of};

/// Services of every release.
const COMMON: &[&str] = &[
    "chrony",
    "corosync",
    "cron",
    "ksmtuned",
    "postfix",
    "pve-cluster",
    "pve-firewall",
    "pve-ha-crm",
    "pve-ha-lrm",
    "pvedaemon",
    "pvefw-logger",
    "pveproxy",
    "pvescheduler",
    "pvestatd",
    "spiceproxy",
    "sshd",
    "syslog",
    "systemd-journald",
    "systemd-timesyncd",
];
/// Those that 9 shows beside them.
const SINCE_9: &[&str] = &["lxcfs", "proxmox-firewall", "pve-lxc-syscalld", "qmeventd"];
/// Installed, but not in use.
const ABSENT: &[&str] = &["pve-lxc-syscalld", "systemd-timesyncd"];

fn names(release: Release) -> Vec<&'static str> {
    let more = if release.is_9() { SINCE_9 } else { &[] };
    let mut all: Vec<&str> = COMMON.iter().chain(more).copied().collect();
    all.sort_unstable();
    all
}

pub(super) fn routes(release: Release) -> Vec<Route> {
    let audit = || all("/nodes/{node}", &["Sys.Audit"]);
    let modify = || all("/nodes/{node}", &["Sys.Modify"]);
    let service = || -> [Param; 1] {
        let names = names(release).into_iter().map(str::to_owned);
        [one_of("service", names)]
    };
    let mut routes = vec![
        get("/nodes/{node}/services", |call| {
            let names = names(call.world.release);
            let rows: Result<Vec<Value>, Failure> =
                names.iter().map(|name| show(call, name)).collect();
            Ok(Value::Array(rows?).into())
        })
        .perm(audit())
        .protected(),
        get("/nodes/{node}/services/{service}", |_| {
            let acts = ["state", "start", "stop", "restart", "reload"];
            Ok(acts
                .map(|act| json!({ "subdir": act }))
                .into_iter()
                .collect::<Value>()
                .into())
        })
        .perm(audit())
        .params(service()),
        get("/nodes/{node}/services/{service}/state", |call| {
            Ok(show(call, call.params.text("service"))?.into())
        })
        .perm(audit())
        .protected()
        .params(service()),
    ];
    let acts: [(&'static str, Handler); 4] = [
        ("/nodes/{node}/services/{service}/start", |call| {
            Ok(act(call, "srvstart", true))
        }),
        ("/nodes/{node}/services/{service}/stop", |call| {
            Ok(act(call, "srvstop", false))
        }),
        ("/nodes/{node}/services/{service}/restart", |call| {
            Ok(act(call, "srvrestart", true))
        }),
        ("/nodes/{node}/services/{service}/reload", |call| {
            Ok(act(call, "srvreload", true))
        }),
    ];
    routes.extend(
        acts.into_iter()
            .map(|(path, handler)| post(path, handler).perm(modify()).params(service())),
    );
    routes
}

fn show(call: &Call<'_>, name: &str) -> Result<Value, Failure> {
    let node = call.world.node(call.params.text("node"))?;
    let (state, active, unit) = if ABSENT.contains(&name) {
        ("dead", "inactive", "not-found")
    } else if node.stopped.contains(name) {
        ("dead", "inactive", "enabled")
    } else {
        ("running", "active", "enabled")
    };
    Ok(json!({
        "service": name, "name": name, "desc": name, "state": state,
        "active-state": active, "unit-state": unit,
    }))
}

/// Services the API itself lives in are restarted instead of stopped.
fn act(call: &Call<'_>, kind: &'static str, runs: bool) -> Reply {
    let (node, service) = (call.node(), call.params.text("service").to_owned());
    let id = service.clone();
    call.task(kind, id, move |worker| async move {
        if !runs && ["pve-cluster", "pvedaemon", "pveproxy"].contains(&service.as_str()) {
            let text = format!("invalid service cmd 'stop': {service} is needed by the API");
            return Err(Failure::die(text));
        }
        if ABSENT.contains(&service.as_str()) {
            let text = format!(
                "command 'systemctl {} {service}' failed: exit code 5",
                &kind[3..]
            );
            return Err(Failure::die(text));
        }
        worker.take(Step::Nothing).await?;
        worker.world(|world| {
            if let Some(node) = world.nodes.get_mut(&node) {
                if runs {
                    node.stopped.remove(&service);
                } else {
                    node.stopped.insert(service);
                }
            }
        });
        Ok(())
    })
}
