//! CEL validation rules (`x-kubernetes-validations`).
//!
//! kube-cel provides the language and Kubernetes' function libraries. The walk is ours, because what
//! `oldSelf` is depends on the schema: entries of list maps are matched by their keys, entries of
//! other lists have no past, and a failed rule is forgiven where the value did not change.

mod rule;
mod types;
mod value;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, Program, Value as Cel};
use serde_json::Value;

pub(crate) use rule::Rule;

use super::check::correlate;
use super::node::{Node, Type};
use super::{Fault, FieldError};

thread_local! {
    /// The function libraries, registered once per thread.
    static LIBRARY: Context<'static> = library();
}

fn library() -> Context<'static> {
    let mut library = Context::default().with_all();
    // Types are compared by name only, so their names stand for them.
    library.add_function("type", type_of);
    for name in [
        "bool",
        "bytes",
        "double",
        "int",
        "list",
        "map",
        "string",
        "uint",
        "null_type",
    ] {
        library.add_variable_from_value(name, name.to_owned());
    }
    library
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of a CEL function")]
fn type_of(value: Cel) -> Result<Cel, ExecutionError> {
    let name = match &value {
        Cel::Bool(_) => "bool",
        Cel::Bytes(_) => "bytes",
        Cel::Float(_) => "double",
        Cel::Int(_) => "int",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::String(_) => "string",
        Cel::UInt(_) => "uint",
        Cel::Null => "null_type",
        other => {
            return Err(ExecutionError::function_error(
                "type",
                format!("of {other:?} is not known"),
            ));
        }
    };
    Ok(Cel::String(std::sync::Arc::new(name.to_owned())))
}

/// Evaluates all rules of `root` on `object`.
pub(crate) fn check(root: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if !root.any_rules {
        return Vec::new();
    }
    LIBRARY.with(|library| {
        let mut walk = Walk {
            library,
            errors: Vec::new(),
        };
        let unchanged = old == Some(object);
        walk.node(root, object, old, "", unchanged);
        walk.errors
    })
}

/// Whether a program that sees these JSON values says yes.
pub(crate) fn decide(program: &Program, variables: &[(&str, &Value)]) -> Result<bool, String> {
    LIBRARY.with(|library| {
        let mut scope = library.new_inner_scope();
        for (name, value) in variables {
            scope.add_variable_from_value(*name, value::plain(value));
        }
        match program.execute(&scope) {
            Ok(Cel::Bool(answer)) => Ok(answer),
            Ok(_) => Err("must evaluate to bool".to_owned()),
            Err(error) => Err(lower(&error)),
        }
    })
}

/// A name that a program uses although nobody declares it.
pub(crate) fn undeclared(program: &Program, declared: &[&str]) -> Option<String> {
    LIBRARY.with(|library| {
        let mut scope = library.new_inner_scope();
        for name in declared {
            scope.add_variable_from_value(*name, value::plain(&serde_json::json!({})));
        }
        match program.execute(&scope) {
            Err(ExecutionError::UndeclaredReference(name)) => Some(name.to_string()),
            _ => None,
        }
    })
}

struct Walk<'a> {
    library: &'a Context<'static>,
    errors: Vec<FieldError>,
}

impl Walk<'_> {
    /// `unchanged` says whether the nearest place that has a past is as it was.
    fn node(
        &mut self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        unchanged: bool,
    ) {
        if !node.any_rules || value.is_null() {
            return;
        }
        self.rules(node, value, old, path, unchanged);
        for alternative in &node.bounds.all_of {
            self.node(alternative, value, old, path, false);
        }
        match value {
            Value::Object(map) => {
                for (name, child) in map {
                    let (sub, below) = if let Some(property) = node.properties.get(name) {
                        (property, super::join(path, name))
                    } else if let Some(sub) = node.additional.schema() {
                        (sub, format!("{path}[{name}]"))
                    } else {
                        continue;
                    };
                    let before = old.and_then(|old| old.get(name));
                    let same = before.map_or(unchanged, |before| before == child);
                    self.node(sub, child, before, &below, same);
                }
            }
            Value::Array(items) => {
                let Some(sub) = &node.items else { return };
                let old = old.and_then(Value::as_array).map(Vec::as_slice);
                for (i, child) in items.iter().enumerate() {
                    let before = correlate(node, child, old);
                    let same = before.map_or(unchanged, |before| before == child);
                    self.node(sub, child, before, &format!("{path}[{i}]"), same);
                }
            }
            _ => {}
        }
    }

    fn rules(
        &mut self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        unchanged: bool,
    ) {
        // What did not change is forgiven whatever its rules say, but for those that look at its past.
        let is_asked = |rule: &&Rule| !unchanged || rule.uses_old;
        if !node.rules.iter().any(|rule| is_asked(&rule)) {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        let this = value::convert(self.library, node, value);
        let that = old.map(|old| value::convert(self.library, node, old));
        for rule in node.rules.iter().filter(is_asked) {
            if rule.uses_old && that.is_none() && !rule.optional_old {
                continue;
            }
            let mut scope = self.library.new_inner_scope();
            scope.add_variable_from_value("self", this.clone());
            match (&that, rule.optional_old) {
                (that, true) => {
                    let old = that
                        .clone()
                        .map_or_else(OptionalValue::none, OptionalValue::of);
                    scope.add_variable_from_value("oldSelf", Cel::Opaque(std::sync::Arc::new(old)));
                }
                (Some(that), false) => scope.add_variable_from_value("oldSelf", that.clone()),
                (None, false) => {}
            }
            let kind = node.kind.map_or("", Type::name);
            let at = if path.is_empty() { "<nil>" } else { path };
            match rule.program.execute(&scope) {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) => {
                    let detail = rule.explain(&scope);
                    self.errors.push(failure(node, rule, value, path, detail));
                }
                Ok(_) => self.errors.push(FieldError::invalid(
                    at,
                    kind,
                    format!("rule did not evaluate to bool: {}", rule.text()),
                )),
                Err(error) => {
                    let detail = format!("{} evaluating rule: {}", lower(&error), rule.text());
                    self.errors.push(FieldError::invalid(at, kind, detail));
                }
            }
        }
    }
}

/// The error of a rule that evaluated to false, as its `reason` and `fieldPath` want it.
fn failure(node: &Node, rule: &Rule, value: &Value, path: &str, detail: String) -> FieldError {
    let at = match (&rule.field_path, path) {
        (Some(below), _) if below.starts_with('[') => format!("{path}{below}"),
        (Some(below), _) => super::join(path, below),
        (None, "") => "<nil>".to_owned(),
        (None, path) => path.to_owned(),
    };
    let shown = match node.kind {
        Some(Type::Object | Type::Array) => None,
        _ => Some(value.clone()),
    };
    let detail = if rule.fault == Fault::Duplicate {
        String::new()
    } else {
        detail
    };
    FieldError {
        fault: rule.fault,
        field: at,
        value: shown,
        detail,
    }
}

fn lower(error: &impl ToString) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}
