//! Owners, dependents, namespaces: what goes when something else goes.

use conformance::{Session, case};
use serde_json::{Value, json};

use crate::fixtures::{cm, define, widget, widget_crd, widgets};

fn owned(name: &str, owner: &str, uid: &str, block: bool) -> Value {
    let mut body = cm(name, &json!({}));
    body["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": block}]);
    body
}

async fn family(s: &Session) {
    let owner = s.post("owner", &s.cms(), &cm("owner", &json!({}))).await;
    s.post(
        "child",
        &s.cms(),
        &owned("child", "owner", owner.uid(), true),
    )
    .await;
    s.post("other", &s.cms(), &cm("other", &json!({}))).await;
}

case!(background_deletion_takes_the_dependents_later, async |s| {
    family(s).await;
    s.delete_with(
        "delete",
        &s.cm("owner"),
        &json!({"propagationPolicy": "Background"}),
    )
    .await;
    s.eventually("the child goes", &s.cm("child"), |r| r.status == 404)
        .await;
    s.get("the other stays", &s.cm("other")).await;
});

case!(deletion_is_background_by_default, async |s| {
    family(s).await;
    s.delete("delete", &s.cm("owner")).await;
    s.get("gone at once", &s.cm("owner")).await;
    s.eventually("the child goes", &s.cm("child"), |r| r.status == 404)
        .await;
});

