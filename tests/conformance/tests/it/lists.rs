//! Lists: selectors, pages, versions, other shapes.

use conformance::{Session, case};
use http::Method;
use serde_json::json;

use crate::fixtures::{cm, encode, labelled, pod};

async fn three(s: &Session) {
    for (name, labels) in [
        ("a", json!({"tier": "x", "env": "one"})),
        ("b", json!({"tier": "y"})),
        ("c", json!({"tier": "x", "env": "two"})),
    ] {
        s.post("create", &s.cms(), &labelled(name, &labels)).await;
    }
}

case!(label_selectors_select, async |s| {
    three(s).await;
    for selector in [
        "tier=x",
        "tier==x",
        "tier!=x",
        "tier in (x,y)",
        "tier notin (x)",
        "env",
        "!env",
        "tier=x,env=one",
        "nothing=1",
        "env in (one), tier notin (y)",
        "",
    ] {
        let encoded = encode(selector);
        s.get(selector, &format!("{}?labelSelector={encoded}", s.cms()))
            .await;
    }
});

case!(bad_label_selectors_are_refused, async |s| {
    for selector in [
        "tier in x",
        "=x",
        "tier=not a value",
        "a b",
        "tier in ()",
        "tier>x",
        "!tier=x",
        ",",
    ] {
        let encoded = encode(selector);
        s.get(selector, &format!("{}?labelSelector={encoded}", s.cms()))
            .await;
    }
});

case!(field_selectors_select, async |s| {
    three(s).await;
    let ns = s.ns().to_owned();
    for selector in [
        "metadata.name=a",
        "metadata.name!=a",
        "metadata.name==b",
        &format!("metadata.namespace={ns}"),
        "metadata.name=a,metadata.name=b",
    ] {
        let encoded = encode(selector);
        s.get(
            &selector.replace(&ns, "NS"),
            &format!("{}?fieldSelector={encoded}", s.cms()),
        )
        .await;
    }
});

case!(bad_field_selectors_are_refused, async |s| {
    for selector in [
        "data.x=1",
        "metadata.labels=x",
        "nonsense",
        "spec.nodeName=x",
    ] {
        let encoded = encode(selector);
        s.get(selector, &format!("{}?fieldSelector={encoded}", s.cms()))
            .await;
    }
});

case!(kinds_have_their_own_fields_to_select, async |s| {
    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = json!("node-1");
    s.post("bound", &s.core("pods"), &bound).await;
    s.post("free", &s.core("pods"), &pod("free")).await;
    for selector in [
        "spec.nodeName=node-1",
        "spec.nodeName=",
        "status.phase=Pending",
        "status.phase!=Pending",
        "spec.restartPolicy=Always",
    ] {
        let encoded = encode(selector);
        let list = s
            .raw(
                Method::GET,
                &format!("{}?fieldSelector={encoded}", s.core("pods")),
                &[],
                "",
            )
            .await;
        let list: serde_json::Value = serde_json::from_slice(&list.body).unwrap();
        let names: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i["metadata"]["name"].clone())
            .collect();
        s.note(selector, json!(names)).await;
    }
    s.post("secret", &s.core("secrets"), &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "example.com/x"}))
        .await;
    s.get(
        "secrets by type",
        &format!("{}?fieldSelector=type%3Dexample.com/x", s.core("secrets")),
    )
    .await;
    s.get(
        "events by object",
        &format!(
            "{}?fieldSelector=involvedObject.name%3Dx,reason%3Dy",
            s.core("events")
        ),
    )
    .await;
    s.get(
        "namespaces by phase",
        &format!(
            "/api/v1/namespaces?fieldSelector=status.phase%3DActive,metadata.name%3D{}",
            s.ns()
        ),
    )
    .await;
});

