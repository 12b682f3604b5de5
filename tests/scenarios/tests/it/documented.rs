//! The documented manifests do what their sections say.

use std::path::Path;

use api::vm::{Phase, Provider, VMClass, VMSnapshot, VirtualMachine};
use scenarios::Document;
use serde_json::json;

use crate::{manifest, prepared, with_machine};

#[tokio::test(start_paused = true)]
async fn a_provider_says_what_it_is_connected_to() {
    let bed = prepared().await;
    let provider: Provider = bed.until_ready("proxmox-prod").await;
    let status = provider.status.unwrap();
    assert!(status.healthy);
    assert_eq!(status.node_count, Some(3));
    assert!(status.version.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_documented_machine_comes_up_as_written() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    let machine: VirtualMachine = bed.until_ready("web-server").await;
    let status = machine.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(status.power_state.as_deref(), Some("On"));
    assert!(!status.ips.is_empty());

    let guest = bed.guest("web-server").await;
    assert_eq!(Some(guest.vmid), status.vmid);
    assert_eq!(Some(&guest.node), status.node.as_ref());
    assert!(guest.running);
    assert_eq!((guest.key("cores"), guest.key("memory")), ("2", "4096"));
    assert_eq!((guest.key("machine"), guest.key("bios")), ("q35", "ovmf"));
    assert!(
        guest.key("net0").contains("bridge=vmbr0"),
        "{}",
        guest.key("net0")
    );
    assert!(
        guest.key("scsi0").contains("size=40G"),
        "{}",
        guest.key("scsi0")
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_machine_leaves_nothing_behind() {
    let bed = prepared().await;
    let before = bed.guests().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.delete::<VirtualMachine>("web-server").await;
    assert_eq!(bed.guests().await, before);
}

#[tokio::test(start_paused = true)]
async fn a_larger_class_reaches_the_guest() {
    let bed = with_machine().await;
    bed.apply(manifest!("reconfigure")).await;
    bed.until(
        "web-server",
        "waiting for its restart",
        |vm: &VirtualMachine| {
            vm.status
                .as_ref()
                .is_some_and(|status| !status.pending_changes.is_empty())
        },
    )
    .await;
    bed.change::<VirtualMachine>("web-server", json!({ "updatePolicy": "RestartIfNeeded" }))
        .await;
    bed.until(
        "web-server",
        "as large as its class",
        |vm: &VirtualMachine| {
            vm.status
                .as_ref()
                .is_some_and(|s| s.cpus == Some(8) && s.pending_changes.is_empty())
        },
    )
    .await;
    let guest = bed.guest("web-server").await;
    assert_eq!((guest.key("cores"), guest.key("memory")), ("8", "16384"));
    let class: VMClass = bed
        .until("large", "counted", |class: &VMClass| {
            class
                .status
                .as_ref()
                .is_some_and(|status| status.used_by == Some(1))
        })
        .await;
    assert_eq!(class.spec.cpus, 8);
}

/// The documentation declares one snapshot twice: with memory, and later without and with another text.
#[tokio::test(start_paused = true)]
async fn a_snapshot_declared_otherwise_after_it_was_taken_stays_and_says_so() {
    let bed = with_machine().await;
    bed.apply(manifest!("snapshot-memory")).await;
    let taken: VMSnapshot = bed.until_ready("before-upgrade").await;
    assert_eq!(taken.status.as_ref().unwrap().memory, Some(true));
    bed.apply(manifest!("snapshot-plain")).await;
    let declared: VMSnapshot = bed.until_ready("before-upgrade").await;
    let status = declared.status.unwrap();
    assert_eq!(status.memory, Some(true));
    assert_eq!(status.taken_at, taken.status.unwrap().taken_at);
    let as_declared = api::vm::condition(&status.conditions, "AsDeclared").unwrap();
    assert_eq!(as_declared.status, "False");
    assert!(
        as_declared.message.contains("another VMSnapshot"),
        "{}",
        as_declared.message
    );
}

/// Everything the documentation shows, excerpts within the objects they belong to.
fn documented() -> Vec<(String, Document)> {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/api/tests/manifests");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(manifests).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for part in scenarios::documents(&std::fs::read_to_string(&path).unwrap()) {
            let document = match name.as_str() {
                "provider-insecure-excerpt" => {
                    let mut whole = scenarios::documents(manifest!("provider-token")).remove(0);
                    whole["spec"]["runtime"]["env"] = part["spec"]["runtime"]["env"].clone();
                    whole
                }
                "user-data-excerpt" => {
                    let mut whole = scenarios::documents(manifest!("machine")).remove(0);
                    whole["spec"]["userData"] = part["userData"].clone();
                    whole
                }
                _ => part,
            };
            all.push((name.clone(), document));
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn everything_the_documentation_shows_is_accepted() {
    let bed = scenarios::Bed::new().await;
    let all = documented();
    assert!(all.len() >= 19, "{} documents", all.len());
    for (name, document) in all {
        let applied = bed.try_apply(&document).await;
        assert!(applied.is_ok(), "{name}: {}", applied.unwrap_err());
    }
}

#[tokio::test(start_paused = true)]
async fn every_example_is_accepted() {
    let bed = scenarios::Bed::new().await;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            for document in scenarios::documents(&text) {
                let applied = bed.try_apply(&document).await;
                assert!(
                    applied.is_ok(),
                    "{}: {}",
                    path.display(),
                    applied.unwrap_err()
                );
                seen.insert(document["kind"].as_str().unwrap().to_owned());
            }
        }
    }
    for crd in api::crds() {
        assert!(
            seen.contains(&crd.spec.names.kind),
            "no example of {}",
            crd.spec.names.kind
        );
    }
}
