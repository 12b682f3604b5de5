//! Addresses for machines: one claim per interface and pool, answered by whoever runs the pool.

use std::net::IpAddr;

use api::cluster_api::{
    CLUSTER_NAME_LABEL, IPAddress, IPAddressClaim, IPAddressClaimSpec, ObjectRef,
};
use api::infrastructure::ZONE_LABEL;
use api::infrastructure::v1beta1::{Device, IpConfig, ProxmoxCluster, ProxmoxMachine};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};

use super::netplan::Gateway;

/// The API group of pools and claims.
pub(super) const IPAM_GROUP: &str = "ipam.cluster.x-k8s.io";
const DEFAULT_METRIC: u32 = 100;

/// One address an interface needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Need {
    /// Name of the claim.
    pub(super) claim: String,
    /// The interface, `net0`.
    pub(super) device: String,
    /// The pool it comes from.
    pub(super) pool: ObjectRef,
    /// Its gateway is the machine's way out, with this metric.
    pub(super) default_route: Option<u32>,
}

/// Where the pools of a machine are described: its instance's network, its zone, or the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pools<'a> {
    /// What makes the pool's name its own: an instance's or a zone's name.
    pub(super) place: Option<&'a str>,
    pub(super) v4: Option<&'a IpConfig>,
    pub(super) v6: Option<&'a IpConfig>,
}

impl<'a> Pools<'a> {
    /// The pools a machine takes its default addresses from: nearest wins.
    pub(super) fn of(
        cluster: &'a ProxmoxCluster,
        instance: Option<&str>,
        zone: Option<&str>,
    ) -> Self {
        let spec = &cluster.spec;
        if let Some(zone) = zone.and_then(|name| spec.zone_config.iter().find(|z| z.zone == name)) {
            return Self {
                place: Some(&zone.zone),
                v4: zone.ipv4_config.as_ref(),
                v6: zone.ipv6_config.as_ref(),
            };
        }
        let own = spec
            .settings
            .iter()
            .flat_map(|settings| &settings.instances)
            .find(|i| {
                Some(i.name.as_str()) == instance
                    && i.network
                        .as_ref()
                        .is_some_and(|n| n.ipv4_config.is_some() || n.ipv6_config.is_some())
            });
        match own.and_then(|own| Some((own, own.network.as_ref()?))) {
            Some((own, network)) => Self {
                place: Some(&own.name),
                v4: network.ipv4_config.as_ref(),
                v6: network.ipv6_config.as_ref(),
            },
            None => Self {
                place: None,
                v4: spec.ipv4_config.as_ref(),
                v6: spec.ipv6_config.as_ref(),
            },
        }
    }

    /// The pools' names, with what they hold.
    pub(super) fn named(&self, cluster: &str) -> Vec<(String, &'a IpConfig)> {
        let families = [("v4", self.v4), ("v6", self.v6)];
        families
            .into_iter()
            .filter_map(|(family, config)| Some((pool_name(cluster, self.place, family), config?)))
            .collect()
    }
}

/// The name of a cluster's own pool.
fn pool_name(cluster: &str, place: Option<&str>, family: &str) -> String {
    match place {
        Some(place) => format!("{cluster}-{place}-{family}-icip"),
        None => format!("{cluster}-{family}-icip"),
    }
}

/// The addresses an interface needs, in the order of their claims' numbers.
pub(super) fn needs(machine: &str, cluster: &str, device: &Device, pools: &Pools<'_>) -> Vec<Need> {
    let own = |family: &str, config: Option<&IpConfig>, wanted: Option<bool>| {
        let config = config.filter(|_| wanted == Some(true))?;
        let metric = config.metric.and_then(|m| u32::try_from(m).ok());
        Some((
            ObjectRef {
                api_group: Some(IPAM_GROUP.into()),
                kind: "InClusterIPPool".into(),
                name: pool_name(cluster, pools.place, family),
            },
            Some(metric.unwrap_or(DEFAULT_METRIC)),
        ))
    };
    let further = device.ip_pool_ref.iter().map(|pool| {
        let reference = ObjectRef {
            api_group: Some(pool.api_group.clone().unwrap_or_else(|| IPAM_GROUP.into())),
            kind: pool.kind.clone(),
            name: pool.name.clone(),
        };
        (reference, None)
    });
    [
        own("v4", pools.v4, device.default_ipv4),
        own("v6", pools.v6, device.default_ipv6),
    ]
    .into_iter()
    .flatten()
    .chain(further)
    .enumerate()
    .map(|(number, (pool, default_route))| Need {
        claim: format!("{machine}-{}-{number:02}-inet", device.name),
        device: device.name.clone(),
        pool,
        default_route,
    })
    .collect()
}

/// The zone a machine belongs to, as labels name it.
pub(super) fn zone(machine: &ProxmoxMachine) -> &str {
    let network = machine.spec.network.as_ref();
    network
        .and_then(|network| network.zone.as_deref())
        .unwrap_or("default")
}

/// The claim for an address, owned by its machine so that it goes with it.
pub(super) fn claim(need: &Need, machine: &ProxmoxMachine, cluster: &str) -> IPAddressClaim {
    let mut claim = IPAddressClaim::new(
        &need.claim,
        IPAddressClaimSpec {
            cluster_name: Some(cluster.to_owned()),
            pool_ref: need.pool.clone(),
        },
    );
    claim.metadata = ObjectMeta {
        name: Some(need.claim.clone()),
        namespace: machine.namespace(),
        labels: Some(
            [
                (CLUSTER_NAME_LABEL.to_owned(), cluster.to_owned()),
                (ZONE_LABEL.to_owned(), zone(machine).to_owned()),
            ]
            .into(),
        ),
        owner_references: machine.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    claim
}

/// Why an address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Conflict {
    #[error("IPAddressClaim {0} belongs to another object; delete it, or rename the machine")]
    Owner(String),
    #[error("IPAddressClaim {claim} asks another pool than {pool}; delete it to ask again")]
    Pool { claim: String, pool: String },
    #[error("IPAddress {0} holds no usable address")]
    Address(String),
}

