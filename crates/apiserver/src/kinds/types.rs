//! The parsed table of types.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::schema::ListType;

static SOURCE: &str = include_str!("types.txt");

static TYPES: LazyLock<BTreeMap<&'static str, TypeDef>> = LazyLock::new(|| parse(SOURCE));

static KINDS: LazyLock<BTreeMap<(&'static str, &'static str, &'static str), &'static str>> =
    LazyLock::new(|| {
        TYPES
            .values()
            .filter_map(|t| {
                t.gvk
                    .as_ref()
                    .map(|gvk| ((gvk.group, gvk.version, gvk.kind), t.name))
            })
            .collect()
    });

/// A group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gvk {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
}

/// A type with its fields.
#[derive(Debug)]
pub(crate) struct TypeDef {
    pub(crate) name: &'static str,
    pub(crate) gvk: Option<Gvk>,
    pub(crate) atomic: bool,
    pub(crate) fields: BTreeMap<&'static str, Field>,
}

impl TypeDef {
    /// The type's name as Go code has it, such as `v1.PodSpec`.
    pub(crate) fn go_name(&self) -> String {
        let mut parts = self.name.rsplit('.');
        let last = parts.next().unwrap_or_default();
        format!("{}.{last}", parts.next().unwrap_or_default())
    }

    /// The type's name alone, such as `PodSpec`.
    pub(crate) fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }
}

/// A field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) ty: Ty,
    pub(crate) required: bool,
    /// Whether Go has a pointer here, so that it can be missing.
    pub(crate) pointer: bool,
    /// Whether it is not written when missing or zero.
    pub(crate) omit: bool,
    /// Whether the Go type always has it: an embedded struct rather than a pointer to one.
    pub(crate) present: bool,
    pub(crate) default: Option<Value>,
    /// How strategic merge patches treat it.
    pub(crate) merge: Merge,
}

impl Field {
    /// What is written when nobody set it: nothing, or a zero.
    pub(crate) fn unset(&self) -> Option<Value> {
        match (self.omit, self.pointer) {
            (true, _) => None,
            (false, true) => Some(Value::Null),
            (false, false) => Some(self.ty.zero()),
        }
    }
}

impl Ty {
    /// The value of a Go variable of this type to which nothing was assigned.
    pub(crate) fn zero(&self) -> Value {
        match self {
            Self::String => json!(""),
            Self::Int32 | Self::Int64 | Self::Double | Self::IntOrString => json!(0),
            Self::Bool => json!(false),
            Self::Quantity => json!("0"),
            Self::Named(_) => json!({}),
            Self::Bytes
            | Self::Time
            | Self::MicroTime
            | Self::Object
            | Self::Any
            | Self::List(_)
            | Self::Map(..) => Value::Null,
        }
    }
}

/// How a strategic merge patch treats a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Merge {
    /// Whether lists are merged rather than replaced.
    pub(crate) lists: bool,
    /// The field that tells entries apart; none for lists of scalars.
    pub(crate) key: Option<&'static str>,
    /// Whether a patch may say which fields to keep.
    pub(crate) retain: bool,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ty {
    String,
    Int32,
    Int64,
    Double,
    Bool,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// An object without a schema.
    Object,
    /// Anything.
    Any,
    Named(&'static str),
    List(Box<List>),
    /// A map of strings to values, and whether it is owned whole.
    Map(Box<Ty>, bool),
}

/// A list's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) item: Ty,
    pub(crate) kind: ListType,
}

/// The type called `name`.
pub(crate) fn lookup(name: &str) -> Option<&'static TypeDef> {
    TYPES.get(name)
}

/// All types, by name.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static TypeDef> {
    TYPES.values()
}

/// The type of a kind.
pub(crate) fn kind_of(group: &str, version: &str, kind: &str) -> Option<&'static TypeDef> {
    lookup(KINDS.get(&(group, version, kind))?)
}

