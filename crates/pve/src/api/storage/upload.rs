//! Brings files to a storage, from here or from a URL.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::Storage;
use crate::client::{BoxError, Call, boxed};
use crate::error::{Error, Result};
use crate::params::Params;
use crate::upid::Upid;

/// A digest the server checks a file against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// `md5`, `sha1`, `sha224`, `sha256`, `sha384` or `sha512`.
    pub algorithm: String,
    /// The digest in hexadecimal.
    pub value: String,
}

/// A file to upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// What it is: `iso`, `vztmpl` or `import`. Snippets cannot be uploaded.
    pub content: String,
    /// Its name on the storage; the ending must fit the content.
    pub filename: String,
    /// Its length in bytes, which the server must know before.
    pub length: u64,
    /// What to check it against.
    pub checksum: Option<Checksum>,
}

impl Upload {
    /// An ISO image.
    pub fn iso(filename: impl Into<String>, length: u64) -> Self {
        Self {
            content: "iso".to_owned(),
            filename: filename.into(),
            length,
            checksum: None,
        }
    }

    /// The text before the file and the text after it.
    ///
    /// The server reads the fields in order, refuses a checksum without an algorithm before it, and takes the file
    /// as the last.
    fn frame(&self, boundary: &str) -> (Bytes, Bytes) {
        use std::fmt::Write;
        let mut head = String::new();
        let mut field = |name: &str, value: &str| {
            // Writing into a String cannot fail.
            let _ = write!(
                head,
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
        };
        field("content", &self.content);
        if let Some(checksum) = &self.checksum {
            field("checksum-algorithm", &checksum.algorithm);
            field("checksum", &checksum.value);
        }
        let _ = write!(
            head,
            "--{boundary}\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"{}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n",
            self.filename
        );
        (
            Bytes::from(head),
            Bytes::from(format!("\r\n--{boundary}--\r\n")),
        )
    }
}

/// A file the node fetches by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Download {
    /// Where from.
    pub url: String,
    /// What it is: `iso`, `vztmpl` or `import`.
    pub content: String,
    /// Its name on the storage.
    pub filename: String,
    /// What to check it against.
    pub checksum: Option<Checksum>,
    /// Whether to check the certificate of the source; the server does unless told.
    pub verify_certificates: Option<bool>,
    /// What to unpack it with: `gz`, `lzo`, `zst` or `bz2`.
    pub compression: Option<String>,
}

impl Storage {
    /// Uploads a file as a stream.
    ///
    /// The task that follows moves it into its place. A stream is read once, so nothing is repeated; should the
    /// stream be shorter or longer than announced, the request fails.
    pub async fn upload<S, E>(&self, upload: &Upload, file: S) -> Result<Upid>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let plain = |text: &str| !text.contains(['"', '\r', '\n', '/', '\\']);
        if !plain(&upload.filename) || !plain(&upload.content) {
            return Err(Error::Request {
                text: format!("'{}' is not a file name", upload.filename),
            });
        }
        // The boundary need not be secret; it must not occur in the file, so it is long and names nothing.
        let boundary = format!(
            "oxmox-{}",
            uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, upload.filename.as_bytes())
        );
        let (head, tail) = upload.frame(&boundary);
        let length = u64::try_from(head.len() + tail.len()).unwrap_or(0) + upload.length;
        let mut call = Call::post("storage.upload", self.path("/upload"));
        let body = Framed::new(
            head,
            tail,
            upload.length,
            length,
            file.map(|chunk| chunk.map_err(Into::into)),
        );
        call.stream(
            format!("multipart/form-data; boundary={boundary}"),
            length,
            boxed(body),
        );
        let deadline = self.client.upload_deadline(length);
        self.client.call(call.deadline(deadline)).await
    }

    /// Uploads bytes that are in memory.
    pub async fn upload_bytes(&self, upload: &Upload, file: Bytes) -> Result<Upid> {
        let chunks = futures::stream::iter([Ok::<_, std::convert::Infallible>(file)]);
        self.upload(upload, chunks).await
    }

    /// Lets the node fetch a file.
    pub async fn download_url(&self, download: &Download) -> Result<Upid> {
        let params = Params::new()
            .with("url", &download.url)
            .with("content", &download.content)
            .with("filename", &download.filename)
            .maybe(
                "checksum-algorithm",
                download.checksum.as_ref().map(|sum| &sum.algorithm),
            )
            .maybe("checksum", download.checksum.as_ref().map(|sum| &sum.value))
            .choice("verify-certificates", download.verify_certificates)
            .maybe("compression", download.compression.as_ref());
        self.client
            .call(Call::post("storage.download_url", self.path("/download-url")).params(params))
            .await
    }
}

