//! JSON values written as YAML, for clients that ask for it.
//!
//! Block style with sorted keys. Texts are plain only when no reader of YAML could take them for
//! anything else; the others are quoted as in JSON, which YAML understands.

use std::fmt::Write as _;

use serde_json::Value;

/// Words that some readers take for booleans or nulls.
const WORDS: [&str; 10] = [
    "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~",
];

/// Renders `value` as a YAML document.
pub(crate) fn render(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => block(value, 0, &mut out),
        other => {
            scalar(other, &mut out);
            out.push('\n');
        }
    }
    out
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            for (i, key) in keys.into_iter().enumerate() {
                // The first key of a list's entry stands behind its dash.
                if i > 0 || !out.ends_with("- ") {
                    indent(depth, out);
                }
                text(key, out);
                out.push(':');
                below(&map[key], depth, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                indent(depth, out);
                out.push_str("- ");
                if is_block(item) && item.is_object() {
                    block(item, depth + 1, out);
                } else if is_block(item) {
                    out.push('\n');
                    block(item, depth + 1, out);
                } else {
                    scalar(item, out);
                    out.push('\n');
                }
            }
        }
        _ => {}
    }
}

fn below(value: &Value, depth: usize, out: &mut String) {
    if is_block(value) {
        out.push('\n');
        let depth = if value.is_array() { depth } else { depth + 1 };
        block(value, depth, out);
    } else {
        out.push(' ');
        scalar(value, out);
        out.push('\n');
    }
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn scalar(value: &Value, out: &mut String) {
    match value {
        Value::String(string) => text(string, out),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn text(text: &str, out: &mut String) {
    let plain = text
        .chars()
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        && !WORDS.contains(&text.to_lowercase().as_str());
    if plain {
        out.push_str(text);
    } else {
        let _ = write!(out, "{}", Value::from(text));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn what_is_written_reads_the_same() {
        let value = json!({
            "kind": "ConfigMap", "empty": {}, "none": null, "number": 1.5, "flag": true,
            "data": {"x": "yes", "y": "a: b", "z": "two\nlines", "": "1", "n": "null"},
            "list": [1, {"a": [], "b": {"c": "d"}}, [2, [3]], "- x"],
        });
        let text = super::render(&value);
        let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, value, "{text}");
        assert!(text.contains("kind: ConfigMap\n") && text.contains("x: \"yes\"\n"));
    }
}
