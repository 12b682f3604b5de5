//! Sets, and what becomes of objects that Oxmox makes itself.

use std::{collections::BTreeSet, time::Duration};

use api::vm::{VMClone, VMSet, VirtualMachine};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use scenarios::{Bed, Weather};
use serde_json::json;

use crate::{manifest, prepared, web_set, with_machine};

async fn vmids(bed: &Bed) -> BTreeSet<u32> {
    let machines = bed.api::<VirtualMachine>();
    let all = machines.list(&ListParams::default()).await.unwrap();
    all.into_iter()
        .filter_map(|machine| machine.status?.vmid)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_image_is_rolled_out_one_machine_at_a_time() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMImage
metadata: { name: newer }
spec: { source: 9000 }
",
    )
    .await;
    bed.try_apply(&web_set(3)).await.unwrap();
    bed.until_ready::<VMSet>("web").await;
    let before = vmids(&bed).await;
    assert_eq!(before.len(), 3);
    let image = json!({"template": {"spec": {"imageRef": {"name": "newer"}}}});
    bed.change::<VMSet>("web", image).await;
    let mut fewest = 3;
    loop {
        let set: VMSet = bed.get("web").await;
        let status = set.status.unwrap_or_default();
        fewest = fewest.min(status.available_replicas);
        let current = status.observed_generation == set.metadata.generation;
        let progress = api::vm::condition(&status.conditions, "Progressing").cloned();
        if current && progress.is_some_and(|it| it.status == "False") {
            break;
        }
        bed.sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(fewest, 2, "one at a time");
    bed.until_ready::<VMSet>("web").await;
    let after = bed.api::<VirtualMachine>();
    for machine in after.list(&ListParams::default()).await.unwrap() {
        let image = machine.spec.image_ref.as_ref().map(|it| it.name.as_str());
        assert_eq!(image, Some("newer"), "{}", machine.name_any());
    }
    assert_eq!(vmids(&bed).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn machines_whose_boot_disk_gets_another_name_are_made_anew() {
    let bed = prepared().await;
    let disks =
        |name: &str| json!({"template": {"spec": {"disks": [{"name": name, "size": "40Gi"}]}}});
    bed.try_apply(&web_set(2)).await.unwrap();
    bed.change::<VMSet>("web", disks("boot")).await;
    bed.until_ready::<VMSet>("web").await;
    let before = uids(&bed).await;
    bed.change::<VMSet>("web", disks("system")).await;
    bed.until_ready::<VMSet>("web").await;
    let after = uids(&bed).await;
    assert_eq!(after.len(), 2);
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
}

#[tokio::test(start_paused = true)]
async fn machines_that_have_read_their_first_boot_data_are_made_anew_for_other_data() {
    let bed = prepared().await;
    let data = |text: &str| {
        let inline = format!("#cloud-config\nhostname: '{text}-{{{{ index }}}}'\n");
        json!({"template": {"spec": {"userData": {"cloudInit": {"inline": inline}}}}})
    };
    bed.try_apply(&web_set(2)).await.unwrap();
    bed.change::<VMSet>("web", data("old")).await;
    bed.until_ready::<VMSet>("web").await;
    let before = uids(&bed).await;
    // What they were told stays the same: nobody is made anew.
    let tags = json!({"template": {"spec": {"tags": ["blue"]}}});
    bed.change::<VMSet>("web", tags).await;
    bed.until_ready::<VMSet>("web").await;
    assert_eq!(uids(&bed).await, before);

    bed.change::<VMSet>("web", data("new")).await;
    bed.until_ready::<VMSet>("web").await;
    let after = uids(&bed).await;
    assert_eq!(after.len(), 2);
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
    let told = bed.get::<VirtualMachine>("web-1").await.spec.user_data;
    let told = serde_json::to_string(&told).unwrap();
    assert!(told.contains("new-1"), "{told}");

    // Who has not run yet is told in time.
    let off = json!({"template": {"spec": {"powerState": "Off"}}, "replicas": 3});
    bed.change::<VMSet>("web", off).await;
    bed.until_ready::<VMSet>("web").await;
    let third = bed.get::<VirtualMachine>("web-2").await;
    bed.change::<VMSet>("web", data("newest")).await;
    bed.until_ready::<VMSet>("web").await;
    let same = bed.get::<VirtualMachine>("web-2").await;
    assert_eq!(same.metadata.uid, third.metadata.uid);
    assert_ne!(same.spec.user_data, third.spec.user_data);
    assert!(uids(&bed).await.is_disjoint(&after));
}

#[tokio::test(start_paused = true)]
async fn a_new_template_waits_for_machines_to_be_deleted_where_that_is_wanted() {
    let bed = prepared().await;
    bed.try_apply(&web_set(2)).await.unwrap();
    bed.until_ready::<VMSet>("web").await;
    let before = uids(&bed).await;
    let changed = json!({
        "updateStrategy": { "type": "OnDelete" },
        "template": { "spec": { "tags": ["newer"] } },
    });
    bed.change::<VMSet>("web", changed).await;
    let set: VMSet = bed.until_ready("web").await;
    let status = set.status.unwrap();
    let progress = api::vm::condition(&status.conditions, "Progressing").unwrap();
    assert_eq!(progress.status, "False", "{}", progress.message);
    assert_eq!(status.updated_replicas, 0);
    assert_eq!(uids(&bed).await, before);
    // Its set makes it anew at once: there is no moment without it to wait for.
    let gone = bed.api::<VirtualMachine>();
    gone.delete("web-1", &DeleteParams::default())
        .await
        .unwrap();
    bed.until("web", "one is new", |set: &VMSet| {
        let status = set.status.as_ref();
        status.is_some_and(|it| it.updated_replicas == 1 && it.available_replicas == 2)
    })
    .await;
    let tags = |machine: VirtualMachine| machine.spec.tags;
    assert_eq!(tags(bed.get("web-1").await), ["newer"]);
    assert_eq!(tags(bed.get("web-0").await), [""; 0]);
}

async fn uids(bed: &Bed) -> BTreeSet<String> {
    let machines = bed.api::<VirtualMachine>();
    let all = machines.list(&ListParams::default()).await.unwrap();
    all.iter().filter_map(kube::ResourceExt::uid).collect()
}

#[tokio::test(start_paused = true)]
async fn a_machine_keeps_its_image() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    let patch = json!({"spec": {"imageRef": {"name": "another"}}});
    let machines = bed.api::<VirtualMachine>();
    let refused = machines
        .patch("web-server", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("imageRef") && refused.contains("VMSet"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_is_said_on_who_asked_for_it() {
    let bed = with_machine().await;
    // A rule of somebody else, that nothing here could know of.
    let crds: Api<CustomResourceDefinition> = Api::all(bed.client.clone());
    let rule = json!([{
        "op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations/-",
        "value": {"rule": "!self.metadata.name.startsWith('no')", "message": "no such names here"},
    }]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(rule).unwrap());
    let name = "virtualmachines.infra.virtrigaud.io";
    crds.patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClone
metadata: { name: copy }
spec: { sourceVMRef: { name: web-server }, target: { name: nothing } }
",
    )
    .await;
    let clone: VMClone = bed.until_reason("copy", "Ready", "Refused").await;
    let conditions = clone.status.unwrap().conditions;
    let ready = api::vm::condition(&conditions, "Ready").unwrap();
    assert!(
        ready.message.contains("no such names here"),
        "{}",
        ready.message
    );
    assert!(bed.story("copy").await.contains("no such names here"));

    let mut set = web_set(1);
    set["metadata"]["name"] = "none".into();
    bed.try_apply(&set).await.unwrap();
    bed.until_reason::<VMSet>("none", "Ready", "Refused").await;
}

#[tokio::test(start_paused = true)]
async fn machines_stay_whose_template_spells_their_provider_otherwise() {
    let bed = prepared().await;
    let provider = |it: serde_json::Value| json!({"template": {"spec": {"providerRef": it}}});
    bed.try_apply(&web_set(2)).await.unwrap();
    bed.change::<VMSet>("web", provider(json!({"name": "proxmox-prod"})))
        .await;
    bed.until_ready::<VMSet>("web").await;
    let before = uids(&bed).await;
    let spelt = json!({"name": "proxmox-prod", "namespace": "default"});
    bed.change::<VMSet>("web", provider(spelt)).await;
    let tags = json!({"template": {"spec": {"tags": ["blue"]}}});
    bed.change::<VMSet>("web", tags).await;
    bed.until_ready::<VMSet>("web").await;
    assert_eq!(uids(&bed).await, before);
    let guests = bed.guests().await;
    let blue = guests
        .iter()
        .filter(|guest| guest.key("tags").contains("blue"));
    assert_eq!(blue.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_one_machine_only_can_have_is_for_sets_of_one() {
    let bed = prepared().await;
    let fixed = json!({"address": "192.168.1.9/24", "gateway": "192.168.1.1"});
    for network in [
        json!({"name": "lan", "staticIP": fixed}),
        json!({"name": "lan", "mac": "02:00:00:aa:bb:cc"}),
    ] {
        let mut set = web_set(2);
        set["spec"]["template"]["spec"]["networks"] = json!([network]);
        let refused = bed.try_apply(&set).await.unwrap_err().to_string();
        assert!(refused.contains("replicas to 1"), "{refused}");
        set["spec"]["replicas"] = json!(1);
        bed.try_apply(&set).await.unwrap();
        let sets = bed.api::<VMSet>();
        let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
        let scaled = sets.patch("web", &PatchParams::default(), &two).await;
        assert!(scaled.is_err());
    }
}

/// A conflict may be said of a deletion, and nothing else tells that the machine is still there.
#[tokio::test(start_paused = true)]
async fn machines_that_are_too_many_go_though_somebody_was_faster_at_first() {
    for seed in 0..6 {
        let bed = prepared().await;
        bed.try_apply(&web_set(1)).await.unwrap();
        bed.until_ready::<VMSet>("web").await;
        let weather = Weather {
            conflict: 400,
            ..Weather::default()
        };
        bed.line().weather(weather, seed);
        bed.change::<VMSet>("web", json!({"replicas": 0})).await;
        bed.sleep(Duration::from_secs(2)).await;
        bed.line().weather(Weather::default(), seed);
        bed.until_gone::<VirtualMachine>("web-0").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_keeps_its_number_scales_and_rolls_a_new_class_out() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClass
metadata: { name: big }
spec: { cpus: 4, memory: 8Gi }
",
    )
    .await;
    let mut set = web_set(3);
    set["spec"]["template"]["spec"]["updatePolicy"] = json!("RestartIfNeeded");
    bed.try_apply(&set).await.unwrap();
    bed.until_ready::<VMSet>("web").await;
    assert_eq!(
        bed.names::<VirtualMachine>().await,
        ["web-0", "web-1", "web-2"]
    );
    bed.change::<VMSet>("web", json!({ "replicas": 2 })).await;
    bed.until_ready::<VMSet>("web").await;
    bed.until_gone::<VirtualMachine>("web-2").await;
    bed.change::<VMSet>(
        "web",
        json!({ "template": { "spec": { "classRef": { "name": "big" } } } }),
    )
    .await;
    bed.until_ready::<VMSet>("web").await;
    for name in ["web-0", "web-1"] {
        assert_eq!(bed.guest(name).await.key("memory"), "8192");
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_waits_until_a_machine_has_been_ready_long_enough() {
    let bed = prepared().await;
    let mut set = web_set(1);
    set["spec"]["minReadySeconds"] = json!(600);
    bed.try_apply(&set).await.unwrap();
    bed.until_ready::<VirtualMachine>("web-0").await;
    bed.sleep(Duration::from_mins(5)).await;
    let set: VMSet = bed.get("web").await;
    let status = set.status.unwrap();
    assert_eq!((status.ready_replicas, status.available_replicas), (1, 0));
    let set: VMSet = bed.until_ready("web").await;
    assert_eq!(set.status.unwrap().available_replicas, 1);
}

#[tokio::test(start_paused = true)]
async fn a_set_takes_no_machine_that_somebody_else_made_under_its_names() {
    let bed = prepared().await;
    let named = manifest!("machine").replace("name: web-server", "name: web-1");
    bed.apply(&named).await;
    let before: VirtualMachine = bed.until_ready("web-1").await;
    bed.try_apply(&web_set(2)).await.unwrap();
    bed.until_reason::<VMSet>("web", "Ready", "NameTaken").await;
    bed.until_ready::<VirtualMachine>("web-0").await;
    let after: VirtualMachine = bed.get("web-1").await;
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.metadata.owner_references, None);

    // Once the name is free, the set has what it needs.
    bed.delete::<VirtualMachine>("web-1").await;
    bed.until_ready::<VMSet>("web").await;
    let own: VirtualMachine = bed.get("web-1").await;
    assert_ne!(own.metadata.uid, before.metadata.uid);
}
