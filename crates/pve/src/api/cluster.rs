//! The cluster as a whole: its resources, members, free numbers and tasks.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use crate::client::{Call, Client};
use crate::error::{Error, Result};
use crate::id::{NodeName, PoolId, StorageId, Vmid};
use crate::params::Params;
use crate::scalar;
use crate::task::TaskEntry;

/// The cluster's own calls.
#[derive(Debug, Clone)]
pub struct Cluster(Client);

impl Client {
    /// The cluster's own calls.
    pub fn cluster(&self) -> Cluster {
        Cluster(self.clone())
    }
}

/// Which rows of `/cluster/resources` to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceFilter {
    /// Virtual machines and containers.
    Guests,
    /// Storages, one row per node.
    Storages,
    /// Nodes.
    Nodes,
    /// Software defined networks.
    Sdn,
}

/// One row of `/cluster/resources`.
///
/// The rows are a cache, fed every ten seconds: a guest just made has the status `unknown` and little else.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// Such as `qemu/101`, `node/pve1`, `storage/pve1/local`.
    pub id: String,
    /// `qemu`, `lxc`, `node`, `storage`, `pool`, `sdn` or `network`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The node it is on.
    #[serde(deserialize_with = "scalar::optional")]
    pub node: Option<NodeName>,
    /// The guest's number.
    #[serde(deserialize_with = "scalar::optional")]
    pub vmid: Option<Vmid>,
    /// The guest's name.
    #[serde(deserialize_with = "scalar::optional")]
    pub name: Option<String>,
    /// `running`, `stopped`, `online`, `available`, `unknown`, ...
    #[serde(deserialize_with = "scalar::optional")]
    pub status: Option<String>,
    /// Whether the guest is a template.
    #[serde(deserialize_with = "scalar::flag")]
    pub template: bool,
    /// The guest's lock.
    #[serde(deserialize_with = "scalar::optional")]
    pub lock: Option<String>,
    /// The guest's tags.
    #[serde(deserialize_with = "scalar::list")]
    pub tags: Vec<String>,
    /// The guest's pool, or the pool itself.
    #[serde(deserialize_with = "scalar::optional")]
    pub pool: Option<PoolId>,
    /// The state high availability gives it.
    #[serde(deserialize_with = "scalar::optional")]
    pub hastate: Option<String>,
    /// The storage's name.
    #[serde(deserialize_with = "scalar::optional")]
    pub storage: Option<StorageId>,
    /// The storage's type, such as `lvmthin`.
    #[serde(deserialize_with = "scalar::optional")]
    pub plugintype: Option<String>,
    /// Whether the storage is the same on all nodes.
    #[serde(deserialize_with = "scalar::flag")]
    pub shared: bool,
    /// What the storage may hold.
    #[serde(deserialize_with = "scalar::list")]
    pub content: Vec<String>,
    /// Seconds since start.
    #[serde(deserialize_with = "scalar::optional")]
    pub uptime: Option<u64>,
    /// Used share of its CPUs.
    #[serde(deserialize_with = "scalar::optional")]
    pub cpu: Option<f64>,
    /// Number of CPUs.
    #[serde(deserialize_with = "scalar::optional")]
    pub maxcpu: Option<f64>,
    /// Used memory in bytes.
    #[serde(deserialize_with = "scalar::optional")]
    pub mem: Option<u64>,
    /// Memory in bytes.
    #[serde(deserialize_with = "scalar::optional")]
    pub maxmem: Option<u64>,
    /// Used space in bytes; zero for virtual machines.
    #[serde(deserialize_with = "scalar::optional")]
    pub disk: Option<u64>,
    /// Space in bytes; of a virtual machine that of its boot disk.
    #[serde(deserialize_with = "scalar::optional")]
    pub maxdisk: Option<u64>,
}

/// One row of `/cluster/status`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Member {
    /// The cluster itself; absent on a node that stands alone.
    Cluster {
        /// Its name.
        name: String,
        /// How many nodes it has.
        #[serde(default, deserialize_with = "scalar::optional")]
        nodes: Option<u32>,
        /// Whether it can change anything.
        #[serde(default, deserialize_with = "scalar::flag")]
        quorate: bool,
        /// The version of its membership.
        #[serde(default, deserialize_with = "scalar::optional")]
        version: Option<u64>,
    },
    /// One node.
    Node {
        /// Its name.
        name: NodeName,
        /// Whether it is up.
        #[serde(default, deserialize_with = "scalar::flag")]
        online: bool,
        /// Whether it is the one that answers.
        #[serde(default, deserialize_with = "scalar::flag")]
        local: bool,
        /// Its address inside of the cluster.
        #[serde(default, deserialize_with = "scalar::optional")]
        ip: Option<String>,
        /// Its number.
        #[serde(default, deserialize_with = "scalar::optional")]
        nodeid: Option<u32>,
        /// Its subscription level.
        #[serde(default, deserialize_with = "scalar::optional")]
        level: Option<String>,
    },
}

/// What is made of rows while they are read.
struct Gathered<C>(C);

impl<'de, C: Default + Extend<Resource>> Deserialize<'de> for Gathered<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Rows<C>(PhantomData<C>);

        impl<'de, C: Default + Extend<Resource>> Visitor<'de> for Rows<C> {
            type Value = Gathered<C>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut rows: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                let mut all = C::default();
                while let Some(row) = rows.next_element()? {
                    all.extend([row]);
                }
                Ok(Gathered(all))
            }
        }

        deserializer.deserialize_seq(Rows(PhantomData))
    }
}

impl Cluster {
    /// What the cluster has. Good for discovery, never for confirming an action: it is up to ten seconds old.
    pub async fn resources(&self, filter: Option<ResourceFilter>) -> Result<Vec<Resource>> {
        let kind = filter.map(|filter| match filter {
            ResourceFilter::Guests => "vm",
            ResourceFilter::Storages => "storage",
            ResourceFilter::Nodes => "node",
            ResourceFilter::Sdn => "sdn",
        });
        let params = Params::new().maybe("type", kind);
        self.0
            .call(Call::get("cluster.resources", "/cluster/resources").params(params))
            .await
    }

    /// The same, with every row handed over as it is read: beside what is made of ten thousand guests no list of them is held.
    pub async fn gather<C: Default + Extend<Resource>>(&self) -> Result<C> {
        let call = Call::get("cluster.resources", "/cluster/resources");
        let gathered: Gathered<C> = self.0.call(call).await?;
        Ok(gathered.0)
    }

    /// The cluster's members and quorum.
    pub async fn status(&self) -> Result<Vec<Member>> {
        self.0
            .call(Call::get("cluster.status", "/cluster/status"))
            .await
    }

    /// The lowest free number of a guest. Nothing is reserved by asking.
    pub async fn next_id(&self) -> Result<Vmid> {
        self.0
            .call(Call::get("cluster.nextid", "/cluster/nextid"))
            .await
    }

    /// Whether a number is free now.
    pub async fn is_free(&self, vmid: Vmid) -> Result<bool> {
        let call =
            Call::get("cluster.nextid", "/cluster/nextid").params(Params::new().with("vmid", vmid));
        match self.0.call::<Vmid>(call).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Recent tasks of all nodes.
    pub async fn tasks(&self) -> Result<Vec<TaskEntry>> {
        self.0
            .call(Call::get("cluster.tasks", "/cluster/tasks"))
            .await
    }

    /// The options of the datacenter.
    pub async fn options(&self) -> Result<serde_json::Map<String, serde_json::Value>> {
        self.0
            .call(Call::get("cluster.options", "/cluster/options"))
            .await
    }
}