case!(pages_follow_each_other, async |s| {
    for name in ["a", "b", "c", "d", "e"] {
        s.post("create", &s.cms(), &cm(name, &json!({}))).await;
    }
    let first = s.get("first page", &format!("{}?limit=2", s.cms())).await;
    let token = first.body["metadata"]["continue"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    s.post("created between", &s.cms(), &cm("bb", &json!({})))
        .await;
    let second = s
        .get(
            "second page",
            &format!("{}?limit=2&continue={token}", s.cms()),
        )
        .await;
    s.note(
        "one version for all pages",
        json!(first.version() == second.version()),
    )
    .await;
    let token = second.body["metadata"]["continue"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    s.get(
        "last page",
        &format!("{}?limit=2&continue={token}", s.cms()),
    )
    .await;
    s.get("more than there is", &format!("{}?limit=50", s.cms()))
        .await;
    s.get("exactly what is there", &format!("{}?limit=6", s.cms()))
        .await;
});

case!(pages_with_a_selector_do_not_count_the_rest, async |s| {
    three(s).await;
    let first = s
        .get(
            "first page",
            &format!("{}?limit=1&labelSelector=tier%3Dx", s.cms()),
        )
        .await;
    let token = first.body["metadata"]["continue"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    s.get(
        "second page",
        &format!(
            "{}?limit=1&labelSelector=tier%3Dx&continue={token}",
            s.cms()
        ),
    )
    .await;
});

case!(bad_pages_are_refused, async |s| {
    s.get(
        "bad token",
        &format!("{}?limit=2&continue=nonsense", s.cms()),
    )
    .await;
    s.get("bad limit", &format!("{}?limit=nonsense", s.cms()))
        .await;
    s.get("negative limit", &format!("{}?limit=-1", s.cms()))
        .await;
    s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    s.post("create", &s.cms(), &cm("b", &json!({}))).await;
    let page = s.get("page", &format!("{}?limit=1", s.cms())).await;
    let token = page.body["metadata"]["continue"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    s.get(
        "token with a version",
        &format!(
            "{}?limit=2&continue={token}&resourceVersion={}",
            s.cms(),
            page.version()
        ),
    )
    .await;
    s.get(
        "token with version 0",
        &format!("{}?limit=2&continue={token}&resourceVersion=0", s.cms()),
    )
    .await;
});

case!(a_list_can_be_of_a_version, async |s| {
    let first = s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    s.post("create", &s.cms(), &cm("b", &json!({}))).await;
    let at = first.version().to_owned();
    s.get(
        "not older than 0",
        &format!(
            "{}?resourceVersion=0&resourceVersionMatch=NotOlderThan",
            s.cms()
        ),
    )
    .await;
    s.get(
        "not older than the first",
        &format!(
            "{}?resourceVersion={at}&resourceVersionMatch=NotOlderThan",
            s.cms()
        ),
    )
    .await;
    let exact = s
        .get(
            "exactly the first",
            &format!(
                "{}?resourceVersion={at}&resourceVersionMatch=Exact",
                s.cms()
            ),
        )
        .await;
    s.note("its version", json!(exact.version() == at)).await;
    s.get(
        "exactly 0",
        &format!("{}?resourceVersion=0&resourceVersionMatch=Exact", s.cms()),
    )
    .await;
    s.get(
        "match without a version",
        &format!("{}?resourceVersionMatch=Exact", s.cms()),
    )
    .await;
    s.get(
        "unknown match",
        &format!(
            "{}?resourceVersion={at}&resourceVersionMatch=Sideways",
            s.cms()
        ),
    )
    .await;
    s.get("nonsense", &format!("{}?resourceVersion=nonsense", s.cms()))
        .await;
    s.get(
        "limit and exact",
        &format!(
            "{}?resourceVersion={at}&resourceVersionMatch=Exact&limit=1",
            s.cms()
        ),
    )
    .await;
    s.get(
        "limit and version alone",
        &format!("{}?resourceVersion={at}&limit=1", s.cms()),
    )
    .await;
    s.get("an object of version 0", &s.cm("a?resourceVersion=0"))
        .await;
    s.get(
        "an object not older",
        &s.cm(&format!("a?resourceVersion={at}")),
    )
    .await;
});

case!(the_future_is_too_large, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    s.get("list", &format!("{}?resourceVersion=999999999999", s.cms()))
        .await;
    s.get(
        "exactly",
        &format!(
            "{}?resourceVersion=999999999999&resourceVersionMatch=Exact",
            s.cms()
        ),
    )
    .await;
    s.get("object", &s.cm("a?resourceVersion=999999999999"))
        .await;
});

case!(only_metadata_can_be_asked_for, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    let one = (
        "accept",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    );
    let list = (
        "accept",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    );
    s.send("object", Method::GET, &s.cm("a"), &[one], "").await;
    s.send("list", Method::GET, &s.cms(), &[list], "").await;
    s.send("list as object", Method::GET, &s.cms(), &[one], "")
        .await;
    s.send(
        "of a created one",
        Method::POST,
        &s.cms(),
        &[one, ("content-type", "application/json")],
        &cm("b", &json!({})).to_string(),
    )
    .await;
    s.send(
        "unknown shape",
        Method::GET,
        &s.cms(),
        &[("accept", "application/json;as=Nonsense;v=v1;g=meta.k8s.io")],
        "",
    )
    .await;
});

case!(a_list_over_all_namespaces, async |s| {
    s.post(
        "create",
        &s.cms(),
        &labelled(s.ns(), &json!({"only": s.ns()})),
    )
    .await;
    s.get(
        "list",
        &format!("/api/v1/configmaps?labelSelector=only%3D{}", s.ns()),
    )
    .await;
    s.get(
        "of one namespace",
        &format!(
            "/api/v1/configmaps?fieldSelector=metadata.namespace%3D{},metadata.name%3D{}",
            s.ns(),
            s.ns()
        ),
    )
    .await;
    s.post(
        "create without a namespace",
        "/api/v1/configmaps",
        &cm("a", &json!({})),
    )
    .await;
    s.delete("delete everywhere", "/api/v1/configmaps").await;
});
