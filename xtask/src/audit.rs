//! Checks what the workspace depends on: licences, sources, crates that must not come in, known holes.
//!
//! `deny.toml` says what is allowed; `cargo-deny` judges. It is built once per machine, beside the other
//! tools that are not our own, which takes minutes: that is why this is not part of `cargo xtask test`.
//! Licences, sources and bans need no network. The database of known holes does; where it cannot be
//! had, that is said and the rest still counts.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use testbed::components;

use crate::run::{cargo, root, run};

/// The version that is used everywhere.
const VERSION: &str = "0.20.2";

/// Checks everything that can be checked here.
pub(crate) fn audit() -> Result<()> {
    let program = cargo_deny()?;
    let deny = |args: &[&str]| {
        let shown = format!("cargo-deny {}", args.join(" "));
        run(Command::new(&program).args(args), &shown)
    };
    deny(&[
        "--offline",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ])?;
    if let Err(error) = deny(&["fetch", "db"]) {
        anstream::eprintln!(
            "known holes were NOT looked for, their database cannot be fetched: {error:#}"
        );
        return Ok(());
    }
    deny(&["--offline", "check", "advisories"])
}

/// The program, built if this machine has none yet.
fn cargo_deny() -> Result<PathBuf> {
    let dir = components::cache_dir().join(format!("cargo-deny-{VERSION}"));
    let program = dir.join("bin").join("cargo-deny");
    if program.is_file() {
        return Ok(program);
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let (dir, version) = (dir.to_string_lossy(), format!("={VERSION}"));
    let install = ["install", "cargo-deny", "--locked", "--debug", "--version"];
    let into = [version.as_str(), "--root", &dir];
    cargo(&[&install[..], &into[..]].concat())
        .with_context(|| format!("cargo-deny cannot be built in {}", root().display()))?;
    Ok(program)
}
