//! The volumes of a storage: listed, shown, allocated, removed.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Alloc, Content, Format, Kind, Name, Storage, Volume};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::permit;
use crate::latency::Step;
use crate::task::Task;

/// `GET …/content`
pub(crate) fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let wanted = call.params.get("content");
    let owner = call.params.vmid("vmid");
    let storage = call
        .world
        .storages
        .enabled(call.params.text("storage"), &node)?;
    let mut rows: Vec<(String, Value)> = storage
        .store(&node)
        .into_iter()
        .flat_map(super::Store::iter)
        .map(|(_, volume)| volume)
        .filter(|volume| owner.is_none_or(|owner| volume.name.vmid == Some(owner)))
        .filter(|volume| storage.def.holds(content_of(storage, volume)))
        .map(|volume| row(call, storage, volume))
        .filter(|(_, row)| wanted.is_none_or(|wanted| row["content"] == wanted))
        .filter(|(volid, _)| permit::volume(call, 0, volid).is_ok())
        .collect();
    rows.sort_by(|(one, _), (two, _)| one.cmp(two));
    Ok(Reply::Data(rows.into_iter().map(|(_, row)| row).collect()))
}

/// A raw image can be a VM's or a container's; storages that hold only one kind decide.
fn content_of(storage: &Storage, volume: &Volume) -> &'static str {
    match volume.name.content {
        Content::Images if !storage.def.holds("images") => "rootdir",
        other => other.name(),
    }
}

fn row(call: &Call<'_>, storage: &Storage, volume: &Volume) -> (String, Value) {
    let kind = storage.def.kind;
    let volid = format!("{}:{}", storage.def.id, volume.name.volname(kind));
    let mut row = json!({
        "volid": volid,
        "size": volume.size,
        "ctime": volume.ctime,
        "content": content_of(storage, volume),
        "format": format_of(&volume.name),
    });
    match volume.name.content {
        Content::Images | Content::RootDir => {
            let owner = volume.name.vmid;
            row["vmid"] = json!(owner);
            let of_container = owner
                .and_then(|vmid| call.world.guests.get(vmid))
                .is_some_and(|guest| guest.kind == crate::guest::Kind::Lxc);
            if of_container && storage.def.holds("rootdir") {
                row["content"] = json!("rootdir");
            }
            if kind.is_file() {
                row["used"] = json!(volume.used);
                row["parent"] = match &volume.name.base {
                    Some((owner, file)) => json!(format!("../{owner}/{file}")),
                    None => Value::Null,
                };
            } else if matches!(kind, Kind::ZfsPool | Kind::Rbd) {
                row["parent"] = match &volume.name.base {
                    Some((_, file)) => json!(format!("{file}@__base__")),
                    None => Value::Null,
                };
            }
        }
        Content::Backup => {
            row["vmid"] = json!(volume.name.vmid);
            let subtype = volume.archive.as_ref().map(|archive| archive.kind.clone());
            row["subtype"] = json!(subtype);
            if let Some(notes) = &volume.notes {
                row["notes"] = json!(notes);
            }
            if volume.protected {
                row["protected"] = json!(1);
            }
        }
        Content::Iso | Content::VzTmpl | Content::Snippets | Content::Import => {}
    }
    (volid, row)
}

/// The format column: images by their own, others by their extension.
fn format_of(name: &Name) -> String {
    match name.content {
        Content::Images | Content::RootDir => name.format.name().to_owned(),
        Content::Iso => "iso".to_owned(),
        Content::Snippets => "snippet".to_owned(),
        Content::VzTmpl => match name.file.rsplit('.').next() {
            Some("gz") => "tgz".to_owned(),
            Some("xz") => "txz".to_owned(),
            Some("zst") => "tzst".to_owned(),
            _ => "tar".to_owned(),
        },
        Content::Backup => {
            let at = name.file.find(".vma").or_else(|| name.file.find(".tar"));
            at.map_or_else(String::new, |at| name.file[at + 1..].to_owned())
        }
        Content::Import => name.file.rsplit('.').next().unwrap_or_default().to_owned(),
    }
}

