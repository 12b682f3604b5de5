//! Showing machines.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use api::vm::{VirtualMachine, condition};
use comfy_table::Table;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::Value;

use super::act::There;
use super::answer::why;
use crate::output;

pub(super) async fn list(there: &There, all: bool, json: bool) -> Result<()> {
    let api: Api<VirtualMachine> = if all {
        Api::all(there.client.clone())
    } else {
        there.machines()
    };
    let machines = api.list(&ListParams::default()).await.map_err(why)?.items;
    if json {
        let shown: Result<Vec<Value>> = machines.iter().map(for_people).collect();
        let text = serde_json::to_string_pretty(&shown?).context("the machines cannot be shown")?;
        return output::data(&(text + "\n"));
    }
    if machines.is_empty() {
        let place = if all {
            "any namespace"
        } else {
            &there.namespace
        };
        output::say(format_args!("no machines in {place}"));
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    let mut header = vec!["NAME", "PHASE", "READY", "NODE", "VMID", "ADDRESSES"];
    if all {
        header.insert(0, "NAMESPACE");
    }
    table.set_header(header);
    for machine in machines {
        let status = machine.status.clone().unwrap_or_default();
        let ready = condition(&status.conditions, "Ready").map_or("", |c| c.status.as_str());
        let mut row = vec![
            machine.name_any(),
            format!("{:?}", status.phase.unwrap_or_default()),
            ready.to_owned(),
            status.node.clone().unwrap_or_default(),
            status.vmid.map(|vmid| vmid.to_string()).unwrap_or_default(),
            status.ips.join(", "),
        ];
        if all {
            row.insert(0, machine.namespace().unwrap_or_default());
        }
        table.add_row(row);
    }
    output::data(&format!("{table}\n"))
}

/// A machine without what only programs read.
fn for_people(machine: &VirtualMachine) -> Result<Value> {
    let mut shown = machine.clone();
    shown.metadata.managed_fields = None;
    let mut value = serde_json::to_value(&shown).context("the machine cannot be shown")?;
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("record");
    }
    Ok(value)
}

pub(super) async fn describe(there: &There, name: &str) -> Result<()> {
    let value = for_people(&there.machine(name).await?)?;
    let mut text = serde_saphyr::to_string(&value).context("the machine cannot be shown")?;
    let events: Api<Event> = Api::namespaced(there.client.clone(), &there.namespace);
    let about = format!("involvedObject.kind=VirtualMachine,involvedObject.name={name}");
    let mut events = match events.list(&ListParams::default().fields(&about)).await {
        Ok(events) => events.items,
        Err(error) => {
            output::data(&text)?;
            output::say(format_args!("its events are not shown: {}", why(error)));
            return Ok(());
        }
    };
    events.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
    text.push_str("events:\n");
    for event in events {
        let at = event
            .last_timestamp
            .map(|time| time.0.to_string())
            .unwrap_or_default();
        let reason = event.reason.unwrap_or_default();
        let message = event.message.unwrap_or_default();
        let _ = writeln!(text, "  {at}  {reason}: {message}");
    }
    output::data(&text)
}
