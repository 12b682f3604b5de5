//! What a guest reads when it boots for the first time.

use api::cluster_api::IPAddressClaim;
use pve_sim::{Boot, Seed};
use scenarios::{Bed, Wish};
use serde_json::{Value, json};

use super::bed;

/// Makes a machine and gives back what its guest has read.
async fn read_by(bed: &Bed, wish: Wish, name: &str) -> Seed {
    let mut boots = bed.pve().boots();
    bed.make_machine(wish).await;
    bed.until_provisioned(name).await;
    let boot: Boot = boots.recv().await.unwrap();
    boot.seed.expect("it had something to read")
}

fn document(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn ignition_is_completed_with_name_identity_and_network() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    let written = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "/etc/kubeadm.yml", "contents": {"source": "data:,x"}}]},
    });
    // The simulated guest has no Ignition, so it does not come far enough to report addresses.
    let wish = Wish::new("worker-1")
        .with(&json!({"checks": {"skipQemuGuestAgent": true}}))
        .bootstrap(&written.to_string(), Some("ignition"));
    let seed = read_by(&bed, wish, "worker-1").await;
    let config: Value = serde_json::from_str(&seed.user_data).unwrap();
    let files = config["storage"]["files"].as_array().unwrap();
    let paths: Vec<_> = files.iter().filter_map(|f| f["path"].as_str()).collect();
    assert!(paths.contains(&"/etc/kubeadm.yml"), "{paths:?}");
    assert!(paths.contains(&"/etc/hostname"), "{paths:?}");
    assert!(paths.contains(&"/etc/proxmox-env"), "{paths:?}");
    let networks = |path: &&&str| path.starts_with("/etc/systemd/network/");
    assert_eq!(paths.iter().filter(networks).count(), 1, "{paths:?}");
    // Its network is in its user data and nowhere else.
    let network = document(seed.network_config.as_deref().unwrap());
    assert_eq!(network["config"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn talos_gets_its_configuration_untouched_and_a_network_it_can_read() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    let written = "version: v1alpha1\nmachine:\n  type: worker\n";
    // Its bootstrap provider does not say what it writes.
    let wish = Wish::new("worker-1").bootstrap(written, None);
    let seed = read_by(&bed, wish, "worker-1").await;
    assert_eq!(seed.user_data, written);
    let network = document(seed.network_config.as_deref().unwrap());
    assert_eq!(network["version"], 2, "{network}");
    assert!(network["network"].is_null(), "{network}");
    assert_eq!(
        network["ethernets"]["eth0"]["addresses"],
        json!(["10.0.1.0/20"])
    );
}

#[tokio::test(start_paused = true)]
async fn routes_rules_and_tables_of_an_interface_reach_the_guest() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    let wish = Wish::new("worker-1").with(&json!({
        "metadataSettings": {"providerIDInjection": true},
        "network": {
            "networkDevices": [
                {"name": "net0", "bridge": "vmbr0", "defaultIPv4": true, "linkMtu": 1450},
                {
                    "name": "net1", "bridge": "vmbr1", "dnsServers": ["10.20.0.53"],
                    "ipPoolRef": [{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "second"}],
                    "routes": [{"to": "172.16.0.0/12", "via": "10.20.0.1", "metric": 50, "table": 500}],
                    "routingPolicy": [{"from": "10.20.0.0/24", "table": 500, "priority": 100}],
                },
            ],
            "vrfs": [{
                "name": "vrf-blue", "table": 600, "interfaces": ["net1"],
                "routes": [{"to": "192.168.0.0/16", "via": "10.20.0.1"}],
            }],
        },
    }));
    let seed = read_by(&bed, wish, "worker-1").await;
    let network = document(seed.network_config.as_deref().unwrap())["network"].clone();
    let [eth0, eth1] = ["eth0", "eth1"].map(|name| &network["ethernets"][name]);
    assert_eq!(eth0["mtu"], 1450);
    assert_eq!(eth0["routes"][0]["via"], "10.0.0.1");
    assert_eq!(eth0["nameservers"]["addresses"], json!(["10.0.0.1"]));
    assert_eq!(eth1["nameservers"]["addresses"], json!(["10.20.0.53"]));
    let route = json!({"to": "172.16.0.0/12", "via": "10.20.0.1", "metric": 50, "table": 500});
    assert_eq!(eth1["routes"], json!([route]));
    let rule = json!({"from": "10.20.0.0/24", "table": 500, "priority": 100});
    assert_eq!(eth1["routing-policy"], json!([rule]));
    let vrf = &network["vrfs"]["vrf-blue"];
    assert_eq!(
        (&vrf["table"], &vrf["interfaces"]),
        (&json!(600), &json!(["eth1"]))
    );
    assert_eq!(vrf["routes"][0]["to"], "192.168.0.0/16");

    let meta = document(&seed.meta_data);
    let id = meta["instance-id"].as_str().unwrap();
    assert_eq!(meta["provider-id"], format!("proxmox://{id}"));
    assert_eq!(meta["kubernetes-version"], "v1.36.4");
    assert_eq!(meta["local-hostname"], "worker-1");
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_a_zone_has_the_zones_addresses_and_name_servers() {
    let (bed, _player) = bed(1).await;
    let cluster = bed
        .make_cluster(&json!({"zoneConfig": [{
            "zone": "dmz", "dnsServers": ["10.9.0.53"],
            "ipv4Config": {"addresses": ["10.9.0.10-10.9.0.99"], "prefix": 24, "gateway": "10.9.0.1"},
        }]}))
        .await;
    let zones = cluster.status.unwrap().in_cluster_zone_ref;
    assert_eq!(zones[0].zone, "dmz");
    assert_eq!(zones[0].v4.as_ref().unwrap().name, "prod-dmz-v4-icip");
    let wish = Wish::new("worker-1").with(&json!({"network": {
        "zone": "dmz", "networkDevices": [{"name": "net0", "bridge": "vmbr0"}],
    }}));
    let seed = read_by(&bed, wish, "worker-1").await;
    let claim: IPAddressClaim = bed.get("worker-1-net0-00-inet").await;
    assert_eq!(claim.spec.pool_ref.name, "prod-dmz-v4-icip");
    let labels = claim.metadata.labels.unwrap();
    assert_eq!(labels["topology.kubernetes.io/proxmox-zone"], "dmz");
    let network = document(seed.network_config.as_deref().unwrap());
    let eth0 = &network["network"]["ethernets"]["eth0"];
    assert_eq!(eth0["nameservers"]["addresses"], json!(["10.9.0.53"]));
}
