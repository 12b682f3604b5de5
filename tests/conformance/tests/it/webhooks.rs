//! Admission webhooks: when they are called, with what, and what their answers do.

use std::time::Duration;

use base64::Engine as _;
use conformance::{Hook, Session, case};
use http::Method;
use serde_json::{Value, json};

use crate::fixtures::{cm, define, group, pod, widget, widget_crd};

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

fn webhook(s: &Session, client: &Value) -> Value {
    json!({
        "name": "hook.example.com",
        "clientConfig": client,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": s.ns()}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    })
}

/// Registers the webhook and waits until it is called.
async fn register(s: &Session, path: &str, hook: &Hook, webhook: &Value) {
    let kind = if path == VALIDATING {
        "ValidatingWebhookConfiguration"
    } else {
        "MutatingWebhookConfiguration"
    };
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": s.ns()}, "webhooks": [webhook]});
    let answer = s
        .raw(
            Method::POST,
            path,
            &[("content-type", "application/json")],
            &body.to_string(),
        )
        .await;
    s.note("register", json!(answer.status.as_u16())).await;
    for _ in 0..500 {
        let probe = cm("probe", &json!({})).to_string();
        s.raw(
            Method::POST,
            &format!("{}?dryRun=All", s.cms()),
            &[("content-type", "application/json")],
            &probe,
        )
        .await;
        if !hook.asked("probe").is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    s.note("the webhook is never called", json!(true)).await;
}

async fn unregister(s: &Session, path: &str) {
    s.raw(Method::DELETE, &format!("{path}/{}", s.ns()), &[], "")
        .await;
}

async fn heard(s: &Session, hook: &Hook, name: &str) {
    let mut reviews = hook.asked(name);
    for review in &mut reviews {
        // The uid that ties answer to question is random.
        review["request"]["uid"] = json!("<uid>");
    }
    s.note(
        &format!("what the webhook was asked about {name}"),
        json!(reviews),
    )
    .await;
}

case!(a_validating_webhook_can_refuse, async |s| {
    let hook = Hook::start(|request| match request["name"].as_str() {
        Some("plain") => json!({"allowed": false}),
        Some("message") => json!({"allowed": false, "status": {"message": "not this one"}}),
        Some("coded") => json!({"allowed": false, "status": {"message": "too much", "code": 429, "reason": "TooManyRequests"}}),
        Some("warned") => json!({"allowed": true, "warnings": ["this is odd", "and that too"]}),
        _ => json!({"allowed": true}),
    })
    .await;
    register(s, VALIDATING, &hook, &webhook(s, &hook.client_config())).await;
    for name in ["fine", "plain", "message", "coded", "warned"] {
        s.post(name, &s.cms(), &cm(name, &json!({"x": "1"}))).await;
    }
    heard(s, &hook, "fine").await;
    s.get("refused is not there", &s.cm("message")).await;
    unregister(s, VALIDATING).await;
});

case!(a_webhook_sees_each_operation, async |s| {
    let hook = Hook::start(|_| json!({"allowed": true})).await;
    register(s, VALIDATING, &hook, &webhook(s, &hook.client_config())).await;
    s.post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    s.merge("patch", &s.cm("a"), &json!({"data": {"x": "2"}}))
        .await;
    s.put(
        "update",
        &s.cm("a?dryRun=All&fieldManager=me"),
        &cm("a", &json!({"x": "3"})),
    )
    .await;
    s.apply(
        "apply",
        &s.cm("a?force=true"),
        "alice",
        &cm("a", &json!({"x": "4"})),
    )
    .await;
    s.delete_with(
        "delete",
        &s.cm("a"),
        &json!({"propagationPolicy": "Background"}),
    )
    .await;
    heard(s, &hook, "a").await;
    unregister(s, VALIDATING).await;
});

case!(a_webhook_can_refuse_a_deletion, async |s| {
    let hook = Hook::start(|request| match request["operation"].as_str() {
        Some("DELETE") => json!({"allowed": false, "status": {"message": "it stays"}}),
        _ => json!({"allowed": true}),
    })
    .await;
    register(s, VALIDATING, &hook, &webhook(s, &hook.client_config())).await;
    s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    s.delete("delete", &s.cm("a")).await;
    s.get("it stays", &s.cm("a")).await;
    unregister(s, VALIDATING).await;
});

case!(a_mutating_webhook_changes_what_is_written, async |s| {
    let patch = |patch: Value| base64::engine::general_purpose::STANDARD.encode(patch.to_string());
    let hook = Hook::start(move |request| match request["name"].as_str() {
        Some("changed") => json!({"allowed": true, "patchType": "JSONPatch",
            "patch": patch(json!([{"op": "add", "path": "/data/added", "value": "1"}, {"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]))}),
        Some("broken") => json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(json!([{"op": "remove", "path": "/data/none"}]))}),
        Some("invalid") => json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"bad key!": "x"}}]))}),
        Some("refused") => json!({"allowed": false, "status": {"message": "no"}}),
        _ => json!({"allowed": true}),
    })
    .await;
    register(s, MUTATING, &hook, &webhook(s, &hook.client_config())).await;
    s.post("changed", &s.cms(), &cm("changed", &json!({"x": "1"})))
        .await;
    s.get("stored so", &s.cm("changed")).await;
    let answer = s
        .raw(
            Method::POST,
            &s.cms(),
            &[("content-type", "application/json")],
            &cm("broken", &json!({"x": "1"})).to_string(),
        )
        .await;
    s.note("a patch that does not fit", json!(answer.status.as_u16()))
        .await;
    s.post(
        "invalid after the change",
        &s.cms(),
        &cm("invalid", &json!({"x": "1"})),
    )
    .await;
    s.post("refused", &s.cms(), &cm("refused", &json!({"x": "1"})))
        .await;
    s.apply(
        "applied",
        &s.cm("changed?force=true"),
        "alice",
        &cm("changed", &json!({"x": "2"})),
    )
    .await;
    unregister(s, MUTATING).await;
});

