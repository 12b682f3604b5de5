//! `oxmox up`: everything in one process, no Kubernetes needed.
//!
//! The embedded API server keeps its data in one directory, the controllers run beside it, and kubectl works with the kubeconfig
//! it writes. `--demo` adds a simulated Proxmox VE and a few machines.

pub(crate) mod apply;
mod demo;
mod looks;
mod progress;
mod real;
mod stop;

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use fleet::Fleet;
use kube::Client;
use rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;

use self::progress::Ending;
use crate::console::Consoles;
use crate::output;
use crate::signals::interrupted;
use crate::webhook::certificates::Bundle;
use crate::webhook::keeper::Published;
use crate::webhook::{Certificate, Webhook};

/// A free port that only this computer reaches.
const LOOPBACK: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// How often it is looked whether the webhook's certificate must be renewed, which is due a month before it runs out.
const RENEWAL: Duration = Duration::from_hours(12);

/// Runs Oxmox on this machine alone: an API server that kubectl understands, and all controllers.
///
/// With --demo a simulated Proxmox VE and three machines come with it. With --pve it looks after a real one.
#[derive(Args)]
#[command(after_help = "Examples:
  oxmox up --demo
  oxmox up --pve https://pve.example.com:8006 --token 'oxmox@pve!up=SECRET' --fingerprint AB:CD:…
  oxmox up --listen 0.0.0.0:6443 --listen-name up.example.com
  kubectl --kubeconfig ~/.local/share/oxmox/kubeconfig get vm")]
pub(crate) struct Up {
    /// Where data, certificates and the kubeconfig are kept [env: OXMOX_DATA_DIR, unless --demo]. A demo without it keeps nothing.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where the API server listens; port 0 takes a free one. Who comes from another computer needs a copy of the kubeconfig with
    /// a name of this one in it: see --listen-name. Consoles, which are in clear text, are served on this computer only.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR")]
    listen: SocketAddr,
    /// A further name or address that the API server's certificate is for, such as this computer's with --listen 0.0.0.0:6443; may
    /// be repeated.
    #[arg(long = "listen-name", value_name = "HOST", value_parser = host)]
    names: Vec<String>,
    /// Start a simulated Proxmox VE with life-like latencies and bring three machines up on it.
    #[arg(long)]
    demo: bool,
    /// Exit once every machine is ready: 0 if all are, 1 if one cannot be, Proxmox VE does not answer or somebody stops it before.
    #[arg(long)]
    until_ready: bool,
    /// Run the API server alone: the controllers run elsewhere, such as in `oxmox operator`.
    #[arg(long, conflicts_with_all = ["demo", "until_ready"])]
    api_only: bool,
    #[command(flatten)]
    pve: real::RealPve,
}

