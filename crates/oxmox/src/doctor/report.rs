//! What was found.

use serde::Serialize;

/// All that was found, in the order it was looked at.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    /// The release that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) release: Option<String>,
    pub(super) checks: Vec<Check>,
    pub(super) nodes: Vec<NodeFact>,
    pub(super) storages: Vec<StorageFact>,
    pub(super) templates: Vec<TemplateFact>,
    pub(super) bridges: Vec<BridgeFact>,
    /// What grants the missing privileges, to be run as root on any node.
    pub(super) commands: Vec<String>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    /// What was looked at, in one word.
    pub(super) subject: &'static str,
    pub(super) state: State,
    pub(super) text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    Info,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeFact {
    pub(super) name: String,
    pub(super) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct StorageFact {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) shared: bool,
    pub(super) content: Vec<String>,
    /// The nodes where it can be used now.
    pub(super) nodes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct TemplateFact {
    pub(super) vmid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) node: String,
}

#[derive(Debug, Serialize)]
pub(super) struct BridgeFact {
    pub(super) name: String,
    pub(super) nodes: Vec<String>,
    pub(super) vlan_aware: bool,
}

impl Report {
    pub(super) fn ok(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(subject, State::Ok, text, None);
    }

    pub(super) fn info(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(subject, State::Info, text, None);
    }

    pub(super) fn warn(
        &mut self,
        subject: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(subject, State::Warn, text, Some(fix.into()));
    }

    pub(super) fn fail(
        &mut self,
        subject: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(subject, State::Fail, text, Some(fix.into()));
    }

    pub(super) fn add(
        &mut self,
        subject: &'static str,
        state: State,
        text: impl Into<String>,
        fix: Option<String>,
    ) {
        self.checks.push(Check {
            subject,
            state,
            text: text.into(),
            fix,
        });
    }

    pub(super) fn has_failed(&self) -> bool {
        self.count(State::Fail) > 0
    }

    pub(super) fn count(&self, state: State) -> usize {
        self.checks
            .iter()
            .filter(|check| check.state == state)
            .count()
    }
}
