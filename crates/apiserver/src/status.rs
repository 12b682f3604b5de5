//! Kubernetes' `Status`: how every failure is told to a client.
//!
//! Clients branch on `code` and `reason` and people read `message`, so the constructors here reproduce
//! kube-apiserver's wording exactly.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};

/// A failed request, as it will be told to the client.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The HTTP status code.
    pub code: StatusCode,
    /// The machine-readable reason.
    pub reason: Cow<'static, str>,
    /// The human-readable message.
    pub message: String,
    details: Box<Details>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Details {
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<Cause>,
    retry_after: u32,
    /// Where a list may go on although it has expired; told in `metadata`.
    resume: String,
    /// Present in the answer even when empty.
    shown: bool,
}

/// One cause of a failure; `field` is a path into the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The machine-readable reason of this cause, such as `FieldValueRequired`.
    pub reason: String,
    /// The human-readable message.
    pub message: String,
    /// The path of the field, or empty.
    pub field: String,
}

/// Whom an error is about: group and plural resource (or kind), and a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) name: &'a str,
}

impl About<'_> {
    fn qualified(&self) -> String {
        qualified(self.resource, self.group)
    }

    fn details(&self) -> Details {
        Details {
            name: self.name.to_owned(),
            group: self.group.to_owned(),
            kind: self.resource.to_owned(),
            ..Details::default()
        }
    }
}

fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

pub(crate) type Result<T, E = Status> = std::result::Result<T, E>;

