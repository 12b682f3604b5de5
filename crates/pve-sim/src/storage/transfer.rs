//! Files that come from outside: uploads, and downloads from this very machine.
//!
//! A simulator must not reach into the world: `download-url` really fetches, but only over plain HTTP
//! from loopback addresses. Everything else fails the way an unreachable host does, unless a test serves
//! it ([`Control::serve`](crate::Control::serve)).

use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::name::extension_fits;
use super::{Content, Volume};
use crate::call::{Call, Reply, Upload};
use crate::checksum::Checksum;
use crate::clock::calendar;
use crate::failure::Failure;
use crate::guest::image::GENERIC;
use crate::latency::Step;
use crate::task::Worker;

/// Contents larger than this are counted, not kept.
const KEEP: usize = 64 << 20;

fn content_of(text: &str) -> Content {
    match text {
        "vztmpl" => Content::VzTmpl,
        "import" => Content::Import,
        _ => Content::Iso,
    }
}

/// A file name without directories and odd characters.
fn tidy(name: &str) -> String {
    let base = name.rsplit(['/', '\\']).next().unwrap_or_default();
    base.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect()
}

/// The file name, once it and the storage are found fit for the content.
fn check(call: &Call<'_>, node: &str) -> Result<(String, Content, String), Failure> {
    let id = call.params.text("storage").to_owned();
    let kind = call.params.text("content");
    let content = content_of(kind);
    let storage = call.world.storages.enabled(&id, node)?;
    if !storage.def.kind.is_file() {
        return Err(Failure::die(format!(
            "can't upload to storage type '{}'",
            storage.def.kind.name()
        )));
    }
    let file = tidy(call.params.text("filename"));
    if !extension_fits(content, &file) {
        return Err(Failure::param("filename", "wrong file extension"));
    }
    if !storage.def.holds(kind) {
        return Err(Failure::die(format!(
            "storage '{id}' is not configured for content-type '{kind}'"
        )));
    }
    Ok((id, content, file))
}

/// `POST …/upload`
pub(crate) fn upload(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let (id, content, file) = check(call, &node)?;
    let expected = call.params.get("checksum").map(str::to_ascii_lowercase);
    let upload = call
        .upload
        .take()
        .ok_or_else(|| Failure::die("missing temporary file name"))?;
    let target = call
        .world
        .storages
        .path(&format!("{id}:{}/{file}", content.name()))?;
    let temporary = format!("/var/tmp/pveupload-{}", call.world.uuid().replace('-', ""));
    // Nobody passes it on: whoever was asked copies the file to the node it is for.
    Ok(call.task_here("imgcopy", "", move |worker| async move {
        worker.log(format!("starting file import from: {temporary}"));
        worker.log(format!("target node: {node}"));
        worker.log(format!("target file: {target}"));
        worker.log(format!("file size is: {}", upload.size));
        verify(&worker, expected.as_deref(), upload.checksum.as_deref())?;
        worker.log(format!("command: cp -- {temporary} {target}"));
        worker.take(Step::StoreFile).await?;
        store(&worker, &node, (&id, content, &file), upload)?;
        worker.log("finished file import successfully");
        Ok(())
    }))
}

fn verify(worker: &Worker, expected: Option<&str>, got: Option<&str>) -> Result<(), Failure> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let got = got.unwrap_or_default();
    worker.log("calculating checksum...");
    if expected == got {
        worker.log("OK, checksum verified");
        Ok(())
    } else {
        Err(Failure::die(format!(
            "checksum mismatch: got '{got}' != expect '{expected}'"
        )))
    }
}

fn store(
    worker: &Worker,
    node: &str,
    (id, content, file): (&str, Content, &str),
    upload: Upload,
) -> Result<(), Failure> {
    worker.world(|world| {
        let mut volume = Volume::file(content, file, upload.size, world.now());
        volume.data = upload.content;
        if content == Content::Import {
            volume.image = Some(GENERIC.to_owned());
        }
        world.storages.put_file(id, node, content, file, volume)
    })?;
    Ok(())
}

