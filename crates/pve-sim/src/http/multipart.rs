//! Reads multipart uploads as they stream in.
//!
//! The file must come last, as in PVE; the hash is computed on the way by the algorithm named in a
//! field before it. Contents beyond [`KEEP`] are hashed and counted but not kept.

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::call::Upload;
use crate::checksum::Checksum;
use crate::failure::Failure;
use crate::params::Params;

/// The largest file whose content the simulator keeps.
const KEEP: u64 = 64 * 1024 * 1024;
/// The largest head of a part, and the largest plain field.
const FIELD_LIMIT: usize = 64 * 1024;

/// A body as a growing buffer.
struct Source<B> {
    body: B,
    buffer: Vec<u8>,
    ended: bool,
}

impl<B> Source<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    /// Reads one more piece; fails at the end.
    async fn more(&mut self) -> Result<(), Failure> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|_| broken())?;
            if let Some(data) = frame.data_ref() {
                self.buffer.extend_from_slice(data);
                return Ok(());
            }
        }
        self.ended = true;
        Err(broken())
    }

    /// Takes everything before `mark`, and the mark with it.
    async fn until(&mut self, mark: &[u8], limit: usize) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(at) = find(&self.buffer, mark) {
                let taken = self.buffer[..at].to_vec();
                self.buffer.drain(..at + mark.len());
                return Ok(taken);
            }
            if self.buffer.len() > limit {
                return Err(broken());
            }
            self.more().await?;
        }
    }
}

fn find(buffer: &[u8], mark: &[u8]) -> Option<usize> {
    buffer.windows(mark.len()).position(|window| window == mark)
}

fn broken() -> Failure {
    Failure::empty(400, "upload failed")
}

/// Reads the fields and the file of a multipart body.
pub(super) async fn read<B>(body: B, boundary: &str) -> Result<(Params, Option<Upload>), Failure>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut source = Source {
        body,
        buffer: b"\r\n".to_vec(),
        ended: false,
    };
    let mark = format!("\r\n--{boundary}").into_bytes();
    let mut params = Params::new();
    source.until(&mark, FIELD_LIMIT).await?;
    loop {
        let line = source.until(b"\r\n", FIELD_LIMIT).await;
        if line.as_ref().map_or(true, |line| line.starts_with(b"--")) {
            return Ok((params, None));
        }
        let head = source.until(b"\r\n\r\n", FIELD_LIMIT).await?;
        let head = String::from_utf8_lossy(&head).into_owned();
        let name = attribute(&head, "name").ok_or_else(broken)?;
        if let Some(filename) = attribute(&head, "filename") {
            if params.has("checksum") && !params.has("checksum-algorithm") {
                return Err(broken());
            }
            let algorithm = params.get("checksum-algorithm").map(str::to_owned);
            let upload = file(&mut source, &mark, filename, algorithm.as_deref()).await?;
            params.set("filename", upload.filename.clone());
            return Ok((params, Some(upload)));
        }
        if name == "checksum" && !params.has("checksum-algorithm") {
            return Err(broken());
        }
        let value = source.until(&mark, FIELD_LIMIT).await?;
        params.push(name, String::from_utf8_lossy(&value).into_owned());
    }
}

async fn file<B>(
    source: &mut Source<B>,
    mark: &[u8],
    filename: String,
    algorithm: Option<&str>,
) -> Result<Upload, Failure>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut hash = Checksum::by_name(algorithm);
    let mut size = 0;
    let mut content = Some(Vec::new());
    let mut take = |bytes: &[u8]| {
        size += bytes.len() as u64;
        hash.update(bytes);
        if size > KEEP {
            content = None;
        } else if let Some(content) = &mut content {
            content.extend_from_slice(bytes);
        }
    };
    loop {
        if let Some(at) = find(&source.buffer, mark) {
            take(&source.buffer[..at]);
            break;
        }
        // What cannot be the beginning of the mark any more belongs to the file.
        let sure = source.buffer.len().saturating_sub(mark.len());
        take(&source.buffer[..sure]);
        source.buffer.drain(..sure);
        source.more().await?;
    }
    source.buffer.clear();
    while !source.ended && source.more().await.is_ok() {
        source.buffer.clear();
    }
    Ok(Upload {
        filename,
        size,
        checksum: hash.finish(),
        content: content.map(Bytes::from),
    })
}

/// The value of `name="…"` in the head of a part.
fn attribute(head: &str, name: &str) -> Option<String> {
    let line = head.lines().find(|line| {
        line.to_ascii_lowercase()
            .starts_with("content-disposition:")
    })?;
    let start = line
        .find(&format!("; {name}=\""))
        .or_else(|| line.find(&format!(";{name}=\"")))?;
    let value = &line[start..];
    let value = &value[value.find('"')? + 1..];
    Some(value[..value.find('"')?].to_owned())
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;

    use super::*;

    fn body(text: &str, step: usize) -> impl Body<Data = Bytes> + Unpin + use<> {
        let pieces: Vec<_> = text
            .as_bytes()
            .chunks(step)
            .map(|piece| {
                Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::copy_from_slice(
                    piece,
                )))
            })
            .collect();
        StreamBody::new(futures::stream::iter(pieces))
    }

    const TEXT: &str = "--XX\r\nContent-Disposition: form-data; name=\"content\"\r\n\r\niso\r\n\
        --XX\r\nContent-Disposition: form-data; name=\"checksum-algorithm\"\r\n\r\nsha1\r\n\
        --XX\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"a.iso\"\r\n\
        Content-Type: application/octet-stream\r\n\r\nab\r\n--Xc\r\n--XX--\r\n";

    #[tokio::test]
    async fn fields_and_file_are_found_however_the_body_is_cut() {
        for step in [1, 2, 7, 1000] {
            let (params, upload) = read(body(TEXT, step), "XX").await.unwrap();
            let upload = upload.expect("a file is there");
            assert_eq!(params.text("content"), "iso");
            assert_eq!(upload.filename, "a.iso");
            assert_eq!(upload.content.as_deref(), Some(&b"ab\r\n--Xc"[..]));
            assert_eq!(upload.size, 8);
            assert_eq!(upload.checksum.map(|hash| hash.len()), Some(40));
        }
    }

    #[tokio::test]
    async fn a_checksum_before_its_algorithm_is_refused() {
        let text =
            "--XX\r\nContent-Disposition: form-data; name=\"checksum\"\r\n\r\n00\r\n--XX--\r\n";
        let failure = read(body(text, 5), "XX").await.unwrap_err();
        assert_eq!(failure.status, 400);
    }
}
