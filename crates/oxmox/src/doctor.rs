//! `oxmox doctor`: what is missing on one Proxmox VE, and the commands that fix it.
//!
//! It looks and changes nothing. Each check says `ok`, `info`, `warn` or `FAIL`, and what to do; whatever a person
//! would otherwise find out by a failed machine an hour later belongs here. A certificate that is not believed ends
//! the examination: a token must not be sent to somebody unknown.

mod clock;
mod connect;
mod examine;
mod render;
mod report;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use pve::privilege::{Feature, Scope};
use pve::{PoolId, StorageId};

use self::connect::Connection;
use self::report::Report;
use crate::output;

/// Arguments of `oxmox doctor`.
#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    connection: Connection,
    /// Check the privileges of this feature only; may be repeated. What is missing for it is a failure.
    #[arg(long = "feature", value_name = "NAME", value_parser = feature)]
    features: Vec<Feature>,
    /// Guests shall live in this pool only.
    #[arg(long)]
    pool: Option<PoolId>,
    /// This storage shall be used; may be repeated.
    #[arg(long = "storage", value_name = "ID")]
    storages: Vec<StorageId>,
    /// This bridge shall be used; may be repeated.
    #[arg(long = "bridge", value_name = "NAME")]
    bridges: Vec<String>,
    /// Form of the report.
    #[arg(long, short, default_value = "text")]
    output: Form,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// For a person.
    Text,
    /// For a program.
    Json,
}

/// What the caller wants to do with this Proxmox VE.
pub(crate) struct Wanted {
    /// Features that must work; all that can if empty.
    pub(crate) features: Vec<Feature>,
    pub(crate) scope: Scope,
}

impl Doctor {
    /// Examines, reports, and says by the exit code whether there is a problem.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let wanted = Wanted {
            features: self.features,
            scope: Scope {
                pool: self.pool,
                storages: self.storages,
                bridges: self.bridges,
            },
        };
        let report = runtime.block_on(diagnose(&self.connection, &wanted))?;
        let text = match self.output {
            Form::Text => render::text(&report),
            Form::Json => serde_json::to_string_pretty(&report)? + "\n",
        };
        output::data(&text)?;
        Ok(if report.has_failed() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

async fn diagnose(connection: &Connection, wanted: &Wanted) -> Result<Report> {
    let mut report = Report::default();
    if let Some(client) = connection.open(&mut report).await? {
        examine::examine(
            &client,
            connection.who()?.as_str(),
            wanted,
            clock::now(),
            &mut report,
        )
        .await;
    }
    Ok(report)
}

fn feature(name: &str) -> Result<Feature, String> {
    Feature::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Feature::ALL.into_iter().map(Feature::name).collect();
        format!("it is one of {}", names.join(", "))
    })
}
