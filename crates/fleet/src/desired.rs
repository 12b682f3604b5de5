//! The configuration a guest shall have, in PVE's keys.
//!
//! [`virtual_machine`] turns an intent and an identity into a [`Desired`]: for every key it owns, what must be true of the
//! value. Comparing it with what is there ([`crate::diff`]) gives the changes. The same desire is what a creation call
//! is filled from, so a new guest and a changed one cannot come out differently.

mod devices;
mod disks;
mod lxc;
mod validate;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use pve::GuestKind;
use sha2::{Digest, Sha256};

use crate::{
    Size, StorageId, cloudinit,
    diff::is_secret,
    intent::{DiskSlot, GuestIntent, Hugepages, InitMode, Mac, Options, Source},
    prop::Prop,
    record::Identity,
    view::GuestRow,
};

pub(crate) use disks::{DiskWant, Make, ROOT_CANDIDATES, ROOT_NAME, StateWant, is_linked};
pub(crate) use lxc::container;
pub(crate) use validate::{is_root_only, may_be_thin, suits, suits_source, validate};

/// A field that cannot be what it is, and the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// The field, in the words of the intent.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl Invalid {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// What must be true of the value of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    /// It is this.
    Text(String),
    /// These items are in it; others are left alone.
    Items(Prop),
    /// It is exactly these items (network interfaces: another model is another device).
    Exactly(Prop),
    /// An interface that was found: what is said about it is so, its address too where one is said, and the rest as it was. Made
    /// whole where it is missing.
    Card {
        whole: Prop,
        said: Prop,
        mac: Option<Mac>,
    },
    /// It is this set of words.
    Words(BTreeSet<String>),
    /// Words that must be among those that are there.
    Among(BTreeSet<String>),
    /// It carries our mark; with a text, also this text.
    Description(Option<String>),
    /// There is a volume, made like this if it is missing, with these options.
    Disk(DiskWant),
    /// There is the state of firmware or TPM; what it was made with can only be reported.
    State(StateWant),
    /// Something is there, made like this if it is missing; never changed afterwards.
    Exists(String),
    /// It is this in place of one other; what is neither is only reported.
    Instead { of: &'static str, value: String },
    /// PVE's own cloud-init drive is there, made like this in place of anything else.
    CloudInit(String),
    /// The guest's firewall is on for every interface that is not declared; what is not so is only reported.
    Filtered,
}

/// The configuration a guest shall have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Desired {
    pub(crate) keys: BTreeMap<String, Want>,
    /// Keys that shall not be there.
    pub(crate) absent: BTreeSet<String>,
    /// Items that were declared and are not any more, by their key.
    pub(crate) dropped: BTreeMap<String, BTreeSet<String>>,
    /// Places that have had their volume, and its name if it is known: another one is never made there.
    pub(crate) kept: BTreeMap<String, Option<String>>,
    /// Every `netN` that is not declared goes.
    pub(crate) own_all_nics: bool,
    /// Any cloud-init drive of the source goes: the guest would read the wrong one.
    pub(crate) no_foreign_cloudinit: bool,
    /// This volume is gone and must not be in the first-boot drive (a snapshot may bring it back).
    pub(crate) ejected: Option<String>,
    /// First-boot images of others are taken out: a copy brings its source's drive along, which names an image that
    /// is gone or will be, and a guest does not start without it.
    pub(crate) no_foreign_seed: bool,
}

