//! Built-in kinds from protobuf.
//!
//! Some commands of `kubectl` and most Go clients send built-in kinds as protobuf and do not fall
//! back to JSON. Answers may be JSON all the same, so reading is enough. The numbers of fields are in
//! `wire.txt`; their meaning in JSON comes from the table of types. Where the two differ, Go inlines
//! one struct into another: such a message's fields are its parent's in JSON.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::types::{kind_of, lookup};

const MAGIC: &[u8] = b"k8s\0";

/// Numbers of the fields of a message: name and type.
type Message = BTreeMap<u64, (&'static str, &'static str)>;

static MESSAGES: LazyLock<BTreeMap<&'static str, Message>> = LazyLock::new(|| {
    let mut messages: BTreeMap<_, Message> = BTreeMap::new();
    let mut current = "";
    for line in include_str!("wire.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let Some(field) = line.strip_prefix(' ') else {
            current = line;
            messages.entry(current).or_default();
            continue;
        };
        let mut words = field.splitn(3, ' ');
        if let (Some(number), Some(name), Some(ty)) = (words.next(), words.next(), words.next())
            && let (Ok(number), Some(message)) = (number.parse(), messages.get_mut(current))
        {
            message.insert(number, (name, ty));
        }
    }
    messages
});

/// Reads an object in Kubernetes' protobuf envelope.
pub(super) fn decode(body: &[u8]) -> Result<Value, String> {
    let envelope = body.strip_prefix(MAGIC).ok_or(
        "provided data does not appear to be a protobuf message, expected prefix 6b387300",
    )?;
    let (mut meta, mut raw) = (&[][..], &[][..]);
    each(envelope, |number, value| {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => meta = bytes,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
        Ok(())
    })?;
    let (mut api_version, mut kind) = (String::new(), String::new());
    each(meta, |number, value| {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => api_version = text(bytes)?,
            (2, Wire::Bytes(bytes)) => kind = text(bytes)?,
            _ => {}
        }
        Ok(())
    })?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let name = match kind_of(group, version, &kind) {
        Some(definition) => definition.name,
        None if kind == "DeleteOptions" => "meta.v1.DeleteOptions",
        None => {
            return Err(format!(
                "no kind {kind:?} is registered for version {api_version:?}"
            ));
        }
    };
    let mut object = message(raw, name)?;
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

/// A value as it is on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a text is not UTF-8".to_owned())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or("unexpected EOF")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("integer overflow".to_owned())
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or("unexpected EOF")?;
    *bytes = rest;
    Ok(taken)
}

/// Calls `visit` with every field of a message.
fn each<'a>(
    mut bytes: &'a [u8],
    mut visit: impl FnMut(u64, Wire<'a>) -> Result<(), String>,
) -> Result<(), String> {
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Wire::Varint(varint(&mut bytes)?),
            1 => {
                let mut fixed = [0; 8];
                fixed.copy_from_slice(take(&mut bytes, 8)?);
                Wire::Fixed64(fixed)
            }
            2 => {
                let length = varint(&mut bytes)?;
                let length = usize::try_from(length).map_err(|_| "unexpected EOF")?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => {
                take(&mut bytes, 4)?;
                continue;
            }
            other => return Err(format!("illegal wireType {other}")),
        };
        visit(key >> 3, value)?;
    }
    Ok(())
}

