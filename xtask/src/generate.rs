//! `cargo xtask gen`: files in the tree that are made from facts published elsewhere.
//!
//! These are the table of Kubernetes' built-in types (which fields each has, of what type, how lists
//! merge, which defaults the schema declares, which fields can be missing) and the numbers that fields
//! have in protobuf. They are made from the OpenAPI documents, type declarations and message
//! definitions in the published Go modules, without their prose, and checked in, so that building
//! needs neither Go nor a network.

mod golang;
mod types;
mod wire;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::run::root;

const TABLE: &str = "crates/apiserver/src/kinds/types.txt";
const WIRE: &str = "crates/apiserver/src/kinds/wire.txt";

/// A published Go module.
type Module = (&'static str, &'static str);

const KUBERNETES: Module = ("k8s.io/kubernetes", "v1.36.4");
const API: Module = ("k8s.io/api", "v0.36.4");
const MACHINERY: Module = ("k8s.io/apimachinery", "v0.36.4");
const EXTENSIONS: Module = ("k8s.io/apiextensions-apiserver", "v0.36.4");
const AGGREGATOR: Module = ("k8s.io/kube-aggregator", "v0.36.4");

/// Generates everything anew, downloading the modules that are not there.
pub(crate) fn generate() -> Result<()> {
    for (path, text) in files(&download)? {
        let full = root().join(path);
        std::fs::write(&full, text).with_context(|| format!("cannot write {}", full.display()))?;
        anstream::eprintln!("wrote {path}");
    }
    Ok(())
}

/// All generated files, from modules that `find` provides.
fn files(find: &dyn Fn(Module) -> Result<PathBuf>) -> Result<Vec<(&'static str, String)>> {
    let (api, machinery) = (find(API)?, find(MACHINERY)?);
    let mut packages: Vec<_> = wire::PACKAGES
        .iter()
        .map(|package| (api.join(package), package.replace('/', ".")))
        .collect();
    packages.push((machinery.join("pkg/apis/meta/v1"), "meta.v1".into()));
    packages.push((
        find(EXTENSIONS)?.join("pkg/apis/apiextensions/v1"),
        "apiextensions.v1".into(),
    ));
    packages.push((
        find(AGGREGATOR)?.join("pkg/apis/apiregistration/v1"),
        "apiregistration.v1".into(),
    ));
    let facts = golang::read(&packages)?;
    let types = types::render(&find(KUBERNETES)?.join("api/openapi-spec/v3"), &facts)?;
    let wire = wire::render(&api, &machinery)?;
    Ok(vec![
        (TABLE, with_heading(KUBERNETES, &types)?),
        (WIRE, with_heading(API, &wire)?),
    ])
}

fn download((module, version): Module) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", &format!("{module}@{version}")])
        .env("GOFLAGS", "-mod=mod")
        .output()
        .context("cannot start `go`, which fetches Kubernetes' published modules")?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let directory = answer["Dir"].as_str();
    Ok(directory
        .with_context(|| format!("cannot download {module}: {answer}"))?
        .into())
}

/// A file with its heading, which holds the digest of the rest.
fn with_heading((module, version): Module, body: &str) -> Result<String> {
    ensure!(!body.is_empty(), "nothing found in {module}");
    Ok(format!(
        "# {module} {version} by `cargo xtask gen`; {}\n{body}",
        digest(body)
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

    fn committed(path: &str) -> String {
        std::fs::read_to_string(root().join(path)).unwrap()
    }

    #[test]
    fn generated_files_were_not_edited_by_hand() {
        for path in [TABLE, WIRE] {
            let text = committed(path);
            let (heading, body) = text.split_once('\n').unwrap();
            assert!(
                heading.ends_with(&digest(body)),
                "{path}: run `cargo xtask gen`"
            );
        }
    }

    #[test]
    fn generated_files_are_current() {
        let cache = Command::new("go").args(["env", "GOMODCACHE"]).output();
        let cache = cache.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
        let cache = PathBuf::from(cache.unwrap_or_default());
        let find = |(module, version): Module| {
            let directory = cache.join(format!("{module}@{version}"));
            ensure!(
                directory.is_dir(),
                "{module} {version} is not in the module cache"
            );
            Ok(directory)
        };
        match files(&find) {
            Err(error) => println!("skipped: {error}; `cargo xtask gen` fetches it"),
            Ok(files) => {
                for (path, text) in files {
                    assert!(text == committed(path), "{path}: run `cargo xtask gen`");
                }
            }
        }
    }
}
