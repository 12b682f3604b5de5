//! Addresses and ports that services get from the server.
//!
//! What is taken is known from the services themselves: the set here only keeps two requests at the same
//! time from getting the same. An address that a failed request took comes back when the range runs out.

use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    sync::{Mutex, PoisonError},
};

use serde_json::{Value, json};

use super::Api;
use crate::{
    object,
    registry::{Resource, text},
    status::{Cause, Result, Status},
};

const SERVICES: &str = "/services";
/// The range of addresses: 10.0.0.0/16.
const FIRST: u32 = 0x0a00_0000;
const SIZE: u32 = 1 << 16;
const RANGE: &str = "10.0.0.0/16";
const PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// What is taken.
#[derive(Debug, Default)]
pub(crate) struct Taken(Mutex<Option<Sets>>);

#[derive(Debug, Default)]
struct Sets {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<i64>,
}

impl Sets {
    fn add(&mut self, service: &Value) {
        self.addresses.extend(addresses(service));
        self.ports.extend(node_ports(service));
    }
}

fn addresses(service: &Value) -> impl Iterator<Item = u32> {
    let list = service["spec"]["clusterIPs"].as_array();
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse::<Ipv4Addr>().ok().map(u32::from))
}

fn node_ports(service: &Value) -> impl Iterator<Item = i64> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let ports = ports.filter_map(|port| port["nodePort"].as_i64());
    ports
        .chain(service["spec"]["healthCheckNodePort"].as_i64())
        .filter(|port| *port != 0)
}

fn ports_mut(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    ports.into_iter().flatten()
}

fn has_address(spec: &Value) -> bool {
    text(spec, "type") != "ExternalName"
}

fn has_ports(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

impl Api {
    /// Gives a service the addresses and ports that it needs.
    pub(crate) fn address(
        &self,
        resource: &Resource,
        (old, service): (Option<&Value>, &mut Value),
        dry_run: bool,
    ) -> Result<()> {
        if !resource.is("", "services") {
            return Ok(());
        }
        if let Some(old) = old {
            keep(old, service);
        }
        agree(old, service);
        families(old, service);
        one_family(service)?;
        let mut taken = self
            .services
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if taken.is_none() {
            *taken = Some(self.taken());
        }
        let Some(sets) = taken.as_mut() else {
            return Ok(());
        };
        let mut free = Free {
            api: self,
            sets,
            dry_run,
            name: object::name(service).to_owned(),
        };
        free.cluster_address(old, service)?;
        free.node_ports(old, service)
    }

    /// Gives back what a service had.
    pub(crate) fn release(&self, service: &Value) {
        let mut taken = self
            .services
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(sets) = taken.as_mut() {
            for address in addresses(service) {
                sets.addresses.remove(&address);
            }
            for port in node_ports(service) {
                sets.ports.remove(&port);
            }
        }
    }

    fn taken(&self) -> Sets {
        let mut sets = Sets::default();
        if let Ok(snapshot) = self.store.list(SERVICES, "", None) {
            for entry in &snapshot.entries {
                sets.add(&entry.value());
            }
        }
        sets
    }
}

/// Keeps what a service has already when its writer does not mention it.
fn keep(old: &Value, service: &mut Value) {
    let (before, spec) = (&old["spec"], &mut service["spec"]);
    if has_address(before) && has_address(spec) {
        for name in ["clusterIP", "clusterIPs"] {
            if spec[name].is_null() && !before[name].is_null() && spec["clusterIP"].is_null() {
                spec[name] = before[name].clone();
            }
        }
        if spec["clusterIPs"].is_null() && spec["clusterIP"] == before["clusterIP"] {
            object::put(spec, "clusterIPs", before.get("clusterIPs").cloned());
        }
    } else if !has_address(spec) {
        // An external name has neither addresses nor families of its own.
        for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if spec[name] == before[name] {
                object::put(spec, name, None);
            }
        }
    }
    if has_ports(before) && has_ports(spec) {
        let known: Vec<Value> = before["ports"].as_array().cloned().unwrap_or_default();
        for port in ports_mut(spec) {
            let same = |other: &&Value| {
                other["port"] == port["port"] && other["protocol"] == port["protocol"]
            };
            if port["nodePort"].is_null()
                && let Some(found) = known.iter().find(same)
                && let Some(number) = found.get("nodePort")
            {
                port["nodePort"] = number.clone();
            }
        }
    } else if !has_ports(spec) && text(spec, "type") != "LoadBalancer" {
        for port in ports_mut(spec) {
            let was = |other: &Value| other["nodePort"] == port["nodePort"];
            let kept = before["ports"]
                .as_array()
                .is_some_and(|p| p.iter().any(was));
            if kept {
                object::put(port, "nodePort", None);
            }
        }
    }
    if text(before, "type") == "LoadBalancer" && text(spec, "type") != "LoadBalancer" {
        for name in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if spec[name] == before[name] {
                object::put(spec, name, None);
            }
        }
        service["status"] = json!({"loadBalancer": {}});
    }
    let spec = &mut service["spec"];
    let outside = matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
        || !spec["externalIPs"].is_null() && text(spec, "type") == "ClusterIP";
    if !outside && spec["externalTrafficPolicy"] == before["externalTrafficPolicy"] {
        object::put(spec, "externalTrafficPolicy", None);
    }
}

