//! What cloud-init makes of the data a guest was given.

use std::collections::BTreeMap;

use pve_sim::Seed;
use serde::Deserialize;
use serde_json::Value;

use super::Failure;

/// Files to write and commands to run, in order.
#[derive(Debug, Default)]
pub(super) struct CloudInit {
    pub(super) files: BTreeMap<String, String>,
    pub(super) commands: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct UserData {
    write_files: Vec<File>,
    runcmd: Vec<Value>,
}

#[derive(Deserialize)]
struct File {
    path: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    encoding: Option<String>,
}

/// Reads a seed as cloud-init does.
pub(super) fn read(seed: &Seed) -> Result<CloudInit, Failure> {
    let meta: BTreeMap<String, Value> = serde_saphyr::from_str(&seed.meta_data)?;
    let text = match seed.user_data.strip_prefix("## template: jinja\n") {
        Some(template) => render(template, &meta)?,
        None => seed.user_data.clone(),
    };
    if !text.trim_start().starts_with("#cloud-config") {
        return Err("the user data is no cloud-config".into());
    }
    let options = serde_saphyr::options! { budget: None };
    let data: UserData = serde_saphyr::from_str_with_options(&text, options)?;
    let mut read = CloudInit::default();
    for file in data.write_files {
        if file.encoding.as_deref().is_some_and(|e| !e.is_empty()) {
            return Err(format!("{} is encoded", file.path).into());
        }
        read.files.insert(file.path, file.content);
    }
    read.commands = data
        .runcmd
        .iter()
        .map(|command| match command {
            Value::String(line) => line.clone(),
            other => other.to_string(),
        })
        .collect();
    Ok(read)
}

/// Fills in `{{ ds.meta_data.… }}`, where dashes are written as underscores.
fn render(template: &str, meta: &BTreeMap<String, Value>) -> Result<String, Failure> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (expression, after) = after.split_once("}}").ok_or("an expression does not end")?;
        let name = expression.trim();
        let key = name
            .strip_prefix("ds.meta_data.")
            .ok_or_else(|| format!("{name:?} is not in the meta-data"))?;
        let value = meta
            .iter()
            .find(|(known, _)| known.replace('-', "_") == key)
            .ok_or_else(|| format!("the meta-data has no {key:?}"))?;
        text += before;
        match value.1 {
            Value::String(plain) => text += plain,
            other => text += &other.to_string(),
        }
        rest = after;
    }
    Ok(text + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_in_from_the_meta_data() {
        let seed = Seed {
            user_data: "## template: jinja\n#cloud-config\nwrite_files:\n- path: /a\n  content: |\n    id={{ ds.meta_data.instance_id }}\nruncmd:\n- 'kubeadm join'\n".to_owned(),
            meta_data: "instance-id: i-1\n".to_owned(),
            ..Seed::default()
        };
        let read = read(&seed).unwrap();
        assert_eq!(read.files["/a"], "id=i-1\n");
        assert_eq!(read.commands, ["kubeadm join"]);
    }

    #[test]
    fn what_the_meta_data_lacks_is_noticed() {
        let seed = Seed {
            user_data: "## template: jinja\n#cloud-config\nhostname: {{ ds.meta_data.zone }}\n"
                .to_owned(),
            meta_data: "instance-id: i-1\n".to_owned(),
            ..Seed::default()
        };
        assert!(read(&seed).unwrap_err().to_string().contains("zone"));
    }
}