impl Desired {
    fn text(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.keys
                .insert(key.to_owned(), Want::Text(value.to_string()));
        }
    }

    fn flag(&mut self, key: &str, value: Option<bool>) {
        self.text(key, value.map(u8::from));
    }

    pub(crate) fn items(&mut self, key: &str, items: Prop) {
        if items.items().next().is_some() {
            self.keys.insert(key.to_owned(), Want::Items(items));
        }
    }

    fn state(&mut self, key: &str, make: Make, storage: Option<StorageId>, options: Prop) {
        let wish = StateWant {
            make,
            storage,
            options,
        };
        self.keys.insert(key.to_owned(), Want::State(wish));
    }

    fn tags(&mut self, options: &Options) {
        let Some(tags) = &options.tags else { return };
        let tags = tags.iter().map(|tag| tag.to_lowercase()).collect();
        let wish = if options.keep_tags {
            Want::Among(tags)
        } else {
            Want::Words(tags)
        };
        self.keys.insert("tags".to_owned(), wish);
    }

    /// What of it is taken back when it is no longer declared: keys, and items as `key/item`.
    pub(crate) fn options(&self) -> BTreeSet<String> {
        let whole = self.keys.iter().filter(|(key, want)| match want {
            Want::Description(text) => text.as_ref().is_some_and(|text| !text.is_empty()),
            // A container can do without: it then has all of its node's.
            _ if *key == "cores" => self.keys.contains_key("rootfs"),
            _ if IN_PARTS.contains(&key.as_str()) => false,
            _ => is_option(key) || *key == TPM,
        });
        let whole = whole.map(|(key, _)| key.clone());
        // It is there until somebody takes it out.
        let left = self.absent.get(TPM).cloned();
        let items = self.keys.keys().flat_map(|key| {
            let items = self.own_items(key).into_iter().flat_map(Prop::items);
            items.map(move |(item, _)| format!("{key}/{item}"))
        });
        whole.chain(left).chain(items).collect()
    }

    /// The items of a key that can be taken back one by one.
    fn own_items(&self, key: &str) -> Option<&Prop> {
        match self.keys.get(key)? {
            Want::Items(_) if ["smbios1", SEED_SLOT].contains(&key) => None,
            Want::Items(items) | Want::Exactly(items) => Some(items),
            Want::Disk(disk) => Some(&disk.options),
            _ => None,
        }
    }

    /// Takes back what was declared before and is not any more.
    pub(crate) fn take_back(&mut self, before: &BTreeSet<String>) {
        for declared in before {
            let Some((key, item)) = declared.split_once('/') else {
                match self.keys.get_mut(declared) {
                    // The mark of its owner stays.
                    Some(Want::Description(text)) => {
                        text.get_or_insert_default();
                    }
                    Some(_) => {}
                    // Earlier records name these as a whole, too.
                    None if IN_PARTS.contains(&declared.as_str()) => {}
                    None => {
                        self.absent.insert(declared.clone());
                    }
                }
                continue;
            };
            let is_dropped = match self.own_items(key) {
                Some(items) => items.get(item).is_none(),
                None => IN_PARTS.contains(&key) && !self.keys.contains_key(key),
            };
            if is_dropped {
                let dropped = self.dropped.entry(key.to_owned()).or_default();
                dropped.insert(item.to_owned());
            }
        }
    }

    /// Whether a key is declared, or taken out where it is not.
    pub(crate) fn owns(&self, key: &str) -> bool {
        let card = self.own_all_nics && key.starts_with("net");
        let item = self.dropped.contains_key(key);
        card || item || self.keys.contains_key(key) || self.absent.contains(key)
    }

    /// Whether a look at everything shows nothing else than this.
    pub(crate) fn allows(&self, row: &GuestRow, kind: GuestKind) -> bool {
        let number = |key: &str| match self.keys.get(key) {
            Some(Want::Text(text)) => text.parse::<u32>().ok(),
            _ => None,
        };
        let tags = row.tags.iter().map(|tag| tag.to_lowercase()).collect();
        let shown = |key: &str, want: &Want| match (key, want) {
            ("name" | "hostname", Want::Text(name)) => *name == row.name,
            ("memory", _) => number("memory").is_none_or(|mib| Size::mib(mib.into()) == row.memory),
            ("cores", _) => {
                let all = number("cores").map(|cores| cores * number("sockets").unwrap_or(1));
                let plugged = number("vcpus").or(all);
                plugged.is_none_or(|plugged| plugged == row.processors())
            }
            ("tags", Want::Words(words)) => *words == tags,
            ("tags", Want::Among(words)) => words.is_subset(&tags),
            _ => true,
        };
        kind == row.kind && !row.template && self.keys.iter().all(|(key, want)| shown(key, want))
    }

    /// A digest of everything wanted. Secrets go in only through the digest.
    pub(crate) fn digest(&self) -> String {
        // The first-boot image comes and goes without anybody declaring anything.
        let mut lasting = self.clone();
        lasting.ejected = None;
        lasting.kept.clear();
        for (key, wish) in &mut lasting.keys {
            // Where something new would be made depends on the node; nobody declares anything by moving.
            match wish {
                Want::Disk(disk) => disk.make = Make::Brought,
                Want::State(state) => state.make = Make::Brought,
                Want::CloudInit(value) => value.clear(),
                // Who may read the digest could try passwords on it; a new one is noticed elsewhere.
                Want::Exists(value) if is_secret(key) => value.clear(),
                _ => {}
            }
        }
        if matches!(lasting.keys.get(SEED_SLOT), Some(Want::Items(_))) {
            lasting.keys.remove(SEED_SLOT);
        }
        let mut hash = Sha256::new();
        hash.update(format!("{lasting:?}"));
        cloudinit::hex(&hash.finalize()[..12])
    }
}

