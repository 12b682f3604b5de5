//! The endpoints of VMs.

use super::{
    ALLOCATE, AUDIT, CONSOLE, DISK, MIGRATE, ON_GUEST, POWER, clone_params, clone_perm,
    feature_params, of_snapshot, rrd_params, storage,
};
use crate::guest::options as qemu_options;
use crate::guest::{
    Kind, clone, configure, console, create, destroy, formats, migrate, patterns, power, read,
    volumes,
};
use crate::permission::{Perm, all, any};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, choice, flag, format, guest_digest, int, one_of, text, vmid};

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

/// Endpoints of one VM and of the list.
pub(super) fn routes(release: Release) -> Vec<Route> {
    let mut all = guests(release);
    all.extend(powers(release));
    all.extend(disks());
    all
}

fn config_params(release: Release) -> Vec<Param> {
    let mut params = qemu_options::qemu(release);
    params.extend([
        text("delete").format(format::CONFIG_ID_LIST).optional(),
        text("revert").format(format::CONFIG_ID_LIST).optional(),
        guest_digest(),
        flag("force").requires("delete"),
        flag("skiplock"),
    ]);
    params
}

fn guests(release: Release) -> Vec<Route> {
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
        int("bwlimit").min(0).optional(),
    ]);
    let mut on_post = config_params(release);
    on_post.extend([
        int("background_delay").min(1).max(30).optional(),
        text("import-working-storage")
            .format(format::STORAGE)
            .optional(),
    ]);
    let config = "/nodes/{node}/qemu/{vmid}/config";
    // The monitor reaches the host: 9 dropped the guest privilege for it.
    let monitor_perm = if release.is_9() {
        any(ON_GUEST, &["Sys.Audit", "Sys.Modify"])
    } else {
        all(ON_GUEST, &["VM.Monitor"])
    };
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
        get("/nodes/{node}/qemu/{vmid}/vncwebsocket", |call| {
            console::websocket(call, Kind::Qemu)
        })
        .perm(all(ON_GUEST, CONSOLE))
        .params(super::websocket_params()),
        post("/nodes/{node}/qemu/{vmid}/spiceproxy", console::spice)
            .perm(all(ON_GUEST, CONSOLE))
            .params([text("proxy").format(format::ADDRESS).optional()]),
        put("/nodes/{node}/qemu/{vmid}/sendkey", console::send_key)
            .perm(all(ON_GUEST, CONSOLE))
            .params([text("key"), flag("skiplock")]),
        post("/nodes/{node}/qemu/{vmid}/monitor", console::monitor)
            .perm(monitor_perm)
            .params([text("command")]),
    ]
}

fn migrate_params(release: Release) -> Vec<Param> {
    let mut params = vec![
        text("target").format(format::NODE),
        flag("online"),
        flag("with-local-disks"),
        text("targetstorage")
            .format(format::storage::STORAGE_PAIRS)
            .optional(),
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

/// `net0=1500,net1=9000`
fn is_mtus(value: &str) -> bool {
    value.split(',').all(|pair| {
        pair.split_once('=')
            .is_some_and(|(net, mtu)| qemu_options::is(net, "net") && mtu.parse::<u32>().is_ok())
    })
}

fn powers(release: Release) -> Vec<Route> {
    let timeout = || int("timeout").min(0).optional();
    let mut on_start = vec![
        flag("skiplock"),
        timeout(),
        text("force-cpu").optional(),
        text("machine")
            .property(&formats::machine(release))
            .optional(),
        text("migratedfrom").format(format::NODE).optional(),
        text("migration_network").format(format::CIDR).optional(),
        choice("migration_type", &["secure", "insecure"]).optional(),
        text("stateuri").max_len(128).optional(),
        text("targetstorage")
            .format(format::storage::STORAGE_PAIRS)
            .optional(),
    ];
    if release.is_9() {
        on_start.extend([
            flag("with-conntrack-state"),
            text("nets-host-mtu").pattern(is_mtus).optional(),
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

fn disks_and_unused() -> impl Iterator<Item = String> {
    let unused = (0..256).map(|number| format!("unused{number}"));
    DISKS.iter().map(|disk| (*disk).to_owned()).chain(unused)
}

fn disks() -> Vec<Route> {
    let disk = || all(ON_GUEST, DISK);
    vec![
        put("/nodes/{node}/qemu/{vmid}/resize", volumes::resize)
            .perm(disk())
            .params([
                choice("disk", DISKS),
                text("size").pattern(patterns::new_size),
                guest_digest(),
                flag("skiplock"),
            ]),
        post("/nodes/{node}/qemu/{vmid}/move_disk", volumes::move_disk)
            .perm(disk())
            .params([
                one_of("disk", disks_and_unused()),
                storage(),
                vmid("target-vmid").optional(),
                one_of("target-disk", disks_and_unused()).optional(),
                choice("format", &["raw", "qcow2", "vmdk"]).optional(),
                flag("delete"),
                int("bwlimit").min(0).optional(),
                guest_digest(),
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
