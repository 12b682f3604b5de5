//! Power: start, stop, shutdown, reboot, reset, suspend, resume of VMs.
//!
//! PVE refuses reboot, reset, suspend and resume of a stopped guest on the call, but finds out about
//! a running guest that shall be started, a template or a lock only in the worker. A guest managed by
//! HA is not touched: the call records what shall be, and the HA manager acts.

use std::time::Duration;

use super::change;
use super::configure::root_only;
use super::disks::{self, Made};
use super::formats::AGENT;
use super::hand::Hand;
use super::live::{Inside, Machine};
use super::{Guest, Kind, inside, outside, start};
use crate::access::Caller;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::{self, Mode};
use crate::params::Params;
use crate::storage::Format;
use crate::task::{Task, Worker};
use crate::world::World;

const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How long a guest may take to shut down unless told otherwise.
const SHUTDOWN_WAIT: u64 = 60;

/// Dies on the call if the guest does not run.
fn need_running(call: &Call<'_>) -> Result<(), Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let running = call
        .world
        .guests
        .find(Kind::Qemu, &node, vmid)
        .is_ok_and(Guest::is_running);
    if running {
        Ok(())
    } else {
        Err(Failure::die(format!("VM {vmid} not running")))
    }
}

/// Handles `POST status/start`.
pub(crate) fn start(call: &mut Call<'_>) -> Result<Reply, Failure> {
    root_only(
        call,
        &[
            "skiplock",
            "stateuri",
            "migratedfrom",
            "migration_type",
            "migration_network",
            "targetstorage",
            "force-cpu",
        ],
    )?;
    let (node, vmid) = (call.node(), call.vmid());
    if outside::ha_managed(call.world, vmid) {
        return Ok(call.task("hastart", vmid, move |worker| async move {
            worker.log(format!("Requesting HA start for VM {vmid}"));
            outside::ha_request(&worker, vmid, "started")
        }));
    }
    Ok(Reply::Task(start_task(
        &node,
        vmid,
        call.caller,
        call.params.clone(),
    )))
}

/// A worker that starts a guest.
pub(crate) fn start_task(node: &str, vmid: u32, caller: &Caller, params: Params) -> Task {
    Task::new(node, "qmstart", vmid, caller, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        worker.world(|world| {
            let guest = world.guests.find(Kind::Qemu, worker.node(), vmid)?;
            if guest.is_template() {
                return Err(Failure::die("you can't start a vm if it's a template"));
            }
            if !params.flag("skiplock") && guest.lock() != Some("suspended") {
                guest.check_lock()?;
            }
            Ok(())
        })?;
        start::start(&Hand::of_worker(&worker), vmid).await
    })
}

async fn exclusive(worker: &Worker, vmid: u32) -> Result<lock::Held, Failure> {
    worker
        .lock_file(&lock::qemu_path(vmid), Mode::Exclusive, LOCK_WAIT)
        .await
}

/// Handles `POST status/stop`.
pub(crate) fn stop(call: &mut Call<'_>) -> Result<Reply, Failure> {
    root_only(call, &["skiplock", "keepActive", "migratedfrom"])?;
    let (node, vmid) = (call.node(), call.vmid());
    if outside::ha_managed(call.world, vmid) {
        return Ok(call.task("hastop", vmid, move |worker| async move {
            worker.log(format!("Requesting HA stop for VM {vmid}"));
            outside::ha_request(&worker, vmid, "stopped")
        }));
    }
    if call.params.flag("overrule-shutdown") {
        overrule(call, &node, vmid, "qmshutdown");
    }
    Ok(Reply::Task(stop_task(
        &node,
        vmid,
        call.caller,
        call.params.clone(),
    )))
}

/// Ends shutdown tasks of a guest so that a stop need not wait for them.
pub(crate) fn overrule(call: &Call<'_>, node: &str, vmid: u32, kind: &str) {
    let id = vmid.to_string();
    let running: Vec<String> = call
        .world
        .tasks
        .active(Some(node))
        .filter(|record| record.upid.kind == kind && record.upid.id == id)
        .map(|record| record.upid.to_string())
        .collect();
    for upid in running {
        call.cluster.stop_task(&upid);
    }
}

/// A worker that kills a guest.
pub(crate) fn stop_task(node: &str, vmid: u32, caller: &Caller, params: Params) -> Task {
    Task::new(node, "qmstop", vmid, caller, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        let running = worker.world(|world| {
            let guest = world.guests.find(Kind::Qemu, worker.node(), vmid)?;
            if guest.is_running() && !params.flag("skiplock") {
                guest.check_lock()?;
            }
            Ok::<_, Failure>(guest.is_running())
        })?;
        if running {
            worker.take(Step::Stop).await?;
            worker.world(|world| halt(world, vmid));
        }
        Ok(())
    })
}

