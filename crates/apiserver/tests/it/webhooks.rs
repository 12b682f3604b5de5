//! Webhooks answered in process, on a paused clock.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use apiserver::{Clock, InMemory, webhook};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

use super::client::{code, config_map};

/// What was asked at which path, and where that was said to be.
type Asked = (String, Value, Option<Result<String, String>>);
type Answer = dyn Fn(&Value) -> Value + Send + Sync;

/// Webhooks by path, and what each was asked.
#[derive(Clone, Default)]
struct Hooks {
    answers: Arc<Mutex<BTreeMap<String, Arc<Answer>>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Hooks {
    fn on(&self, path: &str, answer: impl Fn(&Value) -> Value + Send + Sync + 'static) {
        let mut answers = self.answers.lock().unwrap();
        answers.insert(path.to_owned(), Arc::new(answer));
    }

    fn transport(&self) -> webhook::Transport {
        let hooks = self.clone();
        webhook::Transport::new(tower::service_fn(move |request: Request<Bytes>| {
            let hooks = hooks.clone();
            async move {
                let path = request.uri().path().to_owned();
                let route = request.extensions().get::<webhook::Route>().cloned();
                let review: Value = serde_json::from_slice(request.body())?;
                let asked = (path.clone(), review.clone(), route.unwrap().address);
                hooks.asked.lock().unwrap().push(asked);
                let answer = hooks.answers.lock().unwrap().get(&path).cloned();
                let Some(answer) = answer else {
                    // Nobody is there, and nobody says so.
                    return std::future::pending().await;
                };
                let mut response = answer(&review["request"]);
                response["uid"] = review["request"]["uid"].clone();
                let said = json!({
                    "apiVersion": review["apiVersion"], "kind": review["kind"], "response": response,
                });
                Ok::<_, tower::BoxError>(Response::new(Bytes::from(said.to_string())))
            }
        }))
    }

    /// The paths asked, in order.
    fn paths(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|(path, ..)| path.clone()).collect()
    }

    fn start(&self) -> (InMemory, Client) {
        let server = InMemory::with_webhooks(Clock::system(), 0, self.transport());
        let client = Client::new(server.service(), "default");
        (server, client)
    }
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(kube::client::Body::from(body.to_string().into_bytes()))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

async fn create(client: &Client, path: &str, body: &Value) -> Value {
    let (status, said) = send(client, "POST", path, body).await;
    assert_eq!(status, 201, "{said}");
    said
}

fn hook(path: &str) -> Value {
    json!({
        "name": format!("{}.hook.test", path.trim_start_matches('/')),
        "clientConfig": {"url": format!("https://hook.test{path}")},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"],
            "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    })
}

async fn register(client: &Client, kind: &str, name: &str, webhooks: Value) {
    let path = format!(
        "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations",
        kind.to_lowercase()
    );
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name},
        "webhooks": webhooks,
    });
    create(client, &path, &body).await;
}

fn patch(operations: &Value) -> Value {
    let patch = STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}

/// Appends a letter to the object's trace.
fn trace(letter: &'static str) -> impl Fn(&Value) -> Value {
    move |request| {
        let before = request["object"]["data"]["trace"].as_str().unwrap_or("");
        if before.contains(letter) {
            return json!({"allowed": true});
        }
        let after = format!("{before}{letter}");
        patch(&json!([{"op": "add", "path": "/data/trace", "value": after}]))
    }
}

