//! Proxmox VE as its own administrator sees it: through its API, past the controllers.

use std::collections::BTreeMap;

use pve::{
    Client, ConfigChange, Credentials, GuestConfig, NodeName, Vmid,
    api::{
        cluster::ResourceFilter,
        guest::{
            ConfigView, DeleteGuest, GuestStatus, migrate::MigrateQemu, power, snapshot::Snapshot,
        },
        storage::StorageFilter,
    },
    task::TaskFilter,
};

use crate::Bed;

/// A guest as PVE shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Guest {
    /// The number of its cluster.
    pub cluster: usize,
    /// Its VMID.
    pub vmid: u32,
    /// Its name.
    pub name: String,
    /// The node it is on.
    pub node: String,
    /// Whether it runs.
    pub running: bool,
    /// Whether it stands still, in memory.
    pub paused: bool,
    /// Whether it is a template.
    pub template: bool,
    /// Its configuration.
    pub config: BTreeMap<String, String>,
    /// What PVE has counted its configuration's file as.
    pub digest: Option<String>,
    /// Its snapshots.
    pub snapshots: Vec<String>,
    /// Its process, another one after every start.
    pub process: Option<u64>,
}

impl Guest {
    /// A key of its configuration, empty if it is not there.
    pub fn key(&self, key: &str) -> &str {
        self.config.get(key).map_or("", String::as_str)
    }

    /// Whether it is a container.
    pub fn is_container(&self) -> bool {
        !self.key("rootfs").is_empty()
    }
}

impl Bed {
    /// The first cluster's API, as root.
    pub fn root(&self) -> Client {
        self.root_of(0)
    }

    /// A cluster's API, as root.
    pub fn root_of(&self, number: usize) -> Client {
        let cluster = self.cluster(number);
        let credentials = Credentials::password("root@pam", "oxmox").unwrap();
        let node = cluster.nodes().first().cloned().unwrap();
        Client::builder()
            .service(cluster.endpoint(&node))
            .credentials(credentials)
            .build()
            .unwrap()
    }

    /// All guests of the first cluster, asked at the source.
    pub async fn guests(&self) -> Vec<Guest> {
        self.guests_of(0).await
    }

    /// All guests of a cluster, asked at the source.
    pub async fn guests_of(&self, number: usize) -> Vec<Guest> {
        let root = self.root_of(number);
        let mut guests = Vec::new();
        for name in self.cluster(number).nodes() {
            let node = root.node(&NodeName::new(name.as_str()).unwrap());
            for listed in node.qemu_list(true).await.unwrap() {
                let guest = node.qemu(listed.vmid.unwrap());
                let config = guest.config(ConfigView::Next).await.unwrap();
                let snapshots = guest.snapshots().await.unwrap();
                guests.push(shown(number, &name, &listed, &config, &snapshots));
            }
            for listed in node.lxc_list().await.unwrap() {
                let guest = node.lxc(listed.vmid.unwrap());
                let config = guest.config(ConfigView::Next).await.unwrap();
                let snapshots = guest.snapshots().await.unwrap();
                guests.push(shown(number, &name, &listed, &config, &snapshots));
            }
        }
        guests.sort_by_key(|guest| guest.vmid);
        guests
    }

    /// The one guest of this name.
    pub async fn guest(&self, name: &str) -> Guest {
        let mut found: Vec<Guest> = self
            .guests()
            .await
            .into_iter()
            .filter(|guest| guest.name == name)
            .collect();
        assert_eq!(found.len(), 1, "guests named {name}: {found:#?}");
        found.remove(0)
    }

    /// The backups on a storage of the first cluster.
    pub async fn backups(&self, storage: &str) -> Vec<String> {
        let node = self.cluster(0).nodes().first().cloned().unwrap();
        let node = self.root().node(&NodeName::new(node).unwrap());
        let storage = node.storage(&pve::StorageId::new(storage).unwrap());
        let list = storage.content(Some("backup"), None).await.unwrap();
        list.iter().map(|volume| volume.volid.to_string()).collect()
    }

    /// The snapshots of a machine of the first cluster.
    pub async fn snapshots(&self, name: &str) -> Vec<String> {
        self.guest(name).await.snapshots
    }

    pub(crate) async fn listed_snapshots(&self, guest: &Guest) -> Vec<Snapshot> {
        let root = self.root_of(guest.cluster);
        let node = root.node(&NodeName::new(guest.node.as_str()).unwrap());
        let vmid = Vmid::new(guest.vmid).unwrap();
        let list = if guest.is_container() {
            node.lxc(vmid).snapshots().await
        } else {
            node.qemu(vmid).snapshots().await
        };
        list.unwrap()
    }

    /// How the tasks of a kind ended on the first cluster, or that they run.
    pub async fn tasks(&self, kind: &str) -> Vec<String> {
        let filter = TaskFilter {
            kind: Some(kind.to_owned()),
            ..TaskFilter::default()
        };
        let mut ends = Vec::new();
        for name in self.pve().nodes() {
            let node = self.root().node(&NodeName::new(name.as_str()).unwrap());
            let tasks = node.tasks(&filter).await.unwrap().into_iter();
            ends.extend(tasks.map(|task| task.status.unwrap_or_default()));
        }
        ends
    }

