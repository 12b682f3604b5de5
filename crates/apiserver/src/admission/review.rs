//! The question and the answer: `AdmissionReview`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::Attributes;
use crate::{
    golang, object,
    registry::{Resource, text},
    status::Status,
};

/// The `request` of a review about a write, were it of `resource`.
pub(crate) fn request(uid: &str, attributes: &Attributes<'_>, resource: &Resource) -> Value {
    let kind = |resource: &Resource| match attributes.body {
        Some((api_version, kind)) => {
            let (group, version) = object::group_version(api_version);
            json!({"group": group, "version": version, "kind": kind})
        }
        None => json!({
            "group": resource.group, "version": resource.version, "kind": resource.kind,
        }),
    };
    let plural = |resource: &Resource| {
        json!({
            "group": resource.group, "version": resource.version, "resource": resource.plural,
        })
    };
    let mut request = json!({
        "uid": uid,
        "kind": kind(resource),
        "resource": plural(resource),
        "requestKind": kind(attributes.resource),
        "requestResource": plural(attributes.resource),
        "operation": attributes.operation.as_str(),
        "userInfo": attributes.user.to_value(),
        "object": attributes.object,
        "oldObject": attributes.old,
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    });
    for (field, value) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", attributes.namespace),
    ] {
        if !value.is_empty() {
            request[field] = json!(value);
        }
    }
    request
}

/// What a webhook answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) warnings: Vec<String>,
    /// The type of the patch and the patch, decoded but not yet parsed.
    pub(crate) patch: Option<(String, Vec<u8>)>,
    status: Value,
}

impl Answer {
    /// Reads the answer to the question `uid`; an error in Kubernetes' words when it is none.
    pub(crate) fn read(
        review: &Value,
        uid: &str,
        speaks: &str,
        mutating: bool,
    ) -> Result<Self, String> {
        let response = &review["response"];
        if !response.is_object() {
            return Err("webhook response was absent".to_owned());
        }
        let is_v1 = speaks.ends_with("/v1");
        let given = text(response, "uid");
        if is_v1 && given != uid {
            return Err(format!(
                "expected response.uid={}, got {}",
                golang::quote(uid),
                golang::quote(given)
            ));
        }
        let (version, kind) = (text(review, "apiVersion"), text(review, "kind"));
        if (is_v1 || !version.is_empty()) && (version != speaks || kind != "AdmissionReview") {
            return Err(format!(
                "expected webhook response of {speaks}, Kind=AdmissionReview, got {version}, Kind={kind}"
            ));
        }
        let patch = text(response, "patch");
        let patch_type = response["patchType"].as_str();
        let patch_type = match (mutating, is_v1) {
            (false, true) if !patch.is_empty() => {
                return Err("validating webhook may not return response.patch".to_owned());
            }
            (false, true) if patch_type.is_some() => {
                return Err("validating webhook may not return response.patchType".to_owned());
            }
            (true, true) => match patch_type {
                None if !patch.is_empty() => {
                    return Err("webhook returned response.patch but not response.patchType".into());
                }
                Some(_) if patch.is_empty() => {
                    return Err("webhook returned response.patchType but not response.patch".into());
                }
                Some("") => {
                    return Err("webhook returned invalid response.patchType of \"\"".to_owned());
                }
                given => given,
            },
            // Of old, a patch was always a JSON patch and a validating webhook's was ignored.
            _ => Some("JSONPatch"),
        };
        let patch = match (mutating && !patch.is_empty(), patch_type) {
            (true, Some(kind)) => {
                let bytes = STANDARD
                    .decode(patch)
                    .map_err(|e| format!("response.patch is not base64: {e}"))?;
                Some((kind.to_owned(), bytes))
            }
            _ => None,
        };
        Ok(Self {
            allowed: response["allowed"] == true,
            warnings: object::strings(&response["warnings"])
                .into_iter()
                .map(str::to_owned)
                .collect(),
            patch,
            status: response["status"].clone(),
        })
    }

    /// How the client is told of a refusal by the webhook `name`.
    pub(crate) fn refusal(&self, name: &str) -> Status {
        let by = format!(
            "admission webhook {} denied the request",
            golang::quote(name)
        );
        let message = match (text(&self.status, "message"), text(&self.status, "reason")) {
            ("", "") => format!("{by} without explanation"),
            ("", reason) => format!("{by}: {reason}"),
            (message, _) => format!("{by}: {message}"),
        };
        Status::foreign_of(&self.status, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "admission.k8s.io/v1";

    fn read(response: &Value, mutating: bool) -> Result<Answer, String> {
        let review = json!({"apiVersion": V1, "kind": "AdmissionReview", "response": response});
        Answer::read(&review, "u", V1, mutating)
    }

    #[test]
    fn an_answer_must_belong_to_its_question() {
        assert_eq!(
            read(&json!({"uid": "x", "allowed": true}), false).unwrap_err(),
            "expected response.uid=\"u\", got \"x\""
        );
        assert!(
            read(&json!({"uid": "u", "allowed": true}), false)
                .unwrap()
                .allowed
        );
        let silent = json!({"apiVersion": V1, "kind": "AdmissionReview"});
        assert_eq!(
            Answer::read(&silent, "u", V1, false).unwrap_err(),
            "webhook response was absent"
        );
    }

    #[test]
    fn only_mutating_webhooks_may_patch_and_must_say_how() {
        let patch = json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"});
        assert_eq!(
            read(&patch, true).unwrap().patch,
            Some(("JSONPatch".to_owned(), b"[]".to_vec()))
        );
        assert_eq!(
            read(&patch, false).unwrap_err(),
            "validating webhook may not return response.patch"
        );
        assert_eq!(
            read(&json!({"uid": "u", "patch": "W10="}), true).unwrap_err(),
            "webhook returned response.patch but not response.patchType"
        );
    }

    #[test]
    fn a_refusal_keeps_the_webhooks_code_and_reason() {
        let answer = read(
            &json!({"uid": "u", "allowed": false,
                "status": {"code": 429, "reason": "TooManyRequests", "message": "slow down"}}),
            false,
        );
        let status = answer.unwrap().refusal("a.b.c").to_value();
        assert_eq!(status["code"], 429);
        assert_eq!(status["reason"], "TooManyRequests");
        assert_eq!(
            status["message"],
            "admission webhook \"a.b.c\" denied the request: slow down"
        );
        let plain = read(&json!({"uid": "u"}), false).unwrap().refusal("a.b.c");
        assert_eq!(
            plain.to_value(),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 400,
                "message": "admission webhook \"a.b.c\" denied the request without explanation"})
        );
    }
}