/// The volume in the path, with or without its storage's name.
fn volid(call: &Call<'_>) -> Result<String, Failure> {
    let (volume, storage) = (call.params.text("volume"), call.params.text("storage"));
    if !volume.contains(':') {
        return Ok(format!("{storage}:{volume}"));
    }
    let refused = |text: String| Err(Failure::param("volume", text));
    match super::split_volid(volume) {
        None => refused(format!("unable to parse volume ID '{volume}'\n")),
        Some((named, _)) if named != storage => {
            refused(format!("storage ID mismatch ({named} != {storage})\n"))
        }
        Some(_) => Ok(volume.to_owned()),
    }
}

/// `GET …/content/{volume}`
pub(crate) fn show(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let volid = volid(call)?;
    permit::volume(call, 0, &volid)?;
    let volume = call.world.storages.volume(&node, &volid)?;
    let path = call.world.storages.path(&volid)?;
    let image = matches!(volume.name.content, Content::Images | Content::RootDir);
    let mut answer = json!({
        "path": path,
        // Sizes of files are told by a tool that counts in sectors, use in blocks.
        "size": volume.size.div_ceil(512) * 512,
        "used": if image { volume.used } else { volume.used.div_ceil(4096) * 4096 },
        "format": if image { volume.name.format.name() } else { "raw" },
    });
    if let Some(notes) = &volume.notes {
        answer["notes"] = json!(notes);
    }
    if volume.protected {
        answer["protected"] = json!(1);
    }
    Ok(Reply::Data(answer))
}

/// `PUT …/content/{volume}`
pub(crate) fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let volid = volid(call)?;
    permit::volume(call, 0, &volid)?;
    let notes = call.params.get("notes").map(str::to_owned);
    let protected = call.params.bool("protected");
    let volume = call.world.storages.volume_mut(&node, &volid)?;
    if volume.name.content != Content::Backup {
        let text = if notes.is_some() {
            "only backups can have notes"
        } else {
            "only backups support attribute 'protected'"
        };
        return Err(Failure::die(text));
    }
    if let Some(notes) = notes {
        volume.notes = Some(notes);
    }
    if let Some(protected) = protected {
        volume.protected = protected;
    }
    Ok(Reply::null())
}

/// `POST …/content`
pub(crate) fn allocate(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, vmid) = (call.node(), call.vmid());
    let id = call.params.text("storage").to_owned();
    let name = call.params.text("filename").to_owned();
    let text = call.params.text("size");
    let size = match text.strip_suffix('G') {
        Some(gib) => gib.parse::<u64>().unwrap_or(0) << 30,
        None => match text.strip_suffix('M') {
            Some(mib) => mib.parse::<u64>().unwrap_or(0) << 20,
            // Without a unit PVE counts in KiB.
            None => text.parse::<u64>().unwrap_or(0) << 10,
        },
    };
    let storage = call.world.storages.enabled(&id, &node)?;
    let file = storage.def.kind.is_file();
    let by_name = name
        .rsplit_once('.')
        .filter(|_| file)
        .and_then(|(_, ext)| Format::parse(ext));
    let given = call.params.get("format").and_then(Format::parse);
    if let (Some(given), Some(named)) = (given, by_name)
        && given != named
    {
        return Err(Failure::param(
            "format",
            format!(
                "different storage formats ({} != {})",
                given.name(),
                named.name()
            ),
        ));
    }
    if file && (by_name.is_none() || name.contains(['/', ' '])) {
        let text = format!("unable to parse volume filename '{name}'");
        return Err(Failure::die(text));
    }
    let format = given.or(by_name).unwrap_or(storage.def.kind.formats().1);
    let now = call.world.now();
    let alloc = Alloc {
        vmid,
        format,
        name: Some(&name),
        size,
        now,
    };
    let volid = call.world.storages.alloc(&id, &node, alloc)?;
    Ok(Reply::Data(json!(volid)))
}

