//! The CEL conditions of a webhook: `matchConditions`.

use kube_cel::cel::Program;
use serde_json::Value;

use crate::{registry::text, schema::cel};

/// One condition.
pub(super) struct Condition {
    expression: String,
    program: Result<Program, String>,
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Condition").field(&self.expression).finish()
    }
}

impl Condition {
    pub(super) fn read(condition: &Value) -> Self {
        let expression = text(condition, "expression");
        Self {
            expression: expression.to_owned(),
            program: compile(expression),
        }
    }

    /// Whether it holds of the request of a review.
    pub(super) fn holds(&self, request: &Value) -> Result<bool, String> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let variables = [
            ("request", request),
            ("object", &request["object"]),
            ("oldObject", &request["oldObject"]),
        ];
        cel::decide(program, &variables).map_err(|error| {
            format!(
                "expression '{}' resulted in error: {error}",
                self.expression
            )
        })
    }
}

fn compile(expression: &str) -> Result<Program, String> {
    Program::compile(expression).map_err(|error| format!("compilation failed: {error}"))
}

/// What is wrong with an expression, if anything.
pub(crate) fn check(expression: &str) -> Result<(), String> {
    let program = compile(expression)?;
    if program.references().has_variable("authorizer") {
        return Err(
            "compilation failed: this server does not offer 'authorizer'; use RBAC for what users may do"
                .to_owned(),
        );
    }
    // The program knows names but not which of them its macros declare, so a trial tells.
    match cel::undeclared(&program, &["object", "oldObject", "request"]) {
        Some(name) => Err(format!(
            "compilation failed: ERROR: <input>: undeclared reference to '{name}' (in container '')"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_webhook_may_know_can_be_named() {
        assert!(check("object.metadata.name == 'a' && !has(oldObject.spec)").is_ok());
        assert!(check("[1, 2].all(x, x > 0) && type(object) == map").is_ok());
        assert!(
            check("self.x")
                .unwrap_err()
                .contains("undeclared reference to 'self'")
        );
        assert!(check("authorizer.group('')").is_err());
        assert!(check("1 +").is_err());
    }
}
