//! A cluster changes its management cluster, by `clusterctl move`.

use std::collections::{BTreeMap, BTreeSet};

use cluster_api::{Bed, both, condition, kinds};

/// The addresses that a management cluster has given, by claim.
async fn addresses(bed: &Bed) -> BTreeMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let all = bed.list("moving", kinds::IP_ADDRESS).await;
    all.iter()
        .map(|address| {
            let claim = text(&address["spec"]["claimRef"]["name"]);
            (claim, text(&address["spec"]["address"]))
        })
        .collect()
}

#[test]
fn machines_do_not_notice_that_their_cluster_is_moved() {
    both("cluster-api", async |bed, another| {
        let datacenter = bed.datacenter(&["txl", "fra"]).await;
        let before = [datacenter.inventory(0).await, datacenter.inventory(1).await];
        let mut plan = bed.plan("moving", &datacenter).await;
        plan.over_both();
        plan.workers = 2;
        bed.create(&plan).await;
        let machines = bed.until_running("moving", 3).await;
        // What is on its way out is not for the other side to be confused by.
        bed.until("moving", "rid of its bootstrap data", async || {
            let all = [datacenter.inventory(0).await, datacenter.inventory(1).await];
            let data = all.iter().flatten().any(|volume| volume.contains(":iso/"));
            (!data).then_some(())
        })
        .await;
        let given = addresses(bed).await;
        let guests = [datacenter.guests(0).await, datacenter.guests(1).await];
        let boots = |bed: &Bed| -> Vec<u64> {
            let all = guests.iter().flatten();
            all.map(|guest| bed.past(guest).0).collect()
        };
        let booted = boots(bed);

        let another = &another.await.unwrap();
        bed.move_to(another, "moving").await;
        assert!(bed.list("moving", kinds::PROXMOX_MACHINE).await.is_empty());
        assert!(bed.list("moving", kinds::PROXMOX_CLUSTER).await.is_empty());
        let moved = another.until_running("moving", 3).await;
        let names = |machines: &[serde_json::Value]| -> BTreeSet<String> {
            let name = |machine: &serde_json::Value| machine["spec"]["providerID"].to_string();
            machines.iter().map(name).collect()
        };
        assert_eq!(names(&moved), names(&machines));
        another
            .until("moving", "taken over", async || {
                let machines = another.list("moving", kinds::PROXMOX_MACHINE).await;
                let ours = machines.iter().all(|machine| {
                    condition(machine, "Paused") == "False" && condition(machine, "Ready") == "True"
                });
                ours.then_some(())
            })
            .await;
        assert_eq!(addresses(another).await, given);
        // None was made, changed, restarted or moved; only whose they are is written on them anew.
        for (number, guests) in guests.iter().enumerate() {
            let now = datacenter.guests(number).await;
            assert_eq!(now.len(), guests.len(), "on {number}");
            for (now, before) in now.iter().zip(guests) {
                let mut before = before.clone();
                for key in ["description", "digest"] {
                    let said = now.key(key).to_owned();
                    before.config.insert(key.to_owned(), said);
                }
                let mut now = now.clone();
                now.config.entry("digest".to_owned()).or_default();
                assert_eq!(now, before);
            }
        }
        assert_eq!(boots(bed), booted);

        // Life goes on there.
        another.scale(&plan, 3).await;
        another.until_running("moving", 4).await;
        let more = addresses(another).await;
        let different: BTreeSet<_> = more.values().collect();
        assert_eq!(different.len(), 4, "{more:?}");
        another.delete_cluster(&plan).await;
        bed.end(&plan);
        for (number, before) in before.iter().enumerate() {
            assert_eq!(&datacenter.inventory(number).await, before);
        }
    });
}
