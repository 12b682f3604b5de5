//! The programs of the testbed, and the key under which each is cached.
//!
//! A program is one `tool` of one Go module under `testbed/go`. Its version is the one that module's
//! `go.mod` requires; the key also covers `go.sum` and the link flags, so that any change to what
//! would be built leads to another directory and never to a stale binary.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// One program of the testbed.
#[derive(Debug, Clone, Copy)]
pub struct Component {
    /// Name of the binary, and what `--only` calls it.
    pub name: &'static str,
    /// Directory of its Go module, below `testbed/go`.
    pub module: &'static str,
    /// The Go module whose version is the component's.
    pub requires: &'static str,
    /// The main package to build.
    pub package: &'static str,
    /// Whether `cargo xtask test` needs it, so that it is built without being asked for.
    pub in_suites: bool,
    /// Directory of its manifests (`crd/bases`, `webhook/manifests.yaml`) in the Go module it comes from, if it has any.
    pub manifests: Option<&'static str>,
    stamp: Stamp,
    go_mod: &'static str,
    go_sum: &'static str,
}

/// Where a program keeps the version that its release build would stamp into it.
#[derive(Debug, Clone, Copy)]
enum Stamp {
    /// It knows its own version.
    None,
    /// Kubernetes' layout (`gitVersion`, `gitMajor`, …) in these packages.
    Kubernetes(&'static [&'static str]),
    /// Helm's single variable.
    Helm,
}

macro_rules! component {
    ($name:literal, $module:literal, $requires:literal, $package:literal, $in_suites:literal, $stamp:expr) => {
        component!(
            $name, $module, $requires, $package, $in_suites, $stamp, None
        )
    };
    ($name:literal, $module:literal, $requires:literal, $package:literal, $in_suites:literal, $stamp:expr, $manifests:expr) => {
        Component {
            name: $name,
            module: $module,
            requires: $requires,
            package: concat!($requires, $package),
            in_suites: $in_suites,
            manifests: $manifests,
            stamp: $stamp,
            go_mod: include_str!(concat!("../go/", $module, "/go.mod")),
            go_sum: include_str!(concat!("../go/", $module, "/go.sum")),
        }
    };
}

const KUBERNETES: Stamp = Stamp::Kubernetes(&[
    "k8s.io/component-base/version",
    "k8s.io/client-go/pkg/version",
]);
const CLUSTER_API: Stamp = Stamp::Kubernetes(&["sigs.k8s.io/cluster-api/version"]);

/// Everything the testbed can build, in the order of need.
#[rustfmt::skip]
pub const ALL: &[Component] = &[
    component!("etcd", "etcd", "go.etcd.io/etcd/server/v3", "", true, Stamp::None),
    component!("kubectl", "kubernetes", "k8s.io/kubernetes", "/cmd/kubectl", true, KUBERNETES),
    component!("kube-apiserver", "kubernetes", "k8s.io/kubernetes", "/cmd/kube-apiserver", true, KUBERNETES),
    component!("kube-controller-manager", "kubernetes", "k8s.io/kubernetes", "/cmd/kube-controller-manager", true, KUBERNETES),
    component!("helm", "helm", "helm.sh/helm/v3", "/cmd/helm", true, Stamp::Helm),
    component!("kube-scheduler", "kubernetes", "k8s.io/kubernetes", "/cmd/kube-scheduler", false, KUBERNETES),
    component!("capi-core", "cluster-api", "sigs.k8s.io/cluster-api", "", true, CLUSTER_API, Some("config")),
    component!("capi-kubeadm-bootstrap", "cluster-api", "sigs.k8s.io/cluster-api", "/bootstrap/kubeadm", true, CLUSTER_API, Some("bootstrap/kubeadm/config")),
    component!("capi-kubeadm-control-plane", "cluster-api", "sigs.k8s.io/cluster-api", "/controlplane/kubeadm", true, CLUSTER_API, Some("controlplane/kubeadm/config")),
    component!("clusterctl", "cluster-api", "sigs.k8s.io/cluster-api", "/cmd/clusterctl", true, CLUSTER_API),
    component!("ipam-in-cluster", "ipam-in-cluster", "sigs.k8s.io/cluster-api-ipam-provider-in-cluster", "", true, Stamp::None, Some("config")),
    component!("capmox", "capmox", "github.com/ionos-cloud/cluster-api-provider-proxmox", "/cmd", true, Stamp::None, Some("config")),
];

/// The component called `name`.
pub fn find(name: &str) -> Option<&'static Component> {
    ALL.iter().find(|component| component.name == name)
}

