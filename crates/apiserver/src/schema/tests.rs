use serde_json::{Value, json};

use super::*;

fn schema(value: &Value) -> Schema {
    Schema::from_crd(value).unwrap_or_else(|errors| panic!("{}", lines(&errors)))
}

fn lines(errors: &[FieldError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

fn widget() -> Schema {
    schema(&json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
                    "replicas": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1},
                    "ratio": {"type": "number", "exclusiveMinimum": true, "minimum": 0.5},
                    "mode": {"type": "string", "enum": ["fast", "slow"]},
                    "port": {"x-kubernetes-int-or-string": true},
                    "address": {"type": "string", "format": "ipv4"},
                    "maybe": {"type": "string", "nullable": true, "default": "x"},
                    "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1,
                             "maxItems": 2, "x-kubernetes-list-type": "set"},
                    "disks": {"type": "array", "x-kubernetes-list-type": "map",
                              "x-kubernetes-list-map-keys": ["slot"],
                              "items": {"type": "object", "required": ["slot"], "properties": {
                                  "slot": {"type": "integer"},
                                  "size": {"type": "string", "default": "1Gi"}}}},
                    "labels": {"type": "object", "maxProperties": 1,
                               "additionalProperties": {"type": "string"}},
                    "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "one": {"type": "object",
                            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
                    "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                                 "x-kubernetes-preserve-unknown-fields": true},
                }
            }
        }
    }))
}

#[test]
fn every_fault_reads_as_in_kubernetes() {
    let object = json!({"spec": {
        "name": "A", "replicas": -1, "ratio": 0.5, "mode": "odd", "port": true, "address": "x",
        "maybe": null, "tags": [], "labels": {"a": "b", "c": 1}, "one": {},
        "template": {"kind": "9x", "metadata": {"labels": {"a b": ""}}},
    }});
    insta::assert_snapshot!(lines(&widget().validate(&object, None)));
    let more = json!({"spec": {
        "name": "abcdefg", "replicas": 11, "ratio": "x", "mode": null,
        "tags": ["a", "a", "b"], "disks": [{"slot": 1}, {"slot": 1}],
        "one": {"a": "", "b": ""},
    }});
    insta::assert_snapshot!(lines(&widget().validate(&more, None)));
    insta::assert_snapshot!(lines(&widget().validate(&json!({"spec": {}}), None)), @"spec.name: Required value");
    insta::assert_snapshot!(lines(&widget().validate(&json!({"spec": "x"}), None)), @r#"spec: Invalid value: "string": spec in body must be of type object: "string""#);
}

#[test]
fn unknown_fields_are_named_and_removed() {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Widget", "metadata": {"name": "w", "odd": 1}, "extra": 1,
        "spec": {"name": "ab", "nope": 1, "disks": [{"slot": 1, "bad": 2}],
                 "raw": {"kept": {"deep": 1}}, "labels": {"any": "thing"},
                 "template": {"apiVersion": "v1", "spec": {"kept": true}}},
    });
    assert_eq!(
        widget().prune(&mut object),
        ["extra", "metadata.odd", "spec.disks[0].bad", "spec.nope"]
    );
    assert_eq!(
        object,
        json!({
            "apiVersion": "v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": {"name": "ab", "disks": [{"slot": 1}], "raw": {"kept": {"deep": 1}},
                     "labels": {"any": "thing"},
                     "template": {"apiVersion": "v1", "spec": {"kept": true}}},
        })
    );
}

#[test]
fn defaults_fill_what_is_missing_but_not_allowed_nulls() {
    let mut object =
        json!({"spec": {"name": "ab", "replicas": null, "maybe": null, "disks": [{"slot": 1}]}});
    widget().default(&mut object);
    assert_eq!(
        object,
        json!({"spec": {"name": "ab", "replicas": 1, "maybe": null,
                        "disks": [{"slot": 1, "size": "1Gi"}]}})
    );
}

