//! Renders values the way Go's `fmt` and `encoding/json` do, because error texts carry them.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Renders `text` as Go's `%q` does.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// What Go's decoder of base64 says of `text`.
pub(crate) fn base64_fault(error: &base64::DecodeError, text: &str) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
            *at
        }
        _ => text.len() / 4 * 4,
    };
    format!("illegal base64 data at input byte {at}")
}

/// What Go's JSON decoder says of a text whose beginning is no JSON.
pub(crate) fn json_fault(bytes: &[u8]) -> String {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "unexpected end of JSON input".to_owned(),
        Some(byte) => {
            let c = char::from(*byte);
            let shown = match c {
                '\'' => "\\'".to_owned(),
                c if c.is_control() && !c.is_ascii() => format!("\\u{:04x}", u32::from(c)),
                c => quote(&c.to_string()).trim_matches('"').to_owned(),
            };
            format!("invalid character '{shown}' looking for beginning of value")
        }
    }
}

/// Renders a float as Go's `%v` does: shortest digits, exponent form when far from one.
pub(crate) fn float(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{value}")
}

/// Renders a number as Go's `%v` does.
pub(crate) fn number(value: &Number) -> String {
    if value.is_f64() {
        float(value.as_f64().unwrap_or_default())
    } else {
        value.to_string()
    }
}

/// Renders `value` as Go's `json.Marshal` does: sorted keys, and `<`, `>`, `&` escaped.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

/// Renders `value` as Go's `%#v` does for what JSON decodes to.
pub(crate) fn sharp(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(sharp).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            let entries: Vec<_> = keys
                .into_iter()
                .map(|key| format!("{}:{}", quote(key), sharp(&map[key])))
                .collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        scalar => json(scalar),
    }
}

/// Renders `value` as Go's `%v` does for what JSON decodes to.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            let entries: Vec<_> = keys
                .into_iter()
                .map(|key| format!("{key}:{}", plain(&map[key])))
                .collect();
            format!("map[{}]", entries.join(" "))
        }
        scalar => json(scalar),
    }
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&number(n)),
        Value::String(s) => write_string(s, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write_json(&map[key], out);
            }
            out.push('}');
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    let escaped = serde_json::to_string(text).unwrap_or_default();
    for c in escaped.chars() {
        match c {
            '<' | '>' | '&' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// Strings as `%q` prints a slice of them: quoted, between brackets, a space apart.
pub(crate) fn quoted_list(texts: &[impl AsRef<str>]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn values_look_like_go_prints_them() {
        assert_eq!(super::quote("a\"b\n"), r#""a\"b\n""#);
        assert_eq!(super::float(0.5), "0.5");
        assert_eq!(super::float(2.0), "2");
        assert_eq!(super::float(1e21), "1e+21");
        assert_eq!(super::float(1e-7), "1e-07");
        assert_eq!(
            super::json(&json!({"b": "<x>", "a": [1, null]})),
            r#"{"a":[1,null],"b":"\u003cx\u003e"}"#
        );
        let value = json!({"b": "x", "a": [1, {"c": null}]});
        assert_eq!(
            super::sharp(&value),
            r#"map[string]interface {}{"a":[]interface {}{1, map[string]interface {}{"c":interface {}(nil)}}, "b":"x"}"#
        );
        assert_eq!(super::plain(&value), "map[a:[1 map[c:<nil>]] b:x]");
    }
}
