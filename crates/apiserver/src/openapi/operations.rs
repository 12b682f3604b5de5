//! Paths and operations. They say only what clients look for: which kind an operation is about,
//! which parameters it takes and what may be sent.

use serde_json::{Map, Value, json};

use super::{Dialect, Kind, schemas};

/// Parameters in the query, with what they are for.
const PRETTY: (&str, &str, &str) = ("pretty", "string", "Whether the answer is indented.");
const DRY_RUN: (&str, &str, &str) = ("dryRun", "string", "With `All`, nothing is stored.");
const MANAGER: (&str, &str, &str) = ("fieldManager", "string", "Who owns the fields written.");
const VALIDATION: (&str, &str, &str) = (
    "fieldValidation",
    "string",
    "What happens to unknown and repeated fields: `Ignore`, `Warn` or `Strict`.",
);
const FORCE: (&str, &str, &str) = (
    "force",
    "boolean",
    "Whether an apply takes fields that others own.",
);
const LIST: [(&str, &str, &str); 9] = [
    (
        "allowWatchBookmarks",
        "boolean",
        "Whether a watch may send bookmarks.",
    ),
    ("continue", "string", "Where the list goes on."),
    ("fieldSelector", "string", "Which objects, by fields."),
    ("labelSelector", "string", "Which objects, by labels."),
    ("limit", "integer", "How many objects at most."),
    (
        "resourceVersion",
        "string",
        "Of which version, or from which on.",
    ),
    (
        "resourceVersionMatch",
        "string",
        "How the version is meant.",
    ),
    ("timeoutSeconds", "integer", "How long a watch lasts."),
    ("watch", "boolean", "Whether to follow changes."),
];
const DELETE: [(&str, &str, &str); 3] = [
    (
        "gracePeriodSeconds",
        "integer",
        "How long to wait before the object is gone.",
    ),
    (
        "orphanDependents",
        "boolean",
        "Whether dependents stay; the old way to say it.",
    ),
    ("propagationPolicy", "string", "What happens to dependents."),
];

