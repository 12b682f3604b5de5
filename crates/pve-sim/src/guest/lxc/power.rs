//! Power of containers.

use std::time::Duration;

use super::change;
use crate::access::Caller;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::configure::root_only;
use crate::guest::formats::CT_NET;
use crate::guest::hand::Hand;
use crate::guest::live::{Inside, Machine, Run};
use crate::guest::power::{halt, overrule};
use crate::guest::{Guest, Kind, inside, options, outside, read};
use crate::latency::Step;
use crate::lock::{self, Held, Mode};
use crate::params::Params;
use crate::task::{Task, Worker};

const LOCK_WAIT: Duration = Duration::from_secs(10);
const SHUTDOWN_WAIT: u64 = 60;

async fn exclusive(worker: &Worker, vmid: u32) -> Result<Held, Failure> {
    worker
        .lock_file(&lock::lxc_path(vmid), Mode::Exclusive, LOCK_WAIT)
        .await
}

fn need_running(call: &Call<'_>) -> Result<(), Failure> {
    let vmid = call.vmid();
    if read::guest(call, Kind::Lxc).is_ok_and(Guest::is_running) {
        Ok(())
    } else {
        Err(Failure::die(format!("CT {vmid} not running")))
    }
}

/// `POST …/status/start`
pub(crate) fn start_call(call: &mut Call<'_>) -> Result<Reply, Failure> {
    root_only(call, &["skiplock"])?;
    let vmid = call.vmid();
    if read::guest(call, Kind::Lxc).is_ok_and(Guest::is_running) {
        return Err(Failure::die(format!("CT {vmid} already running")));
    }
    if outside::ha_managed(call.world, vmid) {
        return Ok(call.task("hastart", vmid, move |worker| async move {
            worker.log(format!("Requesting HA start for CT {vmid}"));
            outside::ha_request(&worker, vmid, "started")
        }));
    }
    let skip = call.params.flag("skiplock");
    Ok(call.task("vzstart", vmid, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        worker.world(|world| {
            let guest = world.guests.find(Kind::Lxc, worker.node(), vmid)?;
            if guest.is_template() {
                return Err(Failure::die("you can't start a CT if it's a template"));
            }
            if skip { Ok(()) } else { guest.check_lock() }
        })?;
        start(&Hand::of_worker(&worker), vmid).await
    }))
}

/// A worker that starts a container, for others to use.
pub(crate) fn start_task(node: &str, vmid: u32, caller: &Caller) -> Task {
    Task::new(node, "vzstart", vmid, caller, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        start(&Hand::of_worker(&worker), vmid).await
    })
}

/// Starts a container whose lock the caller holds.
pub(crate) async fn start(hand: &Hand, vmid: u32) -> Result<(), Failure> {
    let node = hand.node().to_owned();
    hand.world(|world| {
        let guest = world.guests.find(Kind::Lxc, &node, vmid)?;
        if guest.is_running() {
            return Err(Failure::die(format!("CT {vmid} already running")));
        }
        Ok(())
    })?;
    change::apply_pending(hand, vmid).await?;
    hand.world(|world| {
        let guest = world.guests.find(Kind::Lxc, &node, vmid)?;
        for (_, volid) in super::volumes(&guest.config.current) {
            world.storages.volume(&node, &volid)?;
        }
        for (_, value) in guest
            .config
            .current
            .iter()
            .filter(|(n, _)| options::is(n, "net"))
        {
            if let Some(bridge) = CT_NET.parse(value).get("bridge")
                && !outside::has_bridge(world, &node, bridge)
            {
                return Err(Failure::die("startup for container failed"));
            }
        }
        Ok(())
    })?;
    hand.take(Step::Start).await?;
    hand.world(|world| launch(world, &node, vmid))?;
    inside::boot(hand.cluster(), vmid);
    Ok(())
}

fn launch(world: &mut crate::world::World, node: &str, vmid: u32) -> Result<(), Failure> {
    let (pid, since, boot) = (world.tasks.pid(), world.now(), world.guests.next_boot());
    let guest = world.guests.find_mut(Kind::Lxc, node, vmid)?;
    guest.run = Some(Run {
        pid,
        since,
        state: Machine::Running,
        boot,
        inside: Inside::Booting,
        machine: String::new(),
    });
    Ok(())
}

/// Starts a container on the node it has migrated to.
pub(crate) fn start_on(worker: &Worker, node: &str, vmid: u32) -> Result<(), Failure> {
    worker.world(|world| launch(world, node, vmid))?;
    inside::boot(worker.cluster(), vmid);
    Ok(())
}

