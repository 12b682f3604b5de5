//! Who may change what in a guest's configuration.
//!
//! PVE checks every option by itself. Some depend on the value: a drive needs other rights for a new
//! disk, a CD or somebody's existing volume; a serial port is harmless as a socket and root's business
//! as a device; a network card needs the right to use its bridge.

use super::config::Options;
use super::drive::{Drive, Source};
use super::formats::{NET, small};
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

/// The mapping a device is named by.
pub(crate) fn mapped(value: &str) -> Option<&str> {
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
            if !matches!(
                parsed.content,
                Content::Iso | Content::Images | Content::RootDir
            ) {
                let text = "content type needs to be 'images' or 'iso'";
                return Err(Failure::param(name, text));
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

/// The right to use the volumes that options other than drives name.
pub(crate) fn named_volumes(
    call: &Call<'_>,
    scope: Scope<'_>,
    wanted: &Options,
) -> Result<(), Failure> {
    for (name, value) in wanted {
        if options::is(name, "unused") {
            let drive = Drive::parse(value);
            let Some(volid) = drive.volume() else {
                let text = format!("not a valid volid: {}", drive.file());
                return Err(Failure::param(name, text));
            };
            typed_volume(call, scope.vmid, volid, Content::Images)?;
        }
    }
    if let Some(storage) = wanted.get("vmstatestorage") {
        call.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    }
    let custom = wanted.get("cicustom");
    let custom = custom.map(|value| small("cicustom").parse(value));
    for volid in custom.iter().flat_map(|it| it.values()) {
        typed_volume(call, scope.vmid, volid, Content::Snippets)?;
    }
    Ok(())
}

/// The right to use a volume, which must hold this.
pub(crate) fn typed_volume(
    call: &Call<'_>,
    vmid: u32,
    volid: &str,
    content: Content,
) -> Result<(), Failure> {
    let (_, parsed) = call.world.storages.parse(volid)?;
    let image = |it| matches!(it, Content::Images | Content::RootDir);
    if parsed.content != content && !(image(parsed.content) && image(content)) {
        return Err(Failure::die(format!(
            "unable to use volume {volid} - content type needs to be '{}'",
            content.name()
        )));
    }
    volume(call, vmid, volid)
}

/// The right to use a volume that exists.
pub(crate) fn volume(call: &Call<'_>, vmid: u32, volid: &str) -> Result<(), Failure> {
    let (storage, name) = call.world.storages.parse(volid)?;
    let path = format!("/storage/{}", storage.def.id);
    if call.may(&path, "Datastore.Allocate") {
        return Ok(());
    }
    match (name.content, name.vmid) {
        (Content::Iso | Content::VzTmpl | Content::Import, _) => {
            if call.may(&path, "Datastore.AllocateSpace") || call.may(&path, "Datastore.Audit") {
                Ok(())
            } else {
                Err(Failure::denied(format!(
                    "{path}, Datastore.AllocateSpace|Datastore.Audit"
                )))
            }
        }
        (_, Some(owner)) if owner == vmid => Ok(()),
        (Content::Backup, Some(owner)) => {
            call.need(&path, &["Datastore.AllocateSpace"])?;
            call.need(&format!("/vms/{owner}"), &["VM.Backup"])
        }
        (Content::Images | Content::RootDir, Some(owner)) => {
            call.need(&path, &["Datastore.Audit"])?;
            call.need(&format!("/vms/{owner}"), &["VM.Config.Disk"])
        }
        _ => Err(Failure::die(format!(
            "missing privileges to access {volid}"
        ))),
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
