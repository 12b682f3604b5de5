//! The endpoints of VMs, containers and backups.

use super::options::{self as qemu_options};
use super::{
    Kind, agent, backup, clone, configure, console, create, destroy, lxc, migrate, patterns,
};
use super::{power, read, snapshot, volumes};
use crate::permission::{Perm, all, any};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, array, choice, digest, flag, format, int, number, text, vmid};

const AUDIT: &[&str] = &["VM.Audit"];
const POWER: &[&str] = &["VM.PowerMgmt"];
const DISK: &[&str] = &["VM.Config.Disk"];
const ALLOCATE: &[&str] = &["VM.Allocate"];
const SNAPSHOT: &[&str] = &["VM.Snapshot"];
const MIGRATE: &[&str] = &["VM.Migrate"];
const CONSOLE: &[&str] = &["VM.Console"];
const ON_GUEST: &str = "/vms/{vmid}";

const QEMU_CONFIG: &[&str] = &[
    "VM.Config.Disk",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.HWType",
    "VM.Config.Options",
    "VM.Config.Cloudinit",
];
const LXC_CONFIG: &[&str] = &[
    "VM.Config.Disk",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
];

/// All endpoints of guests.
pub(crate) fn routes(release: Release) -> Vec<Route> {
    let mut all = qemu(release);
    all.extend(qemu_power(release));
    all.extend(qemu_disks());
    all.extend(snapshots(Kind::Qemu));
    all.extend(agents(release));
    all.extend(containers(release));
    all.extend(snapshots(Kind::Lxc));
    all.extend(backups(release));
    all
}

fn snapname() -> Param {
    text("snapname").format(format::CONFIG_ID).max_len(40)
}

fn of_snapshot() -> Param {
    text("snapshot")
        .format(format::CONFIG_ID)
        .max_len(40)
        .optional()
}

fn bwlimit() -> Param {
    number("bwlimit").min(0).optional()
}

fn storage() -> Param {
    text("storage").format(format::STORAGE).optional()
}

/// The rights a clone takes.
fn clone_perm() -> Perm {
    Perm::And(vec![
        all(ON_GUEST, &["VM.Clone"]),
        Perm::Or(vec![
            all("/vms/{newid}", ALLOCATE),
            all("/pool/{pool}", ALLOCATE),
        ]),
    ])
}

fn clone_params() -> Vec<Param> {
    vec![
        vmid("newid"),
        text("description").optional(),
        flag("full"),
        text("pool").format(format::POOL).optional(),
        snapname().optional(),
        storage(),
        text("target").format(format::NODE).optional(),
        bwlimit(),
    ]
}

fn config_params(release: Release) -> Vec<Param> {
    let mut params = qemu_options::qemu(release);
    params.extend([
        text("delete").format(format::CONFIG_ID_LIST).optional(),
        text("revert").format(format::CONFIG_ID_LIST).optional(),
        digest(),
        flag("force"),
        flag("skiplock"),
    ]);
    params
}

