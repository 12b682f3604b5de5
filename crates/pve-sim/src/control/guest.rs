//! Guests under `/sim/guests/{vmid}/…`: what happens inside them.
//!
//! | call | effect |
//! |---|---|
//! | `GET` | interfaces and quirks |
//! | `PUT quirks` | misbehaviour from now on (`ignore-acpi`, `hang-at-boot`, `no-agent`, `keep-devices`, `keep-memory`, `boot-seconds`) |
//! | `POST hang`, `crash`, `kill`, `reboot` | the system hangs or panics, the process dies, the system reboots |
//! | `POST rescue` `{"node": "…"}` | somebody gives the guest of a lost node to another |
//! | `POST fill` `{"bytes": n}` | the guest writes to its first disk |
//! | `PUT script` `{"command": "…", "exit": 0, "out": "…"}` | the answer to a command run through the agent |
//! | `PUT file` `{"path": "…", "content": "…"}` | a file the agent can read |

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::guest::control::NoGuest;
use crate::guest::live::{Process, Quirks};

type Outcome = Result<Value, (StatusCode, String)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fill {
    bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rescue {
    node: String,
}

#[derive(Deserialize)]
struct Script {
    command: String,
    #[serde(flatten)]
    answer: Process,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    path: String,
    content: String,
}

/// Answers a call below `/sim/guests/`.
pub(crate) fn act(cluster: &Cluster, method: &Method, path: &[&str], body: &[u8]) -> Outcome {
    let [id, rest @ ..] = path else {
        return Err(unknown(method, path));
    };
    let vmid: u32 = id
        .parse()
        .map_err(|_| (StatusCode::BAD_REQUEST, format!("no id '{id}'")))?;
    let done = match (method, rest) {
        (&Method::GET, []) => {
            let interfaces = cluster.interfaces(vmid).map_err(missing)?;
            let quirks = cluster.quirks(vmid).map_err(missing)?;
            return Ok(json!({ "interfaces": interfaces, "quirks": quirks }));
        }
        (&Method::PUT, ["quirks"]) => {
            let quirks: Quirks = serde_json::from_slice(body).map_err(bad)?;
            cluster.set_quirks(vmid, quirks)
        }
        (&Method::POST, ["hang"]) => cluster.hang_guest(vmid),
        (&Method::POST, ["crash"]) => cluster.crash_guest(vmid),
        (&Method::POST, ["kill"]) => cluster.kill_guest(vmid),
        (&Method::POST, ["reboot"]) => cluster.reboot_inside(vmid),
        (&Method::POST, ["rescue"]) => {
            let rescue: Rescue = serde_json::from_slice(body).map_err(bad)?;
            cluster.rescue_guest(vmid, &rescue.node)
        }
        (&Method::POST, ["fill"]) => {
            let fill: Fill = serde_json::from_slice(body).map_err(bad)?;
            cluster.fill_disk(vmid, fill.bytes)
        }
        (&Method::PUT, ["script"]) => {
            let script: Script = serde_json::from_slice(body).map_err(bad)?;
            cluster.script(vmid, &script.command, script.answer)
        }
        (&Method::PUT, ["file"]) => {
            let file: File = serde_json::from_slice(body).map_err(bad)?;
            cluster.put_file(vmid, &file.path, file.content.as_bytes())
        }
        _ => return Err(unknown(method, path)),
    };
    done.map(|()| Value::Null).map_err(missing)
}

fn unknown(method: &Method, path: &[&str]) -> (StatusCode, String) {
    let text = format!("no control '{method} /sim/guests/{}'", path.join("/"));
    (StatusCode::NOT_FOUND, text)
}

fn missing(error: NoGuest) -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, error.to_string())
}

fn bad(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, error.to_string())
}
