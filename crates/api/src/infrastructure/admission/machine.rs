//! Is this a machine that can be made, and a change that can be followed?

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;

use super::findings::{Findings, Path};
use super::network;
use crate::infrastructure::v1beta1::ProxmoxMachineSpec;
use crate::vm::Bytes;

pub(super) fn check(spec: &ProxmoxMachineSpec, at: &Path, out: &mut Findings) {
    amount(spec.memory.as_ref(), &at.field("memory"), out);
    amount(spec.disk_size.as_ref(), &at.field("diskSize"), out);
    for (number, tag) in spec.tags.iter().enumerate() {
        if !is_tag(tag) {
            let text = format!(
                "{tag:?} is not a tag: letters, digits and _ - + . only, beginning with a letter, a digit or _"
            );
            out.error(&at.field("tags").index(number), text);
        }
    }
    if let (Some(node), Some(allowed)) = (&spec.node_name, &spec.allowed_nodes)
        && !allowed.is_empty()
        && !allowed.contains(node)
    {
        let text = format!("{node:?} is not among allowedNodes: leave one of the two out");
        out.error(&at.field("nodeName"), text);
    }
    let boot = spec
        .disks
        .as_ref()
        .and_then(|disks| disks.boot_volume.as_ref());
    let additional = spec.disks.iter().flat_map(|disks| &disks.additional);
    for (number, disk) in additional.enumerate() {
        if disk.name == "root" || boot.is_some_and(|boot| boot.disk == disk.name) {
            let at = at
                .field("disks")
                .field("additional")
                .index(number)
                .field("name");
            out.error(
                &at,
                format!("{:?} is the boot disk's name: choose another", disk.name),
            );
        }
    }
    if let Some(network) = &spec.network {
        network::check(network, &at.field("network"), out);
    }
}

/// A template makes many machines, so it cannot say who one of them is.
pub(super) fn check_template(spec: &ProxmoxMachineSpec, at: &Path, out: &mut Findings) {
    let text = "belongs to one machine and is set by the controller: leave it out of a template";
    if spec.provider_id.is_some() {
        out.error(&at.field("providerID"), text);
    }
    if spec.virtual_machine_id.is_some() {
        out.error(&at.field("virtualMachineID"), text);
    }
    let devices = spec
        .network
        .iter()
        .flat_map(|network| &network.network_devices);
    for (number, device) in devices.enumerate() {
        if device.mac.is_some() {
            let at = at
                .field("network")
                .field("networkDevices")
                .index(number)
                .field("mac");
            out.error(
                &at,
                "all machines of the template would have it: leave it out",
            );
        }
    }
}

/// What a machine was made from and who it is stays as it is; sizes may change.
pub(super) fn check_change(
    old: &ProxmoxMachineSpec,
    new: &ProxmoxMachineSpec,
    made: bool,
    out: &mut Findings,
) {
    let mut fixed = Fixed { out };
    // Until the guest exists its VMID may turn out to be taken, and another is chosen.
    if made {
        fixed.once_set(
            "providerID",
            old.provider_id.as_ref(),
            new.provider_id.as_ref(),
        );
        fixed.once_set(
            "virtualMachineID",
            old.virtual_machine_id.as_ref(),
            new.virtual_machine_id.as_ref(),
        );
    }
    // Until a guest is begun there, another instance may be chosen for one that is down.
    if old.virtual_machine_id.is_some() {
        fixed.once_set("instance", old.instance.as_ref(), new.instance.as_ref());
    }
    fixed.always("template", &old.template, &new.template);
    fixed.always(
        "templateSelector",
        &old.template_selector,
        &new.template_selector,
    );
    fixed.always("sourceNode", &old.source_node, &new.source_node);
    fixed.always("nodeName", &old.node_name, &new.node_name);
    fixed.always("allowedNodes", &old.allowed_nodes, &new.allowed_nodes);
    fixed.always("full", &old.full, &new.full);
    fixed.always("format", &old.format, &new.format);
    fixed.always("storage", &old.storage, &new.storage);
    fixed.always("isoStorage", &old.iso_storage, &new.iso_storage);
    fixed.always("snapName", &old.snap_name, &new.snap_name);
    fixed.always("tags", &old.tags, &new.tags);
    fixed.always("vmIDRange", &old.vm_id_range, &new.vm_id_range);
    let boot = |spec: &ProxmoxMachineSpec| spec.disks.as_ref().and_then(|d| d.boot_volume.clone());
    fixed.always("disks.bootVolume", &boot(old), &boot(new));
    let zone = |spec: &ProxmoxMachineSpec| spec.network.as_ref().and_then(|n| n.zone.clone());
    fixed.always("network.zone", &zone(old), &zone(new));
}

struct Fixed<'a> {
    out: &'a mut Findings,
}

impl Fixed<'_> {
    fn once_set<T: PartialEq + Serialize>(
        &mut self,
        field: &str,
        old: Option<&T>,
        new: Option<&T>,
    ) {
        if old.is_some() && old != new {
            self.refuse(field);
        }
    }

    fn always<T: PartialEq + Serialize>(&mut self, field: &str, old: &T, new: &T) {
        if old != new {
            self.refuse(field);
        }
    }

    fn refuse(&mut self, field: &str) {
        let at = Path::root("spec").field(field);
        self.out.error(
            &at,
            "cannot be changed, because the machine is made from it: replace the Machine",
        );
    }
}

fn amount(written: Option<&IntOrString>, at: &Path, out: &mut Findings) {
    match written {
        Some(IntOrString::Int(number)) if *number <= 0 => {
            out.error(
                at,
                "must be more than nothing, or left out to take the template's",
            );
        }
        Some(IntOrString::String(text)) if text.parse::<u64>().is_err() => {
            if let Err(error) = text.parse::<Bytes>() {
                out.error(at, error);
            }
        }
        _ => {}
    }
}

fn is_tag(tag: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.starts_with(plain) && tag.chars().all(|c| plain(c) || "-+.".contains(c))
}
