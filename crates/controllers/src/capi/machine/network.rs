//! The addresses of a machine, claimed and awaited.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::cluster_api::{IPAddress, IPAddressClaim};
use api::infrastructure::v1beta1::{Device, Vrf};
use fleet::GuestRecord;
use fleet::intent::Payload;
use fleet::record::Identity;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;

use super::super::address::{self, Given, Pools};
use super::super::netplan::{self, Interface, Outside};
use super::super::networkd::{self, Unit};
use super::super::{Stop, Wait};
use super::Subject;
use crate::context::{Context, namespace};

/// Claims that were made a moment ago and may not show in the watch yet, by namespace and name.
#[derive(Default)]
pub(crate) struct Asked(Mutex<BTreeMap<(String, String), Instant>>);

impl Asked {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a claim was not made just now; from now on it was.
    fn is_new(&self, place: &str, claim: &str) -> bool {
        let mut asked = self.lock();
        let key = (place.to_owned(), claim.to_owned());
        let just_now = |at: &Instant| at.elapsed() < super::MOMENT;
        if asked.get(&key).is_some_and(just_now) {
            return false;
        }
        asked.insert(key, Instant::now());
        true
    }

    /// A claim shows in the watch.
    fn seen(&self, place: &str, claim: &str) {
        self.lock().remove(&(place.to_owned(), claim.to_owned()));
    }
}

/// The interfaces a machine has: as declared, or `net0` with the cluster's addresses, from DHCP where it has none.
pub(super) fn devices(subject: &Subject<'_>) -> Vec<Device> {
    let declared = subject
        .object
        .spec
        .network
        .as_ref()
        .map(|network| &network.network_devices[..]);
    let mut devices = match declared {
        None | Some([]) => vec![Device {
            name: "net0".into(),
            ..Device::default()
        }],
        Some(devices) => devices.to_vec(),
    };
    // The engine numbers interfaces in their order, and `net10` comes after `net9`.
    devices.sort_by_key(|device| device.name.trim_start_matches("net").parse::<u32>().ok());
    let spoken = |device: &Device| {
        device.default_ipv4.is_some()
            || device.default_ipv6.is_some()
            || device.dhcp4 == Some(true)
            || device.dhcp6 == Some(true)
    };
    if !devices.iter().any(spoken) {
        let pools = pools(subject);
        if pools.v4.is_none() && pools.v6.is_none() && devices[0].ip_pool_ref.is_empty() {
            // Nobody has addresses to give but the network itself.
            devices[0].dhcp4 = Some(true);
        } else {
            devices[0].default_ipv4 = pools.v4.map(|_| true);
            devices[0].default_ipv6 = pools.v6.map(|_| true);
        }
    }
    let own = subject
        .instance
        .and_then(|instance| instance.network.as_ref());
    if let (Some(own), Some(net0)) = (own, devices.iter_mut().find(|d| d.name == "net0")) {
        net0.bridge = own.bridge.clone().or(net0.bridge.take());
        net0.vlan = own.vlan.or(net0.vlan);
    }
    devices
}

fn pools<'a>(subject: &'a Subject<'_>) -> Pools<'a> {
    let zone = subject
        .object
        .spec
        .network
        .as_ref()
        .and_then(|network| network.zone.as_deref());
    let instance = subject.instance.map(|instance| instance.name.as_str());
    Pools::of(subject.infrastructure, instance, zone)
}