/// The process is gone; what was pending for the next start is now current.
pub(crate) fn halt(world: &mut World, vmid: u32) {
    let Some(guest) = world.guests.get_mut(vmid) else {
        return;
    };
    guest.run = None;
    if let Some(system) = &mut guest.system {
        system.agent = false;
    }
    let (kind, node) = (guest.kind, guest.node.clone());
    if kind == Kind::Qemu && guest.lock() != Some("suspended") {
        // A volume that cannot be detached stays where it is, as after a crash of PVE's cleanup.
        let _ = change::apply_pending(world, &node, vmid);
    }
}

/// Handles `POST status/shutdown`.
pub(crate) fn shutdown(call: &mut Call<'_>) -> Result<Reply, Failure> {
    root_only(call, &["skiplock", "keepActive"])?;
    let (node, vmid) = (call.node(), call.vmid());
    let guest = call.world.guests.find(Kind::Qemu, &node, vmid);
    if guest.is_ok_and(is_paused) && !call.params.flag("forceStop") {
        return Err(Failure::die("VM is paused - cannot shutdown"));
    }
    if outside::ha_managed(call.world, vmid) {
        return Ok(call.task("hastop", vmid, move |worker| async move {
            worker.log(format!("Requesting HA stop for VM {vmid}"));
            outside::ha_request(&worker, vmid, "stopped")
        }));
    }
    Ok(Reply::Task(shutdown_task(
        &node,
        vmid,
        call.caller,
        call.params.clone(),
    )))
}

fn is_paused(guest: &Guest) -> bool {
    let run = guest.run.as_ref();
    run.is_some_and(|run| run.state == Machine::Paused)
}

/// A worker that asks a guest to end.
pub(crate) fn shutdown_task(node: &str, vmid: u32, caller: &Caller, params: Params) -> Task {
    Task::new(node, "qmshutdown", vmid, caller, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        let hand = Hand::of_worker(&worker);
        let force_stop = params.flag("forceStop");
        let paused = worker.world(|world| world.guests.get(vmid).is_some_and(is_paused));
        if paused && force_stop {
            return force(&hand, vmid).await;
        }
        press(
            &hand,
            vmid,
            params.uint("timeout"),
            force_stop,
            params.flag("skiplock"),
        )
        .await
    })
}

async fn force(hand: &Hand, vmid: u32) -> Result<(), Failure> {
    hand.take(Step::Stop).await?;
    hand.world(|world| halt(world, vmid));
    Ok(())
}

/// Presses the power button and waits for the guest to go.
pub(crate) async fn press(
    hand: &Hand,
    vmid: u32,
    timeout: Option<u64>,
    force_stop: bool,
    skip_lock: bool,
) -> Result<(), Failure> {
    let node = hand.node().to_owned();
    let plan = hand.world(|world| {
        let guest = world.guests.find(Kind::Qemu, &node, vmid)?;
        if !guest.is_running() {
            return Ok(None);
        }
        if !skip_lock {
            guest.check_lock()?;
        }
        let wait = timeout
            .or_else(|| startup_down(guest))
            .unwrap_or(SHUTDOWN_WAIT);
        let obeys = obeys(world, guest);
        Ok::<_, Failure>(Some((Duration::from_secs(wait), obeys)))
    })?;
    let Some((wait, obeys)) = plan else {
        return Ok(());
    };
    let needed = hand.world(|world| world.step_time(Step::Shutdown));
    let seen = next_look(needed);
    if obeys && seen < wait {
        hand.sleep(needed).await?;
        // The guest may have been told meanwhile to ignore the button, or hang.
        let gone = hand.world(|world| {
            let goes = world
                .guests
                .get(vmid)
                .is_some_and(|guest| obeys_now(world, guest));
            if goes {
                halt(world, vmid);
            }
            goes
        });
        if gone {
            hand.sleep(seen.saturating_sub(needed)).await?;
            return hand.take(Step::CleanUp).await;
        }
        hand.sleep(wait.saturating_sub(needed)).await?;
    } else {
        hand.sleep(wait).await?;
    }
    if force_stop {
        hand.log("VM still running - terminating now with SIGTERM");
        return force(hand, vmid).await;
    }
    Err(Failure::die("VM quit/powerdown failed - got timeout"))
}

/// When the worker sees that a guest is gone: it looks once a second, from the moment it pressed the button.
fn next_look(gone: Duration) -> Duration {
    let part = u64::from(gone.subsec_nanos() > 0);
    Duration::from_secs(gone.as_secs() + part)
}

