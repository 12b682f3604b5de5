//! What Cluster API expects of a provider, beside machines.

use std::time::Duration;

use api::cluster_api::{Cluster, Machine};
use api::infrastructure::v1beta1::{ProxmoxCluster, ProxmoxMachine};
use api::vm::{Provider, VirtualMachine};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use scenarios::{Bed, Wish};
use serde_json::{Value, json};

use super::{bed, named, two};

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_is_left_alone_and_says_so() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    let before = bed.guests().await;
    bed.pause(true).await;
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_reason::<ProxmoxMachine>("worker-1", "Paused", "Paused")
        .await;
    bed.until_reason::<ProxmoxCluster>("prod", "Paused", "Paused")
        .await;
    bed.sleep(Duration::from_mins(10)).await;
    assert_eq!(bed.guests().await, before);
    bed.pause(false).await;
    bed.until_provisioned("worker-1").await;
    bed.until_reason::<ProxmoxMachine>("worker-1", "Paused", "NotPaused")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_machine_is_not_even_deleted() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_provisioned("worker-1").await;
    let annotate =
        |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    let api = bed.api::<ProxmoxMachine>();
    let params = PatchParams::default();
    api.patch("worker-1", &params, &Patch::Merge(&annotate(json!(""))))
        .await
        .unwrap();
    bed.until_reason::<ProxmoxMachine>("worker-1", "Paused", "Paused")
        .await;
    api.delete("worker-1", &DeleteParams::default())
        .await
        .unwrap();
    bed.sleep(Duration::from_mins(10)).await;
    assert!(named(&bed.guests().await, "worker-1").unwrap().running);
    api.patch("worker-1", &params, &Patch::Merge(&annotate(Value::Null)))
        .await
        .unwrap();
    bed.until_gone::<ProxmoxMachine>("worker-1").await;
}

#[tokio::test(start_paused = true)]
async fn a_hosted_control_plane_brings_the_endpoint() {
    let (bed, _player) = bed(1).await;
    bed.begin_cluster(&json!({"controlPlaneEndpoint": null, "externalManagedControlPlane": true}))
        .await;
    bed.until_reason::<ProxmoxCluster>("prod", "ProxmoxAvailable", "MissingControlPlaneEndpoint")
        .await;
    // As the hosted control plane's provider does, with its own name on the field.
    let endpoint = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProxmoxCluster", "metadata": {"name": "prod"},
        "spec": {"controlPlaneEndpoint": {"host": "10.0.0.77", "port": 443}},
    });
    let params = PatchParams::apply("kamaji").force();
    bed.api::<ProxmoxCluster>()
        .patch("prod", &params, &Patch::Apply(&endpoint))
        .await
        .unwrap();
    let cluster = bed.cluster_provisioned().await;
    assert_eq!(
        cluster.spec.control_plane_endpoint.unwrap().host.as_deref(),
        Some("10.0.0.77")
    );
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_provisioned("worker-1").await;
}

#[tokio::test(start_paused = true)]
async fn an_externally_managed_cluster_is_not_ours_but_its_machines_are() {
    let (bed, _player) = bed(1).await;
    bed.begin_cluster(&json!({})).await;
    let mark = json!({"metadata": {"annotations": {"cluster.x-k8s.io/managed-by": "somebody"}}});
    let api = bed.api::<ProxmoxCluster>();
    api.patch("prod", &PatchParams::default(), &Patch::Merge(&mark))
        .await
        .unwrap();
    let ready = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
    bed.api::<Cluster>()
        .patch_status("prod", &PatchParams::default(), &Patch::Merge(&ready))
        .await
        .unwrap();
    bed.make_machine(
        Wish::new("worker-1")
            .with(&json!({"network": {"networkDevices": [{"name": "net0", "dhcp4": true}]}})),
    )
    .await;
    bed.until_provisioned("worker-1").await;
}

