//! Type checks of built-in kinds.
//!
//! The real server decodes JSON into Go structs and answers 400 with the decoder's words when a value
//! does not fit, before any validation. Nulls and empty lists and maps are dropped where Go would
//! not write them either.

use serde_json::Value;

use super::types::{Ty, TypeDef, lookup};

/// Checks the types in `object` and drops nulls of known fields.
pub(super) fn decode(definition: &TypeDef, object: &mut Value) -> Result<(), String> {
    let mut at = Place {
        owner: definition.short_name().to_owned(),
        path: String::new(),
    };
    named(definition, object, &mut at)
}

/// Where the decoder is: the struct it fills and the path below it.
struct Place {
    owner: String,
    path: String,
}

impl Place {
    fn wrong(&self, value: &Value, target: &str) -> String {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(n) if target.starts_with("int") => format!("number {n}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        if self.path.is_empty() {
            return format!("json: cannot unmarshal {found} into Go value of type {target}");
        }
        let (owner, path) = (&self.owner, &self.path);
        format!(
            "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {target}"
        )
    }
}

fn named(definition: &TypeDef, value: &mut Value, at: &mut Place) -> Result<(), String> {
    let Value::Object(map) = value else {
        return Err(at.wrong(value, &definition.go_name()));
    };
    map.retain(|name, child| !(child.is_null() && definition.fields.contains_key(name.as_str())));
    for (name, child) in map.iter_mut() {
        let Some(field) = definition.fields.get(name.as_str()) else {
            continue;
        };
        let mut below = Place {
            owner: at.owner.clone(),
            path: crate::schema::join(&at.path, name),
        };
        walk(&field.ty, child, &mut below)?;
    }
    // Go does not write empty lists and maps that may be missing.
    map.retain(
        |name, child| match (definition.fields.get(name.as_str()), child) {
            (Some(field), Value::Array(items)) if !field.required => {
                !(items.is_empty() && matches!(field.ty, Ty::List(_)))
            }
            (Some(field), Value::Object(entries)) if !field.required => {
                !(entries.is_empty() && matches!(field.ty, Ty::Map(..)))
            }
            _ => true,
        },
    );
    Ok(())
}

fn walk(ty: &Ty, value: &mut Value, at: &mut Place) -> Result<(), String> {
    match (ty, &mut *value) {
        (Ty::Named(name), value) => {
            let Some(definition) = lookup(name) else {
                return Ok(());
            };
            definition.short_name().clone_into(&mut at.owner);
            named(definition, value, at)
        }
        (Ty::List(list), Value::Array(items)) => items
            .iter_mut()
            .try_for_each(|item| walk(&list.item, item, at)),
        (Ty::Map(sub, _), Value::Object(map)) => {
            map.values_mut().try_for_each(|child| walk(sub, child, at))
        }
        _ => scalar(ty, value)
            .map_err(|target| target.unwrap_or_else(|| at.wrong(value, &go_type(ty)))),
    }
}

/// `Err(None)` for a value of the wrong type, `Err(Some(text))` for one of the wrong form.
fn scalar(ty: &Ty, value: &Value) -> Result<(), Option<String>> {
    let fits = match (ty, value) {
        (Ty::Any, _)
        | (Ty::String | Ty::Quantity | Ty::IntOrString, Value::String(_))
        | (Ty::Bool, Value::Bool(_))
        | (Ty::Double | Ty::Quantity, Value::Number(_))
        | (Ty::Object, Value::Object(_)) => true,
        (Ty::Int32 | Ty::IntOrString, Value::Number(n)) => {
            n.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
        }
        (Ty::Int64, Value::Number(n)) => n.is_i64(),
        (Ty::Bytes, Value::String(text)) => {
            use base64::Engine as _;
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            return decoded
                .map(drop)
                .map_err(|error| Some(base64_fault(&error, text)));
        }
        (Ty::Time | Ty::MicroTime, Value::String(text)) => {
            if text.parse::<jiff::Timestamp>().is_err() {
                let quoted = crate::golang::quote(&crate::golang::quote(text));
                let layout = if *ty == Ty::Time {
                    "2006-01-02T15:04:05Z07:00"
                } else {
                    "2006-01-02T15:04:05.000000Z07:00"
                };
                let quoted = quoted.replace("\\\"", "\"");
                let quoted = quoted.trim_matches('"');
                let rest = crate::golang::quote(text);
                return Err(Some(format!(
                    "parsing time \"{quoted}\" as \"{layout}\": cannot parse {rest} as \"2006\""
                )));
            }
            true
        }
        _ => false,
    };
    if fits { Ok(()) } else { Err(None) }
}

