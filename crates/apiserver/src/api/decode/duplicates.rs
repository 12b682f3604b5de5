//! JSON whose objects name a member twice: parsed as Go does, with the duplicates told.
//!
//! Go decodes a second map into the first, so the members of both are there, and replaces everything
//! else. A parsed value no longer shows what was there twice, so it is noticed while parsing.

use std::{cell::RefCell, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value, map::Entry};

/// The value, and `duplicate field "a.b"` for each duplicate.
pub(in crate::api) fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let found = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let walk = Walk {
        at: &Place::Root,
        found: &found,
    };
    let value = walk.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, found.into_inner()))
}

/// Where the walk is; spelled out only when there is something to tell.
enum Place<'a> {
    Root,
    Member(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) => f.write_str(name),
            Self::Member(above, name) => write!(f, "{above}.{name}"),
            Self::Item(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}

#[derive(Clone, Copy)]
struct Walk<'a> {
    at: &'a Place<'a>,
    found: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let at = Place::Member(self.at, &name);
            let value = access.next_value_seed(Walk { at: &at, ..self })?;
            if map.contains_key(&name) {
                let told = format!("duplicate field \"{at}\"");
                self.found.borrow_mut().push(told);
            }
            match map.entry(name) {
                Entry::Vacant(slot) => {
                    slot.insert(value);
                }
                Entry::Occupied(mut slot) => match (slot.get_mut(), value) {
                    (Value::Object(first), Value::Object(second)) => first.extend(second),
                    (slot, value) => *slot = value,
                },
            }
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let at = Place::Item(self.at, items.len());
            match access.next_element_seed(Walk { at: &at, ..self })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicates_are_named_with_their_path() {
        let (_, told) = parse(br#"{"a":{"b":1,"b":2},"c":[{"d":1,"d":null}]}"#).unwrap();
        assert_eq!(
            told,
            [r#"duplicate field "a.b""#, r#"duplicate field "c[0].d""#]
        );
    }

    #[test]
    fn a_second_map_joins_the_first_and_other_values_replace() {
        let (value, told) = parse(br#"{"data":{"x":"1"},"n":1,"data":{"y":"2"},"n":2}"#).unwrap();
        assert_eq!(value, json!({"data": {"x": "1", "y": "2"}, "n": 2}));
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn what_comes_after_the_value_is_an_error() {
        assert!(parse(b"{} x").is_err());
        assert!(parse(b"{").unwrap_err().is_eof());
    }

    proptest::proptest! {
        #[test]
        fn without_duplicates_it_parses_as_everybody_does(text in "[a-c{}\\[\\]:,0-9\"]{0,24}") {
            let ours = parse(text.as_bytes()).map(|(value, _)| value).ok();
            let theirs = serde_json::from_str::<Value>(&text).ok();
            proptest::prop_assert_eq!(ours.is_some(), theirs.is_some());
        }
    }
}
