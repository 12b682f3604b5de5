//! One round of the manager.

use super::place::alive;
use super::{Ha, Service};
use crate::access::Caller;
use crate::cluster::Cluster;
use crate::guest;
use crate::latency::Step;
use crate::params::Params;
use crate::task::Task;
use crate::world::World;

/// How long a node must be gone before its guests are recovered.
const FENCE_DELAY: u64 = 60;

/// What to do about one guest.
enum Act {
    Start,
    Stop,
    Move(String),
    Nothing,
}

/// Compares what is requested with what is, and acts.
pub(crate) fn round(cluster: &Cluster) {
    let fenced = cluster.world(|world| {
        let mut ha = std::mem::take(&mut world.ha);
        let fenced = watch_nodes(&mut ha, world);
        world.ha = ha;
        fenced
    });
    for node in fenced {
        // A node without quorum is reset by its watchdog; one that lost power stays off.
        if cluster.world(|world| world.nodes.get(&node).is_some_and(|it| it.up)) {
            cluster.fence_node(&node);
        }
    }
    cluster.world(|world| {
        let sids: Vec<String> = world.ha.resources.keys().cloned().collect();
        world.ha.services.retain(|sid, _| sids.contains(sid));
        if alive(world).is_empty() {
            return;
        }
        for sid in sids {
            serve(cluster, world, &sid);
        }
    });
}

/// Notices nodes that went and came; returns those gone for too long.
fn watch_nodes(ha: &mut Ha, world: &World) -> Vec<String> {
    let alive = alive(world);
    if ha.resources.is_empty() || alive.is_empty() {
        ha.gone.clear();
        return Vec::new();
    }
    let now = world.now();
    ha.gone
        .retain(|node, _| world.nodes.contains_key(node) && !alive.contains(node));
    let mut fenced = Vec::new();
    for node in world.nodes.keys().filter(|node| !alive.contains(*node)) {
        let since = *ha.gone.entry(node.clone()).or_insert(now);
        if now >= since + FENCE_DELAY {
            fenced.push(node.clone());
        }
    }
    fenced
}

fn vmid_of(sid: &str) -> Option<u32> {
    sid.split_once(':')?.1.parse().ok()
}

fn serve(cluster: &Cluster, world: &mut World, sid: &str) {
    let Some(vmid) = vmid_of(sid) else { return };
    let Some(guest) = world.guests.get(vmid) else {
        return;
    };
    let (node, running) = (guest.node.clone(), guest.is_running());
    let mut service = world.ha.services.remove(sid).unwrap_or_default();
    service.node.clone_from(&node);
    let act = decide(world, sid, &mut service, running);
    let caller = Caller::user_id("root@pam");
    let task = match act {
        Act::Nothing => None,
        Act::Start => Some(start_task(world, vmid, &service.node, &caller)),
        Act::Stop => Some(stop_task(world, vmid, &node, &caller)),
        Act::Move(target) => Some(move_task(world, vmid, &node, target, &caller)),
    };
    if let Some(task) = task {
        service.task = Some(cluster.start_in(world, task).to_string());
    }
    world.ha.services.insert(sid.to_owned(), service);
}

fn is_lxc(world: &World, vmid: u32) -> bool {
    world
        .guests
        .get(vmid)
        .is_some_and(|guest| guest.kind == guest::Kind::Lxc)
}

fn start_task(world: &World, vmid: u32, node: &str, caller: &Caller) -> Task {
    if is_lxc(world, vmid) {
        guest::lxc::power::start_task(node, vmid, caller)
    } else {
        guest::power::start_task(node, vmid, caller, Params::new())
    }
}

/// A worker that shuts a guest down, whatever the guest thinks of it.
fn stop_task(world: &World, vmid: u32, node: &str, caller: &Caller) -> Task {
    let kind = if is_lxc(world, vmid) {
        "vzshutdown"
    } else {
        "qmshutdown"
    };
    Task::new(node, kind, vmid, caller, move |worker| async move {
        worker.take(Step::Shutdown).await?;
        worker.world(|world| guest::power::halt(world, vmid));
        Ok(())
    })
}

fn move_task(world: &World, vmid: u32, node: &str, target: String, caller: &Caller) -> Task {
    let lxc = is_lxc(world, vmid);
    let kind = if lxc {
        guest::Kind::Lxc
    } else {
        guest::Kind::Qemu
    };
    let how = guest::migrate::Move {
        target,
        online: !lxc,
        restart: lxc,
        ..Default::default()
    };
    guest::migrate::task(kind, node, vmid, how, caller)
}

