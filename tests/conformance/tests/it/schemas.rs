//! What a schema does to objects: validates, defaults, prunes.

use conformance::{Session, case};
use serde_json::{Value, json};

use crate::fixtures::{define, widget, widget_crd, widgets};

async fn tries(s: &Session, property: Value, values: &[Value]) {
    define(
        s,
        &widget_crd(s, &json!({"type": "object", "properties": {"v": property}})),
    )
    .await;
    for (index, value) in values.iter().enumerate() {
        let body = widget(s, &format!("w{index}"), &json!({"v": value}));
        s.post(&format!("{value}"), &widgets(s, ""), &body).await;
    }
}

case!(strings, async |s| {
    let schema = json!({"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"});
    tries(
        s,
        schema,
        &[
            json!("abc"),
            json!("a"),
            json!("abcde"),
            json!("AB"),
            json!(1),
            json!(true),
            json!({}),
            json!([]),
            json!("äöü"),
        ],
    )
    .await;
});

case!(numbers, async |s| {
    let schema = json!({"type": "number", "minimum": 1, "maximum": 10, "exclusiveMaximum": true, "multipleOf": 0.5});
    tries(
        s,
        schema,
        &[
            json!(1),
            json!(1.5),
            json!(0.5),
            json!(10),
            json!(1.3),
            json!("1"),
            json!(9.5),
        ],
    )
    .await;
});

case!(integers, async |s| {
    let schema = json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 10});
    tries(
        s,
        schema,
        &[
            json!(2),
            json!(1),
            json!(11),
            json!(1.5),
            json!(3.0),
            json!("2"),
            json!(null),
        ],
    )
    .await;
});

case!(integer_formats, async |s| {
    define(s, &widget_crd(s, &json!({"type": "object", "properties": {
        "i32": {"type": "integer", "format": "int32"}, "i64": {"type": "integer", "format": "int64"}}})))
        .await;
    for (index, spec) in [
        json!({"i32": 2_147_483_647_i64}),
        json!({"i32": 2_147_483_648_i64}),
        json!({"i64": i64::MAX}),
        json!({"i32": -2_147_483_649_i64}),
    ]
    .iter()
    .enumerate()
    {
        s.post(
            &spec.to_string(),
            &widgets(s, ""),
            &widget(s, &format!("w{index}"), spec),
        )
        .await;
    }
});

case!(enums, async |s| {
    tries(
        s,
        json!({"type": "string", "enum": ["One", "Two"]}),
        &[json!("One"), json!("one"), json!(""), json!(1)],
    )
    .await;
});

case!(booleans, async |s| {
    tries(
        s,
        json!({"type": "boolean"}),
        &[json!(true), json!("true"), json!(0), json!(null)],
    )
    .await;
});

case!(arrays, async |s| {
    let schema =
        json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer"}});
    tries(
        s,
        schema,
        &[
            json!([1]),
            json!([]),
            json!([1, 2, 3]),
            json!(["x", 1]),
            json!("x"),
            json!([null]),
            json!({}),
        ],
    )
    .await;
});

case!(sets_and_maps, async |s| {
    define(s, &widget_crd(s, &json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
            "items": {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}}}})))
        .await;
    for (index, spec) in [
        json!({"set": ["x", "y"]}),
        json!({"set": ["x", "y", "x"]}),
        json!({"map": [{"a": "x", "b": 1}, {"a": "x", "b": 2}]}),
        json!({"map": [{"a": "x", "b": 1}, {"a": "x", "b": 1}]}),
        json!({"map": [{"a": "x"}]}),
    ]
    .iter()
    .enumerate()
    {
        s.post(
            &spec.to_string(),
            &widgets(s, ""),
            &widget(s, &format!("w{index}"), spec),
        )
        .await;
    }
});

