//! What a walk over an object needs to know of its schema, whichever schema that is.
//!
//! Patches and server-side apply go over objects of custom and built-in kinds alike. [`Shape`] is
//! the view they share: the shape of a field, of a list's entries, and how a list or map is owned.

use serde_json::Value;

use crate::kinds::{self, Merge, Ty, TypeDef};
use crate::schema::{Additional, ListType, Node, Schema, Type};

/// The shape of a value.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a>(Inner<'a>);

#[derive(Debug, Clone, Copy)]
enum Inner<'a> {
    /// Nothing is known: objects have separate fields, lists are one value.
    Unknown,
    /// Part of a custom resource; the flag says whether it is a whole resource.
    Custom(&'a Node, bool),
    /// A type of Kubernetes' own.
    Definition(&'static TypeDef),
    /// A field of a type of Kubernetes' own.
    Field(&'static Ty),
}

impl<'a> Shape<'a> {
    /// The shape of objects about which nothing is known but their metadata.
    pub fn unknown() -> Self {
        Self(Inner::Unknown)
    }

    /// The shape of objects of a custom resource.
    pub fn custom(schema: &'a Schema) -> Self {
        Self(Inner::Custom(schema.root(), true))
    }

    pub(crate) fn built_in(definition: &'static TypeDef) -> Self {
        Self(Inner::Definition(definition))
    }

    fn ty(ty: &'static Ty) -> Self {
        match ty {
            Ty::Named(name) => kinds::lookup(name).map_or(Self::unknown(), Self::built_in),
            Ty::Object | Ty::Any => Self::unknown(),
            other => Self(Inner::Field(other)),
        }
    }

    /// The shape of object metadata.
    pub(crate) fn metadata() -> Self {
        kinds::lookup("meta.v1.ObjectMeta").map_or(Self::unknown(), Self::built_in)
    }

    /// The shape of the field called `name`.
    #[must_use]
    pub fn field(self, name: &str) -> Self {
        match self.0 {
            Inner::Custom(node, resource) => {
                if (resource || node.embedded) && name == "metadata" {
                    return Self::metadata();
                }
                match (node.properties.get(name), &node.additional) {
                    (Some(property), _) => Self(Inner::Custom(property, false)),
                    (None, Additional::Schema(sub)) => Self(Inner::Custom(sub, false)),
                    _ => Self::unknown(),
                }
            }
            Inner::Definition(definition) => definition
                .fields
                .get(name)
                .map_or(Self::unknown(), |field| Self::ty(&field.ty)),
            Inner::Field(Ty::Map(value, _)) => Self::ty(value),
            Inner::Field(_) | Inner::Unknown => Self::unknown(),
        }
    }

    /// The shape of the entries of a list.
    #[must_use]
    pub fn item(self) -> Self {
        match self.0 {
            Inner::Custom(node, _) => node
                .items
                .as_deref()
                .map_or(Self::unknown(), |sub| Self(Inner::Custom(sub, false))),
            Inner::Field(Ty::List(list)) => Self::ty(&list.item),
            _ => Self::unknown(),
        }
    }

    /// How a list of this shape is owned.
    pub(crate) fn list(self) -> &'a ListType {
        match self.0 {
            Inner::Custom(node, _) => &node.list,
            Inner::Field(Ty::List(list)) => &list.kind,
            _ => &ListType::Atomic,
        }
    }

    /// Whether an object of this shape is owned whole.
    pub(crate) fn is_atomic(self) -> bool {
        match self.0 {
            Inner::Custom(node, _) => node.atomic_map,
            Inner::Definition(definition) => definition.atomic,
            Inner::Field(Ty::Map(_, atomic)) => *atomic,
            Inner::Field(_) | Inner::Unknown => false,
        }
    }

    /// What field `name` of a list's entry is taken to be when it is missing.
    pub(crate) fn default_of(self, name: &str) -> Option<&'a Value> {
        match self.0 {
            Inner::Custom(node, _) => node.properties.get(name)?.default.as_ref(),
            Inner::Definition(definition) => definition.fields.get(name)?.default.as_ref(),
            _ => None,
        }
    }

    /// How a strategic merge patch treats field `name`.
    pub(crate) fn merge(self, name: &str) -> Merge {
        match self.0 {
            Inner::Definition(definition) => definition
                .fields
                .get(name)
                .map(|field| field.merge.clone())
                .unwrap_or_default(),
            _ => Merge::default(),
        }
    }

    /// Whether the schema names field `name`, as opposed to allowing any.
    pub(crate) fn declares(self, name: &str) -> bool {
        match self.0 {
            Inner::Definition(definition) => definition.fields.contains_key(name),
            Inner::Custom(node, resource) => {
                (resource || node.embedded) && is_meta(name) || node.properties.contains_key(name)
            }
            Inner::Field(_) | Inner::Unknown => false,
        }
    }

    /// Whether an object of this shape may have field `name`.
    pub(crate) fn knows(self, name: &str) -> bool {
        self.declares(name)
            || match self.0 {
                Inner::Custom(node, _) => {
                    node.preserve_unknown || !matches!(node.additional, Additional::None)
                }
                Inner::Field(Ty::Map(..)) | Inner::Unknown => true,
                Inner::Definition(_) | Inner::Field(_) => false,
            }
    }

    /// Fields that the Go type always has, even when JSON leaves them out, with their zero values.
    pub(crate) fn always_present(self) -> impl Iterator<Item = (&'static str, Value)> {
        let definition = match self.0 {
            Inner::Definition(definition) => Some(definition),
            _ => None,
        };
        let fields = definition.into_iter().flat_map(|d| &d.fields);
        fields.filter_map(|(name, field)| Some((*name, field.unset()?)))
    }

    /// The scalar that a value of this shape must be, if it must be one.
    pub(crate) fn scalar(self) -> Option<Scalar> {
        Some(match self.0 {
            Inner::Custom(node, _) => match node.kind {
                Some(Type::String) => Scalar::String,
                Some(Type::Integer | Type::Number) => Scalar::Numeric,
                Some(Type::Boolean) => Scalar::Boolean,
                None if node.int_or_string => Scalar::Untyped,
                _ => return None,
            },
            Inner::Field(ty) => match ty {
                Ty::String | Ty::Bytes => Scalar::String,
                Ty::Int32 | Ty::Int64 | Ty::Double => Scalar::Numeric,
                Ty::Bool => Scalar::Boolean,
                Ty::Time | Ty::MicroTime | Ty::Quantity | Ty::IntOrString => Scalar::Untyped,
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Whether values of this shape are lists.
    pub(crate) fn is_list(self) -> bool {
        match self.0 {
            Inner::Custom(node, _) => node.kind == Some(Type::Array),
            Inner::Field(ty) => matches!(ty, Ty::List(_)),
            _ => false,
        }
    }

    /// Whether values of this shape are objects.
    pub(crate) fn is_map(self) -> bool {
        match self.0 {
            Inner::Custom(node, _) => node.kind == Some(Type::Object),
            Inner::Field(ty) => matches!(ty, Ty::Map(..)),
            Inner::Definition(_) => true,
            Inner::Unknown => false,
        }
    }
}

/// What kind of scalar a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Numeric,
    Boolean,
    /// A string or a number.
    Untyped,
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}