fn base64_fault(error: &base64::DecodeError, text: &str) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
            *at
        }
        _ => text.len() / 4 * 4,
    };
    format!("illegal base64 data at input byte {at}")
}

fn go_type(ty: &Ty) -> String {
    match ty {
        Ty::String => "string".into(),
        Ty::Int32 => "int32".into(),
        Ty::Int64 => "int64".into(),
        Ty::Double => "float64".into(),
        Ty::Bool => "bool".into(),
        Ty::Bytes => "[]uint8".into(),
        Ty::Time => "v1.Time".into(),
        Ty::MicroTime => "v1.MicroTime".into(),
        Ty::Quantity => "resource.Quantity".into(),
        Ty::IntOrString => "intstr.IntOrString".into(),
        Ty::Object | Ty::Any => "runtime.RawExtension".into(),
        Ty::Named(name) => lookup(name).map_or_else(String::new, TypeDef::go_name),
        Ty::List(list) => format!("[]{}", go_type(&list.item)),
        Ty::Map(value, _) => format!("map[string]{}", go_type(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::kinds::BuiltIn;

    fn fault(kind: (&str, &str), mut object: serde_json::Value) -> String {
        BuiltIn::find(kind.0, "v1", kind.1)
            .expect("the kind is known")
            .decode(&mut object)
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn values_of_the_wrong_type_are_refused_in_the_words_of_go() {
        let faults = [
            fault(
                ("apps", "Deployment"),
                json!({"spec": {"replicas": "three"}}),
            ),
            fault(("apps", "Deployment"), json!({"spec": {"replicas": 1.5}})),
            fault(("", "ConfigMap"), json!({"data": {"a": 1}})),
            fault(("", "Pod"), json!({"spec": {"containers": {"name": "x"}}})),
            fault(("", "Pod"), json!({"spec": {"containers": ["x"]}})),
            fault(("", "Secret"), json!({"data": {"a": "%%"}})),
            fault(("", "Pod"), json!({"metadata": {"labels": ["x"]}})),
            fault(("", "Pod"), json!({"spec": {"hostNetwork": "yes"}})),
        ];
        insta::assert_debug_snapshot!(faults);
    }

    #[test]
    fn empty_lists_and_maps_are_as_good_as_missing() {
        let mut object = json!({"data": {}, "metadata": {"labels": {}, "finalizers": []}});
        BuiltIn::find("", "v1", "ConfigMap")
            .unwrap()
            .decode(&mut object)
            .unwrap();
        assert_eq!(object, json!({"metadata": {}}));
        let mut object = json!({"spec": {"selector": {}, "template": {"spec": {"containers": [],
            "volumes": [{"name": "x", "emptyDir": {}}]}}}});
        let same = object.clone();
        BuiltIn::find("apps", "v1", "Deployment")
            .unwrap()
            .decode(&mut object)
            .unwrap();
        assert_eq!(object, same);
    }

    #[test]
    fn nulls_are_as_good_as_missing() {
        let mut object = json!({"spec": {"replicas": null, "paused": true}});
        BuiltIn::find("apps", "v1", "Deployment")
            .unwrap()
            .decode(&mut object)
            .unwrap();
        assert_eq!(object, json!({"spec": {"paused": true}}));
    }
}
