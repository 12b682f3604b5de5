//! Decodes paths, queries and bodies by PVE's rules.

use serde_json::Value;

use crate::failure::Failure;
use crate::params::Params;

/// The largest body of a call that is no upload.
pub(super) const BODY_LIMIT: usize = 512 * 1024;

/// Undoes percent-encoding; `plus` also turns `+` into a blank.
pub(crate) fn unescape(text: &str, plus: bool) -> String {
    if !(text.contains('%') || plus && text.contains('+')) {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|code| std::str::from_utf8(code).ok())
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        if let Some(byte) = code {
            out.push(byte);
            at += 3;
        } else {
            out.push(if plus && bytes[at] == b'+' {
                b' '
            } else {
                bytes[at]
            });
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Adds the pairs of a query string or form; `&` and `;` separate them.
pub(super) fn form(text: &str, params: &mut Params) {
    for pair in text.split(['&', ';']).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = unescape(name, true);
        if name != "_dc" {
            params.push(name, unescape(value, true));
        }
    }
}

/// Adds the members of a JSON object.
pub(super) fn json(body: &str, params: &mut Params) -> Result<(), Failure> {
    if body.trim().is_empty() {
        return Ok(());
    }
    let value: Value = serde_json::from_str(body).map_err(|error| malformed(body, &error))?;
    let Value::Object(members) = value else {
        return Err(Failure::plain(
            500,
            "Not a HASH reference at PVE/APIServer/AnyEvent.pm line 938.",
        ));
    };
    for (name, value) in members {
        match value {
            Value::Null => {}
            Value::Array(items) => {
                params.set_many(name, items.iter().map(perl_text).collect());
            }
            other => params.set(name, perl_text(&other)),
        }
    }
    Ok(())
}

/// What Perl would make of a JSON value as text.
fn perl_text(value: &Value) -> String {
    match value {
        Value::Bool(true) => "1".to_owned(),
        Value::Bool(false) => "0".to_owned(),
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn malformed(body: &str, error: &serde_json::Error) -> Failure {
    let offset: usize = body
        .lines()
        .take(error.line().saturating_sub(1))
        .map(|line| line.len() + 1)
        .sum::<usize>()
        + error.column().saturating_sub(1);
    let rest: String = body
        .get(offset..)
        .unwrap_or_default()
        .chars()
        .take(20)
        .collect();
    let before = if rest.is_empty() {
        "(end of string)".to_owned()
    } else {
        format!("\"{}\"", rest.trim_end_matches('}'))
    };
    let what = if error.to_string().starts_with("key must be a string") {
        "'\"' expected"
    } else if error.is_eof() {
        "unexpected end of string while parsing JSON string"
    } else {
        "malformed JSON string, neither tag, array, object, number, string or atom"
    };
    let text = format!(
        "{what}, at character offset {offset} (before {before}) at PVE/APIServer/AnyEvent.pm line 934.\n"
    );
    Failure::plain(500, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_decode_by_perl_rules() {
        let mut params = Params::new();
        form(
            "a=1+2;b=%C3%A9%2B&command=ls&command=-l&_dc=123&c",
            &mut params,
        );
        assert_eq!(params.text("a"), "1 2");
        assert_eq!(params.text("b"), "é+");
        assert_eq!(params.array("command"), ["ls", "-l"]);
        assert!(!params.has("_dc"));
        assert_eq!(params.get("c"), Some(""));
    }

    #[test]
    fn json_scalars_become_the_text_perl_makes_of_them() {
        let mut params = Params::new();
        json(
            r#"{"a":true,"b":false,"n":512,"f":1.5,"l":["x",1],"z":null}"#,
            &mut params,
        )
        .unwrap();
        assert_eq!(params.text("a"), "1");
        assert_eq!(params.text("b"), "0");
        assert_eq!(params.text("n"), "512");
        assert_eq!(params.text("f"), "1.5");
        assert_eq!(params.array("l"), ["x", "1"]);
        assert!(!params.has("z"));
    }

    #[test]
    fn malformed_json_is_a_plain_500() {
        let failure = json("{bad", &mut Params::new()).unwrap_err();
        assert_eq!(failure.status, 500);
        assert_eq!(
            failure.reason(),
            "'\"' expected, at character offset 1 (before \"bad\") at \
             PVE/APIServer/AnyEvent.pm line 934."
        );
    }
}
