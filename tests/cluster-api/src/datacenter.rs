//! Some simulated Proxmox VE clusters, reached over HTTPS like real ones.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use pve::api::guest::ConfigView;
use pve::api::storage::StorageFilter;
use pve::{Client, Credentials, NodeName, Vmid};
use pve_sim::{Clock, Cluster, Latency, Server, Simulator, Tls, WorldFile};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use testbed::process::free_ports;

/// A guest as Proxmox VE shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Guest {
    /// Its VMID.
    pub vmid: u32,
    /// Its name.
    pub name: String,
    /// The node it is on.
    pub node: String,
    /// Whether it runs.
    pub running: bool,
    /// Its configuration.
    pub config: BTreeMap<String, String>,
}

impl Guest {
    /// A key of its configuration, empty if it is not there.
    pub fn key(&self, key: &str) -> &str {
        self.config.get(key).map_or("", String::as_str)
    }

    /// The UUID its firmware shows.
    pub fn uuid(&self) -> &str {
        let firmware = self.key("smbios1");
        let uuid = firmware.split(',').find_map(|p| p.strip_prefix("uuid="));
        uuid.unwrap_or_default()
    }
}

struct Place {
    cluster: Cluster,
    server: Mutex<Option<Server>>,
    address: SocketAddr,
    token: (String, String),
}

/// Proxmox VE clusters for one case.
pub struct Datacenter {
    places: Vec<Place>,
    tls: Tls,
    _simulator: Simulator,
}

impl Datacenter {
    /// Starts clusters of these names, each with the default world: nodes `pve1` to `pve3`, shared and local storage, templates.
    pub(crate) async fn start(names: &[&str], latency: Latency) -> Self {
        let clusters: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        let world = WorldFile::parse(&json!({"clusters": clusters}).to_string()).unwrap();
        let simulator = Simulator::builder()
            .latency(latency)
            .clock(Clock::of_this_machine())
            .world(world)
            .build();
        let tls = Tls::self_signed(&["127.0.0.1".to_owned()]).unwrap();
        let mut places = Vec::new();
        for name in names {
            let cluster = simulator.cluster(name).unwrap().clone();
            // One that is still ours after an outage.
            let [port] = free_ports().unwrap();
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let server = Server::start(cluster.endpoint(""), address, Some(tls.clone()))
                .await
                .unwrap();
            let id = "root@pam!capi".parse().unwrap();
            let token = root(&cluster)
                .access()
                .create_token(&id, false, None)
                .await
                .unwrap();
            let secret = token.value.expose_secret().to_owned();
            places.push(Place {
                cluster,
                address: server.address(),
                server: Mutex::new(Some(server)),
                token: (token.id.to_string(), secret),
            });
        }
        Self {
            places,
            tls,
            _simulator: simulator,
        }
    }

    /// One of the clusters.
    pub fn cluster(&self, number: usize) -> &Cluster {
        &self.places[number].cluster
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A Secret with the credentials of a cluster, in the form that both providers read.
    pub fn secret(&self, number: usize, name: &str) -> Value {
        let place = &self.places[number];
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "labels": {"clusterctl.cluster.x-k8s.io/move": "true"}},
            "stringData": {
                "url": format!("https://{}", place.address),
                "token": place.token.0, "secret": place.token.1,
                "fingerprint": self.tls.fingerprint(),
            },
        })
    }

    /// Environment variables with the credentials of a cluster, for a provider that takes them so.
    pub fn environment(&self, number: usize) -> [(&'static str, String); 3] {
        let place = &self.places[number];
        [
            ("PROXMOX_URL", format!("https://{}", place.address)),
            ("PROXMOX_TOKEN", place.token.0.clone()),
            ("PROXMOX_SECRET", place.token.1.clone()),
        ]
    }

    /// Cuts a cluster off: nobody answers at its address. Its guests run on.
    pub fn cut_off(&self, number: usize) {
        drop(self.places[number].server.lock().unwrap().take());
    }

    /// Lets a cluster be reached again, at the same address.
    pub async fn reconnect(&self, number: usize) {
        let place = &self.places[number];
        let endpoint = place.cluster.endpoint("");
        let server = Server::start(endpoint, place.address, Some(self.tls.clone()));
        *place.server.lock().unwrap() = Some(server.await.unwrap());
    }

    /// All guests of a cluster that are not templates, asked at the source, by VMID.
    pub async fn guests(&self, number: usize) -> Vec<Guest> {
        let root = root(self.cluster(number));
        let mut guests = Vec::new();
        for name in self.cluster(number).nodes() {
            let node = root.node(&NodeName::new(name.as_str()).unwrap());
            for listed in node.qemu_list(false).await.unwrap() {
                let vmid = listed.vmid.unwrap();
                let config = match node.qemu(vmid).config(ConfigView::Next).await {
                    // It went between the two questions.
                    Err(error) if error.is_not_found() => continue,
                    config => config.unwrap(),
                };
                if config.is_template() {
                    continue;
                }
                guests.push(Guest {
                    vmid: vmid.get(),
                    name: listed.name.clone().unwrap_or_default(),
                    node: name.clone(),
                    running: listed.is_running(),
                    config: config
                        .iter()
                        .map(|(key, value)| (key.to_owned(), value.to_owned()))
                        .collect(),
                });
            }
        }
        guests.sort_by_key(|guest| guest.vmid);
        guests
    }

    /// Everything a cluster holds, by name: guests, and the volumes of all storages.
    pub async fn inventory(&self, number: usize) -> BTreeSet<String> {
        let root = root(self.cluster(number));
        let guests = self.guests(number).await;
        let mut all: BTreeSet<String> = guests
            .iter()
            .map(|guest| format!("guest {} {}", guest.vmid, guest.name))
            .collect();
        for name in self.cluster(number).nodes() {
            let node = root.node(&NodeName::new(name.as_str()).unwrap());
            for storage in node.storages(&StorageFilter::default()).await.unwrap() {
                let id = storage.storage.unwrap();
                for volume in node.storage(&id).content(None, None).await.unwrap() {
                    all.insert(format!("{name} {}", volume.volid));
                }
            }
        }
        all
    }

    /// The guest of this name, wherever it is.
    pub async fn guest(&self, name: &str) -> (usize, Guest) {
        for number in 0..self.len() {
            let guests = self.guests(number).await;
            if let Some(guest) = guests.into_iter().find(|guest| guest.name == name) {
                return (number, guest);
            }
        }
        panic!("no guest is called {name}");
    }

    /// Sets the configuration of a guest or template, as its administrator.
    pub async fn configure(&self, number: usize, vmid: u32, key: &str, value: &str) {
        let root = root(self.cluster(number));
        let rows = root
            .cluster()
            .resources(Some(pve::api::cluster::ResourceFilter::Guests))
            .await
            .unwrap();
        let row = rows
            .into_iter()
            .find(|row| row.vmid.is_some_and(|id| id.get() == vmid));
        let node = root.node(&row.unwrap().node.unwrap());
        let change = pve::ConfigChange::set(pve::GuestConfig::new().with(key, value));
        node.qemu(Vmid::new(vmid).unwrap())
            .configure(&change)
            .await
            .unwrap();
    }
}

fn root(cluster: &Cluster) -> Client {
    let credentials = Credentials::password("root@pam", "oxmox").unwrap();
    Client::builder()
        .service(cluster.endpoint(""))
        .credentials(credentials)
        .build()
        .unwrap()
}
