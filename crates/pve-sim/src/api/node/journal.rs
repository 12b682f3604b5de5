//! What a node tells about itself for people: its log, its report, its network counters.

use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::clock::calendar;
use crate::failure::Failure;
use crate::journal::Entry;
use crate::permission::all;
use crate::release::Release;
use crate::route::{Route, get, post};
use crate::schema::{flag, int, text};

pub(super) fn routes(release: Release) -> Vec<Route> {
    let audit = || all("/nodes/{node}", &["Sys.Audit"]);
    let logs = || all("/nodes/{node}", &["Sys.Syslog"]);
    let count = |name| int(name).min(0).optional();
    let mut journal = vec![
        count("since"),
        count("until"),
        count("lastentries"),
        text("startcursor").optional(),
        text("endcursor").optional(),
    ];
    if release.is_9() {
        journal.extend(["structured", "kernel", "identifiers", "units"].map(flag));
        journal.push(text("priority").pattern(is_priority).optional());
        journal.push(
            text("service")
                .pattern(is_identifier)
                .max_len(128)
                .optional(),
        );
        journal.push(text("unit").pattern(is_unit).max_len(256).optional());
    }
    vec![
        get("/nodes/{node}/syslog", syslog)
            .perm(logs())
            .protected()
            .params([
                count("start"),
                count("limit"),
                text("since").pattern(is_time).optional(),
                text("until").pattern(is_time).optional(),
                text("service").max_len(128).optional(),
            ]),
        get("/nodes/{node}/journal", lines)
            .perm(logs())
            .protected()
            .params(journal),
        get("/nodes/{node}/firewall/log", |_| {
            // Packets are not simulated, so none was logged.
            Ok(Reply::Counted(json!([{ "n": 1, "t": "no content" }]), 0))
        })
        .perm(logs())
        .protected()
        .params(["start", "limit", "since", "until"].map(count)),
        get("/nodes/{node}/report", report)
            .perm(audit())
            .protected(),
        get("/nodes/{node}/netstat", netstat).perm(audit()),
        post("/nodes/{node}/wakeonlan", wake)
            .perm(all("/nodes/{node}", &["Sys.PowerMgmt"]))
            .without_quorum()
            .here(),
    ]
}

/// `0` to `7`, or `0..3`.
fn is_made_of(value: &str, more: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    !value.is_empty() && value.chars().all(fits)
}

fn is_identifier(value: &str) -> bool {
    is_made_of(value, "_.@:*?![]/-")
}

fn is_unit(value: &str) -> bool {
    is_made_of(value, "_.@:-")
}

fn is_priority(value: &str) -> bool {
    let digit = |part: &str| part.len() == 1 && part.bytes().all(|b| (b'0'..=b'7').contains(&b));
    value.is_empty()
        || match value.split_once("..") {
            Some((low, high)) => digit(low) && digit(high),
            None => digit(value),
        }
}

/// `2026-11-16` or `2026-11-16 05:30[:00]`.
fn is_time(value: &str) -> bool {
    let forms = ["dddd-dd-dd", "dddd-dd-dd dd:dd", "dddd-dd-dd dd:dd:dd"];
    let fits = |form: &&str| {
        form.len() == value.len()
            && form
                .bytes()
                .zip(value.bytes())
                .all(|(form, byte)| match form {
                    b'd' => byte.is_ascii_digit(),
                    other => other == byte,
                })
    };
    forms.iter().any(fits)
}

/// `Nov 16 05:30:00 pve1 pvedaemon[1000]: …`
fn line(entry: &Entry) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let at = calendar(entry.time);
    let month = usize::try_from(at.month).unwrap_or(1);
    let month = MONTHS.get(month.saturating_sub(1)).unwrap_or(&"Jan");
    let (user, msg) = (&entry.user, &entry.msg);
    format!(
        "{month} {:02} {:02}:{:02}:{:02} {} {}[1000]: <{user}> {msg}",
        at.day, at.hour, at.minute, at.second, entry.node, entry.tag
    )
}

/// `2026-11-16 05:30:00`, which sorts as time does.
fn stamp(time: u64) -> String {
    let at = calendar(time);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        at.year, at.month, at.day, at.hour, at.minute, at.second
    )
}

/// The entries of the node in the path, oldest first.
fn entries<'a>(call: &'a Call<'_>) -> Vec<&'a Entry> {
    let node = call.params.text("node");
    let newest = call.world.journal.newest();
    let mut found: Vec<&Entry> = newest.filter(|entry| entry.node == node).collect();
    found.reverse();
    found
}

