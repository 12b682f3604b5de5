//! A small front-end: keeps records, follows wakes, asks again.
//!
//! It stores a record whenever the fleet hands a changed one back, exactly as a controller would
//! write a status, and it can be killed and started again from what was stored.

#![expect(clippy::panic, reason = "helpers of tests may fail the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use fleet::{
    ClusterName, Fleet, GuestIntent, GuestProgress, GuestRecord, NodeName, Options, Outcome, Owner,
    Size, WakeStream,
    intent::{
        Agent, BackupIntent, BackupMode, CloneMode, Compression, Disk, DiskRole, Init, Nic, Source,
        TemplateRef,
    },
};
use pve_sim::{Cluster, Latency, Simulator};

/// A simulated cluster with a front-end on it.
pub(crate) struct Bench {
    pub(crate) sim: Simulator,
    pub(crate) fleet: Fleet,
    wakes: WakeStream,
    pub(crate) matters: BTreeMap<Owner, Matter>,
    pub(crate) options: Options,
    /// The node the client talks to.
    entry: String,
    /// The process dies once so many requests were made, and loses what the last call returned.
    pub(crate) crash_after: Option<u64>,
}

/// Something a front-end wants.
pub(crate) struct Matter {
    pub(crate) intent: GuestIntent,
    pub(crate) record: GuestRecord,
    pub(crate) deleting: bool,
    pub(crate) last: Option<GuestProgress>,
    pub(crate) story: Vec<String>,
}

