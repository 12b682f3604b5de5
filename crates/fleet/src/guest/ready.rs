//! Hearing from the guest itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use pve::GuestKind;
use tokio::time::Instant;

use super::{Flow, Pass};
use crate::{
    NodeName, Outcome, Owner, Waiting,
    facts::NicFacts,
    habit::{Habit, Pace},
    intent::{Mac, Source},
    prop::Prop,
    record::{Identity, Stage},
};

/// Between questions that nothing is known about.
const SHORTEST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_mins(1);
/// Between questions to a guest that has been silent for hours: it may have no agent at all.
const SELDOM: Duration = Duration::from_mins(10);
/// How long one of PVE's few workers waits for an agent that is not there yet: time that others lose.
const VAIN: Duration = Duration::from_secs(3);
/// From so many guests on that are waited for at once, others lose it indeed.
const MANY: usize = 8;
/// What has been running for longer than this has booted.
const BOOTED: Duration = Duration::from_mins(2);
/// Of so many kinds of guests it is remembered how long they take.
const REMEMBERED: usize = 64;

/// Between a guest's answer that had not everything in it and the next question.
const SOON: Duration = Duration::from_secs(5);
/// Whoever has no address after that will have none soon.
const LEASED: Duration = Duration::from_mins(5);

/// A guest that has answered is asked again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Again {
    since: Instant,
    next: Instant,
    last: Instant,
}

impl Again {
    /// More and more seldom for some minutes, until all its interfaces have addresses.
    pub(crate) fn for_a_while() -> Self {
        let since = Instant::now();
        Self {
            since,
            next: since + SOON,
            last: since + LEASED,
        }
    }

    /// Now, whatever it says.
    pub(crate) fn once() -> Self {
        let now = Instant::now();
        Self {
            since: now,
            next: now,
            last: now,
        }
    }

    /// What comes after a question just now.
    fn after(self, now: Instant) -> Option<Self> {
        let next = now + (now - self.since).clamp(SOON, LONGEST);
        (next <= self.last).then_some(Self { next, ..self })
    }
}

/// Guests that take about the same time until they answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alike {
    kind: GuestKind,
    /// What they were made from.
    source: String,
    /// The first boot, which has more to do than others.
    first: bool,
}

/// How long guests take until they answer, learned from those that did.
#[derive(Debug, Default)]
pub(crate) struct Boots {
    habits: BTreeMap<Alike, Habit>,
    /// Whose guests are being waited for.
    waiting: BTreeSet<Owner>,
}

impl Boots {
    fn of(&mut self, alike: &Alike) -> &mut Habit {
        let known = self.habits.contains_key(alike);
        if self.habits.len() >= REMEMBERED && !known {
            self.habits.pop_first();
        }
        let guess = match alike.kind {
            GuestKind::Qemu => Duration::from_secs(15),
            // There is no kernel to load.
            GuestKind::Lxc => Duration::from_secs(2),
        };
        let first = Alike {
            first: true,
            ..alike.clone()
        };
        let similar = self.habits.get(&first).map(Habit::begun_anew);
        let habit = self.habits.entry(alike.clone());
        habit.or_insert_with(|| similar.unwrap_or_else(|| Habit::guess(guess, Pace::Free)))
    }

    /// Whether any guest is being waited for.
    pub(crate) fn are_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Nobody waits for this owner's guest.
    pub(crate) fn forget(&mut self, owner: &Owner) {
        self.waiting.remove(owner);
    }

    /// The age at which to ask next a guest that was silent at this one.
    fn next(&mut self, alike: &Alike, silent: Duration) -> Duration {
        let many = self.waiting.len() > MANY;
        let habit = self.of(alike);
        let planned = match (alike.first, alike.kind) {
            (true, GuestKind::Qemu) if many => habit.dear(VAIN),
            (true, _) => habit.questions().to_vec(),
            (false, _) => habit.unhurried(),
        };
        let longest = (silent / 10).clamp(LONGEST, SELDOM);
        let pause = (silent / 2).clamp(SHORTEST, longest);
        let next = planned.into_iter().find(|age| *age > silent);
        next.unwrap_or(silent + pause)
    }
}