fn startup_down(guest: &Guest) -> Option<u64> {
    let startup = guest.config.get("startup")?;
    startup
        .split(',')
        .find_map(|part| part.strip_prefix("down="))?
        .parse()
        .ok()
}

/// Whether the system inside will react to the power button, now or once it is up.
fn obeys(world: &World, guest: &Guest) -> bool {
    let booting = guest
        .run
        .as_ref()
        .is_some_and(|run| run.inside == Inside::Booting);
    obeys_now(world, guest) || (booting && !guest.quirks.hang_at_boot && has_button(world, guest))
}

fn obeys_now(world: &World, guest: &Guest) -> bool {
    let up = guest.run.as_ref().is_some_and(|run| {
        matches!(run.inside, Inside::Up | Inside::Booting) && run.state == Machine::Running
    });
    let agent = guest.system.as_ref().is_some_and(|system| system.agent) && agent_enabled(guest);
    up && !guest.quirks.hang_at_boot && (agent || has_button(world, guest))
}

fn has_button(world: &World, guest: &Guest) -> bool {
    let image = start::bootable(world, guest);
    let acpi = image
        .and_then(|name| world.guests.images.get(&name))
        .is_some_and(|image| image.acpi);
    acpi && !guest.quirks.ignore_acpi && guest.config.get("acpi") != Some("0")
}

/// Whether the guest's configuration has the agent on.
pub(crate) fn agent_enabled(guest: &Guest) -> bool {
    guest.config.get("agent").is_some_and(|agent| {
        AGENT
            .parse(agent)
            .get("enabled")
            .is_some_and(|on| on == "1")
    })
}

/// Handles `POST status/reboot`.
pub(crate) fn reboot(call: &mut Call<'_>) -> Result<Reply, Failure> {
    need_running(call)?;
    let vmid = call.vmid();
    let timeout = call.params.uint("timeout");
    Ok(call.task("qmreboot", vmid, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        let hand = Hand::of_worker(&worker);
        press(&hand, vmid, timeout, false, false).await?;
        start::start(&hand, vmid).await
    }))
}

/// Handles `POST status/reset`.
pub(crate) fn reset(call: &mut Call<'_>) -> Result<Reply, Failure> {
    root_only(call, &["skiplock"])?;
    need_running(call)?;
    let vmid = call.vmid();
    let skip = call.params.flag("skiplock");
    Ok(call.task("qmreset", vmid, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        unlocked(&worker, vmid, skip)?;
        worker.take(Step::Reset).await?;
        worker.world(|world| restart_inside(world, vmid));
        inside::boot(worker.cluster(), vmid);
        Ok(())
    }))
}

fn unlocked(worker: &Worker, vmid: u32, skip: bool) -> Result<(), Failure> {
    worker.world(|world| {
        let guest = world.guests.find(Kind::Qemu, worker.node(), vmid)?;
        if skip { Ok(()) } else { guest.check_lock() }
    })
}

/// The machine begins to boot again.
pub(crate) fn restart_inside(world: &mut World, vmid: u32) {
    let boot = world.guests.next_boot();
    let Some(guest) = world.guests.get(vmid) else {
        return;
    };
    let inside = match guest.kind {
        Kind::Qemu if start::bootable(world, guest).is_none() => Inside::Nothing,
        _ => Inside::Booting,
    };
    let Some(guest) = world.guests.get_mut(vmid) else {
        return;
    };
    if let Some(system) = &mut guest.system {
        system.agent = false;
    }
    if let Some(run) = &mut guest.run {
        run.boot = boot;
        run.inside = inside;
        run.state = Machine::Running;
    }
}

/// Handles `POST status/suspend`.
pub(crate) fn suspend(call: &mut Call<'_>) -> Result<Reply, Failure> {
    root_only(call, &["skiplock"])?;
    need_running(call)?;
    let (node, vmid) = (call.node(), call.vmid());
    let to_disk = call.params.flag("todisk");
    let storage = call.params.get("statestorage").map(str::to_owned);
    if let Some(storage) = &storage {
        call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    }
    if to_disk {
        call.need(&format!("/vms/{vmid}"), &["VM.Config.Disk"])?;
        let guest = call.world.guests.find(Kind::Qemu, &node, vmid)?;
        if guest.is_template() {
            return Err(Failure::die("Cannot suspend template to disk"));
        }
    }
    Ok(Reply::Task(suspend_task(
        &node,
        vmid,
        call.caller,
        call.params.clone(),
    )))
}

