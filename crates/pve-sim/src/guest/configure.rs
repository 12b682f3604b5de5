//! `PUT` and `POST /nodes/{node}/qemu/{vmid}/config`, and `PUT unlink`.
//!
//! Both config calls do the same; `PUT` answers when it is done, `POST` forks a worker and answers its
//! UPID, unless the worker ends within `background_delay`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::change::{self, Change};
use super::config::Options;
use super::create::{self, check_together};
use super::disks::{self, Made};
use super::drive::{self, Drive, Source};
use super::hand::Hand;
use super::permit::{self, Scope};
use super::{Kind, options};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::lock::{self, Mode};
use crate::params::split_list;
use crate::task::Task;

const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How long PVE waits for a device to be unplugged before it gives up.
const UNPLUG_WAIT: Duration = Duration::from_secs(5);

/// Refuses an option that only `root@pam` may use.
pub(crate) fn root_only(call: &Call<'_>, names: &[&str]) -> Result<(), Failure> {
    for name in names {
        if call.params.has(name) && !call.caller.is_root() {
            return Err(Failure::param(*name, "Only root may use this option."));
        }
    }
    Ok(())
}

/// Handles `PUT config`.
pub(crate) fn put(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let change = read(call)?;
    Ok(Reply::later(move |cluster| async move {
        let hand = Hand::of_call(cluster, &node);
        run(&hand, vmid, change, None).await?;
        Ok(Reply::null())
    }))
}

/// Handles `POST config`.
pub(crate) fn post(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let delay = call.params.uint("background_delay");
    let told = arguments(call);
    let change = read(call)?;
    let work = move |worker: crate::task::Worker| async move {
        worker.log(format!("update VM {vmid}: {told}"));
        let hand = Hand::of_worker(&worker);
        run(&hand, vmid, change, Some(())).await
    };
    let Some(delay) = delay else {
        return Ok(call.task("qmconfig", vmid, work));
    };
    let task = Task::new(&node, "qmconfig", vmid, call.caller, work);
    Ok(Reply::later(move |cluster| async move {
        let upid = cluster.start(task);
        let ended = tokio::time::timeout(Duration::from_secs(delay), cluster.wait_task(&upid));
        match ended.await {
            Ok(exit) if exit == "OK" => Ok(Reply::null()),
            Ok(exit) => Err(Failure::die(exit)),
            Err(_) => Ok(Reply::Data(serde_json::json!(upid.to_string()))),
        }
    }))
}

/// The command line the task's log repeats.
fn arguments(call: &Call<'_>) -> String {
    let hidden = [
        "node",
        "vmid",
        "background_delay",
        "digest",
        "skiplock",
        "force",
    ];
    let parts: Vec<String> = call
        .params
        .iter()
        .filter(|(name, _)| !hidden.contains(name))
        .map(|(name, value)| {
            let value = if name == "cipassword" {
                "<hidden>"
            } else {
                value
            };
            format!("-{name} {value}")
        })
        .collect();
    parts.join(" ")
}

/// Checks rights and values, as far as PVE does before it takes the guest's lock.
fn read(call: &mut Call<'_>) -> Result<Change, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    create::resolve_cdrom(&mut call.params);
    root_only(call, &["skiplock"])?;
    let params = &call.params;
    let set = create::split_options(params);
    let mut delete: Vec<String> = split_list(params.text("delete"))
        .iter()
        .map(|name| if *name == "cdrom" { "ide2" } else { *name }.to_owned())
        .collect();
    delete.dedup();
    let revert: Vec<String> = split_list(params.text("revert"))
        .iter()
        .map(|s| (*s).to_owned())
        .collect();
    if let Some(keys) = set.get("sshkeys") {
        create::check_keys(keys)?;
    }
    if set.is_empty() && delete.is_empty() && revert.is_empty() {
        return Err(Failure::die("no options specified"));
    }
    let force = params.flag("force");
    let change = Change {
        force,
        skip_lock: params.flag("skiplock"),
        digest: params.get("digest").map(str::to_owned),
        set,
        delete,
        revert,
    };
    agree(&change)?;
    drive::check_all(call.world, &change.set)?;
    if let Some(script) = change.set.get("hookscript") {
        hook_script(call, &node, script)?;
    }
    let scope = Scope { vmid, pool: None };
    let names = change.delete.iter().chain(change.set.keys());
    permit::options(call, scope, names.map(String::as_str))?;
    for (name, drive) in create::drives(&change.set) {
        permit::drive(call, scope, name, &drive, None)?;
    }
    permit::named_volumes(call, scope, &change.set)?;
    permit::values(call, scope, &call.params)?;
    let guest = call.world.guests.find(Kind::Qemu, &node, vmid)?;
    drive_rights(call, scope, &guest.config.merged(), &change)?;
    guest.check_digest(change.digest.as_deref())?;
    if !change.skip_lock {
        guest.check_lock()?;
    }
    let left: Options = {
        let mut config = guest.config.clone();
        for option in &change.delete {
            config.pend_delete(option, false);
        }
        config.merged()
    };
    let after = super::config::Config {
        current: left,
        ..Default::default()
    };
    check_together(&after, &change.set)?;
    Ok(change)
}