#[tokio::test(start_paused = true)]
async fn only_what_carries_the_watch_filter_is_looked_after() {
    let (mut bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.stop_operator().await;
    bed.options(|options| options.watch_filter = Some("blue".to_owned()));
    bed.start_operator();
    bed.make_machine(Wish::new("ours").label("cluster.x-k8s.io/watch-filter", "blue"))
        .await;
    bed.make_machine(Wish::new("theirs").label("cluster.x-k8s.io/watch-filter", "green"))
        .await;
    bed.make_machine(Wish::new("nobodys")).await;
    bed.until_provisioned("ours").await;
    bed.sleep(Duration::from_mins(5)).await;
    for name in ["theirs", "nobodys"] {
        let machine: ProxmoxMachine = bed.get(name).await;
        assert_eq!(
            (&machine.status, machine.finalizers().len()),
            (&None, 0),
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn machines_of_the_vm_api_are_not_for_who_has_a_watch_filter_unless_it_is_alone() {
    let (mut bed, _player) = bed(1).await;
    bed.stop_operator().await;
    bed.options(|options| options.watch_filter = Some("blue".to_owned()));
    bed.start_operator();
    crate::prepare(&bed).await;
    bed.try_apply(&json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
        "metadata": {"name": "web-server"},
        "spec": {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu-22"}},
    }))
    .await
    .unwrap();
    // As whoever looks after the Provider keeps its Secret.
    let keep = json!({"metadata": {"finalizers": ["infra.virtrigaud.io/secret"]}});
    let secrets = bed.api::<Secret>();
    secrets
        .patch(
            "pve-credentials",
            &PatchParams::default(),
            &Patch::Merge(&keep),
        )
        .await
        .unwrap();
    bed.line().forget();
    bed.sleep(Duration::from_mins(5)).await;
    assert_eq!(bed.line().kubernetes_writes(), Vec::<String>::new());
    assert_eq!(bed.get::<Provider>("proxmox-prod").await.status, None);
    let secret: Secret = bed.get("pve-credentials").await;
    assert_eq!(secret.finalizers(), ["infra.virtrigaud.io/secret"]);

    bed.stop_operator().await;
    bed.options(|options| options.namespace = Some("default".to_owned()));
    bed.start_operator();
    bed.until_ready::<VirtualMachine>("web-server").await;
}

#[tokio::test(start_paused = true)]
async fn only_its_own_namespace_is_looked_after() {
    let (mut bed, _player) = bed(1).await;
    bed.stop_operator().await;
    bed.options(|options| options.namespace = Some("elsewhere".to_owned()));
    bed.start_operator();
    bed.begin_cluster(&json!({})).await;
    bed.sleep(Duration::from_mins(5)).await;
    let cluster: ProxmoxCluster = bed.get("prod").await;
    assert_eq!(cluster.status, None);
    bed.stop_operator().await;
    bed.options(|options| options.namespace = Some("default".to_owned()));
    bed.start_operator();
    bed.cluster_provisioned().await;
}

/// Takes an object away without its finalizers, as `clusterctl move` does; returns what is made of it elsewhere.
pub(super) async fn take<K>(bed: &Bed, name: &str) -> Value
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + serde::Serialize
        + std::fmt::Debug,
{
    let api = bed.api::<K>();
    let mut object = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
    let bare = json!({"metadata": {"finalizers": null}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&bare))
        .await
        .unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
    bed.until_gone::<K>(name).await;
    let metadata = object["metadata"].as_object_mut().unwrap();
    let own = [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "ownerReferences",
    ];
    for key in own {
        metadata.remove(key);
    }
    object.as_object_mut().unwrap().remove("status");
    object
}

/// Makes an object that was taken elsewhere, owned by what its owner is here; returns its UID.
pub(super) async fn put<K>(bed: &Bed, mut object: Value, owner: Option<(&str, String)>) -> String
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + serde::Serialize
        + std::fmt::Debug,
{
    if let Some((kind, uid)) = owner {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": object["metadata"]["name"],
            "uid": uid, "controller": true,
        }]);
    }
    let object: K = serde_json::from_value(object).unwrap();
    let made = bed
        .api::<K>()
        .create(&kube::api::PostParams::default(), &object)
        .await
        .unwrap();
    made.uid().unwrap()
}

