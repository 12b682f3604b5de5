//! `oxmox vm console`: a machine's serial line in this terminal; `oxmox vm vnc`: its screen in a viewer.

mod connect;
mod screen;
mod terminal;

use std::net::IpAddr;

use anyhow::{Context as _, Result, bail};
use api::vm::{LocalRef, VMConsole, VMConsoleSpec};
use axum::http::Uri;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Resource as _, ResourceExt as _};
use secrecy::{ExposeSecret as _, SecretString};

pub(super) use self::screen::{Vnc, show};
use super::act::There;
use super::answer::why;
use crate::console::{digest, token};
use crate::output;

/// Which console.
#[derive(Args)]
pub(super) struct Console {
    /// Its name.
    name: String,
    /// Print an address for a WebSocket client instead: good once, within a minute. It is a secret.
    #[arg(long)]
    url: bool,
    /// PEM file of the authority that signed the console's certificate, if this computer does not know it.
    #[arg(long, value_name = "FILE")]
    ca: Option<std::path::PathBuf>,
}

pub(super) async fn open(there: &There, console: &Console) -> Result<()> {
    let name = &console.name;
    let url = address(there, name).await?;
    let secret = permit(there, name).await?;
    let aside = aside(&url, &there.server);
    if console.url {
        if let Some(aside) = aside {
            output::say(aside);
        }
        return output::data(&format!("{url}?token={}\n", secret.expose_secret()));
    }
    let (socket, _) = connect::connect(&url, &secret, console.ca.as_deref(), aside).await?;
    output::say(format_args!(
        "{name}'s serial line; Ctrl-] leaves, Enter shows a prompt"
    ));
    terminal::attach(socket).await
}

/// Where the machine's console is served.
async fn address(there: &There, name: &str) -> Result<String> {
    let machine = there.machine(name).await?;
    let status = machine.status.unwrap_or_default();
    let Some(url) = status.console_url else {
        bail!("{name} does not exist on Proxmox VE yet; `oxmox vm describe {name}` says why");
    };
    if !url.ends_with(&format!("/console/{}/{name}", there.namespace)) {
        bail!(
            "consoles are not served here: start `oxmox operator` with --console-listen and --console-url; Proxmox VE's own page is {url}"
        );
    }
    Ok(url)
}

/// What there is to know of a console that this computer may be the wrong one for.
fn aside(url: &str, server: &Uri) -> Option<&'static str> {
    let console: Uri = url.parse().ok()?;
    (is_loopback(&console) && !is_loopback(server)).then_some(
        "that address is for the computer only that `oxmox up` (or the operator) runs on: go there, or bring its port here with `ssh -L`",
    )
}

fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

/// Makes up a secret and writes its digest down, for one visit. Comes back with what to go there with.
async fn permit(there: &There, name: &str) -> Result<SecretString> {
    let bytes = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    let secret = URL_SAFE_NO_PAD.encode(bytes.map(uuid::Uuid::into_bytes).concat());
    let machine = there.machine(name).await?;
    let vm_ref = LocalRef {
        name: name.to_owned(),
    };
    let spec = VMConsoleSpec {
        vm_ref,
        token: digest(&secret),
    };
    let mut wanted = VMConsole::new("", spec);
    wanted.metadata = ObjectMeta {
        generate_name: Some(format!("{name}-")),
        // A permit that nobody used goes with its machine at the latest.
        owner_references: machine.owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let permits: Api<VMConsole> = Api::namespaced(there.client.clone(), &there.namespace);
    let made = permits.create(&PostParams::default(), &wanted).await;
    let made = made.map_err(why).with_context(|| {
        format!(
            "consoles in namespace {} are for those who may create vmconsoles.infra.virtrigaud.io there",
            there.namespace
        )
    })?;
    Ok(token(&made.name_any(), &secret).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_from_another_computer_is_told_of_consoles_on_loopback() {
        let told = |console: &str, server: &str| {
            let url = format!("{console}/console/default/web");
            aside(&url, &server.parse().unwrap()).is_some()
        };
        assert!(told("http://127.0.0.1:8081", "https://up.example.com:6443"));
        assert!(told("http://[::1]:8081", "https://192.168.1.5:6443"));
        assert!(!told("http://127.0.0.1:8081", "https://localhost:6443"));
        assert!(!told("http://127.0.0.1:8081", "https://[::1]:6443"));
        assert!(!told("https://console.example.com", "https://192.168.1.5"));
    }
}
