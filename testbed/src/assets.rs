//! Finds the built programs.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::components;

/// A program of the testbed is not there.
#[derive(Debug, thiserror::Error)]
#[error(
    "{program} is not built: run `cargo xtask testbed --only {program}` (needs Go, and the network the first time)"
)]
pub struct Error {
    program: String,
}

/// The directory of the built programs.
#[derive(Debug, Clone)]
pub struct Assets {
    dir: PathBuf,
}

/// Finds the directory of the built programs, which may still be empty.
pub fn assets() -> Assets {
    let outside = components::kubebuilder_assets();
    Assets {
        dir: components::bin_dir(&components::cache_dir(), outside.as_deref()),
    }
}

impl Assets {
    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of one program's manifests: `crd/*.yaml`, and `webhook.yaml` where it has webhooks.
    pub fn manifests(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.dir.join(format!("{name}.manifests"));
        if path.join("crd").is_dir() {
            Ok(path)
        } else {
            Err(Error {
                program: name.into(),
            })
        }
    }

    /// The path of one program.
    pub fn program(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.dir.join(name);
        if path.is_file() {
            Ok(path)
        } else {
            Err(Error {
                program: name.into(),
            })
        }
    }
}

/// The programs a suite needs, or `None` after one line that says what is missing and how to get it.
///
/// With `CI=true` a missing program is a failure: a suite that silently does nothing proves nothing.
///
/// # Panics
/// When a program is missing and `CI=true`.
pub fn assets_or_skip(suite: &str, programs: &[&str]) -> Option<Assets> {
    let assets = assets();
    let lacks = |name: &str| {
        let manifests = components::find(name).and_then(|component| component.manifests);
        assets
            .program(name)
            .and_then(|program| match manifests {
                Some(_) => assets.manifests(name),
                None => Ok(program),
            })
            .err()
    };
    let Some(missing) = programs.iter().find_map(|program| lacks(program)) else {
        return Some(assets);
    };
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
    assert!(!ci, "{suite}: {missing}");
    // Written past the test harness, which would swallow the line of a test that passes.
    let _ = writeln!(std::io::stderr(), "skipped: {suite}: {missing}");
    None
}