fn message(bytes: &[u8], name: &str) -> Result<Map<String, Value>, String> {
    let mut out = Map::new();
    let Some(numbers) = MESSAGES.get(name) else {
        return Err(format!("{name} cannot be read"));
    };
    let definition = lookup(name);
    each(bytes, |number, wire| {
        let Some((field, ty)) = numbers.get(&number) else {
            return Ok(());
        };
        if let Some(item) = ty.strip_prefix("[]") {
            let value = value(wire, item)?;
            if let Value::Array(items) = out.entry(*field).or_insert_with(|| json!([])) {
                items.push(value);
            }
        } else if let Some(item) = ty.strip_prefix("{}") {
            let (key, value) = entry(wire, item)?;
            if let Value::Object(map) = out.entry(*field).or_insert_with(|| json!({})) {
                map.insert(key, value);
            }
        } else {
            let value = value(wire, ty)?;
            let declared = definition.and_then(|d| d.fields.get(field));
            match (declared, value) {
                // Go inlines this struct: its fields are ours.
                (None, Value::Object(inner)) if definition.is_some() => out.extend(inner),
                (declared, value) => {
                    let keeps = declared.is_some_and(|d| d.required || d.default.is_some());
                    if keeps || !is_unset(field, &value) {
                        out.insert((*field).to_owned(), value);
                    }
                }
            }
        }
        Ok(())
    })?;
    Ok(out)
}

/// Plain fields are sent even when nobody set them; only those behind a pointer mean their zero.
fn is_unset(field: &str, value: &Value) -> bool {
    const ZEROS: [&str; 14] = [
        "activeDeadlineSeconds",
        "backoffLimit",
        "completions",
        "defaultMode",
        "fsGroup",
        "gracePeriodSeconds",
        "parallelism",
        "partition",
        "replicas",
        "revisionHistoryLimit",
        "runAsGroup",
        "runAsUser",
        "terminationGracePeriodSeconds",
        "ttlSecondsAfterFinished",
    ];
    const FALSES: [&str; 14] = [
        "allowPrivilegeEscalation",
        "allowVolumeExpansion",
        "attachRequired",
        "automountServiceAccountToken",
        "blockOwnerDeletion",
        "controller",
        "enableServiceLinks",
        "immutable",
        "optional",
        "orphanDependents",
        "privileged",
        "readOnlyRootFilesystem",
        "runAsNonRoot",
        "suspend",
    ];
    match value {
        Value::Null => true,
        // An empty class is a choice: no class.
        Value::String(text) => text.is_empty() && field != "storageClassName",
        Value::Number(number) => number.as_f64() == Some(0.0) && !ZEROS.contains(&field),
        Value::Bool(on) => !on && !FALSES.contains(&field),
        _ => false,
    }
}

fn entry(wire: Wire<'_>, item: &str) -> Result<(String, Value), String> {
    let Wire::Bytes(bytes) = wire else {
        return Err("a map is not a message".to_owned());
    };
    let (mut key, mut found) = (String::new(), None);
    each(bytes, |number, wire| {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, wire) => found = Some(value(wire, item)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok((key, found.unwrap_or_else(|| json!(""))))
}

#[expect(
    clippy::cast_possible_wrap,
    reason = "protobuf's integers are two's complement"
)]
fn value(wire: Wire<'_>, ty: &str) -> Result<Value, String> {
    match (ty, wire) {
        ("string", Wire::Bytes(bytes)) => text(bytes).map(Value::from),
        ("bytes", Wire::Bytes(bytes)) => Ok(base64::engine::general_purpose::STANDARD
            .encode(bytes)
            .into()),
        ("bool", Wire::Varint(number)) => Ok((number != 0).into()),
        ("int32" | "int64", Wire::Varint(number)) => Ok((number as i64).into()),
        ("double", Wire::Fixed64(bytes)) => Ok(f64::from_le_bytes(bytes).into()),
        (name, Wire::Bytes(bytes)) => special(name, bytes)
            .unwrap_or_else(|| message(bytes, name).map(|map| only_items(name, map))),
        (name, _) => Err(format!("wrong wireType for {name}")),
    }
}

/// A message that only holds a list is that list in JSON.
fn only_items(name: &str, mut map: Map<String, Value>) -> Value {
    let numbers = MESSAGES.get(name);
    let only = numbers.is_some_and(|n| n.len() == 1 && n.get(&1).is_some_and(|f| f.0 == "items"));
    if only && lookup(name).is_none() {
        return map.remove("items").unwrap_or_else(|| json!([]));
    }
    Value::Object(map)
}

