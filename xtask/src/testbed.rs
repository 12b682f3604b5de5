//! Builds the real components that the suites run against, once per machine.
//!
//! The list of components and the names of the cache directories are [`testbed::components`]; here is
//! what turns them into programs. Each is built beside its final place and then renamed there, under a
//! lock, so that two checkouts may ask at the same time and an interrupted build leaves nothing behind.

mod debian;
mod go;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use testbed::components::{self, Component};

use crate::run::root;

/// Which components to build.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Build only these, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "COMPONENT")]
    only: Vec<String>,
    /// Build everything, also what the suites do not need yet.
    #[arg(long, conflicts_with = "only")]
    all: bool,
}

impl Args {
    /// One component alone.
    pub(crate) fn only(name: &str) -> Self {
        Self {
            only: vec![name.to_owned()],
            all: false,
        }
    }
}

/// Builds what is missing and returns the directory that holds all programs by name.
pub(crate) fn build(args: &Args) -> Result<PathBuf> {
    let cache = components::cache_dir();
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let outside = components::kubebuilder_assets();
    let bin = components::bin_dir(&cache, outside.as_deref());
    fs::create_dir_all(&bin).with_context(|| format!("cannot create {}", bin.display()))?;

    let wanted = select(args)?;
    let mut toolchain = None;
    for (index, component) in wanted.iter().enumerate() {
        let given = outside
            .as_deref()
            .filter(|_| components::FROM_KUBEBUILDER.contains(&component.name))
            .map(|dir| dir.join(component.name));
        let path = if let Some(path) = given {
            ensure!(
                path.is_file(),
                "KUBEBUILDER_ASSETS holds no {}: unset it, or point it at a directory that has one",
                component.name
            );
            path
        } else {
            let path = component.path(&cache);
            if !path.is_file() {
                let go = match &toolchain {
                    Some(go) => go,
                    None => toolchain.insert(go::find_or_install(&cache)?),
                };
                let place = format!("[{}/{}]", index + 1, wanted.len());
                build_one(go, component, &path, &place)?;
            }
            path
        };
        link(&path, &bin.join(component.name))?;
        if let Some(source) = component.manifests {
            let path = component.manifests_path(&cache);
            if !path.is_dir() {
                let go = match &toolchain {
                    Some(go) => go,
                    None => toolchain.insert(go::find_or_install(&cache)?),
                };
                copy_manifests(go, component, source, &path)?;
            }
            link(&path, &bin.join(component.manifests_link()))?;
        }
    }
    if args.only.is_empty() || args.only.iter().any(|name| name == debian::PROGRAM) {
        let program = debian::cloud_init(&cache)?;
        link(&program, &bin.join(debian::PROGRAM))?;
    }
    Ok(bin)
}

/// Copies a component's manifests out of the module it was built from, so that suites need no Go to read them.
fn copy_manifests(go: &Path, component: &Component, source: &str, path: &Path) -> Result<()> {
    let said = Command::new(go)
        .current_dir(root().join("testbed/go").join(component.module))
        .args(["list", "-m", "-f", "{{.Dir}}", component.requires])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", go.display()))?;
    let module = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    ensure!(
        said.status.success() && !module.is_empty(),
        "go does not know where {} lies",
        component.requires
    );
    let source = Path::new(&module).join(source);
    let unfinished = path.with_extension(format!("{}.new", std::process::id()));
    fs::create_dir_all(unfinished.join("crd")).context("cannot create a directory")?;
    let copy = |from: &Path, to: &Path| -> Result<()> {
        let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        fs::write(to, content).with_context(|| format!("cannot write {}", to.display()))
    };
    let bases = source.join("crd/bases");
    let listed =
        fs::read_dir(&bases).with_context(|| format!("cannot list {}", bases.display()))?;
    for entry in listed {
        let entry = entry.context("cannot list the definitions")?;
        copy(
            &entry.path(),
            &unfinished.join("crd").join(entry.file_name()),
        )?;
    }
    let webhooks = source.join("webhook/manifests.yaml");
    if webhooks.is_file() {
        copy(&webhooks, &unfinished.join("webhook.yaml"))?;
    }
    match fs::rename(&unfinished, path) {
        // Somebody else was quicker, with the same files.
        Err(_) if path.is_dir() => {
            fs::remove_dir_all(&unfinished).context("cannot remove a directory")
        }
        result => {
            result.with_context(|| format!("cannot move the manifests to {}", path.display()))
        }
    }
}