/// Options that a source may have as they are declared: then they are its own, and nobody's to take back.
pub(crate) const MAY_BE_THE_SOURCES: &[&str] = &["cores", "numa", "ostype", "swap"];

/// Options of items that say something each: what a source says in others stays when one is no longer declared.
const IN_PARTS: &[&str] = &["cpu", "features", "startup", "vga"];

/// Whether a key is an option that a guest can do without, and not a part of what it is.
fn is_option(key: &str) -> bool {
    const OPTIONS: &[&str] = &[
        "affinity",
        "allow-ksm",
        "args",
        "balloon",
        "cipassword",
        "ciuser",
        "cpu",
        "cpulimit",
        "cpuunits",
        "features",
        "hotplug",
        "hugepages",
        "kvm",
        "nameserver",
        "numa",
        "onboot",
        "ostype",
        "protection",
        "searchdomain",
        "shares",
        "sshkeys",
        "startup",
        "swap",
        "tablet",
        "tags",
        "vcpus",
        "vga",
        "watchdog",
    ];
    const NUMBERED: &[&str] = &["hostpci", "ipconfig", "numa", "rng", "serial", "usb"];
    let name = key.trim_end_matches(|c: char| c.is_ascii_digit());
    OPTIONS.contains(&key) || (name != key && NUMBERED.contains(&name))
}

/// What the rendering must know beside intent and identity.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Context<'a> {
    /// The volume of the first-boot image while it shall be in the drive.
    pub(crate) seed: Option<&'a str>,
    /// The same volume once it shall be out of the drive.
    pub(crate) ejected: Option<&'a str>,
    /// There is, or was, such an image.
    pub(crate) told: bool,
    /// Where PVE's own cloud-init drive shall be made.
    pub(crate) cloudinit_storage: Option<&'a str>,
    /// The storage for disks that name none.
    pub(crate) default_storage: Option<&'a str>,
    /// The guest is made from nothing, so it needs what a template would bring.
    pub(crate) from_scratch: bool,
    /// It was configured once: an installer has been put in.
    pub(crate) configured: bool,
    /// PVE's major release.
    pub(crate) major: u32,
}

/// The state of a TPM.
pub(crate) const TPM: &str = "tpmstate0";
/// The slot of the first-boot image, or of PVE's own drive.
pub(crate) const SEED_SLOT: &str = "ide2";
/// Stands for all interfaces that are not declared; no key of PVE's.
const OTHER_NICS: &str = "net";
/// The slot of an installer.
pub(crate) const INSTALLER_SLOT: &str = "ide0";

