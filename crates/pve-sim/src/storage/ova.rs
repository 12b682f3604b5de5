//! Open virtual appliances: a tar file with a description (OVF, XML) and disk images.
//!
//! A storage with content `import` holds them as files; a disk inside is named below its file, as in
//! `local:import/appliance.ova/disk1.vmdk`. Nothing is unpacked until a guest imports such a disk.

mod xml;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::permit;
use crate::storage::{Content, Format};
use crate::world::World;

const BLOCK: usize = 512;

/// A virtual machine as an appliance describes it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Appliance {
    /// What a guest made of it would be created with.
    options: BTreeMap<&'static str, String>,
    disks: Vec<Disk>,
    /// Models of network cards.
    cards: Vec<&'static str>,
}

/// A disk inside.
#[derive(Debug, PartialEq, Eq)]
struct Disk {
    /// `scsi0`
    address: String,
    file: String,
    /// Bytes a guest sees.
    size: Option<u64>,
}

/// The files in a tar archive.
fn members(tar: &[u8]) -> Vec<(String, &[u8])> {
    let text = |field: &[u8]| {
        let end = field
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).trim().to_owned()
    };
    let (mut found, mut rest) = (Vec::new(), tar);
    while let Some(header) = rest.get(..BLOCK) {
        let name = text(&header[..100]);
        let Ok(size) = usize::from_str_radix(&text(&header[124..136]), 8) else {
            break;
        };
        let Some(body) = rest.get(BLOCK..BLOCK + size) else {
            break;
        };
        if matches!(header[156], b'0' | 0) && !name.is_empty() {
            found.push((name.trim_start_matches("./").to_owned(), body));
        }
        rest = rest
            .get(BLOCK + size.div_ceil(BLOCK) * BLOCK..)
            .unwrap_or_default();
    }
    found
}

/// `byte * 2^30` and such, as the multiplier it stands for.
fn unit(text: &str) -> u64 {
    let power: Option<u32> = text
        .rsplit_once('^')
        .and_then(|(_, it)| it.trim().parse().ok());
    match (text.trim(), power) {
        (_, Some(power)) if power < 64 => 1 << power,
        ("KiloBytes", _) => 1 << 10,
        ("MegaBytes", _) => 1 << 20,
        ("GigaBytes", _) => 1 << 30,
        _ => 1,
    }
}

impl Appliance {
    fn parse(ovf: &str) -> Self {
        let root = xml::parse(ovf);
        let mut appliance = Self::default();
        let files: BTreeMap<&str, &str> = root
            .all("File")
            .filter_map(|file| Some((file.attribute("id")?, file.attribute("href")?)))
            .collect();
        let images: BTreeMap<&str, (&str, Option<u64>)> = root
            .all("Disk")
            .filter_map(|disk| {
                let file = *files.get(disk.attribute("fileRef")?)?;
                let count: Option<u64> = disk.attribute("capacity").and_then(|it| it.parse().ok());
                let each = disk.attribute("capacityAllocationUnits").map_or(1, unit);
                let size = count.and_then(|count| count.checked_mul(each));
                Some((disk.attribute("diskId")?, (file, size)))
            })
            .collect();
        let mut set = |name, value: Option<String>| {
            if let Some(value) = value {
                appliance.options.insert(name, value);
            }
        };
        set(
            "name",
            root.all("VirtualSystem").find_map(|system| {
                let named = system
                    .all("Name")
                    .map(xml::Element::text)
                    .find(|it| !it.is_empty());
                named.or(system.attribute("id")).map(str::to_owned)
            }),
        );
        let windows = root.all("OperatingSystemSection").any(|system| {
            let kind = system.attribute("osType").unwrap_or_default();
            kind.to_ascii_lowercase().starts_with("windows")
        });
        set(
            "ostype",
            Some(if windows { "win10" } else { "l26" }.to_owned()),
        );
        let mut controllers = BTreeMap::new();
        for item in root.all("Item") {
            let field = |name| item.all(name).map(xml::Element::text).next();
            let quantity: Option<u64> = field("VirtualQuantity").and_then(|it| it.parse().ok());
            let units = field("AllocationUnits").map_or(1 << 20, unit);
            match field("ResourceType") {
                Some("3") => set("cores", quantity.map(|count| count.to_string())),
                Some("4") => {
                    let bytes = quantity.and_then(|count| count.checked_mul(units));
                    set("memory", bytes.map(|bytes| (bytes >> 20).to_string()));
                }
                Some(kind @ ("5" | "6" | "20")) => {
                    let bus = match kind {
                        "5" => "ide",
                        "6" => "scsi",
                        _ => "sata",
                    };
                    controllers.insert(field("InstanceID").unwrap_or_default(), bus);
                }
                Some("10") => appliance.cards.push(match field("ResourceSubType") {
                    Some(kind) if kind.eq_ignore_ascii_case("vmxnet3") => "vmxnet3",
                    _ => "e1000",
                }),
                Some("17") => {
                    let id = field("HostResource").and_then(|it| it.rsplit('/').next());
                    let Some((file, size)) = id.and_then(|id| images.get(id)) else {
                        continue;
                    };
                    let bus = controllers.get(field("Parent").unwrap_or_default());
                    let slot = field("AddressOnParent").unwrap_or("0");
                    appliance.disks.push(Disk {
                        address: format!("{}{slot}", bus.unwrap_or(&"scsi")),
                        file: (*file).to_owned(),
                        size: *size,
                    });
                }
                _ => {}
            }
        }
        appliance
    }

