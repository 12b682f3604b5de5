//! The server with a file, a port and strangers.

use std::{sync::Arc, time::Duration};

use apiserver::{Clock, Config, Server, User};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::ClusterRoleBinding};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{self, pki_types::UnixTime, time_provider::TimeProvider};

use super::client::{code, config_map};

async fn client(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig_path()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn it_starts_again_with_its_data() {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, path::Path};

    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("data");
    // Somebody made it, for all to enter.
    std::fs::create_dir(&directory).unwrap();
    let mode = |of: &Path, mode| std::fs::set_permissions(of, Permissions::from_mode(mode));
    mode(&directory, 0o755).unwrap();
    let assert_private = |file: &Path| {
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    };
    let server = Server::start(Config::new(&directory)).await.unwrap();
    let store = directory.join("store.redb");
    assert_private(server.kubeconfig_path());
    assert_private(&store);
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    let created = maps
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let ca = server.ca_pem().to_owned();
    server.shutdown().await;

    mode(&store, 0o644).unwrap();
    let server = Server::start(Config::new(&directory)).await.unwrap();
    assert_private(&store);
    assert_eq!(server.ca_pem(), ca);
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    assert_eq!(maps.get("a").await.unwrap(), created);
    let next = maps
        .create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap();
    let number = |map: &ConfigMap| {
        map.metadata
            .resource_version
            .as_ref()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(number(&next) > number(&created));
    server.shutdown().await;
}

#[tokio::test]
async fn strangers_are_refused_and_tokens_are_known() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::new(directory.path());
    config.tokens = vec![("sesame".to_owned().into(), User::named("ali"))];
    let server = Server::start(config).await.unwrap();
    let as_bearer = |token: Option<&str>| {
        let mut config = kube::Config::new(server.url().parse().unwrap());
        config.root_cert = Some(vec![pem_to_der(server.ca_pem())]);
        config.auth_info.token = token.map(|t| t.to_owned().into());
        Client::try_from(config).unwrap()
    };
    let list = |client: Client| async move {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        maps.list(&ListParams::default()).await
    };
    let (status, _, message) = code(list(as_bearer(None)).await.unwrap_err());
    assert_eq!(status, 403);
    assert_eq!(
        message,
        "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(
        code(list(as_bearer(Some("wrong"))).await.unwrap_err()).0,
        401
    );
    assert_eq!(
        code(list(as_bearer(Some("sesame"))).await.unwrap_err()).0,
        403
    );

    let bindings: Api<ClusterRoleBinding> = Api::all(client(&server).await);
    let binding = serde_json::from_value(json!({
        "metadata": {"name": "ali-views"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ali"}],
    }))
    .unwrap();
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
    list(as_bearer(Some("sesame"))).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(as_bearer(Some("sesame")));
    let refused = maps
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap_err();
    assert_eq!(code(refused).0, 403);
    server.shutdown().await;
}

fn pem_to_der(pem: &str) -> Vec<u8> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let body: String = pem
        .lines()
        .filter(|line| !line.starts_with("---"))
        .collect();
    STANDARD.decode(body).unwrap()
}

const MONTH: Duration = Duration::from_hours(24 * 31);

/// The time when a certificate of today and one of next month are good.
#[derive(Debug)]
struct NextMonth;

impl TimeProvider for NextMonth {
    fn current_time(&self) -> Option<UnixTime> {
        let now = Clock::system().now().as_second().unsigned_abs();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(now) + MONTH))
    }
}

/// The certificate it shows to whoever comes.
async fn shown(server: &Server) -> Vec<u8> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pem_to_der(server.ca_pem()).into()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_details(provider, Arc::new(NextMonth))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let connected = connected.await.unwrap();
    let chain = connected.get_ref().1.peer_certificates().unwrap();
    chain[0].to_vec()
}

#[tokio::test]
async fn its_certificates_are_made_anew_while_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(Config::new(directory.path())).await.unwrap();
    let written = || std::fs::read(server.kubeconfig_path()).unwrap();
    let before = (shown(&server).await, written());
    tokio::time::pause();
    tokio::time::advance(MONTH).await;
    tokio::time::resume();
    let renewed = async {
        while written() == before.1 || shown(&server).await == before.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_mins(1), renewed).await;
    in_time.expect("a certificate runs out after a year");
    server.shutdown().await;
}
