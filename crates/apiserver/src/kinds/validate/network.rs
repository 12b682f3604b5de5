//! Services and endpoint slices.

use serde_json::Value;

use super::{Faults, is_empty, list, text};
use crate::names;

pub(super) fn service(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let spec = &object["spec"];
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    if is_empty(&spec["ports"]) && !headless && kind != "ExternalName" {
        faults.required("spec.ports", "");
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    faults.one_of("spec.type", kind, &kinds);
    if kind == "ExternalName" {
        let name = text(spec, "externalName").trim_end_matches('.');
        if name.is_empty() {
            faults.required("spec.externalName", "");
        } else {
            faults.each("spec.externalName", name, names::dns1123_subdomain(name));
        }
    }
    ports(spec, faults);
    let ingress = &object["status"]["loadBalancer"]["ingress"];
    if kind != "LoadBalancer" && !is_empty(ingress) {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        faults.forbidden("status.loadBalancer.ingress", why);
    }
    if let Some(labels) = spec["selector"].as_object() {
        faults
            .0
            .extend(crate::meta::check_labels(labels, "spec.selector"));
    }
    let affinity = text(spec, "sessionAffinity");
    if affinity.is_empty() {
        faults.required("spec.sessionAffinity", "");
    } else {
        faults.one_of("spec.sessionAffinity", affinity, &["ClientIP", "None"]);
    }
    for name in ["internalTrafficPolicy", "externalTrafficPolicy"] {
        let policy = text(spec, name);
        if !policy.is_empty() {
            faults.one_of(&format!("spec.{name}"), policy, &["Cluster", "Local"]);
        }
    }
    if let Some(old) = old {
        let before = &old["spec"];
        let fixed = kind != "ExternalName" && text(before, "type") != "ExternalName";
        let (new, was) = (&spec["clusterIPs"], &before["clusterIPs"]);
        if fixed && !is_empty(was) && list(new).first() != list(was).first() {
            let why = "may not change once set";
            faults.invalid("spec.clusterIPs[0]", new.clone(), why);
        }
    }
}

fn ports(spec: &Value, faults: &mut Faults) {
    let ports = list(&spec["ports"]);
    let mut seen: Vec<&str> = Vec::new();
    let mut taken: Vec<(i64, &str)> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{i}]");
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                faults.required(&format!("{at}.name"), "");
            }
        } else {
            faults.each(&format!("{at}.name"), name, names::dns1123_label(name));
            if seen.contains(&name) {
                faults.duplicate(&format!("{at}.name"), name);
            }
            seen.push(name);
        }
        let number = port["port"].as_i64().unwrap_or_default();
        faults.port(number, &format!("{at}.port"));
        let protocol = text(port, "protocol");
        if protocol.is_empty() {
            faults.required(&format!("{at}.protocol"), "");
        } else {
            faults.one_of(&format!("{at}.protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        }
        if let Some(target) = port["targetPort"].as_i64() {
            faults.port(target, &format!("{at}.targetPort"));
        } else if let Some(target) = port["targetPort"].as_str() {
            faults.each(
                &format!("{at}.targetPort"),
                target,
                names::port_name(target),
            );
        }
        if taken.contains(&(number, protocol)) {
            let key = serde_json::json!({"port": number, "protocol": protocol});
            faults.duplicate(&at, key);
        }
        taken.push((number, protocol));
        if text(spec, "type") == "ClusterIP" && port["nodePort"].as_i64().is_some_and(|n| n != 0) {
            let why = "may not be used when `type` is 'ClusterIP'";
            faults.forbidden(&format!("{at}.nodePort"), why);
        }
    }
}

pub(super) fn slice(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let kind = text(object, "addressType");
    if kind.is_empty() {
        faults.required("addressType", "");
    } else {
        faults.one_of("addressType", kind, &["FQDN", "IPv4", "IPv6"]);
    }
    faults.immutable(object, old, "addressType", "addressType");
    for (i, endpoint) in list(&object["endpoints"]).iter().enumerate() {
        if is_empty(&endpoint["addresses"]) {
            let at = format!("endpoints[{i}].addresses");
            faults.required(&at, "must contain at least 1 address");
        }
        for (j, address) in list(&endpoint["addresses"]).iter().enumerate() {
            let address = address.as_str().unwrap_or_default();
            let at = format!("endpoints[{i}].addresses");
            let parsed = address.parse::<std::net::IpAddr>();
            match (kind, parsed) {
                ("IPv4" | "IPv6", Err(_)) => {
                    let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                    faults.invalid(&format!("{at}[{j}]"), address, why);
                }
                ("IPv4", Ok(found)) if !found.is_ipv4() => {
                    faults.invalid(&at, address, "must be an IPv4 address");
                }
                ("IPv6", Ok(found)) if !found.is_ipv6() => {
                    faults.invalid(&at, address, "must be an IPv6 address");
                }
                _ => {}
            }
        }
    }
}