/// The configuration of a virtual machine.
pub(crate) fn virtual_machine(
    intent: &GuestIntent,
    identity: &Identity,
    context: Context<'_>,
) -> Result<Desired, Invalid> {
    let mut want = Desired::default();
    // What was taken over keeps the name it is known by.
    want.text("name", (!identity.adopted).then_some(&intent.name));
    want.keys.insert(
        "description".to_owned(),
        Want::Description(intent.options.description.clone()),
    );
    smbios(&mut want, intent, identity, context);
    processors(&mut want, intent);
    memory(&mut want, intent, context);
    devices::hardware(&mut want, intent, identity, context);
    devices::nics(&mut want, intent, identity);
    disks::disks(&mut want, intent, identity, context)?;
    options(&mut want, intent);
    if let Some(volume) = installer(intent, context) {
        let installer = Prop::parse(INSTALLER_SLOT, &format!("{volume},media=cdrom"));
        want.keys.insert(
            INSTALLER_SLOT.to_owned(),
            Want::Exists(installer.print(INSTALLER_SLOT)),
        );
    }
    want.no_foreign_seed = !identity.adopted;
    first_boot(&mut want, intent, identity, context)?;
    boot(&mut want, intent, identity, context)?;
    for (key, value) in &intent.hardware.extra {
        if want.keys.contains_key(key) {
            return Err(Invalid::new(
                format!("extra.{key}"),
                "is covered by a field of its own: use that field",
            ));
        }
        want.text(key, Some(value));
    }
    Ok(want)
}

/// The disc a guest is to be installed from: put in when it is made, and left alone from then on.
fn installer<'a>(intent: &'a GuestIntent, context: Context<'_>) -> Option<&'a String> {
    match &intent.source {
        Source::Iso { volume } if !context.configured => Some(volume),
        _ => None,
    }
}

fn smbios(want: &mut Desired, intent: &GuestIntent, identity: &Identity, context: Context<'_>) {
    // A guest that was taken over keeps the UUID it has; its software may be licensed to it.
    if identity.adopted {
        return;
    }
    let mut items = Prop::default();
    items.set("uuid", identity.uuid.to_string());
    // Who has forgotten what the guest was told does not know which instance it is; the line it has says so still.
    if let Some(init) = intent
        .init
        .as_ref()
        .filter(|init| init.mode == InitMode::NoCloud && context.told && !init.forgotten)
    {
        let serial = cloudinit::serial(init, identity.uuid);
        items.set(
            "serial",
            base64::engine::general_purpose::STANDARD.encode(serial),
        );
        items.set("base64", "1");
    }
    want.items("smbios1", items);
}

fn processors(want: &mut Desired, intent: &GuestIntent) {
    let cpu = &intent.hardware.cpu;
    want.text("cores", cpu.cores);
    want.text("sockets", cpu.sockets);
    want.text("vcpus", cpu.vcpus);
    let mut kind = Prop::default();
    kind.maybe("cputype", cpu.model.as_ref());
    if !cpu.flags.is_empty() {
        kind.set("flags", cpu.flags.join(";"));
    }
    want.items("cpu", kind);
    want.text("cpulimit", cpu.limit);
    want.text("cpuunits", cpu.units);
    want.text("affinity", cpu.affinity.as_ref());
    // Neither works without.
    let needed = !cpu.numa_nodes.is_empty() || intent.hardware.memory.hugepages.is_some();
    want.flag("numa", cpu.numa.or_else(|| needed.then_some(true)));
    // In a list of items a comma ends the item.
    let ranges = |text: &String| text.replace(',', ";");
    for (index, node) in cpu.numa_nodes.iter().enumerate() {
        let mut items = Prop::default();
        items.set("cpus", ranges(&node.cpus));
        items.maybe("hostnodes", node.host_nodes.as_ref().map(ranges));
        items.set("memory", node.memory.as_mib().to_string());
        items.maybe("policy", node.policy.as_ref());
        want.items(&format!("numa{index}"), items);
    }
}

fn memory(want: &mut Desired, intent: &GuestIntent, context: Context<'_>) {
    let memory = &intent.hardware.memory;
    want.text("memory", memory.size.map(crate::Size::as_mib));
    want.text("balloon", memory.balloon.map(crate::Size::as_mib));
    want.text("shares", memory.shares);
    let pages = memory.hugepages.map(|pages| match pages {
        Hugepages::Any => "any",
        Hugepages::TwoMib => "2",
        Hugepages::OneGib => "1024",
    });
    want.text("hugepages", pages);
    if context.major >= 9 {
        want.flag("allow-ksm", memory.ksm);
    }
}

