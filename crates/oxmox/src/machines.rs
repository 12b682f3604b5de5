//! `oxmox vm`: machines for people without kubectl, and the `kubectl create vmsnapshot` plugin.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use api::vm::{LocalRef, VMSnapshot, VMSnapshotSpec, VirtualMachine, condition};
use clap::{Args, Parser, Subcommand};
use comfy_table::Table;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::output;

/// Looks at machines, and starts and stops them.
#[derive(Args)]
pub(crate) struct Machines {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

/// Which cluster and namespace.
#[derive(Args)]
struct Place {
    /// The kubeconfig to use, such as the one `oxmox up` wrote.
    #[arg(long, env = "KUBECONFIG", global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The namespace.
    #[arg(long, short, default_value = "default", global = true)]
    namespace: String,
}

#[derive(Subcommand)]
enum Command {
    /// Lists machines.
    #[command(visible_alias = "ls")]
    List,
    /// Shows everything known about a machine, and what happened to it.
    Describe {
        /// Its name.
        name: String,
    },
    /// Starts a machine.
    Start {
        /// Its name.
        name: String,
    },
    /// Shuts a machine down.
    Stop {
        /// Its name.
        name: String,
        /// Cut it off at once.
        #[arg(long)]
        hard: bool,
    },
    /// Restarts a running machine.
    Restart {
        /// Its name.
        name: String,
    },
    /// Takes a snapshot of a machine.
    Snapshot {
        /// Name of the snapshot.
        name: String,
        #[command(flatten)]
        options: SnapshotOptions,
    },
}

#[derive(Args)]
struct SnapshotOptions {
    /// The machine.
    #[arg(long, value_name = "NAME")]
    vm: String,
    /// A note, shown on PVE.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Keep the running memory too.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
    include_memory: bool,
}

/// The kubectl plugin: installed as `kubectl-create-vmsnapshot` it makes `kubectl create vmsnapshot` work.
#[derive(Parser)]
#[command(
    name = "kubectl create vmsnapshot",
    about = "Takes a snapshot of a machine"
)]
pub(crate) struct SnapshotPlugin {
    #[command(flatten)]
    place: Place,
    /// Name of the snapshot.
    name: String,
    #[command(flatten)]
    options: SnapshotOptions,
}

impl SnapshotPlugin {
    /// The name under which this program is the plugin.
    pub(crate) const NAME: &str = "kubectl-create-vmsnapshot";

    pub(crate) fn run(self) -> Result<ExitCode> {
        let command = Command::Snapshot {
            name: self.name,
            options: self.options,
        };
        Machines {
            place: self.place,
            command,
        }
        .run()
    }
}

impl Machines {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        runtime.block_on(self.act())
    }

    async fn act(self) -> Result<ExitCode> {
        let client = self.place.client().await?;
        let namespace = &self.place.namespace;
        let api: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
        match self.command {
            Command::List => list(&api).await?,
            Command::Describe { name } => describe(&client, namespace, &name).await?,
            Command::Start { name } => {
                patch(&api, &name, json!({ "powerState": "On" }), "started").await?;
            }
            Command::Stop { name, hard } => {
                let state = if hard { "OffHard" } else { "Off" };
                patch(&api, &name, json!({ "powerState": state }), "stopped").await?;
            }
            Command::Restart { name } => {
                let count = machine(&api, &name)
                    .await?
                    .spec
                    .restarts
                    .unwrap_or_default()
                    + 1;
                patch(&api, &name, json!({ "restarts": count }), "restarted").await?;
            }
            Command::Snapshot { name, options } => {
                let api = Api::namespaced(client, namespace);
                snapshot(&api, name, options).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Place {
    async fn client(&self) -> Result<Client> {
        let config = match &self.kubeconfig {
            Some(file) => {
                let read = Kubeconfig::read_from(file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?
            }
            None => Config::infer()
                .await
                .context("cannot find a Kubernetes cluster; give --kubeconfig")?,
        };
        Client::try_from(config).context("cannot use the kubeconfig")
    }
}

async fn machine(api: &Api<VirtualMachine>, name: &str) -> Result<VirtualMachine> {
    match api
        .get_opt(name)
        .await
        .context("the API server did not answer")?
    {
        Some(machine) => Ok(machine),
        None => bail!("there is no machine {name:?}; `oxmox vm list` shows those there are"),
    }
}

async fn list(api: &Api<VirtualMachine>) -> Result<()> {
    let machines = api
        .list(&ListParams::default())
        .await
        .context("the API server did not answer")?;
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["NAME", "PHASE", "READY", "NODE", "VMID", "ADDRESSES"]);
    for machine in machines {
        let status = machine.status.clone().unwrap_or_default();
        let ready = condition(&status.conditions, "Ready").map_or("", |c| c.status.as_str());
        table.add_row([
            machine.name_any(),
            format!("{:?}", status.phase.unwrap_or_default()),
            ready.to_owned(),
            status.node.clone().unwrap_or_default(),
            status.vmid.map(|vmid| vmid.to_string()).unwrap_or_default(),
            status.ips.join(", "),
        ]);
    }
    output::data(&format!("{table}\n"))
}

async fn describe(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let mut shown = machine(&Api::namespaced(client.clone(), namespace), name).await?;
    shown.metadata.managed_fields = None;
    let mut value = serde_json::to_value(&shown).context("the machine cannot be shown")?;
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        // For the engine, not for people.
        status.remove("record");
    }
    let mut text = serde_saphyr::to_string(&value).context("the machine cannot be shown")?;
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let mut events = events
        .list(&about)
        .await
        .context("the API server did not answer")?
        .items;
    events.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
    text.push_str("events:\n");
    for event in events {
        let at = event
            .last_timestamp
            .map(|time| time.0.to_string())
            .unwrap_or_default();
        let reason = event.reason.unwrap_or_default();
        let message = event.message.unwrap_or_default();
        let _ = writeln!(text, "  {at}  {reason}: {message}");
    }
    output::data(&text)
}

async fn patch(api: &Api<VirtualMachine>, name: &str, spec: Value, done: &str) -> Result<()> {
    machine(api, name).await?;
    let patch = json!({ "spec": spec });
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("the API server refused the change of {name}"))?;
    output::say(format_args!(
        "{name} is being {done}; `oxmox vm describe {name}` shows how far it is"
    ));
    Ok(())
}

async fn snapshot(api: &Api<VMSnapshot>, name: String, options: SnapshotOptions) -> Result<()> {
    let snapshot = VMSnapshot {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        spec: VMSnapshotSpec {
            vm_ref: LocalRef { name: options.vm },
            description: options.description,
            include_memory: options.include_memory,
            ..VMSnapshotSpec::default()
        },
        status: None,
    };
    api.create(&PostParams::default(), &snapshot)
        .await
        .with_context(|| format!("the API server refused the snapshot {name}"))?;
    output::data(&format!("vmsnapshot.infra.virtrigaud.io/{name} created\n"))
}