fn parse(source: &'static str) -> BTreeMap<&'static str, TypeDef> {
    let mut types = BTreeMap::new();
    let mut current: Option<TypeDef> = None;
    for line in source.lines().filter(|line| !line.starts_with('#')) {
        if let Some(line) = line.strip_prefix(' ') {
            if let (Some(definition), Some((name, field))) = (&mut current, field(line)) {
                definition.fields.insert(name, field);
            }
        } else if let Some(done) = current.replace(heading(line)) {
            types.insert(done.name, done);
        }
    }
    types.extend(current.map(|done| (done.name, done)));
    types
}

fn heading(line: &'static str) -> TypeDef {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    let (mut gvk, mut atomic) = (None, false);
    for word in words {
        if let Some(text) = word.strip_prefix('@') {
            let mut parts = text.split('/');
            let mut part = || parts.next().unwrap_or_default();
            gvk = Some(Gvk {
                group: part(),
                version: part(),
                kind: part(),
            });
        }
        atomic |= word == "atomic";
    }
    TypeDef {
        name,
        gvk,
        atomic,
        fields: BTreeMap::new(),
    }
}

fn field(line: &'static str) -> Option<(&'static str, Field)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let mut ty = ty(words.next()?);
    let (mut default, mut merge, mut present) = (None, Merge::default(), false);
    let (mut pointer, mut omit) = (false, false);
    for word in words {
        if let Some(keys) = word.strip_prefix("map=") {
            if let Ty::List(list) = &mut ty {
                list.kind = ListType::Map(keys.split(',').map(str::to_owned).collect());
            }
        } else if let Some(key) = word.strip_prefix("merge=") {
            merge.lists = true;
            merge.key = Some(key);
        } else if word == "={}" {
            present = true;
        } else if let Some(text) = word.strip_prefix('=') {
            let plain = || Value::String(text.to_owned());
            default = Some(match ty {
                Ty::String => plain(),
                _ => serde_json::from_str(text).unwrap_or_else(|_| plain()),
            });
        } else {
            match (word, &mut ty) {
                ("set", Ty::List(list)) => list.kind = ListType::Set,
                ("atomic", Ty::Map(_, atomic)) => *atomic = true,
                ("ptr", _) => pointer = true,
                ("omit", _) => omit = true,
                ("merge", _) => merge.lists = true,
                ("retain", _) => merge.retain = true,
                _ => {}
            }
        }
    }
    let plain = name.strip_suffix('!');
    let field = Field {
        ty,
        required: plain.is_some(),
        pointer,
        omit,
        present,
        default,
        merge,
    };
    Some((plain.unwrap_or(name), field))
}

fn ty(text: &'static str) -> Ty {
    if let Some(item) = text.strip_prefix("[]") {
        return Ty::List(Box::new(List {
            item: ty(item),
            kind: ListType::Atomic,
        }));
    }
    if let Some(value) = text.strip_prefix("{}") {
        return Ty::Map(Box::new(ty(value)), false);
    }
    match text {
        "string" => Ty::String,
        "int32" => Ty::Int32,
        "int64" => Ty::Int64,
        "double" => Ty::Double,
        "bool" => Ty::Bool,
        "bytes" => Ty::Bytes,
        "time" => Ty::Time,
        "microtime" => Ty::MicroTime,
        "quantity" => Ty::Quantity,
        "intstr" => Ty::IntOrString,
        "object" => Ty::Object,
        "any" => Ty::Any,
        name => Ty::Named(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_knows_types_and_how_their_lists_merge() {
        let pod = kind_of("", "v1", "Pod").expect("pods are known");
        assert_eq!(pod.fields["spec"].ty, Ty::Named("core.v1.PodSpec"));
        let ports = &lookup("core.v1.Container")
            .expect("containers are known")
            .fields["ports"];
        assert_eq!(ports.merge.key, Some("containerPort"));
        let Ty::List(list) = &ports.ty else {
            panic!("ports are a list")
        };
        assert_eq!(
            list.kind,
            ListType::Map(vec!["containerPort".into(), "protocol".into()])
        );
        let protocol = &lookup("core.v1.ContainerPort")
            .expect("ports are known")
            .fields["protocol"];
        assert_eq!(protocol.default, Some("TCP".into()));
    }

    #[test]
    fn every_named_type_is_in_the_table() {
        fn check(ty: &Ty) {
            match ty {
                Ty::Named(name) => assert!(lookup(name).is_some(), "{name}"),
                Ty::List(list) => check(&list.item),
                Ty::Map(value, _) => check(value),
                _ => {}
            }
        }
        for definition in all() {
            definition
                .fields
                .values()
                .for_each(|field| check(&field.ty));
        }
    }
}
