//! Declares the parameters of a call once, and checks them with PVE's own texts.
//!
//! A route lists its parameters with the small builders here:
//!
//! ```ignore
//! params([
//!     vmid("vmid"),
//!     int("cores").min(1).optional(),
//!     text("name").format(format::DNS_NAME).optional(),
//!     text("net").property(&NET).indexed(32).optional(), // net0 … net31
//! ])
//! ```
//!
//! [`Schema::check`] reports all errors of one call together, as PVE does. Values of the form
//! `key=value,key=value` ("property strings") are declared by a [`property::Format`], checked by
//! the same rules, and parsed and printed through it.

pub(crate) mod format;
pub(crate) mod property;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::params::{Params, Raw};
use crate::release::Release;

pub(crate) use format::Format;

/// The type PVE checks a value against first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    String,
    /// A whole number.
    Integer,
    /// A decimal number.
    Number,
    /// `0` or `1`.
    Boolean,
    /// A repeated key or JSON array.
    Array,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
        }
    }

    fn accepts(self, value: &str) -> bool {
        match self {
            Self::String | Self::Array => true,
            Self::Boolean => value == "0" || value == "1",
            Self::Integer => is_integer(value),
            Self::Number => is_number(value),
        }
    }
}

fn is_integer(value: &str) -> bool {
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

fn is_number(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+' || c == '.')
        && value.parse::<f64>().is_ok_and(f64::is_finite)
}

/// What a value must satisfy.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) kind: Kind,
    pub(crate) optional: bool,
    min: Option<f64>,
    max: Option<f64>,
    min_len: Option<usize>,
    max_len: Option<usize>,
    choices: Vec<Cow<'static, str>>,
    pattern: Option<fn(&str) -> bool>,
    format: Option<Format>,
    default: Option<&'static str>,
    requires: Option<&'static str>,
}

/// One declared parameter, or a numbered family of them.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    name: &'static str,
    count: Option<u16>,
    rule: Rule,
}

fn param(name: &'static str, kind: Kind) -> Param {
    let rule = Rule {
        kind,
        optional: false,
        min: None,
        max: None,
        min_len: None,
        max_len: None,
        choices: Vec::new(),
        pattern: None,
        format: None,
        default: None,
        requires: None,
    };
    Param {
        name,
        count: None,
        rule,
    }
}

/// A parameter that is text.
pub(crate) fn text(name: &'static str) -> Param {
    param(name, Kind::String)
}

/// A parameter that is a whole number.
pub(crate) fn int(name: &'static str) -> Param {
    param(name, Kind::Integer)
}

/// A parameter that is a decimal number.
pub(crate) fn number(name: &'static str) -> Param {
    param(name, Kind::Number)
}

/// A parameter that is `0` or `1`. Nearly all are optional, so this one is.
pub(crate) fn flag(name: &'static str) -> Param {
    param(name, Kind::Boolean).optional()
}

/// A parameter that may be repeated.
pub(crate) fn array(name: &'static str) -> Param {
    param(name, Kind::Array)
}

/// A parameter that is one of `choices`.
pub(crate) fn choice(name: &'static str, choices: &[&'static str]) -> Param {
    let mut it = param(name, Kind::String);
    it.rule.choices = choices.iter().map(|it| Cow::Borrowed(*it)).collect();
    it
}

/// A parameter that is one of many numbered choices.
pub(crate) fn one_of(name: &'static str, choices: impl IntoIterator<Item = String>) -> Param {
    let mut it = param(name, Kind::String);
    it.rule.choices = choices.into_iter().map(Cow::Owned).collect();
    it
}

/// A required guest id.
pub(crate) fn vmid(name: &'static str) -> Param {
    int(name).format(format::VMID).min(100).max(999_999_999)
}

/// A required node name: `node`.
pub(crate) fn node() -> Param {
    text("node").format(format::NODE)
}

/// An optional digest of the configuration the caller has seen.
pub(crate) fn digest() -> Param {
    text("digest").max_len(64).optional()
}

/// The same of a guest's configuration, which has always been a SHA-1.
pub(crate) fn guest_digest() -> Param {
    text("digest").max_len(40).optional()
}

impl Param {
    /// May be left out.
    #[must_use]
    pub(crate) fn optional(mut self) -> Self {
        self.rule.optional = true;
        self
    }

