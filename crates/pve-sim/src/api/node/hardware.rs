//! `/nodes/{node}/hardware`: devices that can be passed to guests.

use serde_json::{Value, json};

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
