//! Property strings: `virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1`.
//!
//! A [`Format`] declares the keys once; from it come the check (with PVE's texts), the parsed
//! [`Values`] and the printed form (the default key first and bare, the others sorted).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{MISSING, Param, Rule, UNKNOWN, missing_required};
use crate::release::Release;

/// The declared keys of a property string.
#[derive(Debug, Default)]
pub(crate) struct Format {
    keys: BTreeMap<&'static str, Key>,
    default_key: Option<&'static str>,
    together: Option<Together>,
}

/// What the keys must satisfy together, once each of them is right.
type Together = fn(&Values, Release) -> Result<(), String>;

#[derive(Debug)]
enum Key {
    Value(Box<Rule>),
    /// Another name of the key.
    Alias(&'static str),
    /// `virtio=MAC` says `model=virtio,macaddr=MAC`: the name is a value of `names`, the value
    /// belongs to `values`.
    Both {
        names: &'static str,
        values: &'static str,
    },
}

/// Parsed keys and values.
pub(crate) type Values = BTreeMap<String, String>;

impl Format {
    /// A format with these keys.
    pub(crate) fn new(keys: impl IntoIterator<Item = Param>) -> Self {
        let keys = keys
            .into_iter()
            .map(|param| (param.name(), Key::Value(Box::new(param.into_rule()))))
            .collect();
        Self {
            keys,
            default_key: None,
            together: None,
        }
    }

    /// The key an item without `=` belongs to.
    #[must_use]
    pub(crate) fn default_key(mut self, key: &'static str) -> Self {
        self.default_key = Some(key);
        self
    }

    /// Must satisfy this as a whole, too.
    #[must_use]
    pub(crate) fn together(mut self, check: Together) -> Self {
        self.together = Some(check);
        self
    }

    /// Accepts `alias` in place of `key`.
    #[must_use]
    pub(crate) fn alias(mut self, alias: &'static str, key: &'static str) -> Self {
        self.keys.insert(alias, Key::Alias(key));
        self
    }

    /// Accepts `name=value` for `names=name,values=value`, for every one of `list`.
    #[must_use]
    pub(crate) fn key_alias(
        mut self,
        list: &[&'static str],
        names: &'static str,
        values: &'static str,
    ) -> Self {
        for name in list {
            self.keys.insert(name, Key::Both { names, values });
        }
        self
    }

    /// Ready to be shared by routes.
    pub(crate) fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// Checks `text`; `path` is the option's name, which prefixes the lines of the error.
    pub(crate) fn check(&self, path: &str, text: &str, release: Release) -> Result<Values, String> {
        let values = self.split(text)?;
        let mut lines = Vec::new();
        for key in values.keys() {
            if !matches!(self.keys.get(key.as_str()), Some(Key::Value(_))) {
                lines.push(format!("{path}.{key}: {UNKNOWN}\n"));
            }
        }
        for (name, key) in &self.keys {
            let Key::Value(rule) = key else { continue };
            match values.get(*name) {
                Some(value) => {
                    let here = format!("{path}.{name}");
                    if let Err(error) = rule.check_value(&here, value, release) {
                        lines.push(format!("{here}: {error}\n"));
                    }
                    if let Some(other) = rule.requires.filter(|it| !values.contains_key(*it)) {
                        let text = missing_required(&here, release);
                        lines.push(format!("{path}.{other}: {text}\n"));
                    }
                }
                None if !rule.optional => lines.push(format!("{path}.{name}: {MISSING}\n")),
                None => {}
            }
        }
        if lines.is_empty() {
            match self.together {
                Some(check) => check(&values, release).map(|()| values),
                None => Ok(values),
            }
        } else {
            // The caller ends the text with a newline of its own.
            Err(format!("format error\n{}", lines.concat())
                .trim_end_matches('\n')
                .to_owned()
                + if lines.concat().ends_with("\n\n") {
                    "\n"
                } else {
                    ""
                })
        }
    }

    /// Parses a text known to be valid; unknown keys are kept.
    pub(crate) fn parse(&self, text: &str) -> Values {
        self.split(text).unwrap_or_default()
    }

    fn split(&self, text: &str) -> Result<Values, String> {
        let mut values = Values::new();
        let mut put = |key: &str, value: &str| match values.insert(key.to_owned(), value.to_owned())
        {
            None => Ok(()),
            Some(_) => Err(format!(
                "duplicate key in comma-separated list property: {key}"
            )),
        };
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            match part.split_once('=') {
                Some(("", _)) => {
                    return Err("missing key in comma-separated list property".to_owned());
                }
                Some((key, value)) => match self.keys.get(key) {
                    Some(Key::Alias(real)) => put(real, value)?,
                    Some(Key::Both { names, values }) => {
                        put(names, key)?;
                        put(values, value)?;
                    }
                    _ => put(key, value)?,
                },
                None => match self.default_key {
                    Some(key) => put(key, part)?,
                    None => {
                        return Err(
                            "value without key, but schema does not define a default key"
                                .to_owned(),
                        );
                    }
                },
            }
        }
        Ok(values)
    }

