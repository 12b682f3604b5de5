//! The name of a task.
//!
//! A call that takes longer returns `UPID:pve1:000004D2:00A1B2C3:65F0C0DE:qmclone:100:root@pam!ci:` and goes on in a
//! worker process of its node. The name alone tells where the task runs, when it began, what it does, to which
//! guest, and for whom; so a task can be found again after a crash from nothing but this text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{InvalidId, NodeName, Vmid};

/// The name of a task, taken apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Upid {
    text: String,
    node: NodeName,
    pid: u64,
    pstart: u64,
    starttime: u64,
    kind: String,
    id: String,
    user: String,
}

impl Upid {
    /// The node the task runs on, which every call about it must go to.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The worker's process id.
    pub fn pid(&self) -> u64 {
        self.pid
    }

    /// The worker's start in kernel ticks since boot.
    pub fn pstart(&self) -> u64 {
        self.pstart
    }

    /// The start in seconds since 1970, by the node's clock.
    pub fn starttime(&self) -> u64 {
        self.starttime
    }

    /// What the task does, such as `qmclone`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What the task works on: a VM ID, for clones that of the source; for other kinds a storage or a file name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The guest the task works on, where its id is one.
    pub fn vmid(&self) -> Option<Vmid> {
        self.id.parse().ok()
    }

    /// The user or token the task runs for.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Upid {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refuse = || InvalidId {
            kind: "task ID",
            text: text.to_owned(),
            rule: "UPID:node:pid:pstart:starttime:type:id:user: with hexadecimal numbers",
        };
        let hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
            (digits.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit()))
                .then(|| u64::from_str_radix(part, 16).ok())
                .flatten()
                .ok_or_else(refuse)
        };
        let parts: Vec<&str> = text.split(':').collect();
        let &["UPID", node, pid, pstart, starttime, kind, id, user, ""] = parts.as_slice() else {
            return Err(refuse());
        };
        let plain =
            |part: &str| !part.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
        if kind.is_empty() || user.is_empty() || ![kind, id, user].into_iter().all(plain) {
            return Err(refuse());
        }
        Ok(Self {
            text: text.to_owned(),
            node: NodeName::new(node).map_err(|_| refuse())?,
            pid: hex(pid, 8..=8)?,
            pstart: hex(pstart, 8..=9)?,
            starttime: hex(starttime, 8..=8)?,
            kind: kind.to_owned(),
            id: id.to_owned(),
            user: user.to_owned(),
        })
    }
}

impl Serialize for Upid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Upid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_upid_is_taken_apart() {
        let upid: Upid = "UPID:pve1:000004D2:00A1B2C3:65F0C0DE:qmclone:100:root@pam!ci:"
            .parse()
            .unwrap();
        assert_eq!(upid.node().as_str(), "pve1");
        assert_eq!(upid.pid(), 1234);
        assert_eq!(upid.starttime(), 0x65F0_C0DE);
        assert_eq!(upid.kind(), "qmclone");
        assert_eq!(upid.vmid().map(Vmid::get), Some(100));
        assert_eq!(upid.user(), "root@pam!ci");
    }

    #[test]
    fn a_long_uptime_has_nine_digits() {
        assert!(
            "UPID:pve1:000004D2:100A1B2C3:65F0C0DE:imgdel:101@dir2:root@pam:"
                .parse::<Upid>()
                .is_ok()
        );
        assert!(
            "UPID:pve1:000004D2:00A1B2C3:65F0C0DE:imgcopy::root@pam:"
                .parse::<Upid>()
                .is_ok()
        );
    }

    #[test]
    fn a_text_without_the_last_colon_is_refused() {
        assert!(
            "UPID:pve1:000004D2:00A1B2C3:65F0C0DE:qmclone:100:root@pam"
                .parse::<Upid>()
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn what_parses_prints_the_same(text in "UPID:[a-z0-9]{1,8}:[0-9A-F]{8}:[0-9A-F]{8,9}:[0-9A-F]{8}:[a-z]{1,9}:[a-z0-9@]{0,9}:[a-z]{1,8}@pam:") {
            let upid: Upid = text.parse().unwrap();
            prop_assert_eq!(upid.to_string(), text);
        }

        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = text.parse::<Upid>();
            let _ = format!("UPID:{text}").parse::<Upid>();
        }
    }
}
