//! All guests of a node at once: `startall`, `stopall`, `suspendall`, `migrateall`; and guests of all
//! nodes at once, since 9.
//!
//! One worker goes through the guests in their start order and starts a worker for each, as many at a
//! time as `max_workers` of the datacenter allows; it ends well whatever becomes of the single ones.

use futures::StreamExt as _;

use super::{Kind, lxc, migrate, power};
use crate::access::Caller;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::params::{Params, split_list};
use crate::task::{Task, Worker};
use crate::world::World;

/// How many guests are worked on at a time unless the datacenter says otherwise.
const WORKERS: usize = 4;
/// How long a guest may take to shut down, in seconds.
const SHUTDOWN: &str = "180";

/// The place of a guest in the order of starting: `startup: order=N`, those without it last.
fn order(world: &World, vmid: u32) -> u64 {
    let startup = world
        .guests
        .get(vmid)
        .and_then(|it| it.config.get("startup"));
    let mut parts = startup.into_iter().flat_map(|text| text.split(','));
    parts
        .find_map(|part| part.strip_prefix("order=").unwrap_or(part).parse().ok())
        .unwrap_or(u64::MAX)
}

/// The guests a call is about: those it names, or all of the node that `fits`.
fn chosen(call: &Call<'_>, fits: impl Fn(&super::Guest) -> bool) -> Vec<(u32, Kind)> {
    let node = call.node();
    let named = call.params.get("vms").map(split_list);
    let guests = call.world.guests.on_node(&node).filter(|guest| {
        let id = guest.vmid.to_string();
        let wanted = named
            .as_ref()
            .is_none_or(|list| list.contains(&id.as_str()));
        wanted && !guest.is_template() && fits(guest)
    });
    let mut found: Vec<(u32, Kind)> = guests.map(|guest| (guest.vmid, guest.kind)).collect();
    found.sort_by_key(|(vmid, _)| (order(call.world, *vmid), *vmid));
    found
}

/// The guests of all nodes that a call is about; one that is named must be the caller's to use.
fn anywhere(
    call: &Call<'_>,
    privilege: &'static str,
    fits: impl Fn(&super::Guest) -> bool,
) -> Result<Vec<(u32, Kind)>, Failure> {
    let named = call.params.array("vms");
    let mut wanted = Vec::new();
    for text in &named {
        let vmid: u32 = text.parse().unwrap_or_default();
        call.need(&format!("/vms/{vmid}"), &[privilege])?;
        if !call.world.guests.exists(vmid) {
            let text = format!("guest with vmid '{vmid}' does not exist");
            return Err(Failure::param("vms", text));
        }
        wanted.push(vmid);
    }
    let guests = call.world.guests.iter().filter(|guest| {
        let named = wanted.contains(&guest.vmid);
        let all = wanted.is_empty() && call.may(&format!("/vms/{}", guest.vmid), privilege);
        (named || all) && !guest.is_template() && fits(guest)
    });
    let mut found: Vec<(u32, Kind)> = guests.map(|guest| (guest.vmid, guest.kind)).collect();
    found.sort_by_key(|(vmid, _)| (order(call.world, *vmid), *vmid));
    Ok(found)
}

/// Where a guest is when its turn comes.
fn node_of(worker: &Worker, vmid: u32) -> Option<String> {
    worker.world(|world| world.guests.get(vmid).map(|guest| guest.node.clone()))
}

/// The right to switch: on all guests, or on each one that is named.
fn may(call: &Call<'_>, privilege: &'static str) -> Result<(), Failure> {
    if call.may("/", privilege) {
        return Ok(());
    }
    match call.params.get("vms") {
        None => Err(Failure::denied(format!("/, {privilege}"))),
        Some(list) => split_list(list)
            .into_iter()
            .try_for_each(|vmid| call.need(&format!("/vms/{vmid}"), &[privilege])),
    }
}

