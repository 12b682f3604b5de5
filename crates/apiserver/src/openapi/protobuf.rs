//! The version 2 document as protobuf, the only form in which Go clients ask for it.
//!
//! `kubectl` checks objects of kinds that it does not find on the server against it, and Helm all of
//! them. Both read the definitions; the paths are left to the JSON form.

use serde_json::{Map, Value};

/// The media type that clients ask for.
pub(crate) const ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The media type of the answer, in which an `@` has no place.
pub(crate) const MEDIA: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Renders the JSON form of a version 2 document.
pub(crate) fn render(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["swagger"]);
    let mut info = Message::default();
    info.text(1, &document["info"]["title"]);
    info.text(2, &document["info"]["version"]);
    out.message(2, &info);
    out.message(8, &Message::default());
    if let Some(definitions) = document["definitions"].as_object() {
        out.message(9, &named(definitions));
    }
    out.0
}

/// A protobuf message being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        loop {
            let byte = u8::try_from(number & 0x7f).unwrap_or_default();
            number >>= 7;
            if number == 0 {
                self.0.push(byte);
                return;
            }
            self.0.push(byte | 0x80);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn text(&mut self, field: u64, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: u64, value: &Value) {
        if value == true {
            self.varint(field << 3);
            self.varint(1);
        }
    }

    fn count(&mut self, field: u64, value: &Value) {
        if let Some(number) = value.as_u64().filter(|n| *n != 0) {
            self.varint(field << 3);
            self.varint(number);
        }
    }

    fn double(&mut self, field: u64, value: &Value) {
        if let Some(number) = value.as_f64().filter(|n| *n != 0.0) {
            self.varint(field << 3 | 1);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Any value: as YAML, of which JSON is a part.
    fn any(&mut self, field: u64, value: &Value) {
        if !value.is_null() {
            let mut any = Self::default();
            any.bytes(2, value.to_string().as_bytes());
            self.message(field, &any);
        }
    }
}

/// Schemas by name.
fn named(schemas: &Map<String, Value>) -> Message {
    let mut out = Message::default();
    for (name, value) in schemas {
        let mut entry = Message::default();
        entry.bytes(1, name.as_bytes());
        entry.message(2, &schema(value));
        out.message(1, &entry);
    }
    out
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    for (field, name) in [
        (1, "$ref"),
        (2, "format"),
        (3, "title"),
        (4, "description"),
        (13, "pattern"),
    ] {
        out.text(field, &value[name]);
    }
    out.any(5, &value["default"]);
    for (field, name) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        out.double(field, &value[name]);
    }
    for (field, name) in [
        (8, "exclusiveMaximum"),
        (10, "exclusiveMinimum"),
        (16, "uniqueItems"),
    ] {
        out.flag(field, &value[name]);
    }
    for (field, name) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        out.count(field, &value[name]);
    }
    for name in value["required"].as_array().into_iter().flatten() {
        out.text(19, name);
    }
    for allowed in value["enum"].as_array().into_iter().flatten() {
        out.any(20, allowed);
    }
    match &value["additionalProperties"] {
        Value::Null => {}
        Value::Bool(flag) => {
            let mut item = Message::default();
            item.varint(2 << 3);
            item.varint(u64::from(*flag));
            out.message(21, &item);
        }
        sub => {
            let mut item = Message::default();
            item.message(1, &schema(sub));
            out.message(21, &item);
        }
    }
    if value["type"].is_string() {
        let mut item = Message::default();
        item.text(1, &value["type"]);
        out.message(22, &item);
    }
    if value["items"].is_object() {
        let mut item = Message::default();
        item.message(1, &schema(&value["items"]));
        out.message(23, &item);
    }
    for sub in value["allOf"].as_array().into_iter().flatten() {
        out.message(24, &schema(sub));
    }
    if let Some(properties) = value["properties"].as_object() {
        out.message(25, &named(properties));
    }
    for (name, extension) in value.as_object().into_iter().flatten() {
        if name.starts_with("x-") {
            let mut entry = Message::default();
            entry.bytes(1, name.as_bytes());
            entry.any(2, extension);
            out.message(31, &entry);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_have_the_numbers_of_the_format() {
        let document = json!({"swagger": "2.0", "info": {"title": "K", "version": "v"},
            "definitions": {"A": {"type": "object"}}});
        let expected = [
            &b"\x0a\x032.0"[..],
            b"\x12\x06\x0a\x01K\x12\x01v",
            b"\x42\x00",
            b"\x4a\x12\x0a\x10\x0a\x01A\x12\x0b\xb2\x01\x08\x0a\x06object",
        ];
        assert_eq!(render(&document), expected.concat());
    }
}