impl Component {
    /// The pinned version, as `go.mod` requires it.
    pub fn version(&self) -> &'static str {
        self.go_mod
            .lines()
            .filter_map(|line| {
                let line = line.trim();
                line.strip_prefix("require ")
                    .unwrap_or(line)
                    .strip_prefix(self.requires)
            })
            .filter_map(|rest| rest.strip_prefix(' ')?.split_whitespace().next())
            .find(|version| version.starts_with('v'))
            .expect("each module requires what it builds at an exact version")
    }

    /// The linker flags: no symbol tables, and the version where the program would report none.
    pub fn ldflags(&self) -> String {
        let version = self.version();
        let mut numbers = version.trim_start_matches('v').split('.');
        let major = numbers.next().unwrap_or_default();
        let minor = numbers.next().unwrap_or_default();
        let mut flags = String::from("-s -w");
        match self.stamp {
            Stamp::None => {}
            Stamp::Kubernetes(packages) => {
                for package in packages {
                    for (name, value) in [
                        ("gitVersion", version),
                        ("gitMajor", major),
                        ("gitMinor", minor),
                        ("gitTreeState", "clean"),
                    ] {
                        flags += &[" -X ", package, ".", name, "=", value].concat();
                    }
                }
            }
            Stamp::Helm => {
                flags += " -X helm.sh/helm/v3/internal/version.version=";
                flags += version;
            }
        }
        flags
    }

    /// The name of the cache directory: readable, and different for every different build.
    pub fn key(&self) -> String {
        let mut digest = Sha256::new();
        for part in [self.package, &self.ldflags(), self.go_mod, self.go_sum] {
            digest.update(part.as_bytes());
            digest.update([0]);
        }
        format!(
            "{}-{}-{}",
            self.name,
            self.version(),
            short(&digest.finalize())
        )
    }

    /// Where the built program lies, or will lie.
    pub fn path(&self, cache: &Path) -> PathBuf {
        cache.join(self.key()).join(self.name)
    }

    /// Where its manifests lie, or will lie: `crd/*.yaml` and, if it has webhooks, `webhook.yaml`.
    pub fn manifests_path(&self, cache: &Path) -> PathBuf {
        cache.join(self.key()).join("manifests")
    }

    /// Under which name they are found beside the programs.
    pub fn manifests_link(&self) -> String {
        format!("{}.manifests", self.name)
    }
}

/// The testbed's cache: `$OXMOX_CACHE/testbed`, else below the user's cache directory.
pub fn cache_dir() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let base = if let Some(dir) = set("OXMOX_CACHE") {
        PathBuf::from(dir)
    } else if let Some(dir) = set("XDG_CACHE_HOME") {
        PathBuf::from(dir).join("oxmox")
    } else {
        std::env::home_dir()
            .unwrap_or_else(std::env::temp_dir)
            .join(".cache/oxmox")
    };
    base.join("testbed")
}

/// The one directory in which all programs can be found by name.
///
/// It holds links into the cache. Its name covers every component's key and the outside binaries in
/// use, so that checkouts with different pins do not disturb each other.
pub fn bin_dir(cache: &Path, outside: Option<&Path>) -> PathBuf {
    let mut digest = Sha256::new();
    for component in ALL {
        digest.update(component.key().as_bytes());
        digest.update([0]);
    }
    if let Some(outside) = outside {
        digest.update(outside.as_os_str().as_encoded_bytes());
    }
    cache.join(format!("bin-{}", short(&digest.finalize())))
}

/// Names that a directory given by `KUBEBUILDER_ASSETS` supplies.
pub const FROM_KUBEBUILDER: &[&str] = &["etcd", "kube-apiserver", "kubectl"];

/// The directory `KUBEBUILDER_ASSETS` names, when it is set.
pub fn kubebuilder_assets() -> Option<PathBuf> {
    std::env::var_os("KUBEBUILDER_ASSETS")
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from)
}

fn short(digest: &[u8]) -> String {
    use std::fmt::Write as _;
    digest[..6].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_has_a_version_and_its_own_key() {
        let mut keys = std::collections::BTreeSet::new();
        for component in ALL {
            assert!(component.version().starts_with('v'), "{}", component.name);
            assert!(
                component.go_mod.contains(component.package),
                "{}",
                component.name
            );
            assert!(
                keys.insert(component.key()),
                "{} repeats a key",
                component.name
            );
        }
    }

    #[test]
    fn kubernetes_reports_the_pinned_version() {
        let component = find("kube-apiserver").expect("it is in the list");
        let (_, minor) = component
            .version()
            .split_once('.')
            .expect("a semantic version");
        let minor = minor.split('.').next().expect("a semantic version");
        let flags = component.ldflags();
        assert!(flags.contains(&format!("version.gitVersion={}", component.version())));
        assert!(flags.contains(&format!("version.gitMinor={minor} ")));
    }

    #[test]
    fn outside_binaries_lead_to_another_directory() {
        let cache = Path::new("/cache");
        let plain = bin_dir(cache, None);
        assert_ne!(plain, bin_dir(cache, Some(Path::new("/opt/kubebuilder"))));
        assert_eq!(plain, bin_dir(cache, None));
    }
}