impl Up {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        let ended = runtime.block_on(self.serve());
        // What had its time to end has ended. Nobody waits for the rest, such as a name that is looked up in vain.
        runtime.shutdown_background();
        ended
    }

    async fn serve(mut self) -> Result<ExitCode> {
        self.pve.check(self.demo)?;
        // A demo that was given no directory leaves nothing behind. What the environment names is that of real machines.
        let scratch = match (&self.data_dir, self.demo) {
            (None, true) => Some(tempfile::tempdir().context("cannot make a directory")?),
            _ => None,
        };
        let directory = match (&scratch, &self.data_dir) {
            (Some(scratch), _) => scratch.path().to_path_buf(),
            (None, Some(directory)) => directory.clone(),
            (None, None) => default_directory()?,
        };
        let config = apiserver::Config {
            listen: self.listen,
            names: std::mem::take(&mut self.names),
            ..apiserver::Config::new(&directory)
        };
        let server = apiserver::Server::start(config)
            .await
            .context("cannot start the API server")?;
        output::say(format_args!("API server   {}", server.url()));
        output::say(format_args!(
            "kubeconfig   {}",
            server.kubeconfig_path().display()
        ));

        let client = Client::new(server.service(), "default");
        let webhook = Webhook::listen(LOOPBACK).await?;
        let published = Published::Address(webhook.address());
        let clock = controllers::Clock::system();
        let trusted = Trusted {
            client: client.clone(),
            certificate: webhook.certificate(),
            published,
        };
        let bundle = trusted
            .renew(None, clock)
            .await?
            .context("there was no certificate, so one was made")?;
        if self.demo {
            demo::check(&client).await?;
        }
        let renewal = tokio::spawn(trusted.keep(bundle, clock));
        let stop = CancellationToken::new();
        let consoles = Consoles::listen(LOOPBACK, client.clone(), None, clock).await?;
        let fleet = Fleet::new();
        let controllers = (!self.api_only).then(|| {
            let options = controllers::Options {
                fleet: fleet.clone(),
                console: Some(format!("http://{}", consoles.address())),
                ..controllers::Options::default()
            };
            consoles.engine().set(Some(fleet.clone()));
            tokio::spawn(controllers::run(client.clone(), options, stop.clone()))
        });

        let simulated = if self.demo {
            // A guest that is remembered must still be there.
            let kept = scratch
                .is_none()
                .then(|| directory.join("simulated-pve.json"));
            Some(demo::start(&client, kept).await?)
        } else {
            None
        };
        self.pve.write_down(&client).await?;
        let outcome = match self.pve.greet().await {
            Ok(false) if self.until_ready => Ok(ExitCode::FAILURE),
            Ok(_) => self.stay(&client, &fleet, server.kubeconfig_path()).await,
            Err(error) => Err(error),
        };

        let end = async {
            stop.cancel();
            renewal.abort();
            if let Some(controllers) = controllers {
                let _ = controllers.await;
            }
            server.shutdown().await;
        };
        let ended = stop::unless_hurried(end, interrupted()).await;
        drop((webhook, consoles));
        drop(simulated);
        drop(scratch);
        outcome.map(|code| if ended { code } else { ExitCode::FAILURE })
    }

    /// Shows what happens until there is nothing left to wait for, or somebody asks to stop.
    async fn stay(&self, client: &Client, fleet: &Fleet, kubeconfig: &Path) -> Result<ExitCode> {
        let interrupted = interrupted();
        tokio::pin!(interrupted);
        if self.demo || self.until_ready {
            tokio::select! {
                ending = progress::follow(client, fleet, self.until_ready) => {
                    let ending = ending?;
                    if self.until_ready {
                        return Ok(match ending {
                            Ending::Ready => ExitCode::SUCCESS,
                            Ending::Failed => ExitCode::FAILURE,
                        });
                    }
                }
                () = &mut interrupted => {
                    output::say("\nstopping");
                    if self.until_ready {
                        output::say("not every machine was ready yet");
                        return Ok(ExitCode::FAILURE);
                    }
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
        next_steps(kubeconfig, self.demo);
        interrupted.await;
        output::say("\nstopping");
        Ok(ExitCode::SUCCESS)
    }
}

/// A name or address as certificates have it.
fn host(text: &str) -> Result<String, String> {
    match ServerName::try_from(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => {
            Err("it is a name or an address, such as up.example.com or 192.168.1.5".to_owned())
        }
    }
}

fn next_steps(kubeconfig: &Path, demo: bool) {
    output::say("\nTry next, in another terminal (Ctrl-C here stops everything):");
    output::say(format_args!("  export KUBECONFIG={}", kubeconfig.display()));
    if demo {
        output::say("  kubectl get vm,vmclass,vmimage,provider -o wide");
        output::say("  kubectl describe vm web-1");
        output::say(
            "  kubectl patch vm web-1 --type=merge -p '{\"spec\":{\"cpus\":4,\"updatePolicy\":\"RestartIfNeeded\"}}'",
        );
        output::say("  kubectl delete vm web-2");
        output::say("Without kubectl, the same program does it:");
        let oxmox = own_name();
        output::say(format_args!("  {oxmox} vm list"));
        output::say(format_args!("  {oxmox} vm console web-1"));
        output::say(format_args!("  {oxmox} vm stop web-1 --wait"));
        output::say(format_args!(
            "  {oxmox} vm snapshot first --vm web-1 --include-memory"
        ));
    } else {
        output::say("  kubectl get provider           # is Proxmox VE connected?");
        output::say("  kubectl explain vm.spec        # what a machine can say");
        output::say(
            "  kubectl apply -f examples/class.yaml -f examples/image.yaml -f examples/machine.yaml",
        );
        output::say("  kubectl get vm -w");
    }
}

/// The webhook's certificate, and who must believe it.
struct Trusted {
    client: Client,
    certificate: Arc<Certificate>,
    published: Published,
}

impl Trusted {
    /// Installs our kinds with a certificate that lasts, and serves with it; nothing is done if this one still lasts.
    async fn renew(
        &self,
        before: Option<&Bundle>,
        clock: controllers::Clock,
    ) -> Result<Option<Bundle>> {
        let renewed = Bundle::renewed(before, &self.published.names(), clock.now())?;
        let Some(bundle) = renewed else {
            return Ok(None);
        };
        // Told first: who is served with a certificate must be able to believe it.
        apply::definitions(&self.client, &self.published.conversion(&bundle))
            .await
            .context("cannot install Oxmox's kinds")?;
        apply::admission(&self.client, &self.published.admission(&bundle)).await?;
        self.certificate.set(&bundle)?;
        Ok(Some(bundle))
    }

    /// Renews it whenever it is time.
    async fn keep(self, mut bundle: Bundle, clock: controllers::Clock) {
        loop {
            tokio::time::sleep(RENEWAL).await;
            match self.renew(Some(&bundle), clock).await {
                Ok(next) => bundle = next.unwrap_or(bundle),
                Err(error) => tracing::warn!(
                    error = format!("{error:#}"),
                    "the webhook's certificate was not renewed; trying again"
                ),
            }
        }
    }
}

/// What to type for this program.
fn own_name() -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::current_exe().ok();
    typed_as(&path, program.as_deref(), Path::is_file)
}

/// `oxmox` where the search path has one, otherwise the program by its place.
fn typed_as(path: &OsStr, program: Option<&Path>, is_there: impl Fn(&Path) -> bool) -> String {
    let found = std::env::split_paths(path).any(|directory| is_there(&directory.join("oxmox")));
    match program {
        Some(program) if !found => {
            let place = program.display().to_string();
            if place.contains(char::is_whitespace) {
                format!("'{place}'")
            } else {
                place
            }
        }
        _ => "oxmox".to_owned(),
    }
}

/// Where data is kept unless told otherwise.
pub(crate) fn default_directory() -> Result<PathBuf> {
    directory_in(|name| std::env::var_os(name))
}

fn directory_in(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let path = |name| variable(name).filter(|path| !path.is_empty());
    if let Some(said) = path("OXMOX_DATA_DIR") {
        return Ok(said.into());
    }
    let home = || path("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    match path("XDG_DATA_HOME").map(PathBuf::from).or_else(home) {
        Some(data) => Ok(data.join("oxmox")),
        None => bail!("cannot tell where to keep data: set --data-dir"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_certificate_of_the_webhook_is_renewed_before_it_runs_out() {
        let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = controllers::Clock::starting_at(epoch);
        let server = apiserver::InMemory::with(apiserver::Clock::at(epoch), 1);
        let client = Client::new(server.service(), "default");
        let certificate = Arc::new(Certificate::default());
        let trusted = Trusted {
            client: client.clone(),
            certificate: certificate.clone(),
            published: Published::Address(LOOPBACK),
        };
        let first = trusted.renew(None, clock).await.unwrap().unwrap();
        assert!(trusted.renew(Some(&first), clock).await.unwrap().is_none());
        let served = format!("{certificate:?}");
        let kept = tokio::spawn(trusted.keep(first, clock));
        tokio::time::sleep(Duration::from_hours(24 * 100)).await;
        assert_ne!(format!("{certificate:?}"), served);
        assert!(!kept.is_finished());
    }

    #[test]
    fn a_certificate_is_for_names_and_addresses() {
        for good in ["up.example.com", "up", "192.168.1.5", "fe80::1"] {
            assert_eq!(host(good).unwrap(), good);
        }
        for bad in ["", "https://up.example.com", "up.example.com:6443", "[::1]"] {
            assert!(host(bad).unwrap_err().contains("192.168.1.5"), "{bad}");
        }
    }

    #[test]
    fn data_is_kept_where_the_environment_says() {
        let of = |variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name)?;
                Some(OsString::from(found.1))
            };
            let directory = directory_in(variable).ok();
            directory.map(|directory| directory.display().to_string())
        };
        let all = [
            ("OXMOX_DATA_DIR", "/srv/machines"),
            ("XDG_DATA_HOME", "/data"),
            ("HOME", "/home/joe"),
        ];
        assert_eq!(of(&all).as_deref(), Some("/srv/machines"));
        assert_eq!(of(&all[1..]).as_deref(), Some("/data/oxmox"));
        let usual = "/home/joe/.local/share/oxmox";
        assert_eq!(of(&all[2..]).as_deref(), Some(usual));
        assert_eq!(of(&[("OXMOX_DATA_DIR", "")]), None);
    }

    #[test]
    fn what_is_not_on_the_path_is_called_by_its_place() {
        let path = OsStr::new("/usr/bin:/opt/bin");
        let built = Some(Path::new("/src/target/debug/oxmox"));
        assert_eq!(
            typed_as(path, built, |_| false),
            "/src/target/debug/oxmox",
            "after `cargo run`"
        );
        let installed = |file: &Path| file == Path::new("/opt/bin/oxmox");
        assert_eq!(typed_as(path, built, installed), "oxmox");
        assert_eq!(typed_as(path, None, |_| false), "oxmox");
        let apart = Some(Path::new("/my work/oxmox"));
        assert_eq!(typed_as(path, apart, |_| false), "'/my work/oxmox'");
    }
}
