//! Watches: events, bookmarks, initial events, and their ends.

use conformance::case;
use serde_json::json;

use crate::fixtures::{cm, labelled};

case!(a_watch_tells_what_happens, async |s| {
    s.post("before", &s.cms(), &cm("before", &json!({}))).await;
    let list = s.get("list", &s.cms()).await;
    let mut watch = s
        .watch(&format!(
            "{}?watch=1&resourceVersion={}",
            s.cms(),
            list.version()
        ))
        .await;
    watch.opened("open").await;
    s.post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    s.merge("change", &s.cm("a"), &json!({"data": {"x": "2"}}))
        .await;
    s.delete("delete", &s.cm("a")).await;
    watch.expect("events", 3).await;
});

case!(a_watch_from_nowhere_begins_with_what_is_there, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    s.post("create", &s.cms(), &cm("b", &json!({}))).await;
    let mut watch = s
        .watch(&format!("{}?watch=1&timeoutSeconds=1", s.cms()))
        .await;
    watch.until_end("no version").await;
    let mut watch = s
        .watch(&format!(
            "{}?watch=1&timeoutSeconds=1&resourceVersion=0",
            s.cms()
        ))
        .await;
    watch.until_end("version 0").await;
});

case!(a_watch_honours_selectors, async |s| {
    let list = s.get("list", &s.cms()).await;
    let query = format!(
        "watch=1&resourceVersion={}&labelSelector=tier%3Dx",
        list.version()
    );
    let mut watch = s.watch(&format!("{}?{query}", s.cms())).await;
    s.post("outside", &s.cms(), &labelled("a", &json!({"tier": "y"})))
        .await;
    s.post("inside", &s.cms(), &labelled("b", &json!({"tier": "x"})))
        .await;
    s.merge(
        "moves in",
        &s.cm("a"),
        &json!({"metadata": {"labels": {"tier": "x"}}}),
    )
    .await;
    s.merge(
        "moves out",
        &s.cm("b"),
        &json!({"metadata": {"labels": {"tier": "z"}}}),
    )
    .await;
    s.merge(
        "stays out",
        &s.cm("b"),
        &json!({"metadata": {"labels": {"tier": "y"}}}),
    )
    .await;
    s.delete("deleted inside", &s.cm("a")).await;
    watch.expect("events", 4).await;
});

case!(a_watch_on_one_name, async |s| {
    let list = s.get("list", &s.cms()).await;
    let query = format!(
        "watch=1&resourceVersion={}&fieldSelector=metadata.name%3Da",
        list.version()
    );
    let mut watch = s.watch(&format!("{}?{query}", s.cms())).await;
    s.post("another", &s.cms(), &cm("b", &json!({}))).await;
    s.post("it", &s.cms(), &cm("a", &json!({}))).await;
    watch.expect("events", 1).await;
    let mut watch = s
        .watch(&format!(
            "{}?watch=1&resourceVersion={}&timeoutSeconds=1",
            s.cm("a"),
            list.version()
        ))
        .await;
    watch.until_end("through the object's path").await;
});

case!(the_old_watch_path_works, async |s| {
    let list = s.get("list", &s.cms()).await;
    s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    let path = format!(
        "/api/v1/watch/namespaces/{}/configmaps?resourceVersion={}&timeoutSeconds=1",
        s.ns(),
        list.version()
    );
    let mut watch = s.watch(&path).await;
    watch.until_end("events").await;
});

case!(initial_events_end_with_a_bookmark, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    s.post("create", &s.cms(), &cm("b", &json!({}))).await;
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = s.watch(&format!("{}?{query}", s.cms())).await;
    watch.until("initial events", "BOOKMARK").await;
    s.post("create", &s.cms(), &cm("c", &json!({}))).await;
    watch.expect("then live", 1).await;
    let mut watch = s
        .watch(&format!("{}?{query}&labelSelector=a%3Db", s.cms()))
        .await;
    watch.until("none initially", "BOOKMARK").await;
});

case!(initial_events_need_their_companions, async |s| {
    s.get(
        "no match",
        &format!(
            "{}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true",
            s.cms()
        ),
    )
    .await;
    s.get(
        "exact match",
        &format!(
            "{}?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
            s.cms()
        ),
    )
    .await;
    s.get(
        "not a watch",
        &format!(
            "{}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            s.cms()
        ),
    )
    .await;
    s.get(
        "match without initial events",
        &format!("{}?watch=1&resourceVersionMatch=NotOlderThan", s.cms()),
    )
    .await;
});

case!(a_watch_from_long_ago_is_gone, async |s| {
    let watch = s
        .watch(&format!("{}?watch=1&resourceVersion=1", s.cms()))
        .await;
    watch.opened("open").await;
    // Whether it is gone depends on compaction; that it answers at all is what both must do.
    s.get(
        "nonsense",
        &format!("{}?watch=1&resourceVersion=nonsense", s.cms()),
    )
    .await;
    s.get(
        "negative",
        &format!("{}?watch=1&resourceVersion=-1", s.cms()),
    )
    .await;
});

case!(a_watch_from_the_future_waits_or_is_refused, async |s| {
    let mut watch = s
        .watch(&format!(
            "{}?watch=1&timeoutSeconds=1&resourceVersion=999999999999",
            s.cms()
        ))
        .await;
    watch.opened("open").await;
    watch.until_end("events").await;
});

case!(a_timed_watch_ends_quietly, async |s| {
    let list = s.get("list", &s.cms()).await;
    let mut watch = s
        .watch(&format!(
            "{}?watch=1&timeoutSeconds=1&resourceVersion={}",
            s.cms(),
            list.version()
        ))
        .await;
    watch.until_end("events").await;
});

case!(a_watch_of_tables, async |s| {
    let list = s.get("list", &s.cms()).await;
    s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    let path = format!(
        "{}?watch=1&timeoutSeconds=1&resourceVersion={}",
        s.cms(),
        list.version()
    );
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    s.send(
        "events",
        http::Method::GET,
        &path,
        &[("accept", accept)],
        "",
    )
    .await;
});

case!(a_watch_of_metadata, async |s| {
    let list = s.get("list", &s.cms()).await;
    s.post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    let path = format!(
        "{}?watch=1&timeoutSeconds=1&resourceVersion={}",
        s.cms(),
        list.version()
    );
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    s.send(
        "events",
        http::Method::GET,
        &path,
        &[("accept", accept)],
        "",
    )
    .await;
});
