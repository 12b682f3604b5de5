//! Types of expressions, so that a rule that can never work is refused with its definition.
//!
//! Everything is typed that a schema or a literal declares; what is not known is [`Ty::Any`] and fits
//! everywhere. So no rule is refused that might work, and most of those that cannot are found.

use std::collections::BTreeMap;

use kube_cel::cel::Program;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue};
use serde_json::Value;

use super::value::escape;

/// Names that are not variables: types, and what functions are called on.
const NAMES: [&str; 24] = [
    "base64",
    "bool",
    "bytes",
    "cidr",
    "double",
    "dyn",
    "duration",
    "format",
    "int",
    "ip",
    "list",
    "lists",
    "map",
    "math",
    "null_type",
    "optional",
    "regex",
    "semver",
    "sets",
    "string",
    "strings",
    "timestamp",
    "type",
    "uint",
];

/// The type of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ty<'a> {
    /// Not known.
    Any,
    Null,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Box<Self>),
    Map(Box<Self>),
    /// An object with the properties of a schema; the flag says whether it is a whole resource.
    Object(&'a Value, bool),
}

impl<'a> Ty<'a> {
    /// The type of values that `schema` describes.
    pub(super) fn of(schema: &'a Value, root: bool) -> Self {
        let flag = |name: &str| schema[name] == true;
        if flag("nullable")
            || flag("x-kubernetes-int-or-string")
            || flag("x-kubernetes-preserve-unknown-fields") && !root
        {
            return Self::Any;
        }
        let format = schema["format"].as_str().unwrap_or_default();
        match schema["type"].as_str().unwrap_or_default() {
            "boolean" => Self::Bool,
            "integer" => Self::Int,
            "number" => Self::Double,
            "string" => match format {
                "byte" => Self::Bytes,
                "date" | "date-time" | "datetime" => Self::Timestamp,
                "duration" => Self::Duration,
                _ => Self::String,
            },
            "array" => Self::List(Box::new(Self::of(&schema["items"], false))),
            "object" => match &schema["additionalProperties"] {
                Value::Null => {
                    let embedded = flag("x-kubernetes-embedded-resource");
                    Self::Object(schema, root || embedded)
                }
                Value::Object(_) => {
                    let value = Self::of(&schema["additionalProperties"], false);
                    Self::Map(Box::new(value))
                }
                _ => Self::Any,
            },
            _ => Self::Any,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Any => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Object(..) => "object",
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Double)
    }

    /// Whether values of both types can be compared.
    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any | Self::Null, _)
            | (_, Self::Any | Self::Null)
            | (Self::Map(_), Self::Object(..))
            | (Self::Object(..), Self::Map(_)) => true,
            (Self::List(a), Self::List(b)) | (Self::Map(a), Self::Map(b)) => a.meets(b),
            _ => self.name() == other.name() || self.is_number() && other.is_number(),
        }
    }

    fn is_ordered(&self) -> bool {
        !matches!(
            self,
            Self::List(_) | Self::Map(_) | Self::Object(..) | Self::Null
        )
    }

    fn field(&self, name: &str) -> Result<Self, String> {
        match self {
            Self::Any => Ok(Self::Any),
            Self::Map(value) => Ok((**value).clone()),
            Self::Object(schema, resource) => {
                match name {
                    "apiVersion" | "kind" if *resource => return Ok(Self::String),
                    "metadata" if *resource => return Ok(Self::Any),
                    _ => {}
                }
                let properties = schema["properties"].as_object().into_iter().flatten();
                let mut found = properties.filter(|(property, _)| escape(property) == name);
                found
                    .next()
                    .map(|(_, schema)| Ty::of(schema, false))
                    .ok_or_else(|| format!("undefined field '{name}'"))
            }
            other => Err(format!(
                "type '{}' does not support field selection",
                other.name()
            )),
        }
    }
}

/// What the names in an expression stand for.
type Scope<'a> = BTreeMap<String, Ty<'a>>;

/// Refuses `program` if it cannot give `wanted` with a `self` of type `this`.
pub(super) fn check(
    program: &Program,
    this: &Ty<'_>,
    optional_old: bool,
    wanted: &Ty<'_>,
) -> Result<(), String> {
    let old = if optional_old { Ty::Any } else { this.clone() };
    let scope = Scope::from([("self".to_owned(), this.clone()), ("oldSelf".into(), old)]);
    let found = infer(program.expression(), &scope)?;
    if found == Ty::Any || found == *wanted {
        return Ok(());
    }
    let article = if *wanted == Ty::Bool {
        "a bool"
    } else {
        "a string"
    };
    Err(format!("must evaluate to {article}"))
}