fn at_once(call: &Call<'_>) -> usize {
    let asked = call
        .params
        .uint("max-workers")
        .or(call.params.uint("maxworkers"));
    let of_datacenter = || call.world.options.get("max_workers")?.parse().ok();
    let count = asked
        .or_else(of_datacenter)
        .and_then(|it| usize::try_from(it).ok());
    count.unwrap_or(WORKERS).max(1)
}

/// One worker that makes a worker for each guest.
fn each<F>(
    call: &Call<'_>,
    kind: &'static str,
    guests: Vec<(u32, Kind)>,
    word: &'static str,
    make: F,
) -> Reply
where
    F: Fn(&Worker, u32, Kind) -> Option<Task> + Send + Sync + 'static,
{
    let limit = at_once(call);
    call.task(kind, "", move |worker| async move {
        let work = guests.into_iter().map(|(vmid, kind)| {
            let (worker, make) = (&worker, &make);
            async move {
                let Some(task) = make(worker, vmid, kind) else {
                    return;
                };
                worker.log(format!("{word} {} {vmid}", kind.word()));
                let upid = worker.start(task);
                let exit = worker.cluster().wait_task(&upid).await;
                if exit != "OK" {
                    worker.log(format!("{word} {} {vmid} failed: {exit}", kind.word()));
                }
            }
        });
        // Boxed one by one: the worker's future must not grow with the number of guests.
        let work: Vec<_> = work.map(Box::pin).collect();
        futures::stream::iter(work)
            .buffer_unordered(limit)
            .collect::<Vec<()>>()
            .await;
        Ok(())
    })
}

/// `POST /nodes/{node}/startall`
pub(crate) fn start(call: &mut Call<'_>) -> Result<Reply, Failure> {
    may(call, "VM.PowerMgmt")?;
    let force = call.params.flag("force") || call.params.has("vms");
    let guests = chosen(call, |guest| {
        let starts = force || guest.config.get("onboot") == Some("1");
        starts && !guest.is_running()
    });
    let guests: Vec<_> = guests
        .into_iter()
        .filter(|(vmid, _)| force || !call.world.ha.managed(*vmid))
        .collect();
    let caller = call.caller.clone();
    Ok(each(
        call,
        "startall",
        guests,
        "Starting",
        move |worker, vmid, kind| Some(start_task(worker.node(), vmid, kind, &caller)),
    ))
}

fn start_task(node: &str, vmid: u32, kind: Kind, caller: &Caller) -> Task {
    match kind {
        Kind::Qemu => power::start_task(node, vmid, caller, Params::new()),
        Kind::Lxc => lxc::power::start_task(node, vmid, caller),
    }
}

/// `POST /nodes/{node}/stopall`
pub(crate) fn stop(call: &mut Call<'_>) -> Result<Reply, Failure> {
    may(call, "VM.PowerMgmt")?;
    let mut guests = chosen(call, super::Guest::is_running);
    guests.reverse();
    let params = shutdown_params(call);
    let caller = call.caller.clone();
    Ok(each(
        call,
        "stopall",
        guests,
        "Stopping",
        move |worker, vmid, kind| {
            let params = params.clone();
            Some(shutdown_task(worker.node(), vmid, kind, &caller, params))
        },
    ))
}

fn shutdown_params(call: &Call<'_>) -> Params {
    let mut params = Params::new();
    params.set("timeout", call.params.get("timeout").unwrap_or(SHUTDOWN));
    if call.params.bool("force-stop").unwrap_or(true) {
        params.set("forceStop", "1");
    }
    params
}

fn shutdown_task(node: &str, vmid: u32, kind: Kind, caller: &Caller, params: Params) -> Task {
    match kind {
        Kind::Qemu => power::shutdown_task(node, vmid, caller, params),
        Kind::Lxc => lxc::power::shutdown_task(node, vmid, caller, params),
    }
}

/// `POST /nodes/{node}/suspendall`
pub(crate) fn suspend(call: &mut Call<'_>) -> Result<Reply, Failure> {
    may(call, "VM.PowerMgmt")?;
    let guests = chosen(call, |guest| guest.is_running() && guest.kind == Kind::Qemu);
    let caller = call.caller.clone();
    Ok(each(
        call,
        "suspendall",
        guests,
        "Suspending",
        move |worker, vmid, _| {
            Some(power::suspend_task(
                worker.node(),
                vmid,
                &caller,
                Params::new(),
            ))
        },
    ))
}

