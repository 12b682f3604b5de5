//! Hides what differs between any two runs, and nothing else.

use serde_json::{Map, Value};

/// Members whose value is an opaque version or token.
const OPAQUE: &[(&str, &str)] = &[
    ("resourceVersion", "<version>"),
    ("continue", "<token>"),
    ("token", "<token>"),
    ("caBundle", "<certificate>"),
    ("clusterIP", "<address>"),
    ("serverAddress", "<address>"),
];

/// The config map with the server's certificate, which each namespace gets from a controller.
pub(crate) const ROOT_CA: &str = "kube-root-ca.crt";

/// Masks a whole body.
pub fn value(value: &mut Value) {
    if value["metadata"]["name"] == ROOT_CA {
        *value = Value::from(ROOT_CA);
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match OPAQUE.iter().find(|(opaque, _)| opaque == name) {
                    // An empty version or token means something: there is none.
                    Some((_, mask)) => {
                        if member
                            .as_str()
                            .is_some_and(|text| !text.is_empty() && text != "0")
                        {
                            *member = Value::from(*mask);
                        }
                    }
                    None if name == "cells" => cells(member),
                    None if name == "clusterIPs" => addresses(member),
                    None => self::value(member),
                }
            }
            *members = std::mem::take(members)
                .into_iter()
                .map(|(name, v)| (text(&name), v))
                .collect();
            sort_managers(members);
            sort_causes(members);
        }
        Value::Array(items) => items.iter_mut().for_each(self::value),
        Value::String(string) => *string = text(string),
        _ => {}
    }
}

/// Masks the addresses that a service was given.
fn addresses(list: &mut Value) {
    for address in list.as_array_mut().into_iter().flatten() {
        if address != "None" {
            *address = Value::from("<address>");
        }
    }
}

/// Masks the cells of a table's row, some of which are ages.
fn cells(cells: &mut Value) {
    value(cells);
    for cell in cells.as_array_mut().into_iter().flatten() {
        if cell.as_str().is_some_and(is_age) {
            *cell = Value::from("<age>");
        }
    }
}

/// Whether this is an age as kubectl prints it: `5s`, `2m3s`, `4h`, `<invalid>` for a clock gone back.
pub(crate) fn is_age(word: &str) -> bool {
    word == "<invalid>"
        || (word.ends_with(['s', 'm', 'h', 'd'])
            && word.starts_with(|c: char| c.is_ascii_digit())
            && word
                .chars()
                .all(|c| c.is_ascii_digit() || "smhd".contains(c)))
}

/// Masks times, uids and ages inside a text.
pub fn text(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"\n@@ -") {
            // What follows is a comparison of internal Go structs with the names of their fields.
            masked.push_str("\n<changes>");
            break;
        }
        if let Some(length) = dumped(rest) {
            masked.push_str("\"{…}\"");
            at += length;
        } else if let Some(length) = version(rest) {
            masked.push_str("<version>");
            at += length;
        } else if let Some(length) = digest(rest) {
            masked.push_str("<digest>");
            at += length;
        } else if let Some(length) = uid(rest) {
            masked.push_str("<uid>");
            at += length;
        } else if let Some(length) = time(rest) {
            masked.push_str("<time>");
            at += length;
        } else {
            let length = text[at..].chars().next().map_or(1, char::len_utf8);
            masked.push_str(&text[at..at + length]);
            at += length;
        }
    }
    masked
}

/// Servers order managers by time in whole seconds, so two runs may order them differently.
fn sort_managers(members: &mut Map<String, Value>) {
    if let Some(Value::Array(managers)) = members.get_mut("managedFields") {
        let text =
            |manager: &Value, name: &str| manager[name].as_str().unwrap_or_default().to_owned();
        managers.sort_by_cached_key(|manager| {
            ["operation", "manager", "subresource", "apiVersion"].map(|name| text(manager, name))
        });
    }
}