fn infer<'a>(expression: &IdedExpr, scope: &Scope<'a>) -> Result<Ty<'a>, String> {
    match &expression.expr {
        Expr::Literal(literal) => Ok(match literal {
            LiteralValue::Boolean(_) => Ty::Bool,
            LiteralValue::Bytes(_) => Ty::Bytes,
            LiteralValue::Double(_) => Ty::Double,
            LiteralValue::Int(_) | LiteralValue::UInt(_) => Ty::Int,
            LiteralValue::Null => Ty::Null,
            LiteralValue::String(_) => Ty::String,
        }),
        Expr::Ident(name) => match scope.get(name) {
            Some(ty) => Ok(ty.clone()),
            None if NAMES.contains(&name.as_str()) || name.starts_with('@') => Ok(Ty::Any),
            None => Err(format!("undeclared reference to '{name}'")),
        },
        Expr::Select(select) => {
            let found = infer(&select.operand, scope)?.field(&select.field)?;
            Ok(if select.test { Ty::Bool } else { found })
        }
        Expr::List(list) => {
            let mut common: Option<Ty<'a>> = None;
            for element in &list.elements {
                let ty = infer(element, scope)?;
                common = Some(match common {
                    Some(before) if before != ty => Ty::Any,
                    _ => ty,
                });
            }
            Ok(Ty::List(Box::new(common.unwrap_or(Ty::Any))))
        }
        Expr::Call(call) => self::call(call, scope),
        Expr::Comprehension(comprehension) => self::comprehension(comprehension, scope),
        Expr::Map(_) => Ok(Ty::Map(Box::new(Ty::Any))),
        Expr::Struct(_) | Expr::Unspecified => Ok(Ty::Any),
    }
}

fn comprehension<'a>(
    comprehension: &ComprehensionExpr,
    scope: &Scope<'a>,
) -> Result<Ty<'a>, String> {
    let range = infer(&comprehension.iter_range, scope)?;
    let (key, value) = match range {
        Ty::List(item) => (Ty::Int, *item),
        Ty::Map(value) => (Ty::String, *value),
        Ty::Any | Ty::Object(..) => (Ty::Any, Ty::Any),
        other => {
            return Err(format!(
                "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                other.name()
            ));
        }
    };
    let is_map = key == Ty::String;
    let mut inner = scope.clone();
    if let Some(second) = &comprehension.iter_var2 {
        inner.insert(comprehension.iter_var.clone(), key);
        inner.insert(second.clone(), value);
    } else {
        let item = if is_map { key } else { value };
        inner.insert(comprehension.iter_var.clone(), item);
    }
    let start = match infer(&comprehension.accu_init, scope)? {
        // What a list or map is filled with is not known yet.
        Ty::List(_) => Ty::List(Box::new(Ty::Any)),
        other => other,
    };
    inner.insert(comprehension.accu_var.clone(), start);
    infer(&comprehension.loop_cond, &inner)?;
    infer(&comprehension.loop_step, &inner)?;
    infer(&comprehension.result, &inner)
}

