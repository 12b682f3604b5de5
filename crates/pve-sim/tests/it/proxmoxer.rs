//! Python's `proxmoxer`, the client most scripts use, drives the simulator unchanged.
//!
//! The test makes a virtual environment of its own in the user's cache, with pinned versions.
//! Where Python or its package index is missing it says so and passes, except in CI.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pve_sim::{Latency, Server, Simulator, Tls};

const PACKAGES: [&str; 2] = ["proxmoxer==2.2.0", "requests==2.32.5"];

const SCRIPT: &str = r#"
import sys, time
from proxmoxer import ProxmoxAPI
from proxmoxer.tools import Tasks
port = int(sys.argv[1])
api = ProxmoxAPI("127.0.0.1", port=port, user="root@pam", password="oxmox", verify_ssl=False)
node = api.nodes("pve1")
def done(upid):
    status = Tasks.blocking_status(api, upid, timeout=60, polling_interval=0.05)
    assert status and status["exitstatus"] == "OK", status
vmid = int(api.cluster.nextid.get())
done(node.qemu.post(vmid=vmid, name="made", memory=1024, cores=2, scsi0="local-lvm:1", net0="virtio,bridge=vmbr0"))
config = node.qemu(vmid).config.get()
assert config["name"] == "made" and config["memory"] == "1024", config
copy = vmid + 1
done(node.qemu(9000).clone.post(newid=copy, name="copy", full=0))
node.qemu(copy).config.put(tags="b;a", description="two\nlines")
assert node.qemu(copy).config.get()["tags"] == "a;b"
done(node.qemu(copy).status.start.post())
assert node.qemu(copy).status.current.get()["status"] == "running"
done(node.qemu(copy).snapshot.post(snapname="before"))
assert "before" in [s["name"] for s in node.qemu(copy).snapshot.get()]
done(node.qemu(copy).status.stop.post())
done(node.qemu(copy).delete(purge=1))
done(node.qemu(vmid).delete())
left = [vm["vmid"] for vm in node.qemu.get()]
assert vmid not in left and copy not in left, left
try:
    node.qemu(copy).config.get()
    raise SystemExit("a deleted guest still has a configuration")
except Exception as error:
    assert "does not exist" in str(error), error
print("done")
"#;

fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    base.unwrap_or_else(std::env::temp_dir)
        .join("oxmox-tests")
        .join("proxmoxer-2.2.0")
}

/// The interpreter of the environment, made on first use.
fn python() -> Result<PathBuf, String> {
    let home = cache();
    let python = home.join("bin").join("python");
    let ready = home.join("ready");
    if ready.exists() && python.exists() {
        return Ok(python);
    }
    let run = |command: &mut Command| {
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    };
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&home))?;
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet"])
        .args(PACKAGES))?;
    std::fs::write(&ready, "").map_err(|error| error.to_string())?;
    Ok(python)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmoxer_creates_clones_starts_snapshots_stops_and_deletes() {
    let python = match tokio::task::spawn_blocking(python).await.unwrap() {
        Ok(python) => python,
        Err(why) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "CI needs Python with proxmoxer: {why}"
            );
            println!(
                "skipped: no Python environment with proxmoxer ({})",
                why.lines().last().unwrap_or("")
            );
            return;
        }
    };
    let simulator = Simulator::builder().latency(Latency::real()).build();
    let cluster = simulator.clusters().next().unwrap();
    let tls = Tls::self_signed(&["127.0.0.1".to_owned()]).unwrap();
    let loopback = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(cluster.endpoint("pve1"), loopback, Some(tls))
        .await
        .unwrap();
    let port = server.address().port().to_string();
    let output = tokio::task::spawn_blocking(move || {
        Command::new(python)
            .args(["-W", "ignore", "-c", SCRIPT, &port])
            .output()
            .unwrap()
    });
    let output = output.await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "done");
}
