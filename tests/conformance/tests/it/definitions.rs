//! CustomResourceDefinitions: what they must say, and what the server says back.

use conformance::case;
use serde_json::{Value, json};

use crate::fixtures::{CRDS, define, group, served, widget, widget_crd, widgets};

fn any() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

case!(a_definition_becomes_a_kind, async |s| {
    let mut crd = widget_crd(s, &any());
    crd["spec"]["names"]["shortNames"] = json!([format!("w{}", s.ns())]);
    crd["spec"]["names"]["categories"] = json!(["all"]);
    s.post("define", CRDS, &crd).await;
    let path = format!("{CRDS}/widgets.{}", group(s));
    s.eventually("established", &path, |r| {
        r.body["status"]["conditions"]
            .as_array()
            .is_some_and(|all| {
                all.iter()
                    .any(|c| c["type"] == "Established" && c["status"] == "True")
            })
            && r.body["status"]["storedVersions"] == json!(["v1"])
    })
    .await;
    served(s, &format!("/apis/{}/v1/widgets", group(s)), true).await;
    s.eventually("its group", &format!("/apis/{}", group(s)), |r| {
        r.status == 200
    })
    .await;
    s.eventually("its version", &format!("/apis/{}/v1", group(s)), |r| {
        r.status == 200
    })
    .await;
    s.get("empty list", &widgets(s, "")).await;
    s.post("create", &widgets(s, ""), &widget(s, "a", &json!({"x": 1})))
        .await;
    s.get("get", &widgets(s, "/a")).await;
    s.get("list", &widgets(s, "")).await;
    s.delete("delete", &widgets(s, "/a")).await;
});

case!(a_definition_takes_its_objects_along, async |s| {
    define(s, &widget_crd(s, &any())).await;
    s.post("create", &widgets(s, ""), &widget(s, "a", &json!({})))
        .await;
    let path = format!("{CRDS}/widgets.{}", group(s));
    s.delete("delete", &path).await;
    s.eventually("gone", &path, |r| r.status == 404).await;
    served(s, &format!("/apis/{}/v1/widgets", group(s)), false).await;
    s.get("its objects", &widgets(s, "/a")).await;
    define(s, &widget_crd(s, &any())).await;
    s.get("again empty", &widgets(s, "")).await;
});