fn select(args: &Args) -> Result<Vec<&'static Component>> {
    if args.only.is_empty() {
        return Ok(components::ALL
            .iter()
            .filter(|c| args.all || c.in_suites)
            .collect());
    }
    args.only
        .iter()
        .filter(|name| *name != debian::PROGRAM)
        .map(|name| {
            components::find(name).with_context(|| {
                let known: Vec<_> = components::ALL.iter().map(|c| c.name).collect();
                format!("no component {name:?}; there are {}", known.join(", "))
            })
        })
        .collect()
}

fn build_one(go: &Path, component: &Component, path: &Path, place: &str) -> Result<()> {
    let dir = path.parent().expect("a program lies in its directory");
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let lock = File::create(dir.join(".lock")).context("cannot create the lock file")?;
    lock.lock().context("cannot take the lock file")?;
    if path.is_file() {
        return Ok(());
    }
    let unfinished = dir.join(".unfinished");
    let module = root().join("testbed/go").join(component.module);
    let go_command = |args: &[&str]| {
        let mut command = Command::new(go);
        command
            .current_dir(&module)
            .env("CGO_ENABLED", "0")
            .args(args);
        command
    };

    anstream::eprintln!(
        "{place} {} {}: downloading modules",
        component.name,
        component.version()
    );
    let listed = go_command(&["list", "-deps", component.package])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", go.display()))?;
    ensure!(
        listed.status.success(),
        "go list failed for {}",
        component.package
    );
    let total = String::from_utf8_lossy(&listed.stdout).lines().count();

    let mut build = go_command(&["build", "-v", "-trimpath", "-ldflags", &component.ldflags()])
        .arg("-o")
        .arg(&unfinished)
        .arg(component.package)
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", go.display()))?;
    let mut progress = Progress::new(place, component, total);
    let mut said = Vec::new();
    for line in BufReader::new(build.stderr.take().expect("stderr is piped")).lines() {
        let line = line.context("cannot read the output of go build")?;
        // With -v Go names each package as it compiles it; everything else is a complaint.
        if line.contains([' ', ':']) {
            said.push(line);
        } else {
            progress.step();
        }
    }
    let status = build.wait().context("cannot wait for go build")?;
    progress.end();
    if !status.success() {
        bail!(
            "go build {} failed ({status})\n{}",
            component.package,
            said.join("\n")
        );
    }
    fs::rename(&unfinished, path)
        .with_context(|| format!("cannot move the program to {}", path.display()))
}

/// Makes `link` point at `target`, replacing it in one step: others may be starting it right now.
fn link(target: &Path, link: &Path) -> Result<()> {
    if fs::read_link(link).is_ok_and(|present| present == target) {
        return Ok(());
    }
    let fresh = link.with_extension(format!("{}.new", std::process::id()));
    std::os::unix::fs::symlink(target, &fresh)
        .and_then(|()| fs::rename(&fresh, link))
        .with_context(|| format!("cannot link {}", link.display()))
}

/// Says how far a build is: on a terminal in one line, elsewhere every so many packages.
struct Progress {
    what: String,
    total: usize,
    done: usize,
    terminal: bool,
}

impl Progress {
    fn new(place: &str, component: &Component, total: usize) -> Self {
        let what = format!("{place} {} {}", component.name, component.version());
        let progress = Self {
            what,
            total,
            done: 0,
            terminal: std::io::stderr().is_terminal(),
        };
        progress.show();
        progress
    }

    fn step(&mut self) {
        self.done += 1;
        if self.terminal || self.done.is_multiple_of(250) {
            self.show();
        }
    }

    fn show(&self) {
        let Self {
            what,
            total,
            done,
            terminal,
        } = self;
        if *terminal {
            anstream::eprint!("\r\x1b[2K{what}: compiling, {done} of at most {total} packages");
        } else {
            anstream::eprintln!("{what}: compiling, {done} of at most {total} packages");
        }
    }

    fn end(&self) {
        let start = if self.terminal { "\r\x1b[2K" } else { "" };
        anstream::eprintln!("{start}{}: {} packages compiled", self.what, self.done);
    }
}
