//! A cluster from its manifests to its end.

use std::collections::BTreeSet;

use cluster_api::{kinds, shared};
use serde_json::json;

#[test]
fn a_cluster_comes_up_grows_shrinks_and_leaves_nothing() {
    shared("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["txl", "fra"]).await;
        let before = [datacenter.inventory(0).await, datacenter.inventory(1).await];
        let mut plan = bed.plan("life", &datacenter).await;
        plan.over_both();
        bed.create(&plan).await;

        let machines = bed.until_running("life", 4).await;
        let mut vmids = BTreeSet::new();
        for machine in &machines {
            let name = machine["metadata"]["name"].as_str().unwrap();
            let (number, guest) = datacenter.guest(name).await;
            assert!(guest.running, "{name}");
            assert_eq!(
                machine["spec"]["providerID"],
                format!("proxmox://{}", guest.uuid())
            );
            assert_eq!(machine["status"]["nodeRef"]["name"], name);
            // What the provider says about addresses is what the node says about itself.
            let node = bed.node(&plan, name).await;
            let internal = node["status"]["addresses"][0]["address"].clone();
            assert!(internal.as_str().unwrap().starts_with("10.10.0."));
            let said = machine["status"]["addresses"].as_array().unwrap();
            assert!(said.contains(&json!({"type": "InternalIP", "address": internal})));
            vmids.insert((number, guest.vmid));
        }
        assert_eq!(vmids.len(), 4);

        bed.scale(&plan, 10).await;
        bed.until_running("life", 11).await;
        for number in 0..2 {
            let guests = datacenter.guests(number).await;
            let workers = guests.iter().filter(|g| g.name.contains("-workers-"));
            assert_eq!(workers.count(), 5, "on {number}");
        }
        bed.until("life", "counting its machines", async || {
            let cluster = bed.get("life", kinds::PROXMOX_CLUSTER, "life").await?;
            let instances = cluster["status"]["instances"].as_array()?.clone();
            let counts = instances.iter().map(|i| i["machines"].as_i64());
            (counts.sum::<Option<i64>>() == Some(11)).then_some(())
        })
        .await;
        bed.scale(&plan, 2).await;
        bed.until_running("life", 3).await;
        // Bootstrap data holds keys to the cluster: none is left once the nodes are in it.
        bed.until("life", "rid of its bootstrap data", async || {
            let all = [datacenter.inventory(0).await, datacenter.inventory(1).await];
            let data = all.iter().flatten().any(|volume| volume.contains(":iso/"));
            (!data).then_some(())
        })
        .await;

        bed.delete_cluster(&plan).await;
        for (number, before) in before.iter().enumerate() {
            assert_eq!(&datacenter.inventory(number).await, before);
        }
        assert!(bed.list("life", kinds::IP_ADDRESS).await.is_empty());
        assert_eq!(bed.complaints("life"), Vec::<String>::new());
    });
}

#[test]
fn three_control_plane_machines_live_in_different_failure_domains() {
    shared("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["txl", "fra"]).await;
        let mut plan = bed.plan("domains", &datacenter).await;
        plan.over_both();
        plan.control_plane = 3;
        plan.workers = 0;
        bed.create(&plan).await;
        let machines = bed.until_running("domains", 3).await;
        let domains: BTreeSet<_> = machines
            .iter()
            .map(|machine| machine["spec"]["failureDomain"].as_str().unwrap())
            .collect();
        assert_eq!(domains, BTreeSet::from(["fra", "txl"]));
        for machine in &machines {
            let name = machine["metadata"]["name"].as_str().unwrap();
            let (number, _) = datacenter.guest(name).await;
            let domain = &machine["spec"]["failureDomain"];
            assert_eq!(domain, ["txl", "fra"][number], "{name}");
        }
        bed.until("domains", "available", async || {
            let name = "domains-control-plane";
            let control_plane = bed.get("domains", kinds::CONTROL_PLANE, name).await?;
            let available = cluster_api::condition(&control_plane, "Available");
            (available == "True").then_some(())
        })
        .await;
        bed.delete_cluster(&plan).await;
    });
}
