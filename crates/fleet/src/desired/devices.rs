//! Devices and network interfaces in PVE's keys.

use super::{Context, Desired, Make, OTHER_NICS, TPM, Want, validate::together::WITH_THREADS};
use crate::{
    intent::{Bios, Bus, GuestIntent, Hotplug, Nic, TpmVersion},
    prop::Prop,
    record::{Identity, NicIdentity},
};

pub(super) fn hardware(
    want: &mut Desired,
    intent: &GuestIntent,
    identity: &Identity,
    context: Context<'_>,
) {
    let hardware = &intent.hardware;
    if let Some(hotplug) = &hardware.hotplug {
        let words = hotplug.iter().map(|what| match what {
            Hotplug::Network => "network",
            Hotplug::Disk => "disk",
            Hotplug::Usb => "usb",
            Hotplug::Memory => "memory",
            Hotplug::Cpu => "cpu",
            Hotplug::CloudInit => "cloudinit",
        });
        let words: std::collections::BTreeSet<String> = words.map(str::to_owned).collect();
        if words.is_empty() {
            want.text("hotplug", Some("0"));
        } else {
            want.keys.insert("hotplug".to_owned(), Want::Words(words));
        }
    }
    if let Some(machine) = &hardware.machine {
        want.items("machine", Prop::parse("machine", machine));
    }
    let bios = hardware.bios.map(|bios| match bios {
        Bios::SeaBios => "seabios",
        Bios::Ovmf => "ovmf",
    });
    want.text("bios", bios);
    let scratch = |value: &str| context.from_scratch.then(|| value.to_owned());
    let controller = hardware.scsi_controller.clone();
    let controller = controller.or_else(|| scratch(WITH_THREADS));
    if controller.is_none() && threads(intent, identity) {
        // To the guest both are the same device.
        let instead = Want::Instead {
            of: "virtio-scsi-pci",
            value: WITH_THREADS.to_owned(),
        };
        want.keys.insert("scsihw".to_owned(), instead);
    }
    want.text("scsihw", controller);
    want.text(
        "ostype",
        hardware.os_type.clone().or_else(|| scratch("l26")),
    );
    if let Some(vga) = &hardware.vga {
        want.items("vga", Prop::parse("vga", vga));
    }
    for port in 0..hardware.serial_ports.unwrap_or(0) {
        want.text(&format!("serial{port}"), Some("socket"));
    }
    if let Some(rng) = &hardware.rng {
        let mut items = Prop::default();
        items.set("source", rng.source.clone());
        items.maybe("max_bytes", rng.max_bytes);
        items.maybe("period", rng.period);
        want.items("rng0", items);
    }
    if let Some(agent) = &hardware.agent {
        let mut items = Prop::default();
        items.set("enabled", u8::from(agent.enabled).to_string());
        items.flag("fstrim_cloned_disks", agent.fstrim);
        want.items("agent", items);
    }
    for (index, device) in hardware.pci.iter().enumerate() {
        let mut items = Prop::default();
        items.set("mapping", device.mapping.clone());
        items.maybe("mdev", device.mdev.as_ref());
        items.set("pcie", u8::from(device.pcie).to_string());
        items.flag("x-vga", device.primary_gpu);
        items.flag("rombar", device.rombar);
        want.items(&format!("hostpci{index}"), items);
    }
    for (index, device) in hardware.usb.iter().enumerate() {
        let mut items = Prop::default();
        items.set("mapping", device.mapping.clone());
        items.set("usb3", u8::from(device.usb3).to_string());
        want.items(&format!("usb{index}"), items);
    }
    want.flag("tablet", hardware.tablet);
    if let Some(watchdog) = &hardware.watchdog {
        want.items("watchdog", Prop::parse("watchdog", watchdog));
    }
    if let Some(efi) = &hardware.efi {
        let keys = u8::from(efi.secure_boot.unwrap_or_default());
        let mut options = Prop::default();
        options.flag("pre-enrolled-keys", efi.secure_boot);
        let field = "efi.storage";
        let make = Make::on(efi.storage.as_ref(), context, field, "disks", |storage| {
            format!("{storage}:1,efitype=4m,pre-enrolled-keys={keys}")
        });
        want.state("efidisk0", make, efi.storage.clone(), options);
    }
    if let Some(tpm) = &hardware.tpm {
        let version = match tpm.version {
            TpmVersion::V1_2 => "v1.2",
            TpmVersion::V2_0 => "v2.0",
        };
        let mut options = Prop::default();
        options.set("version", version);
        let field = "tpm.storage";
        let make = Make::on(tpm.storage.as_ref(), context, field, "disks", |storage| {
            format!("{storage}:1,version={version}")
        });
        want.state(TPM, make, tpm.storage.clone(), options);
    }
}

