//! The syntaxes of names, labels and annotations, with Kubernetes' explanations.

use std::sync::LazyLock;

use regex::Regex;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// A syntax: a regular expression with the words that explain it.
struct Syntax {
    regex: Regex,
    source: &'static str,
    words: &'static str,
    examples: &'static [&'static str],
}

impl Syntax {
    fn new(source: &'static str, words: &'static str, examples: &'static [&'static str]) -> Self {
        let regex = Regex::new(&format!("^(?:{source})$"))
            .expect("the syntaxes in this module are valid regular expressions");
        Self {
            regex,
            source,
            words,
            examples,
        }
    }

    fn check(&self, text: &str) -> Result<(), String> {
        if self.regex.is_match(text) {
            return Ok(());
        }
        Err(self.explain())
    }

    fn explain(&self) -> String {
        let examples: Vec<_> = self.examples.iter().map(|e| format!("'{e}'")).collect();
        let examples = examples.join(",  or ");
        format!(
            "{} (e.g. {examples}, regex used for validation is '{}')",
            self.words, self.source
        )
    }
}

static DNS1123_LABEL: LazyLock<Syntax> = LazyLock::new(|| {
    Syntax::new(
        LABEL,
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
         and must start and end with an alphanumeric character",
        &["my-name", "123-abc"],
    )
});

static DNS1123_SUBDOMAIN: LazyLock<Syntax> = LazyLock::new(|| {
    Syntax::new(
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
         '.', and must start and end with an alphanumeric character",
        &["example.com"],
    )
});

static WILDCARD_SUBDOMAIN: LazyLock<Syntax> = LazyLock::new(|| {
    Syntax::new(
        r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which \
         must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric \
         character",
        &["*.example.com"],
    )
});

static DNS1035_LABEL: LazyLock<Syntax> = LazyLock::new(|| {
    Syntax::new(
        "[a-z]([-a-z0-9]*[a-z0-9])?",
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
         alphabetic character, and end with an alphanumeric character",
        &["my-name", "abc-123"],
    )
});

static QUALIFIED: LazyLock<Syntax> = LazyLock::new(|| {
    Syntax::new(
        "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character",
        &["MyName", "my.name", "123-abc"],
    )
});

static LABEL_VALUE: LazyLock<Syntax> = LazyLock::new(|| {
    Syntax::new(
        "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
         '.', and must start and end with an alphanumeric character",
        &["MyValue", "my_value", "12345"],
    )
});

static CONFIG_KEY: LazyLock<Syntax> = LazyLock::new(|| {
    Syntax::new(
        "[-._a-zA-Z0-9]+",
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
        &["key.name", "KEY_NAME", "key-name"],
    )
});

/// The faults of `text` against a length and a syntax; empty when it is fine.
fn faults(text: &str, limit: usize, syntax: &Syntax) -> Vec<String> {
    let too_long = (text.len() > limit).then(|| format!("must be no more than {limit} characters"));
    too_long
        .into_iter()
        .chain(syntax.check(text).err())
        .collect()
}

/// Faults of a DNS label: lower case letters, digits and dashes, at most 63.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut found = faults(text, 63, &DNS1123_LABEL);
    if dns1123_subdomain(text).is_empty() && text.contains('.') {
        // A name that would do as a subdomain has a simpler fault than the syntax tells.
        found.pop();
        found.push("must not contain dots".to_owned());
    }
    found
}

/// Faults of a DNS subdomain: labels joined by dots, at most 253.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    faults(text, 253, &DNS1123_SUBDOMAIN)
}

/// Faults of a DNS subdomain below a star: `*.example.com`.
pub fn wildcard_subdomain(text: &str) -> Vec<String> {
    faults(text, 253, &WILDCARD_SUBDOMAIN)
}

/// Faults of a DNS label that starts with a letter, as services have it.
pub fn dns1035_label(text: &str) -> Vec<String> {
    faults(text, 63, &DNS1035_LABEL)
}

/// Faults of a label's or annotation's key: an optional subdomain, a slash and a name.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, rest)) if rest.contains('/') => {
            let why = QUALIFIED.explain();
            return vec![format!(
                "a valid label key {why} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                found.push("prefix part must be non-empty".to_owned());
            }
            let faults = if prefix.is_empty() {
                vec![]
            } else {
                dns1123_subdomain(prefix)
            };
            found.extend(faults.into_iter().map(|why| format!("prefix part {why}")));
            name
        }
    };
    if name.is_empty() {
        found.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        found.push("name part must be no more than 63 bytes".to_owned());
    }
    if let Err(why) = QUALIFIED.check(name) {
        found.push(format!("name part {why}"));
    }
    found
}

/// Faults of a label's value.
pub fn label_value(text: &str) -> Vec<String> {
    let too_long = (text.len() > 63).then(|| "must be no more than 63 bytes".to_owned());
    too_long
        .into_iter()
        .chain(LABEL_VALUE.check(text).err())
        .collect()
}

/// Faults of a key of a ConfigMap or Secret.
pub fn config_key(text: &str) -> Vec<String> {
    let mut found = faults(text, 253, &CONFIG_KEY);
    match text {
        "." => found.push("must not be '.'".to_owned()),
        ".." => found.push("must not be '..'".to_owned()),
        text if text.starts_with("..") => found.push("must not start with '..'".to_owned()),
        _ => {}
    }
    found
}

/// Faults of a name that must fit one segment of a URL's path.
pub fn path_segment(text: &str) -> Vec<String> {
    match text {
        "." | ".." => vec![format!("may not be '{text}'")],
        _ => ['/', '%']
            .into_iter()
            .filter(|c| text.contains(*c))
            .map(|c| format!("may not contain '{c}'"))
            .collect(),
    }
}

/// Faults of the name of a container's port.
pub fn port_name(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fault = |bad: bool, why: &str| {
        if bad {
            found.push(why.to_owned());
        }
    };
    fault(text.len() > 15, "must be no more than 15 characters");
    fault(
        !text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            || text.is_empty(),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    fault(
        !text.bytes().any(|b| b.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    fault(text.contains("--"), "must not contain consecutive hyphens");
    fault(
        text.starts_with('-') || text.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_explained_in_kubernetes_words() {
        let all = [
            dns1123_label("My_Name"),
            dns1123_label("a.b"),
            dns1123_subdomain("Bad_Name"),
            dns1035_label("1abc"),
            qualified_name("a/b/c"),
            qualified_name("/x"),
            qualified_name("Example.com/-x"),
            label_value("a b"),
            config_key("../x"),
            path_segment("a/b%"),
            port_name("-THIS--is-far-too-long"),
        ];
        insta::assert_debug_snapshot!(all);
        assert!(dns1123_label("my-name").is_empty());
        assert!(qualified_name("example.com/My.Name").is_empty());
        assert!(label_value("").is_empty());
    }
}