/// Whether a claim is this machine's own and asks the right pool.
pub(super) fn check(
    need: &Need,
    claim: &IPAddressClaim,
    machine: &ProxmoxMachine,
) -> Result<(), Conflict> {
    let owners = claim.owner_references();
    let ours = |owner: &OwnerReference| Some(&owner.uid) == machine.metadata.uid.as_ref();
    if !owners.iter().any(ours) {
        return Err(Conflict::Owner(need.claim.clone()));
    }
    if (&claim.spec.pool_ref.kind, &claim.spec.pool_ref.name) != (&need.pool.kind, &need.pool.name)
    {
        return Err(Conflict::Pool {
            claim: need.claim.clone(),
            pool: need.pool.name.clone(),
        });
    }
    Ok(())
}

/// An address that was given to an interface.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given {
    pub(super) device: String,
    pub(super) address: IpNet,
    pub(super) gateway: Option<Gateway>,
}

/// Reads what a pool has given.
pub(super) fn given(need: &Need, address: &IPAddress) -> Result<Given, Conflict> {
    let unusable = || Conflict::Address(address.name_any());
    let ip: IpAddr = address.spec.address.parse().map_err(|_| unusable())?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = address
        .spec
        .prefix
        .map_or(Ok(most), u8::try_from)
        .map_err(|_| unusable())?;
    let gateway: Option<IpAddr> = match address.spec.gateway.as_deref() {
        None | Some("") => None,
        Some(text) => Some(text.parse().map_err(|_| unusable())?),
    };
    Ok(Given {
        device: need.device.clone(),
        address: IpNet::new(ip, prefix).map_err(|_| unusable())?,
        gateway: need.default_route.and_then(|metric| {
            Some(Gateway {
                address: gateway?,
                metric,
            })
        }),
    })
}

#[cfg(test)]
mod tests {
    use api::infrastructure::v1beta1::PoolRef;

    use super::*;

    fn cluster() -> ProxmoxCluster {
        let spec = serde_json::json!({
            "ipv4Config": {"addresses": ["10.0.0.11-10.0.0.50"], "prefix": 24, "gateway": "10.0.0.1"},
            "ipv6Config": {"addresses": ["2001:db8::/64"], "prefix": 64, "gateway": "2001:db8::1", "metric": 200},
            "zoneConfig": [{"zone": "dmz", "ipv4Config": {"addresses": ["10.9.0.0/24"], "prefix": 24}}],
            "settings": {"mode": "MultiInstance", "instances": [
                {"name": "fra", "network": {"ipv4Config": {"addresses": ["10.5.0.0/24"], "prefix": 24}}},
                {"name": "txl"},
            ]},
        });
        ProxmoxCluster::new("prod", serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn the_nearest_description_of_a_network_wins() {
        let cluster = cluster();
        let names = |instance, zone| -> Vec<String> {
            let pools = Pools::of(&cluster, instance, zone);
            pools
                .named("prod")
                .into_iter()
                .map(|(name, _)| name)
                .collect()
        };
        assert_eq!(names(None, None), ["prod-v4-icip", "prod-v6-icip"]);
        assert_eq!(names(Some("txl"), None), ["prod-v4-icip", "prod-v6-icip"]);
        assert_eq!(names(Some("fra"), None), ["prod-fra-v4-icip"]);
        assert_eq!(names(Some("fra"), Some("dmz")), ["prod-dmz-v4-icip"]);
    }

    #[test]
    fn claims_are_numbered_over_the_pools_of_an_interface() {
        let device = Device {
            name: "net0".into(),
            default_ipv4: Some(true),
            default_ipv6: Some(true),
            ip_pool_ref: vec![PoolRef {
                kind: "GlobalInClusterIPPool".into(),
                name: "extra".into(),
                ..PoolRef::default()
            }],
            ..Device::default()
        };
        let cluster = cluster();
        let needs = needs(
            "worker-1",
            "prod",
            &device,
            &Pools::of(&cluster, None, None),
        );
        let seen: Vec<_> = needs
            .iter()
            .map(|need| {
                (
                    need.claim.as_str(),
                    need.pool.name.as_str(),
                    need.default_route,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("worker-1-net0-00-inet", "prod-v4-icip", Some(100)),
                ("worker-1-net0-01-inet", "prod-v6-icip", Some(200)),
                ("worker-1-net0-02-inet", "extra", None),
            ]
        );
    }

    #[test]
    fn an_address_without_a_gateway_has_no_default_route() {
        let need = Need {
            claim: "c".into(),
            device: "net0".into(),
            pool: ObjectRef::default(),
            default_route: Some(100),
        };
        let mut address = IPAddress::new(
            "a",
            api::cluster_api::IPAddressSpec {
                address: "10.0.0.7".into(),
                prefix: Some(24),
                ..Default::default()
            },
        );
        assert_eq!(given(&need, &address).unwrap().gateway, None);
        address.spec.address = "nonsense".into();
        assert_eq!(given(&need, &address), Err(Conflict::Address("a".into())));
    }
}