pub(crate) fn cluster_name() -> ClusterName {
    ClusterName::new("lab").expect("a good name")
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Simulator::builder().seed(7).build())
    }

    /// A cluster that takes as long as a small real one.
    pub(crate) fn life_like(seed: u64) -> Self {
        let sim = Simulator::builder().seed(seed);
        Self::with(sim.latency(Latency::real()).build())
    }

    pub(crate) fn with(sim: Simulator) -> Self {
        let fleet = Fleet::new();
        let wakes = fleet.wakes();
        // Reading configurations in turn is tested apart: it would blur the budgets.
        let options = Options {
            audit_interval: Duration::from_hours(24),
            ..Options::default()
        };
        let bench = Self {
            sim,
            fleet,
            wakes,
            matters: BTreeMap::new(),
            options,
            entry: "pve1".to_owned(),
            crash_after: None,
        };
        bench
            .fleet
            .connect(cluster_name(), bench.client(), bench.options.clone());
        bench
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.sim.clusters().next().expect("one cluster")
    }

    pub(crate) fn client(&self) -> pve::Client {
        let credentials =
            pve::Credentials::password("root@pam", "oxmox").expect("good credentials");
        pve::Client::builder()
            .endpoint(format!("https://{}:8006", self.entry))
            .service(self.cluster().endpoint(&self.entry))
            .credentials(credentials)
            .build()
            .expect("a client")
    }

    /// A node of the cluster besides one.
    pub(crate) fn other_than(&self, node: &NodeName) -> String {
        let nodes = self.cluster().nodes();
        let other = nodes.into_iter().find(|other| other != node.as_str());
        other.expect("there are several")
    }

    /// Talks to another node from now on.
    pub(crate) fn answer_from(&mut self, node: &str) {
        if self.entry != node {
            node.clone_into(&mut self.entry);
            self.fleet
                .connect(cluster_name(), self.client(), self.options.clone());
        }
    }

    /// The process dies: what it knew is gone, what was stored is kept.
    pub(crate) fn restart(&mut self) {
        self.restart_with(self.client());
    }

    /// The same, and the next one has another way to the cluster.
    pub(crate) fn restart_with(&mut self, client: pve::Client) {
        self.fleet = Fleet::new();
        self.wakes = self.fleet.wakes();
        self.fleet
            .connect(cluster_name(), client, self.options.clone());
    }

    pub(crate) fn want(&mut self, intent: GuestIntent) -> Owner {
        let owner = intent.owner.clone();
        let matter = self.matters.entry(owner.clone()).or_insert_with(|| Matter {
            intent: intent.clone(),
            record: GuestRecord::default(),
            deleting: false,
            last: None,
            story: Vec::new(),
        });
        matter.intent = intent;
        matter.last = None;
        owner
    }

    pub(crate) fn delete(&mut self, owner: &Owner) {
        let matter = self.matters.get_mut(owner).expect("a known owner");
        matter.deleting = true;
        // Who removes a guest does not say any more what it was made from.
        matter.intent.source = Source::Empty;
        matter.last = None;
    }

    pub(crate) fn progress(&self, owner: &Owner) -> &GuestProgress {
        self.matters[owner]
            .last
            .as_ref()
            .unwrap_or_else(|| panic!("no progress of {owner}"))
    }

    pub(crate) fn record(&self, owner: &Owner) -> &GuestRecord {
        &self.matters[owner].record
    }

    /// One call for one owner. True if it wants to be called again at once.
    pub(crate) async fn call(&mut self, owner: &Owner) -> bool {
        let Some(matter) = self.matters.get_mut(owner) else {
            return false;
        };
        let progress = if matter.deleting {
            self.fleet.delete(&matter.intent, &matter.record).await
        } else {
            self.fleet.guest(&matter.intent, &matter.record).await
        };
        if self.crash_after.is_some_and(|n| {
            self.sim
                .clusters()
                .map(|c| c.control().total())
                .sum::<u64>()
                >= n
        }) {
            self.crash_after = None;
            matter
                .story
                .push(format!("CRASH instead of storing {:?}", progress.outcome));
            self.restart();
            for matter in self.matters.values_mut() {
                matter.last = None;
            }
            return true;
        }
        matter.record = progress.record.clone();
        matter.story.push(format!("{:?}", progress.outcome));
        for event in &progress.events {
            matter
                .story
                .push(format!("  {}: {}", event.reason, event.message));
        }
        let again = progress.outcome == Outcome::Persist;
        matter.last = Some(progress);
        again
    }

    /// Calls for one owner until it has nothing more to do now; returns where it stands.
    pub(crate) async fn call_now(&mut self, owner: &Owner) -> GuestProgress {
        while self.call(owner).await {}
        self.progress(owner).clone()
    }

    fn resting(&self) -> bool {
        self.matters.values().all(|matter| {
            matter.last.as_ref().is_some_and(|progress| {
                progress.outcome.is_done() || matches!(progress.outcome, Outcome::Failed { .. })
            })
        })
    }

    /// Follows wakes until everything rests. Fails after an hour of simulated time.
    pub(crate) async fn run(&mut self) {
        let mut due: BTreeSet<Owner> = self
            .matters
            .iter()
            .filter(|(_, m)| m.last.is_none())
            .map(|(o, _)| o.clone())
            .collect();
        let deadline = tokio::time::Instant::now() + Duration::from_hours(1);
        loop {
            while let Some(owner) = due.pop_first() {
                while self.call(&owner).await {}
            }
            if self.resting() {
                return;
            }
            match tokio::time::timeout_at(deadline, self.wakes.next_owner()).await {
                Ok(Some(owner)) => {
                    due.insert(owner);
                }
                Ok(None) => panic!("the fleet is gone"),
                Err(late) => panic!("not at rest after an hour ({late}):\n{}", self.stories()),
            }
        }
    }

    /// Follows wakes for some simulated time.
    pub(crate) async fn run_for(&mut self, time: Duration) {
        let deadline = tokio::time::Instant::now() + time;
        while let Ok(Some(owner)) = tokio::time::timeout_at(deadline, self.wakes.next_owner()).await
        {
            while self.call(&owner).await {}
        }
    }

    pub(crate) fn stories(&self) -> String {
        let mut out = String::new();
        for (owner, matter) in &self.matters {
            if matter
                .last
                .as_ref()
                .is_some_and(|progress| progress.outcome.is_done())
            {
                continue;
            }
            let _ = writeln!(out, "{owner}: {:?}", matter.record);
            for line in matter.story.iter().rev().take(20).rev() {
                let _ = writeln!(out, "    {line}");
            }
        }
        out
    }

    /// Lets the cluster be looked at and surveyed once, then counts from zero.
    pub(crate) async fn ready(&mut self) {
        while !self
            .fleet
            .facts(&cluster_name())
            .is_some_and(|facts| facts.reachable && !facts.bridges.is_empty())
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.cluster().control().reset_counts();
    }

    /// What is on the cluster: guests with their owners, and volumes that look like ours.
    pub(crate) async fn inventory(&self) -> Inventory {
        let client = self.client();
        let mut inventory = Inventory::default();
        let members = client.nodes().await.expect("a list of nodes");
        for node in members {
            let node = client.node(&node.node);
            for row in node.qemu_list(false).await.expect("a list of guests") {
                let Some(vmid) = row.vmid else { continue };
                let config = node
                    .qemu(vmid)
                    .config(pve::api::guest::ConfigView::Next)
                    .await
                    .expect("a configuration");
                let owner = config.description().and_then(fleet::mark::owner_of);
                let text = format!("{config:?}");
                inventory
                    .guests
                    .insert(vmid.get(), (owner.map(|o| o.to_string()), text));
            }
            for storage in node
                .storages(&pve::api::storage::StorageFilter::default())
                .await
                .expect("storages")
            {
                let id = storage.storage.expect("a storage's name");
                for volume in node
                    .storage(&id)
                    .content(None, None)
                    .await
                    .expect("content")
                {
                    inventory.volumes.insert(volume.volid.to_string());
                }
            }
        }
        inventory
    }

    /// Backs a guest up; returns the volume of its backup.
    pub(crate) async fn back_up(&mut self, guest: &Owner, mode: BackupMode) -> String {
        let identity = self.record(guest).identity.as_ref();
        let intent = BackupIntent {
            owner: owner("backup"),
            cluster: cluster_name(),
            guest: identity.expect("an identity").vmid,
            guest_owner: Some(guest.clone()),
            guest_keeper: None,
            likeness: fleet::record::Likeness::default(),
            storage: fleet::StorageId::new("nfs").expect("a storage"),
            mode,
            compress: Compression::Zstd,
            notes: String::new(),
            protected: false,
        };
        let mut record = fleet::ActionRecord::default();
        loop {
            let progress = self.fleet.backup(&intent, &record).await;
            record = progress.record;
            match progress.outcome {
                Outcome::Settled => return progress.facts.volume.expect("a backup"),
                Outcome::Persist => {}
                _ => self.run_for(Duration::from_secs(1)).await,
            }
        }
    }

    /// Requests since the counts were reset.
    pub(crate) fn requests(&self) -> u64 {
        self.cluster().control().total()
    }

    /// Requests since the counts were reset, without what the cluster costs when nothing is done on it.
    pub(crate) fn own_requests(&self) -> u64 {
        let counts = self.cluster().control().counts();
        let own = counts
            .iter()
            .filter(|(route, _)| !RHYTHM.contains(&route.as_str()));
        own.map(|(_, n)| n).sum()
    }

    pub(crate) fn counts(&self) -> String {
        let counts = self.cluster().control().counts();
        counts.iter().fold(String::new(), |mut out, (route, n)| {
            let _ = writeln!(out, "{n:4} {route}");
            out
        })
    }
}

