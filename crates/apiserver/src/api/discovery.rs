//! What the server serves, told to clients: `/api`, `/apis`, `/version` and health.

mod aggregated;
pub(crate) mod openapi;

use std::{fmt::Write as _, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::StatusCode;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Api, context::Context, dispatch::Answer};
use crate::{
    object,
    registry::{Kinds, Resource},
    request::Verb,
    status::{Result, Status},
};

/// How long the store may take to say that it works.
const PROBE: Duration = Duration::from_secs(5);

/// The version of Kubernetes whose behaviour is followed.
pub(crate) const VERSION: (&str, &str, &str) = ("1", "36", "v1.36.4");

impl Api {
    /// Paths that name no objects.
    pub(crate) async fn meta_path(self: &Arc<Self>, context: &Context) -> Result<Answer> {
        let path = context.target.path.trim_end_matches('/');
        if context.target.verb != Verb::Get {
            return if matches!(path, "/api" | "/apis" | "/version" | "/healthz") {
                Err(Status::method_not_allowed())
            } else {
                Ok(Answer::page_not_found())
            };
        }
        let kinds = self.kinds();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        if let ["api" | "apis"] = parts.as_slice()
            && let Some(answer) = aggregated::answer(context, &kinds, parts[0] == "api")
        {
            return Ok(answer);
        }
        match parts.as_slice() {
            [] | [""] => Ok(Answer::ok(&root(&kinds))),
            ["version"] => Ok(Answer::ok(&version())),
            [which @ ("healthz" | "livez" | "readyz")] => {
                Ok(self.health(context, which, None).await)
            }
            [
                which @ ("healthz" | "livez" | "readyz"),
                check @ ("ping" | "log" | "store"),
            ] => Ok(self.health(context, which, Some(check)).await),
            ["openapi", rest @ ..] => Ok(self.openapi(context, &kinds, rest)),
            ["metrics"] => Ok(
                Answer::text(StatusCode::OK, self.metrics.render(&self.store))
                    .typed("application/openmetrics-text; version=1.0.0; charset=utf-8"),
            ),
            ["api"] => Ok(Answer::ok(&json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": self.address.iter()
                    .map(|address| json!({"clientCIDR": "0.0.0.0/0", "serverAddress": address}))
                    .collect::<Vec<_>>(),
            }))),
            ["api", version] => Ok(resource_list(&kinds, "", version)),
            ["apis"] => Ok(Answer::ok(&json!({
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": kinds.groups().filter(|(g, _)| !g.is_empty())
                    .map(|(g, versions)| group(g, &versions)).collect::<Vec<_>>(),
            }))),
            ["apis", name] => Ok(match kinds.groups().find(|(g, _)| g == name) {
                Some((name, versions)) => {
                    let mut group = group(name, &versions);
                    group["kind"] = json!("APIGroup");
                    group["apiVersion"] = json!("v1");
                    Answer::ok(&group)
                }
                None => Answer::page_not_found(),
            }),
            ["apis", group, version] => Ok(resource_list(&kinds, group, version)),
            _ => Ok(Answer::page_not_found()),
        }
    }
}

impl Api {
    /// Whether the server works: alive as long as it answers, ready while its store takes writes.
    async fn health(&self, context: &Context, which: &str, check: Option<&str>) -> Answer {
        let asks = |name: &str| {
            let excluded = context
                .query
                .all("exclude")
                .any(|excluded| excluded == name);
            check.is_none_or(|check| check == name) && !excluded
        };
        let store = if which != "livez" && asks("store") {
            // A disk that hangs is not ready either.
            let probe = tokio::time::timeout(PROBE, self.store.probe()).await;
            matches!(probe, Ok(Ok(())))
        } else {
            true
        };
        let mut lines = String::new();
        for name in ["ping", "log", "store"]
            .into_iter()
            .filter(|name| asks(name))
        {
            let (mark, told) = match name {
                "store" if !store => ('-', "failed: reason withheld"),
                _ => ('+', "ok"),
            };
            // Writing to a string does not fail.
            let _ = writeln!(lines, "[{mark}]{name} {told}");
        }
        match (store, context.query.get("verbose").is_some()) {
            (false, _) => {
                let text = format!("{lines}{which} check failed\n");
                Answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
            (true, true) => Answer::text(StatusCode::OK, format!("{lines}{which} check passed\n")),
            (true, false) => Answer::text(StatusCode::OK, "ok"),
        }
    }
}

fn root(kinds: &Kinds) -> Value {
    let mut paths = ["/api", "/api/v1", "/apis", "/apis/"]
        .map(str::to_owned)
        .to_vec();
    for (group, versions) in kinds.groups().filter(|(g, _)| !g.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|v| format!("/apis/{group}/{v}")));
    }
    paths.extend(
        [
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned),
    );
    json!({ "paths": paths })
}

fn version() -> Value {
    let (major, minor, git) = VERSION;
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": format!("{git}+oxmox"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": minor,
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn group(name: &str, versions: &[&str]) -> Value {
    let spell = |version: &str| json!({"groupVersion": object::api_version(name, version), "version": version});
    json!({
        "name": name,
        "versions": versions.iter().map(|v| spell(v)).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(|v| spell(v)),
    })
}

fn resource_list(kinds: &Kinds, group: &str, version: &str) -> Answer {
    let Some(resources) = kinds.resources_of(group, version) else {
        return Answer::page_not_found();
    };
    let list: Vec<Value> = resources.values().flat_map(|r| legacy(r)).collect();
    Answer::ok(&json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": object::api_version(group, version),
        "resources": list,
    }))
}

/// Tells clients when the version changes in which objects are stored.
fn storage_hash(resource: &Resource) -> String {
    let (group, version) = object::group_version(&resource.storage_version);
    let name = format!("{group}/{version}/{}", resource.kind);
    STANDARD.encode(&Sha256::digest(name)[..8])
}

/// An `APIResource` and those of its subresources.
fn legacy(resource: &Resource) -> Vec<Value> {
    let mut main = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs(),
    });
    if !resource.traits.virtual_only {
        main["storageVersionHash"] = json!(storage_hash(resource));
    }
    if !resource.short_names.is_empty() {
        main["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        main["categories"] = json!(resource.categories);
    }
    let mut list = vec![main];
    let mut sub = |name: &str, kind: &str, api_version: Option<&str>, verbs: &[&str]| {
        let mut entry = json!({
            "name": format!("{}/{name}", resource.plural),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": verbs,
        });
        if let Some(api_version) = api_version.filter(|v| *v != resource.api_version()) {
            let (group, version) = object::group_version(api_version);
            entry["group"] = json!(group);
            entry["version"] = json!(version);
        }
        list.push(entry);
    };
    for (name, api_version, kind, verbs) in resource.extra_subresources() {
        sub(name, kind, Some(api_version), verbs);
    }
    let verbs = ["get", "patch", "update"];
    if resource.has_scale() {
        sub("scale", "Scale", Some("autoscaling/v1"), &verbs);
    }
    if resource.has_status() {
        sub("status", &resource.kind, None, &verbs);
    }
    list
}
