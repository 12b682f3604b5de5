//! What goes wrong in a datacenter.

use cluster_api::{kinds, shared};
use serde_json::json;

#[test]
fn a_guest_that_hangs_is_replaced() {
    shared("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["txl"]).await;
        let mut plan = bed.plan("health", &datacenter).await;
        plan.workers = 2;
        bed.create(&plan).await;
        let machines = bed.until_running("health", 3).await;
        bed.apply(
            "health",
            &json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
                "metadata": {"name": "health"},
                "spec": {
                    "clusterName": "health",
                    "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "health-workers"}},
                    "checks": {
                        "nodeStartupTimeoutSeconds": 600,
                        "unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 1}],
                    },
                },
            }),
        )
        .await;
        let victim = machines
            .iter()
            .map(|machine| machine["metadata"]["name"].as_str().unwrap())
            .find(|name| name.contains("-workers-"))
            .unwrap();
        let (_, guest) = datacenter.guest(victim).await;
        datacenter.cluster(0).hang_guest(guest.vmid).unwrap();
        bed.until("health", "healed", async || {
            let running = bed.running("health").await;
            let all = bed.list("health", kinds::MACHINE).await.len();
            let gone = running
                .iter()
                .all(|machine| machine["metadata"]["name"] != victim);
            (gone && all == 3 && running.len() == 3).then_some(())
        })
        .await;
        let guests = datacenter.guests(0).await;
        assert!(guests.iter().all(|guest| guest.name != victim));
        bed.delete_cluster(&plan).await;
    });
}

#[test]
fn an_outage_of_one_proxmox_sends_new_machines_to_the_other() {
    shared("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["txl", "fra"]).await;
        let mut plan = bed.plan("outage", &datacenter).await;
        plan.over_both();
        plan.workers = 2;
        bed.create(&plan).await;
        bed.until_running("outage", 3).await;
        let there = datacenter.guests(1).await;

        datacenter.cut_off(1);
        let noticed = |wanted: bool| async move {
            bed.until("outage", "noticing", async || {
                let cluster = bed.get("outage", kinds::PROXMOX_CLUSTER, "outage").await?;
                let instances = cluster["status"]["instances"].as_array()?.clone();
                let fra = instances
                    .iter()
                    .find(|instance| instance["name"] == "fra")?;
                (fra["ready"] == wanted).then_some(())
            })
            .await;
        };
        noticed(false).await;
        bed.scale(&plan, 5).await;
        bed.until_running("outage", 6).await;
        // Who was there is there still, and nobody came.
        assert_eq!(datacenter.guests(1).await, there);

        datacenter.reconnect(1).await;
        noticed(true).await;
        bed.scale(&plan, 7).await;
        bed.until_running("outage", 8).await;
        let after = datacenter.guests(1).await;
        assert!(after.len() > there.len(), "{after:#?}");
        for guest in &there {
            assert!(after.iter().any(|now| now.uuid() == guest.uuid()));
        }
        bed.delete_cluster(&plan).await;
    });
}
