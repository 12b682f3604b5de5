//! Validation rules in CEL.

use conformance::{Session, case};
use serde_json::{Value, json};

use crate::fixtures::{CRDS, define, widget, widget_crd, widgets};

async fn tries(s: &Session, spec: &Value, values: &[Value]) {
    define(s, &widget_crd(s, spec)).await;
    for (index, value) in values.iter().enumerate() {
        s.post(
            &value.to_string(),
            &widgets(s, ""),
            &widget(s, &format!("w{index}"), value),
        )
        .await;
    }
}

case!(a_rule_sees_its_object, async |s| {
    let spec = json!({"type": "object", "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.min <= self.max", "message": "min must not exceed max"}]});
    tries(
        s,
        &spec,
        &[
            json!({"min": 1, "max": 2}),
            json!({"min": 2, "max": 1}),
            json!({"min": 1}),
            json!({}),
        ],
    )
    .await;
});

case!(a_rule_can_say_more, async |s| {
    let spec = json!({"type": "object", "properties": {"n": {"type": "integer"}, "name": {"type": "string"}, "list": {"type": "array", "maxItems": 5, "items": {"type": "integer"}}},
        "x-kubernetes-validations": [
            {"rule": "!has(self.n) || self.n < 10", "messageExpression": "self.n > 100 ? 'n is far too large' : 'n is too large'"},
            {"rule": "!has(self.name) || self.name.startsWith('a')", "message": "must start with a", "reason": "FieldValueForbidden", "fieldPath": ".name"},
            {"rule": "!has(self.list) || self.list.all(x, x > 0)"}]});
    tries(
        s,
        &spec,
        &[
            json!({"n": 1}),
            json!({"n": 11}),
            json!({"name": "b"}),
            json!({"name": "ab"}),
            json!({"list": [1, 2]}),
            json!({"list": [0]}),
            json!({"n": 12, "name": "c", "list": [-1]}),
        ],
    )
    .await;
});

case!(reasons_are_passed_on, async |s| {
    let rule = |field: &str, reason: &str| json!({"rule": format!("!has(self.{field})"), "message": "no", "reason": reason});
    let spec = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"}, "d": {"type": "string"}},
        "x-kubernetes-validations": [rule("a", "FieldValueInvalid"), rule("b", "FieldValueForbidden"), rule("c", "FieldValueRequired"), rule("d", "FieldValueDuplicate")]});
    tries(
        s,
        &spec,
        &[
            json!({"a": "x"}),
            json!({"b": "x"}),
            json!({"c": "x"}),
            json!({"d": "x"}),
        ],
    )
    .await;
});

case!(a_rule_on_a_value, async |s| {
    let spec = json!({"type": "object", "properties": {
        "even": {"type": "integer", "x-kubernetes-validations": [{"rule": "self % 2 == 0", "message": "must be even"}]},
        "items": {"type": "array", "maxItems": 5, "items": {"type": "object", "properties": {"n": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.n > 0"}]}},
        "map": {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "string", "maxLength": 10}, "x-kubernetes-validations": [{"rule": "self.all(k, k != 'bad')"}]}}});
    tries(
        s,
        &spec,
        &[
            json!({"even": 2}),
            json!({"even": 3}),
            json!({"items": [{"n": 1}, {"n": 0}]}),
            json!({"map": {"bad": "x"}}),
            json!({"map": {"good": "x"}}),
        ],
    )
    .await;
});

case!(transitions_are_ruled, async |s| {
    let spec = json!({"type": "object", "properties": {
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}]},
        "grows": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
        "once": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "!has(oldSelf.once) || has(self.once)", "message": "once may not be taken away"}]});
    define(s, &widget_crd(s, &spec)).await;
    s.post(
        "create",
        &widgets(s, ""),
        &widget(s, "a", &json!({"fixed": "x", "grows": 1, "once": "y"})),
    )
    .await;
    s.merge(
        "change the fixed",
        &widgets(s, "/a"),
        &json!({"spec": {"fixed": "z"}}),
    )
    .await;
    s.merge(
        "remove the fixed",
        &widgets(s, "/a"),
        &json!({"spec": {"fixed": null}}),
    )
    .await;
    s.merge("grow", &widgets(s, "/a"), &json!({"spec": {"grows": 2}}))
        .await;
    s.merge("shrink", &widgets(s, "/a"), &json!({"spec": {"grows": 1}}))
        .await;
    s.merge(
        "take away",
        &widgets(s, "/a"),
        &json!({"spec": {"once": null}}),
    )
    .await;
    s.apply(
        "by apply",
        &format!("{}?force=true", widgets(s, "/a")),
        "alice",
        &widget(s, "a", &json!({"grows": 0})),
    )
    .await;
});

case!(an_optional_old_self, async |s| {
    let spec = json!({"type": "object", "properties": {"n": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "oldSelf.hasValue() ? self > oldSelf.value() : self > 10", "optionalOldSelf": true, "message": "must grow, from above ten"}]}}});
    define(s, &widget_crd(s, &spec)).await;
    s.post(
        "too small",
        &widgets(s, ""),
        &widget(s, "a", &json!({"n": 1})),
    )
    .await;
    s.post(
        "create",
        &widgets(s, ""),
        &widget(s, "a", &json!({"n": 11})),
    )
    .await;
    s.merge("shrink", &widgets(s, "/a"), &json!({"spec": {"n": 5}}))
        .await;
    s.merge("grow", &widgets(s, "/a"), &json!({"spec": {"n": 12}}))
        .await;
});

