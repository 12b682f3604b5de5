//! `POST /nodes/{node}/lxc`: a new container from a template, or from a backup.

use super::api::{bridges, features, rights, sized};
use super::options::is_option;
use super::{is_mount, random_macs};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::backup;
use crate::guest::config::{Options, tidy_tags};
use crate::guest::create::{check_keys, forget, reserve};
use crate::guest::disks::{self, Made};
use crate::guest::formats::MOUNT;
use crate::guest::hand::Hand;
use crate::guest::permit::{self, Scope};
use crate::guest::{Kind, outside, size, tag};
use crate::latency::Step;
use crate::lock::{self, Mode};
use crate::storage::{Content, Format, Kind as Plugin, split_volid};
use crate::task::Worker;

const CALL_PARAMS: [&str; 14] = [
    "node",
    "vmid",
    "ostemplate",
    "bwlimit",
    "force",
    "ha-managed",
    "ignore-unpack-errors",
    "password",
    "pool",
    "restore",
    "ssh-public-keys",
    "start",
    "storage",
    "unique",
];

/// What a mount point asks for: a new volume of some bytes, or one that exists.
enum Wanted {
    New { storage: String, bytes: u64 },
    Volume(String),
    Path,
}

fn wanted(value: &str) -> Wanted {
    let volume = MOUNT
        .parse(value)
        .get("volume")
        .cloned()
        .unwrap_or_default();
    match split_volid(&volume) {
        Some((storage, name)) => match size::scaled(name, 1 << 30) {
            Some(bytes) => Wanted::New {
                storage: storage.to_owned(),
                bytes,
            },
            None => Wanted::Volume(volume),
        },
        None => Wanted::Path,
    }
}

/// The rights a mount point takes.
pub(crate) fn mount_rights(call: &Call<'_>, vmid: u32, value: &str) -> Result<(), Failure> {
    match wanted(value) {
        Wanted::New { storage, .. } => {
            call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
            call.world.storages.get(&storage)?;
            Ok(())
        }
        Wanted::Volume(volid) => permit::volume(call, vmid, &volid),
        Wanted::Path if call.caller.is_root() => Ok(()),
        Wanted::Path => Err(Failure::die(
            "mount point type bind is only allowed for root@pam",
        )),
    }
}

/// A container that is there gets volumes only of storages for containers.
pub(crate) fn for_containers(call: &Call<'_>, value: &str) -> Result<(), Failure> {
    let volume = MOUNT.parse(value).get("volume").cloned();
    let Some((storage, _)) = volume.as_deref().and_then(split_volid) else {
        return Ok(());
    };
    if call.world.storages.get(storage)?.def.holds("rootdir") {
        return Ok(());
    }
    Err(Failure::die(format!(
        "storage '{storage}' does not allow content type 'rootdir' (Container)"
    )))
}

