//! Questions about users and rights, and tokens for service accounts: kinds that are asked, not stored.

use std::{collections::BTreeMap, sync::Arc};

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{
    Api,
    context::Context,
    decode,
    dispatch::Answer,
    meta::{self, about},
    typed,
    update::Address,
};
use crate::{
    auth::{
        User,
        rbac::{Action, Decision, Rule},
        tokens::{Claims, ISSUER, TokenError},
    },
    clock, golang, object,
    registry::{Resource, text},
    status::{Cause, Result, Status},
};

const TOKEN_REQUESTS: &str = "authentication.k8s.io/v1";

impl Api {
    /// `POST` of a kind that is answered and not stored.
    pub(crate) async fn create_virtual(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        namespace: &str,
    ) -> Result<Answer> {
        let mut review = decode::body(context, &resource.kind)?;
        context.check_manager()?;
        context.dry_run()?;
        meta::check_kind(resource, &mut review)?;
        meta::place_new(resource, namespace, &mut review)?;
        typed::admit(context, resource, &mut review)?;
        object::take_meta(&mut review, "managedFields");
        self.track(context, resource, (None, &mut review), "")
            .await?;
        // The real server does not name the kind of these.
        let invalid = |causes| Err(Status::invalid(&resource.group, "", "", causes));
        match resource.kind.as_str() {
            "SelfSubjectReview" => {
                object::set_meta(&mut review, "creationTimestamp", self.clock.now_rfc3339());
                review["status"] = json!({"userInfo": context.user.to_value()});
            }
            "TokenReview" => {
                if text(&review["spec"], "token").is_empty() {
                    let causes = vec![Cause::required("spec.token", "")];
                    return Err(Status::invalid(&resource.group, &resource.kind, "", causes));
                }
                review["status"] = self.review_token(&review["spec"]);
            }
            "SelfSubjectAccessReview" => {
                check_attributes(resource, &review["spec"])?;
                let decision = self.decide(&context.user, &review["spec"]);
                review["status"] = decision_status(&decision);
            }
            "SubjectAccessReview" | "LocalSubjectAccessReview" => {
                check_attributes(resource, &review["spec"])?;
                let spec = &review["spec"];
                if text(spec, "user").is_empty() && object::strings(&spec["groups"]).is_empty() {
                    return invalid(vec![Cause::invalid(
                        "spec.user",
                        &json!(""),
                        "at least one of user or group must be specified",
                    )]);
                }
                if resource.namespaced
                    && text(&spec["resourceAttributes"], "namespace") != namespace
                {
                    return invalid(vec![Cause::invalid(
                        "spec.resourceAttributes.namespace",
                        &spec["resourceAttributes"]["namespace"],
                        "must match metadata.namespace",
                    )]);
                }
                let user = User {
                    name: text(spec, "user").to_owned(),
                    groups: object::strings(&spec["groups"])
                        .into_iter()
                        .map(str::to_owned)
                        .collect(),
                    uid: text(spec, "uid").to_owned(),
                    extra: BTreeMap::new(),
                };
                let decision = self.decide(&user, spec);
                review["status"] = decision_status(&decision);
            }
            "SelfSubjectRulesReview" => {
                let namespace = text(&review["spec"], "namespace");
                if namespace.is_empty() {
                    return Err(Status::bad_request("no namespace on request"));
                }
                let rules = self.rules_for(&context.user, namespace);
                review["status"] = rules_status(&rules);
            }
            _ => return Err(Status::method_not_allowed()),
        }
        Ok(Answer::created(&review))
    }

    fn review_token(&self, spec: &Value) -> Value {
        let audiences = object::strings(&spec["audiences"]);
        match self.token_user(text(spec, "token"), &audiences) {
            Ok((user, audiences)) => json!({
                "authenticated": true, "user": user.to_value(), "audiences": audiences,
            }),
            Err(TokenError::Invalid) => json!({"user": {}, "error": "invalid bearer token"}),
            Err(TokenError::Audience(given)) => {
                let why = format!(
                    "[invalid bearer token, token audiences {} is invalid for the target audiences {}]",
                    golang::quoted_list(&given),
                    golang::quoted_list(&audiences),
                );
                json!({"user": {}, "error": why})
            }
        }
    }

    fn decide(&self, user: &User, spec: &Value) -> Decision {
        let path = &spec["nonResourceAttributes"];
        if path.is_object() {
            return self.authorize_path(user, text(path, "verb"), text(path, "path"));
        }
        let wanted = &spec["resourceAttributes"];
        self.authorize(
            user,
            &Action {
                verb: text(wanted, "verb"),
                namespace: text(wanted, "namespace"),
                group: text(wanted, "group"),
                resource: text(wanted, "resource"),
                subresource: text(wanted, "subresource"),
                name: text(wanted, "name"),
            },
        )
    }