/// The last worker of a service.
enum Last {
    None,
    Runs,
    Ended(String),
}

fn last_worker(world: &World, service: &mut Service) -> Last {
    let Some(upid) = &service.task else {
        return Last::None;
    };
    let exit = match world.tasks.get(upid) {
        None => "unexpected status".to_owned(),
        Some(record) => match record.exit() {
            None => return Last::Runs,
            Some(exit) => exit.to_owned(),
        },
    };
    service.task = None;
    Last::Ended(exit)
}

fn decide(world: &mut World, sid: &str, service: &mut Service, running: bool) -> Act {
    let Some(resource) = world.ha.resources.get(sid).cloned() else {
        return Act::Nothing;
    };
    let last = last_worker(world, service);
    if matches!(last, Last::Runs) {
        return Act::Nothing;
    }
    let state = |service: &mut Service, text: &str| text.clone_into(&mut service.state);
    if resource.state == "ignored" {
        state(service, "ignored");
        return Act::Nothing;
    }
    if !alive(world).contains(&service.node) {
        return recover(world, sid, service, resource.state == "started");
    }
    // Whatever is asked for, a guest that was given up stays so until it is disabled.
    if service.state == "error" && resource.state != "disabled" {
        return Act::Nothing;
    }
    if resource.state != "started" {
        service.restarts = 0;
        service.relocates = 0;
        if running {
            state(service, "request_stop");
            return Act::Stop;
        }
        state(
            service,
            if resource.state == "disabled" {
                "disabled"
            } else {
                "stopped"
            },
        );
        service.target = None;
        return Act::Nothing;
    }
    if running {
        service.restarts = 0;
        service.relocates = 0;
        state(service, "started");
        if let Some(target) = wanted_node(world, sid, service) {
            state(service, "migrate");
            return Act::Move(target);
        }
        return Act::Nothing;
    }
    if matches!(last, Last::Ended(exit) if exit != "OK") {
        return after_failure(
            world,
            sid,
            service,
            resource.max_restart,
            resource.max_relocate,
        );
    }
    state(service, "started");
    Act::Start
}

/// The guest's node is gone: waits until it is fenced, then takes the guest elsewhere.
fn recover(world: &mut World, sid: &str, service: &mut Service, start: bool) -> Act {
    let since = world.ha.gone.get(&service.node).copied();
    let now = world.now();
    if since.is_none_or(|since| now < since + FENCE_DELAY) {
        "freeze".clone_into(&mut service.state);
        return Act::Nothing;
    }
    if service.state != "fence" && service.state != "recovery" {
        "fence".clone_into(&mut service.state);
        return Act::Nothing;
    }
    let gone = service.node.clone();
    let Some(node) = world.ha.best(world, sid, Some(&gone)) else {
        "recovery".clone_into(&mut service.state);
        return Act::Nothing;
    };
    if let Some(vmid) = vmid_of(sid) {
        world.guests.relocate(vmid, &node);
        let text = format!("recover service '{sid}' from fenced node '{gone}' to node '{node}'");
        world
            .journal
            .write(&node, "root@pam", "pve-ha-crm", 5, text, now);
    }
    service.node = node;
    (if start { "started" } else { "stopped" }).clone_into(&mut service.state);
    if start { Act::Start } else { Act::Nothing }
}

/// Where a running guest should go: where it was asked to, or where it belongs.
fn wanted_node(world: &World, sid: &str, service: &mut Service) -> Option<String> {
    if let Some(target) = service.target.take() {
        let usable = alive(world).contains(&target) && target != service.node;
        return usable.then_some(target);
    }
    let choice = world.ha.choice(world, sid);
    let best = world.ha.best(world, sid, None)?;
    match choice.get(&service.node) {
        None => Some(best),
        Some(own) if world.ha.fails_back(sid) && choice[&best] > *own => Some(best),
        Some(_) => None,
    }
}

/// A start failed: tries again here, then elsewhere, then gives up.
fn after_failure(
    world: &mut World,
    sid: &str,
    service: &mut Service,
    max_restart: u32,
    max_relocate: u32,
) -> Act {
    if service.restarts < max_restart {
        service.restarts += 1;
        return Act::Start;
    }
    let elsewhere = world.ha.best(world, sid, Some(&service.node));
    if service.relocates < max_relocate
        && let Some(node) = elsewhere
        && let Some(vmid) = vmid_of(sid)
    {
        service.relocates += 1;
        service.restarts = 0;
        world.guests.relocate(vmid, &node);
        service.node = node;
        return Act::Start;
    }
    "error".clone_into(&mut service.state);
    Act::Nothing
}
