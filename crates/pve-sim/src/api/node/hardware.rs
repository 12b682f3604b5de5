//! `/nodes/{node}/hardware`: devices that can be passed to guests.

use serde_json::{Value, json};

use crate::api::index;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all, any};
use crate::route::{Route, get};
use crate::schema::{flag, text};

pub(super) fn routes() -> Vec<Route> {
    let audit = || any("/", &["Sys.Audit", "Sys.Modify"]);
    vec![
        get("/nodes/{node}/hardware", |_| {
            Ok(json!([{ "type": "pci" }, { "type": "usb" }]).into())
        })
        .perm(Perm::User),
        get("/nodes/{node}/hardware/pci", pci)
            .perm(audit())
            .protected()
            .params([
                text("pci-class-blacklist").default("05;06;0b"),
                flag("verbose"),
            ]),
        get("/nodes/{node}/hardware/pci/{pci-id-or-mapping}", |_| {
            Ok(index("method", &["mdev"]))
        })
        .perm(Perm::User),
        get("/nodes/{node}/hardware/pci/{pci-id-or-mapping}/mdev", mdev)
            .perm(audit())
            .protected(),
        get("/nodes/{node}/hardware/usb", usb)
            .perm(all("/", &["Sys.Modify"]))
            .protected(),
    ]
}

fn pci(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.world.node(call.params.text("node"))?;
    let skip = call.params.list("pci-class-blacklist");
    let verbose = call.params.bool("verbose").unwrap_or(true);
    let shown = node.pci.iter().filter(|device| {
        let class = device.class.trim_start_matches("0x");
        !skip.iter().any(|prefix| class.starts_with(prefix))
    });
    let rows = shown.map(|device| {
        if !verbose {
            return json!({ "id": device.id });
        }
        let mut row = json!({
            "id": device.id, "class": device.class, "vendor": device.vendor,
            "device": device.device, "iommugroup": device.iommugroup,
        });
        if let Some(name) = &device.vendor_name {
            row["vendor_name"] = json!(name);
        }
        if let Some(name) = &device.device_name {
            row["device_name"] = json!(name);
        }
        if device.mdev {
            row["mdev"] = json!(1);
        }
        row
    });
    Ok(rows.collect::<Value>().into())
}

/// The kinds of virtual devices that a device, or the one a mapping names here, can be divided into.
fn mdev(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (name, given) = (
        call.params.text("node"),
        call.params.text("pci-id-or-mapping"),
    );
    let node = call.world.node(name)?;
    let is_id = given.contains(':');
    let id = if is_id {
        // The domain may be left out.
        let whole = given.matches(':').count() == 2;
        if whole {
            given.to_owned()
        } else {
            format!("0000:{given}")
        }
    } else {
        let mapping = call.world.mappings.get("pci", given);
        let entries = mapping.into_iter().flat_map(|mapping| &mapping.map);
        let mut here =
            entries.filter(|entry| entry.split(',').any(|part| part == format!("node={name}")));
        let path =
            here.find_map(|entry| entry.split(',').find_map(|part| part.strip_prefix("path=")));
        let missing = || Failure::die(format!("mapping '{given}' does not exist on '{name}'"));
        path.ok_or_else(missing)?.to_owned()
    };
    let divisible = node
        .pci
        .iter()
        .filter(|device| device.id == id && device.mdev);
    let rows = divisible.map(|device| {
        json!({
            "type": "sim-1", "name": "SIM 1", "available": 4,
            "description": device.device_name.as_deref().unwrap_or("a virtual device"),
        })
    });
    Ok(rows.collect::<Value>().into())
}

fn usb(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.world.node(call.params.text("node"))?;
    let rows = node.usb.iter().map(|device| {
        json!({
            "busnum": device.busnum, "devnum": device.devnum, "vendid": device.vendid,
            "prodid": device.prodid, "product": device.product, "class": 0, "level": 1, "port": 1,
            "speed": "480",
        })
    });
    Ok(rows.collect::<Value>().into())
}