    /// The appliance in a tar file.
    fn unpack(tar: &[u8]) -> Result<Self, Failure> {
        let described = members(tar)
            .into_iter()
            .find(|(name, _)| name.to_ascii_lowercase().ends_with(".ovf"));
        match described {
            Some((_, ovf)) => Ok(Self::parse(&String::from_utf8_lossy(ovf))),
            None => Err(Failure::die(
                "couldn't read or parse an OVF file in the OVA",
            )),
        }
    }
}

/// Splits `local:import/a.ova/disk.vmdk` into the volume that is there and the file inside.
pub(crate) fn inside(volid: &str) -> Option<(&str, &str)> {
    let (archive, file) = volid.rsplit_once('/')?;
    archive
        .to_ascii_lowercase()
        .ends_with(".ova")
        .then_some((archive, file))
}

/// Whether a file inside an appliance can be a disk.
pub(crate) fn is_disk(file: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || "-_.+=@".contains(c);
    let format = file.rsplit_once('.').and_then(|(stem, end)| {
        let format = Format::parse(end)?;
        (!stem.is_empty()).then_some(format)
    });
    file.chars().all(word) && format.is_some_and(|format| format != Format::Subvol)
}

/// Bytes and image of a disk inside an appliance, once it would be unpacked.
pub(crate) fn disk(
    world: &World,
    node: &str,
    archive: &str,
    file: &str,
) -> Result<(u64, u64, Option<String>), Failure> {
    let volume = world.storages.volume(node, archive)?;
    let data = volume.data.as_ref().ok_or_else(|| too_large(archive))?;
    let packed = members(data).into_iter().find(|(name, _)| name == file);
    let Some((_, bytes)) = packed else {
        let text = format!("extracting {file} from {archive} failed: Not found in archive");
        return Err(Failure::die(text));
    };
    let used = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let described = Appliance::unpack(data).unwrap_or_default().disks;
    let size = described.iter().find(|disk| disk.file == file);
    let size = size.and_then(|disk| disk.size).unwrap_or(used);
    Ok((size.div_ceil(512) * 512, used, volume.image.clone()))
}

fn too_large(volid: &str) -> Failure {
    Failure::die(format!("'{volid}' is larger than what the simulator keeps"))
}