fn call<'a>(call: &CallExpr, scope: &Scope<'a>) -> Result<Ty<'a>, String> {
    let mut types = Vec::new();
    for argument in call.target.as_deref().into_iter().chain(&call.args) {
        types.push(infer(argument, scope)?);
    }
    let name = call.func_name.as_str();
    let no_overload = || {
        let shown: Vec<_> = types.iter().map(Ty::name).collect();
        format!(
            "found no matching overload for '{name}' applied to '({})'",
            shown.join(", ")
        )
    };
    let fits = |ty: &Ty<'_>, wanted: &Ty<'_>| *ty == Ty::Any || ty == wanted;
    let need = |fine: bool, result: Ty<'a>| {
        if fine { Ok(result) } else { Err(no_overload()) }
    };
    match (name, types.as_slice()) {
        ("_&&_" | "_||_", [a, b]) => need(fits(a, &Ty::Bool) && fits(b, &Ty::Bool), Ty::Bool),
        ("!_", [a]) => need(fits(a, &Ty::Bool), Ty::Bool),
        ("_==_" | "_!=_", [a, b]) => need(a.meets(b), Ty::Bool),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => {
            let ordered = a.is_ordered() && b.is_ordered();
            need(ordered && a.meets(b), Ty::Bool)
        }
        ("_?_:_", [condition, a, b]) => {
            let result = if a == b { a.clone() } else { Ty::Any };
            need(fits(condition, &Ty::Bool), result)
        }
        ("_-_" | "_*_" | "_/_" | "_%_", [a, b]) if a.is_number() || b.is_number() => {
            let other = if a.is_number() { b } else { a };
            // Times are moved by durations, never by numbers.
            need(*other == Ty::Any || a == b, a.clone())
        }
        ("_+_", [a, b]) => {
            let times = |ty: &Ty<'_>| matches!(ty, Ty::Timestamp | Ty::Duration);
            let result = if a == b { a.clone() } else { Ty::Any };
            let lists = matches!((a, b), (Ty::List(_), Ty::List(_)));
            let any = *a == Ty::Any || *b == Ty::Any;
            need(any || a == b || lists || times(a) && times(b), result)
        }
        ("@in", [_, range]) => {
            let holds = matches!(range, Ty::Any | Ty::List(_) | Ty::Map(_) | Ty::Object(..));
            need(holds, Ty::Bool)
        }
        ("_[_]", [Ty::List(item), _]) => Ok((**item).clone()),
        ("_[_]", [Ty::Map(value), _]) => Ok((**value).clone()),
        ("startsWith" | "endsWith" | "matches", [a, b]) => {
            need(fits(a, &Ty::String) && fits(b, &Ty::String), Ty::Bool)
        }
        ("size", [a]) => need(
            matches!(
                a,
                Ty::Any | Ty::String | Ty::Bytes | Ty::List(_) | Ty::Map(_) | Ty::Object(..)
            ),
            Ty::Int,
        ),
        ("int", [_]) => Ok(Ty::Int),
        ("double", [_]) => Ok(Ty::Double),
        ("string", [_]) => Ok(Ty::String),
        ("bool" | "has" | "isURL" | "isIP" | "isCIDR" | "isQuantity", [_]) => Ok(Ty::Bool),
        _ => Ok(Ty::Any),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(rule: &str) -> String {
        let schema = json!({"type": "object", "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "maybe": {"type": "string", "nullable": true},
            "a-b": {"type": "boolean"},
            "list": {"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string"}}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        let program = Program::compile(rule).unwrap();
        let this = Ty::of(&schema, false);
        check(&program, &this, false, &Ty::Bool)
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn rules_that_can_work_are_taken() {
        for rule in [
            "self.text == 'x' && self.count > 1",
            "!has(self.maybe) || self.maybe == null",
            "self.a__dash__b",
            "self.list.all(x, x.name.startsWith('a'))",
            "self.list.exists_one(x, x.name == 'a')",
            "self.list.map(x, x.name).size() > 0",
            "self.list.filter(x, x.name != '')[0].name == 'a'",
            "self.labels['a'] == 'b' && 'c' in self.labels",
            "self.labels.all(key, key.size() < 10)",
            "self.free.whatever == 1",
            "self.count == oldSelf.count ? true : self.count > 1.5",
            "size(self.text) + self.count > 3",
            "self.text.matches('^a') || self.text in ['a', 'b']",
            "duration('1h') > duration('1m')",
            "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
        ] {
            assert_eq!(fault(rule), "", "{rule}");
        }
    }

    #[test]
    fn rules_that_cannot_work_are_refused() {
        let faults: Vec<String> = [
            "self.none == 1",
            "self.text > 1",
            "self.text",
            "self.count.x == 1",
            "self.list.all(x, x.none == 'a')",
            "self.text + 1 == 'x'",
            "!self.count",
            "other == 1",
            "self.count.startsWith('a')",
            "self.text.all(x, true)",
            "self.list == 'x'",
        ]
        .map(fault)
        .to_vec();
        insta::assert_debug_snapshot!(faults, @r#"
        [
            "undefined field 'none'",
            "found no matching overload for '_>_' applied to '(string, int)'",
            "must evaluate to a bool",
            "type 'int' does not support field selection",
            "undefined field 'none'",
            "found no matching overload for '_+_' applied to '(string, int)'",
            "found no matching overload for '!_' applied to '(int)'",
            "undeclared reference to 'other'",
            "found no matching overload for 'startsWith' applied to '(int, string)'",
            "expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)",
            "found no matching overload for '_==_' applied to '(list, string)'",
        ]
        "#);
    }
}
