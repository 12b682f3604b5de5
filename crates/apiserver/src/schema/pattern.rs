//! Patterns in Go's dialect.
//!
//! Schemas are written for Go's regular expressions. Rust's are nearly the same language; the
//! differences that matter are translated: `\d`, `\w`, `\s` and `\b` mean ASCII in Go, a `[` inside of
//! a class is itself, and a `{` that starts no repetition is itself.

use regex::{Regex, RegexBuilder};

/// A compiled pattern that remembers how it was written.
#[derive(Debug)]
pub(crate) struct Pattern {
    source: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles `source`.
    pub(crate) fn new(source: &str) -> Result<Self, regex::Error> {
        let regex = RegexBuilder::new(&translate(source))
            .size_limit(64 << 20)
            .build()?;
        Ok(Self {
            source: source.to_owned(),
            regex,
        })
    }

    /// Whether the pattern is found anywhere in `text`.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The pattern as written.
    pub(crate) fn as_str(&self) -> &str {
        &self.source
    }
}

fn translate(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut class = false;
    let mut i = 0;
    while let Some(&c) = chars.get(i) {
        let next = chars.get(i + 1).copied();
        match (c, next) {
            ('\\', Some(next)) => {
                out.push_str(&escape(next, class));
                i += 1;
            }
            ('[', Some(':')) if class => {
                // A named class such as `[:alpha:]`: copy it whole.
                while let Some(&c) = chars.get(i) {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                    i += 1;
                }
            }
            ('[', _) if class => out.push_str("\\["),
            ('[', _) => {
                class = true;
                out.push('[');
                if next == Some('^') {
                    out.push('^');
                    i += 1;
                }
                if chars.get(i + 1) == Some(&']') {
                    out.push_str("\\]");
                    i += 1;
                }
            }
            (']', _) if class => {
                class = false;
                out.push(']');
            }
            ('&' | '~', Some(next)) if class && next == c => {
                out.push('\\');
                out.push(c);
            }
            ('-', Some('-')) if class => out.push_str("\\-"),
            ('{', _) if !class && !is_repetition(&chars[i..]) => out.push_str("\\{"),
            _ => out.push(c),
        }
        i += 1;
    }
    out
}

fn escape(c: char, class: bool) -> String {
    match c {
        'd' => "[0-9]".into(),
        'D' => "[^0-9]".into(),
        'w' => "[0-9A-Za-z_]".into(),
        'W' => "[^0-9A-Za-z_]".into(),
        's' => r"[\t\n\f\r ]".into(),
        'S' => r"[^\t\n\f\r ]".into(),
        'b' | 'B' if !class => format!(r"(?-u:\{c})"),
        c => format!("\\{c}"),
    }
}

/// Whether `chars`, which start with a brace, are `{n}`, `{n,}` or `{n,m}`.
fn is_repetition(chars: &[char]) -> bool {
    let inner: String = chars[1..].iter().take_while(|c| **c != '}').collect();
    let closed = chars.len() > inner.chars().count() + 1;
    let (low, high) = inner.split_once(',').unwrap_or((&inner, ""));
    let number = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    closed && !low.is_empty() && number(low) && number(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        for (pattern, yes, no) in [
            (r"^\d+$", "12", "١٢"),
            (r"^[\w.]+$", "a_b.c", "ä"),
            (r"^[[a]+$", "[a", "b"),
            (r"^[]a]+$", "]a", "b"),
            (r"^{x}$", "{x}", "x"),
            (r"^a{2}$", "aa", "a"),
            (r"^[[:alpha:]-]+$", "a-b", "1"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^\/x\-y$", "/x-y", "x"),
            (r"\bfoo\b", "a foo", "afoo"),
        ] {
            let compiled = Pattern::new(pattern).expect(pattern);
            assert!(compiled.is_match(yes), "{pattern} {yes}");
            assert!(!compiled.is_match(no), "{pattern} {no}");
            assert_eq!(compiled.as_str(), pattern);
        }
        assert!(Pattern::new("(").is_err());
    }
}
