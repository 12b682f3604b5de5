//! The two servers, started once for all cases of a test binary.

use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::{Value, json};
use testbed::http::Client;
use testbed::{Assets, ControlPlane, Helm, Kubectl, Options, assets_or_skip};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::compare::compare;
use crate::ours::Ours;
use crate::script::Script;
use crate::session::{Session, Step};

/// What the real server is made of.
pub const PROGRAMS: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl",
    "helm",
];

// Servers and pooled connections belong to the runtime they were made on, so all cases share one.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime starts"));
static REAL: OnceCell<ControlPlane> = OnceCell::const_new();
static SECOND: OnceCell<ControlPlane> = OnceCell::const_new();
static OURS: OnceCell<Ours> = OnceCell::const_new();

/// One of the two servers: how to talk to it, and the kubeconfig that tells a tool.
#[derive(Debug, Clone)]
struct Server {
    name: &'static str,
    client: Client,
    kubeconfig: PathBuf,
}

/// The options of the real control plane: what ours does in one process, and nothing else.
pub fn options() -> Options {
    let controllers = [
        "garbage-collector-controller",
        "namespace-controller",
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
        "root-ca-certificate-publisher-controller",
        "serviceaccount-controller",
    ];
    Options {
        controllers: controllers.map(str::to_owned).to_vec(),
        // No kubelet mounts tokens into pods here, and ours does not pretend to.
        apiserver_flags: vec!["--disable-admission-plugins=ServiceAccount".into()],
        ..Options::default()
    }
}

/// Holds the conversation `case` with both servers and compares the protocols.
///
/// # Panics
/// When they differ.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a closure is written where it is passed"
)]
pub fn run(name: &str, case: impl AsyncFn(&Session)) {
    let name = name.trim_start_matches("it::");
    let Some(assets) = assets_or_skip(name, PROGRAMS) else {
        return;
    };
    RUNTIME.block_on(both(name, &assets, async |server: Server| {
        hold(name, &server, &case).await
    }));
}

/// Types the commands of `script` at both servers and compares what is printed.
///
/// # Panics
/// When they differ.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a closure is written where it is passed"
)]
pub fn run_script(name: &str, script: impl AsyncFn(&Script)) {
    let name = name.trim_start_matches("it::");
    let Some(assets) = assets_or_skip(name, PROGRAMS) else {
        return;
    };
    RUNTIME.block_on(both(name, &assets, async |server: Server| {
        let session = Session::new(server.client.clone(), namespace(name));
        session.create_namespace().await;
        let kubectl = Kubectl::new(&assets, &server.kubeconfig).expect("kubectl is built");
        let terminal = Script::new(
            kubectl,
            Helm::new(&assets, &server.kubeconfig).ok(),
            namespace(name),
        );
        script(&terminal).await;
        session.delete_namespace().await;
        let steps = terminal.into_steps();
        dump(name, server.name, &steps);
        steps
    }));
}

async fn both(name: &str, assets: &Assets, protocol: impl AsyncFn(Server) -> Vec<Step>) {
    let real = REAL.get_or_init(async || plane(assets).await).await;
    let real = Server {
        name: "real",
        client: real.client().clone(),
        kubeconfig: real.kubeconfig(),
    };
    let ours = ours(assets).await;
    let (real, ours) = tokio::join!(protocol(real), protocol(ours));
    check(name, &real, &ours);
}

async fn plane(assets: &Assets) -> ControlPlane {
    ControlPlane::start(assets, &options())
        .await
        .expect("the real server starts")
}

/// The server under test. With `CONFORMANCE_SELF=1` a second real one, which proves that the cases say
/// the same twice.
async fn ours(assets: &Assets) -> Server {
    let (client, kubeconfig) = if std::env::var_os("CONFORMANCE_SELF").is_some() {
        let second = SECOND.get_or_init(async || plane(assets).await).await;
        (second.client().clone(), second.kubeconfig())
    } else {
        let ours = OURS.get_or_init(Ours::start).await;
        (ours.client.clone(), ours.kubeconfig())
    };
    Server {
        name: "ours",
        client,
        kubeconfig,
    }
}

async fn hold(name: &str, server: &Server, case: &impl AsyncFn(&Session)) -> Vec<Step> {
    let session = Session::new(server.client.clone(), namespace(name));
    session.create_namespace().await;
    case(&session).await;
    session.delete_namespace().await;
    let steps = session.into_steps();
    dump(name, server.name, &steps);
    steps
}

/// A namespace for the case: its name, within what a namespace may be called.
fn namespace(name: &str) -> String {
    let name = name.replace("::", "-").replace('_', "-");
    let digest = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let short: String = name.chars().take(40).collect();
    format!(
        "{}-{:06x}",
        short.trim_end_matches('-'),
        digest & 0x00ff_ffff
    )
}

fn dump(name: &str, server: &str, steps: &[Step]) {
    let Some(dir) = std::env::var_os("CONFORMANCE_DUMP") else {
        return;
    };
    let dir = std::path::Path::new(&dir).join(server);
    let steps: Vec<Value> = steps
        .iter()
        .map(|step| json!({"step": step.label, "said": step.said}))
        .collect();
    let text = serde_json::to_string_pretty(&steps).expect("JSON can be written");
    let written = std::fs::create_dir_all(&dir)
        .and_then(|()| std::fs::write(dir.join(format!("{}.json", name.replace("::", "."))), text));
    written.expect("CONFORMANCE_DUMP names a directory that can be written");
}

/// Fails with everything that differs and is not among the deliberate differences.
#[track_caller]
fn check(name: &str, real: &[Step], ours: &[Step]) {
    let partings = compare(name, real, ours);
    let shown: Vec<_> = partings.iter().map(ToString::to_string).collect();
    assert!(
        partings.is_empty(),
        "{name}: ours differs from kube-apiserver in {} places\n{}",
        partings.len(),
        shown.join("\n")
    );
}