/// `GET /nodes/{node}/storage/{storage}/import-metadata`
pub(crate) fn metadata(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let given = call.params.text("volume");
    let volid = if given.contains(':') {
        given.to_owned()
    } else {
        format!("{}:{given}", call.params.text("storage"))
    };
    permit::volume(call, 0, &volid)?;
    let (_, name) = call.world.storages.parse(&volid)?;
    if name.content != Content::Import {
        let text = format!("invalid content type '{}'", name.content.name());
        return Err(Failure::die(text));
    }
    let end = name
        .file
        .rsplit('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let volume = call.world.storages.volume(&node, &volid)?;
    let data = volume.data.as_ref().ok_or_else(|| too_large(&volid))?;
    let (appliance, below) = match end.as_str() {
        "ova" => (Appliance::unpack(data)?, volid.clone()),
        "ovf" => {
            let text = String::from_utf8_lossy(data);
            let dir = volid.rsplit_once('/').map_or("", |(dir, _)| dir);
            (Appliance::parse(&text), dir.to_owned())
        }
        _ => return Err(Failure::die("invalid format")),
    };
    let disks = appliance.disks.iter().map(|disk| {
        let mut shown = json!({ "volid": format!("{below}/{}", disk.file) });
        if let Some(size) = disk.size {
            shown["size"] = json!(size);
        }
        (disk.address.clone(), shown)
    });
    let disks: Map<String, Value> = disks.collect();
    let cards = appliance.cards.iter().enumerate();
    let net: Map<String, Value> = cards
        .map(|(at, model)| (format!("net{at}"), json!({ "model": model })))
        .collect();
    let mut warnings = Vec::new();
    if end == "ova" {
        warnings.push(json!({ "type": "ova-needs-extracting" }));
    }
    let source = volid.split_once(':').map_or("", |(_, name)| name);
    Ok(json!({
        "type": "vm", "source": source, "create-args": appliance.options, "disks": disks,
        "net": net, "warnings": warnings,
    })
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVF: &str = r#"<?xml version="1.0"?>
<!-- <Disk ovf:diskId="no"/> -->
<Envelope xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" xmlns:rasd="r">
  <References><File ovf:id="f1" ovf:href="a-disk1.vmdk" ovf:size="700"/></References>
  <DiskSection><Disk ovf:capacity="8" ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="d1" ovf:fileRef="f1"/></DiskSection>
  <VirtualSystem ovf:id="vm">
    <Name>web &amp; more</Name>
    <VirtualHardwareSection>
      <Item><rasd:ResourceType>3</rasd:ResourceType><rasd:VirtualQuantity>4</rasd:VirtualQuantity></Item>
      <Item><rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits><rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>2048</rasd:VirtualQuantity></Item>
      <Item><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceType>20</rasd:ResourceType></Item>
      <Item><rasd:AddressOnParent>1</rasd:AddressOnParent><rasd:HostResource>ovf:/disk/d1</rasd:HostResource><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
      <Item><rasd:ResourceSubType>VmxNet3</rasd:ResourceSubType><rasd:ResourceType>10</rasd:ResourceType></Item>
    </VirtualHardwareSection>
  </VirtualSystem>
</Envelope>"#;

    #[test]
    fn an_appliance_says_what_it_needs() {
        let appliance = Appliance::parse(OVF);
        let options: Vec<(&str, &str)> = appliance
            .options
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(
            options,
            [
                ("cores", "4"),
                ("memory", "2048"),
                ("name", "web & more"),
                ("ostype", "l26")
            ]
        );
        let disk = Disk {
            address: "sata1".into(),
            file: "a-disk1.vmdk".into(),
            size: Some(8 << 30),
        };
        assert_eq!(appliance.disks, [disk]);
        assert_eq!(appliance.cards, ["vmxnet3"]);
    }

    #[test]
    fn a_disk_is_named_below_its_archive() {
        assert_eq!(
            inside("local:import/a.ova/d.vmdk"),
            Some(("local:import/a.ova", "d.vmdk"))
        );
        assert_eq!(inside("local:import/a.ova"), None);
        assert!(is_disk("d-1.vmdk") && !is_disk("d.txt") && !is_disk(".raw"));
    }

    #[test]
    fn what_is_no_archive_has_no_members() {
        assert!(members(b"").is_empty());
        assert!(members(&[b'x'; 2000]).is_empty());
        assert!(Appliance::unpack(&[0; 1024]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn nothing_can_be_said_that_breaks_it(text in ".*", bytes in proptest::collection::vec(0_u8.., 0..2000)) {
            let _ = Appliance::parse(&text);
            let _ = Appliance::unpack(&bytes);
        }
    }
}
