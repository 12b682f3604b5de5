//! Requests that nobody thought of: made from seeds, sent to both servers, compared in full.
//!
//! A life is a few requests about one object: it is created, replaced, patched in every way and applied
//! by two managers, each time with values that fit, that are odd, or that are of the wrong type. The
//! seeds are fixed, so a life is the same each time; `RANDOM_LIVES=100..400` tries others.

use conformance::{Session, case};
use http::Method;
use serde_json::{Value, json};

use crate::fixtures::{define, deployment, widget, widget_crd, widgets};

/// How many lives each kind has in the suite.
const LIVES: u64 = 40;
const REQUESTS: usize = 8;

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound as u64).expect("a small number")
    }

    fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// A kind whose objects live: where, how one begins, and what may be written where.
struct Kind {
    path: String,
    base: Value,
    strategic: bool,
    status: bool,
    /// Paths with the values to try there.
    places: Vec<(&'static str, Vec<Value>)>,
}

/// The values of a JSON list.
fn values(list: Value) -> Vec<Value> {
    match list {
        Value::Array(values) => values,
        other => vec![other],
    }
}

fn lives() -> std::ops::Range<u64> {
    let asked = std::env::var("RANDOM_LIVES").ok();
    let asked = asked.as_deref().and_then(|text| text.split_once(".."));
    match asked {
        Some((from, to)) => {
            from.parse().expect("a number")..to.parse().expect("a number after the dots")
        }
        None => 0..LIVES,
    }
}

async fn live(s: &Session, kind: &Kind) {
    for seed in lives() {
        let mut dice = Dice(seed);
        let name = format!("life-{seed}");
        for request in 0..REQUESTS {
            step(s, kind, &mut dice, &name, (seed, request)).await;
        }
    }
}

/// The base of a kind with one to three changes.
fn body(kind: &Kind, dice: &mut Dice, name: &str) -> Value {
    let mut body = kind.base.clone();
    body["metadata"]["name"] = json!(name);
    for _ in 0..=dice.below(3) {
        let (path, choices) = dice.pick(&kind.places);
        put(&mut body, path, dice.pick(choices).clone());
    }
    body
}

fn put(body: &mut Value, path: &str, value: Value) {
    let mut at = body;
    for part in path.split('/') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = value;
}

async fn step(
    s: &Session,
    kind: &Kind,
    dice: &mut Dice,
    name: &str,
    (seed, request): (u64, usize),
) {
    let one = format!("{}/{name}", kind.path);
    let dry = if dice.below(6) == 0 {
        "&dryRun=All"
    } else {
        ""
    };
    let strictness = dice.pick(&["", "&fieldValidation=Strict", "&fieldValidation=Ignore"]);
    let query = format!("?x=y{dry}{strictness}");
    let (place, choices) = dice.pick(&kind.places);
    let chosen = dice.pick(choices).clone();
    let mut change = json!({});
    put(&mut change, place, chosen.clone());
    let (method, path, media, body) = match (request, dice.below(7)) {
        (0, _) => (
            Method::POST,
            format!("{}{query}", kind.path),
            "application/json",
            body(kind, dice, name),
        ),
        (_, 0) => (
            Method::PUT,
            format!("{one}{query}"),
            "application/json",
            body(kind, dice, name),
        ),
        (_, 1) => (
            Method::PATCH,
            format!("{one}{query}"),
            "application/json-patch+json",
            json!([{"op": dice.pick(&["add", "replace", "remove", "test"]),
                "path": format!("/{place}"), "value": chosen}]),
        ),
        (_, 2) if kind.strategic => (
            Method::PATCH,
            format!("{one}{query}"),
            "application/strategic-merge-patch+json",
            change,
        ),
        (_, 3 | 4) => {
            let manager = dice.pick(&["alice", "bob"]);
            let force = if dice.below(2) == 0 {
                "&force=true"
            } else {
                ""
            };
            if !kind.strategic && chosen.is_null() {
                // What a null means to an applier is known of the built-in kinds only.
                put(&mut change, place, choices[0].clone());
            }
            change["apiVersion"] = kind.base["apiVersion"].clone();
            change["kind"] = kind.base["kind"].clone();
            put(&mut change, "metadata/name", json!(name));
            (
                Method::PATCH,
                format!("{one}{query}{force}&fieldManager={manager}"),
                "application/apply-patch+yaml",
                change,
            )
        }
        (_, 5) if kind.status => (
            Method::PATCH,
            format!("{one}/status{query}"),
            "application/merge-patch+json",
            json!({"status": {"observedGeneration": dice.below(4), "replicas": dice.below(3)}}),
        ),
        _ => (
            Method::PATCH,
            format!("{one}{query}"),
            "application/merge-patch+json",
            change,
        ),
    };
    let label = format!("{seed}.{request} {method} {media} {query} {body}");
    s.send(
        &label,
        method,
        &path,
        &[("content-type", media)],
        &body.to_string(),
    )
    .await;
}

fn metadata() -> Vec<(&'static str, Vec<Value>)> {
    vec![
        (
            "metadata/labels",
            values(json!([{"a": "b"}, {}, {"a": null}, {"bad key": "x"}, {"c": "d"}])),
        ),
        (
            "metadata/annotations",
            values(json!([{"a": "b"}, {"a": ""}, {}, {"c": "d"}])),
        ),
        ("metadata/generateName", values(json!(["x-", ""]))),
    ]
}

case!(config_maps, async |s| {
    let mut places = metadata();
    places.extend([
        (
            "data",
            values(json!([{}, {"a": "b"}, {"bad key": "x"}, null])),
        ),
        ("data/x", values(json!(["1", "", 1, true, null, {"a": 1}]))),
        ("binaryData/b", values(json!(["AAAA", "", "!!"]))),
        ("immutable", values(json!([false, null, "yes"]))),
        ("nonsense", values(json!([1, {}]))),
    ]);
    let kind = Kind {
        path: s.cms(),
        base: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"k": "v"}}),
        strategic: true,
        status: false,
        places,
    };
    live(s, &kind).await;
});