/// `POST …/content/{volume}`: a copy under another name, here or on another node.
pub(crate) fn copy(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (node, source) = (call.node(), volid(call)?);
    let target_node = call.params.get("target_node").unwrap_or(&node).to_owned();
    call.world.node(&target_node)?;
    let given = call.params.text("target");
    let target = if given.contains(':') {
        given.to_owned()
    } else {
        format!("{}:{given}", call.params.text("storage"))
    };
    let (to, name) = call.world.storages.parse(&target)?;
    let to = to.def.id.clone();
    let volume = call.world.storages.volume(&node, &source)?;
    let (from, bytes) = (volume.name.clone(), volume.used);
    if from.content != name.content {
        let text = format!("cannot copy '{source}' to '{target}': other type of content");
        return Err(Failure::die(text));
    }
    call.world.storages.enabled(&to, &target_node)?;
    Ok(call.task("imgcopy", "", move |worker| async move {
        if worker.world(|world| world.storages.volume(&target_node, &target).is_ok()) {
            let text = format!("volume '{target}' already exists");
            return Err(Failure::die(text));
        }
        let volume = worker.world(|world| {
            let volume = world.storages.volume(worker.node(), &source)?;
            Ok::<_, Failure>(volume.clone())
        })?;
        #[expect(clippy::cast_precision_loss, reason = "a size, told roughly")]
        let gib = bytes as f64 / f64::from(1 << 30);
        worker.take_per_gib(Step::CopyGib, gib).await?;
        worker.world(|world| {
            let now = world.now();
            let copy = volume.named(name, now);
            world.storages.put(&to, &target_node, copy)
        })?;
        worker.log(format!("copied '{source}' to '{target}'"));
        Ok(())
    }))
}

/// `DELETE …/content/{volume}`
pub(crate) fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let volid = volid(call)?;
    let (storage, name) = call.world.storages.parse(&volid)?;
    let id = storage.def.id.clone();
    let path = format!("/storage/{id}");
    match name.content {
        Content::Backup
            if name
                .vmid
                .is_some_and(|vmid| call.may(&format!("/vms/{vmid}"), "VM.Backup")) =>
        {
            call.need(&path, &["Datastore.AllocateSpace"])?;
        }
        Content::Iso | Content::VzTmpl | Content::Import => {
            call.need(&path, &["Datastore.AllocateTemplate"])?;
        }
        Content::Images | Content::RootDir | Content::Backup | Content::Snippets => {
            call.need(&path, &["Datastore.Allocate"])?;
        }
    }
    call.world.storages.enabled(&id, &node)?;
    if call
        .world
        .storages
        .volume(&node, &volid)
        .is_ok_and(|volume| volume.protected)
    {
        return Err(Failure::die(format!(
            "volume '{volid}' is protected - refusing to delete"
        )));
    }
    let image = matches!(name.content, Content::Images | Content::RootDir);
    let task_id = match name.vmid.filter(|_| image) {
        Some(vmid) => format!("{vmid}@{id}"),
        None => id,
    };
    let work = Task::new(
        &node,
        "imgdel",
        task_id,
        call.caller,
        move |worker| async move {
            worker.take(Step::FreeVolume).await?;
            let freed = worker.world(|world| world.storages.free(worker.node(), &volid))?;
            if !freed && image {
                let path = worker.world(|world| world.storages.path(&volid))?;
                worker.log(format!("disk image '{path}' does not exist"));
            }
            worker.log(format!("Removed volume '{volid}'"));
            Ok(())
        },
    );
    let Some(delay) = call.params.uint("delay") else {
        return Ok(Reply::Task(work));
    };
    Ok(Reply::later(move |cluster| async move {
        let upid = cluster.start(work);
        let ended =
            tokio::time::timeout(Duration::from_secs(delay), cluster.wait_task(&upid)).await;
        match ended {
            Ok(exit) if exit == "OK" => Ok(Reply::null()),
            _ => Ok(Reply::Data(json!(upid.to_string()))),
        }
    }))
}
