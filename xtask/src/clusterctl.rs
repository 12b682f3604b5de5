//! `cargo xtask clusterctl`: a repository that `clusterctl` installs the provider from.
//!
//! The components are the chart, rendered: one description of the installation, whichever tool does it. The rest (metadata,
//! cluster templates, the ClusterClass) is in `clusterctl/` and copied as it is, or made from what is there ([`flavours`]).

mod flavours;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::root;
use crate::testbed;

/// What clusterctl calls the namespace, unless it is told another.
const NAMESPACE: &str = "oxmox-system";
/// What clusterctl asks its user for. Until then they are unlike anything else in the chart.
const VARIABLES: [(&str, &str); 4] = [
    ("proxmox.url", "PROXMOX_URL"),
    ("proxmox.token", "PROXMOX_TOKEN"),
    ("proxmox.secret", "PROXMOX_SECRET"),
    ("proxmox.insecure", "PROXMOX_INSECURE"),
];

/// Arguments of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the repository is written.
    #[arg(long, default_value = "target/clusterctl", value_name = "DIR")]
    out: PathBuf,
}

/// Writes the repository and says how to use it.
pub(crate) fn write(args: &Args) -> Result<()> {
    let bin = testbed::build(&testbed::Args::only("helm"))?;
    let components = repository(&args.out, &bin)?;
    // clusterctl takes nothing else for a repository on this computer.
    let components = std::path::absolute(components).context("the repository has no place")?;
    anstream::println!("{}", components.display());
    Ok(())
}