case!(a_webhook_is_called_only_for_what_it_names, async |s| {
    let hook = Hook::start(|request| {
        json!({"allowed": request["name"] == "probe" || request["name"] == "plain", "status": {"message": "seen"}})
    })
    .await;
    let mut webhook = webhook(s, &hook.client_config());
    webhook["rules"][0]["operations"] = json!(["CREATE"]);
    webhook["objectSelector"] =
        json!({"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]});
    webhook["matchConditions"] =
        json!([{"name": "not-excluded", "expression": "object.metadata.name != 'excluded'"}]);
    register(s, VALIDATING, &hook, &webhook).await;
    s.post("seen", &s.cms(), &cm("seen", &json!({}))).await;
    s.post(
        "excluded by a condition",
        &s.cms(),
        &cm("excluded", &json!({})),
    )
    .await;
    let mut skipped = cm("skipped", &json!({}));
    skipped["metadata"]["labels"] = json!({"skip": "1"});
    s.post("excluded by a label", &s.cms(), &skipped).await;
    s.post("another kind", &s.core("pods"), &pod("other")).await;
    s.merge(
        "another operation",
        &s.cm("excluded"),
        &json!({"data": {"x": "1"}}),
    )
    .await;
    unregister(s, VALIDATING).await;
});

case!(an_absent_webhook_fails_or_is_ignored, async |s| {
    let nowhere = json!({"url": "https://127.0.0.1:1/none"});
    for policy in ["Fail", "Ignore"] {
        let mut webhook = webhook(s, &nowhere);
        webhook["failurePolicy"] = json!(policy);
        let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": format!("{}-{}", s.ns(), policy.to_lowercase())}, "webhooks": [webhook]});
        s.post(policy, VALIDATING, &body).await;
        let mut answer = Value::Null;
        for _ in 0..250 {
            let sent = s
                .raw(
                    Method::POST,
                    &format!("{}?dryRun=All", s.cms()),
                    &[("content-type", "application/json")],
                    &cm("a", &json!({})).to_string(),
                )
                .await;
            let said: Value = serde_json::from_slice(&sent.body).unwrap();
            answer = json!([
                sent.status.as_u16(),
                said["reason"],
                said["message"].as_str().map(|m| m
                    .split(": Post")
                    .next()
                    .unwrap_or_default()
                    .to_owned())
            ]);
            if (sent.status == 500) == (policy == "Fail") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        s.note(&format!("with {policy}"), answer).await;
        s.raw(
            Method::DELETE,
            &format!("{VALIDATING}/{}-{}", s.ns(), policy.to_lowercase()),
            &[],
            "",
        )
        .await;
    }
});

case!(webhook_configurations_are_checked, async |s| {
    let client = json!({"url": "https://127.0.0.1:1/none"});
    let refuse = async |what: &str, change: &dyn Fn(&mut Value)| {
        let mut webhook = webhook(s, &client);
        change(&mut webhook);
        let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": s.ns()}, "webhooks": [webhook]});
        s.post(what, &format!("{VALIDATING}?dryRun=All"), &body)
            .await;
    };
    refuse("good", &|_| {}).await;
    refuse("short name", &|w| w["name"] = json!("hook")).await;
    refuse("no side effects", &|w| w["sideEffects"] = Value::Null).await;
    refuse("bad side effects", &|w| w["sideEffects"] = json!("Some")).await;
    refuse("no versions", &|w| w["admissionReviewVersions"] = json!([])).await;
    refuse("unknown versions", &|w| {
        w["admissionReviewVersions"] = json!(["v9"]);
    })
    .await;
    refuse("bad policy", &|w| w["failurePolicy"] = json!("Maybe")).await;
    refuse("long timeout", &|w| w["timeoutSeconds"] = json!(60)).await;
    refuse("plain http", &|w| {
        w["clientConfig"]["url"] = json!("http://127.0.0.1/x");
    })
    .await;
    refuse("neither url nor service", &|w| {
        w["clientConfig"] = json!({});
    })
    .await;
    refuse("no rule operations", &|w| {
        w["rules"][0]["operations"] = json!([]);
    })
    .await;
    refuse("bad operation", &|w| {
        w["rules"][0]["operations"] = json!(["READ"]);
    })
    .await;
});

/// A webhook for other resources than config maps.
fn webhook_for(s: &Session, client: &Value, group: &str, resources: &[&str]) -> Value {
    let mut webhook = webhook(s, client);
    webhook["rules"] = json!([
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
        {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": resources},
    ]);
    webhook
}

case!(subresources_are_shown_as_what_they_are, async |s| {
    let hook = Hook::start(|_| json!({"allowed": true})).await;
    let resources = ["deployments/scale", "deployments/status"];
    let webhook = webhook_for(s, &hook.client_config(), "apps", &resources);
    register(s, VALIDATING, &hook, &webhook).await;
    let path = s.group("apps/v1", "deployments");
    s.post("create", &path, &crate::fixtures::deployment("a"))
        .await;
    s.merge(
        "scale",
        &format!("{path}/a/scale"),
        &json!({"spec": {"replicas": 4}}),
    )
    .await;
    s.merge(
        "status",
        &format!("{path}/a/status"),
        &json!({"status": {"replicas": 1}}),
    )
    .await;
    heard(s, &hook, "a").await;
    unregister(s, VALIDATING).await;
});

case!(a_webhook_can_change_a_scale, async |s| {
    let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": 9}]);
    let patch = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
    let hook = Hook::start(move |request| match request["subResource"].as_str() {
        Some("scale") => json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}),
        _ => json!({"allowed": true}),
    })
    .await;
    let webhook = webhook_for(s, &hook.client_config(), "apps", &["deployments/scale"]);
    register(s, MUTATING, &hook, &webhook).await;
    let path = s.group("apps/v1", "deployments");
    s.post("create", &path, &crate::fixtures::deployment("a"))
        .await;
    s.merge(
        "scale",
        &format!("{path}/a/scale"),
        &json!({"spec": {"replicas": 4}}),
    )
    .await;
    s.get("scaled", &format!("{path}/a")).await;
    unregister(s, MUTATING).await;
});

case!(
    evictions_and_bindings_are_shown_as_what_they_are,
    async |s| {
        let hook = Hook::start(|request| {
        json!({"allowed": request["operation"] != "DELETE" && request["name"] != "kept", "status": {"message": "not now"}})
    })
    .await;
        let resources = ["pods", "pods/eviction", "pods/binding"];
        let webhook = webhook_for(s, &hook.client_config(), "", &resources);
        let pods = s.core("pods");
        for name in ["kept", "gone"] {
            s.raw(
                Method::POST,
                &pods,
                &[("content-type", "application/json")],
                &pod(name).to_string(),
            )
            .await;
        }
        register(s, VALIDATING, &hook, &webhook).await;
        for name in ["kept", "gone"] {
            let bind = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
            s.post("bind", &format!("{pods}/{name}/binding"), &bind)
                .await;
            let evict =
                json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
            s.post("evict", &format!("{pods}/{name}/eviction"), &evict)
                .await;
        }
        heard(s, &hook, "gone").await;
        s.delete("delete", &format!("{pods}/kept")).await;
        unregister(s, VALIDATING).await;
    }
);

case!(what_is_not_named_yet_is_shown_without_a_name, async |s| {
    let hook = Hook::start(|_| json!({"allowed": true})).await;
    register(s, MUTATING, &hook, &webhook(s, &hook.client_config())).await;
    let generated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "some-"}, "data": {"x": "1"}});
    s.raw(
        Method::POST,
        &s.cms(),
        &[("content-type", "application/json")],
        &generated.to_string(),
    )
    .await;
    let asked: Vec<Value> = hook
        .all()
        .iter()
        .filter(|r| r["request"]["object"]["metadata"]["generateName"] == "some-")
        .map(|r| {
            json!([
                r["request"]["name"],
                r["request"]["object"]["metadata"]["name"].is_string(),
                r["request"]["object"]["metadata"]["uid"].is_string(),
                r["request"]["object"]["metadata"].get("creationTimestamp"),
            ])
        })
        .collect();
    s.note("asked", json!(asked)).await;
    unregister(s, MUTATING).await;
});

