use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::pve9;

const UPLOAD: &str = "/nodes/pve1/storage/local/upload";

#[tokio::test(start_paused = true)]
async fn uploads_are_checked_and_stored_by_a_task() {
    let (_, pve) = pve9().await;
    let iso = [("content", "iso")];
    let answer = pve.upload(UPLOAD, &iso, "a.txt", b"hello").await;
    assert_eq!(answer.body["errors"]["filename"], "wrong file extension");
    let answer = pve
        .upload(UPLOAD, &[("content", "snippets")], "u.yaml", b"x")
        .await;
    assert_eq!(
        answer.body["errors"]["content"],
        "value 'snippets' does not have a value in the enumeration 'iso, vztmpl, import'"
    );
    let sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let checked = [
        ("content", "iso"),
        ("checksum-algorithm", "sha256"),
        ("checksum", sum),
    ];
    let answer = pve.upload(UPLOAD, &checked, "a.iso", b"hello").await;
    let ended = pve.ended(answer.body["data"].as_str().unwrap()).await;
    assert_eq!(ended.exit, "OK");
    assert!(
        ended
            .log
            .contains(&"target file: /var/lib/vz/template/iso/a.iso".to_owned())
    );
    let list = pve
        .data(
            Method::GET,
            "/nodes/pve1/storage/local/content",
            &[("content", "iso")],
        )
        .await;
    assert_eq!(
        (list[0]["volid"].as_str(), list[0]["size"].as_i64()),
        (Some("local:iso/a.iso"), Some(5))
    );
    let wrong = [
        ("content", "iso"),
        ("checksum-algorithm", "sha256"),
        ("checksum", "00"),
    ];
    let answer = pve.upload(UPLOAD, &wrong, "b.iso", b"hello").await;
    let ended = pve.ended(answer.body["data"].as_str().unwrap()).await;
    assert!(
        ended.exit.starts_with("checksum mismatch"),
        "{}",
        ended.exit
    );
}

#[tokio::test(start_paused = true)]
async fn volumes_are_allocated_at_once_and_freed_by_a_task() {
    let (_, pve) = pve9().await;
    let content = "/nodes/pve1/storage/data/content";
    let params = [
        ("vmid", "101"),
        ("filename", "vm-101-disk-7.raw"),
        ("size", "100M"),
    ];
    assert_eq!(
        pve.data(Method::POST, content, &params).await,
        "data:101/vm-101-disk-7.raw"
    );
    let again = pve.refused(Method::POST, content, &params).await;
    assert_eq!(
        again,
        (
            500,
            "disk image '/mnt/data/images/101/vm-101-disk-7.raw' already exists".to_owned()
        )
    );
    let upid = pve
        .data(
            Method::DELETE,
            &format!("{content}/data%3A101%2Fvm-101-disk-7.raw"),
            &[],
        )
        .await;
    assert!(upid.as_str().unwrap().contains(":imgdel:101@data:"));
    assert_eq!(pve.ended(upid.as_str().unwrap()).await.exit, "OK");
    let missing = pve
        .ok(Method::DELETE, &format!("{content}/data:101/nope.raw"), &[])
        .await;
    assert_eq!(missing.log[1], "Removed volume 'data:101/nope.raw'");
    let status = pve
        .call(Method::GET, "/nodes/pve1/storage/nope/status", &[])
        .await;
    assert_eq!(status.body["errors"]["storage"], "No such storage.");
}

#[tokio::test]
async fn download_url_fetches_from_this_machine_and_nowhere_else() {
    let (_, pve) = pve9().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0_u8; 1024];
        let _ = stream.read(&mut request).await.unwrap();
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nimage";
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let path = "/nodes/pve1/storage/local/download-url";
    let url = format!("http://127.0.0.1:{port}/disk.qcow2");
    let params = [
        ("url", url.as_str()),
        ("content", "import"),
        ("filename", "disk.qcow2"),
    ];
    pve.ok(Method::POST, path, &params).await;
    server.await.unwrap();
    let found = pve
        .get("/nodes/pve1/storage/local/content/local:import/disk.qcow2")
        .await;
    assert_eq!(found["path"], "/var/lib/vz/import/disk.qcow2");
    let away = [
        ("url", "https://example.org/x.iso"),
        ("content", "iso"),
        ("filename", "x.iso"),
    ];
    let ended = pve.run(Method::POST, path, &away).await;
    assert!(
        ended
            .exit
            .starts_with("download failed: Resolving example.org"),
        "{}",
        ended.exit
    );
    let bad = [
        ("url", "http://127.0.0.1:1/x"),
        ("content", "iso"),
        ("filename", "x.txt"),
    ];
    let answer = pve.call(Method::POST, path, &bad).await;
    assert_eq!(answer.body["errors"]["filename"], "wrong file extension");
}
