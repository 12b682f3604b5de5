//! All tests, two suites at a time.
//!
//! `cargo test` runs one suite after the other. The long ones mostly wait, for servers that start or for Cluster API's own
//! rhythm, so two of them side by side take little longer than one. What a suite prints is shown when it has ended, so that
//! it can be read.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::run::{cargo_command, took};

/// The packages that take longest, longest first: begun late they would be waited for alone.
const LONG: &[&str] = &["cluster-api", "scenarios", "conformance", "oxmox"];
/// How many suites run at once.
const AT_ONCE: usize = 2;

/// A test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    package: String,
    target: String,
    program: PathBuf,
    dir: PathBuf,
}

/// What cargo says of something it has built, as far as it is read.
#[derive(Deserialize)]
struct Artifact {
    target: Target,
    profile: Profile,
    manifest_path: PathBuf,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds all tests and runs them; fails if one does, after all have run.
pub(crate) fn test() -> Result<()> {
    let mut waiting = build()?;
    ensure!(!waiting.is_empty(), "there are no tests");
    waiting.sort_by_key(Suite::order);
    waiting.reverse();
    let count = waiting.len();
    let (waiting, failed) = (Mutex::new(waiting), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(suite) = take(&waiting) {
                    if let Err(error) = suite.run() {
                        failed
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(format!("{error:#}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !failed.is_empty() {
        bail!(
            "{} of {count} suites failed:\n{}",
            failed.len(),
            failed.join("\n")
        );
    }
    Ok(())
}

fn take(waiting: &Mutex<Vec<Suite>>) -> Option<Suite> {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.pop()
}

/// Builds the tests of the whole workspace, and with them the programs that suites start as processes.
pub(crate) fn build() -> Result<Vec<Suite>> {
    let args = ["test", "--workspace", "--all-targets", "--no-run"];
    let mut command = cargo_command(&args);
    command.arg("--message-format=json-render-diagnostics");
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let shown = format!("cargo {}", args.join(" "));
    let output = took(&shown, || {
        let output = command.output();
        output.with_context(|| format!("cannot start `{shown}`"))
    })?;
    ensure!(output.status.success(), "`{shown}` failed");
    let said = String::from_utf8(output.stdout).context("cargo writes text")?;
    Ok(said.lines().filter_map(suite).collect())
}

/// The suite that a line of cargo's is about, if it is about one.
fn suite(line: &str) -> Option<Suite> {
    let artifact: Artifact = serde_json::from_str(line).ok()?;
    let dir = artifact.manifest_path.parent()?.to_path_buf();
    let source = &artifact.target.src_path;
    let source = source.strip_prefix(&dir).unwrap_or(source);
    artifact.profile.test.then_some(Suite {
        package: dir.file_name()?.to_string_lossy().into_owned(),
        target: format!("{} ({})", artifact.target.name, source.display()),
        program: artifact.executable?,
        dir,
    })
}

impl Suite {
    /// Its place in line: the longest first, the rest by name; of a package the tests of the whole before those of its parts.
    fn order(&self) -> (usize, bool, String, String) {
        let place = LONG.iter().position(|long| *long == self.package);
        (
            place.unwrap_or(LONG.len()),
            !self.is_whole(),
            self.package.clone(),
            self.target.clone(),
        )
    }

    fn is_whole(&self) -> bool {
        self.target.ends_with("(tests/it/main.rs)")
    }

    fn run(&self) -> Result<()> {
        let shown = format!("{}: {}", self.package, self.target);
        let output = took(&shown, || {
            let output = self.command().output();
            output.with_context(|| format!("cannot start {}", self.program.display()))
        })?;
        let said = String::from_utf8_lossy(&output.stdout);
        let also = String::from_utf8_lossy(&output.stderr);
        anstream::println!("\n{shown}{said}{also}");
        ensure!(output.status.success(), "{shown} ({})", output.status);
        Ok(())
    }

    /// The program as cargo would start it.
    ///
    /// Suites against real servers mostly wait for them, so more tests run at once than there are cores.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.dir).stdin(Stdio::null());
        command.env("CARGO_MANIFEST_DIR", &self.dir);
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
            command.env("RUST_TEST_THREADS", (2 * cores).max(8).to_string());
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn line(package: &str, source: &str, test: bool) -> String {
        let program = format!("/t/{package}-1");
        serde_json::json!({
            "reason": "compiler-artifact", "manifest_path": format!("/r/{package}/Cargo.toml"),
            "target": {"name": "it", "src_path": format!("/r/{package}/{source}"), "kind": ["test"]},
            "profile": {"test": test, "opt_level": "1"}, "executable": program, "fresh": true,
        })
        .to_string()
    }

    #[test]
    fn only_what_is_a_test_is_one() {
        let found = suite(&line("pve", "tests/it/main.rs", true)).unwrap();
        assert_eq!(found.package, "pve");
        assert_eq!(found.target, "it (tests/it/main.rs)");
        assert_eq!(found.dir, Path::new("/r/pve"));
        assert_eq!(suite(&line("pve", "src/main.rs", false)), None);
        assert_eq!(suite(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(suite("   Compiling pve"), None);
    }

    #[test]
    fn the_longest_begin_first() {
        let of = |package, source| suite(&line(package, source, true)).unwrap();
        let mut all = [
            of("api", "src/lib.rs"),
            of("oxmox", "tests/it/main.rs"),
            of("cluster-api", "src/lib.rs"),
            of("cluster-api", "tests/it/main.rs"),
        ];
        all.sort_by_key(Suite::order);
        let names = all.map(|suite| format!("{} {}", suite.package, suite.target));
        assert_eq!(
            names,
            [
                "cluster-api it (tests/it/main.rs)",
                "cluster-api it (src/lib.rs)",
                "oxmox it (tests/it/main.rs)",
                "api it (src/lib.rs)",
            ]
        );
    }
}
