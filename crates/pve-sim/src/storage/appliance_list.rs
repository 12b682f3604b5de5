//! Container templates that the vendor offers: `/nodes/{node}/aplinfo`.
//!
//! A simulation reaches no vendor. It knows a few templates by name and size, and a download of one puts
//! a file of that size on the storage, which containers can be made of.

use serde_json::{Value, json};

use super::{Content, Volume};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::disks::gib;
use crate::latency::Step;

/// A template that can be had.
struct Offered {
    os: &'static str,
    headline: &'static str,
    package: &'static str,
    version: &'static str,
    template: &'static str,
    size: u64,
}

const OFFERED: &[Offered] = &[
    Offered {
        os: "alpine",
        headline: "LXC default image for alpine 3.22",
        package: "alpine-3.22-default",
        version: "20250617",
        template: "alpine-3.22-default_20250617_amd64.tar.xz",
        size: 3_200_000,
    },
    Offered {
        os: "debian-13",
        headline: "Debian 13 Trixie (standard)",
        package: "debian-13-standard",
        version: "13.1-2",
        template: "debian-13-standard_13.1-2_amd64.tar.zst",
        size: 129_000_000,
    },
    Offered {
        os: "ubuntu-24.04",
        headline: "Ubuntu 24.04 Noble (standard)",
        package: "ubuntu-24.04-standard",
        version: "24.04-2",
        template: "ubuntu-24.04-standard_24.04-2_amd64.tar.zst",
        size: 141_000_000,
    },
];

/// `GET /nodes/{node}/aplinfo`
pub(crate) fn list(_: &mut Call<'_>) -> Result<Reply, Failure> {
    let rows = OFFERED.iter().map(|it| {
        json!({
            "template": it.template, "package": it.package, "version": it.version, "os": it.os,
            "headline": it.headline, "description": it.headline, "type": "lxc",
            "architecture": "amd64", "section": "system", "source": "http://download.proxmox.com/images",
            "location": format!("system/{}", it.template), "infopage": "https://linuxcontainers.org",
            "maintainer": "Proxmox Support Team <support@proxmox.com>",
        })
    });
    Ok(rows.collect::<Value>().into())
}

/// `POST /nodes/{node}/aplinfo`
pub(crate) fn download(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, id) = (call.node(), call.params.text("storage").to_owned());
    let name = call.params.text("template");
    let Some(offered) = OFFERED.iter().find(|it| it.template == name) else {
        return Err(Failure::param("template", "no such template"));
    };
    let storage = call.world.storages.enabled(&id, &node)?;
    if !storage.def.holds("vztmpl") {
        let text = format!("storage '{id}' does not support templates");
        return Err(Failure::die(text));
    }
    Ok(call.task("download", "", move |worker| async move {
        let (file, size) = (offered.template, offered.size);
        worker.log(format!("downloading {file} to storage '{id}'"));
        worker.take_per_gib(Step::CopyGib, gib(size)).await?;
        worker.take(Step::StoreFile).await?;
        worker.world(|world| {
            let volume = Volume::file(Content::VzTmpl, file, size, world.now());
            let storages = &mut world.storages;
            storages.put_file(&id, worker.node(), Content::VzTmpl, file, volume)
        })?;
        worker.log(format!("download of '{file}' finished"));
        Ok(())
    }))
}
