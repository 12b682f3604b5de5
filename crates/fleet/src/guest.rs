//! Keeping one guest: a pass of one call.
//!
//! A pass takes what the caller remembers, settles the tasks that have ended meanwhile, compares and
//! does the next steps until one of them must be waited for. It holds nothing when it returns.

mod adopt;
mod bare;
mod beside;
mod changes;
mod choose;
mod configure;
mod declared;
pub(crate) mod devices;
mod exist;
mod firewall;
mod gentle;
mod given_up;
mod home;
pub(crate) mod look;
mod make;
mod pause;
mod presence;
pub(crate) mod ready;
mod remove;
pub(crate) mod seed;
mod settle;
pub(crate) mod source;
mod write;

use std::{sync::Arc, time::Duration};

use pve::GuestKind;
use tokio::time::Instant;

use crate::{
    Event, Failure, GuestFacts, GuestIntent, GuestProgress, GuestRecord, NodeName, Outcome,
    PowerFact, Size, Vmid, Waiting,
    cluster::{Cluster, Memory},
    desired,
    facts::{DiskFacts, Drift, Larger, NicFacts},
    intent::{Deletion, Management},
    prop::Prop,
    record::{Identity, Stage, StepKind},
    trouble::{self, Trouble},
    view::View,
};

/// A pass that ends here ends like this.
pub(crate) type Flow<T> = Result<T, Outcome>;

/// One call for one guest.
pub(crate) struct Pass<'a> {
    pub(crate) cluster: &'a Arc<Cluster>,
    pub(crate) intent: &'a GuestIntent,
    pub(crate) record: GuestRecord,
    pub(crate) events: Vec<Event>,
}

/// Keeps a guest as declared.
pub(crate) async fn keep(
    cluster: &Arc<Cluster>,
    intent: &GuestIntent,
    record: &GuestRecord,
) -> GuestProgress {
    let mut pass = Pass::new(cluster, intent, record);
    let outcome = match Box::pin(pass.keep()).await {
        Ok(outcome) | Err(outcome) => outcome,
    };
    pass.finish(outcome)
}

/// Removes a guest as its policy says.
pub(crate) async fn remove(
    cluster: &Arc<Cluster>,
    intent: &GuestIntent,
    record: &GuestRecord,
) -> GuestProgress {
    let mut pass = Pass::new(cluster, intent, record);
    pass.suspect_calls();
    let mut outcome = match Box::pin(pass.remove()).await {
        Ok(outcome) | Err(outcome) => outcome,
    };
    if outcome == Outcome::Gone {
        outcome = pass.gone_for_good();
    }
    if outcome == Outcome::Gone {
        let facts = pass.facts();
        cluster.forget(&intent.owner);
        return GuestProgress {
            record: pass.record,
            outcome,
            facts,
            events: pass.events,
        };
    }
    pass.finish(outcome)
}

/// The end of a guest whose cluster is not connected: one for which nothing was done has ended.
pub(crate) fn remove_unseen(intent: &GuestIntent, record: &GuestRecord) -> GuestProgress {
    let left_alone = intent.adopt.is_none() || intent.policy.at_end() == Deletion::Orphan;
    let mut progress = not_connected(intent, record);
    if record.identity.is_none() && record.leftovers.is_empty() && left_alone {
        progress.outcome = Outcome::Gone;
    }
    progress
}

/// The answer when the cluster is not connected.
pub(crate) fn not_connected(intent: &GuestIntent, record: &GuestRecord) -> GuestProgress {
    let retry = Duration::from_secs(30);
    let message = format!("PVE cluster '{}' is not connected", intent.cluster);
    GuestProgress {
        record: record.clone(),
        outcome: Outcome::Waiting {
            what: Waiting::Cluster,
            message,
            retry,
        },
        facts: GuestFacts {
            vmid: record.identity.as_ref().map(|identity| identity.vmid),
            ..GuestFacts::default()
        },
        events: Vec::new(),
    }
}

impl<'a> Pass<'a> {
    fn new(cluster: &'a Arc<Cluster>, intent: &'a GuestIntent, record: &GuestRecord) -> Self {
        Self {
            cluster,
            intent,
            record: record.clone(),
            events: Vec::new(),
        }
    }

    async fn keep(&mut self) -> Flow<Outcome> {
        desired::validate(self.intent, self.cluster.options.root)
            .map_err(|invalid| failed(Failure::Invalid, invalid.to_string()))?;
        let view = self.view()?;
        let release = self.cluster.state().release;
        if let Err(invalid) = desired::suits(self.intent, release, &view) {
            // Another release may suit.
            let mut state = self.cluster.state();
            state.stranded.insert(self.intent.owner.clone());
            return Err(failed(Failure::Invalid, invalid.to_string()));
        }
        if let Some(identity) = &self.record.identity {
            self.cluster.track(&self.intent.owner, identity.vmid);
            self.memory(|memory| memory.devices = self.intent.hardware.whole_pci());
            self.hold_again(&view, identity);
        }
        self.settle_tasks()?;
        self.sweep(&view, false).await?;
        let Some(identity) = self.record.identity.clone() else {
            return self.choose(&view).await;
        };
        self.exist(&view, identity).await
    }

