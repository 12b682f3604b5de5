//! A session at the terminal: kubectl commands and what they print.

use serde_json::{Value, json};
use testbed::{Helm, Kubectl, Outcome};
use tokio::sync::Mutex;

use crate::mask;
use crate::session::Step;

/// A person at a terminal, talking to one server with the built kubectl.
#[derive(Debug)]
pub struct Script {
    kubectl: Kubectl,
    helm: Option<Helm>,
    namespace: String,
    steps: Mutex<Vec<Step>>,
}

impl Script {
    pub(crate) fn new(kubectl: Kubectl, helm: Option<Helm>, namespace: String) -> Self {
        Self {
            kubectl,
            helm,
            namespace,
            steps: Mutex::default(),
        }
    }

    pub(crate) fn into_steps(self) -> Vec<Step> {
        self.steps.into_inner()
    }

    /// The namespace that belongs to this script alone; `$NS` in commands and files.
    pub fn ns(&self) -> &str {
        &self.namespace
    }

    /// Writes a file that commands may name.
    pub fn file(&self, name: &str, content: &str) {
        let content = content.replace("$NS", &self.namespace);
        let helm = self.helm.as_ref().map(Helm::dir);
        for dir in helm.into_iter().chain([self.kubectl.dir()]) {
            let path = dir.join(name);
            let parent = path.parent().expect("a file lies in a directory");
            std::fs::create_dir_all(parent).expect("the directory can be made");
            std::fs::write(&path, &content).expect("the file can be written");
        }
    }

    /// Runs a Helm command in the script's namespace.
    pub async fn helm(&self, command: &str) {
        let helm = self.helm.as_ref().expect("Helm is built");
        let words = split(&command.replace("$NS", &self.namespace));
        let mut args = vec!["--namespace", self.namespace.as_str()];
        args.extend(words.iter().map(String::as_str));
        let outcome = helm.run(&args).await.expect("Helm can be started");
        self.note(format!("helm {command}"), &outcome, |_| true)
            .await;
    }

    /// Runs a command in the script's namespace and writes down all it did.
    pub async fn run(&self, command: &str) {
        self.with(command, "").await;
    }

    /// Runs a command that reads `input`.
    pub async fn with(&self, command: &str, input: &str) {
        self.keeping(command, input, |_| true).await;
    }

    /// Runs a command and writes down only some lines of its output.
    ///
    /// For output that lists more than both servers can have in common.
    pub async fn only(&self, command: &str, keep: impl Fn(&str) -> bool) {
        self.keeping(command, "", keep).await;
    }

    async fn keeping(&self, command: &str, input: &str, keep: impl Fn(&str) -> bool) {
        let words = split(&command.replace("$NS", &self.namespace));
        let mut args = vec!["--namespace", self.namespace.as_str()];
        args.extend(words.iter().map(String::as_str));
        let input = input.replace("$NS", &self.namespace);
        let outcome = self
            .kubectl
            .run(&args, &input)
            .await
            .expect("kubectl can be started");
        self.note(format!("kubectl {command}"), &outcome, keep)
            .await;
    }

    async fn note(&self, label: String, outcome: &Outcome, keep: impl Fn(&str) -> bool) {
        let kept = |text: &str| -> Value {
            let lines = text.lines().filter(|line| keep(line));
            json!(lines.map(shown).collect::<Vec<_>>())
        };
        let said = json!({
            "exit": outcome.code,
            "stdout": kept(&outcome.stdout),
            "stderr": kept(&outcome.stderr),
        });
        self.steps.lock().await.push(Step { label, said });
    }
}

/// Splits a command line at spaces, except inside single quotes.
fn split(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in command.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// A line as it is compared: an object in JSON as such, for its members have no order.
fn shown(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(mut value @ Value::Object(_)) => {
            mask::value(&mut value);
            value
        }
        _ => line(text).into(),
    }
}

/// Masks a line of output: times, uids, versions, ages, addresses, tokens.
fn line(line: &str) -> String {
    // Files that `kubectl diff` compares lie in directories of random names.
    if let Some((start, rest)) = line.split_once(' ')
        && (line.contains("/LIVE-") || line.contains("/MERGED-"))
    {
        let file = rest
            .split('\t')
            .next()
            .and_then(|path| path.rsplit('/').next());
        return format!("{start} {}", file.unwrap_or_default());
    }
    if line.starts_with("LAST DEPLOYED: ") {
        return "LAST DEPLOYED: <time>".into();
    }
    let line = line.replace("Resource Version:", "resourceVersion:");
    let line = line.as_str();
    let masked = mask::text(line.trim_end());
    let mut aged = false;
    let words: Vec<String> = masked
        .split(' ')
        .map(|word| {
            if mask::is_age(word) {
                aged = true;
                "<age>".to_owned()
            } else if word.starts_with("eyJ") && word.matches('.').count() == 2 {
                "<token>".to_owned()
            } else if let Some(at) = word.find("127.0.0.1:") {
                let rest = word[at + 10..].trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{}<server>{rest}", &word[..at])
            } else {
                word.to_owned()
            }
        })
        .collect();
    let joined = words.join(" ");
    let joined = match joined.find("resourceVersion") {
        Some(at) => {
            let digits = joined[at..]
                .find(|c: char| c.is_ascii_digit())
                .map(|d| at + d);
            digits.map_or(joined.clone(), |start| {
                let rest = joined[start..].trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{}<version>{rest}", &joined[..start])
            })
        }
        None => joined,
    };
    // The width of a column follows its longest cell, and so the ages in it.
    if aged || joined.contains("AGE") || joined.contains("LAST SEEN") || joined.contains("Age") {
        joined
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .collect::<Vec<_>>()
            .join("  ")
    } else {
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_words_together() {
        assert_eq!(
            split("patch cm a -p '{\"a\": 1}' -o yaml"),
            ["patch", "cm", "a", "-p", "{\"a\": 1}", "-o", "yaml"]
        );
    }

    #[test]
    fn what_differs_by_run_is_masked() {
        assert_eq!(line("a     2      10s"), "a  2  <age>");
        assert_eq!(
            line("  resourceVersion: \"123\""),
            "  resourceVersion: \"<version>\""
        );
        assert_eq!(line("at https://127.0.0.1:4321/x"), "at https://<server>/x");
    }
}
