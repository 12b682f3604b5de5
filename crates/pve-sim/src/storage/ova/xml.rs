//! As much XML as descriptions of appliances need: elements, attributes, text.
//!
//! Prefixes of names are dropped, since descriptions use whichever they like; what is malformed is
//! read as far as it goes.

/// An element with all that is in it.
#[derive(Debug, Default)]
pub(super) struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
    children: Vec<Element>,
}

/// How deep elements are followed; no description goes as deep.
const DEPTH: usize = 64;

fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

fn plain(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

impl Element {
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let mut all = self.attributes.iter();
        all.find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> &str {
        self.text.trim()
    }

    /// All elements of this name below, in the order of the document.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> Box<dyn Iterator<Item = &'a Element> + 'a> {
        Box::new(self.children.iter().flat_map(move |child| {
            let own = (child.name == name).then_some(child);
            own.into_iter().chain(child.all(name))
        }))
    }

    fn open(tag: &str) -> Self {
        let (name, mut rest) = tag
            .split_once(|c: char| c.is_whitespace())
            .unwrap_or((tag, ""));
        let mut element = Self {
            name: local(name).to_owned(),
            ..Self::default()
        };
        while let Some((name, after)) = rest.split_once('=') {
            let after = after.trim_start();
            let Some(quote) = after.chars().next().filter(|c| *c == '"' || *c == '\'') else {
                break;
            };
            let Some((value, after)) = after[1..].split_once(quote) else {
                break;
            };
            let name = local(name.trim()).to_owned();
            element.attributes.push((name, plain(value)));
            rest = after;
        }
        element
    }
}

/// The element that holds the whole document.
pub(super) fn parse(text: &str) -> Element {
    let mut open = vec![Element::default()];
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        if let Some(inner) = open.last_mut() {
            inner.text.push_str(&plain(before));
        }
        if let Some(comment) = after.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let Some((tag, after)) = after.split_once('>') else {
            break;
        };
        rest = after;
        if tag.starts_with(['?', '!']) {
            continue;
        }
        if tag.starts_with('/') {
            close(&mut open);
            continue;
        }
        let element = Element::open(tag.trim_end_matches('/'));
        if tag.ends_with('/') || open.len() >= DEPTH {
            if let Some(inner) = open.last_mut() {
                inner.children.push(element);
            }
        } else {
            open.push(element);
        }
    }
    while open.len() > 1 {
        close(&mut open);
    }
    open.pop().unwrap_or_default()
}

/// Puts the innermost element where it belongs; the document itself stays.
fn close(open: &mut Vec<Element>) {
    if open.len() > 1
        && let Some(done) = open.pop()
        && let Some(outer) = open.last_mut()
    {
        outer.children.push(done);
    }
}
