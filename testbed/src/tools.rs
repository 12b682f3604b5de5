//! kubectl and Helm as a person runs them, with nothing of the machine's own configuration.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

use crate::assets::{self, Assets};

/// A tool could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not built.
    #[error(transparent)]
    Assets(#[from] assets::Error),
    /// It cannot be started or spoken to.
    #[error("cannot run {tool}")]
    Run {
        /// The tool.
        tool: &'static str,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The exit code; -1 when a signal ended it.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Outcome {
    /// The standard output of a command that succeeded.
    ///
    /// # Panics
    /// When it failed, with everything it said.
    #[track_caller]
    pub fn success(self) -> String {
        assert!(
            self.code == 0,
            "exit code {}\n{}{}",
            self.code,
            self.stdout,
            self.stderr
        );
        self.stdout
    }
}

#[derive(Debug)]
struct Tool {
    name: &'static str,
    program: PathBuf,
    kubeconfig: PathBuf,
    home: TempDir,
}

impl Tool {
    fn new(name: &'static str, assets: &Assets, kubeconfig: &Path) -> Result<Self, Error> {
        let home = tempfile::Builder::new().prefix(name).tempdir();
        let home = home.map_err(|source| Error::Run { tool: name, source })?;
        Ok(Self {
            name,
            program: assets.program(name)?,
            kubeconfig: kubeconfig.into(),
            home,
        })
    }

    async fn run(&self, args: &[&str], input: &str) -> Result<Outcome, Error> {
        let failed = |source| Error::Run {
            tool: self.name,
            source,
        };
        let mut child = tokio::process::Command::new(&self.program)
            .args(args)
            .env_clear()
            // kubectl diff calls `diff`.
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("KUBECONFIG", &self.kubeconfig)
            // For `kubectl edit`: an editor that makes one known change.
            .env("KUBE_EDITOR", "sed -i s/before-edit/after-edit/")
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .current_dir(self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let mut stdin = child.stdin.take().expect("stdin is piped");
        // A command that does not read its input closes the pipe, which is no failure.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await.map_err(failed)?;
        Ok(Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// The built kubectl, talking to one server, with a home and caches of its own.
#[derive(Debug)]
pub struct Kubectl(Tool);

impl Kubectl {
    /// A kubectl for the server that `kubeconfig` names.
    pub fn new(assets: &Assets, kubeconfig: &Path) -> Result<Self, Error> {
        Tool::new("kubectl", assets, kubeconfig).map(Self)
    }

    /// Runs one command, giving it `input` to read.
    pub async fn run(&self, args: &[&str], input: &str) -> Result<Outcome, Error> {
        self.0.run(args, input).await
    }

    /// The directory in which commands run, for files they name.
    pub fn dir(&self) -> &Path {
        self.0.home.path()
    }
}

/// The built Helm, talking to one server.
#[derive(Debug)]
pub struct Helm(Tool);

impl Helm {
    /// A Helm for the server that `kubeconfig` names.
    pub fn new(assets: &Assets, kubeconfig: &Path) -> Result<Self, Error> {
        Tool::new("helm", assets, kubeconfig).map(Self)
    }

    /// Runs one command.
    pub async fn run(&self, args: &[&str]) -> Result<Outcome, Error> {
        self.0.run(args, "").await
    }

    /// The directory in which commands run, for charts they name.
    pub fn dir(&self) -> &Path {
        self.0.home.path()
    }
}