case!(the_libraries_are_there, async |s| {
    let rule = |field: &str, rule: &str| json!({"type": "string", "maxLength": 60, "x-kubernetes-validations": [{"rule": rule, "message": format!("{field} is wrong")}]});
    let spec = json!({"type": "object", "properties": {
        "url": rule("url", "isURL(self) && url(self).getScheme() == 'https'"),
        "ip": rule("ip", "isIP(self) && ip(self).family() == 4"),
        "cidr": rule("cidr", "isCIDR(self) && cidr(self).containsIP('10.0.0.1')"),
        "quantity": rule("quantity", "isQuantity(self) && quantity(self).isGreaterThan(quantity('1Gi'))"),
        "re": rule("re", "self.matches('^a+$')"),
        "find": rule("find", "self.find('[0-9]+') == '42'"),
        "split": rule("split", "self.split(',').size() == 2"),
        "lower": rule("lower", "self.lowerAscii() == 'abc'"),
        "format": rule("format", "!format.dns1123Label().validate(self).hasValue()"),
        "semver": rule("semver", "isSemver(self) && semver(self).isGreaterThan(semver('1.0.0'))"),
        "duration": {"type": "string", "format": "duration", "x-kubernetes-validations": [{"rule": "self > duration('1m')"}]},
        "time": {"type": "string", "format": "date-time", "x-kubernetes-validations": [{"rule": "self > timestamp('2020-01-01T00:00:00Z')"}]},
        "either": {"x-kubernetes-int-or-string": true, "x-kubernetes-validations": [{"rule": "type(self) == int ? self > 1 : self.endsWith('%')"}]}}});
    tries(
        s,
        &spec,
        &[
            json!({"url": "https://x.test/"}),
            json!({"url": "http://x.test/"}),
            json!({"ip": "10.0.0.1"}),
            json!({"ip": "::1"}),
            json!({"cidr": "10.0.0.0/8"}),
            json!({"cidr": "192.168.0.0/16"}),
            json!({"quantity": "2Gi"}),
            json!({"quantity": "1Mi"}),
            json!({"re": "aaa"}),
            json!({"re": "b"}),
            json!({"find": "x42y"}),
            json!({"find": "x"}),
            json!({"split": "a,b"}),
            json!({"split": "a"}),
            json!({"lower": "ABC"}),
            json!({"lower": "x"}),
            json!({"format": "abc"}),
            json!({"format": "A_"}),
            json!({"semver": "1.2.3"}),
            json!({"semver": "0.1.0"}),
            json!({"duration": "2m"}),
            json!({"duration": "1s"}),
            json!({"time": "2024-01-01T00:00:00Z"}),
            json!({"time": "2001-01-01T00:00:00Z"}),
            json!({"either": 2}),
            json!({"either": 1}),
            json!({"either": "5%"}),
            json!({"either": "5"}),
        ],
    )
    .await;
});

case!(odd_names_are_escaped, async |s| {
    let spec = json!({"type": "object", "properties": {"a-b": {"type": "integer"}, "c.d": {"type": "integer"}, "e/f": {"type": "integer"}, "in": {"type": "integer"}, "x__y": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "(!has(self.a__dash__b) || self.a__dash__b > 0) && (!has(self.c__dot__d) || self.c__dot__d > 0) && (!has(self.e__slash__f) || self.e__slash__f > 0) && (!has(self.__in__) || self.__in__ > 0) && (!has(self.x__underscores__y) || self.x__underscores__y > 0)"}]});
    tries(
        s,
        &spec,
        &[
            json!({"a-b": 1, "c.d": 1, "e/f": 1, "in": 1, "x__y": 1}),
            json!({"a-b": 0}),
            json!({"c.d": 0}),
            json!({"e/f": 0}),
            json!({"in": 0}),
            json!({"x__y": 0}),
        ],
    )
    .await;
});

case!(rules_see_names_at_the_top, async |s| {
    let mut crd = widget_crd(
        s,
        &json!({"type": "object", "properties": {"a": {"type": "string"}}}),
    );
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = json!([{"rule": "self.metadata.name.startsWith('ok-')", "message": "name must start with ok-"}]);
    define(s, &crd).await;
    s.post("bad", &widgets(s, ""), &widget(s, "bad", &json!({})))
        .await;
    s.post("good", &widgets(s, ""), &widget(s, "ok-1", &json!({})))
        .await;
});

case!(bad_rules_are_refused_with_the_definition, async |s| {
    let with = |rules: Value| {
        widget_crd(
            s,
            &json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": rules}),
        )
    };
    let status = async |what: &str, crd: &Value| {
        // The compiler's own words are another program's; that it is refused, where and why is compared.
        let answer = s
            .raw(
                http::Method::POST,
                CRDS,
                &[("content-type", "application/json")],
                &crd.to_string(),
            )
            .await;
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let causes: Vec<Value> = body["details"]["causes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| json!([c["field"], c["reason"]]))
            .collect();
        s.note(
            what,
            json!([answer.status.as_u16(), body["reason"], causes]),
        )
        .await;
    };
    status("syntax", &with(json!([{"rule": "self.a =="}]))).await;
    status("unknown field", &with(json!([{"rule": "self.b == 'x'"}]))).await;
    status("wrong type", &with(json!([{"rule": "self.a > 1"}]))).await;
    status("not a boolean", &with(json!([{"rule": "self.a"}]))).await;
    status("empty", &with(json!([{"rule": ""}]))).await;
    status(
        "bad reason",
        &with(json!([{"rule": "true", "reason": "Whatever"}])),
    )
    .await;
    status(
        "bad field path",
        &with(json!([{"rule": "true", "fieldPath": ".none"}])),
    )
    .await;
    status(
        "bad message expression",
        &with(json!([{"rule": "true", "messageExpression": "1"}])),
    )
    .await;
    status(
        "message with a newline",
        &with(json!([{"rule": "true", "message": "a\nb"}])),
    )
    .await;
});