/// The addresses the machine was given; waits until all are there.
///
/// Before its guest is begun (`unbegun`) a machine may turn to another instance, whose addresses come from another pool: what it
/// claimed before is given back.
pub(super) async fn addresses(
    context: &Context,
    subject: &Subject<'_>,
    unbegun: bool,
) -> Result<Vec<Given>, Stop> {
    let object = subject.object;
    let place = namespace(object);
    let cluster = subject.cluster.name_any();
    let pools = pools(subject);
    let claims: Api<IPAddressClaim> = Api::namespaced(context.client.clone(), &place);
    let addresses: Api<IPAddress> = Api::namespaced(context.client.clone(), &place);
    let mut given = Vec::new();
    let mut waiting = Vec::new();
    let mut asked = false;
    for device in devices(subject) {
        has_pool(&device, &pools)?;
        let owner = subject.infrastructure.name_any();
        for need in address::needs(&object.name_any(), &owner, &device, &pools) {
            let reference = ObjectRef::new(&need.claim).within(&place);
            let Some(claim) = context.stores.claims.get(&reference) else {
                if context.asked.is_new(&place, &need.claim) {
                    asked |= ask(&claims, &address::claim(&need, object, &cluster)).await?;
                } else {
                    asked = true;
                }
                waiting.push(need.claim);
                continue;
            };
            context.asked.seen(&place, &need.claim);
            let conflict = |error: address::Conflict| {
                Wait::new("WaitingForStaticIPAllocation", error.to_string())
            };
            match address::check(&need, &claim, object) {
                Err(address::Conflict::Pool { .. }) if unbegun => {
                    give_back(&claims, &claim).await?;
                    waiting.push(need.claim);
                    continue;
                }
                checked => checked.map_err(conflict)?,
            }
            let name = claim
                .status
                .as_ref()
                .and_then(|status| status.address_ref.as_ref());
            let Some(name) = name else {
                waiting.push(need.claim);
                continue;
            };
            let reference = ObjectRef::new(&name.name).within(&place);
            let address = match context.stores.addresses.get(&reference) {
                Some(address) => (*address).clone(),
                None => addresses.get(&name.name).await?,
            };
            given.push(address::given(&need, &address).map_err(conflict)?);
        }
    }
    if waiting.is_empty() {
        return Ok(given);
    }
    if asked {
        return Err(Stop::Asked);
    }
    Err(Wait::new(
        "WaitingForStaticIPAllocation",
        format!("no address yet for {}", waiting.join(", ")),
    )
    .into())
}

/// An interface that asks for default addresses must have a pool to get one from: a guest without an address never joins.
/// One family is enough where both are asked for, which older versions do for every machine.
fn has_pool(device: &Device, pools: &Pools<'_>) -> Result<(), Wait> {
    let wanted = [
        (
            device.default_ipv4,
            pools.v4.is_some(),
            "defaultIPv4",
            "ipv4Config",
            "dhcp4",
        ),
        (
            device.default_ipv6,
            pools.v6.is_some(),
            "defaultIPv6",
            "ipv6Config",
            "dhcp6",
        ),
    ];
    let mut wanted = wanted
        .into_iter()
        .filter(|(wanted, ..)| *wanted == Some(true))
        .peekable();
    let Some((_, _, flag, config, dhcp)) = wanted.peek().copied() else {
        return Ok(());
    };
    if wanted.any(|(_, has, ..)| has) {
        return Ok(());
    }
    let place = pools
        .place
        .map_or_else(String::new, |place| format!(" for {place:?}"));
    Err(Wait::new(
        "NetworkInvalid",
        format!(
            "{} has {flag}: true, but the ProxmoxCluster describes no {config}{place}: describe one there, or set {dhcp}: true and leave {flag} out",
            device.name
        ),
    ))
}

/// Makes a claim; says whether it was not there already.
async fn ask(claims: &Api<IPAddressClaim>, claim: &IPAddressClaim) -> Result<bool, Stop> {
    match claims.create(&PostParams::default(), claim).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(Wait::new(
            "AddressManagerMissing",
            "the kind IPAddressClaim is not installed; install Cluster API",
        )
        .into()),
        Err(error) => Err(error.into()),
    }
}

/// Gives back what was claimed. That the claim is gone is seen in the watch, and then there is room for another of its name.
async fn give_back(claims: &Api<IPAddressClaim>, claim: &IPAddressClaim) -> Result<(), Stop> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let this_one = Preconditions {
        uid: claim.uid(),
        ..Preconditions::default()
    };
    let params = DeleteParams::default().preconditions(this_one);
    match claims.delete(&claim.name_any(), &params).await {
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        other => other.map(drop).map_err(Stop::from),
    }
}