impl Status {
    fn of(
        code: StatusCode,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: Box::default(),
        }
    }

    fn about(mut self, about: About<'_>) -> Self {
        *self.details = about.details();
        self
    }

    pub(crate) fn not_found(about: About<'_>) -> Self {
        let message = format!("{} \"{}\" not found", about.qualified(), about.name);
        Self::of(StatusCode::NOT_FOUND, "NotFound", message).about(about)
    }

    pub(crate) fn already_exists(about: About<'_>) -> Self {
        let message = format!("{} \"{}\" already exists", about.qualified(), about.name);
        Self::of(StatusCode::CONFLICT, "AlreadyExists", message).about(about)
    }

    /// `generateName` met a taken name too often.
    pub(crate) fn generate_name_conflict(about: About<'_>) -> Self {
        let message = format!(
            "{} \"{}\" already exists, the server was not able to generate a unique name for the object",
            about.qualified(),
            about.name
        );
        Self::of(StatusCode::CONFLICT, "AlreadyExists", message).about(about)
    }

    pub(crate) fn conflict(about: About<'_>, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{}\": {why}",
            about.qualified(),
            about.name
        );
        Self::of(StatusCode::CONFLICT, "Conflict", message).about(about)
    }

    pub(crate) fn modified(about: About<'_>) -> Self {
        Self::conflict(
            about,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Server-side apply met fields owned by others.
    pub(crate) fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        let mut status = Self::of(StatusCode::CONFLICT, "Conflict", message);
        status.details.causes = causes;
        status
    }

    pub(crate) fn forbidden(about: About<'_>, why: &str) -> Self {
        let message = match (about.resource.is_empty(), about.name.is_empty()) {
            (true, _) => {
                let status = Self::of(
                    StatusCode::FORBIDDEN,
                    "Forbidden",
                    format!("forbidden: {why}"),
                );
                return status.with_details();
            }
            (false, true) => format!("{} is forbidden: {why}", about.qualified()),
            (false, false) => format!(
                "{} \"{}\" is forbidden: {why}",
                about.qualified(),
                about.name
            ),
        };
        Self::of(StatusCode::FORBIDDEN, "Forbidden", message).about(about)
    }

    /// An object failed validation; `kind` is the kind here, not the resource.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let texts: Vec<String> = causes
            .iter()
            .map(|cause| {
                if cause.field.is_empty() {
                    cause.message.clone()
                } else {
                    format!("{}: {}", cause.field, cause.message)
                }
            })
            .collect();
        let mut unique: Vec<&String> = Vec::new();
        for text in &texts {
            if !unique.contains(&text) {
                unique.push(text);
            }
        }
        let list = match unique.as_slice() {
            [] => "the object is invalid".to_owned(),
            [one] => (*one).clone(),
            many => format!(
                "[{}]",
                many.iter()
                    .map(|t| t.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        };
        let message = format!("{} \"{name}\" is invalid: {list}", qualified(kind, group));
        let mut status =
            Self::of(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(About {
                group,
                resource: kind,
                name,
            });
        status.details.causes = causes;
        status
    }

    /// A path that no resource answers.
    pub(crate) fn no_such_resource() -> Self {
        Self::of(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details()
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::of(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::of(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::of(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details()
    }

    pub(crate) fn not_acceptable(offered: &[&str]) -> Self {
        Self::of(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            format!(
                "406: Not Acceptable\n\nAvailable representations: {}",
                offered.join(", ")
            ),
        )
        .with_details()
    }

    /// None of the forms that a client accepts is known.
    pub(crate) fn no_such_form(offered: &[&str]) -> Self {
        Self::other_form(&format!(
            "only the following media types are accepted: {}",
            offered.join(", ")
        ))
    }

    /// What is asked for does not come in the form that a client accepts.
    pub(crate) fn other_form(why: &str) -> Self {
        Self::of(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", why)
    }

    /// A patch of a type that the kind does not take.
    pub(crate) fn unsupported_patch() -> Self {
        Self::of(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        )
        .with_details()
    }

    /// A patch that does not fit its object.
    pub(crate) fn rejected() -> Self {
        Self::of(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_details()
    }

    fn with_details(mut self) -> Self {
        self.details.shown = true;
        self
    }

    pub(crate) fn unsupported_media_type(offered: &[&str]) -> Self {
        Self::of(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                offered.join(", ")
            ),
        )
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        Self::of(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        let mut status = Self::of(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        status.details.retry_after = retry_after;
        status
    }

    /// The client asked for a state that is compacted away.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::of(StatusCode::GONE, "Expired", message)
    }

    /// A list in pieces took so long that its state is gone; `resume` goes on in the current one.
    pub(crate) fn continue_expired(resume: String) -> Self {
        let mut status = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
        status.details.resume = resume;
        status
    }

    /// The client asked for a state that does not exist yet.
    pub(crate) fn rv_too_large(requested: u64, current: u64) -> Self {
        let mut status = Self::of(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: Too large resource version: {requested}, current: {current}"),
        );
        status.details.causes.push(Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        });
        status.details.retry_after = 1;
        status
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        let mut status = Self::of(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        status.details.causes.push(Cause {
            reason: String::new(),
            message: message.to_string(),
            field: String::new(),
        });
        status
    }

    /// A failure with a code of its own.
    pub(crate) fn foreign(code: u16, reason: &'static str, message: String) -> Self {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
        Self::of(code, reason, message)
    }

    /// The failure that a webhook's `status` tells, under a message of ours.
    pub(crate) fn foreign_of(told: &Value, message: String) -> Self {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let code = told["code"].as_u64().and_then(|c| u16::try_from(c).ok());
        // A refusal never looks like a success.
        let code = code
            .filter(|code| *code >= 400)
            .and_then(|code| StatusCode::from_u16(code).ok())
            .unwrap_or(StatusCode::BAD_REQUEST);
        let mut status = Self::of(code, text(told, "reason"), message);
        let details = &told["details"];
        let causes = details["causes"].as_array().into_iter().flatten();
        *status.details = Details {
            name: text(details, "name"),
            group: text(details, "group"),
            kind: text(details, "kind"),
            uid: text(details, "uid"),
            causes: causes
                .map(|c| Cause::new(text(c, "reason"), text(c, "field"), text(c, "message")))
                .collect(),
            retry_after: details["retryAfterSeconds"]
                .as_u64()
                .and_then(|seconds| u32::try_from(seconds).ok())
                .unwrap_or(0),
            resume: String::new(),
            shown: details.is_object(),
        };
        status
    }

    pub(crate) fn with_causes(mut self, causes: Vec<Cause>) -> Self {
        self.details.causes = causes;
        self
    }

    pub(crate) fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.reason == "NotFound"
    }

    pub(crate) fn retry_after(&self) -> Option<u32> {
        (self.details.retry_after > 0).then_some(self.details.retry_after)
    }

    /// The wire form.
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.resume.is_empty() {
            status["metadata"]["continue"] = json!(self.details.resume);
        }
        let mut details = Map::new();
        let d = &self.details;
        for (key, value) in [
            ("name", &d.name),
            ("group", &d.group),
            ("kind", &d.kind),
            ("uid", &d.uid),
        ] {
            if !value.is_empty() {
                details.insert(key.into(), json!(value));
            }
        }
        if !d.causes.is_empty() {
            let causes = d.causes.iter().map(Cause::to_value).collect();
            details.insert("causes".into(), Value::Array(causes));
        }
        if d.retry_after > 0 {
            details.insert("retryAfterSeconds".into(), json!(d.retry_after));
        }
        if !details.is_empty() || d.shown {
            status["details"] = Value::Object(details);
        }
        status
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut bytes = self.to_value().to_string().into_bytes();
        bytes.push(b'\n');
        bytes.into()
    }
}

impl Cause {
    pub(crate) fn new(
        reason: impl Into<String>,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
            field: field.into(),
        }
    }

    /// `field: Required value: why`.
    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self::new("FieldValueRequired", field, message)
    }

    /// `field: Invalid value: "x": why`.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {value}: {why}"),
        )
    }

    /// `field: Forbidden: why`.
    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// `field: Unsupported value: "x": supported values: ...`.
    pub(crate) fn unsupported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        Self::new(
            "FieldValueNotSupported",
            field,
            format!(
                "Unsupported value: \"{value}\": supported values: {}",
                list.join(", ")
            ),
        )
    }

    fn to_value(&self) -> Value {
        let mut cause = Map::new();
        for (key, value) in [
            ("reason", &self.reason),
            ("message", &self.message),
            ("field", &self.field),
        ] {
            if !value.is_empty() {
                cause.insert(key.into(), json!(value));
            }
        }
        Value::Object(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_causes_are_listed_in_brackets_and_one_is_not() {
        let one = Cause::required("spec.a", "");
        let two = Cause::invalid("spec.b", &json!("x"), "must be y");
        let status = Status::invalid("g.io", "Foo", "f", vec![one.clone()]);
        assert_eq!(
            status.message,
            "Foo.g.io \"f\" is invalid: spec.a: Required value"
        );
        let status = Status::invalid("", "Foo", "f", vec![one, two]);
        assert_eq!(
            status.message,
            "Foo \"f\" is invalid: [spec.a: Required value, spec.b: Invalid value: \"x\": must be y]"
        );
        assert_eq!(status.to_value()["details"]["causes"][1]["field"], "spec.b");
    }
}
