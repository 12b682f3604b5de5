//! JSON values as CEL sees them, guided by the schema.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;

use crate::schema::format::Format;
use crate::schema::node::{Node, Type};

static TIMESTAMP: LazyLock<Program> =
    LazyLock::new(|| Program::compile("timestamp(text)").expect("a valid expression"));
static DURATION: LazyLock<Program> =
    LazyLock::new(|| Program::compile("duration(text)").expect("a valid expression"));

/// Converts `value`, which `node` describes.
pub(super) fn convert(library: &Context<'static>, node: &Node, value: &Value) -> Cel {
    match value {
        Value::String(text) => string(library, node.bounds.format, text),
        Value::Number(number) if node.kind == Some(Type::Number) => {
            Cel::Float(number.as_f64().unwrap_or(f64::NAN))
        }
        Value::Array(items) => match node.items.as_deref() {
            Some(sub) => Cel::List(Arc::new(
                items
                    .iter()
                    .map(|item| convert(library, sub, item))
                    .collect(),
            )),
            None => plain(value),
        },
        Value::Object(map) => {
            let entries = map.iter().map(|(name, child)| {
                if let Some(property) = node.properties.get(name) {
                    (escape(name), convert(library, property, child))
                } else if let Some(sub) = node.additional.schema() {
                    (name.clone(), convert(library, sub, child))
                } else {
                    (name.clone(), plain(child))
                }
            });
            object(entries)
        }
        other => plain(other),
    }
}

fn object(entries: impl Iterator<Item = (String, Cel)>) -> Cel {
    let map: HashMap<Key, Cel> = entries
        .map(|(name, value)| (Key::from(name), value))
        .collect();
    Cel::Map(Map { map: Arc::new(map) })
}

pub(super) fn plain(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Cel::Int(i),
            (None, Some(u)) => Cel::UInt(u),
            (None, None) => Cel::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(plain).collect())),
        Value::Object(map) => object(map.iter().map(|(k, v)| (k.clone(), plain(v)))),
    }
}

fn string(library: &Context<'static>, format: Option<Format>, text: &str) -> Cel {
    let program = match format {
        Some(Format::DateTime | Format::Date) => &TIMESTAMP,
        Some(Format::Duration) => &DURATION,
        Some(Format::Byte) => {
            return base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_or_else(|_| plain(&text.into()), |bytes| Cel::Bytes(Arc::new(bytes)));
        }
        _ => return plain(&text.into()),
    };
    let whole = if format == Some(Format::Date) {
        format!("{text}T00:00:00Z")
    } else {
        text.into()
    };
    let mut scope = library.new_inner_scope();
    scope.add_variable_from_value("text", whole);
    program
        .execute(&scope)
        .unwrap_or_else(|_| plain(&text.into()))
}

/// Field names that CEL reserves, and characters its identifiers lack, are spelled out.
pub(super) fn escape(name: &str) -> String {
    const RESERVED: [&str; 17] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
    ];
    if RESERVED.contains(&name) || matches!(name, "return" | "var" | "void" | "while") {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
