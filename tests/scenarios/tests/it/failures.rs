//! What goes wrong with other operators, by name.

use std::time::Duration;

use api::vm::{
    Container, Phase, Provider, VMBackup, VMImage, VMMigration, VMSnapshot, VirtualMachine,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use pve::{NodeName, Vmid};
use pve_sim::Latency;
use scenarios::{Bed, CrashPoint};
use serde_json::json;

use crate::{manifest, prepare, prepared, with_machine};

/// How a machine of the documented image is made.
const CLONE: &str = "POST /nodes/{node}/qemu/{vmid}/clone";

/// A bed on which the making of a machine begins at once.
async fn connected() -> Bed {
    let bed = prepared().await;
    bed.until_ready::<Provider>("proxmox-prod").await;
    bed.until_ready::<VMImage>("ubuntu-22").await;
    bed
}

/// Applies the documented machine; a second later its guest is being made.
async fn begun(bed: &Bed) {
    bed.apply(manifest!("machine")).await;
    bed.sleep(Duration::from_secs(1)).await;
    assert_eq!(bed.count(CLONE), 1, "its guest is being made");
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_a_second_after_its_creation_leaves_no_guest() {
    let bed = connected().await;
    let foreign = bed.foreign().await;
    begun(&bed).await;
    bed.delete::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(1)).await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_object_labelled_a_second_after_its_creation_has_one_guest() {
    let bed = connected().await;
    let foreign = bed.foreign().await;
    begun(&bed).await;
    let patch = json!({ "metadata": { "labels": { "team": "web" } } });
    let api = bed.api::<VirtualMachine>();
    api.patch("web-server", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(1)).await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_status_that_cannot_be_written_makes_no_second_guest() {
    let bed = prepared().await;
    let foreign = bed.foreign().await;
    bed.line().refuse_status(true);
    bed.apply(manifest!("machine")).await;
    bed.sleep(Duration::from_mins(2)).await;
    // Nothing may be done whose record cannot be kept.
    assert_eq!(bed.foreign().await, foreign);
    bed.line().refuse_status(false);
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(1)).await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn statuses_lost_while_a_guest_is_made_do_not_make_another() {
    let bed = prepared().await;
    let foreign = bed.foreign().await;
    bed.apply(manifest!("machine")).await;
    bed.until("web-server", "being made", |vm: &VirtualMachine| {
        vm.status
            .as_ref()
            .is_some_and(|status| status.vmid.is_some())
    })
    .await;
    bed.line().refuse_status(true);
    bed.sleep(Duration::from_secs(90)).await;
    bed.line().refuse_status(false);
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(1)).await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_move_or_backup_is_told_though_its_status_could_not_be_written() {
    let bed = Bed::builder().latency(Latency::real()).start().await;
    prepare(&bed).await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let kinds = [
        (
            "VMMigration",
            json!({ "vmRef": { "name": "web-server" }, "withLocalDisks": true }),
        ),
        (
            "VMBackup",
            json!({ "vmRef": { "name": "web-server" }, "storage": "nfs" }),
        ),
    ];
    for (kind, spec) in kinds {
        let action = json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": kind, "metadata": { "name": "once" },
            "spec": spec,
        });
        bed.try_apply(&action).await.unwrap();
        bed.sleep(Duration::from_secs(1)).await;
        bed.line().refuse_status(true);
        bed.sleep(Duration::from_mins(2)).await;
        bed.line().refuse_status(false);
        match kind {
            "VMMigration" => drop(bed.until_ready::<VMMigration>("once").await),
            _ => drop(bed.until_ready::<VMBackup>("once").await),
        }
    }
}

/// A storage without room for backups, and a guest that somebody made.
const FULL: &str = "
clusters:
  - name: pve
    storages:
      - { id: ceph, type: rbd, content: [images], capacity-gib: 1000 }
      - { id: local, type: dir, content: [iso, backup], capacity-gib: 0 }
    guests:
      - { vmid: 100, node: pve1, storage: ceph }
";

/// Each try of such a backup shuts its machine down.
#[tokio::test(start_paused = true)]
async fn a_backup_that_failed_is_not_begun_again_when_its_deletion_policy_changes() {
    let bed = Bed::builder().world(FULL).start().await;
    bed.apply(include_str!("manifests/secret-root.yaml")).await;
    bed.apply(manifest!("provider-token")).await;
    let machine = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine", "metadata": { "name": "old" },
        "spec": { "providerRef": { "name": "proxmox-prod" }, "adopt": { "vmid": 100 } },
    });
    bed.try_apply(&machine).await.unwrap();
    bed.until_ready::<VirtualMachine>("old").await;
    let backup = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMBackup", "metadata": { "name": "once" },
        "spec": { "vmRef": { "name": "old" }, "storage": "local", "mode": "stop" },
    });
    bed.try_apply(&backup).await.unwrap();
    let has_failed = |it: &VMBackup| {
        let status = it.status.as_ref();
        status.is_some_and(|status| status.phase == Some(Phase::Failed))
    };
    bed.until("once", "failed", has_failed).await;
    let tries = bed.tasks("vzdump").await;
    assert_eq!(tries.len(), 1);
    bed.change::<VMBackup>("once", json!({ "deletionPolicy": "Retain" }))
        .await;
    let is_seen = |it: &VMBackup| {
        let status = it.status.as_ref();
        status.is_some_and(|status| status.observed_generation == it.metadata.generation)
    };
    bed.until("once", "seen", is_seen).await;
    bed.sleep(Duration::from_mins(30)).await;
    assert!(has_failed(&bed.get("once").await));
    assert_eq!(bed.tasks("vzdump").await, tries);
}