/// The file between its two texts, of a length known before.
struct Framed<S> {
    head: Option<Bytes>,
    file: Option<Pin<Box<S>>>,
    expected: u64,
    seen: u64,
    tail: Option<Bytes>,
    left: u64,
}

impl<S> Framed<S> {
    fn new(head: Bytes, tail: Bytes, expected: u64, total: u64, file: S) -> Self {
        Self {
            head: Some(head),
            file: Some(Box::pin(file)),
            expected,
            seen: 0,
            tail: Some(tail),
            left: total,
        }
    }

    fn emit(&mut self, chunk: Bytes) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.left = self
            .left
            .saturating_sub(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn wrong_length(&mut self) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.file = None;
        self.tail = None;
        let text = format!(
            "the file has not the announced length of {} bytes",
            self.expected
        );
        Poll::Ready(Some(Err(text.into())))
    }
}

impl<S> HttpBody for Framed<S>
where
    S: Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(head) = self.head.take() {
            return self.emit(head);
        }
        if let Some(file) = self.file.as_mut() {
            match std::task::ready!(file.as_mut().poll_next(cx)) {
                Some(Ok(chunk)) => {
                    self.seen += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                    if self.seen > self.expected {
                        return self.wrong_length();
                    }
                    return self.emit(chunk);
                }
                Some(Err(error)) => {
                    self.file = None;
                    self.tail = None;
                    return Poll::Ready(Some(Err(error)));
                }
                None if self.seen != self.expected => return self.wrong_length(),
                None => self.file = None,
            }
        }
        match self.tail.take() {
            Some(tail) => self.emit(tail),
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn framed(
        upload: &Upload,
        chunks: &'static [&'static str],
    ) -> impl HttpBody<Data = Bytes, Error = BoxError> + Unpin {
        let (head, tail) = upload.frame("b");
        let total = u64::try_from(head.len() + tail.len()).unwrap() + upload.length;
        Framed::new(
            head,
            tail,
            upload.length,
            total,
            futures::stream::iter(chunks.iter().map(|c| Ok(Bytes::from_static(c.as_bytes())))),
        )
    }

    #[tokio::test]
    async fn the_file_is_last_and_the_algorithm_before_the_checksum() {
        let checksum = Some(Checksum {
            algorithm: "sha256".to_owned(),
            value: "abc".to_owned(),
        });
        let upload = Upload {
            checksum,
            ..Upload::iso("seed.iso", 6)
        };
        let body = framed(&upload, &["foo", "bar"]);
        let announced = body.size_hint().exact().unwrap();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        assert_eq!(u64::try_from(text.len()).unwrap(), announced);
        let at = |part: &str| text.find(part).unwrap();
        assert!(at("name=\"content\"") < at("name=\"checksum-algorithm\""));
        assert!(at("name=\"checksum-algorithm\"") < at("name=\"checksum\""));
        assert!(at("name=\"checksum\"") < at("filename=\"seed.iso\""));
        assert!(text.ends_with("foobar\r\n--b--\r\n"));
    }

    #[tokio::test]
    async fn a_file_of_another_length_is_refused() {
        for chunks in [&["foo"][..], &["foo", "barbaz"][..]] {
            assert!(
                framed(&Upload::iso("seed.iso", 6), chunks)
                    .collect()
                    .await
                    .is_err()
            );
        }
    }
}