/// Go walks maps in no order, so several faults are told in no order: once as causes, once in the message.
fn sort_causes(members: &mut Map<String, Value>) {
    let Some(Value::Array(causes)) = members.get_mut("details").map(|d| &mut d["causes"]) else {
        return;
    };
    if causes.len() < 2 {
        return;
    }
    causes.sort_by_cached_key(ToString::to_string);
    if let Some(Value::String(message)) = members.get_mut("message")
        && let Some(at) = message.find(" is invalid: [")
    {
        message.replace_range(at.., " is invalid: [<causes>]");
    }
}

/// Matches `shape` at the start: `x` is a lowercase hex digit, `9` a digit, `A` a letter, the rest itself.
fn matches(bytes: &[u8], shape: &str) -> bool {
    bytes.len() >= shape.len()
        && bytes
            .iter()
            .zip(shape.bytes())
            .all(|(byte, shape)| match shape {
                b'x' => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
                b'9' => byte.is_ascii_digit(),
                b'A' => byte.is_ascii_alphabetic(),
                exact => *byte == exact,
            })
}

fn uid(bytes: &[u8]) -> Option<usize> {
    let shape = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    matches(bytes, shape).then_some(shape.len())
}

/// A whole object as Go prints it into a message: `"{…}"`, quotes escaped. Its member order is Go's.
fn dumped(bytes: &[u8]) -> Option<usize> {
    let end = b"}\": ";
    (bytes.starts_with(b"\"{") && bytes.get(2) == Some(&b'\\'))
        .then(|| bytes.windows(end.len()).position(|window| window == end))?
        .map(|at| at + 2)
}

/// The store's own version inside a message.
fn version(bytes: &[u8]) -> Option<usize> {
    ["current: ", "record ("].iter().find_map(|before| {
        let rest = bytes.strip_prefix(before.as_bytes())?;
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let whole = digits > 0 && !rest.get(digits).is_some_and(u8::is_ascii_alphanumeric);
        // One uid in forty begins with eight digits.
        (whole && uid(rest).is_none()).then_some(before.len() + digits)
    })
}

/// A time as JSON, Go or a mail would write it.
fn time(bytes: &[u8]) -> Option<usize> {
    let mail = "AAA, 99 AAA 9999 99:99:99 +9999";
    if matches(bytes, mail) {
        return Some(mail.len());
    }
    let (json, go) = ("9999-99-99T99:99:99", "9999-99-99 99:99:99");
    if !matches(bytes, json) && !matches(bytes, go) {
        return None;
    }
    let rest = &bytes[json.len()..];
    let fraction = rest
        .iter()
        .take_while(|b| b.is_ascii_digit() || **b == b'.')
        .count();
    let zone = ["Z", " +0000 UTC"]
        .into_iter()
        .find(|zone| rest[fraction..].starts_with(zone.as_bytes()))?;
    Some(json.len() + fraction + zone.len())
}

/// The digest by which a server names a client's certificate.
fn digest(bytes: &[u8]) -> Option<usize> {
    let before = b"X509SHA256=";
    bytes
        .starts_with(before)
        .then_some(before.len() + 64)
        .filter(|end| *end <= bytes.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hides_times_and_uids_inside_texts() {
        let seen = text("uid 0a1b2c3d-0000-1111-2222-0123456789ab at 2024-01-02T03:04:05.123456Z!");
        assert_eq!(seen, "uid <uid> at <time>!");
        assert_eq!(text("größer 2024-01-02"), "größer 2024-01-02");
    }

    #[test]
    fn hides_objects_and_versions_inside_messages() {
        assert_eq!(
            text(r#"Invalid value: "{\"a\":\"b\"}": bad"#),
            "Invalid value: \"{…}\": bad"
        );
        assert_eq!(text("too large, current: 532"), "too large, <version>");
        assert_eq!(
            text("the UID in record (01234567-0507-4701-9214-73f501145306)"),
            "the UID in record (<uid>)"
        );
        assert_eq!(
            text("immutable\n@@ -6,7 +6,7 @@\n a"),
            "immutable\n<changes>"
        );
    }

    #[test]
    fn keeps_the_difference_between_a_version_and_none() {
        let mut body = json!({"metadata": {"resourceVersion": "7", "continue": ""}});
        value(&mut body);
        assert_eq!(
            body,
            json!({"metadata": {"resourceVersion": "<version>", "continue": ""}})
        );
    }
}