/// The one address and the list of addresses say the same.
fn agree(old: Option<&Value>, service: &mut Value) {
    let spec = &mut service["spec"];
    let single = spec.get("clusterIP").cloned();
    let first = spec["clusterIPs"].get(0).cloned();
    match (single, first, old) {
        (Some(single), None, _) => spec["clusterIPs"] = json!([single]),
        // Whichever of the two was changed is meant.
        (Some(single), Some(first), Some(old))
            if single != first && spec["clusterIPs"] == old["spec"]["clusterIPs"] =>
        {
            spec["clusterIPs"] = json!([single]);
        }
        (Some(single), Some(first), Some(old))
            if single != first && single == old["spec"]["clusterIP"] =>
        {
            spec["clusterIP"] = first;
        }
        _ => {}
    }
}

/// Which families of addresses a service has; this cluster has one.
fn families(old: Option<&Value>, service: &mut Value) {
    let spec = &mut service["spec"];
    if !has_address(spec) {
        return;
    }
    let bare = text(spec, "clusterIP") == "None" && spec["selector"].is_null();
    if spec["ipFamilyPolicy"].is_null() {
        let before = old.map(|old| &old["spec"]["ipFamilyPolicy"]);
        spec["ipFamilyPolicy"] = match before.filter(|policy| !policy.is_null()) {
            Some(policy) => policy.clone(),
            None if bare => json!("RequireDualStack"),
            None => json!("SingleStack"),
        };
    }
    if spec["ipFamilies"].is_null() {
        let before = old.map(|old| &old["spec"]["ipFamilies"]);
        spec["ipFamilies"] = match before.filter(|families| !families.is_null()) {
            Some(families) => families.clone(),
            None => json!(["IPv4"]),
        };
    }
    let one = spec["ipFamilies"].as_array().is_some_and(|f| f.len() == 1);
    if bare && one && spec["ipFamilyPolicy"] != "SingleStack" {
        let other = if spec["ipFamilies"][0] == "IPv4" {
            "IPv6"
        } else {
            "IPv4"
        };
        let first = spec["ipFamilies"][0].clone();
        spec["ipFamilies"] = json!([first, other]);
    }
}

/// Only a service that has neither selector nor address can be of two families here.
fn one_family(service: &Value) -> Result<()> {
    let spec = &service["spec"];
    let bare = text(spec, "clusterIP") == "None" && spec["selector"].is_null();
    if !has_address(spec) || bare || spec["ipFamilyPolicy"] != "RequireDualStack" {
        return Ok(());
    }
    let why = "this cluster is not configured for dual-stack services";
    let cause = Cause::invalid("spec.ipFamilyPolicy", &spec["ipFamilyPolicy"], why);
    Err(Status::invalid(
        "",
        "Service",
        object::name(service),
        vec![cause],
    ))
}

/// What can be given, while the set of what is taken is held.
struct Free<'a> {
    api: &'a Api,
    sets: &'a mut Sets,
    dry_run: bool,
    name: String,
}