fn qemu(release: Release) -> Vec<Route> {
    let mut on_create = qemu_options::qemu(release);
    on_create.extend([
        vmid("vmid"),
        text("archive").max_len(255).optional(),
        int("bwlimit").min(0).optional(),
        flag("force").requires("archive"),
        text("import-working-storage")
            .format(format::STORAGE)
            .optional(),
        flag("live-restore"),
        text("pool").format(format::POOL).optional(),
        flag("start"),
        storage(),
        flag("unique").requires("archive"),
    ]);
    if release.is_9() {
        on_create.push(flag("ha-managed"));
    }
    let mut on_clone = clone_params();
    on_clone.extend([
        text("name").format(format::DNS_NAME).optional(),
        choice("format", &["raw", "qcow2", "vmdk"]).optional(),
    ]);
    let mut on_post = config_params(release);
    on_post.extend([
        int("background_delay").min(1).max(30).optional(),
        text("import-working-storage")
            .format(format::STORAGE)
            .optional(),
    ]);
    let config = "/nodes/{node}/qemu/{vmid}/config";
    vec![
        get("/nodes/{node}/qemu", read::list)
            .perm(Perm::User)
            .params([flag("full")])
            .protected(),
        post("/nodes/{node}/qemu", create::create)
            .perm(Perm::User)
            .params(on_create),
        get("/nodes/{node}/qemu/{vmid}", read::index).perm(Perm::User),
        delete("/nodes/{node}/qemu/{vmid}", |call| {
            destroy::destroy(call, Kind::Qemu)
        })
        .perm(all(ON_GUEST, ALLOCATE))
        .params([
            flag("purge"),
            flag("destroy-unreferenced-disks"),
            flag("skiplock"),
        ]),
        get(config, read::config)
            .perm(all(ON_GUEST, AUDIT))
            .params([flag("current"), of_snapshot()]),
        put(config, configure::put)
            .perm(any(ON_GUEST, QEMU_CONFIG))
            .params(config_params(release)),
        post(config, configure::post)
            .perm(any(ON_GUEST, QEMU_CONFIG))
            .params(on_post),
        get("/nodes/{node}/qemu/{vmid}/pending", read::pending).perm(all(ON_GUEST, AUDIT)),
        post("/nodes/{node}/qemu/{vmid}/clone", clone::clone)
            .perm(clone_perm())
            .params(on_clone),
        get("/nodes/{node}/qemu/{vmid}/cloudinit", read::cloud_init).perm(all(ON_GUEST, AUDIT)),
        put(
            "/nodes/{node}/qemu/{vmid}/cloudinit",
            read::cloud_init_update,
        )
        .perm(all(ON_GUEST, &["VM.Config.Cloudinit"])),
        get(
            "/nodes/{node}/qemu/{vmid}/cloudinit/dump",
            read::cloud_init_dump,
        )
        .perm(all(ON_GUEST, AUDIT))
        .params([choice("type", &["user", "network", "meta"])]),
        get("/nodes/{node}/qemu/{vmid}/rrddata", read::rrddata)
            .perm(all(ON_GUEST, AUDIT))
            .params(rrd_params()),
        get("/nodes/{node}/qemu/{vmid}/migrate", migrate::precondition)
            .perm(all(ON_GUEST, MIGRATE))
            .params([text("target").format(format::NODE).optional()])
            .protected(),
        post("/nodes/{node}/qemu/{vmid}/migrate", |call| {
            migrate::migrate(call, Kind::Qemu)
        })
        .perm(all(ON_GUEST, MIGRATE))
        .params(migrate_params(release)),
        post("/nodes/{node}/qemu/{vmid}/vncproxy", |call| {
            console::vnc(call, Kind::Qemu)
        })
        .perm(all(ON_GUEST, CONSOLE))
        .params([flag("websocket"), flag("generate-password")]),
        post("/nodes/{node}/qemu/{vmid}/termproxy", |call| {
            console::terminal(call, Kind::Qemu)
        })
        .perm(all(ON_GUEST, CONSOLE))
        .params([choice("serial", &["serial0", "serial1", "serial2", "serial3"]).optional()]),
    ]
}

fn rrd_params() -> [Param; 2] {
    [
        choice("timeframe", &["hour", "day", "week", "month", "year"]),
        choice("cf", &["AVERAGE", "MAX"]).optional(),
    ]
}

fn migrate_params(release: Release) -> Vec<Param> {
    let mut params = vec![
        text("target").format(format::NODE),
        flag("online"),
        flag("with-local-disks"),
        text("targetstorage").optional(),
        int("bwlimit").min(0).optional(),
        flag("force"),
        choice("migration_type", &["secure", "insecure"]).optional(),
        text("migration_network").format(format::CIDR).optional(),
    ];
    if release.is_9() {
        params.push(flag("with-conntrack-state"));
    }
    params
}