    /// Changes a guest's configuration behind the controllers' back.
    pub async fn configure(&self, guest: &Guest, key: &str, value: &str) {
        let node = self
            .root()
            .node(&NodeName::new(guest.node.as_str()).unwrap());
        let change = ConfigChange::set(GuestConfig::new().with(key, value));
        let vmid = Vmid::new(guest.vmid).unwrap();
        let changed = if guest.is_container() {
            node.lxc(vmid).configure(&change).await
        } else {
            node.qemu(vmid).configure(&change).await
        };
        changed.unwrap();
    }

    /// Gives devices of nodes a name, one of each node as often as it is listed.
    pub async fn map_pci(&self, number: usize, mapping: &str, nodes: &[&str]) {
        let device = |(at, node): (usize, &&str)| {
            format!("node={node},path=0000:{at:02x}:00.0,id=10de:2230")
        };
        let devices: Vec<String> = nodes.iter().enumerate().map(device).collect();
        let root = self.root_of(number);
        root.create_pci_mapping(mapping, &devices).await.unwrap();
    }

    /// The first-boot images that lie on a cluster's storages.
    pub async fn first_boot_images(&self, number: usize) -> Vec<String> {
        let root = self.root_of(number);
        let mut images = std::collections::BTreeSet::new();
        for name in self.cluster(number).nodes() {
            let node = root.node(&NodeName::new(name.as_str()).unwrap());
            for storage in node.storages(&StorageFilter::default()).await.unwrap() {
                let storage = node.storage(storage.storage.as_ref().unwrap());
                for volume in storage.content(None, None).await.unwrap() {
                    images.insert(volume.volid.to_string());
                }
            }
        }
        images
            .into_iter()
            .filter(|id| id.contains("iso/oxmox-"))
            .collect()
    }

    /// Destroys a guest behind the controllers' back.
    pub async fn destroy(&self, name: &str) {
        let guest = self.guest(name).await;
        let root = self.root();
        let node = root.node(&NodeName::new(guest.node.as_str()).unwrap());
        let handle = node.qemu(Vmid::new(guest.vmid).unwrap());
        let stopped = handle.stop(power::Stop::default()).await.unwrap();
        root.wait(&stopped).await.unwrap();
        let gone = handle.delete(DeleteGuest::default()).await.unwrap();
        root.wait(&gone).await.unwrap();
    }

    /// Moves a running guest behind the controllers' back.
    pub async fn migrate(&self, name: &str, to: &str) {
        let guest = self.guest(name).await;
        let root = self.root();
        let node = root.node(&NodeName::new(guest.node.as_str()).unwrap());
        let mut how = MigrateQemu::online(NodeName::new(to).unwrap());
        how.with_local_disks = true;
        let handle = node.qemu(Vmid::new(guest.vmid).unwrap());
        root.wait(&handle.migrate(&how).await.unwrap())
            .await
            .unwrap();
    }

    /// How often the first cluster was asked for something.
    pub fn count(&self, route: &str) -> u64 {
        let counts = self.pve().control().counts();
        counts.get(route).copied().unwrap_or_default()
    }

    /// Gives a template of a cluster its tags.
    pub async fn tag_template(&self, number: usize, vmid: u32, tags: &str) {
        let guests = self.guests_of(number).await;
        let guest = guests.iter().find(|guest| guest.vmid == vmid).unwrap();
        let root = self.root_of(number);
        let node = root.node(&NodeName::new(guest.node.as_str()).unwrap());
        let change = ConfigChange::set(GuestConfig::new().with("tags", tags));
        node.qemu(Vmid::new(vmid).unwrap())
            .configure(&change)
            .await
            .unwrap();
    }

    /// Gives a template the name that manifests use.
    pub async fn name_template(&self, vmid: u32, name: &str) {
        let rows = self
            .root()
            .cluster()
            .resources(Some(ResourceFilter::Guests))
            .await
            .unwrap();
        let row = rows
            .into_iter()
            .find(|row| row.vmid.is_some_and(|id| id.get() == vmid))
            .unwrap();
        let node = self.root().node(&row.node.unwrap());
        let change = ConfigChange::set(GuestConfig::new().with("name", name));
        node.qemu(Vmid::new(vmid).unwrap())
            .configure(&change)
            .await
            .unwrap();
    }
}

fn shown(
    cluster: usize,
    node: &str,
    listed: &GuestStatus,
    config: &GuestConfig,
    snapshots: &[Snapshot],
) -> Guest {
    let snapshots = snapshots.iter().map(|snapshot| snapshot.name.clone());
    Guest {
        digest: config.digest().map(str::to_owned),
        snapshots: snapshots.filter(|name| name != "current").collect(),
        process: listed.pid,
        cluster,
        vmid: listed.vmid.map_or(0, Vmid::get),
        name: listed.name.clone().unwrap_or_default(),
        node: node.to_owned(),
        running: listed.is_running(),
        paused: listed.qmpstatus.as_deref() == Some("paused"),
        template: config.is_template(),
        config: config
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
    }
}