/// Whether PVE's word for a system means one of the Windows.
fn is_windows(system: &str) -> bool {
    system.starts_with('w')
}

impl Pass<'_> {
    /// Asks for addresses when it is time. An agent that is not there yet costs PVE three seconds of one of its few
    /// workers, so it is asked seldom, and first about when it should be there.
    pub(super) async fn ask_guest(
        &mut self,
        identity: &Identity,
        node: &NodeName,
    ) -> Flow<Option<Outcome>> {
        let now = Instant::now();
        let alike = self.alike();
        let ran = self.ran_before(identity);
        let (booted, silent) = self.memory(|memory| {
            let guest = &mut memory.guest;
            guest.found |= ran.is_some() && guest.booted.is_none();
            let booted = *guest.booted.get_or_insert(ran.unwrap_or(now));
            (booted, guest.silent)
        });
        // What others that boot at the same time have taught meanwhile counts, too.
        let next = {
            let mut state = self.cluster.state();
            state.boots.waiting.insert(self.intent.owner.clone());
            booted + state.boots.next(&alike, silent)
        };
        if now < next {
            return Ok(Some(self.not_heard(next - now, booted)));
        }
        let asked = now - booted;
        let answer = self.interfaces(identity, node).await;
        let now = Instant::now();
        match answer {
            Ok(nics) => {
                if nics.iter().any(|nic| !nic.addresses.is_empty()) || self.intent.nics.is_empty() {
                    self.heard(identity, &nics, &alike, asked);
                    return Ok(None);
                }
            }
            Err(
                pve::Error::AgentAbsent {
                    configured: false, ..
                }
                | pve::Error::Unsupported { .. }
                | pve::Error::NotImplemented { .. },
            ) => {
                // There will never be an answer (before 8.1 PVE asks no containers); whoever waits for one must know.
                self.memory(|memory| memory.guest.mute = true);
                self.cluster.state().boots.forget(&self.intent.owner);
                return Ok(Some(Outcome::Persist));
            }
            Err(
                pve::Error::AgentAbsent { .. }
                | pve::Error::Agent { .. }
                | pve::Error::NotRunning { .. },
            ) => {}
            Err(error) => return Err(self.node_trouble(node, "asking the guest's agent", &error)),
        }
        let silent = now - booted;
        let next = booted + self.cluster.state().boots.next(&alike, silent);
        self.memory(|memory| memory.guest.silent = silent);
        Ok(Some(self.not_heard(next - now, booted)))
    }

    /// Asks a guest that has answered once more, when it is time: leases come late, and cards are plugged in while it runs. Nothing
    /// waits for that.
    pub(super) async fn ask_again(&mut self, identity: &Identity, node: &NodeName) {
        let Some(again) =
            self.memory(|memory| memory.guest.again.filter(|_| memory.guest.answered))
        else {
            return;
        };
        let now = Instant::now();
        if now < again.next {
            self.cluster.remind(&self.intent.owner, again.next - now);
            return;
        }
        let answer = self.interfaces(identity, node).await;
        let now = Instant::now();
        let mut whole = false;
        // Who says nothing just now has not lost what it had.
        let has_some = |nics: &Vec<NicFacts>| nics.iter().any(|nic| !nic.addresses.is_empty());
        if let Some(nics) = answer.ok().filter(has_some) {
            whole = self.is_whole(identity, &nics);
            let told = self.facts().addresses();
            self.memory(|memory| memory.guest.nics = nics);
            let addresses = self.facts().addresses();
            let is_new = |it: &IpAddr| !told.contains(it);
            if addresses.len() != told.len() || addresses.iter().any(is_new) {
                // The same in another order are no news.
                self.tell(&addresses);
            }
        }
        let next = again.after(now).filter(|_| !whole);
        self.memory(|memory| memory.guest.again = next);
        if let Some(again) = next {
            self.cluster.remind(&self.intent.owner, again.next - now);
        }
    }

    /// The guest's interfaces that have a hardware address, as it says itself.
    async fn interfaces(&self, identity: &Identity, node: &NodeName) -> pve::Result<Vec<NicFacts>> {
        let node = self.cluster.client.node(node);
        let list: Vec<_> = match self.kind() {
            GuestKind::Qemu => {
                let list = node.qemu(identity.vmid).agent_interfaces().await?;
                let all = list.into_iter().map(|nic| {
                    let addresses = nic.addresses.into_iter().map(|a| a.address);
                    (nic.name, nic.mac, addresses.collect())
                });
                all.collect()
            }
            GuestKind::Lxc => {
                let list = node.lxc(identity.vmid).interfaces().await?;
                let all = list.into_iter().map(|nic| {
                    let addresses = [nic.inet, nic.inet6].into_iter().flatten();
                    let plain =
                        addresses.map(|a| a.split('/').next().unwrap_or_default().to_owned());
                    (nic.name, nic.hwaddr, plain.collect())
                });
                all.collect()
            }
        };
        Ok(interfaces(&list))
    }

    /// Whether every declared interface that could have an address has one, of each family it is to have.
    fn is_whole(&self, identity: &Identity, nics: &[NicFacts]) -> bool {
        let mut declared = self.intent.nics.iter();
        declared.all(|nic| {
            let known = identity.nics.get(&nic.name);
            let has = |known: &crate::record::NicIdentity| {
                let there = nics.iter().filter(|nic| nic.mac == known.mac);
                let there: Vec<IpAddr> = there.flat_map(|nic| nic.addresses.clone()).collect();
                let (v4, v6) = nic.addressing.families();
                !there.is_empty()
                    && (!v4 || there.iter().any(IpAddr::is_ipv4))
                    && (!v6 || there.iter().any(IpAddr::is_ipv6))
            };
            nic.link_down == Some(true) || known.is_none_or(has)
        })
    }

    fn tell(&mut self, addresses: &[IpAddr]) {
        let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        self.event("Addresses", format!("the guest has {}", all.join(", ")));
    }

    /// Whether PVE talks to an agent in the guest, and what runs in it, is remembered longer than its configuration.
    pub(super) fn learn_inside(&mut self) {
        if let Some(model) = self.memory(|memory| memory.model.clone()) {
            let agent = model.get("agent").map(|text| Prop::parse("agent", text));
            self.record.agent = agent.is_some_and(|agent| agent.get("enabled") == Some("1"));
            self.record.windows = model.get("ostype").is_some_and(is_windows);
        }
    }

    /// Whether Windows runs in the guest, as far as it is declared or was read.
    pub(super) fn has_windows(&self) -> bool {
        let declared = self.intent.hardware.os_type.as_deref();
        declared.map_or(self.record.windows, is_windows)
    }

    /// When a guest was started that has been running for longer than it takes to boot, as far as the list shows.
    fn ran_before(&self, identity: &Identity) -> Option<Instant> {
        let uptime = Duration::from_secs(self.cluster.row(identity.vmid)?.uptime);
        let started = Instant::now().checked_sub(uptime)?;
        (uptime > BOOTED).then_some(started)
    }

    fn alike(&self) -> Alike {
        Alike {
            kind: self.kind(),
            source: match &self.intent.source {
                Source::Template { from, .. } => from.to_string(),
                Source::Iso { volume }
                | Source::Volume { volume }
                | Source::Backup { volume }
                | Source::ContainerTemplate { volume } => volume.clone(),
                Source::Empty => String::new(),
            },
            first: self.record.stage < Stage::Settled,
        }
    }

    fn not_heard(&mut self, pause: Duration, booted: Instant) -> Outcome {
        let seconds = booted.elapsed().as_secs();
        let hint = if self.record.early.is_some() {
            "; somebody started it before it was configured, so it may have read what was meant for another: if it stays \
             silent, delete it and make it anew"
        } else if seconds > 300 {
            "; is the guest agent installed, and does the network give addresses?"
        } else {
            ""
        };
        self.wait(
            Waiting::Guest,
            format!("the guest runs and has not reported addresses yet{hint}"),
            pause,
        )
    }

    fn heard(&mut self, identity: &Identity, nics: &[NicFacts], alike: &Alike, asked: Duration) {
        let whole = self.is_whole(identity, nics);
        let (silent, found) = self.memory(|memory| {
            let guest = &mut memory.guest;
            guest.answered = true;
            guest.nics = nics.to_vec();
            // Who has been running for long has what it will have.
            let again = !whole && !guest.found;
            guest.again = again.then(Again::for_a_while);
            (guest.silent, guest.found)
        });
        let mut state = self.cluster.state();
        if !found {
            state.boots.of(alike).learn(silent, asked);
        }
        state.boots.forget(&self.intent.owner);
        drop(state);
        if found {
            // It has had them all along.
            return;
        }
        let all: Vec<IpAddr> = nics.iter().flat_map(|nic| nic.addresses.clone()).collect();
        self.tell(&all);
    }
}