/// Refuses options nobody knows, and two wishes for one option.
fn agree(change: &Change) -> Result<(), Failure> {
    let known =
        |option: &str| options::is_option(option) || option == "parent" || option == "vmstate";
    let unknown =
        |key: &str, option: &str| Err(Failure::param(key, format!("unknown option '{option}'")));
    for option in &change.revert {
        if !known(option) {
            return unknown("revert", option);
        }
        if change.set.contains_key(option) {
            let text = format!("you can't use '-{option}' and -revert {option}' at the same time");
            return Err(Failure::param("delete", text));
        }
    }
    for option in &change.delete {
        if change.set.contains_key(option) {
            let text = format!("you can't use '-{option}' and -delete {option}' at the same time");
            return Err(Failure::param("delete", text));
        }
        if change.revert.contains(option) {
            let text =
                format!("you can't use '-delete {option}' and -revert {option}' at the same time");
            return Err(Failure::param("revert", text));
        }
        if !known(option) {
            return unknown("delete", option);
        }
    }
    Ok(())
}

fn hook_script(call: &Call<'_>, node: &str, script: &str) -> Result<(), Failure> {
    if call.world.storages.volume(node, script).is_ok() {
        Ok(())
    } else {
        Err(Failure::param(
            "hookscript",
            format!("script '{script}' does not exist\n"),
        ))
    }
}

/// Drives that are added, changed or removed need the right for disks or for CDs.
fn drive_rights(
    call: &Call<'_>,
    scope: Scope<'_>,
    current: &Options,
    change: &Change,
) -> Result<(), Failure> {
    if call.caller.is_root() {
        return Ok(());
    }
    for (_, drive) in create::drives(&change.set) {
        permit::change_drive(call, scope, &drive)?;
    }
    for option in change.set.keys().chain(&change.delete) {
        let Some(old) = current.get(option) else {
            continue;
        };
        if options::is_drive(option) {
            permit::change_drive(call, scope, &Drive::parse(old))?;
        } else if options::is(option, "unused") {
            scope.need(call, &["VM.Config.Disk"])?;
            if change.delete.contains(option)
                && let Some(storage) = Drive::parse(old).storage()
            {
                call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
            }
        }
    }
    Ok(())
}

/// Makes new drives, then records and applies the change.
async fn run(
    hand: &Hand,
    vmid: u32,
    mut change: Change,
    background: Option<()>,
) -> Result<(), Failure> {
    let _held = hand
        .lock_file(&lock::qemu_path(vmid), Mode::Exclusive, LOCK_WAIT)
        .await?;
    let node = hand.node().to_owned();
    hand.world(|world| {
        let guest = world.guests.find(Kind::Qemu, &node, vmid)?;
        guest.check_digest(change.digest.as_deref())?;
        if change.skip_lock {
            Ok(())
        } else {
            guest.check_lock()
        }
    })?;
    if background.is_some() {
        hand.take(Step::Configure).await?;
    }
    let mut made = Made::default();
    let result = make_drives(hand, vmid, &mut change, &mut made).await;
    let errors =
        result.and_then(|()| hand.world(|world| change::change(world, &node, vmid, &change)));
    let errors = match errors {
        Ok(errors) => errors,
        Err(failure) => {
            hand.world(|world| made.undo(world, &node));
            return Err(failure);
        }
    };
    settle(hand, errors).await
}

/// Waits for devices that did not let go, then reports all hotplug problems.
async fn settle(hand: &Hand, errors: BTreeMap<String, String>) -> Result<(), Failure> {
    let busy = errors
        .values()
        .filter(|error| error.contains("still busy"))
        .count();
    for _ in 0..busy {
        hand.sleep(UNPLUG_WAIT).await?;
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Failure::params(errors))
    }
}

async fn make_drives(
    hand: &Hand,
    vmid: u32,
    change: &mut Change,
    made: &mut Made,
) -> Result<(), Failure> {
    let wanted: Vec<(String, Drive)> = create::drives(&change.set)
        .map(|(name, drive)| (name.to_owned(), drive))
        .collect();
    let node = hand.node().to_owned();
    let config = hand.world(|world| {
        let guest = world.guests.find(Kind::Qemu, &node, vmid)?;
        Ok::<_, Failure>(guest.config.merged())
    })?;
    for (name, drive) in wanted {
        drive::one_cloudinit(&config, &name, &drive)?;
        let done = match drive.source() {
            Source::Volume(_) => continue,
            _ => disks::make(hand, vmid, &name, &drive, None, made).await?,
        };
        change.set.insert(name, done.print());
    }
    hand.world(|world| change::attach_existing(world, &node, &mut change.set))
}

/// Handles `PUT unlink`: removes drives by list.
pub(crate) fn unlink(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let list = call.params.take("idlist").unwrap_or_default();
    call.params.set("delete", list);
    put(call)
}
