//! Discovery in one answer: `apidiscovery.k8s.io`.

use http::header;
use serde_json::{Value, json};

use crate::{
    api::{context::Context, dispatch::Answer},
    object,
    registry::{Kinds, Resource},
};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V2_BETA: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// The version of aggregated discovery a client asks for, if it does.
fn wanted(context: &Context) -> Option<&'static str> {
    let accept = context.header(header::ACCEPT);
    accept.split(',').find_map(|clause| {
        let has = |what: &str| clause.split(';').any(|part| part.trim() == what);
        if !clause.trim().starts_with("application/json") {
            return None;
        }
        let list = has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList");
        match (list, has("v=v2"), has("v=v2beta1")) {
            (true, true, _) => Some(Some("v2")),
            (true, _, true) => Some(Some("v2beta1")),
            // A plain clause before it prefers the legacy form.
            (false, ..) if !clause.contains("as=") => Some(None),
            _ => None,
        }
    })?
}

/// The aggregated form of `/api` or `/apis`, when asked for.
pub(super) fn answer(context: &Context, kinds: &Kinds, core: bool) -> Option<Answer> {
    let version = wanted(context)?;
    let items: Vec<Value> = kinds
        .groups()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = kinds
                        .resources_of(group, version)
                        .into_iter()
                        .flat_map(|resources| resources.values())
                        .map(|resource| describe(resource))
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let mut metadata = json!({});
            if !group.is_empty() {
                metadata["name"] = json!(group);
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    });
    let content_type = if version == "v2" { V2 } else { V2_BETA };
    Some(Answer::ok(&list).typed(content_type))
}

fn describe(resource: &Resource) -> Value {
    let kind_of = |api_version: &str, kind: &str| {
        let (group, version) = object::group_version(api_version);
        json!({"group": group, "version": version, "kind": kind})
    };
    // Built-in kinds leave group and version to what is around them.
    let own = if resource.is_builtin() {
        String::new()
    } else {
        resource.api_version()
    };
    let mut out = json!({
        "resource": resource.plural,
        "responseKind": kind_of(&own, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        out["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        out["categories"] = json!(resource.categories);
    }
    let mut subresources: Vec<Value> = resource
        .extra_subresources()
        .iter()
        .map(|(name, api_version, kind, verbs)| {
            let api_version = if *api_version == resource.api_version() {
                own.as_str()
            } else {
                api_version
            };
            json!({"subresource": name, "responseKind": kind_of(api_version, kind), "verbs": verbs})
        })
        .collect();
    let verbs = ["get", "patch", "update"];
    if resource.has_scale() {
        subresources.push(json!({
            "subresource": "scale", "responseKind": kind_of("autoscaling/v1", "Scale"), "verbs": verbs,
        }));
    }
    if resource.has_status() {
        subresources.push(json!({
            "subresource": "status", "responseKind": kind_of(&own, &resource.kind), "verbs": verbs,
        }));
    }
    if !subresources.is_empty() {
        out["subresources"] = json!(subresources);
    }
    out
}
