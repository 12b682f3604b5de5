//! Runs other programs from the repository's root and shows what is run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// The repository's root directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies one level below the root")
        .to_path_buf()
}

/// Cargo, as if it had been called by hand.
///
/// The cargo that runs xtask tells it about its package. Build scripts would take that for a change, and half the workspace would
/// be built anew whenever somebody calls cargo now by hand and now through here.
pub(crate) fn cargo_command(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.args(args).current_dir(root());
    for (name, _) in std::env::vars_os() {
        let own = name.to_string_lossy();
        if own.starts_with("CARGO_PKG_") || own.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs cargo with `args` at the root.
pub(crate) fn cargo(args: &[&str]) -> Result<()> {
    run(
        &mut cargo_command(args),
        &format!("cargo {}", args.join(" ")),
    )
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    let said = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root().join(said.unwrap_or_else(|| "target".into()))
}

/// Runs a program at the root, shows what is run, and says how long it took.
pub(crate) fn run(command: &mut Command, shown: &str) -> Result<()> {
    command.current_dir(root());
    let status = took(shown, || {
        let status = command.status();
        status.with_context(|| format!("cannot start `{shown}`"))
    })?;
    ensure!(status.success(), "`{shown}` failed ({status})");
    Ok(())
}

/// Shows what is done, does it, and says how long it took.
#[expect(
    clippy::disallowed_methods,
    reason = "a person waits for this, not a test"
)]
pub(crate) fn took<T>(shown: &str, what: impl FnOnce() -> Result<T>) -> Result<T> {
    anstream::eprintln!("+ {shown}");
    let started = Instant::now();
    let done = what()?;
    anstream::eprintln!("  {shown} took {} s", started.elapsed().as_secs());
    Ok(done)
}
