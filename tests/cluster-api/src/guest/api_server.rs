//! The API server that `kubeadm init` starts, with the keys that came with the bootstrap data.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::pki::{Authority, Identity};
use testbed::process::Flags;
use testbed::process::Process;
use tokio::time::{Instant, sleep};

use super::cloud_init::CloudInit;
use super::kubeadm::ClusterConfiguration;
use super::{Failure, Guests, kubelet};
use crate::bed::PATIENCE;

const PKI: &str = "/etc/kubernetes/pki";

/// An API server, as its administrator.
pub(super) struct Server {
    pub(super) authority: Authority,
    endpoint: String,
    client: Client,
}

/// The server that a joining control-plane node stands in for: it shares its keys.
pub(super) fn joined(data: &CloudInit, endpoint: &str) -> Result<Server, Failure> {
    let authority = authority(data)?;
    let admin = administrator(&authority)?;
    Ok(Server {
        client: kubelet::client(endpoint, authority.cert(), &admin)?,
        endpoint: endpoint.to_owned(),
        authority,
    })
}

fn file<'a>(data: &'a CloudInit, name: &str) -> Result<&'a str, Failure> {
    let path = format!("{PKI}/{name}");
    data.files
        .get(&path)
        .map(String::as_str)
        .ok_or_else(|| format!("{path} was not written").into())
}

fn authority(data: &CloudInit) -> Result<Authority, Failure> {
    Ok(Authority::from_pem(
        file(data, "ca.crt")?,
        file(data, "ca.key")?,
    )?)
}

fn administrator(authority: &Authority) -> Result<Identity, Failure> {
    Ok(authority.client("kubernetes-super-admin", &["system:masters"])?)
}

/// Starts an API server and the controllers that sign certificates and watch leases.
pub(super) async fn start(
    guests: &Guests,
    node: &str,
    data: &CloudInit,
    cluster: &ClusterConfiguration,
) -> Result<Server, Failure> {
    let dir = guests.dir(node)?;
    for name in ["ca.crt", "ca.key", "sa.pub", "sa.key", "front-proxy-ca.crt"] {
        std::fs::write(dir.join(name), file(data, name)?)?;
    }
    let server = joined(data, &cluster.control_plane_endpoint)?;
    let mut names = vec![
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default.svc",
    ];
    names.extend(cluster.api_server.cert_sans.iter().map(String::as_str));
    let serving = server.authority.server(&names)?;
    std::fs::write(dir.join("apiserver.crt"), serving.cert)?;
    std::fs::write(dir.join("apiserver.key"), serving.key)?;

    let flags = flags(&dir, cluster)?;
    let program = guests.assets.program("kube-apiserver")?;
    let api_server = Process::start(&program, &flags.0, &dir, false)?;
    let start = Instant::now();
    while start.elapsed() < *PATIENCE {
        if server.client.apiserver_version().await.is_ok() && server.is_ready().await {
            let controllers = controllers(guests, &dir, &server)?;
            guests.keep(&server.endpoint, vec![controllers, api_server]);
            return Ok(server);
        }
        if api_server.has_ended() {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err(format!("no API server: {}", api_server.log_tail()).into())
}

fn flags(dir: &Path, cluster: &ClusterConfiguration) -> Result<Flags, Failure> {
    let (_, port) = cluster
        .control_plane_endpoint
        .rsplit_once(':')
        .ok_or("the endpoint has no port")?;
    let etcd = cluster
        .etcd
        .external
        .as_ref()
        .ok_or("a guest has no room for an etcd of its own: use an external one")?;
    let mut flags = Flags::default();
    flags
        .set("etcd-servers", &etcd.endpoints.join(","))
        .set("bind-address", "127.0.0.1")
        .set("advertise-address", "127.0.0.1")
        .set("secure-port", port)
        .path("tls-cert-file", &dir.join("apiserver.crt"))
        .path("tls-private-key-file", &dir.join("apiserver.key"))
        .path("client-ca-file", &dir.join("ca.crt"))
        .path(
            "requestheader-client-ca-file",
            &dir.join("front-proxy-ca.crt"),
        )
        .set("requestheader-allowed-names", "front-proxy-client")
        .set("requestheader-username-headers", "X-Remote-User")
        .set("requestheader-group-headers", "X-Remote-Group")
        .set("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .set(
            "service-account-issuer",
            "https://kubernetes.default.svc.cluster.local",
        )
        .path("service-account-key-file", &dir.join("sa.pub"))
        .path("service-account-signing-key-file", &dir.join("sa.key"))
        .set("service-cluster-ip-range", "10.96.0.0/16")
        .set("authorization-mode", "Node,RBAC")
        .set("enable-admission-plugins", "NodeRestriction")
        .set("enable-bootstrap-token-auth", "true")
        .set("allow-privileged", "true")
        .set("endpoint-reconciler-type", "none");
    for argument in &cluster.api_server.extra_args {
        flags.set(&argument.name, &argument.value);
    }
    Ok(flags)
}

fn controllers(guests: &Guests, dir: &Path, server: &Server) -> Result<Process, Failure> {
    let admin = administrator(&server.authority)?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "admin",
        "clusters": [{"name": "admin", "cluster": {
            "server": format!("https://{}", server.endpoint),
            "certificate-authority-data": STANDARD.encode(server.authority.cert()),
        }}],
        "users": [{"name": "admin", "user": {
            "client-certificate-data": STANDARD.encode(&admin.cert),
            "client-key-data": STANDARD.encode(&admin.key),
        }}],
        "contexts": [{"name": "admin", "context": {"cluster": "admin", "user": "admin"}}],
    });
    let path = dir.join("controller-manager.conf");
    std::fs::write(&path, kubeconfig.to_string())?;
    let mut flags = Flags::default();
    flags
        .path("kubeconfig", &path)
        .set("bind-address", "127.0.0.1")
        .set("secure-port", "0")
        .set("leader-elect", "false")
        .set(
            "controllers",
            "certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller,node-lifecycle-controller",
        )
        .path("cluster-signing-cert-file", &dir.join("ca.crt"))
        .path("cluster-signing-key-file", &dir.join("ca.key"))
        // A dead node is noticed sooner than in the field, and not so soon that a busy machine looks dead.
        .set("node-monitor-grace-period", "20s")
        .set("node-monitor-period", "2s");
    let program = guests.assets.program("kube-controller-manager")?;
    Ok(Process::start(&program, &flags.0, dir, false)?)
}

