//! Power as people write it, YAML 1.1 included.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

/// Whether a guest should run, and how it is stopped when it should not.
///
/// `On` and `Off` are booleans in YAML 1.1, so kubectl sends `powerState: On` as `true`. Both spellings
/// mean the same here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum PowerState {
    /// Running.
    #[default]
    On,
    /// Stopped: asked to shut down first, cut off when the timeout passes.
    Off,
    /// The same as `Off`.
    OffGraceful,
    /// Stopped at once, as if the plug were pulled.
    OffHard,
    /// In memory, not executing.
    Paused,
    /// Written to disk and stopped; resumes where it was.
    Suspended,
}

impl PowerState {
    const ALL: [(Self, &'static str); 6] = [
        (Self::On, "On"),
        (Self::Off, "Off"),
        (Self::OffGraceful, "OffGraceful"),
        (Self::OffHard, "OffHard"),
        (Self::Paused, "Paused"),
        (Self::Suspended, "Suspended"),
    ];

    /// The word users write.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::Off => "Off",
            Self::OffGraceful => "OffGraceful",
            Self::OffHard => "OffHard",
            Self::Paused => "Paused",
            Self::Suspended => "Suspended",
        }
    }
}

impl<'de> Deserialize<'de> for PowerState {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Bool(bool),
            Word(String),
        }
        match Written::deserialize(from)? {
            Written::Bool(true) => Ok(Self::On),
            Written::Bool(false) => Ok(Self::Off),
            Written::Word(word) => Self::ALL
                .into_iter()
                .find_map(|(state, name)| (name == word).then_some(state))
                .ok_or_else(|| {
                    de::Error::custom(format_args!(
                        "unknown power state {word:?}: use On, Off, OffGraceful, OffHard, Paused or Suspended"
                    ))
                }),
        }
    }
}

impl JsonSchema for PowerState {
    fn schema_name() -> Cow<'static, str> {
        "PowerState".into()
    }

    fn inline_schema() -> bool {
        true
    }

    // A structural schema may leave `type` out only with one of the x-kubernetes escapes, and
    // int-or-string does not cover booleans. The enum then does the checking, in the API server's own
    // words ("Unsupported value: …: supported values: …").
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut values: Vec<serde_json::Value> =
            Self::ALL.iter().map(|(_, n)| (*n).into()).collect();
        values.extend([true.into(), false.into()]);
        json_schema!({
            "x-kubernetes-preserve-unknown-fields": true,
            "enum": values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_booleans_mean_on_and_off() {
        for (written, meant) in [
            ("true", PowerState::On),
            ("false", PowerState::Off),
            ("\"On\"", PowerState::On),
            ("\"OffGraceful\"", PowerState::OffGraceful),
        ] {
            assert_eq!(serde_json::from_str::<PowerState>(written).unwrap(), meant);
        }
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_known_ones() {
        let error = serde_json::from_str::<PowerState>("\"on\"")
            .unwrap_err()
            .to_string();
        assert!(error.contains("use On, Off"), "{error}");
    }
}
