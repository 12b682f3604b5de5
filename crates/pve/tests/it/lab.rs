//! A simulated Proxmox VE and clients of it.

use pve::prop::{Disk, Net};
use pve::{Client, CreateQemu, Credentials, GuestConfig, NodeName, Upid, Vmid};
use pve_sim::{Cluster, Latency, Release, Simulator};

pub(crate) struct Lab {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) node: NodeName,
}

pub(crate) fn lab(release: Release) -> Lab {
    let simulator = Simulator::builder()
        .release(release)
        .root_password("geheim")
        .latency(Latency::real())
        .build();
    let cluster = simulator.cluster("pve").unwrap().clone();
    let client = client(
        &cluster,
        Credentials::password("root@pam", "geheim").unwrap(),
    );
    Lab {
        cluster,
        client,
        node: NodeName::new("pve1").unwrap(),
    }
}

pub(crate) fn client(cluster: &Cluster, credentials: Credentials) -> Client {
    Client::builder()
        .endpoint("pve1")
        .service(cluster.endpoint("pve1"))
        .endpoint("pve2")
        .service(cluster.endpoint("pve2"))
        .credentials(credentials)
        .build()
        .unwrap()
}

pub(crate) fn vmid(number: u32) -> Vmid {
    Vmid::new(number).unwrap()
}

impl Lab {
    pub(crate) fn node(&self) -> pve::Node {
        self.client.node(&self.node)
    }

    /// Makes an empty machine with one disk and waits for it.
    pub(crate) async fn machine(&self, number: u32) -> pve::Qemu {
        let config = GuestConfig::new()
            .with("name", format!("vm{number}"))
            .with("memory", 1024)
            .with("scsi0", Disk::allocate("local-lvm".parse().unwrap(), 4))
            .with("net0", Net::virtio("vmbr0").unwrap());
        let task = self
            .node()
            .create_qemu(&CreateQemu::new(vmid(number), config))
            .await
            .unwrap();
        self.client.wait(&task).await.unwrap();
        self.node().qemu(vmid(number))
    }

    /// Waits for a task that must end well.
    pub(crate) async fn done(&self, task: &Upid) {
        self.client.wait(task).await.unwrap();
    }
}
