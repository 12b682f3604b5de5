//! Runs other programs from the repository's root and shows what is run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The repository's root directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies one level below the root")
        .to_path_buf()
}

/// Runs cargo with `args` at the root.
pub(crate) fn cargo(args: &[&str]) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    run(
        Command::new(cargo).args(args),
        &format!("cargo {}", args.join(" ")),
    )
}

fn run(command: &mut Command, shown: &str) -> Result<()> {
    anstream::eprintln!("+ {shown}");
    let status = command
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    ensure!(status.success(), "`{shown}` failed ({status})");
    Ok(())
}