fn qemu_power(release: Release) -> Vec<Route> {
    let timeout = || int("timeout").min(0).optional();
    let mut on_start = vec![
        flag("skiplock"),
        timeout(),
        text("force-cpu").optional(),
        text("machine").optional(),
        text("migratedfrom").format(format::NODE).optional(),
        text("migration_network").format(format::CIDR).optional(),
        choice("migration_type", &["secure", "insecure"]).optional(),
        text("stateuri").max_len(128).optional(),
        text("targetstorage").optional(),
    ];
    if release.is_9() {
        on_start.extend([
            flag("with-conntrack-state"),
            text("nets-host-mtu").optional(),
        ]);
    }
    let perm = || all(ON_GUEST, POWER);
    vec![
        get("/nodes/{node}/qemu/{vmid}/status", read::status_index).perm(Perm::User),
        get("/nodes/{node}/qemu/{vmid}/status/current", read::current)
            .perm(all(ON_GUEST, AUDIT))
            .protected(),
        post("/nodes/{node}/qemu/{vmid}/status/start", power::start)
            .perm(perm())
            .params(on_start),
        post("/nodes/{node}/qemu/{vmid}/status/stop", power::stop)
            .perm(perm())
            .params([
                flag("skiplock"),
                flag("keepActive"),
                flag("overrule-shutdown"),
                text("migratedfrom").format(format::NODE).optional(),
                timeout(),
            ]),
        post("/nodes/{node}/qemu/{vmid}/status/shutdown", power::shutdown)
            .perm(perm())
            .params([
                flag("skiplock"),
                flag("keepActive"),
                flag("forceStop"),
                timeout(),
            ]),
        post("/nodes/{node}/qemu/{vmid}/status/reboot", power::reboot)
            .perm(perm())
            .params([timeout()]),
        post("/nodes/{node}/qemu/{vmid}/status/reset", power::reset)
            .perm(perm())
            .params([flag("skiplock")]),
        post("/nodes/{node}/qemu/{vmid}/status/suspend", power::suspend)
            .perm(perm())
            .params([
                flag("skiplock"),
                flag("todisk"),
                text("statestorage")
                    .format(format::STORAGE)
                    .requires("todisk")
                    .optional(),
            ]),
        post("/nodes/{node}/qemu/{vmid}/status/resume", power::resume)
            .perm(perm())
            .params([flag("skiplock"), flag("nocheck")]),
    ]
}

const DISKS: &[&str] = &[
    "ide0",
    "ide1",
    "ide2",
    "ide3",
    "scsi0",
    "scsi1",
    "scsi2",
    "scsi3",
    "scsi4",
    "scsi5",
    "scsi6",
    "scsi7",
    "scsi8",
    "scsi9",
    "scsi10",
    "scsi11",
    "scsi12",
    "scsi13",
    "scsi14",
    "scsi15",
    "scsi16",
    "scsi17",
    "scsi18",
    "scsi19",
    "scsi20",
    "scsi21",
    "scsi22",
    "scsi23",
    "scsi24",
    "scsi25",
    "scsi26",
    "scsi27",
    "scsi28",
    "scsi29",
    "scsi30",
    "virtio0",
    "virtio1",
    "virtio2",
    "virtio3",
    "virtio4",
    "virtio5",
    "virtio6",
    "virtio7",
    "virtio8",
    "virtio9",
    "virtio10",
    "virtio11",
    "virtio12",
    "virtio13",
    "virtio14",
    "virtio15",
    "sata0",
    "sata1",
    "sata2",
    "sata3",
    "sata4",
    "sata5",
    "efidisk0",
    "tpmstate0",
];

fn is_disk_or_unused(value: &str) -> bool {
    DISKS.contains(&value) || qemu_options::is(value, "unused")
}

