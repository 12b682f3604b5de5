//! What only the Go sources tell of a field: whether it is a pointer, and whether its zero is written.
//!
//! `OpenAPI` does not tell a field that is missing from one that is zero. Go does: a pointer can be
//! missing, anything else cannot, and the tags say whether a zero is left out of the JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// How Go writes one field.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fact {
    pub(super) pointer: bool,
    /// `omitempty`: zero scalars, empty lists and maps, and nil pointers are left out.
    pub(super) omit_empty: bool,
    /// `omitzero`: zero structs are left out, too.
    pub(super) omit_zero: bool,
}

/// Facts by type and JSON name.
pub(super) type Facts = BTreeMap<String, BTreeMap<String, Fact>>;

#[derive(Default)]
struct Struct {
    fields: BTreeMap<String, Fact>,
    /// Structs of the same package whose fields are inlined.
    inlined: Vec<String>,
}

/// Reads the packages: directory, and the prefix of its types' names.
pub(super) fn read(packages: &[(PathBuf, String)]) -> Result<Facts> {
    let mut facts = Facts::new();
    for (directory, prefix) in packages {
        let structs = package(directory)?;
        for name in structs.keys() {
            let mut fields = BTreeMap::new();
            inline(&structs, name, &mut fields);
            facts.insert(format!("{prefix}.{name}"), fields);
        }
    }
    Ok(facts)
}

fn inline(structs: &BTreeMap<String, Struct>, name: &str, fields: &mut BTreeMap<String, Fact>) {
    let Some(found) = structs.get(name) else {
        return;
    };
    fields.extend(
        found
            .fields
            .iter()
            .map(|(name, fact)| (name.clone(), *fact)),
    );
    for name in &found.inlined {
        inline(structs, name, fields);
    }
}

fn package(directory: &Path) -> Result<BTreeMap<String, Struct>> {
    let mut structs: BTreeMap<String, Struct> = BTreeMap::new();
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        if !matches!(name, "types.go" | "types_jsonschema.go") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let mut current: Option<&mut Struct> = None;
        for line in text.lines() {
            if let Some(name) = line
                .strip_prefix("type ")
                .and_then(|rest| rest.strip_suffix(" struct {"))
            {
                current = Some(structs.entry(name.to_owned()).or_default());
            } else if line == "}" {
                current = None;
            } else if let Some(current) = &mut current {
                field(line.trim(), current);
            }
        }
    }
    Ok(structs)
}

fn field(line: &str, current: &mut Struct) {
    let Some((declared, tags)) = line.split_once('`') else {
        return;
    };
    let Some((_, tag)) = tags.split_once("json:\"") else {
        return;
    };
    let tag = tag.split('"').next().unwrap_or_default();
    let mut parts = tag.split(',');
    let json = parts.next().unwrap_or_default();
    let options: Vec<&str> = parts.collect();
    let words: Vec<&str> = declared.split_whitespace().collect();
    let ty = words.last().copied().unwrap_or_default();
    if options.contains(&"inline") {
        current.inlined.push(ty.to_owned());
    } else if !declared.starts_with("//") && json != "-" {
        let fact = Fact {
            pointer: ty.starts_with('*'),
            omit_empty: options.contains(&"omitempty"),
            omit_zero: options.contains(&"omitzero"),
        };
        current.fields.insert(json.to_owned(), fact);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_and_tags_are_read() {
        let mut found = Struct::default();
        field("A *int32 `json:\"a,omitempty\" protobuf:\"x\"`", &mut found);
        field("B Time `json:\"b,omitempty,omitzero\"`", &mut found);
        field("Source `json:\",inline\"`", &mut found);
        let (a, b) = (found.fields["a"], found.fields["b"]);
        assert!(a.pointer && a.omit_empty && !a.omit_zero);
        assert!(!b.pointer && b.omit_zero);
        assert_eq!(found.inlined, ["Source"]);
    }
}
