//! Clusters: planned, made, scaled and deleted; their machines, nodes and guests.

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use pve_sim::Seed;
use serde_json::{Value, json};
use testbed::process::free_ports;

use super::Bed;
use crate::objects::kinds;
use crate::{Datacenter, Guest, Plan};

impl Bed {
    /// A plan for a cluster in a namespace of its own, which is made.
    pub async fn plan(&self, name: &str, datacenter: &Datacenter) -> Plan {
        let [port] = free_ports().unwrap();
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply("", &namespace).await;
        for number in 0..datacenter.len() {
            let secret = datacenter.secret(number, &format!("pve-{number}"));
            self.apply(name, &secret).await;
        }
        // An external etcd is introduced by its administrator: Cluster API makes no keys for it.
        let authority = self.plane.authority();
        let client = authority.client("etcd-client", &[]).unwrap();
        for (purpose, cert, key) in [
            ("etcd", authority.cert(), None),
            ("apiserver-etcd-client", &*client.cert, Some(&client.key)),
        ] {
            let mut data = json!({"tls.crt": cert});
            if let Some(key) = key {
                data["tls.key"] = json!(key);
            }
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
                "metadata": {
                    "name": format!("{name}-{purpose}"),
                    "labels": {"cluster.x-k8s.io/cluster-name": name},
                },
                "stringData": data,
            });
            self.apply(name, &secret).await;
        }
        Plan {
            name: name.to_owned(),
            port,
            etcd: self.plane.etcd_url().to_owned(),
            control_plane: 1,
            workers: 3,
            group: "workers",
            version: "v1beta1",
            infrastructure: json!({"credentialsRef": {"name": "pve-0"}}),
            machine: json!({
                "template": "ubuntu-24-04", "cores": 2, "memory": 4096, "full": false,
            }),
        }
    }

    /// The Machines of a namespace that run and whose Node is known.
    pub async fn running(&self, namespace: &str) -> Vec<Value> {
        let mut machines = self.list(namespace, kinds::MACHINE).await;
        machines.retain(is_running);
        machines
    }

    /// Waits until so many machines run, and no others are there.
    pub async fn until_running(&self, namespace: &str, count: usize) -> Vec<Value> {
        let what = format!("{count} machines running");
        self.until(namespace, &what, async || {
            let all = self.list(namespace, kinds::MACHINE).await;
            let done = all.len() == count && all.iter().all(is_running);
            done.then_some(all)
        })
        .await
    }

    /// Deletes a Cluster and waits until it and everything of it is gone.
    pub async fn delete_cluster(&self, plan: &Plan) {
        self.delete(&plan.name, kinds::CLUSTER, &plan.name).await;
        self.until(&plan.name, "gone", async || {
            let cluster = self.get(&plan.name, kinds::CLUSTER, &plan.name).await;
            cluster.is_none().then_some(())
        })
        .await;
        self.end(plan);
    }

    /// Ends the API server that a guest of a cluster has started: the cluster is gone.
    pub fn end(&self, plan: &Plan) {
        self.guests.end(&plan.endpoint());
    }

    /// Applies all manifests of a plan.
    pub async fn create(&self, plan: &Plan) {
        for object in plan.cluster().iter().chain(&plan.workers()) {
            self.apply(&plan.name, object).await;
        }
    }

    /// Asks for so many workers.
    pub async fn scale(&self, plan: &Plan, replicas: usize) {
        let name = format!("{}-{}", plan.name, plan.group);
        let scale = json!({"spec": {"replicas": replicas}});
        self.patch(&plan.name, kinds::MACHINE_DEPLOYMENT, &name, &scale)
            .await;
    }

    /// A Node, as the cluster itself shows it.
    pub async fn node(&self, plan: &Plan, name: &str) -> Value {
        let secret = format!("{}-kubeconfig", plan.name);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &plan.name);
        let secret = secrets.get(&secret).await.unwrap();
        let text = String::from_utf8(secret.data.unwrap()["value"].0.clone()).unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        let nodes: Api<Node> = Api::all(Client::try_from(config).unwrap());
        serde_json::to_value(nodes.get(name).await.unwrap()).unwrap()
    }

    /// How often a guest has booted, and what it read at its first boot.
    pub fn past(&self, guest: &Guest) -> (u64, Seed) {
        let (boots, seed) = self.guests.past(guest.uuid());
        (boots, seed.unwrap_or_default())
    }

    /// What guests of a cluster had to complain about.
    pub fn complaints(&self, cluster: &str) -> Vec<String> {
        let mut journal = self.guests.journal();
        journal.retain(|line| line.starts_with(cluster));
        journal
    }
}

/// Whether a Machine runs, its Node is known and it is to stay.
fn is_running(machine: &Value) -> bool {
    machine["status"]["phase"] == "Running"
        && machine["status"]["nodeRef"]["name"].is_string()
        && machine["metadata"]["deletionTimestamp"].is_null()
}