type Parameter = (&'static str, &'static str, &'static str);

fn parameter((name, kind, words): Parameter, dialect: Dialect) -> Value {
    let mut out = json!({"name": name, "in": "query", "description": words});
    match dialect {
        Dialect::V3 => out["schema"] = json!({"type": kind, "uniqueItems": true}),
        Dialect::V2 => {
            out["type"] = json!(kind);
            out["uniqueItems"] = json!(true);
        }
    }
    out
}

fn in_path(name: &str, dialect: Dialect) -> Value {
    let mut out = json!({"name": name, "in": "path", "required": true});
    match dialect {
        Dialect::V3 => out["schema"] = json!({"type": "string", "uniqueItems": true}),
        Dialect::V2 => {
            out["type"] = json!("string");
            out["uniqueItems"] = json!(true);
        }
    }
    out
}

/// The paths of one kind.
pub(super) fn paths(kind: &Kind<'_>, dialect: Dialect) -> Vec<(String, Value)> {
    let prefix = format!("/{}", kind.prefix());
    let schema = schemas::name_of(kind);
    let list = format!("{schema}List");
    let place = |namespaced: bool| {
        let within = if namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        format!("{prefix}{within}/{}", kind.plural)
    };
    let about = |action: &str, parameters: Vec<Parameter>, body: Body, answer: &str| {
        operation(kind, action, &parameters, body, answer, dialect)
    };
    let write = vec![PRETTY, DRY_RUN, MANAGER, VALIDATION];
    let post = about("post", write.clone(), Body::Object(&schema), &schema);
    let collection = place(kind.namespaced);
    if kind.create_only {
        return vec![(collection, path(kind, false, [("post", post)], dialect))];
    }
    let read = about(
        "list",
        [vec![PRETTY], LIST.to_vec()].concat(),
        Body::None,
        &list,
    );
    let clear = about(
        "deletecollection",
        [vec![PRETTY, DRY_RUN], LIST.to_vec(), DELETE.to_vec()].concat(),
        Body::None,
        &schema,
    );
    let get = about("get", vec![PRETTY], Body::None, &schema);
    let put = about("put", write.clone(), Body::Object(&schema), &schema);
    let mut patching = write;
    patching.push(FORCE);
    let patch = about("patch", patching, Body::Patch, &schema);
    let delete = about(
        "delete",
        [vec![PRETTY, DRY_RUN], DELETE.to_vec()].concat(),
        Body::None,
        &schema,
    );
    let mut out = vec![
        (
            collection.clone(),
            path(
                kind,
                false,
                [("get", read.clone()), ("post", post), ("delete", clear)],
                dialect,
            ),
        ),
        (
            format!("{collection}/{{name}}"),
            path(
                kind,
                true,
                [
                    ("get", get.clone()),
                    ("put", put.clone()),
                    ("patch", patch.clone()),
                    ("delete", delete),
                ],
                dialect,
            ),
        ),
    ];
    if kind.namespaced {
        let everywhere = Kind {
            namespaced: false,
            ..*kind
        };
        out.push((
            place(false),
            path(&everywhere, false, [("get", read)], dialect),
        ));
    }
    let doors = [("status", kind.status), ("scale", kind.scale)];
    for (door, _) in doors.into_iter().filter(|(_, served)| *served) {
        let operations = [
            ("get", get.clone()),
            ("put", put.clone()),
            ("patch", patch.clone()),
        ];
        out.push((
            format!("{collection}/{{name}}/{door}"),
            path(kind, true, operations, dialect),
        ));
    }
    out
}

fn path<const N: usize>(
    kind: &Kind<'_>,
    named: bool,
    operations: [(&str, Value); N],
    dialect: Dialect,
) -> Value {
    let mut out: Map<String, Value> = operations
        .into_iter()
        .map(|(method, value)| (method.to_owned(), value))
        .collect();
    let mut parameters = Vec::new();
    if named {
        parameters.push(in_path("name", dialect));
    }
    if kind.namespaced {
        parameters.push(in_path("namespace", dialect));
    }
    out.insert("parameters".into(), parameters.into());
    out.into()
}

/// What an operation is sent.
#[derive(Clone, Copy)]
enum Body<'a> {
    None,
    Object(&'a str),
    Patch,
}

fn operation(
    kind: &Kind<'_>,
    action: &str,
    parameters: &[Parameter],
    body: Body<'_>,
    answer: &str,
    dialect: Dialect,
) -> Value {
    let mut patches = vec![
        "application/json-patch+json",
        "application/merge-patch+json",
    ];
    if kind.schema.is_none() {
        patches.push("application/strategic-merge-patch+json");
    }
    patches.push("application/apply-patch+yaml");
    let mut parameters: Vec<Value> = parameters
        .iter()
        .map(|each| parameter(*each, dialect))
        .collect();
    let reference = dialect.reference(answer);
    let mut out = json!({
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind.gvk(),
    });
    match dialect {
        Dialect::V3 => {
            out["responses"] = json!({"200": {
                "description": "OK",
                "content": {"application/json": {"schema": reference}},
            }});
            match body {
                Body::None => {}
                Body::Object(name) => {
                    let schema = dialect.reference(name);
                    out["requestBody"] =
                        json!({"required": true, "content": {"*/*": {"schema": schema}}});
                }
                Body::Patch => {
                    let schema = json!({"schema": {"type": "object"}});
                    let content: Map<String, Value> = patches
                        .iter()
                        .map(|each| ((*each).to_owned(), schema.clone()))
                        .collect();
                    out["requestBody"] = json!({"required": true, "content": content});
                }
            }
        }
        Dialect::V2 => {
            out["consumes"] = match body {
                Body::Patch => json!(patches),
                _ => json!(["application/json", "application/yaml"]),
            };
            out["produces"] = json!(["application/json", "application/yaml"]);
            out["responses"] = json!({"200": {"description": "OK", "schema": reference}});
            let schema = match body {
                Body::None => None,
                Body::Object(name) => Some(dialect.reference(name)),
                Body::Patch => Some(json!({"type": "object"})),
            };
            parameters.extend(
                schema
                    .map(|s| json!({"name": "body", "in": "body", "required": true, "schema": s})),
            );
        }
    }
    out["parameters"] = parameters.into();
    out
}
