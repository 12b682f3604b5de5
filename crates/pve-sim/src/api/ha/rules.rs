//! `/cluster/ha/rules`: where resources run, and which run together or apart.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::groups::nodes;
use crate::call::{Call, Reply};
use crate::digest;
use crate::failure::Failure;
use crate::ha::{Rule, RuleKind};
use crate::params::split_list;
use crate::permission::all;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, choice, flag, format, text};

pub(super) fn routes() -> Vec<Route> {
    let audit = || all("/", &["Sys.Audit"]);
    let console = || all("/", &["Sys.Console"]);
    let rule = || text("rule").format(format::CONFIG_ID);
    let kind = || choice("type", &["node-affinity", "resource-affinity"]);
    vec![
        get("/cluster/ha/rules", list)
            .perm(audit())
            .params([kind().optional(), text("resource").optional()]),
        post("/cluster/ha/rules", create)
            .perm(console())
            .params(options())
            .params([rule(), kind(), text("resources")]),
        get("/cluster/ha/rules/{rule}", read)
            .perm(audit())
            .params([rule()]),
        put("/cluster/ha/rules/{rule}", update)
            .perm(console())
            .params(options())
            .params([
                rule(),
                kind(),
                text("resources").optional(),
                text("delete").format(format::CONFIG_ID_LIST).optional(),
                crate::schema::digest(),
            ]),
        delete("/cluster/ha/rules/{rule}", remove)
            .perm(console())
            .params([rule()]),
    ]
}

fn options() -> [Param; 5] {
    [
        nodes().optional(),
        flag("strict"),
        text("affinity").optional(),
        text("comment").max_len(4096).optional(),
        flag("disable"),
    ]
}

fn show(id: &str, rule: &Rule, digest: &str) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("rule".into(), json!(id));
    let resources: Vec<_> = rule.resources.iter().map(String::as_str).collect();
    map.insert("resources".into(), json!(resources.join(",")));
    map.insert("order".into(), json!(rule.order));
    map.insert("digest".into(), json!(digest));
    match &rule.kind {
        RuleKind::Node { nodes, strict } => {
            map.insert("type".into(), json!("node-affinity"));
            map.insert("nodes".into(), json!(nodes));
            if *strict {
                map.insert("strict".into(), json!(1));
            }
        }
        RuleKind::Resource { together } => {
            map.insert("type".into(), json!("resource-affinity"));
            let affinity = if *together { "positive" } else { "negative" };
            map.insert("affinity".into(), json!(affinity));
        }
    }
    if let Some(comment) = &rule.comment {
        map.insert("comment".into(), json!(comment));
    }
    if rule.disable {
        map.insert("disable".into(), json!(1));
    }
    map
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let digest = digest::of(&call.world.ha.rules);
    let rows = call.world.ha.rules.iter().filter(|(_, rule)| {
        call.params
            .get("resource")
            .is_none_or(|sid| rule.resources.contains(sid))
    });
    let rows = rows.map(|(id, rule)| show(id, rule, &digest));
    let kind = call.params.get("type");
    let rows = rows.filter(|row| kind.is_none_or(|kind| row["type"] == kind));
    Ok(rows.map(Value::Object).collect::<Value>().into())
}

fn missing(id: &str) -> Failure {
    Failure::die(format!("no such ha rule '{id}'"))
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("rule");
    let rules = &call.world.ha.rules;
    let rule = rules.get(id).ok_or_else(|| missing(id))?;
    Ok(Value::Object(show(id, rule, &digest::of(rules))).into())
}

/// What the call says, on top of what the rule said before.
fn kind(call: &Call<'_>, before: Option<&RuleKind>) -> Result<RuleKind, Failure> {
    let params = &call.params;
    let wrong = |name: &str, text: &str| {
        let key = format!("oneOf[{}].{name}", params.text("type"));
        Err(Failure::param(key, text))
    };
    let absent = "property is missing and it is not optional";
    let unknown =
        "property is not defined in schema and the schema does not allow additional properties";
    if params.text("type") == "node-affinity" {
        if params.has("affinity") {
            return wrong("affinity", unknown);
        }
        let (old_nodes, old_strict) = match before {
            Some(RuleKind::Node { nodes, strict }) => (Some(nodes.clone()), *strict),
            _ => (None, false),
        };
        let Some(nodes) = params.get("nodes").map(str::to_owned).or(old_nodes) else {
            return wrong("nodes", absent);
        };
        return Ok(RuleKind::Node {
            nodes,
            strict: params.bool("strict").unwrap_or(old_strict),
        });
    }
    for name in ["nodes", "strict"] {
        if params.has(name) {
            return wrong(name, unknown);
        }
    }
    let old = match before {
        Some(RuleKind::Resource { together }) => Some(*together),
        _ => None,
    };
    match (params.get("affinity"), old) {
        (Some("positive"), _) => Ok(RuleKind::Resource { together: true }),
        (Some("negative"), _) => Ok(RuleKind::Resource { together: false }),
        (Some(other), _) => wrong(
            "affinity",
            &format!(
                "value '{other}' does not have a value in the enumeration 'positive, negative'"
            ),
        ),
        (None, Some(together)) => Ok(RuleKind::Resource { together }),
        (None, None) => wrong("affinity", absent),
    }
}