/// A worker that pauses a guest, or saves it to a disk.
pub(crate) fn suspend_task(node: &str, vmid: u32, caller: &Caller, params: Params) -> Task {
    let to_disk = params.flag("todisk");
    let kind = if to_disk { "qmsuspend" } else { "qmpause" };
    Task::new(node, kind, vmid, caller, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        unlocked(&worker, vmid, params.flag("skiplock"))?;
        if to_disk {
            let storage = params.get("statestorage").map(str::to_owned);
            return hibernate(&worker, vmid, storage).await;
        }
        worker.take(Step::Suspend).await?;
        worker.world(|world| {
            if let Some(run) = world
                .guests
                .get_mut(vmid)
                .and_then(|guest| guest.run.as_mut())
            {
                run.state = Machine::Paused;
            }
        });
        Ok(())
    })
}

/// Where memory goes: the storage named, the guest's own choice, or that of its first disk.
pub(crate) fn state_storage(guest: &Guest, named: Option<String>) -> Option<String> {
    named
        .or_else(|| guest.config.get("vmstatestorage").map(str::to_owned))
        .or_else(|| {
            super::create::drives(&guest.config.current)
                .find(|(_, drive)| !drive.is_cdrom())
                .and_then(|(_, drive)| drive.storage().map(str::to_owned))
        })
}

/// Bytes PVE reserves for a guest's memory: twice of it and something for the devices.
pub(crate) fn state_size(guest: &Guest) -> u64 {
    let memory = guest
        .config
        .get("memory")
        .map_or(512, super::create::memory_of);
    (memory * 2 + 500) << 20
}

async fn hibernate(worker: &Worker, vmid: u32, storage: Option<String>) -> Result<(), Failure> {
    let (storage, bytes, memory) = worker.world(|world| {
        let guest = world.guests.find_mut(Kind::Qemu, worker.node(), vmid)?;
        guest.config.set("lock", "suspending");
        let memory = guest
            .config
            .get("memory")
            .map_or(512, super::create::memory_of)
            << 20;
        Ok::<_, Failure>((state_storage(guest, storage), state_size(guest), memory))
    })?;
    let storage = storage.unwrap_or_else(|| "local".to_owned());
    let day = worker.world(|world| crate::guest::backup::date(world.now()));
    let mut made = Made::default();
    let hand = Hand::of_worker(worker);
    let result = save_memory(
        &hand,
        vmid,
        &storage,
        &format!("suspend-{day}"),
        bytes,
        &mut made,
    )
    .await;
    let volid = match result {
        Ok(volid) => volid,
        Err(failure) => {
            worker.world(|world| {
                made.undo(world, worker.node());
                if let Some(guest) = world.guests.get_mut(vmid) {
                    guest.config.remove("lock");
                }
            });
            return Err(failure);
        }
    };
    worker
        .take_per_gib(Step::CopyGib, disks::gib(memory))
        .await?;
    worker.world(|world| {
        let guest = world.guests.find_mut(Kind::Qemu, worker.node(), vmid)?;
        let machine = guest
            .run
            .as_ref()
            .map(|run| run.machine.clone())
            .unwrap_or_default();
        guest.config.set("vmstate", volid);
        guest.config.set("runningmachine", machine);
        guest.config.set("lock", "suspended");
        halt(world, vmid);
        Ok(())
    })
}

/// Allocates the volume for a guest's memory.
pub(crate) async fn save_memory(
    hand: &Hand,
    vmid: u32,
    storage: &str,
    label: &str,
    bytes: u64,
    made: &mut Made,
) -> Result<String, Failure> {
    let file = hand.world(|world| {
        world
            .storages
            .get(storage)
            .map(|s| s.def.kind.is_file())
            .map_err(Failure::from)
    })?;
    let suffix = if file { ".raw" } else { "" };
    let name = format!("vm-{vmid}-state-{label}{suffix}");
    disks::allocate(hand, storage, vmid, Format::Raw, Some(&name), bytes, made).await
}

/// Handles `POST status/resume`.
pub(crate) fn resume(call: &mut Call<'_>) -> Result<Reply, Failure> {
    root_only(call, &["skiplock", "nocheck"])?;
    let (node, vmid) = (call.node(), call.vmid());
    let suspended = call
        .world
        .guests
        .find(Kind::Qemu, &node, vmid)
        .is_ok_and(|guest| guest.lock() == Some("suspended"));
    if !suspended {
        need_running(call)?;
    }
    Ok(call.task("qmresume", vmid, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        if suspended {
            return start::start(&Hand::of_worker(&worker), vmid).await;
        }
        worker.take(Step::Resume).await?;
        worker.world(|world| {
            if let Some(run) = world
                .guests
                .get_mut(vmid)
                .and_then(|guest| guest.run.as_mut())
            {
                run.state = Machine::Running;
            }
        });
        inside::boot(worker.cluster(), vmid);
        Ok(())
    }))
}
