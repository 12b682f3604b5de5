//! Running cases: on a management cluster that they share, on two, or on one of their own.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;

use testbed::{Assets, assets_or_skip};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use super::Bed;

const PROGRAMS: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "capi-core",
    "capi-kubeadm-bootstrap",
    "capi-kubeadm-control-plane",
    "ipam-in-cluster",
    "capmox",
    "clusterctl",
];

// Servers and pooled connections belong to the runtime they were made on, so all cases share one.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime starts"));
static SHARED: OnceCell<Bed> = OnceCell::const_new();

/// Runs a case on the management cluster that cases share, with our controllers on it.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a closure is written where it is passed"
)]
pub fn shared(name: &str, case: impl AsyncFn(&Bed)) {
    let Some((assets, program)) = programs(name) else {
        return;
    };
    RUNTIME.block_on(async {
        let bed = SHARED
            .get_or_init(|| Bed::start_with_oxmox(&assets, &program))
            .await;
        case(bed).await;
    });
}

/// Runs a case on that management cluster and another one, both with our controllers on them. The other one is being started: it
/// takes as long as a cluster does, and neither need wait for the other.
pub fn both(name: &str, case: impl AsyncFnOnce(&Bed, JoinHandle<Bed>)) {
    let Some((assets, program)) = programs(name) else {
        return;
    };
    RUNTIME.block_on(async {
        let (own, ours) = (assets.clone(), program.clone());
        let another = tokio::spawn(async move { Bed::start_with_oxmox(&own, &ours).await });
        let shared = SHARED.get_or_init(|| Bed::start_with_oxmox(&assets, &program));
        case(shared.await, another).await;
    });
}

/// Runs a case on a management cluster of its own, with no provider of infrastructure on it yet.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a closure is written where it is passed"
)]
pub fn alone(name: &str, case: impl AsyncFn(&Bed)) {
    let Some((assets, program)) = programs(name) else {
        return;
    };
    RUNTIME.block_on(async {
        let bed = Bed::start(&assets, &program).await;
        case(&bed).await;
    });
}

/// The programs of others, and ours; nothing after saying what is missing.
fn programs(suite: &str) -> Option<(Assets, PathBuf)> {
    let assets = assets_or_skip(suite, PROGRAMS)?;
    let of_this_build = || {
        let here = std::env::current_exe().ok()?;
        // Tests lie one directory deeper than programs.
        let mut dirs = here.ancestors().skip(1).take(2);
        dirs.find_map(|dir| Some(dir.join("oxmox")).filter(|path| path.is_file()))
    };
    let program = std::env::var_os("OXMOX_BIN").map(PathBuf::from);
    let program = program.or_else(of_this_build).filter(|path| path.is_file());
    if let Some(program) = program {
        return Some((assets, program));
    }
    let missing = "oxmox itself is not built: run `cargo build -p oxmox`";
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
    assert!(!ci, "{suite}: {missing}");
    let _ = writeln!(std::io::stderr(), "skipped: {suite}: {missing}");
    None
}
