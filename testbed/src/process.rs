//! Child processes that never outlive us.
//!
//! A test binary can end in ways that run no destructor: `process::exit` after the last test (which is
//! how statics end), an abort, a kill. So every component runs below a watchdog, a shell waiting for
//! the end of its standard input. That pipe closes when [`Process`] is dropped or when we are gone,
//! and the watchdog then kills its child and, if asked, clears the directory away. What ends us may be meant for
//! all of our process group (`timeout`, Ctrl-C): the watchdog outlives it, or nobody would do its work.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Starts the program with its output in `$1`; `$2` is a directory to remove at the end, or empty.
///
/// Data directories are temporary, so the child is killed outright: kube-apiserver would otherwise
/// wait for its open watches.
const WATCHDOG: &str = r#"
log=$1; scratch=$2; shift 2
"$@" </dev/null >"$log" 2>&1 &
child=$!
trap '' TERM INT HUP
echo "$child"
exec >/dev/null 2>&1
read -r _
kill -9 "$child"
wait "$child"
if [ -n "$scratch" ]; then rm -rf "$scratch"; fi
"#;

/// A component could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {program}")]
pub struct Error {
    program: String,
    #[source]
    source: std::io::Error,
}

/// A running component.
#[derive(Debug)]
pub struct Process {
    name: String,
    watchdog: Child,
    pid: u32,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with its output in `dir/<name>.log`.
    ///
    /// With `clear`, `dir` is removed once the process has ended.
    pub fn start(
        program: &Path,
        args: &[OsString],
        dir: &Path,
        clear: bool,
    ) -> Result<Self, Error> {
        Self::start_with(program, args, &[], dir, clear)
    }

    /// Starts `program` with these variables added to its environment.
    pub fn start_with(
        program: &Path,
        args: &[OsString],
        environment: &[(&str, &OsStr)],
        dir: &Path,
        clear: bool,
    ) -> Result<Self, Error> {
        let name = program
            .file_name()
            .unwrap_or(program.as_os_str())
            .to_string_lossy()
            .into_owned();
        let log = dir.join(format!("{name}.log"));
        let failed = |source| Error {
            program: name.clone(),
            source,
        };
        let mut watchdog = Command::new("/bin/sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(&log)
            .arg(if clear {
                dir.as_os_str()
            } else {
                OsStr::new("")
            })
            .arg(program)
            .args(args)
            .envs(environment.iter().copied())
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        let stdout = watchdog.stdout.take().expect("stdout is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(failed)?;
        let pid = line
            .trim()
            .parse()
            .map_err(|_| failed(std::io::ErrorKind::InvalidData.into()))?;
        Ok(Self {
            name,
            watchdog,
            pid,
            log,
        })
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The component's own process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)) else {
            return Path::new("/proc/self/stat").exists();
        };
        // The state follows the name, which is in parentheses; the watchdog has not yet collected it.
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
    }

    /// Everything it has written.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines it has written.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// Flags of a component, written `--name=value`.
#[derive(Clone, Debug, Default)]
pub struct Flags(pub Vec<OsString>);

impl Flags {
    /// Adds a flag.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        self.0.push(format!("--{name}={value}").into());
        self
    }

    /// Adds a flag whose value is a path.
    pub fn path(&mut self, name: &str, value: &Path) -> &mut Self {
        let mut flag = OsString::from(format!("--{name}="));
        flag.push(value);
        self.0.push(flag);
        self
    }
}

/// Ports that are free now, and never given twice by this process.
///
/// They lie below those that the kernel hands out by itself: a port from there can be taken by anybody's outgoing connection
/// between the moment it is chosen here and the moment a component listens on it.
pub fn free_ports<const N: usize>() -> Result<[u16; N], std::io::Error> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = free_port()?;
    }
    Ok(ports)
}

fn free_port() -> Result<u16, std::io::Error> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Several suites may run at once: each begins somewhere else.
    let begin = std::process::id().wrapping_mul(997);
    for _ in 0..PORTS {
        let next = begin.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = FIRST_PORT + u16::try_from(next).expect("there are fewer ports than that");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(std::io::ErrorKind::AddrInUse.into())
}

const FIRST_PORT: u16 = 20_000;
/// Up to where Linux begins to hand out ports by itself, 32768.
const PORTS: u32 = 12_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_or_taken_from_the_kernels_own() {
        let first: [u16; 50] = free_ports().unwrap();
        let second: [u16; 50] = free_ports().unwrap();
        let all: std::collections::BTreeSet<u16> = first.iter().chain(&second).copied().collect();
        assert_eq!(all.len(), 100);
        assert!(all.iter().all(|port| (20_000..32_000).contains(port)));
    }
}