case!(objects, async |s| {
    let schema = json!({"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "integer"}});
    tries(
        s,
        schema,
        &[
            json!({"a": 1}),
            json!({}),
            json!({"a": 1, "b": 2, "c": 3}),
            json!({"a": "x"}),
            json!([]),
            json!("x"),
        ],
    )
    .await;
});

case!(required_properties, async |s| {
    define(s, &widget_crd(s, &json!({"type": "object", "required": ["a", "b"], "properties": {
        "a": {"type": "string"}, "b": {"type": "object", "required": ["c"], "properties": {"c": {"type": "string"}}}}})))
        .await;
    for (index, spec) in [
        json!({}),
        json!({"a": "x"}),
        json!({"a": "x", "b": {}}),
        json!({"a": "x", "b": {"c": "y"}}),
        json!({"a": null, "b": {"c": "y"}}),
    ]
    .iter()
    .enumerate()
    {
        s.post(
            &spec.to_string(),
            &widgets(s, ""),
            &widget(s, &format!("w{index}"), spec),
        )
        .await;
    }
});

case!(combinations, async |s| {
    define(s, &widget_crd(s, &json!({"type": "object", "properties": {
        "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "any": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "all": {"type": "string", "allOf": [{"minLength": 2}, {"maxLength": 3}]},
        "not": {"type": "string", "not": {"enum": ["bad"]}}}})))
        .await;
    for (index, spec) in [
        json!({"one": {"a": "x"}}),
        json!({"one": {}}),
        json!({"one": {"a": "x", "b": "y"}}),
        json!({"any": {}}),
        json!({"any": {"a": "x", "b": "y"}}),
        json!({"all": "x"}),
        json!({"all": "xxxx"}),
        json!({"all": "xx"}),
        json!({"not": "bad"}),
        json!({"not": "good"}),
    ]
    .iter()
    .enumerate()
    {
        s.post(
            &spec.to_string(),
            &widgets(s, ""),
            &widget(s, &format!("w{index}"), spec),
        )
        .await;
    }
});

case!(formats, async |s| {
    let formats = [
        "date-time",
        "date",
        "duration",
        "byte",
        "ipv4",
        "ipv6",
        "cidr",
        "uri",
        "email",
        "hostname",
        "uuid",
        "mac",
        "unknown-format",
    ];
    let properties: serde_json::Map<String, Value> = formats
        .iter()
        .map(|f| ((*f).to_owned(), json!({"type": "string", "format": f})))
        .collect();
    define(
        s,
        &widget_crd(s, &json!({"type": "object", "properties": properties})),
    )
    .await;
    for (index, (format, value)) in [
        ("date-time", "2024-01-01T00:00:00Z"),
        ("date-time", "nonsense"),
        ("date", "2024-01-01"),
        ("date", "2024-13-01"),
        ("duration", "1h30m"),
        ("duration", "nonsense"),
        ("byte", "YWJj"),
        ("byte", "!"),
        ("ipv4", "10.0.0.1"),
        ("ipv4", "10.0.0"),
        ("ipv6", "fe80::1"),
        ("ipv6", "10.0.0.1"),
        ("cidr", "10.0.0.0/8"),
        ("cidr", "10.0.0.0"),
        ("uri", "http://x.test/"),
        ("uri", "not a uri"),
        ("email", "a@b.test"),
        ("email", "nobody"),
        ("hostname", "a.b"),
        ("hostname", "-"),
        ("uuid", "11111111-2222-3333-4444-555555555555"),
        ("uuid", "x"),
        ("mac", "00:11:22:33:44:55"),
        ("mac", "x"),
        ("unknown-format", "x"),
    ]
    .iter()
    .enumerate()
    {
        s.post(
            &format!("{format} {value}"),
            &widgets(s, ""),
            &widget(s, &format!("w{index}"), &json!({(*format): value})),
        )
        .await;
    }
});

case!(int_or_string, async |s| {
    tries(s, json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        &[json!(1), json!("x"), json!(1.5), json!(true), json!({})])
        .await;
});

case!(nullable, async |s| {
    define(s, &widget_crd(s, &json!({"type": "object", "properties": {
        "plain": {"type": "string"}, "nullable": {"type": "string", "nullable": true},
        "defaulted": {"type": "string", "default": "d"}, "both": {"type": "string", "nullable": true, "default": "d"},
        "required": {"type": "string", "nullable": true}}})))
        .await;
    for (index, spec) in [
        json!({"plain": null}),
        json!({"nullable": null}),
        json!({"defaulted": null}),
        json!({"both": null}),
        json!({}),
    ]
    .iter()
    .enumerate()
    {
        s.post(
            &spec.to_string(),
            &widgets(s, ""),
            &widget(s, &format!("w{index}"), spec),
        )
        .await;
    }
});

case!(defaults_fill_in, async |s| {
    define(s, &widget_crd(s, &json!({"type": "object", "default": {}, "properties": {
        "a": {"type": "string", "default": "x"},
        "b": {"type": "object", "default": {"c": "given"}, "properties": {"c": {"type": "string"}, "d": {"type": "integer", "default": 4}}},
        "e": {"type": "object", "properties": {"f": {"type": "boolean", "default": true}}},
        "g": {"type": "array", "items": {"type": "object", "properties": {"h": {"type": "string", "default": "i"}}}},
        "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}}}})))
        .await;
    let mut none = widget(s, "none", &json!({}));
    none.as_object_mut().unwrap().remove("spec");
    s.post("no spec", &widgets(s, ""), &none).await;
    s.post(
        "empty spec",
        &widgets(s, ""),
        &widget(s, "empty", &json!({})),
    )
    .await;
    s.post(
        "partly",
        &widgets(s, ""),
        &widget(
            s,
            "partly",
            &json!({"a": "y", "b": {}, "e": {}, "g": [{}, {"h": "j"}], "m": {"k": {}}}),
        ),
    )
    .await;
    s.merge(
        "removed comes back",
        &widgets(s, "/partly"),
        &json!({"spec": {"a": null, "b": {"d": null}}}),
    )
    .await;
});

case!(unknown_fields_are_pruned, async |s| {
    define(s, &widget_crd(s, &json!({"type": "object", "properties": {
        "known": {"type": "object", "properties": {"a": {"type": "string"}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "strict": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}})))
        .await;
    let body = widget(
        s,
        "a",
        &json!({
        "unknown": 1, "known": {"a": "x", "b": "y"}, "list": [{"a": "x", "z": 1}],
        "free": {"anything": {"goes": 1}, "strict": {"a": "x", "b": "y"}},
        "embedded": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": {"l": "m"}, "nonsense": 1}, "spec": {"a": "x", "b": 1}, "data": {}}}),
    );
    s.post("create", &widgets(s, ""), &body).await;
    let mut top = widget(s, "b", &json!({}));
    top["unknown"] = json!(1);
    top["metadata"]["unknown"] = json!(1);
    s.post("at the top", &widgets(s, ""), &top).await;
    s.post(
        "embedded without a kind",
        &widgets(s, ""),
        &widget(s, "c", &json!({"embedded": {"metadata": {"name": "x"}}})),
    )
    .await;
    s.post("embedded with bad metadata", &widgets(s, ""), &widget(s, "d", &json!({"embedded": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "Not_Good"}}})))
        .await;
});

case!(faults_are_told_together, async |s| {
    define(s, &widget_crd(s, &json!({"type": "object", "required": ["z"], "properties": {
        "a": {"type": "string", "maxLength": 2}, "b": {"type": "integer", "maximum": 3}, "c": {"type": "string", "enum": ["x"]}, "z": {"type": "string"}}})))
        .await;
    s.post(
        "three faults",
        &widgets(s, ""),
        &widget(s, "w", &json!({"a": "long", "b": 9, "c": "y"})),
    )
    .await;
    s.post(
        "two types",
        &widgets(s, ""),
        &widget(s, "w", &json!({"a": 1, "b": "x", "z": "z"})),
    )
    .await;
    let mut body = widget(s, "Bad_Name", &json!({"a": "long", "z": "z"}));
    body["metadata"]["labels"] = json!({"bad key!": "x"});
    s.post("metadata as well", &widgets(s, ""), &body).await;
});

case!(what_was_wrong_before_may_stay, async |s| {
    let crd = widget_crd(
        s,
        &json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
    );
    define(s, &crd).await;
    s.post(
        "create",
        &widgets(s, ""),
        &widget(s, "w", &json!({"a": "long", "b": "x"})),
    )
    .await;
    let path = format!(
        "{}/widgets.{}",
        crate::fixtures::CRDS,
        crate::fixtures::group(s)
    );
    s.patch("tighten", "json", &path, &json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/maxLength", "value": 2}]))
        .await;
    for _ in 0..500 {
        let body = widget(s, "probe", &json!({"a": "long"})).to_string();
        let answer = s
            .raw(
                http::Method::POST,
                &widgets(s, "?dryRun=All"),
                &[("content-type", "application/json")],
                &body,
            )
            .await;
        if answer.status == 422 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    s.merge(
        "change another field",
        &widgets(s, "/w"),
        &json!({"spec": {"b": "y"}}),
    )
    .await;
    s.merge(
        "change this one",
        &widgets(s, "/w"),
        &json!({"spec": {"a": "longer"}}),
    )
    .await;
    s.merge("mend it", &widgets(s, "/w"), &json!({"spec": {"a": "ok"}}))
        .await;
    s.post(
        "a new one",
        &widgets(s, ""),
        &widget(s, "v", &json!({"a": "long"})),
    )
    .await;
});