    /// Must be given, where the builder says otherwise.
    #[must_use]
    pub(crate) fn required(mut self) -> Self {
        self.rule.optional = false;
        self
    }

    /// Must be at least `min`.
    #[must_use]
    pub(crate) fn min(mut self, min: impl Into<f64>) -> Self {
        self.rule.min = Some(min.into());
        self
    }

    /// Must be at most `max`.
    #[must_use]
    pub(crate) fn max(mut self, max: impl Into<f64>) -> Self {
        self.rule.max = Some(max.into());
        self
    }

    /// Must have at least `len` characters.
    #[must_use]
    pub(crate) fn min_len(mut self, len: usize) -> Self {
        self.rule.min_len = Some(len);
        self
    }

    /// Must have at most `len` characters.
    #[must_use]
    pub(crate) fn max_len(mut self, len: usize) -> Self {
        self.rule.max_len = Some(len);
        self
    }

    /// Must satisfy `pattern`, which stands for an anchored regular expression.
    #[must_use]
    pub(crate) fn pattern(mut self, pattern: fn(&str) -> bool) -> Self {
        self.rule.pattern = Some(pattern);
        self
    }

    /// Must have this format.
    #[must_use]
    pub(crate) fn format(mut self, format: Format) -> Self {
        self.rule.format = Some(format);
        self
    }

    /// Is a property string of this format.
    #[must_use]
    pub(crate) fn property(self, format: &Arc<property::Format>) -> Self {
        self.format(Format::Property(Arc::clone(format)))
    }

    /// Has this value when left out.
    #[must_use]
    pub(crate) fn default(mut self, value: &'static str) -> Self {
        self.rule.optional = true;
        self.rule.default = Some(value);
        self
    }

    /// May only be given together with `other`.
    #[must_use]
    pub(crate) fn requires(mut self, other: &'static str) -> Self {
        self.rule.requires = Some(other);
        self
    }

    /// Stands for `name0` to `name{count-1}`.
    #[must_use]
    pub(crate) fn indexed(mut self, count: u16) -> Self {
        self.count = Some(count);
        self
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn into_rule(self) -> Rule {
        self.rule
    }
}

/// The declared parameters of one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    rules: BTreeMap<String, Arc<Rule>>,
}

const UNKNOWN: &str =
    "property is not defined in schema and the schema does not allow additional properties";
const MISSING: &str = "property is missing and it is not optional";

impl Schema {
    /// A schema of these parameters.
    pub(crate) fn new(params: impl IntoIterator<Item = Param>) -> Self {
        let mut schema = Self::default();
        schema.extend(params);
        schema
    }

    /// Adds parameters, replacing those of the same name.
    pub(crate) fn extend(&mut self, params: impl IntoIterator<Item = Param>) {
        for Param { name, count, rule } in params {
            let rule = Arc::new(rule);
            match count {
                None => {
                    self.rules.insert(name.to_owned(), rule);
                }
                Some(count) => self
                    .rules
                    .extend((0..count).map(|index| (format!("{name}{index}"), Arc::clone(&rule)))),
            }
        }
    }

