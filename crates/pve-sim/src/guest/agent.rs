//! The QEMU guest agent: what the system inside says about itself, and what can be done in it.
//!
//! A guest without the option has no channel; one that does not run has no process; one whose system
//! is not up does not answer, which PVE notices after three seconds during which the call keeps its
//! daemon worker. Otherwise the system inside answers.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::live::{Inside, Interface, Machine, Process, System};
use super::{Guest, Kind, power, read};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::world::World;

/// How long PVE waits for an answer to its ping.
const PING_WAIT: Duration = Duration::from_secs(3);

/// Commands of `POST agent`, which have endpoints of their own too.
pub(crate) const COMMANDS: [&str; 20] = [
    "fsfreeze-freeze",
    "fsfreeze-status",
    "fsfreeze-thaw",
    "fstrim",
    "get-fsinfo",
    "get-host-name",
    "get-memory-block-info",
    "get-memory-blocks",
    "get-osinfo",
    "get-time",
    "get-timezone",
    "get-users",
    "get-vcpus",
    "info",
    "network-get-interfaces",
    "ping",
    "shutdown",
    "suspend-disk",
    "suspend-hybrid",
    "suspend-ram",
];

/// What a call does once the agent answers.
type Act = fn(&mut World, u32, &crate::params::Params) -> Result<Value, Failure>;

/// Checks that the agent is there, then acts.
fn with_agent(call: &mut Call<'_>, act: Act) -> Result<Reply, Failure> {
    let vmid = call.vmid();
    let guest = read::guest(call, Kind::Qemu)?;
    if !power::agent_enabled(guest) {
        return Err(Failure::die("No QEMU guest agent configured"));
    }
    if !guest.is_running() {
        return Err(Failure::die(format!("VM {vmid} is not running")));
    }
    if answers(guest) {
        return act(call.world, vmid, &call.params).map(Reply::Data);
    }
    Ok(Reply::later(|_| async {
        tokio::time::sleep(PING_WAIT).await;
        Err(Failure::die("QEMU guest agent is not running"))
    }))
}

/// Whether the agent inside answers.
pub(crate) fn answers(guest: &Guest) -> bool {
    let up = guest
        .run
        .as_ref()
        .is_some_and(|run| run.inside == Inside::Up && run.state == Machine::Running);
    up && guest.system.as_ref().is_some_and(|system| system.agent)
}

fn agent_error(text: &str) -> Failure {
    Failure::die(format!("Agent error: {text}"))
}

fn system(world: &mut World, vmid: u32) -> Result<&mut System, Failure> {
    world
        .guests
        .get_mut(vmid)
        .and_then(|guest| guest.system.as_mut())
        .ok_or_else(|| Failure::die("QEMU guest agent is not running"))
}

/// `POST agent`
pub(crate) fn command(call: &mut Call<'_>) -> Result<Reply, Failure> {
    with_agent(call, |world, vmid, params| {
        let name = params.text("command").to_owned();
        simple(world, vmid, &name)
    })
}

/// `GET agent`: what is below.
pub(crate) fn index(_call: &mut Call<'_>) -> Result<Reply, Failure> {
    let others = [
        "exec",
        "exec-status",
        "file-read",
        "file-write",
        "set-user-password",
    ];
    let names = COMMANDS.iter().chain(&others);
    Ok(Reply::Data(
        names.map(|name| json!({ "name": name })).collect(),
    ))
}

macro_rules! endpoints {
    ($($function:ident => $name:literal),* $(,)?) => {
        $(
            #[doc = concat!("`agent/", $name, "`")]
            pub(crate) fn $function(call: &mut Call<'_>) -> Result<Reply, Failure> {
                with_agent(call, |world, vmid, _| simple(world, vmid, $name))
            }
        )*
        /// The endpoints of plain commands by name.
        pub(crate) const ENDPOINTS: &[(&str, crate::call::Handler)] = &[$(($name, $function)),*];
    };
}

endpoints! {
    freeze => "fsfreeze-freeze",
    freeze_status => "fsfreeze-status",
    thaw => "fsfreeze-thaw",
    trim => "fstrim",
    filesystems => "get-fsinfo",
    host_name => "get-host-name",
    memory_block_info => "get-memory-block-info",
    memory_blocks => "get-memory-blocks",
    os_info => "get-osinfo",
    time => "get-time",
    time_zone => "get-timezone",
    users => "get-users",
    processors => "get-vcpus",
    info => "info",
    interfaces => "network-get-interfaces",
    ping => "ping",
    shutdown => "shutdown",
    suspend_disk => "suspend-disk",
    suspend_hybrid => "suspend-hybrid",
    suspend_ram => "suspend-ram",
}

