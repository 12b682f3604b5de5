//! Objects of several versions: converted by a webhook, relabelled without one.

use conformance::{Hook, case};
use http::Method;
use serde_json::{Value, json};

use crate::fixtures::{CRDS, define, group, widget, widget_crd, widgets};

case!(versions_are_converted_by_a_webhook, async |s| {
    // v1 calls it `size`, v2 calls it `count`.
    let hook = Hook::start(|request| {
        let wanted = request["desiredAPIVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let objects: Vec<Value> = request["objects"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|object| {
                let mut object = object.clone();
                object["apiVersion"] = json!(wanted);
                if let Some(spec) = object["spec"].as_object_mut() {
                    let (from, to) = if wanted.ends_with("/v2") {
                        ("size", "count")
                    } else {
                        ("count", "size")
                    };
                    if let Some(value) = spec.remove(from) {
                        spec.insert(to.into(), value);
                    }
                }
                object
            })
            .collect();
        json!({"convertedObjects": objects, "result": {"status": "Success"}})
    })
    .await;
    let mut crd = widget_crd(
        s,
        &json!({"type": "object", "properties": {"size": {"type": "integer"}}}),
    );
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({"type": "object", "properties": {"count": {"type": "integer"}}});
    crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": hook.client_config()}});
    let made = s
        .raw(
            Method::POST,
            CRDS,
            &[("content-type", "application/json")],
            &crd.to_string(),
        )
        .await;
    s.note("defined", json!(made.status.as_u16())).await;
    let v2 = format!("/apis/{}/v2/namespaces/{}/widgets", group(s), s.ns());
    crate::fixtures::served(s, &v2, true).await;
    crate::fixtures::served(s, &widgets(s, ""), true).await;
    s.post(
        "create as v1",
        &widgets(s, ""),
        &widget(s, "a", &json!({"size": 3})),
    )
    .await;
    s.get("get as v2", &format!("{v2}/a")).await;
    let mut body = widget(s, "b", &json!({"count": 5}));
    body["apiVersion"] = json!(format!("{}/v2", group(s)));
    s.post("create as v2", &v2, &body).await;
    s.get("get as v1", &widgets(s, "/b")).await;
    s.get("list as v2", &v2).await;
    s.merge(
        "patch as v2",
        &format!("{v2}/a"),
        &json!({"spec": {"count": 7}}),
    )
    .await;
    s.get("seen as v1", &widgets(s, "/a")).await;
    let first = hook
        .all()
        .into_iter()
        .find(|r| {
            r["request"]["objects"]
                .as_array()
                .is_some_and(|o| !o.is_empty())
        })
        .unwrap_or_default();
    s.note(
        "the question's shape",
        json!([
            first["apiVersion"],
            first["kind"],
            first["request"]["desiredAPIVersion"].is_string()
        ]),
    )
    .await;
});

case!(versions_are_relabelled_without_a_webhook, async |s| {
    let mut crd = widget_crd(
        s,
        &json!({"type": "object", "properties": {"size": {"type": "integer"}}}),
    );
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string", "default": "red"}}});
    let mut third = second.clone();
    third["name"] = json!("v3");
    third["served"] = json!(false);
    crd["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .extend([second, third]);
    define(s, &crd).await;
    let v2 = format!("/apis/{}/v2/namespaces/{}/widgets", group(s), s.ns());
    s.post(
        "create as v1",
        &widgets(s, ""),
        &widget(s, "a", &json!({"size": 3})),
    )
    .await;
    s.get("get as v2", &format!("{v2}/a")).await;
    let mut body = widget(s, "b", &json!({"size": 5, "color": "blue"}));
    body["apiVersion"] = json!(format!("{}/v2", group(s)));
    s.post("create as v2", &v2, &body).await;
    s.get("get as v1", &widgets(s, "/b")).await;
    s.get(
        "not served",
        &format!("/apis/{}/v3/namespaces/{}/widgets", group(s), s.ns()),
    )
    .await;
    s.post("v1 body at v2", &v2, &widget(s, "c", &json!({})))
        .await;
});

case!(a_broken_conversion_is_told, async |s| {
    let hook = Hook::start(|request| match request["desiredAPIVersion"].as_str() {
        Some(wanted) if wanted.ends_with("/v2") => {
            json!({"convertedObjects": [], "result": {"status": "Failure", "message": "no idea"}})
        }
        _ => json!({"convertedObjects": [], "result": {"status": "Success"}}),
    })
    .await;
    let mut crd = widget_crd(
        s,
        &json!({"type": "object", "properties": {"size": {"type": "integer"}}}),
    );
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": hook.client_config()}});
    s.raw(
        Method::POST,
        CRDS,
        &[("content-type", "application/json")],
        &crd.to_string(),
    )
    .await;
    let v2 = format!("/apis/{}/v2/namespaces/{}/widgets", group(s), s.ns());
    crate::fixtures::served(s, &widgets(s, ""), true).await;
    crate::fixtures::served(s, &v2, true).await;
    s.post(
        "create as v1",
        &widgets(s, ""),
        &widget(s, "a", &json!({"size": 3})),
    )
    .await;
    s.get("get as v2", &format!("{v2}/a")).await;
    s.get("get as v1", &widgets(s, "/a")).await;
    let mut body = widget(s, "b", &json!({"size": 5}));
    body["apiVersion"] = json!(format!("{}/v2", group(s)));
    s.post("create as v2", &v2, &body).await;
    s.delete("delete as v1", &widgets(s, "/a")).await;
});