#[test]
fn what_was_wrong_before_and_did_not_change_is_forgiven() {
    let old = json!({"spec": {"name": "BAD", "replicas": 1, "disks": [{"slot": 1, "size": 5}]}});
    let mut new = json!({"spec": {"name": "BAD", "replicas": 2,
                                  "disks": [{"slot": 2}, {"slot": 1, "size": 5}]}});
    assert_eq!(widget().validate(&new, Some(&old)), vec![]);
    new["spec"]["name"] = json!("WORSE");
    insta::assert_snapshot!(lines(&widget().validate(&new, Some(&old))), @r#"spec.name: Invalid value: "WORSE": spec.name in body should match '^[a-z]+$'"#);
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    let bad = json!({
        "properties": {
            "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}},
            "spec": {
                "type": "object",
                "properties": {
                    "untyped": {},
                    "list": {"type": "array"},
                    "keys": {"type": "array", "x-kubernetes-list-type": "map",
                             "items": {"type": "object"}},
                    "lost": {"type": "array", "x-kubernetes-list-type": "map",
                             "x-kubernetes-list-map-keys": ["name"],
                             "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                    "both": {"type": "object", "properties": {"a": {"type": "string"}},
                             "additionalProperties": {"type": "string"}},
                    "unique": {"type": "array", "uniqueItems": true, "items": {"type": "string"}},
                    "typed": {"type": "string", "anyOf": [{"type": "string", "pattern": "x"}]},
                    "regex": {"type": "string", "pattern": "("},
                    "rule": {"type": "string", "x-kubernetes-validations": [
                        {"rule": ""}, {"rule": "self ==", "message": "m"}]},
                }
            }
        }
    });
    let errors = Schema::from_crd(&bad).unwrap_err();
    let shown = lines(&errors);
    // How a regular expression is broken is told by the library.
    let shown: String = shown
        .split_inclusive('\n')
        .filter(|l| l.starts_with("properties") || l.starts_with("type"))
        .collect();
    insta::assert_snapshot!(shown);
}

#[test]
fn a_schema_that_cannot_be_read_is_not_judged_further() {
    let errors =
        Schema::from_crd(&json!({"type": "object", "properties": {"spec": {"$ref": "#/x"}}}));
    assert_eq!(
        lines(&errors.unwrap_err()),
        "properties[spec].$ref: Forbidden: $ref is not supported"
    );
}

#[test]
fn defaults_must_fit_their_own_schema() {
    let errors = Schema::from_crd(&json!({"type": "object", "properties": {
        "a": {"type": "integer", "default": "x"},
        "b": {"type": "object", "default": {"odd": 1}, "properties": {"c": {"type": "string"}}},
    }}))
    .unwrap_err();
    insta::assert_snapshot!(lines(&errors));
}

fn ruled() -> Schema {
    schema(&json!({
        "type": "object",
        "x-kubernetes-validations": [{"rule": "self.metadata.name != 'root'", "message": "no root"}],
        "properties": {"spec": {
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "self.min <= self.max", "messageExpression": "'min ' + string(self.min) + ' is above max'"},
                {"rule": "self.min >= 0", "reason": "FieldValueForbidden", "fieldPath": ".min"},
                {"rule": "!has(self.once) || !oldSelf.hasValue() || self.once == oldSelf.value().once",
                 "optionalOldSelf": true, "message": "once is once"},
            ],
            "properties": {
                "min": {"type": "integer"},
                "max": {"type": "integer"},
                "once": {"type": "string"},
                "fixed": {"type": "string", "x-kubernetes-validations": [
                    {"rule": "self == oldSelf", "message": "fixed is immutable"}]},
                "since": {"type": "string", "format": "date-time", "x-kubernetes-validations": [
                    {"rule": "self > timestamp('2020-01-01T00:00:00Z')"}]},
                "disks": {"type": "array", "x-kubernetes-list-type": "map",
                          "x-kubernetes-list-map-keys": ["slot"],
                          "items": {"type": "object", "required": ["slot"], "properties": {
                              "slot": {"type": "integer"},
                              "size": {"type": "integer", "x-kubernetes-validations": [
                                  {"rule": "self >= oldSelf", "message": "disks only grow"}]}}}},
                "namespace": {"type": "string"},
            },
        }}
    }))
}

#[test]
fn rules_can_ask_for_the_type_of_a_value() {
    let schema = schema(&json!({"type": "object", "properties": {"either": {
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [
            {"rule": "type(self) == int ? self > 1 : self.endsWith('%')", "message": "no"}]}}}));
    for (either, valid) in [
        (json!(2), true),
        (json!(1), false),
        (json!("5%"), true),
        (json!("5"), false),
    ] {
        assert_eq!(
            schema.validate(&json!({"either": either}), None).is_empty(),
            valid,
            "{either}"
        );
    }
}

#[test]
fn whole_numbers_are_written_without_a_fraction() {
    let mut object = json!({"spec": {"name": "ab", "replicas": 3.0, "ratio": 2.5}});
    widget().default(&mut object);
    assert_eq!(object["spec"]["replicas"].to_string(), "3");
    assert_eq!(object["spec"]["ratio"].to_string(), "2.5");
}

#[test]
fn rules_speak_for_themselves() {
    let object = json!({"metadata": {"name": "root"},
        "spec": {"min": -1, "max": -2, "since": "2019-01-01T00:00:00Z"}});
    insta::assert_snapshot!(lines(&ruled().validate(&object, None)));
}

#[test]
fn transition_rules_see_the_same_entry_by_its_key() {
    let old = json!({"metadata": {"name": "a"}, "spec": {"min": 0, "max": 1, "fixed": "x",
        "once": "a", "disks": [{"slot": 1, "size": 5}, {"slot": 2, "size": 9}]}});
    let new = json!({"metadata": {"name": "a"}, "spec": {"min": 0, "max": 1, "fixed": "y",
        "once": "b", "disks": [{"slot": 2, "size": 8}, {"slot": 1, "size": 6}, {"slot": 3, "size": 0}]}});
    insta::assert_snapshot!(lines(&ruled().validate(&new, Some(&old))));
    assert_eq!(ruled().validate(&old, Some(&old)), vec![]);
    assert_eq!(ruled().validate(&new, None), vec![]);
}

#[test]
fn rules_are_not_run_on_objects_of_the_wrong_shape() {
    let object = json!({"metadata": {"name": "a"}, "spec": {"min": "x", "max": 1}});
    insta::assert_snapshot!(lines(&ruled().validate(&object, None)));
}

#[test]
fn a_failed_rule_is_forgiven_where_nothing_changed() {
    let old = json!({"metadata": {"name": "a"}, "spec": {"min": 5, "max": 1}, "status": 1});
    let new = json!({"metadata": {"name": "a"}, "spec": {"min": 5, "max": 1}, "status": 2});
    assert_eq!(ruled().validate(&new, Some(&old)), vec![]);
}
