//! Who may change what in a guest's configuration.
//!
//! PVE checks every option by itself. Some depend on the value: a drive needs other rights for a new
//! disk, a CD or somebody's existing volume; a serial port is harmless as a socket and root's business
//! as a device; a network card needs the right to use its bridge.

use super::drive::{Drive, Source};
use super::formats::NET;
use super::options::{self, Need};
use crate::call::Call;
use crate::failure::Failure;
use crate::params::Params;
use crate::storage::{Content, Error as StorageError, ova};

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Failure {
        Failure::die(error.to_string())
    }
}

/// The guest rights are asked for, and the pool it is about to join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) vmid: u32,
    pub(crate) pool: Option<&'a str>,
}

impl Scope<'_> {
    /// All `privileges` on the pool or the guest.
    pub(crate) fn need(&self, call: &Call<'_>, privileges: &[&str]) -> Result<(), Failure> {
        if let Some(pool) = self.pool
            && call.need(&format!("/pool/{pool}"), privileges).is_ok()
        {
            return Ok(());
        }
        call.need(&format!("/vms/{}", self.vmid), privileges)
    }

    fn either(&self, call: &Call<'_>, privileges: &[&str]) -> Result<(), Failure> {
        let mut last = Ok(());
        for privilege in privileges {
            last = self.need(call, &[privilege]);
            if last.is_ok() {
                return Ok(());
            }
        }
        last.map_err(|_| Failure::denied(format!("/vms/{}, {}", self.vmid, privileges.join("|"))))
    }
}

/// The right to create a guest with this id.
pub(crate) fn allocate(call: &Call<'_>, scope: Scope<'_>) -> Result<(), Failure> {
    if call.may(&format!("/vms/{}", scope.vmid), "VM.Allocate")
        || scope
            .pool
            .is_some_and(|pool| call.may(&format!("/pool/{pool}"), "VM.Allocate"))
    {
        Ok(())
    } else {
        Err(Failure::denied_all())
    }
}

/// Dies if the pool does not exist.
pub(crate) fn pool_exists(call: &Call<'_>, pool: Option<&str>) -> Result<(), Failure> {
    match pool {
        Some(pool) if !call.world.access.pools.contains_key(pool) => {
            Err(Failure::denied(format!("pool '{pool}' does not exist")))
        }
        _ => Ok(()),
    }
}

/// The right to set or remove the named options.
pub(crate) fn options<'a>(
    call: &Call<'_>,
    scope: Scope<'_>,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Failure> {
    if call.caller.is_root() {
        return Ok(());
    }
    for name in names {
        match options::need(name) {
            Need::Privilege(privilege) => scope.need(call, &[privilege])?,
            Need::Either(privileges) => scope.either(call, privileges)?,
            Need::Startup => {
                scope.need(call, &["VM.Config.Options"])?;
                call.need("/", &["Sys.Modify"])?;
            }
            Need::ByValue => {}
            Need::Root => {
                return Err(Failure::die(format!("only root can set '{name}' config")));
            }
        }
    }
    Ok(())
}

/// The rights that depend on values: devices, cards, tags.
pub(crate) fn values(call: &Call<'_>, scope: Scope<'_>, params: &Params) -> Result<(), Failure> {
    super::tag::check(call, scope.vmid, params)?;
    for (name, value) in params.iter() {
        match options::indexed(name).map(|(family, _)| family) {
            Some("serial") => device(call, scope, name, value == "socket", "real devices")?,
            Some("usb") => {
                let host = value.split(',').next().unwrap_or_default();
                if let Some(mapping) = mapped(value) {
                    call.need(&format!("/mapping/usb/{mapping}"), &["Mapping.Use"])?;
                }
                let soft = host.eq_ignore_ascii_case("spice")
                    || host.eq_ignore_ascii_case("host=spice")
                    || mapped(value).is_some();
                device(call, scope, name, soft, "real devices")?;
            }
            Some("hostpci") => {
                if let Some(mapping) = mapped(value) {
                    call.need(&format!("/mapping/pci/{mapping}"), &["Mapping.Use"])?;
                }
                device(
                    call,
                    scope,
                    name,
                    mapped(value).is_some(),
                    "non-mapped devices",
                )?;
            }
            Some("virtiofs") => {
                let dir = value.split(',').next().unwrap_or_default();
                let dir = dir.strip_prefix("dirid=").unwrap_or(dir);
                call.need(&format!("/mapping/dir/{dir}"), &["Mapping.Use"])?;
                scope.need(call, &["VM.Config.Disk"])?;
            }
            Some("net") => bridge(call, value)?,
            _ if name == "rng0" => {
                let hardware = value.contains("hwrng");
                if hardware && !call.caller.is_root() {
                    return Err(Failure::die(
                        "only root can set 'rng0' config for a non-default source",
                    ));
                }
                scope.need(call, &["VM.Config.HWType"])?;
            }
            _ if name == "tags" => scope.need(call, &["VM.Config.Options"])?,
            _ => {}
        }
    }
    Ok(())
}

fn mapped(value: &str) -> Option<&str> {
    value
        .split(',')
        .find_map(|part| part.trim().strip_prefix("mapping="))
}

fn device(
    call: &Call<'_>,
    scope: Scope<'_>,
    name: &str,
    soft: bool,
    what: &str,
) -> Result<(), Failure> {
    if soft {
        scope.need(call, &["VM.Config.HWType"])
    } else if call.caller.is_root() {
        Ok(())
    } else {
        Err(Failure::die(format!(
            "only root can set '{name}' config for {what}"
        )))
    }
}

