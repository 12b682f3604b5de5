//! Compares two protocols and says where they part.

use serde_json::Value;

use crate::differences::DIFFERENCES;
use crate::session::Step;

/// One place where two protocols part.
pub(crate) struct Parting {
    step: String,
    path: String,
    real: Value,
    ours: Value,
}

impl std::fmt::Display for Parting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            step,
            path,
            real,
            ours,
        } = self;
        write!(f, "  {step} {path}\n    real: {real}\n    ours: {ours}")
    }
}

/// Everything that differs between two protocols of `case` and is not on the list.
pub(crate) fn compare(case: &str, real: &[Step], ours: &[Step]) -> Vec<Parting> {
    let mut partings = Vec::new();
    for (index, real_step) in real.iter().enumerate() {
        let absent = Value::from("<no such step>");
        let ours_step = ours.get(index);
        let mut found = Vec::new();
        walk(
            "",
            &real_step.said,
            ours_step.map_or(&absent, |step| &step.said),
            &mut found,
        );
        let on_purpose = |path: &str| {
            DIFFERENCES
                .iter()
                .any(|d| d.covers(case, &real_step.label, path))
        };
        found.retain(|(path, ..)| !on_purpose(path));
        partings.extend(found.into_iter().map(|(path, real, ours)| Parting {
            step: format!("[{}] {}", index + 1, real_step.label),
            path,
            real,
            ours,
        }));
    }
    partings
}

fn walk(path: &str, real: &Value, ours: &Value, found: &mut Vec<(String, Value, Value)>) {
    let absent = Value::from("<absent>");
    match (real, ours) {
        (Value::Object(a), Value::Object(b)) => {
            for (name, value) in a {
                walk(
                    &format!("{path}/{name}"),
                    value,
                    b.get(name).unwrap_or(&absent),
                    found,
                );
            }
            for (name, value) in b.iter().filter(|(name, _)| !a.contains_key(*name)) {
                found.push((format!("{path}/{name}"), absent.clone(), value.clone()));
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}/{index}"), a, b, found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push((path.to_owned(), a.clone(), b.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(said: Value) -> Vec<Step> {
        vec![Step {
            label: "get".into(),
            said,
        }]
    }

    #[test]
    fn names_the_exact_place() {
        let real = step(json!({"body": {"items": [{"a": 1}, {"a": 2}]}}));
        let ours = step(json!({"body": {"items": [{"a": 1}, {"a": 3}], "extra": true}}));
        let paths: Vec<_> = compare("x", &real, &ours)
            .into_iter()
            .map(|p| p.path)
            .collect();
        assert_eq!(paths, ["/body/items/1/a", "/body/extra"]);
    }

    #[test]
    fn a_step_that_ours_never_reached_is_a_difference() {
        assert_eq!(compare("x", &step(json!({"status": 200})), &[]).len(), 1);
    }
}
