//! Taking snapshots, also as kubectl's own command.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use api::vm::{LocalRef, VMSnapshot, VMSnapshotSpec};
use clap::{Args, Parser};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};

use super::{Command, Machines, act::There, place::Place};
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
    let api: Api<VMSnapshot> = Api::namespaced(there.client.clone(), &there.namespace);
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
