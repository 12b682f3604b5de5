//! What a schema cannot check: admission of this group's kinds.
//!
//! The API server asks before it stores an object. Everything that concerns one field alone is in the schema; here is what
//! concerns several, what concerns the step from the old object to the new, and what needs arithmetic (do these addresses
//! overlap?). A refusal names every field that is wrong and the way out. What works, but probably not as meant, is admitted
//! with a warning.
//!
//! Objects are judged in the hub's version: the API server converts to it before it asks (`matchPolicy: Equivalent`).

mod addresses;
mod cluster;
mod findings;
mod machine;
mod network;

use k8s_openapi::api::admissionregistration::v1::{
    RuleWithOperations, ValidatingWebhook, ValidatingWebhookConfiguration,
    WebhookClientConfig as AdmissionClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use kube::core::{DynamicObject, Status};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::v1beta1::{
    ProxmoxCluster, ProxmoxClusterTemplate, ProxmoxMachine, ProxmoxMachineTemplate,
};
use super::{GROUP, convert};
use findings::{Findings, Path};

/// Where the admission webhook listens.
pub const VALIDATE_PATH: &str = "/validate";
/// Name of the webhook within its configuration.
pub const WEBHOOK: &str = "validation.infrastructure.oxmox.dev";
/// Cluster API puts it on objects it only tries out.
const TOPOLOGY_DRY_RUN: &str = "topology.cluster.x-k8s.io/dry-run";
const RESOURCES: [&str; 4] = [
    "proxmoxclusters",
    "proxmoxclustertemplates",
    "proxmoxmachines",
    "proxmoxmachinetemplates",
];

/// The configuration by which an API server asks the webhook at `client`.
pub fn configuration(name: &str, client: AdmissionClientConfig) -> ValidatingWebhookConfiguration {
    let list = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    ValidatingWebhookConfiguration {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        webhooks: Some(vec![ValidatingWebhook {
            name: WEBHOOK.to_owned(),
            client_config: client,
            rules: Some(vec![RuleWithOperations {
                api_groups: list(&[GROUP]),
                api_versions: list(&["v1beta1"]),
                operations: list(&["CREATE", "UPDATE"]),
                resources: list(&RESOURCES),
                scope: Some("Namespaced".to_owned()),
            }]),
            // An object in an older version is converted, then judged.
            match_policy: Some("Equivalent".to_owned()),
            failure_policy: Some("Fail".to_owned()),
            side_effects: "None".to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            timeout_seconds: Some(10),
            ..ValidatingWebhook::default()
        }]),
    }
}

/// Answers a review: admitted, perhaps with warnings, or refused with every reason there is.
pub fn validate(review: AdmissionReview<DynamicObject>) -> AdmissionReview<DynamicObject> {
    let request: AdmissionRequest<DynamicObject> = match review.try_into() {
        Ok(request) => request,
        Err(error) => return AdmissionResponse::invalid(error).into_review(),
    };
    let mut response = AdmissionResponse::from(&request);
    match judge(&request) {
        Ok(findings) => {
            if !findings.warnings.is_empty() {
                response.warnings = Some(findings.warnings);
            }
            if !findings.errors.is_empty() {
                let what = format!(
                    "{} {:?} is invalid: {}",
                    request.kind.kind,
                    request.name,
                    findings.errors.join("; ")
                );
                response.allowed = false;
                response.result = Status::failure(&what, "Invalid").with_code(422);
            }
        }
        Err(error) => {
            response.allowed = false;
            response.result = Status::failure(&error, "Invalid").with_code(422);
        }
    }
    response.into_review()
}

fn judge(request: &AdmissionRequest<DynamicObject>) -> Result<Findings, String> {
    let mut out = Findings::default();
    let Some(new) = &request.object else {
        return Ok(out);
    };
    // What is on its way out only loses finalizers; refusing that would keep it for ever.
    if new.metadata.deletion_timestamp.is_some() {
        return Ok(out);
    }
    let updated = request.operation == Operation::Update;
    let old = request.old_object.as_ref().filter(|_| updated);
    let spec = Path::root("spec");
    match request.kind.kind.as_str() {
        "ProxmoxCluster" => {
            let new: ProxmoxCluster = hub(new)?;
            cluster::check(&new.spec, &spec, &mut out);
            if let Some(old) = old {
                cluster::check_change(&hub(old)?, &new, &mut out);
            }
        }
        "ProxmoxClusterTemplate" => {
            let new: ProxmoxClusterTemplate = hub(new)?;
            let inner = spec.field("template").field("spec");
            cluster::check(&new.spec.template.spec, &inner, &mut out);
        }
        "ProxmoxMachine" => {
            let new: ProxmoxMachine = hub(new)?;
            machine::check(&new.spec, &spec, &mut out);
            if let Some(old) = old {
                let old: ProxmoxMachine = hub(old)?;
                let status = old.status.as_ref();
                let made = status.and_then(|s| s.initialization.as_ref()?.provisioned);
                machine::check_change(&old.spec, &new.spec, made == Some(true), &mut out);
            }
        }
        "ProxmoxMachineTemplate" => {
            let new: ProxmoxMachineTemplate = hub(new)?;
            let inner = spec.field("template").field("spec");
            machine::check(&new.spec.template.spec, &inner, &mut out);
            machine::check_template(&new.spec.template.spec, &inner, &mut out);
            let tried_out = request.dry_run
                && new
                    .metadata
                    .annotations
                    .as_ref()
                    .is_some_and(|all| all.contains_key(TOPOLOGY_DRY_RUN));
            if let Some(old) = old.filter(|_| !tried_out) {
                let old: ProxmoxMachineTemplate = hub(old)?;
                if old.spec != new.spec {
                    out.error(
                        &spec,
                        "a template cannot be changed, because its machines would not follow: create another one and refer to that",
                    );
                }
            }
        }
        // Nobody asks us about other kinds; if somebody does, we know nothing against them.
        _ => {}
    }
    Ok(out)
}

/// The object in the hub's version and type.
fn hub<K: DeserializeOwned>(object: &DynamicObject) -> Result<K, String> {
    let value: Value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    let value = convert::convert(value, "v1beta1").map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| format!("cannot read the object: {error}"))
}

#[cfg(test)]
mod tests;