fn syslog(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let number = |name: &str| {
        let value = call.params.uint(name);
        value.and_then(|value| usize::try_from(value).ok())
    };
    let shown = entries(call).into_iter().filter(|entry| {
        let at = stamp(entry.time);
        let service = call.params.get("service");
        call.params
            .get("since")
            .is_none_or(|since| at.as_str() >= since)
            && call
                .params
                .get("until")
                .is_none_or(|until| at.as_str() <= until)
            && service.is_none_or(|service| service == entry.tag)
    });
    let lines: Vec<String> = shown.map(line).collect();
    let rows = (1_usize..)
        .zip(&lines)
        .skip(number("start").unwrap_or(0))
        .take(number("limit").unwrap_or(50))
        .map(|(n, text)| json!({ "n": n, "t": text }));
    Ok(Reply::Counted(rows.collect(), lines.len()))
}

fn lines(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let priority = call.params.get("priority").filter(|it| !it.is_empty());
    let worst = priority.and_then(|it| it.rsplit("..").next()?.parse::<u8>().ok());
    let tag = call.params.get("service").or(call.params.get("unit"));
    let tag = tag.map(|it| it.trim_end_matches(".service"));
    let shown = entries(call).into_iter().filter(|entry| {
        let (since, until) = (call.params.uint("since"), call.params.uint("until"));
        since.is_none_or(|since| entry.time >= since)
            && until.is_none_or(|until| entry.time <= until)
            && worst.is_none_or(|worst| entry.pri <= worst)
            && tag.is_none_or(|tag| tag == entry.tag)
            // The kernel of a simulated host has nothing to say.
            && !call.params.flag("kernel")
    });
    let mut shown: Vec<&Entry> = shown.collect();
    if let Some(last) = call.params.uint("lastentries") {
        let keep = usize::try_from(last).unwrap_or(usize::MAX);
        shown.drain(..shown.len().saturating_sub(keep));
    }
    let cursor = |entry: Option<&&Entry>| json!(entry.map(|entry| format!("s={}", entry.uid)));
    let mut rows = vec![cursor(shown.first())];
    rows.extend(shown.iter().map(|entry| json!(line(entry))));
    rows.push(cursor(shown.last()));
    Ok(Value::Array(rows).into())
}

fn report(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("node");
    let (world, node) = (&*call.world, call.world.node(name)?);
    let guests = world.guests.on_node(name).count();
    Ok(json!(format!(
        "==== general system info ====\n\n# hostname\n{name}\n\n# pveversion --verbose\n\
         pve-manager: {}\n\n==== info about virtual guests ====\n\n{guests} guests\n\n\
         ==== info about processor ====\n\n{} CPUs, {} sockets\n\n==== info about network ====\n\n{}\n",
        world.release.version(),
        node.cpus,
        node.sockets,
        node.network.keys().cloned().collect::<Vec<_>>().join(" "),
    ))
    .into())
}

fn netstat(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.params.text("node");
    let running = call
        .world
        .guests
        .on_node(node)
        .filter(|guest| guest.is_running());
    let rows = running.flat_map(|guest| {
        let cards = guest.config.current.keys().filter_map(|name| {
            let number = name.strip_prefix("net")?;
            number.parse::<u8>().ok().map(|_| name.to_owned())
        });
        let usage = crate::guest::view::usage(call.world, guest);
        cards
            .map(|dev| {
                json!({
                    "vmid": guest.vmid.to_string(), "dev": dev,
                    "in": usage.netin.to_string(), "out": usage.netout.to_string(),
                })
            })
            .collect::<Vec<_>>()
    });
    Ok(rows.collect::<Value>().into())
}

/// Switches a node on through the network, by the address its options name.
fn wake(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.node();
    let node = call.world.node(&name)?;
    let settings = node
        .options
        .get("wakeonlan")
        .and_then(|it| it.split(',').next());
    let mac = settings.map(|it| it.strip_prefix("mac=").unwrap_or(it).to_owned());
    let Some(mac) = mac else {
        let text = format!("No wake on LAN MAC address defined for '{name}'!");
        return Err(Failure::param("node", text));
    };
    if name == call.entry {
        return Err(Failure::param("node", "node must not be the local node"));
    }
    let cluster = call.cluster.clone();
    call.cluster
        .tracker()
        .spawn(async move { cluster.revive_node(&name) });
    Ok(json!(mac).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_priorities_have_their_forms() {
        assert!(is_time("2026-11-16") && is_time("2026-11-16 05:30") && !is_time("16.11.2026"));
        assert!(is_priority("") && is_priority("3") && is_priority("0..4") && !is_priority("8"));
    }
}