impl Server {
    async fn is_ready(&self) -> bool {
        // Served once the server's own start-up work is done.
        let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        for name in ["kube-system", "kube-public", "kube-node-lease"] {
            if api.get(name).await.is_err() {
                return false;
            }
        }
        let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(self.client.clone());
        roles.get("system:node-bootstrapper").await.is_ok()
    }

    async fn apply(&self, object: Value, namespace: Option<&str>) -> Result<(), Failure> {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: object["apiVersion"].as_str().unwrap_or_default().to_owned(),
            kind: kind.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
        };
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply("kubeadm").force();
        api.patch(name, &params, &Patch::Apply(&object)).await?;
        Ok(())
    }

    /// What kubeadm leaves in a new cluster for those who join.
    pub(super) async fn prepare(&self, configuration: &str) -> Result<(), Failure> {
        let bind = |name: &str, role: &str, group: &str| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
            })
        };
        let bootstrappers = "system:bootstrappers:kubeadm:default-node-token";
        self.apply(
            bind(
                "kubeadm:kubelet-bootstrap",
                "system:node-bootstrapper",
                bootstrappers,
            ),
            None,
        )
        .await?;
        self.apply(
            bind(
                "kubeadm:node-autoapprove-bootstrap",
                "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
                bootstrappers,
            ),
            None,
        )
        .await?;
        let info = json!({
            "apiVersion": "v1", "kind": "Config", "users": [], "contexts": [], "current-context": "",
            "clusters": [{"name": "", "cluster": {
                "server": format!("https://{}", self.endpoint),
                "certificate-authority-data": STANDARD.encode(self.authority.cert()),
            }}],
        });
        let map = |name: &str, key: &str, text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: text}});
        self.apply(
            map("cluster-info", "kubeconfig", &info.to_string()),
            Some("kube-public"),
        )
        .await?;
        self.apply(
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "kubeadm:bootstrap-signer-clusterinfo"},
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}],
            }),
            Some("kube-public"),
        )
        .await?;
        self.apply(
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "kubeadm:bootstrap-signer-clusterinfo"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kubeadm:bootstrap-signer-clusterinfo"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}],
            }),
            Some("kube-public"),
        )
        .await?;
        // Cluster API takes this for the sign that kubeadm has done its work.
        self.apply(
            map("kubeadm-config", "ClusterConfiguration", configuration),
            Some("kube-system"),
        )
        .await
    }

    /// Marks a node as one of the control plane, and shows the pods that run there.
    pub(super) async fn mark_control_plane(&self, node: &str) -> Result<(), Failure> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let params = PatchParams::default();
        let mark = "node-role.kubernetes.io/control-plane";
        let change = json!({
            "metadata": {"labels": {mark: ""}},
            "spec": {"taints": [{"key": mark, "effect": "NoSchedule"}]},
        });
        nodes
            .patch(node, &params, &Patch::Strategic(&change))
            .await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "kube-system");
        for component in [
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
        ] {
            let name = format!("{component}-{node}");
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name,
                    "labels": {"component": component, "tier": "control-plane"},
                    "annotations": {"kubernetes.io/config.mirror": component, "kubernetes.io/config.source": "file"},
                },
                "spec": {
                    "nodeName": node, "hostNetwork": true, "automountServiceAccountToken": false,
                    "containers": [{"name": component, "image": format!("registry.k8s.io/{component}")}],
                },
            });
            let params = PatchParams::apply("kubelet").force();
            pods.patch(&name, &params, &Patch::Apply(&pod)).await?;
            let condition = |kind: &str| json!({"type": kind, "status": "True"});
            let status = json!({"status": {
                "phase": "Running",
                "conditions": [
                    condition("PodScheduled"), condition("Initialized"),
                    condition("ContainersReady"), condition("Ready"),
                ],
            }});
            let params = PatchParams::default();
            pods.patch_status(&name, &params, &Patch::Merge(&status))
                .await?;
        }
        Ok(())
    }
}