/// `POST …/status/stop`
pub(crate) fn stop(call: &mut Call<'_>) -> Result<Reply, Failure> {
    root_only(call, &["skiplock"])?;
    let (node, vmid) = (call.node(), call.vmid());
    need_running(call)?;
    if outside::ha_managed(call.world, vmid) {
        return Ok(call.task("hastop", vmid, move |worker| async move {
            worker.log(format!("Requesting HA stop for CT {vmid}"));
            outside::ha_request(&worker, vmid, "stopped")
        }));
    }
    if call.params.flag("overrule-shutdown") {
        overrule(call, &node, vmid, "vzshutdown");
    }
    let skip = call.params.flag("skiplock");
    Ok(call.task("vzstop", vmid, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        worker.world(|world| {
            let guest = world.guests.find(Kind::Lxc, worker.node(), vmid)?;
            if skip { Ok(()) } else { guest.check_lock() }
        })?;
        worker.take(Step::Stop).await?;
        worker.world(|world| halt(world, vmid));
        Ok(())
    }))
}

/// Asks the container's init to end; kills it if it does not and that was asked for.
async fn end(worker: &Worker, vmid: u32, timeout: Option<u64>, force: bool) -> Result<(), Failure> {
    let obeys = worker.world(|world| {
        let guest = world.guests.find(Kind::Lxc, worker.node(), vmid)?;
        guest.check_lock()?;
        let up = guest.run.as_ref().is_some_and(|run| {
            run.state == Machine::Running && matches!(run.inside, Inside::Up | Inside::Booting)
        });
        Ok::<_, Failure>(up && !guest.quirks.ignore_acpi)
    })?;
    let wait = Duration::from_secs(timeout.unwrap_or(SHUTDOWN_WAIT));
    let needed = worker.world(|world| world.step_time(Step::Shutdown));
    if obeys && needed <= wait {
        worker.sleep(needed).await?;
    } else {
        worker.sleep(wait).await?;
        if !force {
            return Err(Failure::die("command 'lxc-stop' failed: received timeout"));
        }
        worker.take(Step::Stop).await?;
    }
    worker.world(|world| halt(world, vmid));
    Ok(())
}

/// `POST …/status/shutdown`
pub(crate) fn shutdown(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let vmid = call.vmid();
    need_running(call)?;
    if outside::ha_managed(call.world, vmid) {
        return Ok(call.task("hastop", vmid, move |worker| async move {
            worker.log(format!("Requesting HA stop for CT {vmid}"));
            outside::ha_request(&worker, vmid, "stopped")
        }));
    }
    Ok(Reply::Task(shutdown_task(
        &call.node(),
        vmid,
        call.caller,
        call.params.clone(),
    )))
}

/// A worker that asks a container to end.
pub(crate) fn shutdown_task(node: &str, vmid: u32, caller: &Caller, params: Params) -> Task {
    Task::new(node, "vzshutdown", vmid, caller, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        end(
            &worker,
            vmid,
            params.uint("timeout"),
            params.flag("forceStop"),
        )
        .await
    })
}

/// `POST …/status/reboot`
pub(crate) fn reboot(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let vmid = call.vmid();
    need_running(call)?;
    let timeout = call.params.uint("timeout");
    Ok(call.task("vzreboot", vmid, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        end(&worker, vmid, timeout, false).await?;
        start(&Hand::of_worker(&worker), vmid).await
    }))
}

fn freeze(call: &mut Call<'_>, kind: &'static str, state: Machine) -> Result<Reply, Failure> {
    let vmid = call.vmid();
    need_running(call)?;
    Ok(call.task(kind, vmid, move |worker| async move {
        let _held = exclusive(&worker, vmid).await?;
        worker.take(Step::Suspend).await?;
        worker.world(|world| {
            if let Some(run) = world
                .guests
                .get_mut(vmid)
                .and_then(|guest| guest.run.as_mut())
            {
                run.state = state;
            }
        });
        Ok(())
    }))
}

/// `POST …/status/suspend`
pub(crate) fn suspend(call: &mut Call<'_>) -> Result<Reply, Failure> {
    freeze(call, "vzsuspend", Machine::Paused)
}

/// `POST …/status/resume`
pub(crate) fn resume(call: &mut Call<'_>) -> Result<Reply, Failure> {
    freeze(call, "vzresume", Machine::Running)
}
