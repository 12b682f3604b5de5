//! Is this a cluster that can work?

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::addresses::{Span, is_host_name};
use super::findings::{Findings, Path};
use crate::infrastructure::v1beta1::{
    IpConfig, Mode, NodeGroup, ProxmoxCluster, ProxmoxClusterSpec, Settings,
};

/// A pool of addresses, where it is described and what it holds.
struct Pool {
    at: Path,
    spans: Vec<Span>,
}

pub(super) fn check(spec: &ProxmoxClusterSpec, at: &Path, out: &mut Findings) {
    let pools = pools(spec, at, out);
    endpoint(spec, at, &pools, out);
    for (number, pool) in pools.iter().enumerate() {
        let overlaps = |other: &&Pool| {
            let ours = pool.spans.iter();
            ours.flat_map(|span| other.spans.iter().map(move |theirs| (span, theirs)))
                .any(|(span, theirs)| span.overlaps(theirs))
        };
        if let Some(other) = pools[..number].iter().find(overlaps) {
            let text = format!(
                "overlaps {}: unless these are separate networks, two machines get one address",
                other.at
            );
            out.warn(&pool.at, text);
        }
    }
    name_servers(&spec.dns_servers, &at.field("dnsServers"), out);
    if let Some(settings) = &spec.settings {
        check_settings(settings, &at.field("settings"), out);
    }
    check_groups(spec, at, out);
    check_names(spec, at, out);
}

fn pools(spec: &ProxmoxClusterSpec, at: &Path, out: &mut Findings) -> Vec<Pool> {
    let mut pools = Vec::new();
    let mut both = |at: &Path, v4: Option<&IpConfig>, v6: Option<&IpConfig>, out: &mut Findings| {
        for (name, config, is6) in [("ipv4Config", v4, false), ("ipv6Config", v6, true)] {
            if let Some(config) = config {
                pools.push(pool(config, is6, at.field(name), out));
            }
        }
    };
    both(
        at,
        spec.ipv4_config.as_ref(),
        spec.ipv6_config.as_ref(),
        out,
    );
    for (number, zone) in spec.zone_config.iter().enumerate() {
        let at = at.field("zoneConfig").index(number);
        both(
            &at,
            zone.ipv4_config.as_ref(),
            zone.ipv6_config.as_ref(),
            out,
        );
        name_servers(&zone.dns_servers, &at.field("dnsServers"), out);
    }
    let instances = spec
        .settings
        .iter()
        .flat_map(|settings| &settings.instances);
    for (number, instance) in instances.enumerate() {
        let Some(network) = &instance.network else {
            continue;
        };
        let at = at
            .field("settings")
            .field("instances")
            .index(number)
            .field("network");
        both(
            &at,
            network.ipv4_config.as_ref(),
            network.ipv6_config.as_ref(),
            out,
        );
        name_servers(&network.dns_servers, &at.field("dnsServers"), out);
    }
    pools
}

fn pool(config: &IpConfig, is6: bool, at: Path, out: &mut Findings) -> Pool {
    let (family, other) = if is6 {
        ("IPv6", "ipv4Config")
    } else {
        ("IPv4", "ipv6Config")
    };
    let mut spans = Vec::new();
    for (number, text) in config.addresses.iter().enumerate() {
        let at = at.field("addresses").index(number);
        match Span::parse(text) {
            Ok(span) if span.is_ipv6() == is6 => spans.push(span),
            Ok(_) => out.error(&at, format!("{text:?} is not {family}: move it to {other}")),
            Err(problem) => out.error(&at, problem),
        }
    }
    if !is6 && config.prefix > 32 {
        out.error(&at.field("prefix"), "an IPv4 prefix is 32 at most");
    }
    if let Some(gateway) = config.gateway.as_deref().filter(|text| !text.is_empty()) {
        let at = at.field("gateway");
        match gateway.parse::<IpAddr>() {
            Ok(address) if address.is_ipv6() == is6 => {}
            Ok(_) => out.error(
                &at,
                format!("{gateway:?} is not {family}, as its addresses are"),
            ),
            Err(_) => out.error(&at, format!("{gateway:?} is not an address")),
        }
    }
    Pool { at, spans }
}

fn name_servers(servers: &[String], at: &Path, out: &mut Findings) {
    for (number, server) in servers.iter().enumerate() {
        if server.parse::<IpAddr>().is_err() {
            let text = format!(
                "{server:?} is not an address: a machine has no one to ask for a name server's name"
            );
            out.error(&at.index(number), text);
        }
    }
}

