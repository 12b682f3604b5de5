//! Manifests as the documents that announce this API write them, with this datacenter's names in place of theirs.

use cluster_api::{condition, kinds, shared};
use serde_json::json;

/// Several instances, in the version that the proposal writes them in: each with its nodes, its template and its credentials.
#[test]
fn the_proposal_for_several_instances_does_what_it_says() {
    shared("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["txl", "fra"]).await;
        datacenter.configure(1, 9000, "tags", "capi;v1.30.5").await;
        datacenter.configure(0, 9000, "tags", "capi;v1.30.5").await;
        let mut plan = bed.plan("proposal", &datacenter).await;
        plan.version = "v1alpha1";
        plan.infrastructure = json!({
            "settings": {"mode": "MultiInstance", "instances": [
                {
                    "name": "pmox-txl", "nodes": ["pve1", "pve2"],
                    "template": {"sourceNode": "pve1", "templateID": 9000},
                    "credentialsRef": {"name": "pve-0"},
                },
                {
                    "name": "pmox-fra", "nodes": ["pve1", "pve2", "pve3"],
                    "template": {"templateSelector": {"matchTags": ["capi", "v1.30.5"]}},
                    "credentialsRef": {"name": "pve-1"},
                },
            ]},
            "allowedNodes": [],
            "credentialsRef": {"name": "pve-0"},
        });
        plan.machine = json!({"templateSelector": {"matchTags": ["capi", "v1.30.5"]}});
        for object in plan.cluster() {
            bed.apply("proposal", &object).await;
        }
        // Workers are sent to one of them by name.
        plan.workers = 2;
        plan.machine["instance"] = json!("pmox-txl");
        for object in plan.workers() {
            bed.apply("proposal", &object).await;
        }
        bed.until_running("proposal", 3).await;
        let workers: Vec<_> = datacenter
            .guests(0)
            .await
            .into_iter()
            .filter(|guest| guest.name.contains("-workers-"))
            .collect();
        assert_eq!(workers.len(), 2);
        for guest in &workers {
            assert!(["pve1", "pve2"].contains(&guest.node.as_str()), "{guest:?}");
        }
        // The proposal's own words come back as they were written.
        let old = kinds::PROXMOX_CLUSTER.at("v1alpha1");
        let shown = bed.get("proposal", old, "proposal").await.unwrap();
        for field in [
            "settings",
            "ipv4Config",
            "controlPlaneEndpoint",
            "dnsServers",
        ] {
            let written = &plan.infrastructure_spec()[field];
            let mut read = shown["spec"][field].clone();
            // Defaulted by the schema.
            if field == "ipv4Config" {
                read.as_object_mut().unwrap().remove("metric");
            }
            if field == "settings" {
                let selector = &mut read["instances"][1]["template"]["templateSelector"];
                selector.as_object_mut().unwrap().remove("matchPolicy");
            }
            assert_eq!(&read, written, "{field}");
        }
        bed.delete_cluster(&plan).await;
    });
}

/// A cluster, a machine and their plain counterparts, one by one and without a control plane of Cluster API's.
#[test]
fn a_machine_written_by_hand_becomes_a_guest() {
    shared("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["txl"]).await;
        datacenter
            .configure(0, 9000, "name", "ubuntu-22.04-k8s")
            .await;
        let plan = bed.plan("by-hand", &datacenter).await;
        // The document leaves the credentials out; the Secret has no address, which `server` says.
        let mut secret = datacenter.secret(0, "by-hand");
        let address = secret["stringData"]["url"].take();
        let server = address.as_str().unwrap().trim_start_matches("https://");
        secret["stringData"].as_object_mut().unwrap().remove("url");
        bed.apply("by-hand", &secret).await;
        let infra = "infrastructure.cluster.x-k8s.io/v1beta1";
        for object in [
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "worker-1"},
                "stringData": {"value": "#cloud-config\n{}\n"},
            }),
            json!({
                "apiVersion": infra, "kind": "ProxmoxCluster", "metadata": {"name": "by-hand"},
                "spec": {
                    "server": server,
                    "controlPlaneEndpoint": {"host": "10.0.0.100", "port": 6443},
                    "credentialsRef": {"name": "by-hand"},
                },
            }),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": {"name": "by-hand"},
                "spec": {"infrastructureRef": {"apiVersion": infra, "kind": "ProxmoxCluster", "name": "by-hand"}},
            }),
            json!({
                "apiVersion": infra, "kind": "ProxmoxMachine", "metadata": {"name": "worker-1"},
                "spec": {
                    "nodeName": "pve2", "template": "ubuntu-22.04-k8s",
                    "cores": 4, "memory": 8192, "diskSize": 50,
                },
            }),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": {"name": "worker-1"},
                "spec": {
                    "clusterName": "by-hand",
                    // The document has no bootstrap data; Cluster API's schema insists on it.
                    "bootstrap": {"dataSecretName": "worker-1"},
                    "infrastructureRef": {"apiVersion": infra, "kind": "ProxmoxMachine", "name": "worker-1"},
                },
            }),
        ] {
            bed.apply("by-hand", &object).await;
        }
        bed.until("by-hand", "provisioned", async || {
            let machine = bed.get("by-hand", kinds::MACHINE, "worker-1").await?;
            (condition(&machine, "InfrastructureReady") == "True").then_some(())
        })
        .await;
        let (_, guest) = datacenter.guest("worker-1").await;
        assert!(guest.running);
        assert_eq!(guest.node, "pve2");
        assert_eq!((guest.key("cores"), guest.key("memory")), ("4", "8192"));
        assert!(guest.key("scsi0").contains("size=50G"), "{guest:?}");
        // Without pools in the cluster an address comes from DHCP.
        let machine = bed.get("by-hand", kinds::PROXMOX_MACHINE, "worker-1").await;
        let addresses = machine.unwrap()["status"]["addresses"].clone();
        let internal = |address: &serde_json::Value| address["type"] == "InternalIP";
        assert!(
            addresses.as_array().unwrap().iter().any(internal),
            "{addresses}"
        );
        bed.delete_cluster(&plan).await;
        let left = datacenter.guests(0).await;
        assert_eq!(left.len(), 1, "{left:#?}");
    });
}

/// A limit that the schema's format cannot hold makes an API server refuse every value.
#[test]
fn networks_with_tables_of_their_own_are_accepted_in_every_version() {
    shared("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["txl"]).await;
        let mut plan = bed.plan("tables", &datacenter).await;
        let policy = json!([{"from": "10.20.0.0/24", "table": 500, "priority": 100}]);
        let vrfs = json!([{"name": "vrf-blue", "table": 500, "interfaces": ["net0"], "routingPolicy": policy}]);
        for version in ["v1alpha1", "v1alpha2", "v1alpha3", "v1beta1"] {
            plan.version = version;
            let network = if version == "v1alpha1" {
                json!({"default": {"bridge": "vmbr0", "model": "virtio"}, "vrfs": vrfs})
            } else {
                json!({"networkDevices": [{"name": "net0", "bridge": "vmbr0", "routingPolicy": policy}], "vrfs": vrfs})
            };
            let mut spec = json!({"sourceNode": "pve1", "templateID": 9000, "network": network});
            if version == "v1beta1" {
                spec = json!({"template": 9000, "network": network});
            }
            bed.apply("tables", &plan.template(version, &spec)).await;
            let kind = kinds::PROXMOX_MACHINE_TEMPLATE;
            let stored = bed.get("tables", kind, version).await.unwrap();
            let network = &stored["spec"]["template"]["spec"]["network"];
            assert_eq!(network["vrfs"][0]["table"], 500, "{version}");
        }
    });
}