/// The resources of a rule, which must be managed.
fn resources(call: &Call<'_>) -> Result<BTreeSet<String>, Failure> {
    let sids: BTreeSet<String> = split_list(call.params.text("resources"))
        .into_iter()
        .map(str::to_owned)
        .collect();
    let ha = &call.world.ha;
    let unmanaged = sids.iter().filter(|sid| !ha.resources.contains_key(*sid));
    none("unmanaged resource(s)", unmanaged.map(String::as_str))?;
    Ok(sids)
}

/// The nodes a rule names must be there.
fn known_nodes(call: &Call<'_>) -> Result<(), Failure> {
    let named: BTreeSet<&str> = call
        .params
        .list("nodes")
        .into_iter()
        .map(|node| node.split_once(':').map_or(node, |(name, _)| name))
        .collect();
    let unknown = named
        .into_iter()
        .filter(|node| !call.world.nodes.contains_key(*node));
    none("non-existant node(s)", unknown)
}

fn none<'a>(what: &str, bad: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    let bad: Vec<&str> = bad.collect();
    if bad.is_empty() {
        return Ok(());
    }
    Err(Failure::die(format!(
        "cannot use {what} {}.",
        bad.join(", ")
    )))
}

/// Whether a rule can be kept beside the others.
fn feasible(call: &Call<'_>, id: &str, rule: &Rule) -> Result<(), Failure> {
    let mut errors = Vec::new();
    if matches!(rule.kind, RuleKind::Node { .. }) {
        for sid in &rule.resources {
            let taken = call.world.ha.rules.iter().any(|(other, it)| {
                other != id
                    && matches!(it.kind, RuleKind::Node { .. })
                    && it.resources.contains(sid)
            });
            if taken {
                errors.push(format!(
                    "resource '{sid}' is already used in another node affinity rule"
                ));
            }
        }
    } else if rule.resources.len() < 2 {
        errors.push("rule is ineffective as there are less than two resources".to_owned());
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::die(format!(
        "400 Rule '{id}' is invalid.\nresources: {}",
        errors.join(", ")
    )))
}

/// Says which act failed.
fn failed(act: &str) -> impl Fn(Failure) -> Failure {
    move |failure| Failure::die(format!("{act} failed: {}", failure.message))
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let kind = kind(call, None)?;
    add(call, kind).map_err(failed("create ha rule"))?;
    Ok(Reply::null())
}

fn add(call: &mut Call<'_>, kind: RuleKind) -> Result<(), Failure> {
    let id = call.params.text("rule").to_owned();
    let rules = &call.world.ha.rules;
    if rules.contains_key(&id) {
        return Err(Failure::die(format!("HA rule '{id}' already defined")));
    }
    let order = rules.values().map(|rule| rule.order).max().unwrap_or(0) + 1;
    let resources = resources(call)?;
    known_nodes(call)?;
    let rule = Rule {
        kind,
        resources,
        comment: call.params.get("comment").map(str::to_owned),
        disable: call.params.flag("disable"),
        order,
    };
    feasible(call, &id, &rule)?;
    call.world.ha.rules.insert(id, rule);
    Ok(())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let before = call.world.ha.rules.get(call.params.text("rule")).cloned();
    let kind = kind(call, before.as_ref().map(|rule| &rule.kind));
    change(call, before, kind).map_err(|failure| {
        if failure.errors.is_empty() {
            failed("update HA rules")(failure)
        } else {
            failure
        }
    })?;
    Ok(Reply::null())
}

fn change(
    call: &mut Call<'_>,
    before: Option<Rule>,
    kind: Result<RuleKind, Failure>,
) -> Result<(), Failure> {
    let id = call.params.text("rule").to_owned();
    digest::check(call.params.get("digest"), &call.world.ha.rules)?;
    let Some(before) = before else {
        return Err(Failure::die(format!("HA rule '{id}' does not exist")));
    };
    let kind = kind?;
    let resources = if call.params.has("resources") {
        resources(call)?
    } else {
        before.resources.clone()
    };
    known_nodes(call)?;
    let gone = call.params.list("delete");
    let comment = call
        .params
        .get("comment")
        .map(str::to_owned)
        .or(before.comment);
    let rule = Rule {
        kind,
        resources,
        comment: comment.filter(|_| !gone.contains(&"comment")),
        disable: call.params.bool("disable").unwrap_or(before.disable)
            && !gone.contains(&"disable"),
        order: before.order,
    };
    feasible(call, &id, &rule)?;
    call.world.ha.rules.insert(id, rule);
    Ok(())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("rule").to_owned();
    // A rule that has gone with its last resource is removed again without complaint.
    call.world.ha.rules.remove(&id);
    Ok(Reply::null())
}
