//! Whether the server works, and what it counts.

use apiserver::{ApiService, Config, InMemory, Server};
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

async fn get(service: &ApiService, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_server_is_ready_while_its_store_takes_writes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(Config::new(directory.path())).await.unwrap();
    let service = server.service();
    assert_eq!(
        get(&service, "/readyz").await,
        (StatusCode::OK, "ok".into())
    );
    let (_, told) = get(&service, "/readyz?verbose").await;
    assert_eq!(
        told,
        "[+]ping ok\n[+]log ok\n[+]store ok\nreadyz check passed\n"
    );
    server.shutdown().await;
    let (status, told) = get(&service, "/readyz").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(told.contains("[-]store failed"), "{told}");
    // It still answers, and an excluded check is not made.
    assert_eq!(get(&service, "/livez").await.0, StatusCode::OK);
    assert_eq!(
        get(&service, "/readyz?exclude=store").await.0,
        StatusCode::OK
    );
    assert_eq!(get(&service, "/readyz/ping").await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn callers_cannot_invent_labels_of_metrics() {
    let server = InMemory::new();
    let service = server.service();
    for number in 0..50 {
        let path = format!("/apis/invented-{number}.example.com/v1/things-{number}");
        assert_eq!(get(&service, &path).await.0, StatusCode::NOT_FOUND);
    }
    get(&service, "/api/v1/pods").await;
    let (_, metrics) = get(&service, "/metrics").await;
    assert!(!metrics.contains("invented"), "{metrics}");
    assert!(metrics.contains("resource=\"pods\""), "{metrics}");
    assert!(
        metrics.contains("resource=\"\",code=\"404\"} 50"),
        "{metrics}"
    );
}
