//! Sets of fields, as tries of path elements.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::element::Element;
use crate::shape::Shape;

/// A set of paths. A path's being in the set says nothing of the paths below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    members: BTreeSet<Element>,
    children: BTreeMap<Element, FieldSet>,
}

impl FieldSet {
    /// The set of these paths.
    #[cfg(test)]
    pub(crate) fn of(paths: &[&[Element]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path);
        }
        set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// Adds `path`; the empty path is the object itself and is not kept.
    pub(crate) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Whether `path` itself is in the set.
    pub(crate) fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self
                .children
                .get(first)
                .is_some_and(|child| child.has(rest)),
        }
    }

    /// Whether the one-step path is in the set.
    pub(crate) fn has_member(&self, element: &Element) -> bool {
        self.members.contains(element)
    }

    /// The paths below `element`.
    pub(crate) fn below(&self, element: &Element) -> Option<&Self> {
        self.children.get(element).filter(|child| !child.is_empty())
    }

    /// Paths in either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            let entry = out.children.entry(element.clone()).or_default();
            *entry = entry.union(child);
        }
        out
    }

    /// Paths in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            let both = child.intersection(other.children.get(element)?);
            (!both.is_empty()).then(|| (element.clone(), both))
        });
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Paths in this set that are not in the other.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            let rest = match other.children.get(element) {
                Some(removed) => child.difference(removed),
                None => child.clone(),
            };
            (!rest.is_empty()).then(|| (element.clone(), rest))
        });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Keeps only top-level fields that `keep` accepts, with all below them.
    pub(crate) fn retain_top(&mut self, keep: impl Fn(&str) -> bool) {
        let wanted = |element: &Element| match element {
            Element::Field(name) => keep(name),
            _ => true,
        };
        self.members.retain(|element| wanted(element));
        self.children.retain(|element, _| wanted(element));
    }

    /// Adds the path of every declared field that has paths below it.
    ///
    /// Such fields are there because something below them is; they go when all below them goes.
    pub(crate) fn with_named_fields(&self, shape: Shape<'_>) -> Self {
        let mut members = self.members.clone();
        let mut children = BTreeMap::new();
        for (element, child) in &self.children {
            let sub = match element {
                Element::Field(name) => {
                    if shape.declares(name) {
                        members.insert(element.clone());
                    }
                    shape.field(name)
                }
                _ => shape.item(),
            };
            children.insert(element.clone(), child.with_named_fields(sub));
        }
        Self { members, children }
    }

    /// Calls `visit` with every path: a node's members first, then what lies below.
    pub(crate) fn each(&self, visit: &mut impl FnMut(&[Element])) {
        self.each_below(&mut Vec::new(), visit);
    }

    fn each_below(&self, path: &mut Vec<Element>, visit: &mut impl FnMut(&[Element])) {
        for member in &self.members {
            path.push(member.clone());
            visit(path);
            path.pop();
        }
        for (element, child) in &self.children {
            path.push(element.clone());
            child.each_below(path, visit);
            path.pop();
        }
    }

    /// The set in the FieldsV1 notation.
    pub(crate) fn encode(&self) -> Value {
        let mut out = Map::new();
        for member in &self.members {
            out.insert(member.encode(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            if child.is_empty() {
                continue;
            }
            let mut below = child.encode();
            if self.members.contains(element)
                && let Value::Object(map) = &mut below
            {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(element.encode(), below);
        }
        Value::Object(out)
    }

    /// Reads the FieldsV1 notation; none when it is malformed.
    pub(crate) fn decode(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (key, below) in fields.as_object()? {
            if key == "." {
                continue;
            }
            let element = Element::decode(key)?;
            let map = below.as_object()?;
            if map.is_empty() || map.contains_key(".") {
                set.members.insert(element.clone());
            }
            let child = Self::decode(below)?;
            if !child.is_empty() {
                set.children.insert(element, child);
            }
        }
        Some(set)
    }
}
