//! Ingresses and network policies.

use std::net::IpAddr;

use serde_json::Value;

use super::{Faults, is_empty, label_selector, list, text};
use crate::names;

const NO_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const NO_PORT: &str = "must be between 1 and 65535, inclusive";

pub(super) fn ingress(object: &Value, faults: &mut Faults) {
    let spec = &object["spec"];
    if is_empty(&spec["rules"]) && spec["defaultBackend"].is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        faults.invalid("spec", spec["rules"].clone(), why);
    }
    if !spec["defaultBackend"].is_null() {
        backend(&spec["defaultBackend"], "spec.defaultBackend", faults);
    }
    for (i, rule) in list(&spec["rules"]).iter().enumerate() {
        let at = format!("spec.rules[{i}]");
        host(text(rule, "host"), &format!("{at}.host"), faults);
        if rule["http"].is_null() {
            continue;
        }
        let paths = list(&rule["http"]["paths"]);
        if paths.is_empty() {
            faults.required(&format!("{at}.http.paths"), "");
        }
        for (j, path) in paths.iter().enumerate() {
            http_path(path, &format!("{at}.http.paths[{j}]"), faults);
        }
    }
    for (i, tls) in list(&spec["tls"]).iter().enumerate() {
        for (j, name) in list(&tls["hosts"]).iter().enumerate() {
            let at = format!("spec.tls[{i}].hosts[{j}]");
            let name = name.as_str().unwrap_or_default();
            faults.each(&at, name, dns_name(name));
        }
    }
    let class = text(spec, "ingressClassName");
    if !class.is_empty() {
        let wrong = names::dns1123_subdomain(class);
        faults.each("spec.ingressClassName", class, wrong);
    }
}

fn host(host: &str, at: &str, faults: &mut Faults) {
    if host.is_empty() {
        return;
    }
    if host.parse::<IpAddr>().is_ok() {
        let why = "must be a DNS name, not an IP address";
        faults.invalid(at, host, why);
    } else {
        faults.each(at, host, dns_name(host));
    }
}

/// Faults of a DNS name that may begin with a star.
fn dns_name(name: &str) -> Vec<String> {
    if name.contains('*') {
        names::wildcard_subdomain(name)
    } else {
        names::dns1123_subdomain(name)
    }
}