case!(a_definition_is_checked, async |s| {
    let good = widget_crd(s, &any());
    let refuse = async |what: &str, change: &dyn Fn(&mut Value)| {
        let mut crd = good.clone();
        change(&mut crd);
        s.post(what, CRDS, &crd).await;
    };
    refuse("another name", &|c| {
        c["metadata"]["name"] = json!("other.example.com");
    })
    .await;
    refuse("no group", &|c| c["spec"]["group"] = json!("")).await;
    refuse("no dot in the group", &|c| {
        c["spec"]["group"] = json!("plain");
        c["metadata"]["name"] = json!("widgets.plain");
    })
    .await;
    refuse("no scope", &|c| c["spec"]["scope"] = json!("")).await;
    refuse("unknown scope", &|c| c["spec"]["scope"] = json!("Universe")).await;
    refuse("no versions", &|c| c["spec"]["versions"] = json!([])).await;
    refuse("no storage version", &|c| {
        c["spec"]["versions"][0]["storage"] = json!(false);
    })
    .await;
    refuse("no schema", &|c| {
        c["spec"]["versions"][0]["schema"] = Value::Null;
    })
    .await;
    refuse("no kind", &|c| c["spec"]["names"]["kind"] = json!("")).await;
    refuse("bad plural", &|c| {
        c["spec"]["names"]["plural"] = json!("Not_Good");
    })
    .await;
    refuse("bad version", &|c| {
        c["spec"]["versions"][0]["name"] = json!("V1!");
    })
    .await;
    refuse("twice a version", &|c| {
        let again = c["spec"]["versions"][0].clone();
        c["spec"]["versions"].as_array_mut().unwrap().push(again);
    })
    .await;
    refuse("preserveUnknownFields", &|c| {
        c["spec"]["preserveUnknownFields"] = json!(true);
    })
    .await;
    refuse("conversion without a webhook", &|c| {
        c["spec"]["conversion"] = json!({"strategy": "Webhook"});
    })
    .await;
    refuse("unknown conversion", &|c| {
        c["spec"]["conversion"] = json!({"strategy": "Magic"});
    })
    .await;
    refuse("bad column", &|c| {
        c["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "", "type": "nonsense", "jsonPath": "x"}]);
    })
    .await;
    refuse("bad scale", &|c| {
        c["spec"]["versions"][0]["subresources"]["scale"] =
            json!({"specReplicasPath": "x", "statusReplicasPath": ".status.x"});
    })
    .await;
    refuse("protected group", &|c| {
        c["spec"]["group"] = json!("things.k8s.io");
        c["metadata"]["name"] = json!("widgets.things.k8s.io");
    })
    .await;
});

case!(a_schema_must_be_structural, async |s| {
    let refuse = async |what: &str, spec: Value| {
        s.post(what, CRDS, &widget_crd(s, &spec)).await;
    };
    refuse("no type", json!({"properties": {"a": {"type": "string"}}})).await;
    refuse(
        "no type below",
        json!({"type": "object", "properties": {"a": {}}}),
    )
    .await;
    refuse("unknown type", json!({"type": "thing"})).await;
    refuse("array without items", json!({"type": "array"})).await;
    refuse(
        "several items",
        json!({"type": "array", "items": [{"type": "string"}]}),
    )
    .await;
    refuse("both properties", json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}))
        .await;
    refuse(
        "closed",
        json!({"type": "object", "additionalProperties": false}),
    )
    .await;
    refuse("a reference", json!({"$ref": "#/x"})).await;
    refuse(
        "type inside anyOf",
        json!({"type": "object", "anyOf": [{"type": "string"}]}),
    )
    .await;
    refuse(
        "property only inside anyOf",
        json!({"type": "object", "anyOf": [{"properties": {"a": {}}}]}),
    )
    .await;
    refuse(
        "bad pattern",
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
    )
    .await;
    refuse(
        "bad default",
        json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
    )
    .await;
    refuse(
        "unknown in default",
        json!({"type": "object", "properties": {"a": {"type": "object", "default": {"z": 1}}}}),
    )
    .await;
    refuse("list map without keys", json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map",
        "items": {"type": "object", "properties": {"name": {"type": "string"}}}}}}))
        .await;
    refuse("list map with an unknown key", json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "properties": {"other": {"type": "string"}}}}}}))
        .await;
    refuse("list map with an optional key", json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "properties": {"name": {"type": "string"}}}}}}))
        .await;
    refuse("set of objects", json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "set",
        "items": {"type": "object", "properties": {"name": {"type": "string"}}}}}}))
        .await;
    refuse("unknown list type", json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "heap",
        "items": {"type": "string"}}}}))
        .await;
    refuse("int-or-string with a type", json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-int-or-string": true}}}))
        .await;
    refuse(
        "not preserving",
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
    )
    .await;
    refuse("unique items", json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true, "items": {"type": "string"}}}}))
        .await;
});

case!(schemas_at_the_top_are_limited, async |s| {
    let with = |schema: Value| {
        let mut crd = widget_crd(s, &any());
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
        crd
    };
    s.post("not an object", CRDS, &with(json!({"type": "string"})))
        .await;
    s.post(
        "metadata with more than names",
        CRDS,
        &with(json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}})),
    )
    .await;
    s.post(
        "metadata of a wrong type",
        CRDS,
        &with(json!({"type": "object", "properties": {"metadata": {"type": "string"}}})),
    )
    .await;
});

case!(names_can_be_taken, async |s| {
    define(s, &widget_crd(s, &any())).await;
    let mut second = widget_crd(s, &any());
    second["metadata"]["name"] = json!(format!("gadgets.{}", group(s)));
    second["spec"]["names"] = json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"});
    s.post("the kind is taken", CRDS, &second).await;
    let path = format!("{CRDS}/gadgets.{}", group(s));
    s.eventually("not accepted", &path, |r| {
        r.body["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.len() == 2)
    })
    .await;
    s.get("not served", &format!("/apis/{}/v1/gadgets", group(s)))
        .await;
});

case!(what_cannot_change_in_a_definition, async |s| {
    let crd = widget_crd(s, &any());
    define(s, &crd).await;
    let path = format!("{CRDS}/widgets.{}", group(s));
    s.merge("group", &path, &json!({"spec": {"group": "other.test"}}))
        .await;
    s.merge("scope", &path, &json!({"spec": {"scope": "Cluster"}}))
        .await;
    s.merge(
        "plural",
        &path,
        &json!({"spec": {"names": {"plural": "gadgets"}}}),
    )
    .await;
    s.merge(
        "kind",
        &path,
        &json!({"spec": {"names": {"kind": "Gadget"}}}),
    )
    .await;
    s.merge(
        "drop the stored version",
        &path,
        &json!({"spec": {"versions": [{"name": "v2", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}}]}}),
    )
    .await;
});

