//! `/nodes/{node}/status`: what a host is and how it does.

use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::all;
use crate::route::{Route, get, post};
use crate::schema::choice;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/nodes/{node}/status", read).perm(all("/nodes/{node}", &["Sys.Audit"])),
        post("/nodes/{node}/status", command)
            .perm(all("/nodes/{node}", &["Sys.PowerMgmt"]))
            .without_quorum()
            .params([choice("command", &["reboot", "shutdown"])]),
    ]
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.node();
    let world = &*call.world;
    let node = world.node(&name)?;
    let usage = world.node_usage(&name);
    let kernel = if world.release.is_9() {
        "6.17.2-1-pve"
    } else {
        "6.8.12-15-pve"
    };
    let free = node.memory.saturating_sub(usage.mem);
    let mut memory = json!({ "total": node.memory, "used": usage.mem, "free": free });
    if world.release.is_9() {
        memory["available"] = json!(free);
    }
    let load = usage.cpu * f64::from(node.cpus);
    let data: Value = json!({
        "uptime": world.now().saturating_sub(node.started),
        "cpu": usage.cpu, "wait": 0, "idle": 0,
        "loadavg": [format!("{load:.2}"), format!("{load:.2}"), format!("{load:.2}")],
        "memory": memory,
        "swap": { "total": 0, "used": 0, "free": 0 },
        "rootfs": {
            "total": node.disk, "used": node.disk / 20, "free": node.disk - node.disk / 20,
            "avail": node.disk - node.disk / 20,
        },
        "ksm": { "shared": 0 },
        "cpuinfo": {
            "cpus": node.cpus, "cores": node.cores / node.sockets.max(1), "sockets": node.sockets,
            "model": "AMD EPYC 7302 16-Core Processor", "vendor": "AuthenticAMD", "family": 23,
            "mhz": "3000.000", "hvm": "1", "user_hz": 100,
            "flags": "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat svm avx2",
        },
        "kversion": format!("Linux {kernel} #1 SMP PREEMPT_DYNAMIC"),
        "current-kernel": {
            "sysname": "Linux", "release": kernel, "version": "#1 SMP PREEMPT_DYNAMIC",
            "machine": "x86_64",
        },
        "boot-info": { "mode": "efi", "secureboot": 0 },
        "pveversion": format!("pve-manager/{}/{}", world.release.version(), world.release.repoid()),
    });
    Ok(data.into())
}

fn command(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let reboot = call.params.text("command") == "reboot";
    let cluster = call.cluster.clone();
    call.cluster.tracker().spawn(async move {
        cluster.kill_node(&node);
        if reboot {
            tokio::time::sleep(std::time::Duration::from_mins(1)).await;
            cluster.revive_node(&node);
        }
    });
    Ok(Reply::null())
}