fn options(want: &mut Desired, intent: &GuestIntent) {
    let options = &intent.options;
    want.tags(options);
    want.flag("onboot", options.onboot);
    want.flag("protection", options.protection);
    if let Some(startup) = &options.startup {
        let mut items = Prop::default();
        items.maybe("order", startup.order);
        items.maybe("up", startup.up);
        items.maybe("down", startup.down);
        want.items("startup", items);
    }
}

fn first_boot(
    want: &mut Desired,
    intent: &GuestIntent,
    identity: &Identity,
    context: Context<'_>,
) -> Result<(), Invalid> {
    let Some(init) = &intent.init else {
        return Ok(());
    };
    match init.mode {
        InitMode::NoCloud => {
            // One that has booted without is left with what it was told then.
            want.no_foreign_cloudinit = !identity.adopted && context.told;
            want.ejected = context.ejected.map(str::to_owned);
            if let Some(volume) = context.seed {
                let drive = Prop::parse(SEED_SLOT, &format!("{volume},media=cdrom"));
                want.items(SEED_SLOT, drive);
            }
        }
        InitMode::Native => {
            let keys = cloudinit::native_keys(intent, init, &identity.nics)
                .map_err(|error| Invalid::new("init", error.to_string()))?;
            for (key, value) in keys {
                // What the source says about its own interfaces stays.
                let kept = key == cloudinit::FIRST_CARD && intent.nics.is_empty();
                if kept && identity.adopted {
                    continue;
                }
                // Some of the keys may have come from a Secret that was cleaned up since.
                let partly = key == "sshkeys" && init.forgotten;
                // PVE shows the password as stars, so it can be written but not compared.
                let wish = if key == "cipassword" || kept || partly {
                    Want::Exists(value)
                } else {
                    Want::Text(value)
                };
                want.keys.insert(key, wish);
            }
            if let Some(storage) = context.cloudinit_storage {
                want.keys.insert(
                    SEED_SLOT.to_owned(),
                    Want::CloudInit(format!("{storage}:cloudinit")),
                );
            }
        }
    }
    Ok(())
}

/// The boot order is always said: a copy with a disk that does not boot is the commonest complaint.
fn boot(
    want: &mut Desired,
    intent: &GuestIntent,
    identity: &Identity,
    context: Context<'_>,
) -> Result<(), Invalid> {
    let order: Vec<String> = if let Some(order) = &intent.hardware.boot_order {
        let devices = order.iter().map(|name| device(name, intent, identity));
        devices
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?
    } else {
        if identity.adopted {
            return Ok(());
        }
        let root = intent
            .disks
            .iter()
            .find(|disk| disk.role == crate::intent::DiskRole::Root)
            .and_then(|disk| identity.disks.get(&disk.name))
            .or_else(|| identity.disks.get(disks::ROOT_NAME));
        let mut order: Vec<String> = root.iter().map(ToString::to_string).collect();
        if installer(intent, context).is_some() {
            order.push(INSTALLER_SLOT.to_owned());
        }
        order
    };
    if !order.is_empty() {
        want.text("boot", Some(format!("order={}", order.join(";"))));
    }
    Ok(())
}

/// The device behind a name: a disk, an interface, or PVE's own name for one. A disk that has no place yet has none.
fn device(
    name: &str,
    intent: &GuestIntent,
    identity: &Identity,
) -> Result<Option<String>, Invalid> {
    if let Some(slot) = identity.disks.get(name) {
        return Ok(Some(slot.to_string()));
    }
    if let Some(nic) = identity.nics.get(name) {
        return Ok(Some(format!("net{}", nic.index)));
    }
    if intent.disks.iter().any(|disk| disk.name == name)
        || intent.nics.iter().any(|nic| nic.name == name)
    {
        return Ok(None);
    }
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = kind != name && ["net", "usb", "hostpci"].contains(&kind);
    if numbered || name.parse::<DiskSlot>().is_ok() {
        return Ok(Some(name.to_owned()));
    }
    let problem = format!(
        "names '{name}', which is neither a disk nor a network of this machine nor a device of PVE's (scsi0, net0): \
         use one of those"
    );
    Err(Invalid::new("bootOrder", problem))
}

#[cfg(test)]
mod tests;