    /// Prints `values` as PVE does.
    pub(crate) fn print(&self, values: &Values) -> String {
        let mut parts = Vec::new();
        let mut done = Vec::new();
        let both = self.keys.iter().find_map(|(name, key)| match key {
            Key::Both { names, values: of }
                if values.get(*names).is_some_and(|v| v == name) && values.contains_key(*of) =>
            {
                Some((*name, *names, *of))
            }
            _ => None,
        });
        if let Some((name, names, of)) = both {
            parts.push(format!("{name}={}", values[of]));
            done.extend([names, of]);
        } else if let Some(key) = self.default_key
            && let Some(value) = values.get(key)
        {
            parts.push(value.clone());
            done.push(key);
        }
        let rest = values
            .iter()
            .filter(|(key, _)| !done.contains(&key.as_str()));
        parts.extend(rest.map(|(key, value)| format!("{key}={value}")));
        parts.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{choice, flag, format, int, text};
    use super::*;

    fn net() -> Format {
        let models = ["e1000", "virtio"];
        Format::new([
            choice("model", &models),
            text("macaddr").format(format::MAC).optional(),
            text("bridge").optional(),
            flag("firewall"),
            int("tag").min(1).max(4094).optional(),
        ])
        .default_key("model")
        .key_alias(&models, "model", "macaddr")
    }

    fn error(format: &Format, text: &str) -> String {
        format.check("net0", text, Release::V9_2).unwrap_err()
    }

    #[test]
    fn a_model_with_an_address_is_two_keys_in_one() {
        let values = net().parse("virtio=BC:24:11:00:00:01,tag=5,bridge=vmbr0");
        assert_eq!(values["model"], "virtio");
        assert_eq!(values["macaddr"], "BC:24:11:00:00:01");
        assert_eq!(
            net().print(&values),
            "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=5"
        );
    }

    #[test]
    fn errors_name_option_and_key() {
        assert_eq!(
            error(&net(), "bogus"),
            "format error\nnet0.model: value 'bogus' does not have a value in the enumeration \
             'e1000, virtio'"
        );
        assert_eq!(
            error(&net(), "virtio,foo=1"),
            format!("format error\nnet0.foo: {UNKNOWN}")
        );
    }

    #[test]
    fn a_duplicate_key_is_refused() {
        assert_eq!(
            error(&net(), "virtio,tag=1,tag=2"),
            "duplicate key in comma-separated list property: tag"
        );
    }

    #[test]
    fn a_nested_format_error_keeps_its_empty_line() {
        let format = Format::new([text("mac").format(format::MAC)]);
        assert_eq!(
            error(&format, "mac=x"),
            "format error\nnet0.mac: invalid format - value does not look like a valid unicast \
             MAC address\n"
        );
    }
}
