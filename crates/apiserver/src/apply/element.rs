//! One step of a path through an object.

use std::fmt;

use serde_json::{Map, Value};

use crate::golang;
use crate::schema::ListType;
use crate::shape::Shape;

/// A step: into a field, or into an entry of a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    /// The field of an object.
    Field(String),
    /// The entry of a list map with these keys, as canonical JSON.
    Key(String),
    /// The entry of a list set with this value, as canonical JSON.
    Value(String),
    /// The entry of a list at this position.
    Index(usize),
}

impl Element {
    /// The step to the field called `name`.
    pub(crate) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// Reads a key of FieldsV1; none for what cannot be understood.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "k" => Self::Key(canonical(
                &serde_json::from_str::<Map<_, _>>(rest).ok()?.into(),
            )),
            "v" => Self::Value(canonical(&serde_json::from_str(rest).ok()?)),
            "i" => Self::Index(rest.parse().ok()?),
            _ => return None,
        })
    }

    /// The step as a key of FieldsV1.
    pub(crate) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(json) => format!("k:{json}"),
            Self::Value(json) => format!("v:{json}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// The step to `item` of a list of shape `shape`; an error in Kubernetes' words.
    pub(crate) fn of_item(shape: Shape<'_>, item: &Value) -> Result<Self, String> {
        match shape.list() {
            ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            ListType::Set => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => {
                    Err("not supported: associative list with lists as elements".to_owned())
                }
                Value::Null => Err(
                    "associative list without keys has an element that's an explicit null"
                        .to_owned(),
                ),
                scalar => Ok(Self::Value(canonical(scalar))),
            },
            ListType::Map(keys) => {
                let Value::Object(map) = item else {
                    let what = if item.is_null() {
                        "a null element"
                    } else {
                        "non-map elements"
                    };
                    return Err(format!("associative list with keys may not have {what}"));
                };
                let found: Map<String, Value> = keys
                    .iter()
                    .filter_map(|key| {
                        let value = map.get(key).or_else(|| shape.item().default_of(key))?;
                        Some((key.clone(), value.clone()))
                    })
                    .collect();
                if found.is_empty() {
                    let keys: Vec<_> = keys.iter().map(|key| golang::quote(key)).collect();
                    return Err(format!(
                        "associative list with keys has an element that omits all key fields [{}] \
                         (and doesn't have default values for any key fields)",
                        keys.join(" ")
                    ));
                }
                Ok(Self::Key(canonical(&found.into())))
            }
        }
    }
}

/// JSON with sorted keys, so that equal values are equal texts.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by_key(|(name, _)| *name);
            let parts: Vec<_> = keys
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
        other => other.to_string(),
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(json) => {
                let keys: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
                let mut parts: Vec<_> = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={}", shown(value)))
                    .collect();
                parts.sort();
                write!(f, "[{}]", parts.join(","))
            }
            Self::Value(json) => {
                write!(
                    f,
                    "[={}]",
                    shown(&serde_json::from_str(json).unwrap_or_default())
                )
            }
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => golang::quote(text),
        other => golang::json(other),
    }
}

/// Renders a path as messages show it, such as `.spec.containers[name="a"].image`.
pub(crate) fn render(path: &[Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}