#[tokio::test(start_paused = true)]
async fn mutating_webhooks_are_asked_in_order_and_again_if_they_want_to_be() {
    let hooks = Hooks::default();
    for letter in ["a", "b", "c"] {
        hooks.on(&format!("/{letter}"), trace(letter));
    }
    let (_server, client) = hooks.start();
    let mut again = hook("/a");
    again["reinvocationPolicy"] = json!("IfNeeded");
    // The order is that of the configurations' names, whichever came first.
    register(&client, "Mutating", "2", json!([hook("/c")])).await;
    register(&client, "Mutating", "1", json!([again, hook("/b")])).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let made = maps.create(&PostParams::default(), &config_map("x")).await;
    let data = made.unwrap().data.unwrap();
    assert_eq!(data["trace"], "abc");
    assert_eq!(hooks.paths(), ["/a", "/b", "/c", "/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_does_not_answer_refuses_unless_it_may_be_ignored() {
    let hooks = Hooks::default();
    let (_server, client) = hooks.start();
    let mut silent = hook("/silent");
    silent["timeoutSeconds"] = json!(7);
    register(&client, "Validating", "v", json!([silent])).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let refused = maps.create(&PostParams::default(), &config_map("x")).await;
    let (status, reason, message) = code(refused.unwrap_err());
    assert_eq!((status, reason.as_str()), (500, "InternalError"));
    assert_eq!(
        message,
        "Internal error occurred: failed calling webhook \"silent.hook.test\": failed to call webhook: \
         Post \"https://hook.test/silent?timeout=7s\": context deadline exceeded"
    );
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v";
    let (status, _) = send(&client, "DELETE", path, &json!({})).await;
    assert_eq!(status, 200);
    let mut silent = hook("/silent");
    silent["failurePolicy"] = json!("Ignore");
    register(&client, "Validating", "v", json!([silent])).await;
    maps.create(&PostParams::default(), &config_map("x"))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn all_validating_webhooks_are_asked_and_the_first_refusal_in_order_counts() {
    let hooks = Hooks::default();
    for name in ["one", "two"] {
        hooks.on(&format!("/{name}"), move |_| {
            json!({"allowed": false, "status": {"message": name, "code": 403, "reason": "Forbidden"}})
        });
    }
    let (_server, client) = hooks.start();
    register(
        &client,
        "Validating",
        "v",
        json!([hook("/one"), hook("/two")]),
    )
    .await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let refused = maps.create(&PostParams::default(), &config_map("x")).await;
    let (status, reason, message) = code(refused.unwrap_err());
    assert_eq!((status, reason.as_str()), (403, "Forbidden"));
    assert_eq!(
        message,
        "admission webhook \"one.hook.test\" denied the request: one"
    );
    assert_eq!(hooks.paths().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_webhook_makes_of_an_object_is_validated() {
    let hooks = Hooks::default();
    hooks.on("/m", |_| {
        patch(&json!([{"op": "add", "path": "/data/bad key", "value": "x"}]))
    });
    let (_server, client) = hooks.start();
    register(&client, "Mutating", "m", json!([hook("/m")])).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let refused = maps.create(&PostParams::default(), &config_map("x")).await;
    let (status, reason, _) = code(refused.unwrap_err());
    assert_eq!((status, reason.as_str()), (422, "Invalid"));
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items, []);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_behind_a_service_is_where_its_endpoints_are() {
    let hooks = Hooks::default();
    hooks.on("/check", |_| json!({"allowed": true}));
    let (_server, client) = hooks.start();
    let mut served = hook("/check");
    served["clientConfig"] =
        json!({"service": {"namespace": "default", "name": "checker", "path": "/check"}});
    register(&client, "Validating", "v", json!([served])).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let address = || {
        hooks
            .asked
            .lock()
            .unwrap()
            .last()
            .unwrap()
            .2
            .clone()
            .unwrap()
    };

    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    assert_eq!(address(), Err("service \"checker\" not found".to_owned()));

    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "checker"},
        "spec": {"ports": [{"port": 443, "targetPort": 8443}]}});
    create(&client, "/api/v1/namespaces/default/services", &service).await;
    maps.create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap();
    assert_eq!(
        address(),
        Err("no endpoints available for service \"checker\"".to_owned())
    );

    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "checker-1", "labels": {"kubernetes.io/service-name": "checker"}},
        "ports": [{"port": 8443}],
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": true}},
        ],
    });
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    create(&client, path, &slice).await;
    maps.create(&PostParams::default(), &config_map("c"))
        .await
        .unwrap();
    assert_eq!(address(), Ok("10.0.0.2:8443".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_shown_as_one_and_not_as_a_deletion() {
    let hooks = Hooks::default();
    hooks.on(
        "/evict",
        |request| json!({"allowed": request["name"] != "kept", "status": {"message": "not now"}}),
    );
    let (_server, client) = hooks.start();
    let mut watcher = hook("/evict");
    watcher["rules"][0]["resources"] = json!(["pods", "pods/eviction"]);
    watcher["rules"][0]["operations"] = json!(["CREATE", "DELETE"]);
    let pods = "/api/v1/namespaces/default/pods";
    for name in ["kept", "gone"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        create(&client, pods, &pod).await;
    }
    register(&client, "Validating", "v", json!([watcher])).await;
    let evict = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let path = format!("{pods}/kept/eviction");
    let (status, said) = send(&client, "POST", &path, &evict("kept")).await;
    assert_eq!(status, 400, "{said}");
    let path = format!("{pods}/gone/eviction");
    let (status, said) = send(&client, "POST", &path, &evict("gone")).await;
    assert_eq!(status, 201, "{said}");
    let asked = hooks.asked.lock().unwrap();
    let operations: Vec<_> = asked
        .iter()
        .map(|(_, review, _)| {
            let request = &review["request"];
            (
                request["operation"].clone(),
                request["subResource"].clone(),
                request["kind"]["kind"].clone(),
            )
        })
        .collect();
    let eviction = (json!("CREATE"), json!("eviction"), json!("Eviction"));
    assert_eq!(operations, [eviction.clone(), eviction]);
}

#[tokio::test(start_paused = true)]
async fn webhooks_cannot_keep_their_own_configuration() {
    let hooks = Hooks::default();
    let (_server, client) = hooks.start();
    let mut all = hook("/all");
    all["rules"][0] = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"],
        "resources": ["*"]});
    register(&client, "Validating", "v", json!([all])).await;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v";
    let (status, _) = send(&client, "DELETE", path, &json!({})).await;
    assert_eq!(status, 200);
    assert_eq!(hooks.paths(), Vec::<String>::new());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &config_map("x"))
        .await
        .unwrap();
    maps.delete("x", &DeleteParams::default()).await.unwrap();
}

