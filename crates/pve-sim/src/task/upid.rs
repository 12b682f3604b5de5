//! The name of a task.

use std::fmt;
use std::str::FromStr;

/// `UPID:node:pid:pstart:starttime:type:id:user:`
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Upid {
    /// The node the task runs on.
    pub node: String,
    /// Its process id.
    pub pid: u32,
    /// When the process started, in hundredths of a second since the host did.
    pub pstart: u64,
    /// When the task started, in seconds since 1970.
    pub starttime: u64,
    /// What it does: `qmstart`.
    pub kind: String,
    /// What it does it to: often a guest's id, may be empty.
    pub id: String,
    /// Who asked for it.
    pub user: String,
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "UPID:{}:{:08X}:{:08X}:{:08X}:{}:{}:{}:",
            self.node, self.pid, self.pstart, self.starttime, self.kind, self.id, self.user
        )
    }
}

/// A text that is no UPID.
#[derive(Debug, thiserror::Error)]
#[error("unable to parse worker upid")]
pub struct NotAUpid;

impl FromStr for Upid {
    type Err = NotAUpid;

    fn from_str(text: &str) -> Result<Self, NotAUpid> {
        let parts: Vec<_> = text.split(':').collect();
        let ["UPID", node, pid, pstart, starttime, kind, id, user, ""] = parts[..] else {
            return Err(NotAUpid);
        };
        let hex = |text: &str, len: std::ops::RangeInclusive<usize>| {
            len.contains(&text.len())
                .then(|| u64::from_str_radix(text, 16).ok())
                .flatten()
                .ok_or(NotAUpid)
        };
        let clean = |text: &str| !text.contains([' ', '\t', '\n', '/']);
        if node.is_empty() || kind.is_empty() || user.is_empty() {
            return Err(NotAUpid);
        }
        if ![node, kind, id, user].into_iter().all(clean) {
            return Err(NotAUpid);
        }
        Ok(Self {
            node: node.to_owned(),
            pid: u32::try_from(hex(pid, 8..=8)?).map_err(|_| NotAUpid)?,
            pstart: hex(pstart, 8..=9)?,
            starttime: hex(starttime, 8..=8)?,
            kind: kind.to_owned(),
            id: id.to_owned(),
            user: user.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_upid_reads_as_it_prints() {
        let text = "UPID:pve1:00004CE6:00028FAD:6AFA0B9E:imgcopy::root@pam!t:";
        let upid: Upid = text.parse().unwrap();
        assert_eq!((upid.kind.as_str(), upid.id.as_str()), ("imgcopy", ""));
        assert_eq!(upid.to_string(), text);
    }

    #[test]
    fn what_is_no_upid_is_refused() {
        for text in [
            "garbage",
            "UPID:pve1:1:1:1:a:b:c:",
            "UPID:pve1:00004CE6:00028FAD:6AFA0B9E:a",
        ] {
            assert!(text.parse::<Upid>().is_err(), "{text}");
        }
    }
}