case!(services, async |s| {
    let mut places = metadata();
    places.extend([
        (
            "spec/ports",
            values(json!([
                [{"port": 80}], [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}],
                [{"port": 0}], [{"port": 70000}], [{"port": "x"}], [],
                [{"port": 80, "protocol": "UDP", "targetPort": "dns"}],
                [{"port": 80, "targetPort": "not a port"}], [{"port": 80, "protocol": "ICMP"}],
            ])),
        ),
        (
            "spec/selector",
            values(json!([{"app": "x"}, {}, null, {"bad key": "x"}, {"a": 1}])),
        ),
        (
            "spec/sessionAffinity",
            values(json!(["ClientIP", "None", "", "Odd"])),
        ),
        (
            "spec/publishNotReadyAddresses",
            values(json!([true, false, "x"])),
        ),
        (
            "spec/internalTrafficPolicy",
            values(json!(["Local", "Cluster", "Odd", null])),
        ),
    ]);
    let kind = Kind {
        path: s.core("services"),
        base: json!({"apiVersion": "v1", "kind": "Service", "metadata": {},
            "spec": {"clusterIP": "None", "selector": {"app": "a"}, "ports": [{"port": 80}]}}),
        strategic: true,
        status: false,
        places,
    };
    live(s, &kind).await;
});

