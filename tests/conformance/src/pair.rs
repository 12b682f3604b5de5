//! The two servers, started once for all cases of a test binary.

use std::sync::LazyLock;

use serde_json::{Value, json};
use testbed::http::Client;
use testbed::{ControlPlane, Options, assets_or_skip};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::compare::compare;
use crate::session::{Session, Step};

/// What the real server is made of.
pub const PROGRAMS: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl",
];

// Servers and pooled connections belong to the runtime they were made on, so all cases share one.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime starts"));
static REAL: OnceCell<ControlPlane> = OnceCell::const_new();

/// The options of the real control plane: what ours does in one process, and nothing else.
pub fn options() -> Options {
    let controllers = [
        "garbage-collector-controller",
        "namespace-controller",
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
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
    RUNTIME.block_on(async {
        let real = REAL
            .get_or_init(async || {
                ControlPlane::start(&assets, &options())
                    .await
                    .expect("the real server starts")
            })
            .await;
        let Some(ours) = ours(&assets).await else {
            hold(name, "real", real.client(), &case).await;
            return;
        };
        let (real, ours) = tokio::join!(
            hold(name, "real", real.client(), &case),
            hold(name, "ours", ours, &case)
        );
        check(name, &real, &ours);
    });
}

static OURS: OnceCell<ControlPlane> = OnceCell::const_new();

/// The server under test. With `CONFORMANCE_SELF=1` a second real one, which proves that the cases say
/// the same twice.
async fn ours(assets: &testbed::Assets) -> Option<&'static Client> {
    std::env::var_os("CONFORMANCE_SELF")?;
    let second = OURS.get_or_init(async || {
        ControlPlane::start(assets, &options())
            .await
            .expect("the second real server starts")
    });
    Some(second.await.client())
}

async fn hold(
    name: &str,
    server: &str,
    client: &Client,
    case: &impl AsyncFn(&Session),
) -> Vec<Step> {
    let namespace = namespace(name);
    let session = Session::new(client.clone(), namespace.clone());
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    session
        .post("create the namespace", "/api/v1/namespaces", &body)
        .await;
    case(&session).await;
    // Its objects are gone from lists over all namespaces before long; nobody waits for it.
    session
        .raw(
            http::Method::DELETE,
            &format!("/api/v1/namespaces/{namespace}"),
            &[],
            "",
        )
        .await;
    let steps = session.into_steps();
    dump(name, server, &steps);
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

/// Fails with everything that differs.
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