/// The right to plug a card into its bridge or virtual network.
fn bridge(call: &Call<'_>, net: &str) -> Result<(), Failure> {
    if call.caller.is_root() {
        return Ok(());
    }
    let values = NET.parse(net);
    let Some(bridge) = values.get("bridge") else {
        return Ok(());
    };
    let mut path = bridge_path(call.world, bridge);
    if let Some(tag) = values.get("tag")
        && call.need(&path, &["SDN.Use"]).is_err()
    {
        path = format!("{path}/{tag}");
    }
    call.need(&path, &["SDN.Use"])
}

/// Where rights on a bridge are kept: plain bridges belong to the zone `localnetwork`.
pub(crate) fn bridge_path(world: &crate::world::World, bridge: &str) -> String {
    let zone = super::outside::zone_of(world, bridge).unwrap_or("localnetwork");
    format!("/sdn/zones/{zone}/{bridge}")
}

/// The right to use what a drive asks for.
pub(crate) fn drive(
    call: &Call<'_>,
    scope: Scope<'_>,
    name: &str,
    drive: &Drive,
    default_storage: Option<&str>,
) -> Result<(), Failure> {
    match drive.source() {
        Source::None if drive.file() == "cdrom" => call.need("/", &["Sys.Console"])?,
        Source::None => {}
        Source::CloudInit { storage } => {
            call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
            call.world.storages.get(&storage)?;
        }
        Source::New { storage, .. } => {
            let storage = storage
                .as_deref()
                .or(default_storage)
                .ok_or_else(|| Failure::die("no storage ID specified (and no default storage)"))?;
            call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
            holds_images(call, storage)?;
        }
        Source::Volume(volid) => {
            volume(call, scope.vmid, &volid)?;
            let (_, parsed) = call.world.storages.parse(&volid)?;
            if parsed.content == Content::Iso && !drive.is_cdrom() {
                return Err(Failure::param(
                    name,
                    "explicit 'media=cdrom' is required for iso images",
                ));
            }
        }
        Source::Path(_) => path_is_for_root(call)?,
    }
    if let Some(source) = drive.get("import-from") {
        import_source(call, scope.vmid, name, source)?;
    }
    Ok(())
}

fn import_source(call: &Call<'_>, vmid: u32, name: &str, source: &str) -> Result<(), Failure> {
    if source.starts_with('/') {
        return path_is_for_root(call);
    }
    let (_, parsed) = call.world.storages.parse(source)?;
    match (parsed.content, parsed.vmid) {
        (Content::Images, Some(owner)) => call.need(&format!("/vms/{owner}"), &["VM.Clone"]),
        (Content::Import, _) if ova::inside(source).is_some() => {
            volume(call, vmid, source)?;
            unpacked(call, source)
        }
        (Content::Images | Content::Import, _) => volume(call, vmid, source),
        (other, _) => Err(Failure::param(
            name,
            format!(
                "{source} has wrong type '{}' - needs to be 'images' or 'import'",
                other.name()
            ),
        )),
    }
}

/// A disk in an appliance is unpacked first, to where the call says or beside the appliance.
fn unpacked(call: &Call<'_>, source: &str) -> Result<(), Failure> {
    let beside = source.split_once(':').map_or("", |(storage, _)| storage);
    let storage = call.params.get("import-working-storage").unwrap_or(beside);
    call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    let def = &call.world.storages.get(storage)?.def;
    if def.kind.is_file() && def.holds("images") {
        return Ok(());
    }
    Err(Failure::param(
        "import-working-storage",
        format!(
            "import working storage '{storage}' does not support 'images' content type or is not file based."
        ),
    ))
}

fn path_is_for_root(call: &Call<'_>) -> Result<(), Failure> {
    if call.caller.is_root() {
        return Ok(());
    }
    let line = if call.world.release.is_9() { 651 } else { 594 };
    Err(Failure::die(format!(
        "Only root can pass arbitrary filesystem paths. at PVE/Storage.pm line {line}."
    )))
}

/// Dies unless the storage exists and takes disks.
pub(crate) fn holds_images(call: &Call<'_>, storage: &str) -> Result<(), Failure> {
    let known = call.world.storages.get(storage)?;
    if known.def.holds("images") {
        Ok(())
    } else {
        Err(Failure::param(
            "storage",
            format!("storage '{storage}' does not support vm images"),
        ))
    }
}

/// The right to use a volume that exists.
pub(crate) fn volume(call: &Call<'_>, vmid: u32, volid: &str) -> Result<(), Failure> {
    let (storage, name) = call.world.storages.parse(volid)?;
    let path = format!("/storage/{}", storage.def.id);
    match name.content {
        Content::Iso | Content::VzTmpl | Content::Import | Content::Snippets => {
            if call.may(&path, "Datastore.AllocateSpace") || call.may(&path, "Datastore.Audit") {
                Ok(())
            } else {
                Err(Failure::denied(format!(
                    "{path}, Datastore.AllocateSpace|Datastore.Audit"
                )))
            }
        }
        Content::Backup if name.vmid == Some(vmid) && vmid != 0 => {
            call.need(&path, &["Datastore.AllocateSpace"])?;
            call.need(&format!("/vms/{vmid}"), &["VM.Backup"])
        }
        Content::Images | Content::RootDir if name.vmid == Some(vmid) && vmid != 0 => Ok(()),
        Content::Backup | Content::Images | Content::RootDir => {
            call.need(&path, &["Datastore.Allocate"])
        }
    }
}

/// The right to change drives of a guest: disks and CDs are different things.
pub(crate) fn change_drive(
    call: &Call<'_>,
    scope: Scope<'_>,
    drive: &Drive,
) -> Result<(), Failure> {
    if drive.is_plain_cdrom() {
        scope.need(call, &["VM.Config.CDROM"])
    } else {
        scope.need(call, &["VM.Config.Disk"])
    }
}
