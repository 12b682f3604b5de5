//! `/nodes/{node}/apt`: packages and where they come from.
//!
//! A simulated host is always up to date; which of the vendor's repositories it uses can be changed.

use serde_json::{Value, json};

use super::node_mut;
use crate::api::index;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::permission::{Perm, all};
use crate::route::{Route, get, post, put};
use crate::schema::{flag, format, int, text};
use crate::world::World;

/// The vendor's repositories: handle, name, component.
const STANDARD: &[(&str, &str, &str)] = &[
    ("enterprise", "Enterprise", "pve-enterprise"),
    ("no-subscription", "No-Subscription", "pve-no-subscription"),
    ("test", "Test", "pve-test"),
];

pub(super) fn routes() -> Vec<Route> {
    let audit = || all("/nodes/{node}", &["Sys.Audit"]);
    let modify = || all("/nodes/{node}", &["Sys.Modify"]);
    let seen = || text("digest").max_len(80).optional();
    vec![
        get("/nodes/{node}/apt", |_| {
            Ok(index(
                "id",
                &["changelog", "repositories", "update", "versions"],
            ))
        })
        .perm(Perm::User),
        get("/nodes/{node}/apt/versions", versions).perm(audit()),
        get("/nodes/{node}/apt/update", |_| Ok(json!([]).into()))
            .perm(modify())
            .protected(),
        post("/nodes/{node}/apt/update", |call| {
            Ok(call.task("aptupdate", "", |worker| async move {
                worker.log("starting apt-get update");
                worker.take(Step::Nothing).await?;
                worker.log("Reading package lists...");
                Ok(())
            }))
        })
        .perm(modify())
        .params([flag("notify"), flag("quiet")]),
        get("/nodes/{node}/apt/changelog", changelog)
            .perm(modify())
            .params([text("name").pattern(is_package), text("version").optional()]),
        get("/nodes/{node}/apt/repositories", repositories).perm(audit()),
        put("/nodes/{node}/apt/repositories", add)
            .perm(modify())
            .params([text("handle"), seen()]),
        post("/nodes/{node}/apt/repositories", switch)
            .perm(modify())
            .params([text("path"), int("index"), flag("enabled"), seen()]),
    ]
}

fn is_package(value: &str) -> bool {
    value.len() > 1
        && format::word(
            value,
            |c| c.is_ascii_lowercase() || c.is_ascii_digit(),
            |c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-+.:".contains(c),
        )
}

/// Packages of a host with their versions; the first one is the whole.
fn packages(world: &World) -> Vec<(&'static str, String)> {
    let own = world.release.version();
    let (kernel, qemu, server) = if world.release.is_9() {
        ("6.17.2-1", "10.1.2-4", "9.2.6")
    } else {
        ("6.8.12-15", "9.2.0-7", "8.4.2")
    };
    let major = own.split_once('.').map_or(own, |(major, _)| major);
    vec![
        ("proxmox-ve", format!("{major}.0.0")),
        ("pve-manager", own.to_owned()),
        ("proxmox-kernel-signed", kernel.to_owned()),
        ("pve-qemu-kvm", qemu.to_owned()),
        ("qemu-server", server.to_owned()),
    ]
}

fn versions(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let manager = format!(
        "{}/{}",
        call.world.release.version(),
        call.world.release.repoid()
    );
    let rows = packages(call.world).into_iter().map(|(name, version)| {
        let mut row = json!({
            "Package": name, "Title": name, "Description": name, "Version": version,
            "OldVersion": version, "CurrentState": "Installed", "Arch": "amd64",
            "Origin": "Proxmox", "Priority": "optional", "Section": "admin",
        });
        if name == "pve-manager" {
            row["ManagerVersion"] = json!(manager);
        }
        row
    });
    Ok(rows.collect::<Value>().into())
}

fn changelog(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("name");
    let known = packages(call.world);
    let Some((name, version)) = known.iter().find(|(known, _)| *known == name) else {
        return Err(Failure::die(format!("no such package '{name}'")));
    };
    Ok(json!(format!("{name} ({version}) simulated; urgency=medium\n")).into())
}

/// Which of the vendor's repositories a node has, and whether they are on.
fn state(call: &Call<'_>) -> Result<Vec<(&'static str, bool)>, Failure> {
    let node = call.world.node(call.params.text("node"))?;
    let known = STANDARD.iter().filter_map(|(handle, _, component)| {
        let given = node.repositories.get(*handle).copied();
        // A fresh host has the enterprise repository.
        let enabled = given.or_else(|| (*handle == "enterprise").then_some(true))?;
        Some((*component, enabled))
    });
    Ok(known.collect())
}

/// The file of the vendor's repositories.
fn path(world: &World) -> &'static str {
    if world.release.is_9() {
        "/etc/apt/sources.list.d/proxmox.sources"
    } else {
        "/etc/apt/sources.list.d/pve.list"
    }
}

fn repositories(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let state = state(call)?;
    let (suite, kind) = if call.world.release.is_9() {
        ("trixie", "sources")
    } else {
        ("bookworm", "list")
    };
    let listed = state.iter().map(|(component, enabled)| {
        json!({
            "Enabled": u8::from(*enabled), "FileType": kind, "Types": ["deb"],
            "URIs": ["http://download.proxmox.com/debian/pve"], "Suites": [suite],
            "Components": [component],
        })
    });
    let listed: Value = listed.collect();
    let standard = STANDARD.iter().map(|(handle, name, component)| {
        let mut row = json!({ "handle": handle, "name": name });
        if let Some((_, enabled)) = state.iter().find(|(known, _)| known == component) {
            row["status"] = json!(u8::from(*enabled));
        }
        row
    });
    let standard: Value = standard.collect();
    let file = json!({
        "path": path(call.world), "file-type": kind, "digest": [0], "repositories": listed,
    });
    Ok(json!({
        "digest": crate::digest::of(&state), "errors": [], "infos": [], "files": [file],
        "standard-repos": standard,
    })
    .into())
}

fn add(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let state = state(call)?;
    crate::digest::check(call.params.get("digest"), &state)?;
    let handle = call.params.text("handle").to_owned();
    let known = STANDARD.iter().find(|(known, _, _)| *known == handle);
    let Some((_, _, component)) = known else {
        return Err(Failure::die(format!(
            "unknown repository handle '{handle}'"
        )));
    };
    if state.iter().any(|(known, on)| known == component && *on) {
        return Err(Failure::die("standard repository already configured"));
    }
    node_mut(call)?.repositories.insert(handle, true);
    Ok(Reply::null())
}

fn switch(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let state = state(call)?;
    crate::digest::check(call.params.get("digest"), &state)?;
    if call.params.text("path") != path(call.world) {
        let text = format!("unknown repository file '{}'", call.params.text("path"));
        return Err(Failure::die(text));
    }
    let at = call
        .params
        .uint("index")
        .and_then(|it| usize::try_from(it).ok());
    let Some((component, now)) = at.and_then(|at| state.get(at)) else {
        return Err(Failure::die("invalid index"));
    };
    let enabled = call.params.bool("enabled").unwrap_or(*now);
    let handle = STANDARD.iter().find(|(_, _, known)| known == component);
    if let Some((handle, _, _)) = handle {
        let repositories = &mut node_mut(call)?.repositories;
        repositories.insert((*handle).to_owned(), enabled);
    }
    Ok(Reply::null())
}