case!(a_collection_is_deleted_without_naming_anything, async |s| {
    let hook = Hook::start(|_| json!({"allowed": true})).await;
    s.post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    register(s, VALIDATING, &hook, &webhook(s, &hook.client_config())).await;
    s.delete(
        "delete all",
        &format!("{}?fieldSelector=metadata.name%3Da", s.cms()),
    )
    .await;
    let asked: Vec<Value> = hook
        .all()
        .iter()
        .filter(|r| r["request"]["operation"] == "DELETE")
        .map(|r| {
            json!([
                r["request"]["name"],
                r["request"]["oldObject"]["metadata"]["name"],
                r["request"]["options"]
            ])
        })
        .collect();
    s.note("asked", json!(asked)).await;
    unregister(s, VALIDATING).await;
});

case!(a_service_that_is_not_there_is_told, async |s| {
    let nowhere = json!({"service": {"namespace": s.ns(), "name": "none", "path": "/check"}});
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": s.ns()}, "webhooks": [webhook(s, &nowhere)]});
    s.post("register", VALIDATING, &body).await;
    let mut said = Value::Null;
    for _ in 0..250 {
        let answer = s
            .raw(
                Method::POST,
                &format!("{}?dryRun=All", s.cms()),
                &[("content-type", "application/json")],
                &cm("a", &json!({})).to_string(),
            )
            .await;
        said = serde_json::from_slice(&answer.body).unwrap();
        if answer.status == 500 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    s.note("refused", said).await;
    unregister(s, VALIDATING).await;
});

case!(a_webhook_sees_the_version_that_it_names, async |s| {
    let hook = Hook::start(|_| json!({"allowed": true})).await;
    let mut crd = widget_crd(
        s,
        &json!({"type": "object", "properties": {"size": {"type": "integer"}}}),
    );
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    define(s, &crd).await;
    let v2 = format!("/apis/{}/v2/namespaces/{}/widgets", group(s), s.ns());
    let webhook = webhook_for(s, &hook.client_config(), &group(s), &["widgets"]);
    register(s, VALIDATING, &hook, &webhook).await;
    let mut body = widget(s, "a", &json!({"size": 5}));
    body["apiVersion"] = json!(format!("{}/v2", group(s)));
    s.post("create as v2", &v2, &body).await;
    s.merge(
        "patch as v2",
        &format!("{v2}/a"),
        &json!({"spec": {"size": 6}}),
    )
    .await;
    heard(s, &hook, "a").await;
    unregister(s, VALIDATING).await;
});
