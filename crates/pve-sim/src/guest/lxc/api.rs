//! Reading and changing containers.

use std::time::Duration;

use serde_json::{Value, json};

use super::change::{self, Change};
use super::options::{is_numeric, is_option, need};
use super::{create, is_mount, print_mount};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::config::{self, Options};
use crate::guest::configure::root_only;
use crate::guest::formats::{FEATURES, MOUNT};
use crate::guest::hand::Hand;
use crate::guest::options::Need;
use crate::guest::permit::Scope;
use crate::guest::{Kind, options as qemu_options, permit, read, tag, view};
use crate::lock::{self, Mode};
use crate::params::split_list;

const LOCK_WAIT: Duration = Duration::from_secs(10);

/// `GET /nodes/{node}/lxc`
pub(crate) fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    Ok(read::rows(call, Kind::Lxc, false))
}

/// `GET …/lxc/{vmid}`: what is below.
pub(crate) fn index(call: &mut Call<'_>) -> Result<Reply, Failure> {
    read::guest(call, Kind::Lxc)?;
    let names = [
        "config",
        "pending",
        "status",
        "vncproxy",
        "termproxy",
        "vncwebsocket",
        "spiceproxy",
        "migrate",
        "clone",
        "initlog",
        "rrd",
        "rrddata",
        "firewall",
        "snapshot",
        "resize",
        "interfaces",
    ];
    Ok(Reply::Data(
        names.iter().map(|name| json!({ "subdir": name })).collect(),
    ))
}

/// `GET …/status`: what is below.
pub(crate) fn status_index(call: &mut Call<'_>) -> Result<Reply, Failure> {
    read::guest(call, Kind::Lxc)?;
    let names = [
        "current", "start", "stop", "shutdown", "suspend", "resume", "reboot",
    ];
    Ok(Reply::Data(
        names.iter().map(|name| json!({ "subdir": name })).collect(),
    ))
}

/// `GET …/status/current`
pub(crate) fn current(call: &mut Call<'_>) -> Result<Reply, Failure> {
    Ok(Reply::Data(view::current(
        call.world,
        read::guest(call, Kind::Lxc)?,
    )))
}

/// `GET …/config`
pub(crate) fn config(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let guest = read::guest(call, Kind::Lxc)?;
    let options = read::chosen(
        guest,
        call.params.get("snapshot"),
        call.params.flag("current"),
    )?;
    let digest = guest.config.digest();
    Ok(Reply::Data(config::object(
        &options,
        Some(&digest),
        is_numeric,
    )))
}

/// `GET …/pending`
pub(crate) fn pending(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let guest = read::guest(call, Kind::Lxc)?;
    Ok(Reply::Data(config::pending_rows(&guest.config, is_numeric)))
}

/// `GET …/interfaces`
pub(crate) fn interfaces(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let guest = read::guest(call, Kind::Lxc)?;
    let Some(system) = guest.system.as_ref().filter(|_| guest.is_running()) else {
        return Ok(Reply::null());
    };
    let rows: Vec<Value> = system
        .interfaces
        .iter()
        .map(|interface| {
            let mut row = json!({
                "name": interface.name,
                "hwaddr": interface.mac,
                "hardware-address": interface.mac,
            });
            let mut all = Vec::new();
            for (address, prefix) in &interface.addresses {
                let (key, family) = if address.is_ipv4() {
                    ("inet", "inet")
                } else {
                    ("inet6", "inet6")
                };
                if row.get(key).is_none() {
                    row[key] = json!(format!("{address}/{prefix}"));
                }
                all.push(json!({
                    "ip-address": address.to_string(),
                    "ip-address-type": family,
                    "prefix": prefix,
                }));
            }
            row["ip-addresses"] = json!(all);
            row
        })
        .collect();
    Ok(Reply::Data(Value::Array(rows)))
}

/// The rights a change of container options takes.
pub(crate) fn rights<'a>(
    call: &Call<'_>,
    scope: Scope<'_>,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Failure> {
    if call.caller.is_root() {
        return Ok(());
    }
    for name in names {
        match need(name) {
            Need::Privilege(privilege) => scope.need(call, &[privilege])?,
            Need::Startup => {
                scope.need(call, &["VM.Config.Options"])?;
                call.need("/", &["Sys.Modify"])?;
            }
            Need::Root => return Err(Failure::die(format!("only root can set '{name}' config"))),
            Need::Either(_) | Need::ByValue => {}
        }
    }
    Ok(())
}