/// The guest's interfaces that have a hardware address, with usable addresses.
fn interfaces(list: &[(String, Option<String>, Vec<String>)]) -> Vec<NicFacts> {
    list.iter()
        .filter_map(|(name, mac, addresses)| {
            let mac: Mac = mac.as_deref()?.parse().ok()?;
            let addresses = addresses
                .iter()
                .filter_map(|text| text.parse().ok())
                .filter(usable)
                .collect();
            Some(NicFacts {
                name: name.clone(),
                device: Some(name.clone()),
                mac,
                addresses,
            })
        })
        .collect()
}

fn usable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_link_local() && !v4.is_loopback() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_unicast_link_local() && !v6.is_loopback() && !v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks a guest that answers after `took`; says how late it was heard, and after how many questions.
    fn follow(boots: &mut Boots, alike: &Alike, took: u64) -> (Duration, usize) {
        let took = Duration::from_secs(took);
        let mut silent = Duration::ZERO;
        for count in 1.. {
            let at = boots.next(alike, silent);
            if at >= took {
                boots.of(alike).learn(silent, at);
                return (at.saturating_sub(took), count);
            }
            // PVE waits for an agent before it says that there is none.
            silent = at + Duration::from_secs(3);
        }
        unreachable!("a guest answers some time");
    }

    #[test]
    fn one_guest_that_was_slow_holds_up_no_other() {
        let alike = Alike {
            kind: GuestKind::Qemu,
            source: "name 'ubuntu'".to_owned(),
            first: true,
        };
        let mut boots = Boots::default();
        for _ in 0..10 {
            follow(&mut boots, &alike, 20);
        }
        follow(&mut boots, &alike, 300);
        for _ in 0..5 {
            let (late, count) = follow(&mut boots, &alike, 20);
            assert!(late < Duration::from_secs(5), "heard {late:?} late");
            assert!(count <= 3, "asked {count} times");
        }
        let container = Alike {
            kind: GuestKind::Lxc,
            ..alike
        };
        let (late, _) = follow(&mut boots, &container, 2);
        assert!(late < Duration::from_secs(6), "heard {late:?} late");
    }

    #[test]
    fn a_guest_that_never_answers_is_asked_more_and_more_seldom() {
        let alike = Alike {
            kind: GuestKind::Qemu,
            source: "name 'ubuntu'".to_owned(),
            first: true,
        };
        let mut boots = Boots::default();
        let (mut silent, mut asked) = (Duration::ZERO, 0);
        while silent < Duration::from_hours(24) {
            silent = boots.next(&alike, silent) + VAIN;
            asked += 1;
        }
        assert!(asked < 200, "asked {asked} times in a day");
    }

    #[test]
    fn link_local_and_loopback_addresses_are_not_addresses_of_a_guest() {
        let list = vec![
            (
                "lo".to_owned(),
                Some("00:00:00:00:00:00".to_owned()),
                vec!["127.0.0.1".to_owned()],
            ),
            (
                "eth0".to_owned(),
                Some("bc:24:11:00:00:01".to_owned()),
                vec![
                    "fe80::1%eth0".to_owned(),
                    "fe80::1".to_owned(),
                    "10.0.0.5".to_owned(),
                ],
            ),
        ];
        let nics = interfaces(&list);
        assert_eq!(nics.len(), 1);
        assert_eq!(
            nics[0].addresses,
            vec!["10.0.0.5".parse::<IpAddr>().unwrap()]
        );
    }
}
