//! A small vocabulary for writing structural schemas by hand.
//!
//! Versions of a kind that the product only converts, and never reads field by field, need no Rust types: a schema and a
//! conversion are all there is to them. This is the shorthand those schemas are written in.

use serde_json::{Map, Value, json};

/// A schema under construction.
#[derive(Clone, Debug)]
pub(crate) struct Schema(Map<String, Value>);

/// A string.
pub(crate) fn string() -> Schema {
    Schema::of("string")
}

/// A boolean.
pub(crate) fn boolean() -> Schema {
    Schema::of("boolean")
}

/// An integer of no particular width.
pub(crate) fn integer() -> Schema {
    Schema::of("integer")
}

/// A 32-bit integer.
pub(crate) fn int32() -> Schema {
    integer().with("format", "int32")
}

/// A 64-bit integer.
pub(crate) fn int64() -> Schema {
    integer().with("format", "int64")
}

/// A point in time.
pub(crate) fn date_time() -> Schema {
    string().with("format", "date-time")
}

/// An array.
pub(crate) fn list(items: Schema) -> Schema {
    Schema::of("array").with("items", items.build())
}

/// An object with arbitrary keys.
pub(crate) fn map_of(values: Schema) -> Schema {
    Schema::of("object").with("additionalProperties", values.build())
}

/// An object with these fields.
pub(crate) fn object<const N: usize>(fields: [(&str, Schema); N]) -> Schema {
    let properties: Map<_, _> = fields
        .into_iter()
        .map(|(name, field)| (name.to_owned(), field.build()))
        .collect();
    Schema::of("object").with("properties", properties)
}

impl Schema {
    fn of(kind: &str) -> Self {
        Self(Map::from_iter([("type".to_owned(), kind.into())]))
    }

    /// Sets one keyword.
    pub(crate) fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.0.insert(keyword.to_owned(), value.into());
        self
    }

    /// Describes the field for `kubectl explain`.
    pub(crate) fn says(self, description: &str) -> Self {
        self.with("description", description)
    }

    /// Adds or replaces a field of an object.
    pub(crate) fn field(mut self, name: &str, schema: Schema) -> Self {
        if let Some(Value::Object(properties)) = self.0.get_mut("properties") {
            properties.insert(name.to_owned(), schema.build());
        }
        self
    }

    /// Takes a field of an object away.
    pub(crate) fn without(mut self, name: &str) -> Self {
        if let Some(Value::Object(properties)) = self.0.get_mut("properties") {
            properties.remove(name);
        }
        self
    }

    /// An object whose fields somebody else defines.
    pub(crate) fn without_properties(mut self) -> Self {
        self.0.remove("properties");
        self
    }

    pub(crate) fn required(self, names: &[&str]) -> Self {
        self.with("required", names)
    }

    pub(crate) fn default(self, value: impl Into<Value>) -> Self {
        self.with("default", value)
    }

    pub(crate) fn one_of(self, values: &[&str]) -> Self {
        self.with("enum", values)
    }

    pub(crate) fn pattern(self, pattern: &str) -> Self {
        self.with("pattern", pattern)
    }

    pub(crate) fn range(self, least: impl Into<Value>, most: impl Into<Value>) -> Self {
        self.with("minimum", least).with("maximum", most)
    }

    pub(crate) fn at_least(self, least: i64) -> Self {
        self.with("minimum", least)
    }

    pub(crate) fn length(self, least: u32, most: u32) -> Self {
        self.with("minLength", least).with("maxLength", most)
    }

    pub(crate) fn non_empty(self) -> Self {
        self.with("minLength", 1)
    }

    /// An array with at least one item.
    pub(crate) fn some(self) -> Self {
        self.with("minItems", 1)
    }

    pub(crate) fn set(self) -> Self {
        self.with("x-kubernetes-list-type", "set")
    }

    pub(crate) fn atomic(self) -> Self {
        self.with("x-kubernetes-list-type", "atomic")
    }

    pub(crate) fn atomic_map(self) -> Self {
        self.with("x-kubernetes-map-type", "atomic")
    }

    pub(crate) fn keyed_by(self, keys: &[&str]) -> Self {
        self.with("x-kubernetes-list-type", "map")
            .with("x-kubernetes-list-map-keys", keys)
    }

    /// Adds a CEL rule with the message shown when it does not hold.
    pub(crate) fn rule(mut self, rule: &str, message: &str) -> Self {
        let rules = self
            .0
            .entry("x-kubernetes-validations")
            .or_insert_with(|| json!([]));
        if let Value::Array(rules) = rules {
            rules.push(json!({"rule": rule, "message": message}));
        }
        self
    }

    /// The finished schema.
    pub(crate) fn build(self) -> Value {
        Value::Object(self.0)
    }
}

/// An object whose fields are not looked at.
pub(crate) fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list of objects whose fields are not looked at.
pub(crate) fn any_objects(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "array", "items": anything(generator)})
}

impl From<Schema> for Value {
    fn from(schema: Schema) -> Self {
        schema.build()
    }
}
