//! `cargo xtask gen`: files in the tree that are made from facts published elsewhere.
//!
//! The only one so far is the table of Kubernetes' built-in types: which fields each has, of what
//! type, how lists merge, which defaults the schema declares. It is made from the OpenAPI documents
//! in the Go module `k8s.io/kubernetes`, without their prose, and checked in, so that building needs
//! neither Go nor a network.

mod types;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::run::root;

const MODULE: &str = "k8s.io/kubernetes";
const VERSION: &str = "v1.36.4";
const TABLE: &str = "crates/apiserver/src/kinds/types.txt";

/// Generates everything anew, downloading the module when it is not there.
pub(crate) fn generate() -> Result<()> {
    let directory = download()?;
    let table = table(&directory)?;
    let path = root().join(TABLE);
    std::fs::write(&path, table).with_context(|| format!("cannot write {}", path.display()))?;
    anstream::eprintln!("wrote {TABLE}");
    Ok(())
}

fn download() -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", &format!("{MODULE}@{VERSION}")])
        .env("GOFLAGS", "-mod=mod")
        .output()
        .context("cannot start `go`, which fetches Kubernetes' published module")?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let directory = answer["Dir"].as_str();
    Ok(directory
        .with_context(|| format!("cannot download {MODULE}: {answer}"))?
        .into())
}

/// The table with its heading, which holds the digest of the rest.
fn table(module: &Path) -> Result<String> {
    let body = types::render(&module.join("api/openapi-spec/v3"))?;
    ensure!(!body.is_empty(), "no types found in {}", module.display());
    Ok(format!(
        "# {MODULE} {VERSION} by `cargo xtask gen`; {}\n{body}",
        digest(&body)
    ))
}

fn digest(body: &str) -> String {
    Sha256::digest(body.as_bytes())
        .iter()
        .fold(String::new(), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed() -> String {
        std::fs::read_to_string(root().join(TABLE)).unwrap()
    }

    #[test]
    fn the_table_of_types_was_not_edited_by_hand() {
        let table = committed();
        let (heading, body) = table.split_once('\n').unwrap();
        assert!(heading.ends_with(&digest(body)), "run `cargo xtask gen`");
    }

    #[test]
    fn the_table_of_types_is_current() {
        let cache = Command::new("go").args(["env", "GOMODCACHE"]).output();
        let cache = cache.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
        let directory = Path::new(&cache.unwrap_or_default()).join(format!("{MODULE}@{VERSION}"));
        if !directory.is_dir() {
            println!("skipped: {MODULE} {VERSION} is not in the module cache; `cargo xtask gen`");
            return;
        }
        assert!(
            table(&directory).unwrap() == committed(),
            "run `cargo xtask gen`"
        );
    }
}