case!(definitions_get_defaults, async |s| {
    let mut crd = widget_crd(s, &any());
    crd["spec"]["names"] = json!({"plural": "widgets", "kind": "Widget"});
    s.post("defaults", CRDS, &crd).await;
    let path = format!("{CRDS}/widgets.{}", group(s));
    s.eventually("established", &path, |r| {
        let conditions = r.body["status"]["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter()
                .any(|c| c["type"] == "Established" && c["status"] == "True")
        })
    })
    .await;
});

case!(cluster_wide_kinds, async |s| {
    let mut crd = widget_crd(s, &any());
    crd["spec"]["scope"] = json!("Cluster");
    define(s, &crd).await;
    let path = format!("/apis/{}/v1/widgets", group(s));
    s.post("create", &path, &widget(s, "a", &json!({}))).await;
    s.get("get", &format!("{path}/a")).await;
    s.get("as if namespaced", &widgets(s, "/a")).await;
    let mut body = widget(s, "b", &json!({}));
    body["metadata"]["namespace"] = json!(s.ns());
    s.post("with a namespace", &path, &body).await;
});

case!(tables_follow_the_columns, async |s| {
    let mut crd = widget_crd(s, &any());
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "how large"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
        {"name": "First", "type": "string", "jsonPath": ".spec.list[0].name", "priority": 1},
        {"name": "All", "type": "string", "jsonPath": ".spec.list[*].name"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag"},
        {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"}]);
    define(s, &crd).await;
    s.post("full", &widgets(s, ""), &widget(s, "a", &json!({"size": 3, "when": "nonsense", "list": [{"name": "x"}, {"name": "y"}], "flag": true, "ratio": 1.5})))
        .await;
    s.merge("status", &widgets(s, "/a/status"), &json!({"status": {"phase": "Up", "conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}}))
        .await;
    s.post(
        "empty",
        &widgets(s, ""),
        &widget(s, "b", &json!({"size": "three"})),
    )
    .await;
    s.table("list", &widgets(s, "")).await;
    s.table("one", &widgets(s, "/a")).await;
});

case!(without_columns_a_table_has_the_age, async |s| {
    define(s, &widget_crd(s, &any())).await;
    s.post("create", &widgets(s, ""), &widget(s, "a", &json!({})))
        .await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let answer = s
        .raw(
            http::Method::GET,
            &widgets(s, ""),
            &[("accept", accept)],
            "",
        )
        .await;
    let table: Value = serde_json::from_slice(&answer.body).unwrap();
    s.note("columns", table["columnDefinitions"].clone()).await;
    s.note("name", table["rows"][0]["cells"][0].clone()).await;
});

case!(selectable_fields_select, async |s| {
    let mut crd = widget_crd(
        s,
        &json!({"type": "object", "properties": {"color": {"type": "string"}, "size": {"type": "integer"}, "on": {"type": "boolean"}}}),
    );
    crd["spec"]["versions"][0]["selectableFields"] =
        json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}, {"jsonPath": ".spec.on"}]);
    define(s, &crd).await;
    s.post(
        "red",
        &widgets(s, ""),
        &widget(s, "a", &json!({"color": "red", "size": 1, "on": true})),
    )
    .await;
    s.post(
        "blue",
        &widgets(s, ""),
        &widget(s, "b", &json!({"color": "blue", "size": 2})),
    )
    .await;
    for selector in [
        "spec.color=red",
        "spec.color!=red",
        "spec.size=2",
        "spec.on=true",
        "spec.on=",
        "spec.color=red,metadata.name=b",
        "spec.other=x",
    ] {
        s.get(
            selector,
            &widgets(
                s,
                &format!("?fieldSelector={}", selector.replace('=', "%3D")),
            ),
        )
        .await;
    }
    let mut bad = widget_crd(s, &any());
    bad["metadata"]["name"] = json!(format!("gadgets.{}", group(s)));
    bad["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    bad["spec"]["versions"][0]["selectableFields"] =
        json!([{"jsonPath": ".spec.nothing"}, {"jsonPath": "nonsense"}]);
    s.post("bad fields", CRDS, &bad).await;
});

case!(status_is_a_resource_of_its_own, async |s| {
    define(
        s,
        &widget_crd(
            s,
            &json!({"type": "object", "properties": {"size": {"type": "integer"}}}),
        ),
    )
    .await;
    let mut body = widget(s, "a", &json!({"size": 1}));
    body["status"] = json!({"phase": "Made"});
    s.post("status is dropped on create", &widgets(s, ""), &body)
        .await;
    s.merge(
        "status is dropped on update",
        &widgets(s, "/a"),
        &json!({"status": {"phase": "Up"}}),
    )
    .await;
    s.merge("status", &widgets(s, "/a/status"), &json!({"status": {"phase": "Up"}, "spec": {"size": 9}, "metadata": {"labels": {"x": "y"}}}))
        .await;
    s.get("status read", &widgets(s, "/a/status")).await;
    let mut seen = s.get("seen", &widgets(s, "/a")).await.body;
    seen["status"] = json!({"phase": "Down"});
    seen["spec"]["size"] = json!(7);
    s.put("put status", &widgets(s, "/a/status"), &seen).await;
    s.merge("spec", &widgets(s, "/a"), &json!({"spec": {"size": 5}}))
        .await;
    s.get("scale is not there", &widgets(s, "/a/scale")).await;
});

case!(without_the_subresource_status_is_like_the_rest, async |s| {
    let mut crd = widget_crd(s, &any());
    crd["spec"]["versions"][0]["subresources"] = Value::Null;
    define(s, &crd).await;
    let mut body = widget(s, "a", &json!({"size": 1}));
    body["status"] = json!({"phase": "Made"});
    s.post("create", &widgets(s, ""), &body).await;
    s.get("status", &widgets(s, "/a/status")).await;
    s.merge(
        "change",
        &widgets(s, "/a"),
        &json!({"status": {"phase": "Up"}}),
    )
    .await;
});

case!(scale_maps_replicas, async |s| {
    let mut crd = widget_crd(
        s,
        &json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "x": {"type": "string"}}}),
    );
    crd["spec"]["versions"][0]["subresources"] = json!({"status": {}, "scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}});
    define(s, &crd).await;
    s.post(
        "create",
        &widgets(s, ""),
        &widget(s, "a", &json!({"replicas": 2})),
    )
    .await;
    s.get("scale", &widgets(s, "/a/scale")).await;
    s.merge(
        "status",
        &widgets(s, "/a/status"),
        &json!({"status": {"replicas": 1, "selector": "app=a"}}),
    )
    .await;
    s.get("scale with status", &widgets(s, "/a/scale")).await;
    s.merge(
        "patch scale",
        &widgets(s, "/a/scale"),
        &json!({"spec": {"replicas": 5}}),
    )
    .await;
    let scale = s.get("scale again", &widgets(s, "/a/scale")).await;
    let mut body = scale.body.clone();
    body["spec"]["replicas"] = json!(7);
    s.put("put scale", &widgets(s, "/a/scale"), &body).await;
    s.put("stale scale", &widgets(s, "/a/scale"), &body).await;
    body["metadata"]["resourceVersion"] = json!("");
    body["spec"]["replicas"] = json!(-1);
    s.put("negative", &widgets(s, "/a/scale"), &body).await;
    s.get("effect", &widgets(s, "/a")).await;
    s.post(
        "without replicas",
        &widgets(s, ""),
        &widget(s, "b", &json!({"x": "y"})),
    )
    .await;
    s.get("scale without replicas", &widgets(s, "/b/scale"))
        .await;
    s.apply(
        "applied scale",
        &widgets(s, "/b/scale"),
        "scaler",
        &json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "b"}, "spec": {"replicas": 3}}),
    )
    .await;
});