/// A provisioned machine after `clusterctl move`, still paused, in front of a controller that knows nothing of it.
async fn begin_move(bed: &mut Bed) {
    bed.make_cluster(&json!({})).await;
    bed.make_machine(
        Wish::new("worker-1")
            .with(&json!({"network": {"networkDevices": [{"name": "net0", "dhcp4": true}]}})),
    )
    .await;
    bed.until_provisioned("worker-1").await;
    bed.join("worker-1").await;
    bed.sleep(Duration::from_mins(3)).await;
    bed.pause(true).await;
    bed.until_reason::<ProxmoxMachine>("worker-1", "Paused", "Paused")
        .await;
    bed.crash_operator().await;
    // What is owned goes first, and comes last.
    let ours = take::<ProxmoxMachine>(bed, "worker-1").await;
    let machine = take::<Machine>(bed, "worker-1").await;
    let infrastructure = take::<ProxmoxCluster>(bed, "prod").await;
    let cluster = take::<Cluster>(bed, "prod").await;
    let uid = put::<Cluster>(bed, cluster, None).await;
    put::<ProxmoxCluster>(bed, infrastructure, Some(("Cluster", uid))).await;
    let uid = put::<Machine>(bed, machine, None).await;
    put::<ProxmoxMachine>(bed, ours, Some(("Machine", uid))).await;
    bed.join("worker-1").await;
    bed.start_operator();
    bed.until_reason::<ProxmoxMachine>("worker-1", "Paused", "Paused")
        .await;
}

/// The same, no longer paused.
async fn after_a_move(bed: &mut Bed) {
    begin_move(bed).await;
    bed.pause(false).await;
    bed.cluster_provisioned().await;
}

#[tokio::test(start_paused = true)]
async fn a_moved_machine_finds_its_guest_and_makes_no_second_one() {
    let (mut bed, _player) = bed(1).await;
    after_a_move(&mut bed).await;
    let machine = bed.until_provisioned("worker-1").await;
    bed.sleep(Duration::from_mins(5)).await;
    let guest = bed.guest("worker-1").await;
    assert_eq!(machine.spec.virtual_machine_id, Some(guest.vmid.into()));
    assert!(guest.running);
    assert!(
        guest.key("description").contains(&machine.uid().unwrap()),
        "{}",
        guest.key("description")
    );
    assert_eq!(
        bed.count("POST /nodes/{node}/qemu/{vmid}/status/start"),
        1,
        "started once in its life"
    );
    bed.delete::<ProxmoxMachine>("worker-1").await;
    assert!(named(&bed.guests().await, "worker-1").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_moved_machine_that_is_deleted_at_once_leaves_no_guest() {
    let (mut bed, _player) = bed(1).await;
    after_a_move(&mut bed).await;
    bed.delete::<ProxmoxMachine>("worker-1").await;
    assert!(named(&bed.guests().await, "worker-1").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_vmid_that_is_somebody_elses_by_now_is_not_taken() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    let foreign = bed.foreign().await;
    // 100 is a machine that is not ours.
    let claim = json!({"virtualMachineID": 100, "providerID": "proxmox://11111111-2222-3333-4444-555555555555"});
    bed.make_machine(Wish::new("worker-1").with(&claim)).await;
    bed.until_reason::<ProxmoxMachine>("worker-1", "Ready", "NotOurs")
        .await;
    bed.make_machine(Wish::new("worker-2").with(&json!({"virtualMachineID": 100})))
        .await;
    bed.until_reason::<ProxmoxMachine>("worker-2", "Ready", "TakeOverIncomplete")
        .await;
    for name in ["worker-1", "worker-2"] {
        bed.delete::<ProxmoxMachine>(name).await;
    }
    let now = bed.guests().await;
    assert_eq!(now, foreign);
}

#[tokio::test(start_paused = true)]
async fn credentials_travel_with_the_cluster_and_may_be_rotated() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    let secret: Secret = bed.get("pve-credentials").await;
    assert!(
        secret
            .labels()
            .contains_key("clusterctl.cluster.x-k8s.io/move")
    );
    assert_eq!(
        secret.finalizers(),
        ["proxmoxcluster.infrastructure.cluster.x-k8s.io/secret"]
    );

    let broken = json!({"stringData": {"secret": "00000000-0000-0000-0000-000000000000"}});
    let api = bed.api::<Secret>();
    api.patch(
        "pve-credentials",
        &PatchParams::default(),
        &Patch::Merge(&broken),
    )
    .await
    .unwrap();
    bed.until_reason::<ProxmoxCluster>("prod", "ProxmoxAvailable", "ProxmoxUnreachable")
        .await;
    let right = json!({"data": {"secret": secret.data.unwrap()["secret"]}});
    api.patch(
        "pve-credentials",
        &PatchParams::default(),
        &Patch::Merge(&right),
    )
    .await
    .unwrap();
    bed.until_reason::<ProxmoxCluster>("prod", "ProxmoxAvailable", "Provisioned")
        .await;
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_provisioned("worker-1").await;
}

#[tokio::test(start_paused = true)]
async fn what_a_cluster_waits_for_is_said_and_waited_for() {
    let (bed, _player) = bed(1).await;
    bed.begin_cluster(&json!({"credentialsRef": {"name": "later"}}))
        .await;
    bed.until_reason::<ProxmoxCluster>("prod", "ProxmoxAvailable", "ProxmoxUnreachable")
        .await;
    let secret: Secret = bed.get("pve-credentials").await;
    bed.try_apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}, "data": secret.data.unwrap(),
    }))
    .await
    .unwrap();
    bed.cluster_provisioned().await;
}