/// Handles the call.
pub(crate) fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let params = call.params.clone();
    let pool = params.get("pool");
    let scope = Scope { vmid, pool };
    let restore = params.flag("restore");
    if !restore {
        call.world.guests.check_unused(vmid)?;
    }
    if let Some(keys) = params.get("ssh-public-keys") {
        check_keys(keys)?;
    }
    permit::pool_exists(call, pool)?;
    permit::allocate(call, scope)?;
    let archive = params.text("ostemplate").to_owned();
    let mut set: Options = params
        .iter()
        .filter(|(name, _)| !CALL_PARAMS.contains(name) && is_option(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    rights(
        call,
        scope,
        set.keys()
            .map(String::as_str)
            .filter(|name| *name != "rootfs"),
    )?;
    if let Some(wanted) = set.get("features") {
        let unprivileged = params.bool("unprivileged");
        let unprivileged = unprivileged.unwrap_or(call.world.release.is_9());
        features(call, unprivileged, None, Some(wanted))?;
    }
    tag::check(call, vmid, &params)?;
    bridges(call, &set)?;
    let content = if restore {
        Content::Backup
    } else {
        Content::VzTmpl
    };
    if archive == "-" {
        return Err(Failure::die("pipe requires cli environment"));
    }
    if archive.contains(':') {
        permit::typed_volume(call, vmid, &archive, content)?;
    } else if !call.caller.is_root() {
        return Err(Failure::die(
            "Only root can pass arbitrary filesystem paths.",
        ));
    }
    let storage = params.get("storage").unwrap_or("local").to_owned();
    if restore {
        backup::check_target(call, Kind::Lxc, vmid)?;
    } else {
        let root = set
            .entry("rootfs".to_owned())
            .or_insert_with(|| format!("{storage}:4"));
        if size::scaled(root.split(',').next().unwrap_or_default(), 1 << 30).is_some() {
            *root = format!("{storage}:{root}");
        }
        for (_, value) in set.iter().filter(|(name, _)| is_mount(name)) {
            mount_rights(call, vmid, value)?;
            if let Wanted::New { storage, .. } = wanted(value)
                && !call.world.storages.get(&storage)?.def.holds("rootdir")
            {
                let text = format!("storage '{storage}' does not support container directories");
                return Err(Failure::param("storage", text));
            }
        }
    }
    let replaced = call.world.guests.get(vmid).cloned();
    reserve(call.world, Kind::Lxc, vmid, &node, pool);
    let task = if restore { "vzrestore" } else { "vzcreate" };
    let caller = call.caller.clone();
    Ok(call.task(task, vmid, move |worker| async move {
        let mut made = Made::default();
        let result = if restore {
            backup::restore(&worker, Kind::Lxc, vmid, &archive, &params, set, &mut made).await
        } else {
            build(
                &worker,
                vmid,
                &archive,
                set,
                params.bool("unprivileged"),
                &mut made,
            )
            .await
        };
        let word = if restore { "restore" } else { "create" };
        if let Err(failure) = result {
            if restore {
                backup::put_back(&worker, vmid, &made, replaced);
            } else {
                worker.world(|world| {
                    made.undo(world, worker.node());
                    forget(world, vmid);
                });
            }
            return Err(Failure::die(format!(
                "unable to {word} CT {vmid} - {}",
                failure.exit_text()
            )));
        }
        worker.world(|world| backup::free_replaced(world, worker.node(), vmid, replaced.as_ref()));
        if params.flag("ha-managed") {
            let state = if params.flag("start") {
                "started"
            } else {
                "stopped"
            };
            worker.world(|world| outside::ha_add(world, Kind::Lxc, vmid, state));
        } else if params.flag("start") {
            worker.start(super::power::start_task(worker.node(), vmid, &caller));
        }
        Ok(())
    }))
}

async fn build(
    worker: &Worker,
    vmid: u32,
    archive: &str,
    mut set: Options,
    unprivileged: Option<bool>,
    made: &mut Made,
) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    let path = lock::lxc_path(vmid);
    let wait = std::time::Duration::from_secs(10);
    let _held = worker.lock_file(&path, Mode::Exclusive, wait).await?;
    // Looking into the archive takes a moment, in which the new container is seen locked.
    worker.take(Step::Allocate).await?;
    worker.world(|world| {
        let (_, name) = world.storages.parse(archive)?;
        if name.content != Content::VzTmpl {
            return Err(Failure::die(format!("unable to open file '{archive}'")));
        }
        world.storages.volume(&node, archive)?;
        Ok(())
    })?;
    let hand = Hand::of_worker(worker);
    make_mounts(&hand, vmid, &mut set, made).await?;
    worker.log(format!("extracting archive '{archive}'"));
    worker.take(Step::CloneFull).await?;
    worker.world(|world| {
        let file = archive.rsplit('/').next().unwrap_or_default();
        let known = [
            "debian",
            "ubuntu",
            "alpine",
            "centos",
            "fedora",
            "archlinux",
            "opensuse",
        ];
        let os = known
            .iter()
            .find(|os| file.starts_with(**os))
            .unwrap_or(&"unmanaged");
        set.entry("ostype".to_owned())
            .or_insert_with(|| (*os).to_owned());
        set.entry("arch".to_owned())
            .or_insert_with(|| "amd64".to_owned());
        set.entry("memory".to_owned())
            .or_insert_with(|| "512".to_owned());
        set.entry("swap".to_owned())
            .or_insert_with(|| "512".to_owned());
        set.entry("hostname".to_owned())
            .or_insert_with(|| format!("CT{vmid}"));
        // Since 9 a container is unprivileged unless told otherwise.
        if unprivileged.unwrap_or(world.release.is_9()) {
            set.insert("unprivileged".to_owned(), "1".to_owned());
        }
        if let Some(tags) = set.get_mut("tags") {
            *tags = tidy_tags(tags);
        }
        random_macs(world, &mut set);
        let guest = world.guests.find_mut(Kind::Lxc, &node, vmid)?;
        guest.config.current = set;
        Ok(())
    })
}

/// Allocates the volumes mount points ask for and writes sizes into the options.
pub(crate) async fn make_mounts(
    hand: &Hand,
    vmid: u32,
    set: &mut Options,
    made: &mut Made,
) -> Result<(), Failure> {
    // `rootfs` comes before the mount points.
    let mut names: Vec<String> = set.keys().filter(|name| is_mount(name)).cloned().collect();
    names.sort_by_key(|name| (name != "rootfs", name.clone()));
    for name in names {
        let value = set[&name].clone();
        let (volid, bytes) = match wanted(&value) {
            Wanted::New { storage, bytes } => {
                let plugin =
                    hand.world(|world| world.storages.get(&storage).map(|s| s.def.kind))?;
                let format = if plugin == Plugin::ZfsPool {
                    Format::Subvol
                } else {
                    Format::Raw
                };
                let volid =
                    disks::allocate(hand, &storage, vmid, format, None, bytes, made).await?;
                if format == Format::Raw {
                    hand.log(format!(
                        "Creating filesystem with {} 4k blocks",
                        bytes / 4096
                    ));
                }
                (volid, bytes)
            }
            Wanted::Volume(volid) => {
                let node = hand.node().to_owned();
                let bytes =
                    hand.world(|world| world.storages.volume(&node, &volid).map(|v| v.size))?;
                (volid, bytes)
            }
            Wanted::Path => continue,
        };
        set.insert(name, sized(&value, &volid, bytes));
    }
    Ok(())
}
