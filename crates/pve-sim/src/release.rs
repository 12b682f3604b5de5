//! Which Proxmox VE is simulated.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A release of Proxmox VE whose behaviour the simulator knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Release {
    /// Proxmox VE 8.4.
    #[serde(rename = "8.4")]
    V8_4,
    /// Proxmox VE 9.2.
    #[default]
    #[serde(rename = "9.2")]
    V9_2,
}

impl Release {
    /// The `version` of `GET /version`.
    pub fn version(self) -> &'static str {
        match self {
            Self::V8_4 => "8.4.21",
            Self::V9_2 => "9.2.11",
        }
    }

    /// The `repoid` of `GET /version`.
    pub(crate) fn repoid(self) -> &'static str {
        match self {
            Self::V8_4 => "a6ec8ffc",
            Self::V9_2 => "14a22df3",
        }
    }

    /// Whether this is 9 or later.
    pub fn is_9(self) -> bool {
        self >= Self::V9_2
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V8_4 => "8.4",
            Self::V9_2 => "9.2",
        })
    }
}

/// A release nobody taught the simulator.
#[derive(Debug, thiserror::Error)]
#[error("unknown Proxmox VE release '{0}': the simulator knows 8.4 and 9.2")]
pub struct UnknownRelease(String);

impl FromStr for Release {
    type Err = UnknownRelease;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "8.4" | "8" => Ok(Self::V8_4),
            "9.2" | "9" => Ok(Self::V9_2),
            _ => Err(UnknownRelease(text.to_owned())),
        }
    }
}