/// `POST /nodes/{node}/migrateall`
pub(crate) fn migrate(call: &mut Call<'_>) -> Result<Reply, Failure> {
    may(call, "VM.Migrate")?;
    let target = call.params.text("target").to_owned();
    if target == call.node() {
        return Err(Failure::param("target", "target is local node."));
    }
    call.world.node(&target)?;
    let with_local_disks = call.params.flag("with-local-disks");
    let guests = chosen(call, |_| true);
    let caller = call.caller.clone();
    Ok(each(
        call,
        "migrateall",
        guests,
        "Migrating",
        move |worker, vmid, kind| {
            let running =
                worker.world(|world| world.guests.get(vmid).map(super::Guest::is_running))?;
            let way = migrate::Move {
                target: target.clone(),
                online: running && kind == Kind::Qemu,
                restart: running && kind == Kind::Lxc,
                with_local_disks,
                ..migrate::Move::default()
            };
            Some(migrate::task(kind, worker.node(), vmid, way, &caller))
        },
    ))
}

/// `POST /cluster/bulk-action/guest/start`
pub(crate) fn start_anywhere(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let guests = anywhere(call, "VM.PowerMgmt", |guest| !guest.is_running())?;
    let caller = call.caller.clone();
    Ok(each(
        call,
        "bulk-start",
        guests,
        "Starting",
        move |worker, vmid, kind| {
            let node = node_of(worker, vmid)?;
            Some(start_task(&node, vmid, kind, &caller))
        },
    ))
}

/// `POST /cluster/bulk-action/guest/shutdown`
pub(crate) fn stop_anywhere(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let mut guests = anywhere(call, "VM.PowerMgmt", super::Guest::is_running)?;
    guests.reverse();
    let params = shutdown_params(call);
    let caller = call.caller.clone();
    Ok(each(
        call,
        "bulk-shutdown",
        guests,
        "Stopping",
        move |worker, vmid, kind| {
            let node = node_of(worker, vmid)?;
            Some(shutdown_task(&node, vmid, kind, &caller, params.clone()))
        },
    ))
}

/// `POST /cluster/bulk-action/guest/suspend`
pub(crate) fn suspend_anywhere(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let guests = anywhere(call, "VM.PowerMgmt", |guest| {
        guest.is_running() && guest.kind == Kind::Qemu
    })?;
    let mut params = Params::new();
    if call.params.flag("to-disk") {
        params.set("todisk", "1");
    }
    if let Some(storage) = call.params.get("statestorage") {
        params.set("statestorage", storage);
    }
    let caller = call.caller.clone();
    Ok(each(
        call,
        "bulk-suspend",
        guests,
        "Suspending",
        move |worker, vmid, _| {
            let node = node_of(worker, vmid)?;
            Some(power::suspend_task(&node, vmid, &caller, params.clone()))
        },
    ))
}

/// `POST /cluster/bulk-action/guest/migrate`
pub(crate) fn migrate_anywhere(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let target = call.params.text("target").to_owned();
    call.world.node(&target)?;
    let guests = anywhere(call, "VM.Migrate", |guest| guest.node != target)?;
    let online = call.params.bool("online");
    let with_local_disks = call.params.flag("with-local-disks");
    let caller = call.caller.clone();
    Ok(each(
        call,
        "bulk-migrate",
        guests,
        "Migrating",
        move |worker, vmid, kind| {
            let node = node_of(worker, vmid)?;
            let running =
                worker.world(|world| world.guests.get(vmid).map(super::Guest::is_running))?;
            let live = running && online.unwrap_or(true);
            let way = migrate::Move {
                target: target.clone(),
                online: live && kind == Kind::Qemu,
                restart: live && kind == Kind::Lxc,
                with_local_disks,
                ..migrate::Move::default()
            };
            Some(migrate::task(kind, &node, vmid, way, &caller))
        },
    ))
}
