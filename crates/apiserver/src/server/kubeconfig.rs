//! The administrator's kubeconfig.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::pki::Identity;

/// The URL of an address; one that stands for all interfaces is reached on loopback.
pub(super) fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

/// JSON is YAML, so a kubeconfig needs no YAML writer.
pub(super) fn render(address: SocketAddr, ca: &str, admin: &Identity) -> String {
    let encode = |pem: &str| STANDARD.encode(pem);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "oxmox", "cluster": {
            "server": url(address),
            "certificate-authority-data": encode(ca),
        }}],
        "users": [{"name": "oxmox-admin", "user": {
            "client-certificate-data": encode(&admin.certificate),
            "client-key-data": encode(&admin.key),
        }}],
        "contexts": [{"name": "oxmox", "context": {
            "cluster": "oxmox", "user": "oxmox-admin", "namespace": "default",
        }}],
        "current-context": "oxmox",
    });
    format!("{config:#}\n")
}
