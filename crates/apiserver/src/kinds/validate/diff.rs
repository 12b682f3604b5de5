//! What changed between two values that may not differ, for people.

use serde_json::Value;

/// Lines around a change that are shown with it.
const CONTEXT: usize = 3;

/// The lines that differ between two values written out, as `diff -u` shows them.
pub(super) fn unified(old: &Value, new: &Value) -> String {
    let write = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let (old, new) = (write(old), write(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same;
    let (backwards, other) = (old.iter().rev(), new.iter().rev());
    let tail = backwards.zip(other).take(rest).take_while(|(a, b)| a == b);
    let tail = tail.count();
    let first = same.saturating_sub(CONTEXT);
    let end = |lines: &[&str]| (lines.len() - tail + CONTEXT).min(lines.len());
    let mut out = format!(
        "@@ -{0},{1} +{0},{2} @@\n",
        first + 1,
        end(&old) - first,
        end(&new) - first
    );
    let mut add = |mark: char, lines: &[&str]| {
        for line in lines {
            out.push(mark);
            out.push_str(line);
            out.push('\n');
        }
    };
    add(' ', &old[first..same]);
    add('-', &old[same..old.len() - tail]);
    add('+', &new[same..new.len() - tail]);
    add(' ', &old[old.len() - tail..end(&old)]);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn only_what_changed_is_shown() {
        let old = json!({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "i": 9});
        let mut new = old.clone();
        new["e"] = json!("x");
        insta::assert_snapshot!(super::unified(&old, &new), @r#"
        @@ -3,7 +3,7 @@
           "b": 2,
           "c": 3,
           "d": 4,
        -  "e": 5,
        +  "e": "x",
           "f": 6,
           "g": 7,
           "h": 8,
        "#);
    }
}
