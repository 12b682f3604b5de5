//! The stored bytes of an object: its JSON, with the resource version in a known place.
//!
//! A revision is known only when a write is committed, but serialising is work that should not happen in the
//! writer. So an object is serialised in two halves around its `resourceVersion`, and joined when
//! the number is known. `apiVersion` and `kind` come first, then `metadata`: list answers cut the
//! first two off items of built-in kinds, as kube-apiserver does, without parsing.

use std::io::Write as _;

use bytes::Bytes;
use serde_json::{Map, Value};

const METADATA: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";

/// An object serialised up to its resource version.
#[derive(Debug, Clone)]
pub(crate) struct Encoded {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Encoded {
    /// Serialises an object; its own `resourceVersion`, if any, is left out.
    pub(crate) fn new(object: &Value) -> Self {
        let empty = Map::new();
        let map = object.as_object().unwrap_or(&empty);
        let mut head = Vec::with_capacity(128);
        head.push(b'{');
        for key in ["apiVersion", "kind"] {
            if let Some(value) = map.get(key) {
                field(&mut head, key, value);
                head.push(b',');
            }
        }
        head.extend_from_slice(METADATA);

        let mut tail = Vec::with_capacity(1024);
        tail.push(b'"');
        if let Some(metadata) = map.get("metadata").and_then(Value::as_object) {
            for (key, value) in metadata {
                if key != "resourceVersion" {
                    tail.push(b',');
                    field(&mut tail, key, value);
                }
            }
        }
        tail.push(b'}');
        for (key, value) in map {
            if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                tail.push(b',');
                field(&mut tail, key, value);
            }
        }
        tail.push(b'}');
        Self { head, tail }
    }

    /// Joins the halves around a revision.
    pub(crate) fn at(&self, revision: u64) -> Bytes {
        let mut bytes = Vec::with_capacity(self.head.len() + self.tail.len() + 20);
        bytes.extend_from_slice(&self.head);
        write!(bytes, "{revision}").expect("writing to memory does not fail");
        bytes.extend_from_slice(&self.tail);
        bytes.into()
    }
}

fn field(out: &mut Vec<u8>, key: &str, value: &Value) {
    serde_json::to_writer(&mut *out, key).expect("a string serialises");
    out.push(b':');
    serde_json::to_writer(out, value).expect("a JSON value serialises");
}

/// Where `"metadata"` begins in stored bytes.
pub(crate) fn metadata_at(bytes: &[u8]) -> usize {
    bytes
        .windows(METADATA.len())
        .position(|window| window == METADATA)
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_comes_back_with_its_revision() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": "x", "resourceVersion": "7"},
        });
        let bytes = Encoded::new(&object).at(42);
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = json!("42");
        assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), expected);
        let mut item = b"{".to_vec();
        item.extend_from_slice(&bytes[metadata_at(&bytes)..]);
        let item: Value = serde_json::from_slice(&item).unwrap();
        assert_eq!(item.get("kind"), None);
        assert_eq!(item["metadata"]["name"], "x");
    }
}