    /// `POST` on `serviceaccounts/token`.
    pub(crate) async fn create_token(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        at: Address<'_>,
    ) -> Result<Answer> {
        let mut request = decode::body(context, "TokenRequest")?;
        meta::expect_kind(&mut request, TOKEN_REQUESTS, "TokenRequest")?;
        let key = resource.key(at.namespace, at.name);
        let Some(entry) = self.store.get(&resource.storage, &key) else {
            return Err(Status::not_found(about(resource, at.name)));
        };
        let account = entry.value();
        self.settle_token_request(context, at, &mut request)?;
        let kind = (TOKEN_REQUESTS, "TokenRequest");
        self.admit_action(context, resource, at, kind, &mut request)
            .await?;
        let seconds = request["spec"]["expirationSeconds"]
            .as_i64()
            .unwrap_or(3600);
        let invalid = |why: &str| {
            Err(Status::invalid(
                "authentication.k8s.io",
                "TokenRequest",
                "",
                vec![Cause::invalid(
                    "spec.expirationSeconds",
                    &json!(seconds),
                    why,
                )],
            ))
        };
        if seconds < 600 {
            return invalid("may not specify a duration less than 10 minutes");
        }
        if seconds > 1 << 32 {
            return invalid("may not specify a duration larger than 2^32 seconds");
        }
        let bound = self.bound_object(at.namespace, &request["spec"]["boundObjectRef"])?;
        let audiences: Vec<String> = match object::strings(&request["spec"]["audiences"]) {
            list if list.is_empty() => vec![ISSUER.to_owned()],
            list => list.into_iter().map(str::to_owned).collect(),
        };
        let issued = self.clock.now();
        let expires = issued
            .checked_add(SignedDuration::from_secs(seconds))
            .unwrap_or(jiff::Timestamp::MAX);
        let token = self
            .signer
            .sign(&Claims {
                namespace: at.namespace,
                account: at.name,
                uid: object::uid(&account),
                audiences: audiences.clone(),
                issued,
                expires,
                bound,
                id: self.new_uid(),
            })
            .ok_or_else(|| Status::internal("the token cannot be signed"))?;
        request["spec"]["audiences"] = json!(audiences);
        request["spec"]["expirationSeconds"] = json!(seconds);
        if request["spec"].get("boundObjectRef").is_none() {
            request["spec"]["boundObjectRef"] = Value::Null;
        }
        request["status"] = json!({
            "token": token, "expirationTimestamp": clock::rfc3339(expires),
        });
        Ok(Answer::created(&request))
    }

    /// Gives a request for a token what the server decides, and records who asked for what.
    fn settle_token_request(
        &self,
        context: &Context,
        at: Address<'_>,
        request: &mut Value,
    ) -> Result<()> {
        context.check_manager()?;
        if !request["spec"].is_object() {
            request["spec"] = json!({});
        }
        if !request["spec"]["expirationSeconds"].is_i64() {
            request["spec"]["expirationSeconds"] = json!(3600);
        }
        request["metadata"] = json!({"name": at.name});
        self.track_action(context, at, (TOKEN_REQUESTS, "TokenRequest"), request);
        for (field, value) in [
            ("uid", self.new_uid()),
            ("creationTimestamp", self.clock.now_rfc3339()),
        ] {
            object::set_meta(request, field, value);
        }
        Ok(())
    }

    fn bound_object(
        &self,
        namespace: &str,
        reference: &Value,
    ) -> Result<Option<(String, String, String)>> {
        if !reference.is_object() {
            return Ok(None);
        }
        let (kind, name) = (text(reference, "kind"), text(reference, "name"));
        let storage = match kind {
            "Pod" => "/pods",
            "Secret" => "/secrets",
            other => {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount to object of type {other}"
                )));
            }
        };
        let plural = storage.trim_start_matches('/');
        let about = crate::status::About {
            group: "",
            resource: plural,
            name,
        };
        let Some(entry) = self.store.get(storage, &format!("{namespace}/{name}")) else {
            return Err(Status::not_found(about));
        };
        let value = entry.value();
        let (given, uid) = (text(reference, "uid"), object::uid(&value));
        if !given.is_empty() && given != uid {
            return Err(Status::conflict(
                about,
                &format!(
                    "the UID in the bound object reference ({given}) does not match the UID in record. The object might have been deleted and then recreated"
                ),
            ));
        }
        Ok(Some((kind.to_owned(), name.to_owned(), uid.to_owned())))
    }
}

fn check_attributes(resource: &Resource, spec: &Value) -> Result<()> {
    let both = spec["resourceAttributes"].is_object() && spec["nonResourceAttributes"].is_object();
    let none =
        !spec["resourceAttributes"].is_object() && !spec["nonResourceAttributes"].is_object();
    let cause = if both {
        Cause::invalid(
            "spec.nonResourceAttributes",
            &spec["nonResourceAttributes"],
            "cannot be specified in combination with resourceAttributes",
        )
    } else if none {
        Cause::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )
    } else {
        return Ok(());
    };
    Err(Status::invalid(&resource.group, "", "", vec![cause]))
}

fn decision_status(decision: &Decision) -> Value {
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    status
}

fn rules_status(rules: &[Rule]) -> Value {
    let mut resource = Vec::new();
    let mut paths = Vec::new();
    for rule in rules {
        if rule.urls.is_empty() {
            let mut value = json!({
                "verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources,
            });
            if !rule.names.is_empty() {
                value["resourceNames"] = json!(rule.names);
            }
            resource.push(value);
        } else {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.urls}));
        }
    }
    json!({"resourceRules": resource, "nonResourceRules": paths, "incomplete": false})
}