case!(foreground_deletion_takes_the_dependents_first, async |s| {
    family(s).await;
    s.merge(
        "hold the child",
        &s.cm("child"),
        &json!({"metadata": {"finalizers": ["example.com/hold"]}}),
    )
    .await;
    s.delete_with(
        "delete",
        &s.cm("owner"),
        &json!({"propagationPolicy": "Foreground"}),
    )
    .await;
    s.eventually("the child is being deleted", &s.cm("child"), |r| {
        !r.body["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    s.get("the owner waits", &s.cm("owner")).await;
    s.merge(
        "let the child go",
        &s.cm("child"),
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
    s.eventually("the owner goes", &s.cm("owner"), |r| r.status == 404)
        .await;
});

case!(
    foreground_does_not_wait_for_those_who_do_not_block,
    async |s| {
        let owner = s.post("owner", &s.cms(), &cm("owner", &json!({}))).await;
        let mut child = owned("child", "owner", owner.uid(), false);
        child["metadata"]["finalizers"] = json!(["example.com/hold"]);
        s.post("child", &s.cms(), &child).await;
        s.delete_with(
            "delete",
            &s.cm("owner"),
            &json!({"propagationPolicy": "Foreground"}),
        )
        .await;
        s.eventually("the owner goes", &s.cm("owner"), |r| r.status == 404)
            .await;
        s.eventually("the child follows", &s.cm("child"), |r| {
            !r.body["metadata"]["deletionTimestamp"].is_null()
        })
        .await;
        s.merge(
            "let the child go",
            &s.cm("child"),
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    }
);

case!(orphans_are_let_go, async |s| {
    family(s).await;
    s.delete_with(
        "delete",
        &s.cm("owner"),
        &json!({"propagationPolicy": "Orphan"}),
    )
    .await;
    s.eventually("the owner goes", &s.cm("owner"), |r| r.status == 404)
        .await;
    s.eventually("the child is free", &s.cm("child"), |r| {
        r.body["metadata"]["ownerReferences"].is_null()
    })
    .await;
});

case!(the_old_way_to_orphan, async |s| {
    family(s).await;
    s.delete_with("delete", &s.cm("owner"), &json!({"orphanDependents": true}))
        .await;
    s.eventually("the owner goes", &s.cm("owner"), |r| r.status == 404)
        .await;
    s.eventually("the child is free", &s.cm("child"), |r| {
        r.body["metadata"]["ownerReferences"].is_null()
    })
    .await;
});

case!(an_owner_that_never_was_takes_its_dependents, async |s| {
    s.post(
        "child",
        &s.cms(),
        &owned(
            "child",
            "nobody",
            "11111111-2222-3333-4444-555555555555",
            false,
        ),
    )
    .await;
    s.eventually("the child goes", &s.cm("child"), |r| r.status == 404)
        .await;
});

case!(a_second_owner_keeps_a_dependent, async |s| {
    let one = s.post("one", &s.cms(), &cm("one", &json!({}))).await;
    let two = s.post("two", &s.cms(), &cm("two", &json!({}))).await;
    let mut child = owned("child", "one", one.uid(), false);
    child["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap()
        .push(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "two", "uid": two.uid()}));
    s.post("child", &s.cms(), &child).await;
    s.delete("delete one", &s.cm("one")).await;
    s.eventually("one owner is left", &s.cm("child"), |r| {
        r.body["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|o| o.len() == 1)
    })
    .await;
    s.delete("delete two", &s.cm("two")).await;
    s.eventually("the child goes", &s.cm("child"), |r| r.status == 404)
        .await;
});

case!(grandchildren_go_too, async |s| {
    let a = s.post("a", &s.cms(), &cm("a", &json!({}))).await;
    let b = s.post("b", &s.cms(), &owned("b", "a", a.uid(), true)).await;
    s.post("c", &s.cms(), &owned("c", "b", b.uid(), true)).await;
    s.delete_with(
        "delete",
        &s.cm("a"),
        &json!({"propagationPolicy": "Foreground"}),
    )
    .await;
    s.eventually("all are gone", &s.cms(), |r| {
        r.body["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
});

case!(a_namespace_takes_its_contents_along, async |s| {
    let name = format!("{}-x", s.ns());
    let path = format!("/api/v1/namespaces/{name}");
    s.post(
        "create",
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
    )
    .await;
    let mut held = cm("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post("a held object", &format!("{path}/configmaps"), &held)
        .await;
    s.post(
        "a free object",
        &format!("{path}/configmaps"),
        &cm("free", &json!({})),
    )
    .await;
    s.delete("delete", &path).await;
    s.eventually(
        "the free one goes",
        &format!("{path}/configmaps/free"),
        |r| r.status == 404,
    )
    .await;
    s.post(
        "nothing new comes in",
        &format!("{path}/configmaps"),
        &cm("late", &json!({})),
    )
    .await;
    let waiting = |r: &conformance::Reply| {
        r.body["status"]["conditions"]
            .as_array()
            .is_some_and(|all| {
                all.iter()
                    .any(|c| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True")
            })
    };
    let seen = s.raw(http::Method::GET, &path, &[], "").await;
    let seen: Value = serde_json::from_slice(&seen.body).unwrap();
    s.note(
        "terminating",
        json!([seen["status"]["phase"], seen["spec"]["finalizers"]]),
    )
    .await;
    for _ in 0..1000 {
        let seen = s.raw(http::Method::GET, &path, &[], "").await;
        let body = serde_json::from_slice(&seen.body).unwrap();
        if waiting(&conformance::Reply { status: 200, body }) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let seen = s.raw(http::Method::GET, &path, &[], "").await;
    let seen: Value = serde_json::from_slice(&seen.body).unwrap();
    let mut conditions: Vec<Value> = seen["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    conditions.sort_by_key(|c| c["type"].to_string());
    s.note("conditions", json!(conditions)).await;
    s.delete("delete again", &path).await;
    s.merge(
        "let the held one go",
        &format!("{path}/configmaps/held"),
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
    s.eventually("the namespace goes", &path, |r| r.status == 404)
        .await;
});

case!(a_namespace_can_be_finalized_by_hand, async |s| {
    let name = format!("{}-x", s.ns());
    let path = format!("/api/v1/namespaces/{name}");
    s.post(
        "create",
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
    )
    .await;
    s.merge(
        "phase cannot be set",
        &path,
        &json!({"status": {"phase": "Terminating"}}),
    )
    .await;
    s.merge(
        "finalizers cannot be removed",
        &path,
        &json!({"spec": {"finalizers": null}}),
    )
    .await;
    let seen = s.get("get", &path).await;
    s.put("finalize with one more", &format!("{path}/finalize"), &{
        let mut body = seen.body.clone();
        body["spec"]["finalizers"] = json!(["kubernetes", "example.com/mine"]);
        body
    })
    .await;
    s.delete("delete", &path).await;
    s.eventually("kubernetes is done", &path, |r| {
        r.body["spec"]["finalizers"] == json!(["example.com/mine"])
    })
    .await;
    let seen = s.raw(http::Method::GET, &path, &[], "").await;
    let mut seen: Value = serde_json::from_slice(&seen.body).unwrap();
    seen["spec"]["finalizers"] = json!([]);
    let answer = s
        .raw(
            http::Method::PUT,
            &format!("{path}/finalize"),
            &[("content-type", "application/json")],
            &seen.to_string(),
        )
        .await;
    s.note("finalized", json!(answer.status.as_u16())).await;
    s.eventually("gone", &path, |r| r.status == 404).await;
});

case!(some_namespaces_stay, async |s| {
    s.delete("default", "/api/v1/namespaces/default").await;
    s.delete("kube-system", "/api/v1/namespaces/kube-system")
        .await;
    s.delete("all at once", "/api/v1/namespaces").await;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        s.get(name, &format!("/api/v1/namespaces/{name}")).await;
    }
});

case!(a_namespace_has_a_default_account, async |s| {
    s.eventually("account", &s.core("serviceaccounts/default"), |r| {
        r.status == 200
    })
    .await;
    s.delete("delete it", &s.core("serviceaccounts/default"))
        .await;
    s.eventually("it comes back", &s.core("serviceaccounts/default"), |r| {
        r.status == 200
    })
    .await;
});

case!(custom_kinds_have_finalizers_too, async |s| {
    define(
        s,
        &widget_crd(
            s,
            &json!({"type": "object", "properties": {"a": {"type": "string"}}}),
        ),
    )
    .await;
    let mut body = widget(s, "a", &json!({"a": "x"}));
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post("create", &widgets(s, ""), &body).await;
    s.delete("delete", &widgets(s, "/a")).await;
    s.merge(
        "status meanwhile",
        &widgets(s, "/a/status"),
        &json!({"status": {"phase": "Going"}}),
    )
    .await;
    s.merge(
        "spec meanwhile",
        &widgets(s, "/a"),
        &json!({"spec": {"a": "y"}}),
    )
    .await;
    s.merge(
        "let go",
        &widgets(s, "/a"),
        &json!({"metadata": {"finalizers": []}}),
    )
    .await;
    s.get("gone", &widgets(s, "/a")).await;
});
