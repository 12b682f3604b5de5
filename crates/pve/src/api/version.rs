//! Which release answers, and what that release can do.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use crate::client::{Call, Client};
use crate::error::{Error, Result};

/// How long a release is believed; a cluster may be upgraded under a client that runs for months.
const BELIEVED: Duration = Duration::from_mins(10);

/// What `/version` says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Version {
    /// Such as `9.2.11`.
    pub version: String,
    /// Such as `9.2`.
    pub release: String,
    /// The commit it was built from.
    #[serde(default)]
    pub repoid: String,
}

impl Version {
    /// The numbers, zero where they cannot be read.
    pub fn numbers(&self) -> Release {
        self.version.parse().unwrap_or_default()
    }
}

/// A release as numbers that compare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The major number: 7, 8 or 9.
    pub major: u32,
    /// The number after the first dot.
    pub minor: u32,
    /// The number after the second dot.
    pub patch: u32,
}

impl Release {
    /// A release without the last number.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self {
            major,
            minor,
            patch: 0,
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Release {
    type Err = std::num::ParseIntError;

    /// Reads `9.2.11`, `9.2` and the old `7.4-16`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(['.', '-', '~']);
        let major = parts.next().unwrap_or_default().parse()?;
        let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        Ok(Self {
            major,
            minor: next(),
            patch: next(),
        })
    }
}

/// The release seen last.
#[derive(Debug, Default)]
pub(crate) struct ReleaseCache(Mutex<Option<(Instant, Release)>>);

impl ReleaseCache {
    fn get(&self) -> Option<Release> {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.filter(|(at, _)| at.elapsed() < BELIEVED)
            .map(|(_, release)| release)
    }

    fn set(&self, release: Release) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), release));
    }
}

impl Client {
    /// The release that answers.
    pub async fn version(&self) -> Result<Version> {
        let call = Call::get("version", "/version");
        let version: Version = self.answer_of_any(call).await?.decode("version")?;
        self.release_cache().set(version.numbers());
        Ok(version)
    }

    /// The release as numbers; asks at most every ten minutes.
    pub async fn release(&self) -> Result<Release> {
        match self.release_cache().get() {
            Some(release) => Ok(release),
            None => Ok(self.version().await?.numbers()),
        }
    }

    /// Refuses what this release lacks, with a message that says so, before the server does with one that does not.
    pub(crate) async fn require(
        &self,
        what: &'static str,
        needs: &'static str,
        has_it: impl FnOnce(Release) -> bool + Send,
    ) -> Result<()> {
        let release = self.release().await?;
        if has_it(release) {
            Ok(())
        } else {
            Err(Error::Unsupported {
                what,
                needs,
                has: release.to_string(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_by_number() {
        let release = |text: &str| text.parse::<Release>().unwrap();
        assert!(release("9.2.11") > release("9.2.9"));
        assert!(release("8.4.21") < Release::new(9, 0));
        assert_eq!(
            release("7.4-16"),
            Release {
                major: 7,
                minor: 4,
                patch: 16
            }
        );
        assert_eq!(release("9.0.0~11"), Release::new(9, 0));
    }
}
