//! One request: who asks, what for, with which options.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, header};

use crate::{
    auth::User,
    request::{Query, Target},
    status::{Cause, Result, Status},
};

/// A request and what is gathered while answering it.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) user: Arc<User>,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    warnings: Mutex<Vec<String>>,
    /// The manager recorded for what the server does by itself.
    acts_as: Option<&'static str>,
}

/// What happens to fields the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl Context {
    pub(crate) fn new(
        user: Arc<User>,
        target: Target,
        query: Query,
        headers: HeaderMap,
        body: Bytes,
    ) -> Self {
        Self {
            user,
            target,
            query,
            headers,
            body,
            warnings: Mutex::default(),
            acts_as: None,
        }
    }

    /// A request the server makes of itself.
    pub(crate) fn internal(name: &str, manager: &'static str) -> Self {
        let user = User {
            name: name.to_owned(),
            groups: vec!["system:masters".into()],
            ..User::default()
        };
        let mut context = Self::new(
            Arc::new(user),
            Target::default(),
            Query::default(),
            HeaderMap::new(),
            Bytes::new(),
        );
        context.acts_as = Some(manager);
        context
    }

    /// Adds a `Warning` header to the answer.
    pub(crate) fn warn(&self, text: impl Into<String>) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let text = text.into();
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A header as text, or the empty string.
    pub(crate) fn header(&self, name: header::HeaderName) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// The media type of the body, without parameters.
    pub(crate) fn content_type(&self) -> &str {
        let value = self.header(header::CONTENT_TYPE);
        value.split(';').next().unwrap_or_default().trim()
    }

    /// Who is recorded in `managedFields`: the `fieldManager` parameter, or the client's name.
    pub(crate) fn field_manager(&self) -> String {
        let given = self.query.text("fieldManager");
        if !given.is_empty() {
            return given.to_owned();
        }
        if let Some(name) = self.acts_as {
            return name.to_owned();
        }
        let agent = self.header(header::USER_AGENT);
        let name = agent.split('/').next().unwrap_or_default();
        match name {
            "" => "unknown".to_owned(),
            name => name.chars().take(128).collect(),
        }
    }

    /// Refuses names of managers that are too long or cannot be printed.
    pub(crate) fn check_manager(&self) -> Result<()> {
        let name = self.query.text("fieldManager");
        let cause = if name.len() > 128 {
            Cause::new(
                "FieldValueTooLong",
                "fieldManager",
                "Too long: may not be more than 128 bytes",
            )
        } else if let Some((at, c)) = name.char_indices().find(|(_, c)| c.is_control()) {
            Cause::new(
                "FieldValueInvalid",
                "fieldManager",
                format!(
                    "Invalid value: {}: invalid character U+{:04X} (at position {at})",
                    crate::golang::quote(name),
                    u32::from(c)
                ),
            )
        } else {
            return Ok(());
        };
        Err(invalid_options(self.options_kind(), cause))
    }

    pub(crate) fn dry_run(&self) -> Result<bool> {
        let values: Vec<&str> = self.query.all("dryRun").collect();
        if values.iter().all(|value| *value == "All") {
            return Ok(!values.is_empty());
        }
        Err(unknown_dry_run(
            self.options_kind(),
            &serde_json::json!(values),
        ))
    }

    pub(crate) fn field_validation(&self) -> Result<FieldValidation> {
        match self.query.text("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => Err(invalid_options(
                self.options_kind(),
                Cause::unsupported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]),
            )),
        }
    }

    fn options_kind(&self) -> &'static str {
        match self.target.verb.as_str() {
            "create" => "CreateOptions",
            "patch" => "PatchOptions",
            "update" => "UpdateOptions",
            _ => "DeleteOptions",
        }
    }
}

/// A `dryRun` that is not `["All"]`.
pub(crate) fn unknown_dry_run(kind: &str, given: &serde_json::Value) -> Status {
    invalid_options(
        kind,
        Cause::new(
            "FieldValueNotSupported",
            "dryRun",
            format!("Unsupported value: {given}: supported values: \"All\""),
        ),
    )
}

/// A bad query parameter, as Kubernetes reports it.
pub(crate) fn invalid_options(kind: &str, cause: Cause) -> Status {
    Status::invalid("meta.k8s.io", kind, "", vec![cause])
}