#[tokio::test(start_paused = true)]
async fn a_guest_removed_behind_our_back_is_noticed_and_its_object_can_be_deleted() {
    let bed = with_machine().await;
    let guest = bed.guest("web-server").await;
    let handle = bed
        .root()
        .node(&NodeName::new(guest.node.as_str()).unwrap())
        .qemu(Vmid::new(guest.vmid).unwrap());
    let root = bed.root();
    root.wait(
        &handle
            .stop(pve::api::guest::power::Stop::default())
            .await
            .unwrap(),
    )
    .await
    .unwrap();
    root.wait(
        &handle
            .delete(pve::api::guest::DeleteGuest::default())
            .await
            .unwrap(),
    )
    .await
    .unwrap();
    let machine: VirtualMachine = bed.until_reason("web-server", "Ready", "GuestLost").await;
    let status = machine.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Failed));
    let provisioned = api::vm::condition(&status.conditions, "Provisioned").unwrap();
    assert_eq!(
        (provisioned.status.as_str(), provisioned.reason.as_str()),
        ("False", "GuestLost")
    );
    assert_eq!((status.power_state, status.console_url), (None, None));
    assert!(status.ips.is_empty() && status.networks.is_empty());
    bed.delete::<VirtualMachine>("web-server").await;
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_while_no_controller_runs_waits_and_is_cleaned_up_later() {
    let mut bed = prepared().await;
    let foreign = bed.foreign().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.stop_operator().await;
    let api = bed.api::<VirtualMachine>();
    api.delete("web-server", &DeleteParams::default())
        .await
        .unwrap();
    bed.sleep(Duration::from_mins(10)).await;
    assert!(
        bed.guest("web-server").await.running,
        "nobody but us removes it"
    );
    assert!(api.get_opt("web-server").await.unwrap().is_some());
    bed.start_operator();
    bed.until_gone::<VirtualMachine>("web-server").await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_provider_whose_cluster_does_not_answer_says_so_and_recovers() {
    let bed = prepared().await;
    bed.until_ready::<Provider>("proxmox-prod").await;
    let fault = bed
        .pve()
        .control()
        .inject(pve_sim::Fault::every("*", pve_sim::Action::DropRequest));
    let provider: Provider = bed
        .until_reason("proxmox-prod", "Ready", "Unreachable")
        .await;
    assert!(!provider.status.unwrap().healthy);
    bed.pve().control().remove(fault);
    bed.until_ready::<Provider>("proxmox-prod").await;
}

#[tokio::test(start_paused = true)]
async fn who_is_stopped_while_pve_does_not_answer_ends_soon_and_the_next_goes_on() {
    let mut bed = connected().await;
    let foreign = bed.foreign().await;
    let fault = bed
        .pve()
        .control()
        .inject(pve_sim::Fault::every(CLONE, pve_sim::Action::Hang));
    begun(&bed).await;
    let soon = Duration::from_secs(20);
    let stopped = tokio::time::timeout(soon, bed.stop_operator()).await;
    assert!(stopped.is_ok(), "it waits for an answer");
    bed.pve().control().remove(fault);
    bed.start_operator();
    bed.until_ready::<VirtualMachine>("web-server").await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_while_pve_is_down_goes_when_it_is_back() {
    let bed = prepared().await;
    let foreign = bed.foreign().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let fault = bed
        .pve()
        .control()
        .inject(pve_sim::Fault::every("*", pve_sim::Action::DropRequest));
    let api = bed.api::<VirtualMachine>();
    api.delete("web-server", &DeleteParams::default())
        .await
        .unwrap();
    bed.sleep(Duration::from_mins(5)).await;
    assert!(
        api.get_opt("web-server").await.unwrap().is_some(),
        "don't know is not gone"
    );
    bed.pve().control().remove(fault);
    bed.until_gone::<VirtualMachine>("web-server").await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_off_and_shall_be_off_is_left_alone() {
    let bed = with_machine().await;
    bed.change::<VirtualMachine>("web-server", json!({ "powerState": "OffGraceful" }))
        .await;
    bed.until("web-server", "off", |vm: &VirtualMachine| {
        vm.status
            .as_ref()
            .is_some_and(|status| status.phase == Some(Phase::Stopped))
    })
    .await;
    let posts = |bed: &scenarios::Bed| {
        let counts = bed.pve().control().counts();
        counts
            .iter()
            .filter(|(route, _)| !route.starts_with("GET"))
            .map(|(_, n)| n)
            .sum::<u64>()
    };
    let before = posts(&bed);
    bed.sleep(Duration::from_mins(10)).await;
    assert_eq!(posts(&bed), before);
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_vmid_was_recorded_and_before_anything_is_made_makes_one_guest() {
    crash_at_the_clone(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_of_creating_makes_no_second_guest() {
    crash_at_the_clone(true).await;
}

/// Ends the controllers at the call that makes the guest, whose VMID is recorded by then.
async fn crash_at_the_clone(carried_out: bool) {
    let is_clone = |call: &String| call.starts_with("POST /api2/") && call.ends_with("/clone");
    // The same seed takes the same course.
    let rehearsal = connected().await;
    rehearsal.line().crash_at(CrashPoint::never());
    begun(&rehearsal).await;
    let calls = rehearsal.line().journal();
    let before = calls.iter().position(is_clone).unwrap();

    let mut bed = connected().await;
    let foreign = bed.foreign().await;
    bed.line().crash_at(CrashPoint {
        call: before as u64 + 1,
        carried_out,
    });
    bed.apply(manifest!("machine")).await;
    bed.line().crashed().await;
    assert!(bed.line().journal().last().is_some_and(is_clone));
    bed.crash_operator().await;
    let machine: VirtualMachine = bed.get("web-server").await;
    let recorded = machine.status.unwrap().vmid.unwrap();
    assert_eq!(bed.count(CLONE), u64::from(carried_out));
    bed.start_operator();
    bed.until_ready::<VirtualMachine>("web-server").await;
    assert_eq!(bed.guest("web-server").await.vmid, recorded);
    bed.sleep(Duration::from_mins(1)).await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_starts_again_changes_nothing_that_is_said_of_what_goes_well() {
    let mut bed = prepared().await;
    bed.until_ready::<Provider>("proxmox-prod").await;
    bed.apply(manifest!("machine")).await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.until_ready::<Container>("cache").await;
    let snapshot = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshot",
        "metadata": { "name": "before" }, "spec": { "vmRef": { "name": "web-server" } },
    });
    bed.try_apply(&snapshot).await.unwrap();
    bed.until_ready::<VMSnapshot>("before").await;
    assert_eq!(bed.writes_of_a_restart().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_revert_that_is_said_to_be_done_was_done() {
    let bed = with_machine().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMSnapshot
metadata: { name: before }
spec: { vmRef: { name: web-server } }
",
    )
    .await;
    bed.until_ready::<VMSnapshot>("before").await;
    assert_eq!(bed.snapshots("web-server").await.len(), 1);
    assert_eq!(bed.tasks("qmrollback").await, [""; 0]);
    let to = json!({ "snapshot": { "revertToRef": { "name": "before" } } });
    bed.change::<VirtualMachine>("web-server", to).await;
    bed.until("web-server", "set back", |vm: &VirtualMachine| {
        let status = vm.status.as_ref();
        status.is_some_and(|status| status.reverted_to.as_deref() == Some("before"))
    })
    .await;
    assert_eq!(bed.tasks("qmrollback").await, ["OK"]);
}

#[tokio::test(start_paused = true)]
async fn commands_of_the_first_boot_reach_the_guest() {
    let bed = prepared().await;
    let mut boots = bed.pve().boots();
    let mut machine = scenarios::documents(manifest!("machine")).remove(0);
    let text = "#cloud-config\nruncmd:\n  - [touch, /root/was-here]\n";
    machine["spec"]["userData"] = json!({ "cloudInit": { "inline": text } });
    bed.try_apply(&machine).await.unwrap();
    bed.until_ready::<VirtualMachine>("web-server").await;
    let boot = boots.recv().await.unwrap();
    assert_eq!(boot.vmid, bed.guest("web-server").await.vmid);
    assert!(boot.first);
    let read = boot.seed.unwrap().user_data;
    assert!(
        read.contains("runcmd") && read.contains("was-here"),
        "{read}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_class_whose_memory_no_system_boots_with_makes_one_guest() {
    let bed = prepared().await;
    let foreign = bed.foreign().await;
    let class = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClass
metadata: { name: small }
spec: { cpus: 1, memory: 80Mi }
";
    bed.apply(class).await;
    bed.apply(manifest!("machine")).await;
    bed.sleep(Duration::from_mins(30)).await;
    let guests = bed.guests().await.into_iter();
    let made = guests.filter(|guest| guest.name == "web-server").count();
    assert_eq!(made, 1);
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
    bed.delete::<VirtualMachine>("web-server").await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

/// Neither to who looks in between nor to who comes after a crash.
#[tokio::test(start_paused = true)]
async fn a_machine_is_not_said_to_be_ready_for_a_spec_that_nothing_was_done_for_yet() {
    for call in 1..=5 {
        let mut bed = prepared().await;
        bed.apply(manifest!("machine")).await;
        bed.until_ready::<VirtualMachine>("web-server").await;
        bed.sleep(Duration::from_mins(3)).await;
        let carried_out = true;
        bed.line().crash_at(CrashPoint { call, carried_out });
        let disks = json!({ "cpus": 4, "updatePolicy": "RestartIfNeeded", "disks": [
            { "name": "root", "size": "50Gi" }, { "name": "data", "size": "5Gi" },
        ] });
        bed.change::<VirtualMachine>("web-server", disks).await;
        bed.line().crashed().await;
        bed.crash_operator().await;
        bed.start_operator();
        bed.until_ready::<VirtualMachine>("web-server").await;
        let guest = bed.guest("web-server").await;
        let grown = guest.config.values().any(|it| it.contains("size=50G"));
        assert!(grown, "a crash at call {call}: {:?}", guest.config);
    }
}

/// What an object is told to have after the API server was restored from before it had anything.
async fn forget<K>(bed: &Bed, name: &str)
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let nothing = Patch::Merge(json!({ "status": null }));
    let params = PatchParams::default();
    let patched = bed.api::<K>().patch_status(name, &params, &nothing).await;
    patched.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_whose_record_was_lost_goes_with_its_object_all_the_same() {
    let mut bed = prepared().await;
    let foreign = bed.foreign().await;
    bed.apply(manifest!("machine")).await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.until_ready::<Container>("cache").await;
    bed.crash_operator().await;
    forget::<VirtualMachine>(&bed, "web-server").await;
    forget::<Container>(&bed, "cache").await;
    let delete = DeleteParams::default();
    let machines = bed.api::<VirtualMachine>();
    machines.delete("web-server", &delete).await.unwrap();
    let containers = bed.api::<Container>();
    containers.delete("cache", &delete).await.unwrap();
    bed.start_operator();
    bed.until_gone::<VirtualMachine>("web-server").await;
    bed.until_gone::<Container>("cache").await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}