impl Free<'_> {
    fn refuse(&self, cause: Cause) -> Status {
        Status::invalid("", "Service", &self.name, vec![cause])
    }

    fn cluster_address(&mut self, old: Option<&Value>, service: &mut Value) -> Result<()> {
        let spec = &mut service["spec"];
        if !has_address(spec) || text(spec, "clusterIP") == "None" {
            return Ok(());
        }
        if old.is_some_and(|old| {
            has_address(&old["spec"]) && old["spec"]["clusterIP"] == spec["clusterIP"]
        }) {
            return Ok(());
        }
        let asked = text(spec, "clusterIP").to_owned();
        if asked.is_empty() {
            let number = self.any_address()?;
            let address = Ipv4Addr::from(number).to_string();
            spec["clusterIP"] = json!(address);
            spec["clusterIPs"] = json!([address]);
            return Ok(());
        }
        // What is no address at all is for validation.
        let Ok(address) = asked.parse::<Ipv4Addr>() else {
            return Ok(());
        };
        let number = u32::from(address);
        let fault = if !(FIRST..FIRST + SIZE).contains(&number) {
            format!(
                "the provided IP ({address}) is not in the valid range. The range of valid IPs is {RANGE}"
            )
        } else if self.sets.addresses.contains(&number) {
            "provided IP is already allocated".to_owned()
        } else {
            if !self.dry_run {
                self.sets.addresses.insert(number);
            }
            return Ok(());
        };
        let why = format!("failed to allocate IP {address}: {fault}");
        let all = spec["clusterIPs"].clone();
        Err(self.refuse(Cause::invalid("spec.clusterIPs", &all, &why)))
    }

    fn any_address(&mut self) -> Result<u32> {
        if self.dry_run {
            return Ok(FIRST);
        }
        for attempt in 0..2 {
            if attempt == 1 {
                // Nothing left: what failed requests took is free again.
                *self.sets = self.api.taken();
            }
            let start = u32::from_le_bytes(self.api.random_bytes());
            // The first address is the network's, the last one everybody's.
            let found = (0..SIZE - 2)
                .map(|step| FIRST + 1 + start.wrapping_add(step) % (SIZE - 2))
                .find(|number| !self.sets.addresses.contains(number));
            if let Some(number) = found {
                self.sets.addresses.insert(number);
                return Ok(number);
            }
        }
        Err(Status::internal(
            "failed to allocate a serviceIP: range is full",
        ))
    }

    fn node_ports(&mut self, old: Option<&Value>, service: &mut Value) -> Result<()> {
        let known: Vec<i64> = old.map(|old| node_ports(old).collect()).unwrap_or_default();
        let allocate = has_ports(&service["spec"]);
        if matches!(text(&service["spec"], "type"), "ClusterIP" | "ExternalName") {
            return Ok(());
        }
        for (index, port) in ports_mut(&mut service["spec"]).enumerate() {
            let number = match port["nodePort"].as_i64().filter(|n| *n != 0) {
                Some(number) if known.contains(&number) => continue,
                Some(number) => {
                    let fault = if !PORTS.contains(&number) {
                        format!(
                            "provided port is not in the valid range. The range of valid ports is {}-{}",
                            PORTS.start(),
                            PORTS.end()
                        )
                    } else if self.sets.ports.contains(&number) {
                        "provided port is already allocated".to_owned()
                    } else {
                        String::new()
                    };
                    if !fault.is_empty() {
                        let at = format!("spec.ports[{index}].nodePort");
                        return Err(self.refuse(Cause::invalid(&at, &json!(number), &fault)));
                    }
                    number
                }
                None if !allocate => continue,
                None => self.any_port()?,
            };
            if !self.dry_run {
                self.sets.ports.insert(number);
            }
            port["nodePort"] = json!(number);
        }
        Ok(())
    }

    fn any_port(&mut self) -> Result<i64> {
        for attempt in 0..2 {
            if attempt == 1 {
                *self.sets = self.api.taken();
            }
            let size = PORTS.end() - PORTS.start() + 1;
            let start = i64::from(u16::from_le_bytes(self.api.random_bytes()));
            let found = (0..size)
                .map(|step| PORTS.start() + (start + step) % size)
                .find(|port| !self.sets.ports.contains(port));
            if let Some(port) = found {
                return Ok(port);
            }
        }
        Err(Status::internal(
            "failed to allocate a nodePort: range is full",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_without_selector_or_address_are_of_both_families() {
        let mut service = json!({"spec": {"type": "ClusterIP", "clusterIP": "None"}});
        agree(None, &mut service);
        families(None, &mut service);
        assert_eq!(service["spec"]["clusterIPs"], json!(["None"]));
        assert_eq!(service["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
        assert_eq!(service["spec"]["ipFamilyPolicy"], "RequireDualStack");
    }

    #[test]
    fn an_update_keeps_what_it_does_not_mention() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.5",
            "clusterIPs": ["10.0.0.5"], "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}]}});
        let mut new =
            json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
        keep(&old, &mut new);
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.0.0.5"]));
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30001);
        let mut new = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.5"}});
        keep(&old, &mut new);
        assert!(new["spec"].get("ports").is_none(), "{new}");
    }
}
