//! One compiled rule.

use std::fmt;

use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;

use super::types::{self, Ty};
use crate::schema::{Fault, FieldError, join};

/// A rule, compiled, with everything its failure says.
pub(crate) struct Rule {
    pub(super) program: Program,
    pub(super) message_program: Option<Program>,
    pub(super) source: String,
    pub(super) message: Option<String>,
    pub(super) fault: Fault,
    pub(super) field_path: Option<String>,
    pub(super) uses_old: bool,
    pub(super) optional_old: bool,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.source).finish()
    }
}

impl Rule {
    /// Compiles the rule found at `at`, which is about values that `schema` describes.
    ///
    /// `root` says whether that is the whole resource, which has more than its schema tells.
    pub(crate) fn compile(
        raw: &Value,
        at: &str,
        schema: &Value,
        root: bool,
    ) -> Result<Self, FieldError> {
        let text = |name: &str| raw.get(name).and_then(Value::as_str).map(str::trim);
        let source = text("rule").unwrap_or_default();
        if source.is_empty() {
            return Err(FieldError::required(
                &join(at, "rule"),
                "rule is not specified",
            ));
        }
        let message = text("message").filter(|m| !m.is_empty());
        if message.is_some_and(|m| m.contains('\n')) {
            let value = raw["message"].clone();
            let at = join(at, "message");
            return Err(FieldError::invalid(
                &at,
                value,
                "must not contain line breaks",
            ));
        }
        if source.contains('\n') && message.is_none() {
            let why = "message must be specified if rule contains line breaks";
            return Err(FieldError::required(&join(at, "message"), why));
        }
        let program = compile(source, raw, &join(at, "rule"))?;
        let message_program = text("messageExpression")
            .filter(|e| !e.is_empty())
            .map(|e| compile(e, raw, &join(at, "messageExpression")))
            .transpose()?;
        let this = Ty::of(schema, root);
        let optional_old = raw.get("optionalOldSelf") == Some(&Value::Bool(true));
        for (program, name, wanted) in [
            (Some(&program), "rule", Ty::Bool),
            (message_program.as_ref(), "messageExpression", Ty::String),
        ] {
            if let Some(program) = program {
                types::check(program, &this, optional_old, &wanted).map_err(|why| {
                    let detail = format!("compilation failed: ERROR: <input>: {why}");
                    FieldError::invalid(&join(at, name), raw.clone(), detail)
                })?;
            }
        }
        if let Some(path) = text("fieldPath").filter(|p| !p.is_empty())
            && !leads_somewhere(schema, path)
        {
            let why = "fieldPath must be a valid path: does not refer to a valid field";
            return Err(FieldError::invalid(&join(at, "fieldPath"), path, why));
        }
        let uses_old = program.references().has_variable("oldSelf");
        let optional = raw.get("optionalOldSelf").and_then(Value::as_bool);
        if let (false, Some(optional)) = (uses_old, optional) {
            let why = "may not be set if oldSelf is not used in rule";
            return Err(FieldError::invalid(
                &join(at, "optionalOldSelf"),
                optional,
                why,
            ));
        }
        let fault = match text("reason") {
            None | Some("" | "FieldValueInvalid") => Fault::Invalid,
            Some("FieldValueForbidden") => Fault::Forbidden,
            Some("FieldValueRequired") => Fault::Required,
            Some("FieldValueDuplicate") => Fault::Duplicate,
            Some(other) => {
                return Err(FieldError::not_supported(
                    &join(at, "reason"),
                    other,
                    &[
                        "FieldValueDuplicate",
                        "FieldValueForbidden",
                        "FieldValueInvalid",
                        "FieldValueRequired",
                    ],
                ));
            }
        };
        Ok(Self {
            program,
            message_program,
            source: source.to_owned(),
            message: message.map(str::to_owned),
            fault,
            field_path: text("fieldPath").filter(|p| !p.is_empty()).map(normalise),
            uses_old,
            optional_old: optional.unwrap_or_default(),
        })
    }

    /// What the failure of this rule says: its expression, else its message, else the rule itself.
    pub(super) fn explain(&self, scope: &Context<'_>) -> String {
        if let Some(program) = &self.message_program
            && let Ok(Cel::String(text)) = program.execute(scope)
        {
            let text = text.trim();
            if !text.is_empty() && !text.contains('\n') {
                return text.to_owned();
            }
        }
        self.text()
    }

    /// The rule's message, or the rule.
    pub(super) fn text(&self) -> String {
        self.message
            .clone()
            .unwrap_or_else(|| format!("failed rule: {}", self.source))
    }
}

fn compile(source: &str, raw: &Value, at: &str) -> Result<Program, FieldError> {
    Program::compile(source).map_err(|error| {
        FieldError::invalid(at, raw.clone(), format!("compilation failed: {error}"))
    })
}

/// Whether a path such as `.spec.x['a.b']` names something that `schema` declares.
fn leads_somewhere(schema: &Value, path: &str) -> bool {
    let mut rest = path;
    let mut at = schema;
    while !rest.is_empty() {
        let (name, after) = if let Some(quoted) = rest.strip_prefix("['") {
            match quoted.split_once("']") {
                Some(parts) => parts,
                None => return false,
            }
        } else if let Some(plain) = rest.strip_prefix('.') {
            plain.split_at(plain.find(['.', '[']).unwrap_or(plain.len()))
        } else {
            return false;
        };
        let property = at["properties"].get(name);
        let below = property.or_else(|| Some(&at["additionalProperties"]));
        match below.filter(|schema| schema.is_object()) {
            Some(below) => at = below,
            None => return false,
        }
        rest = after;
    }
    true
}

/// Turns `.spec.x['a.b']` into the notation of field errors, `spec.x[a.b]`.
fn normalise(path: &str) -> String {
    path.trim_start_matches('.')
        .replace("['", "[")
        .replace("']", "]")
}
