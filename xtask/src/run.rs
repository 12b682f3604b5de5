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
fn cargo_command(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.args(args);
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

/// Runs all tests.
///
/// The suites against real servers mostly wait for them, so more tests run at once than there are cores.
pub(crate) fn cargo_test(args: &[&str]) -> Result<()> {
    let threads = std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        (2 * cores).max(8).to_string()
    });
    run(
        cargo_command(args).env("RUST_TEST_THREADS", threads),
        &format!("cargo {}", args.join(" ")),
    )
}

/// Runs a program at the root, shows what is run, and says how long it took.
#[expect(
    clippy::disallowed_methods,
    reason = "a person waits for this, not a test"
)]
pub(crate) fn run(command: &mut Command, shown: &str) -> Result<()> {
    anstream::eprintln!("+ {shown}");
    let started = Instant::now();
    let status = command
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let seconds = started.elapsed().as_secs();
    ensure!(
        status.success(),
        "`{shown}` failed ({status}) after {seconds} s"
    );
    anstream::eprintln!("  took {seconds} s");
    Ok(())
}