/// Whether a disk on the SCSI bus shall have an I/O thread, which PVE ignores behind most controllers.
fn threads(intent: &GuestIntent, identity: &Identity) -> bool {
    let on_scsi = |name: &str| {
        let slot = identity.disks.get(name);
        slot.is_some_and(|slot| slot.bus == Bus::Scsi)
    };
    let mut disks = intent.disks.iter();
    !identity.adopted && disks.any(|disk| disk.iothread == Some(true) && on_scsi(&disk.name))
}

pub(super) fn nics(want: &mut Desired, intent: &GuestIntent, identity: &Identity) {
    want.own_all_nics = !intent.nics.is_empty() && !identity.adopted;
    for nic in &intent.nics {
        if let Some(known) = identity.nics.get(&nic.name) {
            let key = format!("net{}", known.index);
            let whole = items(nic, *known, filtered(nic, intent));
            let wish = if identity.adopted {
                let mut said = whole.clone();
                if nic.model.is_none() {
                    said.remove(nic.model.unwrap_or_default().as_str());
                }
                Want::Card {
                    whole,
                    said,
                    mac: nic.mac,
                }
            } else {
                Want::Exactly(whole)
            };
            want.keys.insert(key, wish);
        }
    }
    filter(want, intent);
    if identity.adopted {
        return;
    }
    // An interface that is no longer declared goes; its number may be used again.
    for (name, known) in &identity.nics {
        if !intent.nics.iter().any(|nic| &nic.name == name) {
            want.absent.insert(format!("net{}", known.index));
        }
    }
}

/// Whether PVE's firewall is on for an interface: without it the firewall of the guest filters nothing there.
pub(super) fn filtered(nic: &Nic, intent: &GuestIntent) -> Option<bool> {
    nic.firewall
        .or_else(|| has_firewall(intent).then_some(true))
}

/// What a firewall needs of interfaces that nothing is declared about.
pub(super) fn filter(want: &mut Desired, intent: &GuestIntent) {
    if has_firewall(intent) && !want.own_all_nics {
        want.keys.insert(OTHER_NICS.to_owned(), Want::Filtered);
    }
}

fn has_firewall(intent: &GuestIntent) -> bool {
    let firewall = intent.options.firewall.as_ref();
    firewall.is_some_and(|firewall| firewall.enable == Some(true))
}

fn items(nic: &Nic, known: NicIdentity, firewall: Option<bool>) -> Prop {
    let mut items = Prop::default();
    let model = nic.model.unwrap_or_default();
    items.set(model.as_str(), known.mac.to_string());
    items.set("bridge", nic.bridge.clone());
    items.maybe("tag", nic.vlan);
    if !nic.trunks.is_empty() {
        let trunks: Vec<String> = nic.trunks.iter().map(ToString::to_string).collect();
        items.set("trunks", trunks.join(";"));
    }
    items.maybe("mtu", nic.mtu);
    items.maybe("queues", nic.queues);
    items.maybe("rate", nic.rate);
    items.flag("firewall", firewall);
    items.flag("link_down", nic.link_down);
    items
}
