//! Hearing from the guest itself.

use std::{net::IpAddr, time::Duration};

use pve::GuestKind;
use tokio::time::Instant;

use super::{Flow, Pass};
use crate::{NodeName, Outcome, Waiting, facts::NicFacts, intent::Mac, record::Identity};

/// The first guest of a cluster is asked after this long; later ones when it has been learned.
const FIRST_GUESS: Duration = Duration::from_secs(10);
const SHORTEST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_mins(1);

impl Pass<'_> {
    /// Asks for addresses when it is time. An agent that is not there yet costs PVE three seconds of one of its few
    /// workers, so it is asked seldom, and first about when it should be there.
    pub(super) async fn ask_guest(
        &mut self,
        identity: &Identity,
        node: &NodeName,
    ) -> Flow<Option<Outcome>> {
        let now = Instant::now();
        let usual = self.cluster.state().boot.unwrap_or(FIRST_GUESS);
        let (booted, next) = self.memory(|memory| {
            let booted = *memory.guest.booted.get_or_insert(now);
            let next = *memory.guest.next.get_or_insert(booted + usual);
            (booted, next)
        });
        if now < next {
            return Ok(Some(self.not_heard(next - now, booted)));
        }
        let answer = match self.kind() {
            GuestKind::Qemu => {
                let qemu = self.cluster.client.node(node).qemu(identity.vmid);
                qemu.agent_interfaces().await.map(|list| {
                    list.into_iter()
                        .map(|nic| {
                            (
                                nic.name,
                                nic.mac,
                                nic.addresses.into_iter().map(|a| a.address).collect(),
                            )
                        })
                        .collect::<Vec<(String, Option<String>, Vec<String>)>>()
                })
            }
            GuestKind::Lxc => {
                let lxc = self.cluster.client.node(node).lxc(identity.vmid);
                lxc.interfaces().await.map(|list| {
                    list.into_iter()
                        .map(|nic| {
                            let addresses = [nic.inet, nic.inet6].into_iter().flatten();
                            let plain = addresses
                                .map(|a| a.split('/').next().unwrap_or_default().to_owned());
                            (nic.name, nic.hwaddr, plain.collect())
                        })
                        .collect()
                })
            }
        };
        let now = Instant::now();
        match answer {
            Ok(list) => {
                let nics = interfaces(&list);
                if nics.iter().any(|nic| !nic.addresses.is_empty()) || self.intent.nics.is_empty() {
                    self.heard(&nics, now - booted);
                    return Ok(None);
                }
            }
            Err(pve::Error::AgentAbsent {
                configured: false, ..
            }) => {
                // There will never be an answer; whoever waits for one must know.
                self.memory(|memory| memory.guest.mute = true);
                return Ok(Some(Outcome::Persist));
            }
            Err(
                pve::Error::AgentAbsent { .. }
                | pve::Error::Agent { .. }
                | pve::Error::NotRunning { .. },
            ) => {}
            Err(error) => return Err(self.node_trouble(node, "asking the guest's agent", &error)),
        }
        let pause = ((now - booted) / 2).clamp(SHORTEST, LONGEST);
        self.memory(|memory| memory.guest.next = Some(now + pause));
        Ok(Some(self.not_heard(pause, booted)))
    }

    fn not_heard(&mut self, pause: Duration, booted: Instant) -> Outcome {
        let seconds = booted.elapsed().as_secs();
        let hint = if seconds > 300 {
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

    fn heard(&mut self, nics: &[NicFacts], took: Duration) {
        self.memory(|memory| {
            memory.guest.answered = true;
            memory.guest.nics = nics.to_vec();
        });
        // Learn upward fast and downward slowly: asking in vain is what costs.
        let mut state = self.cluster.state();
        let usual = state.boot.unwrap_or(took);
        state.boot = Some(if took > usual {
            took
        } else {
            (usual * 3 + took) / 4
        });
        drop(state);
        let all: Vec<String> = nics
            .iter()
            .flat_map(|nic| &nic.addresses)
            .map(ToString::to_string)
            .collect();
        self.event("Addresses", format!("the guest has {}", all.join(", ")));
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