fn endpoint(spec: &ProxmoxClusterSpec, at: &Path, pools: &[Pool], out: &mut Findings) {
    if spec.control_plane_endpoint_pool.is_some()
        && spec.external_managed_control_plane == Some(true)
    {
        let text = "excludes externalManagedControlPlane: whoever manages the control plane sets its endpoint; leave one out";
        out.error(&at.field("controlPlaneEndpointPool"), text);
    }
    let endpoint = spec.control_plane_endpoint.as_ref();
    let host = endpoint.and_then(|e| e.host.as_deref()).unwrap_or_default();
    let place = at.field("controlPlaneEndpoint");
    if let Some(port) = endpoint.and_then(|e| e.port)
        && !host.is_empty()
        && !(1..=65535).contains(&port)
    {
        out.error(
            &place.field("port"),
            "set a port from 1 to 65535; API servers listen on 6443",
        );
    }
    if host.is_empty() {
        return;
    }
    match host.parse::<IpAddr>() {
        // One that was claimed from a pool is given to nobody else.
        Ok(_) if spec.control_plane_endpoint_pool.is_some() => {}
        Ok(address) => {
            if let Some(pool) = pools
                .iter()
                .find(|pool| pool.spans.iter().any(|span| span.contains(address)))
            {
                let text = format!(
                    "{host} lies in {}, so a machine may be given it: take it out of there, or choose another",
                    pool.at
                );
                out.error(&place.field("host"), text);
            }
        }
        Err(_) if is_host_name(host) => {}
        Err(_) => out.error(
            &place.field("host"),
            format!("{host:?} is neither an address nor a host name"),
        ),
    }
}

fn check_settings(settings: &Settings, at: &Path, out: &mut Findings) {
    let mode = settings.mode.unwrap_or_default();
    let at = at.field("instances");
    let many = mode == Mode::MultiInstance && !settings.instances.is_empty();
    if many && settings.instances.iter().all(|i| i.weight == Some(0)) {
        out.error(&at, "every instance has weight 0, so none takes machines: give one a weight, or leave it out");
    }
    let mut secrets = BTreeSet::new();
    for (number, instance) in settings.instances.iter().enumerate() {
        let at = at.index(number);
        if let Some(secret) = &instance.credentials_ref
            && !secrets.insert(secret)
        {
            let text = format!(
                "Secret {:?} is another instance's too: these are one Proxmox VE twice, unless its url is meant to be",
                secret.name
            );
            out.warn(&at.field("credentialsRef"), text);
        }
        if mode == Mode::Default && number > 0 {
            let text = "mode Default uses the first instance only: set mode to SingleInstance or MultiInstance to use this one";
            out.warn(&at, text);
        }
    }
}

fn check_groups(spec: &ProxmoxClusterSpec, at: &Path, out: &mut Findings) {
    let instances: Vec<&str> = spec
        .settings
        .iter()
        .flat_map(|settings| &settings.instances)
        .map(|instance| instance.name.as_str())
        .collect();
    for (number, NodeGroup { name, instance, .. }) in spec.node_groups.iter().enumerate() {
        let at = at.field("nodeGroups").index(number);
        match instance.as_deref() {
            Some(wanted) if !instances.contains(&wanted) => {
                let text = format!("there is no instance {wanted:?} in settings.instances");
                out.error(&at.field("instance"), text);
            }
            None if !instances.is_empty() => {
                let text = format!(
                    "say which instance the nodes are on: {}",
                    instances.join(", ")
                );
                out.error(&at.field("instance"), text);
            }
            _ => {}
        }
        // Both are failure domains, and those have one name each.
        if instances.contains(&name.as_str()) {
            out.error(
                &at.field("name"),
                format!("{name:?} is an instance's name: choose another"),
            );
        }
    }
}

/// Pools are named after the zone or the instance, so no zone may be called like an instance that has pools.
fn check_names(spec: &ProxmoxClusterSpec, at: &Path, out: &mut Findings) {
    let instances = spec
        .settings
        .iter()
        .flat_map(|settings| &settings.instances);
    let own: BTreeSet<&str> = instances
        .filter(|i| {
            i.network
                .as_ref()
                .is_some_and(|n| n.ipv4_config.is_some() || n.ipv6_config.is_some())
        })
        .map(|instance| instance.name.as_str())
        .collect();
    for (number, zone) in spec.zone_config.iter().enumerate() {
        if own.contains(zone.zone.as_str()) {
            let at = at.field("zoneConfig").index(number).field("zone");
            out.error(
                &at,
                format!(
                    "{:?} is an instance with addresses of its own: choose another name",
                    zone.zone
                ),
            );
        }
    }
}

pub(super) fn check_change(old: &ProxmoxCluster, new: &ProxmoxCluster, out: &mut Findings) {
    let spec = Path::root("spec");
    let host = |cluster: &ProxmoxCluster| {
        let endpoint = cluster.spec.control_plane_endpoint.clone()?;
        endpoint.host.filter(|host| !host.is_empty())
    };
    if let (Some(before), Some(after)) = (host(old), host(new))
        && before != after
    {
        let text = format!(
            "Cluster API has copied {before} into the Cluster and does not follow a change"
        );
        out.warn(&spec.field("controlPlaneEndpoint"), text);
    }
    let names = |cluster: &ProxmoxCluster| -> BTreeSet<String> {
        let instances = cluster.spec.settings.iter().flat_map(|s| &s.instances);
        instances.map(|instance| instance.name.clone()).collect()
    };
    let kept = names(new);
    let used = old.status.iter().flat_map(|status| &status.instances);
    for instance in used.filter(|i| !kept.contains(&i.name)) {
        let machines = instance.machines.unwrap_or_default();
        if machines > 0 {
            let text = format!(
                "instance {:?} is left out but has {machines} machines: they cannot be looked after until it is listed again (weight 0 keeps new ones away)",
                instance.name
            );
            out.warn(&spec.field("settings").field("instances"), text);
        }
    }
}