/// `POST …/download-url`
pub(crate) fn download(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let (id, content, file) = check(call, &node)?;
    if call.params.has("compression") && content != Content::Iso {
        return Err(Failure::die(format!(
            "decompression not supported for {}",
            content.name()
        )));
    }
    let url = call.params.text("url").to_owned();
    let expected = call.params.get("checksum").map(str::to_ascii_lowercase);
    let algorithm = call.params.get("checksum-algorithm").map(str::to_owned);
    let target = call
        .world
        .storages
        .path(&format!("{id}:{}/{file}", content.name()))?;
    let name = file.clone();
    Ok(call.task("download", name, move |worker| async move {
        worker.log(format!("downloading {url} to {target}"));
        let volid = format!("{id}:{}/{file}", content.name());
        let there = worker.world(|world| {
            let found = world.storages.volume(worker.node(), &volid).ok()?;
            Some(found.data.clone().unwrap_or_default())
        });
        if let Some(there) = there {
            if expected.is_none() {
                let text = format!("refusing to override existing file '{target}'");
                return Err(Failure::die(text));
            }
            let mut sum = Checksum::by_name(algorithm.as_deref());
            sum.update(&there);
            return verify(&worker, expected.as_deref(), sum.finish().as_deref());
        }
        let at = worker.world(|world| calendar(world.now()));
        worker.log(format!(
            "--{:04}-{:02}-{:02} {:02}:{:02}:{:02}--  {url}",
            at.year, at.month, at.day, at.hour, at.minute, at.second
        ));
        let bytes = match worker.cluster().control().served(&url) {
            Some(bytes) => bytes,
            None => fetch(&url)
                .await
                .map_err(|error| Failure::die(format!("download failed: {error}")))?,
        };
        let mut sum = Checksum::by_name(algorithm.as_deref());
        sum.update(&bytes);
        verify(&worker, expected.as_deref(), sum.finish().as_deref())?;
        worker.take(Step::StoreFile).await?;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let kept = (bytes.len() <= KEEP).then_some(bytes);
        let upload = Upload {
            filename: file.clone(),
            size,
            checksum: None,
            content: kept,
        };
        store(&worker, &node, (&id, content, &file), upload)?;
        worker.log(format!("download of '{url}' to '{target}' finished"));
        Ok(())
    }))
}

/// `GET /nodes/{node}/query-url-metadata`
pub(crate) fn metadata(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let url = call.params.text("url").to_owned();
    Ok(Reply::later(move |_| async move {
        let response = open(&url, Method::HEAD).await.map_err(Failure::die)?;
        let text = |name: header::HeaderName| {
            let value = response.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let size: Option<u64> = text(header::CONTENT_LENGTH).and_then(|it| it.parse().ok());
        let kind = text(header::CONTENT_TYPE);
        let named = text(header::CONTENT_DISPOSITION).and_then(|it| {
            let (_, name) = it.split_once("filename=")?;
            Some(name.trim_matches('"').to_owned())
        });
        let last = url.split(['?', '#']).next().unwrap_or_default();
        let last = last.rsplit('/').next().unwrap_or_default().to_owned();
        let name = named.unwrap_or(last);
        let mut answer = serde_json::json!({ "filename": name });
        if let Some(size) = size {
            answer["size"] = size.into();
        }
        if let Some(kind) = kind {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            answer["mimetype"] = kind.into();
        }
        Ok(Reply::Data(answer))
    }))
}

/// Fetches a file from this machine; the error is in the words of the tool PVE uses.
async fn fetch(url: &str) -> Result<Bytes, String> {
    let mut body = open(url, Method::GET).await?.into_body();
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "Read error in body.".to_owned())?;
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

/// Asks for a file of this machine.
async fn open(url: &str, method: Method) -> Result<Response<Incoming>, String> {
    let uri: http::Uri = url
        .parse()
        .map_err(|_| format!("{url}: Unsupported scheme."))?;
    let host = uri
        .host()
        .unwrap_or_default()
        .trim_matches(['[', ']'])
        .to_owned();
    let port = uri.port_u16().unwrap_or(80);
    let local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if uri.scheme_str() != Some("http") || !local {
        return Err(format!(
            "Resolving {host}... failed: Temporary failure in name resolution. (the simulator fetches only over http from loopback addresses)"
        ));
    }
    let refused = format!("Connecting to {host}:{port}... failed: Connection refused.");
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    let response = client.request(request).await.map_err(|_| refused)?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!(
            "ERROR {}: {}.",
            status.as_u16(),
            status.canonical_reason().unwrap_or_default()
        ));
    }
    Ok(response)
}
