//! The reading calls of VMs.

use serde_json::{Value, json};

use super::config::{self, Options};
use super::options::is_numeric;
use super::{Guest, Kind, cloudinit, options, start, view};
use crate::call::{Call, Reply};
use crate::failure::Failure;

/// The guest in the path.
pub(crate) fn guest<'a>(call: &'a Call<'_>, kind: Kind) -> Result<&'a Guest, Failure> {
    call.world
        .guests
        .find(kind, call.params.text("node"), call.vmid())
}

/// `GET /nodes/{node}/qemu`
pub(crate) fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    Ok(rows(call, Kind::Qemu, call.params.flag("full")))
}

/// The guests of a node that the caller may see.
pub(crate) fn rows(call: &Call<'_>, kind: Kind, full: bool) -> Reply {
    let node = call.node();
    let seen = call.world.access.may_on_guests(call.caller, "VM.Audit");
    let rows: Vec<Value> = call
        .world
        .guests
        .on_node(&node)
        .filter(|guest| guest.kind == kind)
        .filter(|guest| seen(guest.vmid))
        .map(|guest| view::list_row(call.world, guest, full))
        .collect();
    Reply::Data(Value::Array(rows))
}

/// `GET …/status/current`
pub(crate) fn current(call: &mut Call<'_>) -> Result<Reply, Failure> {
    Ok(Reply::Data(view::current(
        call.world,
        guest(call, Kind::Qemu)?,
    )))
}

/// `GET …/config`
pub(crate) fn config(call: &mut Call<'_>) -> Result<Reply, Failure> {
    if call.params.has("snapshot") && call.params.flag("current") {
        let text = "cannot use 'snapshot' parameter with 'current'";
        let errors = ["snapshot", "current"].map(|key| (key.to_owned(), text.to_owned()));
        return Err(Failure::params(errors.into()));
    }
    let guest = guest(call, Kind::Qemu)?;
    let options = chosen(
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

/// The options a caller asks to see: of a snapshot, the running ones, or with pending values merged.
pub(crate) fn chosen(
    guest: &Guest,
    snapshot: Option<&str>,
    current: bool,
) -> Result<Options, Failure> {
    match snapshot {
        Some(name) if !name.is_empty() => guest
            .config
            .snapshots
            .get(name)
            .cloned()
            .ok_or_else(|| Failure::die(format!("snapshot '{name}' does not exist"))),
        _ if current => Ok(guest.config.current.clone()),
        _ => Ok(guest.config.merged()),
    }
}

/// `GET …/pending`
pub(crate) fn pending(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let guest = guest(call, Kind::Qemu)?;
    Ok(Reply::Data(config::pending_rows(&guest.config, is_numeric)))
}

/// `GET …/qemu/{vmid}`: what is below.
pub(crate) fn index(_: &mut Call<'_>) -> Result<Reply, Failure> {
    // Whether there is such a guest is not asked.
    let names = [
        "config",
        "cloudinit",
        "pending",
        "status",
        "unlink",
        "vncproxy",
        "termproxy",
        "migrate",
        "resize",
        "move",
        "rrd",
        "rrddata",
        "monitor",
        "agent",
        "snapshot",
        "spiceproxy",
        "sendkey",
        "firewall",
        "mtunnel",
        "remote_migrate",
    ];
    Ok(Reply::Data(
        names.iter().map(|name| json!({ "subdir": name })).collect(),
    ))
}

/// `GET …/status`: what is below.
pub(crate) fn status_index(call: &mut Call<'_>) -> Result<Reply, Failure> {
    guest(call, Kind::Qemu)?;
    let names = [
        "current", "start", "stop", "reset", "shutdown", "suspend", "reboot",
    ];
    Ok(Reply::Data(
        names.iter().map(|name| json!({ "subdir": name })).collect(),
    ))
}

/// `GET …/cloudinit`: the options of the drive, and how they differ from what is written on it.
pub(crate) fn cloud_init(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let guest = guest(call, Kind::Qemu)?;
    let order = [
        "ciuser",
        "cipassword",
        "citype",
        "cicustom",
        "ciupgrade",
        "sshkeys",
        "nameserver",
        "searchdomain",
    ];
    let written = &guest.config.cloud_init;
    // Until the guest runs there is nothing a change could be pending against.
    let compare = guest.is_running() && !written.is_empty();
    let mut rows = Vec::new();
    for option in order {
        let shown = |value: &str| config::shown(option, value, is_numeric);
        let now = guest.config.get(option);
        let before = if compare {
            written.get(option).map(String::as_str)
        } else {
            now
        };
        let row = match (before, now) {
            (None, None) => continue,
            (Some(before), Some(now)) if before == now => {
                json!({ "key": option, "value": shown(now) })
            }
            (Some(before), Some(now)) => {
                json!({ "key": option, "value": shown(before), "pending": shown(now) })
            }
            (Some(before), None) => json!({ "key": option, "value": shown(before), "delete": 1 }),
            (None, Some(now)) => json!({ "key": option, "pending": shown(now) }),
        };
        rows.push(row);
    }
    if compare {
        for (option, now) in &guest.config.current {
            let relevant = options::is(option, "ipconfig") || options::is(option, "net");
            if relevant && written.get(option).is_some_and(|before| before != now) {
                rows.push(json!({ "key": option, "value": written[option], "pending": now }));
            }
        }
    }
    Ok(Reply::Data(Value::Array(rows)))
}

/// `GET …/cloudinit/dump`
pub(crate) fn cloud_init_dump(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let guest = guest(call, Kind::Qemu)?;
    let custom = start::custom(call.world, &node, &guest.config)?;
    let host = start::host(call.world, &node);
    let seed = cloudinit::seed(vmid, &guest.config.merged(), &host, custom);
    let text = match call.params.text("type") {
        "user" => seed.user_data,
        "network" => seed.network_config.unwrap_or_default(),
        _ => seed.meta_data,
    };
    Ok(Reply::Data(json!(text)))
}

/// `PUT …/cloudinit`: writes the drive anew.
pub(crate) fn cloud_init_update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    guest(call, Kind::Qemu)?.check_lock()?;
    start::write_seed(call.world, &node, vmid)?;
    Ok(Reply::null())
}

/// `GET …/rrddata`: times without numbers, as of a guest nobody has measured.
pub(crate) fn rrddata(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let step = match call.params.text("timeframe") {
        "hour" => 60,
        "day" => 1800,
        "week" => 10_800,
        "month" => 43_200,
        _ => 604_800,
    };
    let now = call.world.now() / step * step;
    let points = (0..70)
        .rev()
        .map(|back| json!({ "time": now - back * step }))
        .collect();
    Ok(Reply::Data(points))
}