#[tokio::test(start_paused = true)]
async fn what_cluster_api_has_overlooked_it_is_shown_again() {
    // Nobody plays Cluster API: it sees nothing by itself.
    let bed = Bed::builder().start().await;
    bed.install_cluster_api().await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(
        Wish::new("worker-1")
            .with(&json!({"network": {"networkDevices": [{"name": "net0", "dhcp4": true}]}})),
    )
    .await;
    bed.until_provisioned("worker-1").await;
    let shown = async || {
        let machine: ProxmoxMachine = bed.get("worker-1").await;
        let times = machine.annotations().get("oxmox.dev/unnoticed").cloned();
        times.map_or(0, |times| times.parse::<u32>().unwrap())
    };
    assert_eq!(shown().await, 0, "it is given some time");
    bed.sleep(Duration::from_secs(70)).await;
    let early = shown().await;
    assert!((1..=3).contains(&early), "{early}");
    bed.sleep(Duration::from_mins(2)).await;
    let late = shown().await;
    assert!(late > early && late < 6, "at ever longer intervals: {late}");
    let seen = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
    bed.api::<Machine>()
        .patch_status("worker-1", &PatchParams::default(), &Patch::Merge(&seen))
        .await
        .unwrap();
    bed.sleep(Duration::from_hours(1)).await;
    assert_eq!(shown().await, late);
    let cluster: ProxmoxCluster = bed.get("prod").await;
    assert!(
        !cluster.annotations().contains_key("oxmox.dev/unnoticed"),
        "it was noticed at once"
    );
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_starts_again_changes_nothing_that_is_said_of_what_goes_well() {
    let (mut bed, _player) = bed(2).await;
    bed.make_cluster(&two("MultiInstance")).await;
    for name in ["worker-1", "worker-2"] {
        bed.make_machine(Wish::new(name)).await;
        bed.until_provisioned(name).await;
        bed.join(name).await;
    }
    assert_eq!(bed.writes_of_a_restart().await, Vec::<String>::new());
}
