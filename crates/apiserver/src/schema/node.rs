//! The compiled form of one schema node.

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use super::cel::Rule;
use super::format::Format;
use super::pattern::Pattern;

/// The JSON type a node declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How the entries of a list relate to each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// Entries are unique scalars.
    Set,
    /// Entries are objects known by the values of these fields.
    Map(Vec<String>),
}

/// What an object may hold beyond its named properties.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// Nothing was said: nothing is kept.
    #[default]
    None,
    /// Any key, but what lies below it has no schema.
    Any,
    /// Any key, with values of this schema.
    Schema(Box<Node>),
}

impl Additional {
    pub(crate) fn schema(&self) -> Option<&Node> {
        match self {
            Self::Schema(node) => Some(node),
            _ => None,
        }
    }
}

/// One node of a structural schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) kind: Option<Type>,
    pub(crate) nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    pub(crate) list: ListType,
    pub(crate) atomic_map: bool,
    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) default: Option<Value>,
    pub(crate) bounds: Bounds,
    pub(crate) rules: Vec<Rule>,
    /// Whether this node or one below it has rules.
    pub(crate) any_rules: bool,
}

/// What narrows the values of a node beyond their type.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) minimum: Option<Number>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<Number>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<Number>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) required: Vec<String>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) format: Option<Format>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}

impl Node {
    /// The type as the validator names it in messages.
    pub(crate) fn type_name(&self) -> &'static str {
        if self.int_or_string {
            "integer,string"
        } else {
            self.kind.map_or("", Type::name)
        }
    }

    pub(crate) fn has_rules(&self) -> bool {
        self.any_rules
    }
}

/// Finds the entry of a list map that has the same keys as `item`.
pub(crate) fn find_by_keys<'a>(
    list: &'a [Value],
    item: &Value,
    keys: &[String],
    items: Option<&Node>,
) -> Option<&'a Value> {
    let key = |value: &Value, name: &str| -> Option<Value> {
        value
            .get(name)
            .cloned()
            .or_else(|| items?.properties.get(name)?.default.clone())
    };
    list.iter().find(|candidate| {
        keys.iter()
            .all(|name| key(candidate, name) == key(item, name))
    })
}
