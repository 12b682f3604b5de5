//! `POST …/clone` of a container.

use std::time::Duration;

use super::{is_mount, random_macs, volumes, with_volume, without_mac};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::clone::{Wish, copy_volume};
use crate::guest::config::{Config, Options};
use crate::guest::create::forget;
use crate::guest::disks::Made;
use crate::guest::hand::Hand;
use crate::guest::{Guest, Kind, options, permit, read};
use crate::latency::Step;
use crate::lock::{self, Mode};
use crate::storage::Feature;
use crate::task::Worker;

struct Order {
    vmid: u32,
    newid: u32,
    full: bool,
    storage: Option<String>,
    hostname: Option<String>,
    description: Option<String>,
    pool: Option<String>,
    target: Option<String>,
}

/// Handles the call.
pub(crate) fn clone(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let owned = |name: &str| call.params.get(name).map(str::to_owned);
    let newid = call.params.vmid("newid").unwrap_or_default();
    let order = Order {
        vmid,
        newid,
        full: false,
        storage: owned("storage"),
        hostname: owned("hostname"),
        description: owned("description"),
        pool: owned("pool"),
        target: owned("target").filter(|target| *target != node),
    };
    permit::pool_exists(call, order.pool.as_deref())?;
    if let Some(target) = &order.target {
        call.world.node(target)?;
    }
    let guest = read::guest(call, Kind::Lxc)?;
    guest.check_lock()?;
    let full = call.params.bool("full").unwrap_or(!guest.is_template());
    if guest.is_running() {
        return Err(Failure::die(
            "unable to clone a running container without a snapshot of it",
        ));
    }
    if !full && order.storage.is_some() {
        return Err(Failure::die(
            "parameter 'storage' not allowed for linked clones",
        ));
    }
    for (name, volid) in volumes(&guest.config.current) {
        let id = volid.split(':').next().unwrap_or_default();
        let used = order.storage.as_deref().unwrap_or(id);
        call.need(&format!("/storage/{used}"), &["Datastore.AllocateSpace"])?;
        let shared = call.world.storages.get(used)?.def.shared;
        if let Some(target) = order.target.as_ref().filter(|_| !shared) {
            return Err(Failure::die(format!(
                "can't clone CT to node '{target}' (CT uses local storage)"
            )));
        }
        let (feature, word) = if full {
            (Feature::Copy, "Full")
        } else {
            (Feature::Clone, "Linked")
        };
        if !call.world.storages.has_feature(feature, &volid, false) {
            return Err(Failure::die(format!(
                "{word} clone feature is not supported for '{volid}' ({name})"
            )));
        }
    }
    if call.world.guests.exists(newid) {
        return Err(Failure::die(format!(
            "unable to create CT {newid}: config file already exists"
        )));
    }
    let order = Order { full, ..order };
    // Unlike virtual machines, containers are copied by one at a time, templates too.
    let source = call.world.guests.find_mut(Kind::Lxc, &node, vmid)?;
    source.config.set("lock", "disk");
    Ok(call.task("vzclone", vmid, move |worker| run(worker, order)))
}

async fn run(worker: Worker, order: Order) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    let copied = make(&worker, &order).await;
    worker.world(|world| {
        let source = world.guests.find_mut(Kind::Lxc, &node, order.vmid)?;
        source.config.remove("lock");
        copied
    })
}

async fn make(worker: &Worker, order: &Order) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    let path = lock::lxc_path(order.vmid);
    let _held = worker
        .lock_file(&path, Mode::Shared, Duration::from_secs(10))
        .await?;
    worker.world(|world| {
        if world.guests.exists(order.newid) {
            return Err(Failure::die(format!(
                "unable to create CT {}: config file already exists",
                order.newid
            )));
        }
        let mut config = Config::default();
        config.set("lock", "create");
        world
            .guests
            .insert(Guest::new(Kind::Lxc, order.newid, &node, config));
        if let Some(pool) = order
            .pool
            .as_ref()
            .and_then(|p| world.access.pools.get_mut(p))
        {
            pool.guests.insert(order.newid);
        }
        Ok(())
    })?;
    let mut made = Made::default();
    if let Err(failure) = copy(worker, order, &mut made).await {
        worker.world(|world| {
            made.undo(world, &node);
            forget(world, order.newid);
        });
        return Err(Failure::die(format!(
            "clone failed: {}",
            failure.exit_text()
        )));
    }
    if let Some(target) = &order.target {
        worker.world(|world| world.guests.relocate(order.newid, target));
    }
    Ok(())
}

async fn copy(worker: &Worker, order: &Order, made: &mut Made) -> Result<(), Failure> {
    let node = worker.node().to_owned();
    let mut config: Options = worker.world(|world| {
        let guest = world.guests.find(Kind::Lxc, &node, order.vmid)?;
        Ok::<_, Failure>(guest.config.current.clone())
    })?;
    config.retain(|name, _| {
        !matches!(name.as_str(), "lock" | "parent" | "template") && !options::is(name, "unused")
    });
    let hand = Hand::of_worker(worker);
    for (name, volid) in volumes(&config) {
        let new = if order.full {
            worker.log(format!("create full clone of mountpoint {name} ({volid})"));
            let wish = Wish {
                vmid: order.newid,
                storage: order.storage.as_deref(),
                format: None,
                snapshot: None,
            };
            copy_volume(&hand, &volid, wish, made).await?.0
        } else {
            worker.log(format!(
                "create linked clone of mountpoint {name} ({volid})"
            ));
            worker.take(Step::CloneLinked).await?;
            let linked = worker.world(|world| {
                let now = world.now();
                world.storages.link(&node, &volid, order.newid, now)
            })?;
            made.volumes.push(linked.clone());
            linked
        };
        debug_assert!(is_mount(&name));
        let value = with_volume(&config[&name], &new);
        config.insert(name, value);
    }
    worker.world(|world| {
        for (_, value) in config
            .iter_mut()
            .filter(|(name, _)| options::is(name, "net"))
        {
            *value = without_mac(Kind::Lxc, value);
        }
        random_macs(world, &mut config);
        let hostname = order
            .hostname
            .clone()
            .unwrap_or_else(|| format!("CT{}", order.newid));
        config.insert("hostname".to_owned(), hostname);
        if let Some(description) = &order.description {
            config.insert("description".to_owned(), description.clone());
        }
        let guest = world.guests.find_mut(Kind::Lxc, &node, order.newid)?;
        guest.config.current = config;
        Ok(())
    })
}
