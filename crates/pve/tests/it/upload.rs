//! Files on their way to a storage.

use bytes::Bytes;
use pve::api::storage::upload::{Checksum, Upload};
use pve::{Error, NodeName, StorageId};
use serde_json::json;

use crate::fake::{Fake, Reply};

const UPID: &str = "UPID:pve1:00000001:00000001:00000001:imgcopy::a@pve:";

#[tokio::test(start_paused = true)]
async fn a_file_goes_as_a_stream_with_its_length_announced() {
    let fake = Fake::new(|_, _| Reply::Data(json!(UPID)));
    let client = fake.client();
    let storage = client
        .node(&NodeName::new("pve1").unwrap())
        .storage(&StorageId::new("local").unwrap());
    let chunks = (0..64).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 1024])));
    let checksum = Some(Checksum {
        algorithm: "sha256".to_owned(),
        value: "00".to_owned(),
    });
    let upload = Upload {
        checksum,
        ..Upload::iso("seed.iso", 64 * 1024)
    };
    let task = storage
        .upload(&upload, futures::stream::iter(chunks))
        .await
        .unwrap();
    assert_eq!(task.kind(), "imgcopy");
    let seen = &fake.seen()[0];
    assert_eq!(seen.path, "/nodes/pve1/storage/local/upload");
    assert_eq!(seen.header("content-length"), seen.body.len().to_string());
    let boundary = seen
        .header("content-type")
        .split_once("boundary=")
        .unwrap()
        .1
        .to_owned();
    assert!(seen.body.starts_with(&format!("--{boundary}\r\n")));
    assert!(seen.body.ends_with(&format!("x\r\n--{boundary}--\r\n")));
}

#[tokio::test(start_paused = true)]
async fn a_spent_stream_is_not_sent_again() {
    let fake = Fake::new(|_, _| Reply::Failure(401, "Authentication failed!".to_owned()));
    let client = fake.client();
    let storage = client
        .node(&NodeName::new("pve1").unwrap())
        .storage(&StorageId::new("local").unwrap());
    let error = storage
        .upload_bytes(&Upload::iso("a.iso", 3), Bytes::from_static(b"abc"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
    assert_eq!(fake.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_name_cannot_break_out_of_its_field() {
    let fake = Fake::new(|_, _| Reply::Data(json!(UPID)));
    let client = fake.client();
    let storage = client
        .node(&NodeName::new("pve1").unwrap())
        .storage(&StorageId::new("local").unwrap());
    for name in ["a\"; x.iso", "../../x.iso", "a\r\nb.iso"] {
        let upload = Upload::iso(name, 0);
        assert!(matches!(
            storage.upload_bytes(&upload, Bytes::new()).await,
            Err(Error::Request { .. })
        ));
    }
    assert!(fake.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_small_upload_that_is_never_answered_is_given_up_soon() {
    let fake = Fake::new(|_, _| Reply::Hang);
    let client = fake.client();
    let storage = client
        .node(&NodeName::new("pve1").unwrap())
        .storage(&StorageId::new("local").unwrap());
    let begun = tokio::time::Instant::now();
    let upload = Upload::iso("a.iso", 3);
    let ended = storage.upload_bytes(&upload, Bytes::from_static(b"abc"));
    assert!(ended.await.is_err());
    assert!(begun.elapsed() < std::time::Duration::from_mins(2));
}