/// Answers a command without parameters.
fn simple(world: &mut World, vmid: u32, command: &str) -> Result<Value, Failure> {
    let result = match command {
        "ping" => json!({}),
        "info" => {
            let commands: Vec<Value> = COMMANDS
                .iter()
                .map(|name| {
                    json!({ "name": format!("guest-{name}"), "enabled": true, "success-response": true })
                })
                .collect();
            json!({ "version": "8.2.2", "supported_commands": commands })
        }
        "network-get-interfaces" => {
            let system = system(world, vmid)?;
            system.interfaces.iter().map(shown_interface).collect()
        }
        "get-host-name" => json!({ "host-name": system(world, vmid)?.hostname }),
        "get-osinfo" => os_release(world, vmid)?,
        "get-time" => json!(world.now() * 1_000_000_000),
        "get-timezone" => json!({ "zone": "UTC", "offset": 0 }),
        "get-users" | "get-memory-blocks" => json!([]),
        "get-vcpus" => vcpus(world, vmid),
        "get-fsinfo" => filesystem(world, vmid),
        "get-memory-block-info" => json!({ "size": 134_217_728 }),
        "fsfreeze-status" => {
            json!(if system(world, vmid)?.frozen {
                "frozen"
            } else {
                "thawed"
            })
        }
        "fsfreeze-freeze" => {
            system(world, vmid)?.frozen = true;
            json!(1)
        }
        "fsfreeze-thaw" => {
            let system = system(world, vmid)?;
            let thawed = u8::from(std::mem::take(&mut system.frozen));
            json!(thawed)
        }
        "fstrim" => json!({ "paths": [{ "path": "/", "trimmed": 0, "minimum": 0 }] }),
        "shutdown" => {
            power::halt(world, vmid);
            return Ok(Value::Null);
        }
        _ => return Err(agent_error("The command has not been found")),
    };
    Ok(json!({ "result": result }))
}

fn shown_interface(interface: &Interface) -> Value {
    let addresses: Vec<Value> = interface
        .addresses
        .iter()
        .map(|(address, prefix)| {
            let family = if matches!(address, IpAddr::V4(_)) { "ipv4" } else { "ipv6" };
            json!({ "ip-address": address.to_string(), "ip-address-type": family, "prefix": prefix })
        })
        .collect();
    json!({
        "name": interface.name,
        "hardware-address": interface.mac,
        "ip-addresses": addresses,
        "statistics": {
            "rx-bytes": 0, "rx-dropped": 0, "rx-errs": 0, "rx-packets": 0,
            "tx-bytes": 0, "tx-dropped": 0, "tx-errs": 0, "tx-packets": 0,
        },
    })
}

fn os_release(world: &mut World, vmid: u32) -> Result<Value, Failure> {
    let name = system(world, vmid)?.image.clone();
    let image = world.guests.images.get(&name).cloned().unwrap_or_default();
    Ok(json!({
        "id": image.id,
        "name": image.name,
        "pretty-name": format!("{} {}", image.name, image.version),
        "version": image.version,
        "version-id": image.version,
        "kernel-release": "6.8.0-60-generic",
        "kernel-version": "#63-Ubuntu SMP PREEMPT_DYNAMIC",
        "machine": "x86_64",
    }))
}

fn vcpus(world: &World, vmid: u32) -> Value {
    let count = world
        .guests
        .get(vmid)
        .map_or(1, |guest| super::view::usage(world, guest).maxcpu);
    (0..count)
        .map(|id| json!({ "logical-id": id, "online": true, "can-offline": id > 0 }))
        .collect()
}

/// One root file system that fills the boot disk.
fn filesystem(world: &World, vmid: u32) -> Value {
    let Some(guest) = world.guests.get(vmid) else {
        return json!([]);
    };
    let total = super::view::boot_size(guest);
    let used = super::create::drives(&guest.config.current)
        .find(|(_, drive)| !drive.is_cdrom())
        .and_then(|(_, drive)| {
            world
                .storages
                .volume(&guest.node, drive.volume()?)
                .ok()
                .map(|volume| volume.used)
        })
        .unwrap_or(0);
    json!([{
        "name": "sda1",
        "mountpoint": "/",
        "type": "ext4",
        "total-bytes": total,
        "used-bytes": used.min(total),
        "disk": [],
    }])
}