    /// A process before this one may have sent what makes the guest a moment ago.
    fn suspect_calls(&self) {
        let begun = self.record.identity.is_some() && self.record.stage < Stage::Made;
        let now = Instant::now();
        self.memory(|memory| {
            if begun && memory.vmid.is_none() {
                memory.unheard.get_or_insert(now);
            }
        });
    }

    /// Nothing is there. While a call may be under way that makes it, something may come yet.
    fn gone_for_good(&mut self) -> Outcome {
        match self.cluster.unheard(&self.intent.owner) {
            None => Outcome::Gone,
            Some(left) => {
                let message =
                    "a call that makes the guest was not answered and may still take effect";
                self.wait(Waiting::Error, message, left)
            }
        }
    }

    /// The last view, or why nothing can be done now.
    pub(crate) fn view(&self) -> Flow<Arc<View>> {
        self.cluster.ready(&self.intent.owner)
    }

    pub(crate) fn kind(&self) -> GuestKind {
        if self.intent.is_container() {
            GuestKind::Lxc
        } else {
            GuestKind::Qemu
        }
    }

    /// The client's handle of the guest on a node.
    pub(crate) fn handle(&self, node: &NodeName, vmid: Vmid) -> pve::Guest {
        let node = self.cluster.client.node(node);
        match self.kind() {
            GuestKind::Qemu => (*node.qemu(vmid)).clone(),
            GuestKind::Lxc => (*node.lxc(vmid)).clone(),
        }
    }

    pub(crate) fn memory<T>(&self, change: impl FnOnce(&mut Memory) -> T) -> T {
        self.cluster.memory(&self.intent.owner, change)
    }

    pub(crate) fn event(&mut self, reason: &'static str, message: impl Into<String>) {
        self.events.push(Event::normal(reason, message));
    }

    pub(crate) fn warn(&mut self, reason: &'static str, message: impl Into<String>) {
        self.events.push(Event::warning(reason, message));
    }

    /// Waits, and makes sure that the owner is woken.
    pub(crate) fn wait(
        &mut self,
        what: Waiting,
        message: impl Into<String>,
        retry: Duration,
    ) -> Outcome {
        self.cluster.remind(&self.intent.owner, retry);
        Outcome::Waiting {
            what,
            message: message.into(),
            retry,
        }
    }

    /// What an error of a call or of a task means here.
    pub(crate) fn trouble(&mut self, doing: &str, error: &pve::Error) -> Outcome {
        if self.find_image_gone(error) {
            return Outcome::Persist;
        }
        let failures = self.memory(|memory| {
            memory.failures += 1;
            memory.failures
        });
        let text = format!("{doing}: {}", trouble::line(error));
        match trouble::judge(error) {
            Trouble::Never(why) => {
                self.warn("Failed", text.clone());
                failed(why, text)
            }
            Trouble::Verify => {
                self.memory(|memory| {
                    memory.model = None;
                    memory.verified = None;
                    memory.fresh = false;
                });
                self.cluster.refresh();
                self.wait(Waiting::Error, text, trouble::backoff(failures))
            }
            Trouble::Wait(what) => {
                if what == Waiting::Unreachable {
                    self.cluster
                        .state()
                        .stranded
                        .insert(self.intent.owner.clone());
                }
                if failures == 1 || failures.is_power_of_two() {
                    self.warn(what.as_str(), text.clone());
                }
                self.wait(what, text, trouble::backoff(failures))
            }
        }
    }

    fn finish(self, outcome: Outcome) -> GuestProgress {
        let facts = self.facts();
        GuestProgress {
            record: self.record,
            outcome,
            facts,
            events: self.events,
        }
    }