fn qemu_disks() -> Vec<Route> {
    let disk = || all(ON_GUEST, DISK);
    vec![
        put("/nodes/{node}/qemu/{vmid}/resize", volumes::resize)
            .perm(disk())
            .params([
                choice("disk", DISKS),
                text("size").pattern(patterns::new_size),
                digest(),
                flag("skiplock"),
            ]),
        post("/nodes/{node}/qemu/{vmid}/move_disk", volumes::move_disk)
            .perm(disk())
            .params([
                text("disk").pattern(is_disk_or_unused),
                storage(),
                vmid("target-vmid").optional(),
                text("target-disk").pattern(is_disk_or_unused).optional(),
                choice("format", &["raw", "qcow2", "vmdk"]).optional(),
                flag("delete"),
                int("bwlimit").min(0).optional(),
                digest(),
                text("target-digest").max_len(40).optional(),
            ]),
        put("/nodes/{node}/qemu/{vmid}/unlink", configure::unlink)
            .perm(disk())
            .params([text("idlist").format(format::CONFIG_ID_LIST), flag("force")]),
        post("/nodes/{node}/qemu/{vmid}/template", |call| {
            volumes::template(call, Kind::Qemu)
        })
        .perm(all(ON_GUEST, ALLOCATE))
        .params([choice("disk", DISKS).optional()]),
        get("/nodes/{node}/qemu/{vmid}/feature", |call| {
            volumes::feature(call, Kind::Qemu)
        })
        .perm(all(ON_GUEST, AUDIT))
        .params(feature_params())
        .protected(),
    ]
}

fn feature_params() -> [Param; 2] {
    [
        choice("feature", &["snapshot", "clone", "copy"]),
        snapname().optional(),
    ]
}

fn snapshots(kind: Kind) -> Vec<Route> {
    let rollback = any(ON_GUEST, &["VM.Snapshot", "VM.Snapshot.Rollback"]);
    let show = any(
        ON_GUEST,
        &["VM.Snapshot", "VM.Snapshot.Rollback", "VM.Audit"],
    );
    let routes = match kind {
        Kind::Qemu => vec![
            get("/nodes/{node}/qemu/{vmid}/snapshot", |call| {
                snapshot::list(call, Kind::Qemu)
            }),
            post("/nodes/{node}/qemu/{vmid}/snapshot", |call| {
                snapshot::take(call, Kind::Qemu)
            })
            .params([flag("vmstate")]),
            get(
                "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}",
                snapshot::index,
            ),
            delete("/nodes/{node}/qemu/{vmid}/snapshot/{snapname}", |call| {
                snapshot::delete(call, Kind::Qemu)
            }),
            get(
                "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/config",
                |call| snapshot::show(call, Kind::Qemu),
            ),
            put(
                "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/config",
                |call| snapshot::describe(call, Kind::Qemu),
            ),
            post(
                "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback",
                |call| snapshot::rollback(call, Kind::Qemu),
            ),
        ],
        Kind::Lxc => vec![
            get("/nodes/{node}/lxc/{vmid}/snapshot", |call| {
                snapshot::list(call, Kind::Lxc)
            }),
            post("/nodes/{node}/lxc/{vmid}/snapshot", |call| {
                snapshot::take(call, Kind::Lxc)
            }),
            get(
                "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}",
                snapshot::index,
            ),
            delete("/nodes/{node}/lxc/{vmid}/snapshot/{snapname}", |call| {
                snapshot::delete(call, Kind::Lxc)
            }),
            get(
                "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}/config",
                |call| snapshot::show(call, Kind::Lxc),
            ),
            put(
                "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}/config",
                |call| snapshot::describe(call, Kind::Lxc),
            ),
            post(
                "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}/rollback",
                |call| snapshot::rollback(call, Kind::Lxc),
            ),
        ],
    };
    let perms = [
        all(ON_GUEST, AUDIT),
        all(ON_GUEST, SNAPSHOT),
        Perm::User,
        all(ON_GUEST, SNAPSHOT),
        show,
        all(ON_GUEST, SNAPSHOT),
        rollback,
    ];
    let params: [Vec<Param>; 7] = [
        vec![],
        vec![snapname(), text("description").optional()],
        vec![snapname()],
        vec![snapname(), flag("force")],
        vec![snapname()],
        vec![snapname(), text("description").optional()],
        vec![snapname(), flag("start")],
    ];
    routes
        .into_iter()
        .zip(perms)
        .zip(params)
        .map(|((route, perm), params)| route.perm(perm).params(params))
        .collect()
}