/// Writes the repository; returns the path of its components.
fn repository(out: &Path, programs: &Path) -> Result<PathBuf> {
    let version = env!("CARGO_PKG_VERSION");
    let dir = out.join(format!("infrastructure-proxmox/v{version}"));
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let files = root().join("clusterctl");
    for entry in std::fs::read_dir(&files).context("cannot read clusterctl/")? {
        let from = entry?.path();
        let name = from.file_name().context("a file has a name")?;
        std::fs::copy(&from, dir.join(name))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let plain = std::fs::read_to_string(files.join("cluster-template.yaml"))
        .context("cannot read the cluster template")?;
    for flavour in flavours::ALL {
        let file = dir.join(format!("cluster-template-{}.yaml", flavour.name));
        std::fs::write(&file, flavour.of(&plain)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let components = dir.join("infrastructure-components.yaml");
    std::fs::write(&components, render(&programs.join("helm"))?)
        .with_context(|| format!("cannot write {}", components.display()))?;
    Ok(components)
}

/// The components: the chart with its definitions, in a namespace of its own, with variables for its user to fill in.
fn render(helm: &Path) -> Result<String> {
    let mut command = Command::new(helm);
    command
        .args(["template", "oxmox", "charts/oxmox", "--include-crds"])
        .args(["--namespace", NAMESPACE, "--kube-version", "1.36.0"])
        .current_dir(root());
    for (value, variable) in VARIABLES {
        command.args(["--set", &format!("{value}=@{variable}@")]);
    }
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", helm.display()))?;
    ensure!(
        output.status.success(),
        "helm cannot render the chart: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut text = String::from_utf8(output.stdout).context("helm writes text")?;
    for (_, variable) in VARIABLES {
        let placed = format!("\"@{variable}@\"");
        ensure!(text.contains(&placed), "the chart does not use {variable}");
        // In quotes still: `true` and numbers are texts in a Secret, too.
        text = text.replace(&placed, &format!("\"${{{variable}:=}}\""));
    }
    Ok(format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n{text}"
    ))
}

#[cfg(test)]
mod tests {
    use ::testbed::components;

    use super::*;

    /// What users of the templates set, by name.
    const SET: [(&str, &str); 30] = [
        ("PROXMOX_SOURCENODE", "pve1"),
        ("TEMPLATE_VMID", "9000"),
        ("TEMPLATE_TAGS", "[capi, v1.36.4]"),
        ("CONTROL_PLANE_ENDPOINT_IP", "10.0.0.4"),
        ("NODE_IP_RANGES", "[10.0.0.10-10.0.0.99]"),
        ("GATEWAY", "10.0.0.1"),
        ("IP_PREFIX", "24"),
        ("DNS_SERVERS", "[10.0.0.1]"),
        ("NODE_IPV6_RANGES", "[\"fd00::10-fd00::99\"]"),
        ("IPV6_GATEWAY", "\"fd00::1\""),
        ("IPV6_PREFIX", "64"),
        ("BRIDGE", "vmbr0"),
        ("SECONDARY_BRIDGE", "vmbr1"),
        ("NODE_SECONDARY_IP_RANGES", "[10.1.0.10-10.1.0.99]"),
        ("SECONDARY_IP_PREFIX", "24"),
        ("SECONDARY_GATEWAY", "10.1.0.1"),
        ("BOOT_VOLUME_DEVICE", "scsi0"),
        ("VM_SSH_KEYS", "ssh-ed25519 AAAA me"),
        ("INSTANCE_1_NAME", "txl"),
        ("INSTANCE_1_URL", "https://txl.example:8006"),
        ("INSTANCE_1_TOKEN", "capi@pve!key"),
        ("INSTANCE_1_SECRET", "x"),
        ("INSTANCE_2_NAME", "fra"),
        ("INSTANCE_2_URL", "https://fra.example:8006"),
        ("INSTANCE_2_TOKEN", "capi@pve!key"),
        ("INSTANCE_2_SECRET", "y"),
        ("PROXMOX_URL", "https://pve.example:8006"),
        ("PROXMOX_TOKEN", "capi@pve!key"),
        ("PROXMOX_SECRET", "z"),
        ("PROXMOX_INSECURE", "false"),
    ];

    /// A repository, clusterctl and its configuration; nothing where the programs are not built.
    fn clusterctl() -> Option<(tempfile::TempDir, impl Fn(&[&str]) -> String)> {
        let cache = components::cache_dir();
        let bin = components::bin_dir(&cache, components::kubebuilder_assets().as_deref());
        let missing = ["helm", "clusterctl"]
            .iter()
            .find(|name| !bin.join(name).is_file());
        if let Some(missing) = missing {
            let ci = std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
            assert!(!ci, "{missing} is not built: run `cargo xtask testbed`");
            anstream::eprintln!("skipped: {missing} is not built");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let components = repository(dir.path(), &bin).unwrap();
        let config = dir.path().join("clusterctl.yaml");
        let text = format!(
            "providers:\n- name: proxmox\n  type: InfrastructureProvider\n  url: {}\n",
            components.display()
        );
        std::fs::write(&config, text).unwrap();
        let home = dir.path().to_path_buf();
        let run = move |args: &[&str]| {
            let output = Command::new(bin.join("clusterctl"))
                .args(args)
                .args(["--config", config.to_str().unwrap()])
                .env("HOME", &home)
                .env_remove("XDG_CONFIG_HOME")
                .env("KUBECONFIG", home.join("none"))
                .envs(SET)
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "clusterctl {args:?}: {errors}");
            String::from_utf8(output.stdout).unwrap()
        };
        Some((dir, run))
    }

    fn kinds(text: &str) -> Vec<&str> {
        text.lines()
            .filter_map(|line| line.strip_prefix("kind: "))
            .collect()
    }

    #[test]
    fn the_real_clusterctl_installs_the_components_into_any_namespace() {
        let Some((_dir, run)) = clusterctl() else {
            return;
        };
        let version = concat!("proxmox:v", env!("CARGO_PKG_VERSION"));
        let text = run(&[
            "generate",
            "provider",
            "--infrastructure",
            version,
            "--target-namespace",
            "mine",
        ]);
        let kinds = kinds(&text);
        for kind in [
            "Namespace",
            "Deployment",
            "Service",
            "ValidatingWebhookConfiguration",
            "ClusterRoleBinding",
        ] {
            assert_eq!(
                kinds.iter().filter(|k| **k == kind).count(),
                1,
                "{kind}: {kinds:?}"
            );
        }
        assert!(text.contains("PROXMOX_URL: https://pve.example:8006"));
        assert!(text.contains("PROXMOX_INSECURE: \"false\""), "{text}");
        assert!(
            !text.contains(NAMESPACE),
            "everything went to the namespace asked for"
        );
    }

    #[test]
    fn the_real_clusterctl_makes_clusters_of_every_flavour() {
        let Some((dir, run)) = clusterctl() else {
            return;
        };
        let version = concat!("v", env!("CARGO_PKG_VERSION"));
        let place = dir.path().join(format!("infrastructure-proxmox/{version}"));
        for (flavour, expected) in [
            ("", 7),
            ("-multi-instance", 9),
            ("-kamaji", 6),
            ("-clusterclass", 1),
            ("-auto-image", 7),
            ("-dual-stack", 7),
            ("-external-creds", 8),
            ("-calico", 8),
            ("-cilium", 8),
            ("-multiple-vlans", 8),
        ] {
            let file = place.join(format!("cluster-template{flavour}.yaml"));
            let text = run(&[
                "generate",
                "cluster",
                "demo",
                "--from",
                file.to_str().unwrap(),
                "--target-namespace",
                "default",
                "--kubernetes-version",
                "v1.36.4",
                "--control-plane-machine-count",
                "3",
                "--worker-machine-count",
                "2",
            ]);
            assert_eq!(kinds(&text).len(), expected, "{flavour}: {text}");
            assert!(!text.contains("${"), "{flavour}: everything is filled in");
        }
        let class = place.join("clusterclass-proxmox.yaml");
        let text = run(&["generate", "yaml", "--from", class.to_str().unwrap()]);
        assert_eq!(kinds(&text)[0], "ClusterClass");
    }
}