    /// Whether `name` is declared.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.rules.contains_key(name)
    }

    /// The kind of `name`, if declared.
    pub(crate) fn kind(&self, name: &str) -> Option<Kind> {
        self.rules.get(name).map(|rule| rule.kind)
    }

    /// Checks `params` and fills in declared defaults; all errors by parameter otherwise.
    pub(crate) fn check(
        &self,
        params: &mut Params,
        release: Release,
    ) -> Result<(), BTreeMap<String, String>> {
        let mut errors = BTreeMap::new();
        for (name, raw) in params.raws() {
            let Some(rule) = self.rules.get(name) else {
                errors.insert(name.to_owned(), UNKNOWN.to_owned());
                continue;
            };
            if let Err(error) = rule.check_raw(name, raw, release) {
                errors.insert(name.to_owned(), error);
            }
            if let Some(other) = rule.requires
                && !params.has(other)
            {
                errors.insert(other.to_owned(), missing_required(name, release));
            }
        }
        for (name, rule) in &self.rules {
            if !params.has(name) {
                if let Some(default) = rule.default {
                    params.set(name, default);
                } else if !rule.optional {
                    errors
                        .entry(name.clone())
                        .or_insert_with(|| MISSING.to_owned());
                }
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }
}

fn missing_required(by: &str, release: Release) -> String {
    if release.is_9() {
        format!("missing property required by '{by}'")
    } else {
        format!("missing property - '{by}' requires this property")
    }
}

impl Rule {
    fn check_raw(&self, path: &str, raw: &Raw, release: Release) -> Result<(), String> {
        match (self.kind, raw) {
            (Kind::Array, Raw::Many(values)) => values
                .iter()
                .try_for_each(|value| self.check_value(path, value, release)),
            (_, Raw::One(value)) => self.check_value(path, value, release),
            (kind, Raw::Many(_)) => {
                Err(format!("type check ('{}') failed - got ARRAY", kind.name()))
            }
        }
    }

    /// Checks one value; `path` names it in the errors of property strings.
    pub(crate) fn check_value(
        &self,
        path: &str,
        value: &str,
        release: Release,
    ) -> Result<(), String> {
        if !self.kind.accepts(value) {
            return Err(format!(
                "type check ('{}') failed - got '{value}'",
                self.kind.name()
            ));
        }
        if let Some(format) = &self.format {
            format
                .check(path, value, release)
                .map_err(|error| format!("invalid format - {error}\n"))?;
        }
        if self.pattern.is_some_and(|matches| !matches(value)) {
            return Err("value does not match the regex pattern".to_owned());
        }
        let len = value.chars().count();
        if let Some(max) = self.max_len.filter(|max| len > *max) {
            return Err(format!("value may only be {max} characters long"));
        }
        if let Some(min) = self.min_len.filter(|min| len < *min) {
            return Err(format!("value must be at least {min} characters long"));
        }
        if let Ok(number) = value.parse::<f64>() {
            if let Some(max) = self.max.filter(|max| number > *max) {
                return Err(format!("value must have a maximum value of {max}"));
            }
            if let Some(min) = self.min.filter(|min| number < *min) {
                return Err(format!("value must have a minimum value of {min}"));
            }
        }
        if !self.choices.is_empty() && !self.choices.iter().any(|it| it == value) {
            return Err(format!(
                "value '{value}' does not have a value in the enumeration '{}'",
                self.choices.join(", ")
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(schema: &Schema, pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut params = Params::new();
        for (name, value) in pairs {
            params.set(*name, *value);
        }
        schema
            .check(&mut params, Release::V9_2)
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn all_errors_of_one_call_are_reported_together() {
        let schema = Schema::new([vmid("vmid"), int("cores").min(1).optional(), text("must")]);
        let found = errors(&schema, &[("vmid", "5"), ("cores", "0"), ("bogus", "1")]);
        assert_eq!(
            found["vmid"],
            "invalid format - value does not look like a valid VM ID\n"
        );
        assert_eq!(found["cores"], "value must have a minimum value of 1");
        assert_eq!(found["bogus"], UNKNOWN);
        assert_eq!(found["must"], MISSING);
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn the_type_is_checked_before_anything_else() {
        let schema = Schema::new([vmid("vmid"), flag("onboot")]);
        let found = errors(&schema, &[("vmid", "abc"), ("onboot", "yes")]);
        assert_eq!(found["vmid"], "type check ('integer') failed - got 'abc'");
        assert_eq!(found["onboot"], "type check ('boolean') failed - got 'yes'");
    }

    #[test]
    fn an_indexed_parameter_stands_for_its_numbers_only() {
        let schema = Schema::new([text("scsi").indexed(31).optional()]);
        assert!(errors(&schema, &[("scsi30", "x")]).is_empty());
        assert_eq!(errors(&schema, &[("scsi31", "x")])["scsi31"], UNKNOWN);
        assert_eq!(errors(&schema, &[("scsi", "x")])["scsi"], UNKNOWN);
    }

    #[test]
    fn the_dependency_text_differs_between_releases() {
        let schema = Schema::new([text("a").requires("b").optional(), text("b").optional()]);
        let mut params = Params::new();
        params.set("a", "1");
        let on_8 = schema
            .check(&mut params.clone(), Release::V8_4)
            .unwrap_err();
        assert_eq!(on_8["b"], "missing property - 'a' requires this property");
        let on_9 = schema.check(&mut params, Release::V9_2).unwrap_err();
        assert_eq!(on_9["b"], "missing property required by 'a'");
    }
}
