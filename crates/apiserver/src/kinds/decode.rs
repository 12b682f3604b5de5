//! Type checks of built-in kinds, and the one form of each value.
//!
//! The real server decodes JSON into Go structs and answers 400 with the decoder's words when a value
//! does not fit, before any validation. What was read no longer knows how it was written: quantities
//! and times have one form, and where Go has no pointer a zero is as good as nothing.

use serde_json::{Value, json};

use super::quantity::Quantity;
use super::types::{Field, Ty, TypeDef, lookup};
use crate::golang;

/// In whose words a misfit is told: those of the decoder of JSON, or of the converter that reads what a
/// strategic merge or server-side apply made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// Go's decoder of JSON.
    Decoder,
    /// Kubernetes' converter of untyped objects.
    Converter,
}

/// Checks the types in `object`, brings its values into their one form and drops what is zero.
pub(super) fn decode(definition: &TypeDef, object: &mut Value, words: Words) -> Result<(), String> {
    let mut at = Place {
        owner: definition.short_name().to_owned(),
        path: String::new(),
        words,
    };
    named(definition, object, &mut at)
}

/// Where the decoder is: the struct it fills and the path below it.
struct Place {
    owner: String,
    path: String,
    words: Words,
}

impl Place {
    /// What is wrong with the form of a value of the right type.
    fn malformed(&self, why: String) -> String {
        match self.words {
            Words::Decoder => why,
            Words::Converter => format!("error decoding from json: {why}"),
        }
    }

    fn misfit(&self, value: &Value, ty: &Ty) -> String {
        if self.words == Words::Decoder {
            return self.wrong(value, &go_type(ty));
        }
        let found = match value {
            Value::Null => "interface",
            Value::Bool(_) => "bool",
            Value::Number(n) if n.is_f64() => "float64",
            Value::Number(_) => "int64",
            Value::String(_) => "string",
            Value::Array(_) => "slice",
            Value::Object(_) => "map",
        };
        match (ty, found) {
            (Ty::List(_), _) => format!("cannot restore slice from {found}"),
            (Ty::Map(..), _) => format!("cannot restore map from {found}"),
            (Ty::Named(_), _) => format!("cannot restore struct from: {found}"),
            (Ty::Int32 | Ty::Int64, "float64") => {
                format!("cannot convert float64 to {}", go_type(ty))
            }
            _ => format!("unrecognized type: {}", go_type(ty)),
        }
    }

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
        return Err(match at.words {
            Words::Decoder => at.wrong(value, &definition.go_name()),
            Words::Converter => at.misfit(value, &Ty::Named(definition.name)),
        });
    };
    map.retain(|name, child| !(child.is_null() && definition.fields.contains_key(name.as_str())));
    for (name, child) in map.iter_mut() {
        let Some(field) = definition.fields.get(name.as_str()) else {
            continue;
        };
        let mut below = Place {
            owner: at.owner.clone(),
            path: crate::schema::join(&at.path, name),
            words: at.words,
        };
        walk(&field.ty, child, &mut below)?;
    }
    map.retain(|name, child| {
        let field = definition.fields.get(name.as_str());
        !field.is_some_and(|field| is_nothing(field, child))
    });
    Ok(())
}

/// Whether Go cannot tell `value` from a field that is not there.
fn is_nothing(field: &Field, value: &Value) -> bool {
    if field.pointer {
        return false;
    }
    match (&field.ty, value) {
        (Ty::String | Ty::Bytes, Value::String(text)) => text.is_empty(),
        (Ty::Int32 | Ty::Int64 | Ty::Double, Value::Number(n)) => n.as_f64() == Some(0.0),
        (Ty::Bool, Value::Bool(b)) => !b,
        // An empty list that is always written is not the same as none.
        (Ty::List(_), Value::Array(items)) => items.is_empty() && field.omit,
        (Ty::Map(..), Value::Object(map)) => map.is_empty() && field.omit,
        _ => false,
    }
}

fn walk(ty: &Ty, value: &mut Value, at: &mut Place) -> Result<(), String> {
    if value.is_null() {
        // Go leaves the entry of a list or map as it was made: zero.
        *value = match ty {
            Ty::Bytes => json!(""),
            _ => ty.zero(),
        };
        if value.is_null() {
            return Ok(());
        }
    }
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
        _ => scalar(ty, value).map_err(|why| match why {
            Some(why) => at.malformed(why),
            None => at.misfit(value, ty),
        }),
    }
}

/// `Err(None)` for a value of the wrong type, `Err(Some(text))` for one of the wrong form.
fn scalar(ty: &Ty, value: &mut Value) -> Result<(), Option<String>> {
    let fits = match (ty, &*value) {
        (Ty::Any, _)
        | (Ty::String | Ty::IntOrString, Value::String(_))
        | (Ty::Bool, Value::Bool(_))
        | (Ty::Double, Value::Number(_))
        | (Ty::Object, Value::Object(_)) => true,
        (Ty::Quantity, Value::String(_) | Value::Number(_)) => {
            let text = match &*value {
                Value::String(text) => text.clone(),
                number => number.to_string(),
            };
            let quantity = Quantity::parse(&text).map_err(|why| Some(why.to_owned()))?;
            *value = json!(quantity.to_string());
            true
        }
        (Ty::Int32 | Ty::IntOrString, Value::Number(n)) => {
            n.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
        }
        (Ty::Int64, Value::Number(n)) => n.is_i64(),
        (Ty::Bytes, Value::String(text)) => {
            use base64::Engine as _;
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            return decoded
                .map(drop)
                .map_err(|error| Some(golang::base64_fault(&error, text)));
        }
        (Ty::Time | Ty::MicroTime, Value::String(text)) => {
            *value = json!(time(text, *ty == Ty::MicroTime).map_err(Some)?);
            true
        }
        _ => false,
    };
    if fits { Ok(()) } else { Err(None) }
}

/// A time in UTC, to the second or to the microsecond.
fn time(text: &str, micro: bool) -> Result<String, String> {
    let layout = if micro {
        "2006-01-02T15:04:05.000000Z07:00"
    } else {
        "2006-01-02T15:04:05Z07:00"
    };
    let fault = |rest: &str, element: &str| {
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            golang::quote(text),
            golang::quote(layout),
            golang::quote(rest),
            golang::quote(element)
        )
    };
    let Ok(parsed) = text.parse::<jiff::Timestamp>() else {
        return Err(fault(text, "2006"));
    };
    if !micro {
        return Ok(crate::clock::rfc3339(parsed));
    }
    // Six digits, no more and no less.
    let rest = text.get(19..).unwrap_or_default();
    let digits = rest
        .strip_prefix('.')
        .map_or(0, |d| d.bytes().take_while(u8::is_ascii_digit).count());
    if digits != 6 {
        return Err(fault(rest, ".000000"));
    }
    Ok(crate::clock::rfc3339_micro(parsed))
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
        let mut object =
            json!({"data": {}, "metadata": {"labels": {}, "finalizers": [], "generateName": ""}});
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
    fn values_have_one_form() {
        let mut pod = json!({"spec": {
            "hostNetwork": false, "automountServiceAccountToken": false, "nodeName": "",
            "containers": [{"name": "a", "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}],
        }, "status": {"startTime": "2024-01-02T04:04:05.7+01:00"}});
        BuiltIn::find("", "v1", "Pod")
            .unwrap()
            .decode(&mut pod)
            .unwrap();
        assert_eq!(
            pod,
            json!({"spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}],
        }, "status": {"startTime": "2024-01-02T03:04:05Z"}})
        );
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