/// What is asked at a rhythm of its own, whatever is done.
const RHYTHM: [&str; 5] = [
    "GET /version",
    "GET /cluster/resources",
    "GET /cluster/status",
    "GET /access/permissions",
    "GET /nodes/{node}/network",
];

/// What is on a cluster.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub(crate) struct Inventory {
    /// Owner and configuration of each guest.
    pub(crate) guests: BTreeMap<u32, (Option<String>, String)>,
    pub(crate) volumes: BTreeSet<String>,
}

impl Inventory {
    /// First-boot images of ours.
    pub(crate) fn seeds(&self) -> Vec<&String> {
        self.volumes
            .iter()
            .filter(|volume| volume.contains("iso/oxmox-"))
            .collect()
    }

    /// Guests that belong to an owner.
    pub(crate) fn of(&self, owner: &Owner) -> Vec<u32> {
        self.guests
            .iter()
            .filter(|(_, (whose, _))| whose.as_deref() == Some(owner.as_str()))
            .map(|(vmid, _)| *vmid)
            .collect()
    }
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new(format!("vm/default/{name}/uid-{name}")).expect("a good owner")
}

/// A virtual machine from a template, with cloud-init, an agent and one interface.
pub(crate) fn machine(name: &str, template: &str) -> GuestIntent {
    let source = Source::Template {
        from: TemplateRef::Name(template.to_owned()),
        mode: CloneMode::Auto,
        snapshot: None,
    };
    let mut intent = GuestIntent::new(owner(name), cluster_name(), name, source);
    intent.hardware.cpu.cores = Some(2);
    intent.hardware.memory.size = Some(Size::gib(2));
    intent.hardware.agent = Some(Agent {
        enabled: true,
        fstrim: None,
    });
    intent.disks = vec![Disk {
        name: "root".to_owned(),
        role: DiskRole::Root,
        size: Some(Size::gib(40)),
        ..Disk::default()
    }];
    intent.nics = vec![Nic {
        name: "lan".to_owned(),
        bridge: "vmbr0".to_owned(),
        ..Nic::default()
    }];
    intent.init = Some(Init {
        user_data: Some("#cloud-config\npackages: [nginx]\n".into()),
        ..Init::default()
    });
    intent
}
