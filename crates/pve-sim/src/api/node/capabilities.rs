//! `/nodes/{node}/capabilities`: processor and machine types guests can have.

use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::patterns::vm_cpu_flags;
use crate::permission::{Perm, all, any};
use crate::release::Release;
use crate::route::{Route, get};
use crate::schema::choice;

const INTEL: &[&str] = &[
    "Broadwell",
    "Cascadelake-Server",
    "Cooperlake",
    "GraniteRapids",
    "Haswell",
    "Icelake-Server",
    "IvyBridge",
    "Nehalem",
    "SandyBridge",
    "SapphireRapids",
    "SierraForest",
    "Skylake-Server",
    "Westmere",
];
const AMD: &[&str] = &[
    "EPYC",
    "EPYC-Genoa",
    "EPYC-Milan",
    "EPYC-Rome",
    "Opteron_G4",
    "Opteron_G5",
];
const PLAIN: &[&str] = &[
    "host",
    "kvm64",
    "max",
    "qemu64",
    "x86-64-v2",
    "x86-64-v2-AES",
    "x86-64-v3",
    "x86-64-v4",
];
const VERSIONS: &[&str] = &["10.1", "10.0", "9.2", "9.1", "9.0", "8.2", "8.1", "8.0"];

pub(super) fn routes(release: Release) -> Vec<Route> {
    let arch = || {
        release
            .is_9()
            .then(|| choice("arch", &["x86_64", "aarch64"]).optional())
    };
    let mut routes = vec![
        get("/nodes/{node}/capabilities", |_| {
            Ok(json!([{ "name": "qemu" }]).into())
        })
        .perm(Perm::User),
        get("/nodes/{node}/capabilities/qemu", |_| {
            Ok(json!([{ "name": "cpu" }, { "name": "machines" }, { "name": "migration" }]).into())
        })
        .perm(Perm::User),
        get("/nodes/{node}/capabilities/qemu/cpu", cpu)
            .perm(Perm::User)
            .params(arch()),
        get("/nodes/{node}/capabilities/qemu/machines", machines)
            .perm(Perm::User)
            .params(arch()),
    ];
    if release.is_9() {
        let accel = || choice("accel", &["kvm", "tcg"]).optional();
        routes.extend([
            get("/nodes/{node}/capabilities/qemu/cpu-flags", |call| {
                let node = call.node();
                Ok(flags(&[&node]))
            })
            .perm(Perm::User)
            .params(arch())
            .params([accel()]),
            get("/nodes/{node}/capabilities/qemu/migration", |_| {
                Ok(json!({ "has-dbus-vmstate": 1 }).into())
            })
            .perm(all("/nodes/{node}", &["Sys.Audit"])),
            get("/cluster/qemu/cpu-flags", |call| {
                let nodes: Vec<&String> = call.world.nodes.keys().collect();
                Ok(flags(&nodes))
            })
            .perm(Perm::Or(vec![
                all("/nodes", &["Sys.Audit"]),
                any(
                    "/mapping/cpu",
                    &["Mapping.Audit", "Mapping.Use", "Mapping.Modify"],
                ),
            ]))
            .params(arch())
            .params([accel()]),
        ]);
    }
    routes
}

fn flags(nodes: &[&String]) -> Reply {
    let rows = vm_cpu_flags(Release::V9_2)
        .iter()
        .map(|name| json!({ "name": name, "supported-on": nodes }));
    rows.collect::<Value>().into()
}

const ARM: &[&str] = &[
    "cortex-a53",
    "cortex-a57",
    "cortex-a72",
    "cortex-a76",
    "neoverse-n1",
    "neoverse-v1",
];

fn cpu(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let of = |names: &'static [&'static str], vendor: &'static str| {
        names
            .iter()
            .map(move |name| json!({ "name": name, "vendor": vendor, "custom": 0 }))
    };
    if call.params.get("arch") == Some("aarch64") {
        let all = of(&["host", "max"], "default").chain(of(ARM, "ARM"));
        return Ok(all.collect::<Value>().into());
    }
    let all = of(PLAIN, "default")
        .chain(of(INTEL, "GenuineIntel"))
        .chain(of(AMD, "AuthenticAMD"));
    Ok(all.collect::<Value>().into())
}

fn machines(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let newest = if call.world.release.is_9() {
        "10.1"
    } else {
        "9.2"
    };
    let known = VERSIONS.iter().skip_while(|version| **version != newest);
    if call.params.get("arch") == Some("aarch64") {
        let rows = known.map(|version| {
            json!({ "id": format!("virt-{version}"), "type": "virt", "version": version })
        });
        return Ok(rows.collect::<Value>().into());
    }
    let rows = known.flat_map(|version| {
        [("i440fx", "pc-i440fx"), ("q35", "pc-q35")].map(|(kind, prefix)| {
            json!({ "id": format!("{prefix}-{version}"), "type": kind, "version": version })
        })
    });
    Ok(rows.collect::<Value>().into())
}
