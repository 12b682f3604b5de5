//! Finds a Go toolchain, or fetches one.
//!
//! Go publishes its own toolchains as a module, so a machine that can fetch modules can fetch the
//! compiler: no root and no distribution package needed. Any Go from 1.21 on would do as well, since it
//! fetches the version that `go.mod` asks for in just that way.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The toolchain fetched when the machine has none; at least what `testbed/go/*/go.mod` ask for.
const VERSION: &str = "go1.26.8";

/// How to get Go, for the message when nothing worked.
const HINT: &str =
    "install Go 1.21 or newer (https://go.dev/dl, or your distribution's `golang`) and run again";

/// A working `go`, from the path, its usual place or our cache; fetched into the cache otherwise.
pub(crate) fn find_or_install(cache: &Path) -> Result<PathBuf> {
    let fetched = cache.join(VERSION).join("bin/go");
    let candidates = [
        PathBuf::from("go"),
        PathBuf::from("/usr/local/go/bin/go"),
        fetched.clone(),
    ];
    if let Some(go) = candidates.into_iter().find(|go| works(go)) {
        return Ok(go);
    }
    let Err(fetching) = fetch(cache) else {
        return Ok(fetched);
    };
    let Err(packaging) = install_package() else {
        return Ok(PathBuf::from("go"));
    };
    bail!("no Go on this machine ({fetching:#}; {packaging:#}): {HINT}")
}

/// Whether this is a Go that can, if need be, fetch the version our modules ask for.
fn works(go: &Path) -> bool {
    let Ok(output) = Command::new(go)
        .args(["env", "GOVERSION"])
        .stderr(Stdio::null())
        .output()
    else {
        return false;
    };
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut numbers = version.trim_start_matches("go1.").split('.');
    output.status.success()
        && numbers
            .next()
            .and_then(|minor| minor.parse::<u32>().ok())
            .is_some_and(|m| m >= 21)
}

/// Fetches the toolchain module and unpacks it into the cache.
fn fetch(cache: &Path) -> Result<()> {
    let os = std::env::consts::OS.replace("macos", "darwin");
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no Go toolchain known for {other}"),
    };
    let proxy = std::env::var("GOPROXY").unwrap_or_default();
    let proxy = proxy
        .split([',', '|'])
        .find(|entry| entry.starts_with("http"))
        .unwrap_or("https://proxy.golang.org");
    let module = format!("golang.org/toolchain@v0.0.1-{VERSION}.{os}-{arch}");
    let url = format!("{proxy}/{}.zip", module.replacen('@', "/@v/", 1));
    let scratch = cache.join(format!(".{VERSION}.{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let done = fetch_into(&scratch, &url, &module, &cache.join(VERSION));
    let _ = fs::remove_dir_all(&scratch);
    done
}

fn fetch_into(scratch: &Path, url: &str, module: &str, place: &Path) -> Result<()> {
    anstream::eprintln!("no Go here; fetching {VERSION}");
    let zip = scratch.join("go.zip");
    let zip_text = zip.to_str().context("the cache's path is not UTF-8")?;
    let scratch_text = scratch.to_str().context("the cache's path is not UTF-8")?;
    quiet("curl", &["-fsSL", "--retry", "3", "-o", zip_text, url])?;
    quiet("unzip", &["-q", zip_text, "-d", scratch_text])
        .or_else(|_| quiet("python3", &["-m", "zipfile", "-e", zip_text, scratch_text]))?;
    let unpacked = scratch.join(module);
    // A module's zip carries no permissions.
    for dir in ["bin", "pkg/tool"] {
        make_executable(&unpacked.join(dir))?;
    }
    fs::rename(&unpacked, place).context("cannot move the toolchain into the cache")
}

fn make_executable(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            make_executable(&path)?;
        } else {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

/// Installs the distribution's Go, which only root may.
fn install_package() -> Result<()> {
    anstream::eprintln!("installing the distribution's Go");
    quiet("apt-get", &["install", "-y", "-qq", "golang-go"])?;
    if works(Path::new("go")) {
        Ok(())
    } else {
        bail!("the distribution's Go is older than 1.21")
    }
}

fn quiet(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!(
        "{program} failed: {}",
        said.lines().last().unwrap_or("without a word")
    )
}
