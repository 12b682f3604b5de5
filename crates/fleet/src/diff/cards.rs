//! Network cards.

use super::{Changes, set};
use crate::{intent::Mac, prop::Prop};

/// Says about an interface what is declared, and leaves the rest as it is.
pub(super) fn card(
    changes: &mut Changes,
    key: &str,
    mut said: Prop,
    mac: Option<Mac>,
    found: &str,
) {
    let mut there = Prop::parse(key, found);
    let is_model = |(_, value): &(&str, &str)| value.parse::<Mac>().is_ok();
    let model = |card: &Prop| card.items().find(is_model).map(|(name, _)| name.to_owned());
    let (wanted, has) = (model(&said), model(&there));
    if let (None, Some(has), Some(mac)) = (&wanted, &has, mac) {
        said.set(has, mac.to_string());
    }
    let is_so = |(name, value): (&str, &str)| {
        let has = there.get(name);
        has.is_some_and(|has| has.eq_ignore_ascii_case(value))
    };
    if said.items().all(is_so) {
        return;
    }
    if let (Some(_), Some(has)) = (wanted, has) {
        there.remove(&has);
    }
    set(changes, key, said.over(&there).print(key), Some(found));
}

/// Items PVE itself adds to an interface.
pub(super) const CARRIED: &[&str] = &["firewall", "link_down"];

/// The interface of a copy, of which no more is known than what it keeps of its source's. Its hardware address is new: any value
/// that differs will do.
pub(crate) fn copied_card(key: &str, card: &str) -> String {
    let source = Prop::parse(key, card);
    let mut copy = Prop::parse(key, "virtio,bridge=?");
    for name in CARRIED {
        copy.maybe(name, source.get(name));
    }
    copy.print(key)
}