fn http_path(path: &Value, at: &str, faults: &mut Faults) {
    let value = text(path, "path");
    let here = format!("{at}.path");
    match path["pathType"].as_str() {
        None => faults.required(&format!("{at}.pathType"), "pathType must be specified"),
        Some("Exact" | "Prefix") => {
            if !value.starts_with('/') {
                faults.invalid(&here, value, "must be an absolute path");
            }
            if !value.is_empty() {
                for part in ["//", "/./", "/../", "%2f", "%2F"] {
                    if value.contains(part) {
                        faults.invalid(&here, value, format!("must not contain '{part}'"));
                    }
                }
                for end in ["/..", "/."] {
                    if value.ends_with(end) {
                        faults.invalid(&here, value, format!("cannot end with '{end}'"));
                    }
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !value.is_empty() && !value.starts_with('/') {
                faults.invalid(&here, value, "must be an absolute path");
            }
        }
        Some(other) => {
            let known = ["Exact", "ImplementationSpecific", "Prefix"];
            faults.one_of(&format!("{at}.pathType"), other, &known);
        }
    }
    backend(&path["backend"], &format!("{at}.backend"), faults);
}

fn backend(backend: &Value, at: &str, faults: &mut Faults) {
    let service = &backend["service"];
    match (backend["resource"].is_null(), service.is_null()) {
        (false, false) => {
            faults.invalid(at, "", "cannot set both resource and service backends");
        }
        (true, true) => faults.invalid(at, "", "resource or service backend is required"),
        (false, true) => {}
        (true, false) => {
            let name = text(service, "name");
            let here = format!("{at}.service.name");
            if name.is_empty() {
                faults.required(&here, "");
            } else {
                faults.each(&here, name, names::dns1123_label(name));
            }
            let port = &service["port"];
            let (named, number) = (text(port, "name"), port["number"].as_i64().unwrap_or(0));
            match (named.is_empty(), number == 0) {
                (false, false) => {
                    faults.invalid(at, "", "cannot set both port name & port number");
                }
                (true, true) => faults.required(at, "port name or number is required"),
                (false, true) => {
                    let here = format!("{at}.service.port.name");
                    faults.each(&here, named, names::port_name(named));
                }
                (true, false) => faults.port(number, &format!("{at}.service.port.number")),
            }
        }
    }
}

pub(super) fn network_policy(object: &Value, faults: &mut Faults) {
    let spec = &object["spec"];
    label_selector(&spec["podSelector"], "spec.podSelector", faults);
    for (way, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in list(&spec[way]).iter().enumerate() {
            let at = format!("spec.{way}[{i}]");
            for (j, port) in list(&rule["ports"]).iter().enumerate() {
                policy_port(port, &format!("{at}.ports[{j}]"), faults);
            }
            for (j, other) in list(&rule[peers]).iter().enumerate() {
                peer(other, &format!("{at}.{peers}[{j}]"), faults);
            }
        }
    }
    let types = list(&spec["policyTypes"]);
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        faults.invalid("spec.policyTypes", spec["policyTypes"].clone(), why);
        return;
    }
    for (i, kind) in types.iter().enumerate() {
        let kind = kind.as_str().unwrap_or_default();
        let at = format!("spec.policyTypes[{i}]");
        faults.one_of(&at, kind, &["Ingress", "Egress"]);
    }
}

fn policy_port(port: &Value, at: &str, faults: &mut Faults) {
    if let Some(protocol) = port["protocol"].as_str() {
        let here = format!("{at}.protocol");
        faults.one_of(&here, protocol, &["TCP", "UDP", "SCTP"]);
    }
    let (here, last_at) = (format!("{at}.port"), format!("{at}.endPort"));
    let last = port["endPort"].as_i64();
    match &port["port"] {
        Value::Null => {
            if last.is_some() {
                let why = "may not be specified when `port` is not specified";
                faults.invalid(&last_at, last, why);
            }
        }
        Value::String(name) => {
            if last.is_some() {
                faults.invalid(
                    &last_at,
                    last,
                    "may not be specified when `port` is non-numeric",
                );
            }
            faults.each(&here, name, names::port_name(name));
        }
        number => {
            let number = number.as_i64().unwrap_or_default();
            if !(1..=65535).contains(&number) {
                faults.invalid(&here, number, NO_PORT);
            }
            if let Some(last) = last {
                if last < number {
                    // Kubernetes shows the first port here.
                    let why = "must be greater than or equal to `port`";
                    faults.invalid(&last_at, number, why);
                }
                if !(1..=65535).contains(&last) {
                    faults.invalid(&last_at, last, NO_PORT);
                }
            }
        }
    }
}

fn peer(peer: &Value, at: &str, faults: &mut Faults) {
    let mut kinds = 0;
    for name in ["podSelector", "namespaceSelector"] {
        if !peer[name].is_null() {
            kinds += 1;
            label_selector(&peer[name], &format!("{at}.{name}"), faults);
        }
    }
    let block = &peer["ipBlock"];
    if !block.is_null() {
        if kinds > 0 {
            faults.forbidden(at, "may not specify both ipBlock and another peer");
        }
        kinds += 1;
        ip_block(block, &format!("{at}.ipBlock"), faults);
    }
    if kinds == 0 {
        faults.required(at, "must specify a peer");
    }
}

/// The address and the length of `10.0.0.0/8`.
fn cidr(text: &str) -> Option<(u128, u32, u32)> {
    let (address, length) = text.split_once('/')?;
    let (bits, width) = match address.parse().ok()? {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    };
    let length: u32 = length.parse().ok().filter(|length| *length <= width)?;
    Some((bits, width, length))
}

fn ip_block(block: &Value, at: &str, faults: &mut Faults) {
    let (whole, here) = (text(block, "cidr"), format!("{at}.cidr"));
    if whole.is_empty() {
        faults.required(&here, "");
        return;
    }
    let Some((network, width, length)) = cidr(whole) else {
        faults.invalid(&here, whole, NO_CIDR);
        return;
    };
    for (i, part) in list(&block["except"]).iter().enumerate() {
        let part = part.as_str().unwrap_or_default();
        let here = format!("{at}.except[{i}]");
        match cidr(part) {
            None => faults.invalid(&here, part, NO_CIDR),
            Some((inner, other, inner_length)) => {
                let shift = width - length;
                let inside = other == width && (shift == 128 || (network ^ inner) >> shift == 0);
                if !inside || inner_length <= length {
                    faults.invalid(&here, part, "must be a strict subset of `cidr`");
                }
            }
        }
    }
}
