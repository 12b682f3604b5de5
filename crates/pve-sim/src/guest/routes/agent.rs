//! The endpoints of the guest agent.

use super::ON_GUEST;
use crate::guest::agent;
use crate::permission::{Perm, all, any};
use crate::release::Release;
use crate::route::{Route, get, post};
use crate::schema::{array, choice, flag, int, text};

/// Privileges of agent commands: one for everything on 8, graded on 9.
fn agent_perm(release: Release, command: &str) -> Perm {
    if !release.is_9() {
        return all(ON_GUEST, &["VM.Monitor"]);
    }
    match command {
        "exec" | "exec-status" | "set-user-password" => {
            all(ON_GUEST, &["VM.GuestAgent.Unrestricted"])
        }
        // The command comes as a parameter here, and PVE names the one privilege twice.
        "" => any(
            ON_GUEST,
            &["VM.GuestAgent.Unrestricted", "VM.GuestAgent.Unrestricted"],
        ),
        "file-read" => any(
            ON_GUEST,
            &["VM.GuestAgent.FileRead", "VM.GuestAgent.Unrestricted"],
        ),
        "file-write" => any(
            ON_GUEST,
            &["VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted"],
        ),
        "fsfreeze-freeze" | "fsfreeze-thaw" | "fstrim" => any(
            ON_GUEST,
            &["VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.Unrestricted"],
        ),
        "fsfreeze-status" => any(
            ON_GUEST,
            &[
                "VM.GuestAgent.Audit",
                "VM.GuestAgent.FileSystemMgmt",
                "VM.GuestAgent.Unrestricted",
            ],
        ),
        "shutdown" | "suspend-disk" | "suspend-hybrid" | "suspend-ram" => {
            any(ON_GUEST, &["VM.PowerMgmt", "VM.GuestAgent.Unrestricted"])
        }
        _ => any(
            ON_GUEST,
            &["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"],
        ),
    }
}

/// Paths of plain agent commands, which must be known when the program is built.
const AGENT_PATHS: &[(&str, &str, bool)] = &[
    (
        "fsfreeze-freeze",
        "/nodes/{node}/qemu/{vmid}/agent/fsfreeze-freeze",
        true,
    ),
    (
        "fsfreeze-status",
        "/nodes/{node}/qemu/{vmid}/agent/fsfreeze-status",
        true,
    ),
    (
        "fsfreeze-thaw",
        "/nodes/{node}/qemu/{vmid}/agent/fsfreeze-thaw",
        true,
    ),
    ("fstrim", "/nodes/{node}/qemu/{vmid}/agent/fstrim", true),
    (
        "get-fsinfo",
        "/nodes/{node}/qemu/{vmid}/agent/get-fsinfo",
        false,
    ),
    (
        "get-host-name",
        "/nodes/{node}/qemu/{vmid}/agent/get-host-name",
        false,
    ),
    (
        "get-memory-block-info",
        "/nodes/{node}/qemu/{vmid}/agent/get-memory-block-info",
        false,
    ),
    (
        "get-memory-blocks",
        "/nodes/{node}/qemu/{vmid}/agent/get-memory-blocks",
        false,
    ),
    (
        "get-osinfo",
        "/nodes/{node}/qemu/{vmid}/agent/get-osinfo",
        false,
    ),
    (
        "get-time",
        "/nodes/{node}/qemu/{vmid}/agent/get-time",
        false,
    ),
    (
        "get-timezone",
        "/nodes/{node}/qemu/{vmid}/agent/get-timezone",
        false,
    ),
    (
        "get-users",
        "/nodes/{node}/qemu/{vmid}/agent/get-users",
        false,
    ),
    (
        "get-vcpus",
        "/nodes/{node}/qemu/{vmid}/agent/get-vcpus",
        false,
    ),
    ("info", "/nodes/{node}/qemu/{vmid}/agent/info", false),
    (
        "network-get-interfaces",
        "/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces",
        false,
    ),
    ("ping", "/nodes/{node}/qemu/{vmid}/agent/ping", true),
    ("shutdown", "/nodes/{node}/qemu/{vmid}/agent/shutdown", true),
    (
        "suspend-disk",
        "/nodes/{node}/qemu/{vmid}/agent/suspend-disk",
        true,
    ),
    (
        "suspend-hybrid",
        "/nodes/{node}/qemu/{vmid}/agent/suspend-hybrid",
        true,
    ),
    (
        "suspend-ram",
        "/nodes/{node}/qemu/{vmid}/agent/suspend-ram",
        true,
    ),
];

/// Endpoints of the agent.
pub(super) fn routes(release: Release) -> Vec<Route> {
    let mut routes: Vec<Route> = AGENT_PATHS
        .iter()
        .zip(agent::ENDPOINTS)
        .map(|((name, path, posts), (_, handler))| {
            let route = if *posts {
                post(path, *handler)
            } else {
                get(path, *handler)
            };
            route
                .perm(agent_perm(release, name))
                .protected()
                .without_quorum()
        })
        .collect();
    let mut on_read = vec![text("file")];
    if release.is_9() {
        on_read.extend([
            int("count").min(1).max(16_777_216).optional(),
            int("offset").min(0).optional(),
            flag("decode"),
        ]);
    }
    let of = |command: &str| agent_perm(release, command);
    routes.extend([
        get("/nodes/{node}/qemu/{vmid}/agent", agent::index).perm(Perm::User),
        post("/nodes/{node}/qemu/{vmid}/agent", agent::command)
            .perm(of(""))
            .params([choice("command", &agent::COMMANDS)])
            .without_quorum(),
        post("/nodes/{node}/qemu/{vmid}/agent/exec", agent::exec)
            .perm(of("exec"))
            .params([
                array("command"),
                text("input-data").max_len(65_536).optional(),
            ])
            .without_quorum(),
        get(
            "/nodes/{node}/qemu/{vmid}/agent/exec-status",
            agent::exec_status,
        )
        .perm(of("exec-status"))
        .params([int("pid")])
        .protected(),
        get(
            "/nodes/{node}/qemu/{vmid}/agent/file-read",
            agent::file_read,
        )
        .perm(of("file-read"))
        .params(on_read)
        .protected(),
        post(
            "/nodes/{node}/qemu/{vmid}/agent/file-write",
            agent::file_write,
        )
        .perm(of("file-write"))
        .params([
            text("file"),
            text("content").max_len(61_440),
            flag("encode"),
        ])
        .without_quorum(),
        post(
            "/nodes/{node}/qemu/{vmid}/agent/set-user-password",
            agent::set_password,
        )
        .perm(of("set-user-password"))
        .params([
            text("username"),
            text("password").min_len(5).max_len(1024),
            flag("crypted"),
        ])
        .without_quorum(),
    ]);
    routes
}