    /// Everything known by now.
    pub(crate) fn facts(&self) -> GuestFacts {
        let memory = self.memory(|memory| memory.clone());
        let mut pending = self.record.pending.clone();
        for key in memory.staged.iter().chain(&self.record.foreign_pending) {
            if !pending.contains(key) {
                pending.push(key.clone());
            }
        }
        let mut facts = GuestFacts {
            pending,
            drift: memory.drift.clone(),
            placement: memory.why.clone(),
            stale_first_boot: memory.told_otherwise,
            ..GuestFacts::default()
        };
        let Some(identity) = &self.record.identity else {
            return facts;
        };
        facts.vmid = Some(identity.vmid);
        facts.uuid = Some(identity.uuid);
        if self.record.lost {
            // Whoever has its VMID by now is another.
            return facts;
        }
        if let Some(row) = self.cluster.row(identity.vmid) {
            facts.node = Some(row.node.clone());
            facts.name = Some(row.name.clone());
            facts.uptime = (row.uptime > 0).then_some(row.uptime);
            facts.cpus = Some(row.cpus);
            facts.memory = Some(row.memory);
            facts.memory_used = Some(row.memory_used);
            facts.tags.clone_from(&row.tags);
            facts.lock.clone_from(&row.lock);
            facts.pool.clone_from(&row.pool);
            facts.ha.clone_from(&row.ha);
        }
        facts.power = self.power(identity.vmid, &memory);
        let (wanted, is) = (self.intent.power, facts.power);
        let observed = self.intent.policy.management == Management::Observe;
        if observed && is != PowerFact::Unknown && !wanted.is_met(is) {
            facts.drift.push(Drift {
                key: "power".to_owned(),
                declared: Some(format!("{wanted:?}")),
                found: Some(format!("{is:?}")),
            });
        }
        if let Some((node, _)) = self.newer_node(&memory) {
            facts.node = Some(node);
        }
        facts.agent = memory.guest.answered;
        facts.nics = nics(identity, &memory);
        facts.larger = self.larger(identity);
        if let Some(model) = &memory.model {
            facts.disks = disks(identity, model);
        }
        facts
    }

    /// The disks that came larger from their source than they are declared now.
    fn larger(&self, identity: &Identity) -> Vec<Larger> {
        let declared = self.intent.disks.iter();
        declared
            .filter_map(|disk| {
                let slot = identity.disks.get(&disk.name)?.to_string();
                let has = Size::bytes(*self.record.brought.get(&slot)?);
                let declared = disk.size.filter(|declared| *declared < has)?;
                Some(Larger {
                    disk: disk.name.clone(),
                    has,
                    declared,
                })
            })
            .collect()
    }

    /// The power state: what a task's end told, until the view can know better.
    pub(crate) fn power(&self, vmid: Vmid, memory: &Memory) -> PowerFact {
        let state = self.cluster.state();
        let view = state.view.as_ref();
        let row = view.and_then(|view| view.guests.get(&vmid));
        match (&memory.power, view) {
            (Some((power, at)), Some(view)) if view.asked < *at + LAG => *power,
            (Some((power, _)), None) => *power,
            _ => row.map_or(PowerFact::Unknown, |row| self.listed_power(row)),
        }
    }

    /// The node a task's end told of, while it is newer than the view.
    pub(crate) fn newer_node(&self, memory: &Memory) -> Option<(NodeName, Instant)> {
        let asked = self.cluster.view().map(|view| view.asked);
        memory
            .node
            .clone()
            .filter(|(_, at)| asked.is_none_or(|asked| asked < *at + LAG))
    }
}

/// After so long a call that was not answered has taken effect or never will.
pub(crate) const LATE: Duration = Duration::from_secs(30);

/// How long a view may still show what was before.
pub(crate) const LAG: Duration = Duration::from_secs(12);

fn nics(identity: &Identity, memory: &Memory) -> Vec<NicFacts> {
    let mut nics: Vec<_> = identity.nics.iter().collect();
    nics.sort_by_key(|(_, nic)| nic.index);
    let mut facts: Vec<NicFacts> = nics
        .into_iter()
        .map(|(name, nic)| {
            let seen = memory.guest.nics.iter().find(|seen| seen.mac == nic.mac);
            NicFacts {
                name: name.clone(),
                device: seen.and_then(|seen| seen.device.clone()),
                mac: nic.mac,
                addresses: seen.map(|seen| seen.addresses.clone()).unwrap_or_default(),
            }
        })
        .collect();
    for seen in &memory.guest.nics {
        if !facts.iter().any(|nic| nic.mac == seen.mac) {
            facts.push(seen.clone());
        }
    }
    facts
}

fn disks(identity: &Identity, model: &pve::GuestConfig) -> Vec<DiskFacts> {
    model
        .iter()
        .filter(|(key, value)| {
            (key.parse::<crate::intent::DiskSlot>().is_ok() || *key == "rootfs")
                && !value.contains("media=cdrom")
        })
        .map(|(key, value)| {
            let prop = Prop::parse(key, value);
            DiskFacts {
                name: identity
                    .disks
                    .iter()
                    .find(|(_, s)| s.to_string() == key)
                    .map(|(n, _)| n.clone()),
                slot: key.to_owned(),
                volume: prop
                    .get("file")
                    .or(prop.get("volume"))
                    .unwrap_or_default()
                    .to_owned(),
                size: prop.get("size").and_then(crate::Size::from_pve),
            }
        })
        .collect()
}

/// It can never work like this.
pub(crate) fn failed(why: Failure, message: impl Into<String>) -> Outcome {
    Outcome::Failed {
        why,
        message: message.into(),
    }
}

/// Something is being done.
pub(crate) fn working(step: StepKind, message: impl Into<String>) -> Outcome {
    Outcome::Working {
        step,
        message: message.into(),
    }
}
