//! Real cloud-init, from Debian's packages, without installing anything.
//!
//! The packages are fetched by apt and unpacked beside the built programs. `cloud-init-python` among those runs the system's
//! Python with them on its path, so a test can ask cloud-init's own readers what they make of our files. Other packages, another
//! Debian or another Python lead to another directory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

/// The program that runs Python with the packages.
pub(super) const PROGRAM: &str = "cloud-init-python";

/// The system's Python.
const PYTHON: &str = "/usr/bin/python3";

/// cloud-init, the Python modules it imports, and an independent reader of ISO images.
const PACKAGES: &[&str] = &[
    "cloud-init",
    "python3-attr",
    "python3-blinker",
    "python3-certifi",
    "python3-chardet",
    "python3-charset-normalizer",
    "python3-configobj",
    "python3-idna",
    "python3-jinja2",
    "python3-json-pointer",
    "python3-jsonpatch",
    "python3-jsonschema",
    "python3-jwt",
    "python3-markupsafe",
    "python3-netifaces",
    "python3-oauthlib",
    "python3-pycdlib",
    "python3-pyrsistent",
    "python3-requests",
    "python3-serial",
    "python3-six",
    "python3-urllib3",
    "python3-yaml",
];

/// Unpacks the packages if they are not there yet, and returns the program that runs Python with them.
pub(super) fn cloud_init(cache: &Path) -> Result<PathBuf> {
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let python = Command::new(PYTHON).arg("--version").output();
    let python = python.map(|output| output.stdout).unwrap_or_default();
    let dir = cache.join(directory(PACKAGES, codename(&os), &python));
    let program = dir.join(PROGRAM);
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let lock = fs::File::create(dir.join(".lock")).context("cannot create the lock file")?;
    lock.lock().context("cannot take the lock file")?;
    if program.is_file() {
        return Ok(program);
    }
    let fetched = dir.join("packages");
    fs::create_dir_all(&fetched)?;
    anstream::eprintln!("cloud-init: fetching {} Debian packages", PACKAGES.len());
    if download(&fetched).is_err() {
        // A new machine has no package lists yet.
        run(Command::new("apt-get").args(["update", "--quiet"]))?;
        download(&fetched)?;
    }
    let root = dir.join("root");
    for entry in fs::read_dir(&fetched)? {
        let package = entry?.path();
        if package.extension().is_some_and(|ending| ending == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root))?;
        }
    }
    let modules = root.join("usr/lib/python3/dist-packages");
    let script = format!(
        "#!/bin/sh\nPYTHONPATH='{}' exec {PYTHON} \"$@\"\n",
        modules.display()
    );
    let unfinished = dir.join(".unfinished");
    fs::write(&unfinished, script)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755))?;
    fs::rename(&unfinished, &program)?;
    Ok(program)
}

/// The release's name, in the words of `os-release`.
fn codename(os: &str) -> &str {
    let mut lines = os.lines();
    let name = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.unwrap_or_default()
}

/// Where these packages of this release are kept, for this Python.
fn directory(packages: &[&str], codename: &str, python: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut digest = Sha256::new();
    for part in packages {
        digest.update(part);
        digest.update([0]);
    }
    digest.update(codename);
    digest.update([0]);
    digest.update(python);
    let mut name = "cloud-init-debian-".to_owned();
    for byte in &digest.finalize()[..6] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn download(into: &Path) -> Result<()> {
    run(Command::new("apt-get")
        .args(["download", "--quiet"])
        .args(PACKAGES)
        .current_dir(into))
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| {
        format!("cannot start {name}: real cloud-init is taken from Debian's packages")
    })?;
    ensure!(
        output.status.success(),
        "{name} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_packages_releases_and_pythons_have_directories_of_their_own() {
        let of = |packages: &[&str], os, python: &str| {
            directory(packages, codename(os), python.as_bytes())
        };
        let (packages, os, python) = (
            ["cloud-init", "python3-yaml"],
            "ID=debian\nVERSION_CODENAME=bookworm\n",
            "Python 3.11.2\n",
        );
        let here = of(&packages, os, python);
        assert_eq!(here, of(&packages, os, python));
        assert_ne!(here, of(&packages[..1], os, python));
        let next = "ID=debian\nVERSION_CODENAME=trixie\n";
        assert_ne!(here, of(&packages, next, python));
        assert_ne!(here, of(&packages, os, "Python 3.13.5\n"));
    }
}