/// Widgets: `size` in v1, which is stored, and `count` in v2.
fn widgets() -> Value {
    let version = |name: &str, field: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {field: {"type": "integer"}}}}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.w.test"},
        "spec": {
            "group": "w.test", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1", "size"), version("v2", "count")],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://hook.test/convert"}}},
        },
    })
}

fn convert(request: &Value) -> Value {
    let wanted = request["desiredAPIVersion"].clone();
    let objects = request["objects"].as_array().unwrap().iter();
    let converted: Vec<Value> = objects
        .map(|object| {
            let mut object = object.clone();
            let (from, to) = match wanted.as_str() {
                Some("w.test/v2") => ("size", "count"),
                _ => ("count", "size"),
            };
            object["apiVersion"] = wanted.clone();
            // A webhook that tidies too much.
            object["metadata"]["finalizers"] = json!(["hook.test/mine"]);
            object["metadata"]["labels"] = json!({"converted": "yes"});
            let spec = object["spec"].as_object_mut().unwrap();
            if let Some(value) = spec.remove(from) {
                spec.insert(to.to_owned(), value);
            }
            object
        })
        .collect();
    json!({"convertedObjects": converted, "result": {"status": "Success"}})
}

const V1: &str = "/apis/w.test/v1/namespaces/default/widgets";
const V2: &str = "/apis/w.test/v2/namespaces/default/widgets";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn widget(version: &str, name: &str, spec: Value) -> Value {
    let mut widget = json!({"kind": "Widget", "metadata": {"name": name}});
    widget["apiVersion"] = json!(format!("w.test/{version}"));
    widget["spec"] = spec;
    widget
}

#[tokio::test(start_paused = true)]
async fn a_list_in_another_version_asks_once_and_keeps_who_objects_are() {
    let hooks = Hooks::default();
    hooks.on("/convert", convert);
    let (_server, client) = hooks.start();
    create(&client, CRDS, &widgets()).await;
    for name in ["a", "b", "c"] {
        create(&client, V1, &widget("v1", name, json!({"size": 3}))).await;
    }
    assert_eq!(hooks.paths(), Vec::<String>::new());
    let (status, list) = send(&client, "GET", V2, &Value::Null).await;
    assert_eq!(status, 200, "{list}");
    assert_eq!(hooks.paths().len(), 1);
    for item in list["items"].as_array().unwrap() {
        assert_eq!(item["spec"], json!({"count": 3}));
        assert_eq!(item["metadata"]["labels"], json!({"converted": "yes"}));
        assert!(item["metadata"].get("finalizers").is_none(), "{item}");
        assert!(item["metadata"]["uid"].is_string());
    }
    let made = create(&client, V2, &widget("v2", "d", json!({"count": 4}))).await;
    assert_eq!(made["spec"], json!({"count": 4}));
    let (_, stored) = send(&client, "GET", &format!("{V1}/d"), &Value::Null).await;
    assert_eq!(stored["spec"], json!({"size": 4}));
}

#[tokio::test(start_paused = true)]
async fn an_admission_webhook_sees_the_version_its_rules_name() {
    let hooks = Hooks::default();
    hooks.on("/convert", convert);
    hooks.on("/m", |request| {
        assert_eq!(request["kind"]["version"], "v1");
        assert_eq!(request["requestKind"]["version"], "v2");
        let size = request["object"]["spec"]["size"].as_i64().unwrap();
        patch(&json!([{"op": "replace", "path": "/spec/size", "value": size + 1}]))
    });
    let (_server, client) = hooks.start();
    create(&client, CRDS, &widgets()).await;
    let mut mutating = hook("/m");
    mutating["rules"][0] = json!({"apiGroups": ["w.test"], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["widgets"]});
    register(&client, "Mutating", "m", json!([mutating])).await;
    let made = create(&client, V2, &widget("v2", "a", json!({"count": 4}))).await;
    assert_eq!(made["spec"], json!({"count": 5}));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_converted_is_told_and_not_left_out() {
    let hooks = Hooks::default();
    hooks.on(
        "/convert",
        |_| json!({"result": {"status": "Failure", "message": "no idea"}}),
    );
    let (_server, client) = hooks.start();
    create(&client, CRDS, &widgets()).await;
    create(&client, V1, &widget("v1", "a", json!({"size": 3}))).await;
    let told = "conversion webhook for w.test/v1, Kind=Widget failed: no idea";
    for path in [format!("{V2}/a"), V2.to_owned()] {
        let (status, said) = send(&client, "GET", &path, &Value::Null).await;
        assert_eq!((status, said["message"].as_str()), (500, Some(told)));
    }
    let request = Request::get(format!("{V2}?watch=true&resourceVersion=0"))
        .body(Vec::new())
        .unwrap();
    let events = client.request_stream(request).await.unwrap();
    let lines: Vec<String> = events.lines().try_collect().await.unwrap();
    assert_eq!(lines.len(), 1);
    let event: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["message"], told);
}
