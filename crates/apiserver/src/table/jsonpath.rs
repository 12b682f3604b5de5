//! The JSONPath that Kubernetes' columns and scale paths use.
//!
//! Fields (`.a`, `['a.b']`, `.a\.b`, `.*`), positions (`[0]`, `[-1]`, `[1:3]`, `[*]`), filters
//! (`[?(@.type=="Ready")]`) and descent (`..name`), with or without braces around.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Any,
    Descend(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    Filter(Filter),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    path: JsonPath,
    test: Option<(Operator, Value)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl JsonPath {
    /// Parses `text`; none when it is no path.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text
            .strip_prefix('{')
            .and_then(|t| t.strip_suffix('}'))
            .unwrap_or(text);
        let text = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            rest = if let Some(after) = rest.strip_prefix("..") {
                let (name, after) = name(after);
                steps.push(Step::Descend(name));
                after
            } else if let Some(after) = rest.strip_prefix('.') {
                let (name, after) = name(after);
                match name.as_str() {
                    "" => {}
                    "*" => steps.push(Step::Any),
                    _ => steps.push(Step::Field(name)),
                }
                after
            } else if let Some(after) = rest.strip_prefix('[') {
                let end = closing(after)?;
                steps.push(bracket(&after[..end])?);
                &after[end + 1..]
            } else if steps.is_empty() {
                let (name, after) = name(rest);
                steps.push(Step::Field(name));
                after
            } else {
                return None;
            };
        }
        Some(Self { steps })
    }

    /// All values the path leads to, in order.
    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for step in &self.steps {
            found = found
                .into_iter()
                .flat_map(|value| step.take(value))
                .collect();
        }
        found
    }
}

/// Reads a field's name up to the next dot or bracket; a backslash takes the next character as it is.
fn name(text: &str) -> (String, &str) {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => out.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (out, &text[i..]),
            c => out.push(c),
        }
    }
    (out, "")
}

/// Where the bracket that was opened before `text` closes.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (i, c) in text.char_indices() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => quote = Some(c),
            ('[', None) => depth += 1,
            (']', None) if depth == 0 => return Some(i),
            (']', None) => depth -= 1,
            _ => {}
        }
    }
    None
}

fn unquote(text: &str) -> Option<&str> {
    ['\'', '"']
        .iter()
        .find_map(|q| text.strip_prefix(*q)?.strip_suffix(*q))
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::Any);
    }
    if let Some(name) = unquote(text) {
        return Some(Step::Field(name.to_owned()));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        return Some(Step::Filter(self::filter(filter)?));
    }
    if let Some((start, end)) = text.split_once(':') {
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        };
        return Some(Step::Slice(bound(start)?, bound(end)?));
    }
    text.parse().ok().map(Step::Index)
}

fn filter(text: &str) -> Option<Filter> {
    const OPERATORS: [(&str, Operator); 6] = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessEqual),
        (">=", Operator::GreaterEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    let found = OPERATORS
        .iter()
        .find_map(|(sign, op)| Some((text.split_once(sign)?, *op)));
    let (left, test) = match found {
        Some(((left, right), operator)) => {
            let right = right.trim();
            let value = match unquote(right) {
                Some(text) => Value::from(text),
                None => serde_json::from_str(right).ok()?,
            };
            (left, Some((operator, value)))
        }
        None => (text, None),
    };
    let path = JsonPath::parse(left.trim().strip_prefix('@')?)?;
    Some(Filter { path, test })
}

impl Filter {
    fn accepts(&self, value: &Value) -> bool {
        let found = self.path.find(value);
        let Some((operator, wanted)) = &self.test else {
            return !found.is_empty();
        };
        found.first().is_some_and(|found| {
            let order = match (found, wanted) {
                (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
                (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
                _ => None,
            };
            match operator {
                Operator::Equal => found == &wanted,
                Operator::NotEqual => found != &wanted,
                Operator::Less => order.is_some_and(std::cmp::Ordering::is_lt),
                Operator::LessEqual => order.is_some_and(std::cmp::Ordering::is_le),
                Operator::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
                Operator::GreaterEqual => order.is_some_and(std::cmp::Ordering::is_ge),
            }
        })
    }
}

impl Step {
    fn take<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let place = |index: i64| if index < 0 { index + len } else { index };
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Any => match value {
                Value::Object(map) => map.values().collect(),
                _ => items.iter().collect(),
            },
            Self::Descend(name) => descend(value, name),
            Self::Index(index) => usize::try_from(place(*index))
                .ok()
                .and_then(|i| items.get(i))
                .into_iter()
                .collect(),
            Self::Slice(start, end) => {
                let from = place(start.unwrap_or(0)).clamp(0, len);
                let to = place(end.unwrap_or(len)).clamp(from, len);
                let index = |n: i64| usize::try_from(n).unwrap_or_default();
                items[index(from)..index(to)].iter().collect()
            }
            Self::Filter(filter) => items.iter().filter(|item| filter.accepts(item)).collect(),
        }
    }
}

fn descend<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = value.get(name).into_iter().collect();
    match value {
        Value::Object(map) => map
            .values()
            .for_each(|child| found.extend(descend(child, name))),
        Value::Array(items) => items
            .iter()
            .for_each(|child| found.extend(descend(child, name))),
        _ => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_where_kubectl_would_go() {
        let object = json!({
            "metadata": {"annotations": {"example.com/a.b": "x"}},
            "list": [{"n": 1, "type": "A"}, {"n": 2, "type": "B"}, {"n": 3, "type": "B"}],
        });
        let find = |path: &str| -> Value {
            JsonPath::parse(path)
                .expect(path)
                .find(&object)
                .into_iter()
                .cloned()
                .collect()
        };
        assert_eq!(find(".list[0].n"), json!([1]));
        assert_eq!(find("{.list[-1].n}"), json!([3]));
        assert_eq!(find(".list[*].n"), json!([1, 2, 3]));
        assert_eq!(find(".list[1:].n"), json!([2, 3]));
        assert_eq!(find(r#".list[?(@.type=="B")].n"#), json!([2, 3]));
        assert_eq!(find(".list[?(@.n>1)].type"), json!(["B", "B"]));
        assert_eq!(find(".list[?(@.missing)].n"), json!([]));
        assert_eq!(find("..n"), json!([1, 2, 3]));
        assert_eq!(
            find(r".metadata.annotations.example\.com/a\.b"),
            json!(["x"])
        );
        assert_eq!(
            find(".metadata.annotations['example.com/a.b']"),
            json!(["x"])
        );
        assert_eq!(find(".missing.deep"), json!([]));
        assert_eq!(JsonPath::parse(".a[").map(|_| ()), None);
    }
}
