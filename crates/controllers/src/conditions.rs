//! Conditions, as Kubernetes wants them kept.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Conditions being written for one object at one moment.
pub(crate) struct Conditions {
    before: Vec<Condition>,
    now: Vec<Condition>,
    at: Time,
    generation: Option<i64>,
}

impl Conditions {
    /// Begins from what was last reported; only what is set again stays.
    pub(crate) fn new(before: &[Condition], at: Time, generation: Option<i64>) -> Self {
        Self {
            before: before.to_vec(),
            now: Vec::new(),
            at,
            generation,
        }
    }

    /// Sets a condition. The moment of its last change moves only when its status does.
    pub(crate) fn set(
        &mut self,
        kind: &str,
        status: impl Into<Truth>,
        reason: &str,
        message: impl Into<String>,
    ) {
        let status = status.into().as_str().to_owned();
        let since = self
            .before
            .iter()
            .find(|c| c.type_ == kind && c.status == status)
            .map_or_else(|| self.at.clone(), |c| c.last_transition_time.clone());
        self.now.retain(|c| c.type_ != kind);
        self.now.push(Condition {
            type_: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.into(),
            last_transition_time: since,
            observed_generation: self.generation,
        });
    }

    /// Keeps a condition as it was last reported.
    pub(crate) fn keep(&mut self, kind: &str) {
        if let Some(before) = self.before.iter().find(|c| c.type_ == kind) {
            self.now.push(before.clone());
        }
    }

    /// The conditions, ordered by type.
    pub(crate) fn done(mut self) -> Vec<Condition> {
        self.now.sort_by(|a, b| a.type_.cmp(&b.type_));
        self.now
    }
}

/// A condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Truth {
    fn from(is: bool) -> Self {
        if is { Self::True } else { Self::False }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn the_moment_of_change_moves_with_the_status_only() {
        let mut first = Conditions::new(&[], at(10), Some(1));
        first.set("Ready", false, "Creating", "cloning");
        let first = first.done();
        let mut second = Conditions::new(&first, at(20), Some(1));
        second.set("Ready", false, "Starting", "starting");
        let second = second.done();
        assert_eq!(second[0].last_transition_time, at(10));
        let mut third = Conditions::new(&second, at(30), Some(1));
        third.set("Ready", true, "Settled", "");
        assert_eq!(third.done()[0].last_transition_time, at(30));
    }

    #[test]
    fn what_is_not_set_again_goes() {
        let mut first = Conditions::new(&[], at(1), None);
        first.set("Drifted", true, "Changed", "");
        let mut second = Conditions::new(&first.done(), at(2), None);
        second.set("Ready", true, "Settled", "");
        assert_eq!(second.done().len(), 1);
    }
}
