//! Taking snapshots, also as kubectl's own command.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use api::vm::{GuestRef, Phase, VMSnapshot, VMSnapshotSpec, condition};
use clap::{Args, Parser};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
    runtime::wait::await_condition,
};

use super::{
    Command, Machines,
    act::{Stay, There},
    answer::why,
    place::Place,
};
use crate::output;

#[derive(Args)]
pub(super) struct Options {
    /// The machine.
    #[arg(long, value_name = "NAME")]
    vm: String,
    /// A note, shown on PVE.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Keep the running memory too.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
    include_memory: bool,
    #[command(flatten)]
    stay: Stay,
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
    options: Options,
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

pub(super) async fn take(there: &There, name: String, options: Options) -> Result<()> {
    // A snapshot of nothing would wait for ever.
    there.machine(&options.vm).await?;
    let api: Api<VMSnapshot> = Api::namespaced(there.client.clone(), &there.namespace);
    let snapshot = VMSnapshot {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        spec: VMSnapshotSpec {
            vm_ref: GuestRef::machine(options.vm),
            description: options.description,
            include_memory: options.include_memory,
            ..VMSnapshotSpec::default()
        },
        status: None,
    };
    api.create(&PostParams::default(), &snapshot)
        .await
        .map_err(why)
        .with_context(|| format!("{name} is not taken"))?;
    if !options.stay.wait {
        return output::data(&format!("vmsnapshot.infra.virtrigaud.io/{name} created\n"));
    }
    let ended = |found: Option<&VMSnapshot>| found.is_none_or(|found| phase(found).is_some());
    let seen = Box::pin(await_condition(api.clone(), &name, ended));
    let Some(seen) = options.stay.for_it(seen).await? else {
        let why = message(&api.get(&name).await.map_err(why)?);
        return Err(options.stay.too_long(&name, "taken", &why));
    };
    match seen {
        Some(snapshot) if phase(&snapshot) == Some(Phase::Succeeded) => {
            output::data(&format!("vmsnapshot.infra.virtrigaud.io/{name} taken\n"))
        }
        Some(snapshot) => bail!("{name} cannot be taken: {}", message(&snapshot)),
        None => bail!("{name} was deleted meanwhile"),
    }
}

/// How it ended, if it has.
fn phase(snapshot: &VMSnapshot) -> Option<Phase> {
    let phase = snapshot.status.as_ref()?.phase?;
    matches!(phase, Phase::Succeeded | Phase::Failed).then_some(phase)
}

fn message(snapshot: &VMSnapshot) -> String {
    let status = snapshot.status.as_ref();
    let ready = status.and_then(|status| condition(&status.conditions, "Ready"));
    ready.map_or_else(
        || "nothing is known yet".to_owned(),
        |ready| ready.message.clone(),
    )
}
