//! What the default world has on its storages: templates to clone, images to import, one foreign VM.

use super::config::{Config, Options};
use super::drive::Drive;
use super::image::{GENERIC, Image};
use super::live::{Inside, Machine, Run};
use super::{Guest, Kind, create, volumes};
use crate::failure::Failure;
use crate::storage::{Alloc, Content, Definition, Kind as Plugin, Storage, Volume};
use crate::world::World;

const GIB: u64 = 1 << 30;

/// A VM to put into a world before it starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) vmid: u32,
    pub(crate) node: String,
    /// Options as in `POST /nodes/{node}/qemu`; drives named `disk` below are added.
    pub(crate) options: Options,
    /// Storage and size of `scsi0`, and the image on it.
    pub(crate) disk: Option<(String, u64, String)>,
    pub(crate) template: bool,
    pub(crate) running: bool,
}

/// The operating systems every world knows.
pub(crate) fn images(world: &mut World) {
    let images = &mut world.guests.images;
    images.insert(GENERIC.to_owned(), Image::default());
    images.insert("ubuntu-24.04".to_owned(), Image::ubuntu());
    images.insert("talos".to_owned(), Image::talos());
}

/// Templates to clone on shared and local storage, and one machine that is not ours.
pub(crate) fn guests(world: &mut World) -> Result<(), Failure> {
    let nodes: Vec<String> = world.nodes.keys().cloned().collect();
    let Some(first) = nodes.first().cloned() else {
        return Ok(());
    };
    guest(
        world,
        template(9000, &first, "ubuntu-24.04", "ceph", "ubuntu-24.04"),
    )?;
    guest(world, template(9001, &first, "talos", "ceph", "talos"))?;
    for (vmid, node) in (9010..).zip(&nodes) {
        guest(
            world,
            template(
                vmid,
                node,
                "ubuntu-24.04-local",
                "local-lvm",
                "ubuntu-24.04",
            ),
        )?;
    }
    let host = nodes.get(1).unwrap_or(&first).clone();
    guest(world, foreign(&host))
}

/// The storages of the default world.
pub(crate) fn storages(world: &mut World) {
    let mut add = |id: &str, kind, content: &[&str], gib: u64, options: &[(&str, &str)]| {
        let mut def = Definition::new(id, kind, content, gib * GIB);
        def.options = options
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        world.storages.insert(Storage::new(def));
    };
    let local = ["iso", "vztmpl", "import", "snippets", "backup"];
    add(
        "local",
        Plugin::Dir,
        &local,
        100,
        &[("path", "/var/lib/vz")],
    );
    add(
        "data",
        Plugin::Dir,
        &["images", "rootdir", "iso"],
        1024,
        &[("path", "/mnt/data")],
    );
    let pair = ["images", "rootdir"];
    add(
        "local-lvm",
        Plugin::LvmThin,
        &pair,
        1024,
        &[("vgname", "pve"), ("thinpool", "data")],
    );
    add(
        "tank",
        Plugin::ZfsPool,
        &pair,
        2048,
        &[("pool", "tank"), ("sparse", "1")],
    );
    add(
        "ceph",
        Plugin::Rbd,
        &pair,
        10_240,
        &[("pool", "rbd"), ("krbd", "0")],
    );
    let nfs = [
        "images", "rootdir", "iso", "vztmpl", "import", "snippets", "backup",
    ];
    let options = [
        ("server", "10.0.0.250"),
        ("export", "/export/pve"),
        ("path", "/mnt/pve/nfs"),
    ];
    add("nfs", Plugin::Nfs, &nfs, 5120, &options);
}

/// Container templates and importable images on every node.
pub(crate) fn files(world: &mut World) -> Result<(), Failure> {
    let now = world.now();
    let nodes: Vec<String> = world.nodes.keys().cloned().collect();
    for node in nodes {
        for (content, file, size) in [
            (
                Content::VzTmpl,
                "debian-12-standard_12.7-1_amd64.tar.zst",
                126 << 20,
            ),
            (
                Content::VzTmpl,
                "ubuntu-24.04-standard_24.04-2_amd64.tar.zst",
                141 << 20,
            ),
            (
                Content::Import,
                "ubuntu-24.04-server-cloudimg-amd64.qcow2",
                600 << 20,
            ),
        ] {
            let mut volume = Volume::file(content, file, size, now);
            if content == Content::Import {
                volume.image = Some("ubuntu-24.04".to_owned());
            }
            world
                .storages
                .put_file("local", &node, content, file, volume)?;
        }
    }
    Ok(())
}

fn options(pairs: &[(&str, &str)]) -> Options {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn template(vmid: u32, node: &str, name: &str, storage: &str, image: &str) -> Plan {
    Plan {
        vmid,
        node: node.to_owned(),
        options: options(&[
            ("name", &name.replace('.', "-")),
            ("ostype", "l26"),
            ("agent", "enabled=1"),
            ("cores", "2"),
            ("memory", "2048"),
            ("scsihw", "virtio-scsi-single"),
            ("net0", "virtio,bridge=vmbr0"),
            ("ide2", "none,media=cdrom"),
            ("serial0", "socket"),
            ("vga", "serial0"),
        ]),
        disk: Some((storage.to_owned(), 4 * GIB, image.to_owned())),
        template: true,
        running: false,
    }
}

/// A machine that is not ours.
fn foreign(node: &str) -> Plan {
    Plan {
        vmid: 100,
        node: node.to_owned(),
        options: options(&[
            ("name", "erp"),
            ("description", "Runs since 2019. Do not touch."),
            ("ostype", "l26"),
            ("cores", "4"),
            ("memory", "8192"),
            ("onboot", "1"),
            ("protection", "1"),
            ("scsihw", "virtio-scsi-single"),
            ("net0", "virtio=52:54:00:12:34:56,bridge=vmbr0"),
        ]),
        disk: Some(("local-lvm".to_owned(), 64 * GIB, "ubuntu-24.04".to_owned())),
        template: false,
        running: true,
    }
}

/// Puts a VM into the world as if it had been there all along.
pub(crate) fn guest(world: &mut World, plan: Plan) -> Result<(), Failure> {
    let mut config = plan.options;
    let now = world.now();
    if let Some((storage, size, image)) = &plan.disk {
        let format = world.storages.get(storage)?.def.kind.formats().1;
        let alloc = Alloc {
            vmid: plan.vmid,
            format,
            name: None,
            size: *size,
            now,
        };
        let volid = world.storages.alloc(storage, &plan.node, alloc)?;
        let data = world.guests.images.get(image).map_or(0, |image| image.data);
        let volume = world.storages.volume_mut(&plan.node, &volid)?;
        volume.image = Some(image.clone());
        volume.used = volume.used.max(data);
        let mut drive = Drive::of_volume(&volid);
        drive.set("discard", "on");
        drive.set_size(*size);
        config.insert("scsi0".to_owned(), drive.print());
    }
    create::finish(world, &mut config);
    let config = Config {
        current: config,
        ..Config::default()
    };
    world
        .guests
        .insert(Guest::new(Kind::Qemu, plan.vmid, &plan.node, config));
    if plan.template {
        volumes::make_template(world, Kind::Qemu, &plan.node, plan.vmid, None)?;
    }
    if plan.running {
        let (pid, boot) = (world.tasks.pid(), world.guests.next_boot());
        if let Some(guest) = world.guests.get_mut(plan.vmid) {
            guest.run = Some(Run {
                pid,
                since: now,
                state: Machine::Running,
                boot,
                inside: Inside::Up,
                machine: "pc-i440fx-8.1+pve0".to_owned(),
            });
        }
    }
    Ok(())
}
