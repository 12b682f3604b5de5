//! `oxmox vm console`: a machine's serial line in this terminal; `oxmox vm vnc`: its screen in a viewer.

mod connect;
mod screen;
mod terminal;

use anyhow::{Context as _, Result, bail};
use api::vm::{LocalRef, VMConsole, VMConsoleSpec};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Resource as _, ResourceExt as _};
use secrecy::{ExposeSecret as _, SecretString};

pub(super) use self::screen::{Vnc, show};
use super::act::There;
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
    if console.url {
        return output::data(&format!("{url}?token={}\n", secret.expose_secret()));
    }
    let (socket, _) = connect::connect(&url, &secret, console.ca.as_deref()).await?;
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
    let made = made.with_context(|| {
        format!(
            "you may see consoles in namespace {} if you may create vmconsoles.infra.virtrigaud.io there, and the API server refused it",
            there.namespace
        )
    })?;
    Ok(token(&made.name_any(), &secret).into())
}
