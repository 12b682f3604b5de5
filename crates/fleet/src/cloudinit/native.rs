//! PVE's own cloud-init: its `ci*` keys.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::Error;
use crate::{
    intent::{Dynamic, GuestIntent, Init, Nic},
    record::NicIdentity,
};

/// What PVE's own cloud-init is told about the first card.
pub(crate) const FIRST_CARD: &str = "ipconfig0";

/// The configuration keys that say what PVE's own cloud-init drive shall hold.
pub(crate) fn native_keys(
    intent: &GuestIntent,
    init: &Init,
    known: &BTreeMap<String, NicIdentity>,
) -> Result<BTreeMap<String, String>, Error> {
    if init.user_data.is_some() || init.vendor_data.is_some() || init.network_data.is_some() {
        return Err(Error::Conflict(
            "PVE's own cloud-init takes user, vendor and network data from files on the host only, \
             which cannot be uploaded: use the NoCloud mode for them"
                .to_owned(),
        ));
    }
    if !init.meta_data.is_empty() || init.instance_id.is_some() || init.hostname.is_some() {
        return Err(Error::Conflict(
            "PVE's own cloud-init makes meta data and host name itself, from the guest's name: use \
             the NoCloud mode to set them"
                .to_owned(),
        ));
    }
    let mut keys = BTreeMap::new();
    keys.insert("citype".to_owned(), "nocloud".to_owned());
    if let Some(user) = &init.user {
        keys.insert("ciuser".to_owned(), user.clone());
    }
    if let Some(password) = &init.password {
        keys.insert(
            "cipassword".to_owned(),
            password.as_text().ok_or(Error::Password)?.to_owned(),
        );
    }
    if !init.ssh_keys.is_empty() {
        keys.insert("sshkeys".to_owned(), urlencode(&init.ssh_keys.join("\n")));
    }
    let dns: Vec<String> = init
        .dns
        .iter()
        .chain(intent.nics.iter().flat_map(|nic| &nic.addressing.dns))
        .map(ToString::to_string)
        .collect();
    if !dns.is_empty() {
        keys.insert("nameserver".to_owned(), dns.join(" "));
    }
    let search: Vec<&str> = init
        .search
        .iter()
        .chain(intent.nics.iter().flat_map(|nic| &nic.addressing.search))
        .map(String::as_str)
        .collect();
    if !search.is_empty() {
        keys.insert("searchdomain".to_owned(), search.join(" "));
    }
    if intent.nics.is_empty() {
        // A card that nothing is said about stays down.
        keys.insert(FIRST_CARD.to_owned(), "ip=dhcp".to_owned());
    }
    for nic in &intent.nics {
        let Some(identity) = known.get(&nic.name) else {
            continue;
        };
        keys.insert(format!("ipconfig{}", identity.index), ipconfig(nic)?);
    }
    Ok(keys)
}

fn ipconfig(nic: &Nic) -> Result<String, Error> {
    let addressing = &nic.addressing;
    if !addressing.routes.is_empty() || addressing.metric.is_some() {
        return Err(Error::Conflict(format!(
            "interface '{}': PVE's own cloud-init knows no routes and metrics: use the NoCloud mode",
            nic.name
        )));
    }
    let one = |v4: bool| -> Result<Option<&IpNet>, Error> {
        let mut found = addressing
            .addresses
            .iter()
            .filter(|net| matches!(net, IpNet::V4(_)) == v4);
        let first = found.next();
        if found.next().is_some() {
            return Err(Error::Conflict(format!(
                "interface '{}': PVE's own cloud-init takes one address per family: use the \
                 NoCloud mode",
                nic.name
            )));
        }
        Ok(first)
    };
    let mut parts = Vec::new();
    match one(true)? {
        Some(net) => parts.push(format!("ip={net}")),
        None if addressing.ipv4 == Dynamic::Dhcp || addressing.is_default() => {
            parts.push("ip=dhcp".to_owned());
        }
        None => {}
    }
    if let Some(gateway) = addressing.gateway4 {
        parts.push(format!("gw={gateway}"));
    }
    match (one(false)?, addressing.ipv6) {
        (Some(net), _) => parts.push(format!("ip6={net}")),
        (None, Dynamic::Dhcp) => parts.push("ip6=dhcp".to_owned()),
        (None, Dynamic::Auto) => parts.push("ip6=auto".to_owned()),
        (None, Dynamic::No) => {}
    }
    if let Some(gateway) = addressing.gateway6 {
        parts.push(format!("gw6={gateway}"));
    }
    Ok(parts.join(","))
}

/// PVE wants the keys encoded once more inside the value, with blanks as `%20`.
fn urlencode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}