/// The network configuration the guest reads, in its language, once its hardware addresses are chosen.
pub(super) fn data(
    subject: &Subject<'_>,
    record: &GuestRecord,
    given: &[Given],
    outside: Outside,
) -> Result<Option<Payload>, Wait> {
    let Some(identity) = &record.identity else {
        return Ok(None);
    };
    let devices = devices(subject);
    netplan::render(
        &interfaces(subject, identity, &devices, given),
        vrfs(subject),
        outside,
    )
    .map(|text| Some(Payload::from(text)))
    .map_err(invalid)
}

/// The same as files of systemd-networkd.
pub(super) fn units(
    subject: &Subject<'_>,
    identity: &Identity,
    given: &[Given],
) -> Result<Vec<Unit>, Wait> {
    let devices = devices(subject);
    networkd::render(
        &interfaces(subject, identity, &devices, given),
        vrfs(subject),
    )
    .map_err(invalid)
}

#[expect(clippy::needless_pass_by_value, reason = "it is where an error ends")]
fn invalid(error: netplan::Error) -> Wait {
    Wait::new("NetworkInvalid", error.to_string())
}

fn vrfs<'a>(subject: &'a Subject<'_>) -> &'a [Vrf] {
    let network = subject.object.spec.network.as_ref();
    network.map(|n| n.vrfs.as_slice()).unwrap_or_default()
}

/// Interfaces with what they were given; those whose hardware address is not chosen yet are left out.
fn interfaces<'a>(
    subject: &Subject<'_>,
    identity: &Identity,
    devices: &'a [Device],
    given: &[Given],
) -> Vec<(&'a Device, Interface)> {
    let dns = dns(subject);
    let interface = |device: &Device| {
        let mine = given.iter().filter(|given| given.device == device.name);
        Some(Interface {
            mac: identity.nics.get(&device.name)?.mac.lower(),
            addresses: mine.clone().map(|given| given.address).collect(),
            gateways: mine.filter_map(|given| given.gateway).collect(),
            dns: if device.dns_servers.is_empty() {
                dns.clone()
            } else {
                device.dns_servers.clone()
            },
        })
    };
    devices
        .iter()
        .filter_map(|device| Some((device, interface(device)?)))
        .collect()
}

/// Name servers: the zone's, the instance's, the cluster's.
fn dns(subject: &Subject<'_>) -> Vec<String> {
    let spec = &subject.infrastructure.spec;
    let zone = subject
        .object
        .spec
        .network
        .as_ref()
        .and_then(|network| network.zone.as_deref());
    let of_zone = spec
        .zone_config
        .iter()
        .find(|config| Some(config.zone.as_str()) == zone);
    let of_instance = subject
        .instance
        .and_then(|instance| instance.network.as_ref());
    let nearest = [
        of_zone.map(|zone| &zone.dns_servers),
        of_instance.map(|network| &network.dns_servers),
        Some(&spec.dns_servers),
    ];
    nearest
        .into_iter()
        .flatten()
        .find(|servers| !servers.is_empty())
        .cloned()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use api::infrastructure::v1beta1::IpConfig;

    use super::*;

    #[test]
    fn a_default_address_needs_a_pool_of_a_family_that_is_asked_for() {
        let config = IpConfig::default();
        let pools = |v4: bool, v6: bool| Pools {
            place: None,
            v4: v4.then_some(&config),
            v6: v6.then_some(&config),
        };
        let device = |v4: bool, v6: bool| Device {
            name: "net0".into(),
            default_ipv4: v4.then_some(true),
            default_ipv6: v6.then_some(true),
            ..Device::default()
        };
        assert!(has_pool(&device(true, true), &pools(true, false)).is_ok());
        assert!(has_pool(&device(false, false), &pools(false, false)).is_ok());
        let wait = has_pool(&device(true, false), &pools(false, true)).unwrap_err();
        assert!(wait.message.contains("ipv4Config"), "{}", wait.message);
        assert!(wait.message.contains("dhcp4: true"), "{}", wait.message);
        assert!(has_pool(&device(true, true), &pools(false, false)).is_err());
    }
}