/// Features other than nesting, and all of a privileged container, are root's own.
pub(crate) fn features(
    call: &Call<'_>,
    unprivileged: bool,
    old: Option<&str>,
    new: Option<&str>,
) -> Result<(), Failure> {
    if call.caller.is_root() {
        return Ok(());
    }
    if !unprivileged {
        return Err(Failure::denied(
            "changing feature flags for privileged container is only allowed for root@pam",
        ));
    }
    let others = |value: Option<&str>| {
        let mut values = FEATURES.parse(value.unwrap_or_default());
        values.remove("nesting");
        values
    };
    if others(old) == others(new) {
        return Ok(());
    }
    Err(Failure::denied(
        "changing feature flags (except nesting) is only allowed for root@pam",
    ))
}

/// The right to use the bridges of a container's cards.
pub(crate) fn bridges(call: &Call<'_>, options: &Options) -> Result<(), Failure> {
    if call.caller.is_root() {
        return Ok(());
    }
    for (_, value) in options
        .iter()
        .filter(|(name, _)| qemu_options::is(name, "net"))
    {
        if let Some(bridge) = crate::guest::formats::CT_NET.parse(value).get("bridge") {
            call.need(&permit::bridge_path(call.world, bridge), &["SDN.Use"])?;
        }
    }
    Ok(())
}

/// What a container cannot be without, and what it stays.
fn kept(set: &Options, delete: &[String]) -> Result<(), Failure> {
    for option in delete {
        match option.as_str() {
            "memory" | "rootfs" | "ostype" => {
                let text = format!("unable to delete required option '{option}'");
                return Err(Failure::die(text));
            }
            "unprivileged" => {
                let text = format!("unable to delete read-only option: '{option}'");
                return Err(Failure::die(text));
            }
            _ => {}
        }
    }
    if set.contains_key("unprivileged") {
        let text = "unable to modify read-only option: 'unprivileged'";
        return Err(Failure::die(text));
    }
    Ok(())
}

/// `PUT …/config`
pub(crate) fn put(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    root_only(call, &["lock"])?;
    let set: Options = call
        .params
        .iter()
        .filter(|(name, _)| *name != "vmid" && *name != "node" && is_option(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let list = |name: &str| -> Vec<String> {
        split_list(call.params.text(name))
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let (delete, revert) = (list("delete"), list("revert"));
    let digest = call.params.get("digest").map(str::to_owned);
    if set.is_empty() && delete.is_empty() && revert.is_empty() {
        return Err(Failure::die("no options specified"));
    }
    for (way, options) in [("revert", &revert), ("delete", &delete)] {
        for option in options {
            if !is_option(option) {
                let text = format!("unknown option '{option}'");
                return Err(Failure::param(way, text));
            }
            if set.contains_key(option) {
                let text =
                    format!("you can't use '-{option}' and -{way} {option}' at the same time");
                return Err(Failure::param(way, text));
            }
        }
    }
    let scope = Scope { vmid, pool: None };
    rights(call, scope, set.keys().chain(&delete).map(String::as_str))?;
    tag::check(call, vmid, &call.params)?;
    bridges(call, &set)?;
    for (_, value) in set.iter().filter(|(name, _)| is_mount(name)) {
        create::mount_rights(call, vmid, value)?;
    }
    let guest = read::guest(call, Kind::Lxc)?;
    let new = set.get("features").map(String::as_str);
    if new.is_some() || delete.iter().any(|option| option == "features") {
        let unprivileged = guest.config.is_true("unprivileged");
        features(call, unprivileged, guest.config.get("features"), new)?;
    }
    kept(&set, &delete)?;
    for (_, value) in set.iter().filter(|(name, _)| is_mount(name)) {
        create::for_containers(call, value)?;
    }
    let change = Change {
        set,
        delete,
        revert,
        digest,
    };
    Ok(Reply::later(move |cluster| async move {
        let hand = Hand::of_call(cluster, &node);
        let _held = hand
            .lock_file(&lock::lxc_path(vmid), Mode::Exclusive, LOCK_WAIT)
            .await?;
        change::change(&hand, vmid, change).await?;
        Ok(Reply::null())
    }))
}

/// A mount point with its size written out.
pub(crate) fn sized(value: &str, volid: &str, bytes: u64) -> String {
    let mut values = MOUNT.parse(value);
    values.insert("volume".to_owned(), volid.to_owned());
    values.insert("size".to_owned(), crate::guest::size::print(bytes));
    print_mount(&values)
}
