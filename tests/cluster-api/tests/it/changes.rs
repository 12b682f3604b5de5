//! What users change while a cluster runs.

use cluster_api::{condition, kinds, shared};
use serde_json::json;

#[test]
fn a_new_template_rolls_through_all_machines() {
    shared("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["txl"]).await;
        let mut plan = bed.plan("rolling", &datacenter).await;
        plan.workers = 2;
        bed.create(&plan).await;
        let old = bed.until_running("rolling", 3).await;

        let mut larger = plan.machine.clone();
        larger["cores"] = json!(4);
        bed.apply("rolling", &plan.template("rolling-larger", &larger))
            .await;
        let change = json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": "rolling-larger"}}}}});
        bed.patch(
            "rolling",
            kinds::MACHINE_DEPLOYMENT,
            "rolling-workers",
            &change,
        )
        .await;
        bed.until("rolling", "rolled out", async || {
            let running = bed.running("rolling").await;
            let all = bed.list("rolling", kinds::MACHINE).await.len();
            let fresh = running.iter().filter(|machine| !old.contains(machine));
            let fresh = fresh.filter(|machine| {
                let name = machine["metadata"]["name"].as_str().unwrap();
                name.contains("-workers-")
                    && old
                        .iter()
                        .all(|old| old["metadata"]["name"] != machine["metadata"]["name"])
            });
            (all == 3 && fresh.count() == 2).then_some(())
        })
        .await;
        let guests = datacenter.guests(0).await;
        let workers: Vec<_> = guests
            .iter()
            .filter(|guest| guest.name.contains("-workers-"))
            .collect();
        assert_eq!(workers.len(), 2, "{guests:#?}");
        assert!(workers.iter().all(|guest| guest.key("cores") == "4"));
        bed.delete_cluster(&plan).await;
    });
}

#[test]
fn what_is_paused_is_left_alone_and_says_so() {
    shared("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["txl"]).await;
        let mut plan = bed.plan("paused", &datacenter).await;
        plan.workers = 1;
        bed.create(&plan).await;
        let machines = bed.until_running("paused", 2).await;
        let worker = machines
            .iter()
            .map(|machine| machine["metadata"]["name"].as_str().unwrap())
            .find(|name| name.contains("-workers-"))
            .unwrap();

        let pause =
            |value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
        bed.patch("paused", kinds::PROXMOX_MACHINE, worker, &pause(Some("")))
            .await;
        let paused = |wanted: &'static str| async move {
            bed.until("paused", "saying so", async || {
                let machine = bed.get("paused", kinds::PROXMOX_MACHINE, worker).await?;
                (condition(&machine, "Paused") == wanted).then_some(())
            })
            .await;
        };
        paused("True").await;
        // Cluster API waits for the end of the paused object, and the guest runs on.
        bed.delete("paused", kinds::MACHINE, worker).await;
        bed.until("paused", "asked to go", async || {
            let machine = bed.get("paused", kinds::PROXMOX_MACHINE, worker).await?;
            machine["metadata"]["deletionTimestamp"]
                .is_string()
                .then_some(())
        })
        .await;
        // Others are made meanwhile.
        bed.scale(&plan, 2).await;
        bed.until("paused", "grown", async || {
            let running = bed.running("paused").await;
            (running.len() >= 2).then_some(())
        })
        .await;
        assert!(datacenter.guest(worker).await.1.running);

        bed.patch("paused", kinds::PROXMOX_MACHINE, worker, &pause(None))
            .await;
        bed.until_running("paused", 3).await;
        let left = datacenter.guests(0).await;
        assert!(left.iter().all(|guest| guest.name != worker), "{left:#?}");

        // The whole cluster.
        bed.patch(
            "paused",
            kinds::CLUSTER,
            "paused",
            &json!({"spec": {"paused": true}}),
        )
        .await;
        bed.until("paused", "saying so", async || {
            let cluster = bed.get("paused", kinds::PROXMOX_CLUSTER, "paused").await?;
            (condition(&cluster, "Paused") == "True").then_some(())
        })
        .await;
        bed.patch(
            "paused",
            kinds::CLUSTER,
            "paused",
            &json!({"spec": {"paused": false}}),
        )
        .await;
        bed.delete_cluster(&plan).await;
        assert_eq!(bed.complaints("paused"), Vec::<String>::new());
    });
}