case!(deployments, async |s| {
    let container = |more: Value| {
        let mut container = json!({"name": "main", "image": "registry.test/app:1"});
        for (name, value) in more.as_object().expect("an object") {
            container[name] = value.clone();
        }
        json!([container])
    };
    let mut places = metadata();
    places.extend([
        ("spec/replicas", values(json!([0, 1, 3, -1, "3", 1.5, null]))),
        ("spec/paused", values(json!([true, false, "x", null]))),
        ("spec/minReadySeconds", values(json!([0, 5, -1]))),
        ("spec/revisionHistoryLimit", values(json!([0, 2, null]))),
        (
            "spec/strategy",
            values(json!([{"type": "Recreate", "rollingUpdate": null}, {"type": "RollingUpdate"}, {}, null,
                {"rollingUpdate": {"maxSurge": "50%"}}, {"rollingUpdate": {"maxUnavailable": 2}}])),
        ),
        (
            "spec/template/spec/containers",
            vec![
                container(json!({})),
                container(json!({"env": [{"name": "A", "value": "1"}, {"name": "B"}]})),
                container(json!({"resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}})),
                container(json!({"resources": {"requests": {"cpu": "1e3m"}}})),
                container(json!({"ports": [{"containerPort": 80, "name": "http"}]})),
                container(json!({"ports": [{"containerPort": 0}]})),
                container(json!({"image": ""})),
                container(json!({"imagePullPolicy": "Odd"})),
                container(json!({"command": ["a", "b"], "args": [], "tty": false, "stdin": true})),
                container(json!({"volumeMounts": [{"name": "none", "mountPath": "/x"}]})),
                json!([]),
                json!([{"name": "Bad_Name", "image": "i"}]),
            ],
        ),
        (
            "spec/template/spec/nodeSelector",
            values(json!([{"a": "b"}, {}, null])),
        ),
        (
            "spec/template/spec/hostNetwork",
            values(json!([true, false, null])),
        ),
        (
            "spec/template/spec/terminationGracePeriodSeconds",
            values(json!([0, 10, null])),
        ),
        (
            "spec/template/spec/restartPolicy",
            values(json!(["Always", "Never", ""])),
        ),
        (
            "spec/template/spec/automountServiceAccountToken",
            values(json!([true, false, null])),
        ),
        (
            "spec/template/spec/tolerations",
            values(json!([[{"key": "a", "operator": "Exists"}], [], null])),
        ),
        ("spec/nonsense", values(json!([1]))),
    ]);
    let kind = Kind {
        path: s.group("apps/v1", "deployments"),
        base: deployment("a"),
        strategic: true,
        status: true,
        places,
    };
    live(s, &kind).await;
});

case!(widgets_of_a_rich_schema, async |s| {
    let schema = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 8, "pattern": "^[a-z]+$"},
            "count": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1},
            "ratio": {"type": "number", "multipleOf": 0.5},
            "flag": {"type": "boolean", "default": true},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "port": {"type": "integer", "default": 80}}}},
            "plain": {"type": "array", "maxItems": 2, "items": {"type": "integer"}},
            "map": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string"}},
            "either": {"x-kubernetes-int-or-string": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "nothing": {"type": "string", "nullable": true},
        },
        "x-kubernetes-validations": [
            {"rule": "self.count < 9 || self.flag", "message": "too many"},
        ],
    });
    define(s, &widget_crd(s, &schema)).await;
    let mut places = metadata();
    places.extend([
        (
            "spec/name",
            values(json!(["ab", "", "x", "toolongname", "UP", 1, null])),
        ),
        ("spec/count", values(json!([0, 9, 11, -1, "1", 1.5, null]))),
        ("spec/ratio", values(json!([0.5, 1, 0.3, "1"]))),
        ("spec/flag", values(json!([true, false, null, "x"]))),
        ("spec/mode", values(json!(["a", "b", "c", null]))),
        ("spec/tags", values(json!([["a"], ["a", "b"], [], [1]]))),
        (
            "spec/list",
            values(
                json!([[{"name": "a"}], [{"name": "b", "port": 1}], [{"name": "a"}, {"name": "b"}],
                [], [{"port": 1}], [{"name": "a", "other": 1}]]),
            ),
        ),
        (
            "spec/plain",
            values(json!([[1], [1, 2], [1, 2, 3], [], ["a"]])),
        ),
        (
            "spec/map",
            values(json!([{"a": "b"}, {}, {"a": "1", "b": "2", "c": "3"}, {"a": 1}])),
        ),
        ("spec/either", values(json!([1, "a", true, 1.5]))),
        ("spec/free", values(json!([{"a": {"b": 1}}, {}]))),
        ("spec/nothing", values(json!(["x", null]))),
        ("spec/other", values(json!([1]))),
    ]);
    let kind = Kind {
        path: widgets(s, ""),
        base: widget(s, "a", &json!({"name": "ab"})),
        strategic: false,
        status: true,
        places,
    };
    live(s, &kind).await;
});