/// Messages that are plain values in JSON.
#[expect(
    clippy::cast_possible_wrap,
    reason = "protobuf's integers are two's complement"
)]
fn special(name: &str, bytes: &[u8]) -> Option<Result<Value, String>> {
    let mut numbers = [0i64; 4];
    let mut texts: [&[u8]; 4] = [&[]; 4];
    let short = name.rsplit('.').next()?;
    if !matches!(
        short,
        "Quantity" | "IntOrString" | "Time" | "MicroTime" | "RawExtension" | "FieldsV1"
    ) {
        return None;
    }
    let read = each(bytes, |number, wire| {
        let slot = usize::try_from(number).unwrap_or(usize::MAX);
        match wire {
            Wire::Varint(value) if slot < 4 => numbers[slot] = value as i64,
            Wire::Bytes(value) if slot < 4 => texts[slot] = value,
            _ => {}
        }
        Ok(())
    });
    if let Err(error) = read {
        return Some(Err(error));
    }
    Some(match short {
        "Quantity" => text(texts[1]).map(Value::from),
        "IntOrString" if numbers[1] == 0 => Ok(numbers[2].into()),
        "IntOrString" => text(texts[3]).map(Value::from),
        "Time" | "MicroTime" if bytes.is_empty() => Ok(Value::Null),
        "Time" | "MicroTime" => time(numbers[1], numbers[2], short == "MicroTime"),
        _ if texts[1].is_empty() => Ok(Value::Null),
        _ => serde_json::from_slice(texts[1]).map_err(|error| error.to_string()),
    })
}

fn time(seconds: i64, nanos: i64, micro: bool) -> Result<Value, String> {
    let nanos = i32::try_from(nanos).unwrap_or_default();
    let time = jiff::Timestamp::new(seconds, nanos).map_err(|error| error.to_string())?;
    let shown = if micro {
        time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    } else {
        time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    };
    Ok(shown.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with bytes.
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let length = u8::try_from(value.len()).expect("short in tests");
        assert!(length < 128);
        [&[number << 3 | 2, length], value].concat()
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &meta), &field(2, raw)].concat()
    }

    #[test]
    fn a_config_map_is_read_without_what_nobody_set() {
        let meta = [
            field(1, b"a"),
            field(2, b""),
            field(3, b"default"),
            vec![7 << 3, 0],
            field(8, b""),
        ]
        .concat();
        let data = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &meta), field(2, &data)].concat();
        let object = decode(&envelope("v1", "ConfigMap", &raw)).expect("it is well formed");
        assert_eq!(
            object,
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                   "metadata": {"name": "a", "namespace": "default"}, "data": {"k": "v"}})
        );
    }

    #[test]
    fn inlined_structs_and_special_values_become_what_json_has() {
        // A deployment of two replicas with a probe whose handler is inlined.
        let http = field(2, &[vec![1 << 3, 0], vec![2 << 3, 80]].concat());
        let probe = field(1, &field(2, &http));
        let container = [field(1, b"c"), field(2, b"i"), field(10, &probe)].concat();
        let template = field(2, &field(2, &container));
        let spec = [vec![1 << 3, 0], field(3, &template)].concat();
        let object =
            decode(&envelope("apps/v1", "Deployment", &field(2, &spec))).expect("well formed");
        assert_eq!(
            object["spec"],
            json!({"replicas": 0, "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "livenessProbe": {"httpGet": {"port": 80}}}]}}})
        );
    }

    #[test]
    fn what_is_no_protobuf_is_refused() {
        assert!(decode(b"{}").is_err());
        assert!(decode(&envelope("v1", "Unheard", b"")).is_err());
        assert!(decode(&envelope("v1", "ConfigMap", &[0x0a, 0x7f])).is_err());
    }
}
