//! Writing YAML: block style, every text in double quotes, so nothing can be misread.

use serde_json::Value;

/// One document.
pub(super) fn document(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn block(out: &mut String, value: &Value, indent: usize) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                out.push_str(&pad);
                out.push_str(&key_text(key));
                out.push(':');
                nested(out, value, indent + 2);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for value in list {
                out.push_str(&pad);
                out.push('-');
                nested(out, value, indent + 2);
            }
        }
        // JSON's scalars and empty collections are YAML's.
        other => {
            out.push_str(&pad);
            out.push_str(&other.to_string());
            out.push('\n');
        }
    }
}

fn nested(out: &mut String, value: &Value, indent: usize) {
    if is_block(value) {
        out.push('\n');
        block(out, value, indent);
    } else {
        out.push(' ');
        out.push_str(&value.to_string());
        out.push('\n');
    }
}

fn key_text(key: &str) -> String {
    let plain = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        && !matches!(
            key.to_ascii_lowercase().as_str(),
            "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null"
        );
    if plain {
        key.to_owned()
    } else {
        Value::String(key.to_owned()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_quoted_and_structure_is_indented() {
        let text = document(&json!({
            "version": 2,
            "list": ["on", {"a": 1}],
            "empty": [],
            "on": true,
        }));
        assert_eq!(
            text,
            "empty: []\nlist:\n  - \"on\"\n  -\n    a: 1\n\"on\": true\nversion: 2\n"
        );
    }
}