/// `POST agent/exec`
pub(crate) fn exec(call: &mut Call<'_>) -> Result<Reply, Failure> {
    with_agent(call, |world, vmid, params| {
        let words: Vec<String> = params
            .array("command")
            .into_iter()
            .map(str::to_owned)
            .collect();
        let pid = u64::from(world.tasks.pid());
        let system = system(world, vmid)?;
        let process = run_inside(system, &words)?;
        system.processes.insert(pid, process);
        Ok(json!({ "pid": pid }))
    })
}

/// Runs a command: a prepared answer, or one of the few the simulated systems know.
fn run_inside(system: &System, words: &[String]) -> Result<Process, Failure> {
    let line = words.join(" ");
    if let Some(script) = system.scripts.get(&line) {
        return Ok(script.clone());
    }
    let done = |out: &str| Process {
        exit: 0,
        out: out.to_owned(),
        err: String::new(),
    };
    let program = words.first().map(String::as_str).unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    match (name, words.get(1).map(String::as_str)) {
        ("true" | "sync" | "systemctl" | "sh" | "bash", _) => Ok(done("")),
        ("echo", _) => Ok(done(&format!("{}\n", words[1..].join(" ")))),
        ("hostname", _) => Ok(done(&format!("{}\n", system.hostname))),
        ("cloud-init", Some("status")) if line.contains("json") => Ok(done(
            "{\"status\": \"done\", \"extended_status\": \"done\", \"errors\": []}\n",
        )),
        ("cloud-init", Some("status")) => Ok(done("status: done\n")),
        ("cat", Some(path)) => Ok(match system.files.get(path) {
            Some(bytes) => done(&String::from_utf8_lossy(bytes)),
            None => Process {
                exit: 1,
                out: String::new(),
                err: format!("cat: {path}: No such file or directory\n"),
            },
        }),
        ("false", _) => Ok(Process {
            exit: 1,
            ..Process::default()
        }),
        _ => Err(agent_error(&format!(
            "Guest agent command failed, error was 'Failed to execute child process \u{201c}{program}\u{201d} (No such file or directory)'"
        ))),
    }
}

/// `GET agent/exec-status`
pub(crate) fn exec_status(call: &mut Call<'_>) -> Result<Reply, Failure> {
    with_agent(call, |world, vmid, params| {
        let pid = params.uint("pid").unwrap_or_default();
        let system = system(world, vmid)?;
        let process = system
            .processes
            .remove(&pid)
            .ok_or_else(|| agent_error(&format!("PID {pid} does not exist")))?;
        let mut answer = json!({ "exited": 1, "exitcode": process.exit });
        if !process.out.is_empty() {
            answer["out-data"] = json!(process.out);
        }
        if !process.err.is_empty() {
            answer["err-data"] = json!(process.err);
        }
        Ok(answer)
    })
}

/// `GET agent/file-read`
pub(crate) fn file_read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    with_agent(call, |world, vmid, params| {
        let path = params.text("file").to_owned();
        let (offset, count) = (params.uint("offset"), params.uint("count"));
        let decode = params.bool("decode").unwrap_or(true);
        let system = system(world, vmid)?;
        let bytes = system.files.get(&path).ok_or_else(|| {
            agent_error(&format!(
                "failed to open file '{path}' (mode: 'r'): No such file or directory"
            ))
        })?;
        let start = usize::try_from(offset.unwrap_or(0))
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let length = usize::try_from(count.unwrap_or(16 << 20)).unwrap_or(usize::MAX);
        let part = &bytes[start..start.saturating_add(length).min(bytes.len())];
        let content = if decode {
            String::from_utf8_lossy(part).into_owned()
        } else {
            STANDARD.encode(part)
        };
        let mut answer = json!({ "content": content, "bytes-read": part.len() });
        if start + part.len() < bytes.len() {
            answer["truncated"] = json!(1);
        }
        Ok(answer)
    })
}

/// `POST agent/file-write`
pub(crate) fn file_write(call: &mut Call<'_>) -> Result<Reply, Failure> {
    with_agent(call, |world, vmid, params| {
        let path = params.text("file").to_owned();
        let text = params.text("content");
        let bytes = if params.bool("encode").unwrap_or(true) {
            text.as_bytes().to_vec()
        } else {
            STANDARD.decode(text).map_err(|_| {
                agent_error("Guest agent command failed, error was 'invalid base64'")
            })?
        };
        system(world, vmid)?.files.insert(path, bytes);
        Ok(Value::Null)
    })
}

/// `POST agent/set-user-password`
pub(crate) fn set_password(call: &mut Call<'_>) -> Result<Reply, Failure> {
    with_agent(call, |world, vmid, _| {
        system(world, vmid)?;
        Ok(json!({ "result": {} }))
    })
}