/// Privileges of agent commands: one for everything on 8, graded on 9.
fn agent_perm(release: Release, command: &str) -> Perm {
    if !release.is_9() {
        return all(ON_GUEST, &["VM.Monitor"]);
    }
    match command {
        "exec" | "exec-status" | "set-user-password" | "" => {
            all(ON_GUEST, &["VM.GuestAgent.Unrestricted"])
        }
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

fn agents(release: Release) -> Vec<Route> {
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

fn containers(release: Release) -> Vec<Route> {
    let mut on_create = lxc::options::lxc(release);
    on_create.extend([
        vmid("vmid"),
        text("ostemplate").max_len(255),
        bwlimit(),
        flag("force"),
        flag("ignore-unpack-errors"),
        text("password").min_len(5).optional(),
        text("pool").format(format::POOL).optional(),
        flag("restore"),
        text("ssh-public-keys").optional(),
        flag("start"),
        storage(),
        flag("unique").requires("restore"),
    ]);
    if release.is_9() {
        on_create.push(flag("ha-managed"));
    }
    let mut on_put = lxc::options::lxc(release);
    on_put.extend([
        text("delete").format(format::CONFIG_ID_LIST).optional(),
        text("revert").format(format::CONFIG_ID_LIST).optional(),
        digest(),
    ]);
    let mut on_clone = clone_params();
    on_clone.push(text("hostname").format(format::DNS_NAME).optional());
    let config = "/nodes/{node}/lxc/{vmid}/config";
    let perm = || all(ON_GUEST, POWER);
    let mut routes = vec![
        get("/nodes/{node}/lxc", lxc::api::list)
            .perm(Perm::User)
            .protected(),
        post("/nodes/{node}/lxc", lxc::create::create)
            .perm(Perm::User)
            .params(on_create),
        get("/nodes/{node}/lxc/{vmid}", lxc::api::index).perm(Perm::User),
        delete("/nodes/{node}/lxc/{vmid}", |call| {
            destroy::destroy(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, ALLOCATE))
        .params([
            flag("purge"),
            flag("force"),
            flag("destroy-unreferenced-disks"),
        ]),
        get(config, lxc::api::config)
            .perm(all(ON_GUEST, AUDIT))
            .params([flag("current"), of_snapshot()]),
        put(config, lxc::api::put)
            .perm(any(ON_GUEST, LXC_CONFIG))
            .params(on_put),
        get("/nodes/{node}/lxc/{vmid}/pending", lxc::api::pending).perm(all(ON_GUEST, AUDIT)),
        post("/nodes/{node}/lxc/{vmid}/clone", lxc::clone::clone)
            .perm(clone_perm())
            .params(on_clone),
        put("/nodes/{node}/lxc/{vmid}/resize", lxc::volumes::resize)
            .perm(all(ON_GUEST, DISK))
            .params([
                text("disk").pattern(lxc::is_mount),
                text("size").pattern(patterns::new_size),
                digest(),
            ]),
        post(
            "/nodes/{node}/lxc/{vmid}/move_volume",
            lxc::volumes::move_volume,
        )
        .perm(all(ON_GUEST, DISK))
        .params([
            text("volume").pattern(lxc::is_mount),
            storage(),
            flag("delete"),
            bwlimit(),
            digest(),
        ]),
        post("/nodes/{node}/lxc/{vmid}/template", |call| {
            volumes::template(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, ALLOCATE)),
        get("/nodes/{node}/lxc/{vmid}/feature", |call| {
            volumes::feature(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, AUDIT))
        .params(feature_params())
        .protected(),
        get("/nodes/{node}/lxc/{vmid}/interfaces", lxc::api::interfaces)
            .perm(all(ON_GUEST, AUDIT))
            .protected(),
        get("/nodes/{node}/lxc/{vmid}/rrddata", read::rrddata)
            .perm(all(ON_GUEST, AUDIT))
            .params(rrd_params()),
        post("/nodes/{node}/lxc/{vmid}/migrate", |call| {
            migrate::migrate(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, MIGRATE))
        .params([
            text("target").format(format::NODE),
            flag("online"),
            flag("restart"),
            text("target-storage").optional(),
            int("timeout").optional(),
            bwlimit(),
        ]),
        post("/nodes/{node}/lxc/{vmid}/vncproxy", |call| {
            console::vnc(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, CONSOLE))
        .params([
            flag("websocket"),
            int("width").optional(),
            int("height").optional(),
        ]),
        post("/nodes/{node}/lxc/{vmid}/termproxy", |call| {
            console::terminal(call, Kind::Lxc)
        })
        .perm(all(ON_GUEST, CONSOLE)),
    ];
    routes.extend([
        get("/nodes/{node}/lxc/{vmid}/status", lxc::api::status_index).perm(Perm::User),
        get("/nodes/{node}/lxc/{vmid}/status/current", lxc::api::current)
            .perm(all(ON_GUEST, AUDIT))
            .protected(),
        post(
            "/nodes/{node}/lxc/{vmid}/status/start",
            lxc::power::start_call,
        )
        .perm(perm())
        .params([flag("skiplock"), flag("debug")]),
        post("/nodes/{node}/lxc/{vmid}/status/stop", lxc::power::stop)
            .perm(perm())
            .params([flag("skiplock"), flag("overrule-shutdown")]),
        post(
            "/nodes/{node}/lxc/{vmid}/status/shutdown",
            lxc::power::shutdown,
        )
        .perm(perm())
        .params([flag("forceStop"), int("timeout").min(0).optional()]),
        post("/nodes/{node}/lxc/{vmid}/status/reboot", lxc::power::reboot)
            .perm(perm())
            .params([int("timeout").min(0).optional()]),
        post(
            "/nodes/{node}/lxc/{vmid}/status/suspend",
            lxc::power::suspend,
        )
        .perm(perm()),
        post("/nodes/{node}/lxc/{vmid}/status/resume", lxc::power::resume).perm(perm()),
    ]);
    routes
}

fn backups(release: Release) -> Vec<Route> {
    let mut on_dump = vec![
        text("vmid").format(format::VMID_LIST).optional(),
        flag("all"),
        text("pool").optional(),
        storage(),
        choice("mode", &["snapshot", "suspend", "stop"]).optional(),
        choice("compress", &["0", "1", "gzip", "lzo", "zstd"]).optional(),
        text("exclude").format(format::VMID_LIST).optional(),
        text("notes-template")
            .max_len(1024)
            .requires("storage")
            .optional(),
        flag("protected").requires("storage"),
        flag("remove"),
        text("prune-backups").optional(),
        int("lockwait").min(0).optional(),
        int("bwlimit").min(0).optional(),
        int("ionice").min(0).max(8).optional(),
        int("stopwait").min(0).optional(),
        int("zstd").optional(),
        int("pigz").optional(),
        flag("quiet"),
        flag("stop"),
        flag("stdexcludes"),
        array("exclude-path").optional(),
        text("dumpdir").optional(),
        text("tmpdir").optional(),
        text("script").optional(),
        text("mailto").optional(),
        choice("mailnotification", &["always", "failure"]).optional(),
        choice(
            "notification-mode",
            &["auto", "legacy-sendmail", "notification-system"],
        )
        .optional(),
        text("fleecing").optional(),
        text("performance").optional(),
        choice("pbs-change-detection-mode", &["legacy", "data", "metadata"]).optional(),
        text("job-id").max_len(50).optional(),
    ];
    if !release.is_9() {
        on_dump.extend([
            int("maxfiles").min(1).optional(),
            choice("notification-policy", &["always", "failure", "never"]).optional(),
            text("notification-target")
                .format(format::CONFIG_ID)
                .optional(),
        ]);
    }
    vec![
        post("/nodes/{node}/vzdump", backup::vzdump)
            .perm(Perm::User)
            .params(on_dump),
        get("/nodes/{node}/vzdump/defaults", backup::defaults)
            .perm(Perm::User)
            .params([storage()]),
        get("/nodes/{node}/vzdump/extractconfig", backup::extract_config)
            .perm(Perm::User)
            .params([text("volume")])
            .protected(),
    ]
}
