//! Changing machines, and waiting for the change.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::vm::{MIGRATION_FAILED, ManagementPolicy, Phase, VirtualMachine, condition};
use axum::http::Uri;
use clap::Args;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

use super::answer::{is_absent, why, why_unseen};
use crate::output;

/// A change of one machine.
#[derive(Args)]
pub(super) struct Act {
    /// Its name.
    pub(super) name: String,
    #[command(flatten)]
    stay: Stay,
}

/// Whether to wait for the change.
#[derive(Args, Clone, Copy)]
pub(super) struct Stay {
    /// Stay until it has happened.
    #[arg(long)]
    pub(super) wait: bool,
    /// How many seconds to stay at most.
    #[arg(long, default_value_t = 300, value_name = "SECONDS", requires = "wait")]
    timeout: u64,
}

impl Stay {
    /// What is waited for, unless it takes too long.
    pub(super) async fn for_it<T>(
        self,
        seen: impl Future<Output = Result<T, kube::runtime::wait::Error>>,
    ) -> Result<Option<T>> {
        match tokio::time::timeout(Duration::from_secs(self.timeout), seen).await {
            Ok(seen) => Ok(Some(seen.map_err(why_unseen)?)),
            Err(_) => Ok(None),
        }
    }

    /// That it took too long, and why as far as is known.
    pub(super) fn too_long(self, name: &str, done: &str, why: &str) -> anyhow::Error {
        anyhow::anyhow!("{name} is not {done} after {} s: {why}", self.timeout)
    }
}

/// A namespace of a cluster.
pub(super) struct There {
    pub(super) client: Client,
    pub(super) namespace: String,
    /// Where its API server is.
    pub(super) server: Uri,
}

impl There {
    pub(super) fn machines(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A machine, or advice.
    pub(super) async fn machine(&self, name: &str) -> Result<VirtualMachine> {
        match self.machines().get(name).await {
            Ok(machine) => Ok(machine),
            Err(error) if is_absent(&error) => bail!(
                "there is no machine {name:?} in namespace {:?}{}",
                self.namespace,
                self.elsewhere(name).await
            ),
            Err(error) => Err(why(error)),
        }
    }

    /// Where else there is a machine of that name, or how to find out.
    async fn elsewhere(&self, name: &str) -> String {
        let all: Api<VirtualMachine> = Api::all(self.client.clone());
        let of_that_name = ListParams::default().fields(&format!("metadata.name={name}"));
        // Who may not look into other namespaces is told what everybody is told.
        let found = all.list(&of_that_name).await.map(|list| list.items);
        let places: Vec<String> = found
            .unwrap_or_default()
            .iter()
            .filter_map(ResourceExt::namespace)
            .collect();
        match &places[..] {
            [] => "; `oxmox vm list -A` shows those there are".to_owned(),
            [one] => format!(", but there is one in {one:?}: add `-n {one}`"),
            several => format!(", but in {}: say which with `-n`", several.join(", ")),
        }
    }

    /// A machine that may be changed, or advice.
    pub(super) async fn kept(&self, name: &str, done: &str) -> Result<VirtualMachine> {
        let machine = self.machine(name).await?;
        if machine.spec.management_policy == ManagementPolicy::Observe {
            bail!(
                "{name} is only looked at and cannot be {done}: set its spec.managementPolicy to Manage first"
            );
        }
        Ok(machine)
    }

    /// Merges a change into a machine's spec.
    pub(super) async fn change(&self, act: &Act, spec: Value, done: &str) -> Result<()> {
        let name = &act.name;
        self.kept(name, done).await?;
        let patch = json!({ "spec": spec });
        let changed = self
            .machines()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(why)
            .with_context(|| format!("{name} is not {done}"))?;
        if !act.stay.wait {
            output::say(format_args!(
                "{name} is being {done}; `oxmox vm describe {name}` shows how far it is"
            ));
            return Ok(());
        }
        let generation = changed.metadata.generation;
        let rests = |found: Option<&VirtualMachine>| {
            found.is_none_or(|machine| {
                is_ready(machine, generation) || has_failed(machine, generation)
            })
        };
        let seen = Box::pin(await_condition(self.machines(), name, rests));
        match self.in_time(act, done, seen).await? {
            Some(machine) if is_ready(&machine, generation) => {
                output::say(format_args!("{name} is {done}"));
                Ok(())
            }
            Some(machine) => bail!("{name} cannot be {done}: {}", message(&machine)),
            None => bail!("{name} was deleted meanwhile"),
        }
    }

    /// Deletes a machine.
    pub(super) async fn delete(&self, act: &Act) -> Result<()> {
        let name = &act.name;
        self.machine(name).await?;
        self.machines()
            .delete(name, &DeleteParams::default())
            .await
            .map_err(why)
            .with_context(|| format!("{name} is not deleted"))?;
        if !act.stay.wait {
            output::say(format_args!("{name} is being deleted"));
            return Ok(());
        }
        let gone = |found: Option<&VirtualMachine>| found.is_none();
        let seen = Box::pin(await_condition(self.machines(), name, gone));
        self.in_time(act, "gone", seen).await?;
        output::say(format_args!("{name} is gone"));
        Ok(())
    }

    async fn in_time<T>(
        &self,
        act: &Act,
        done: &str,
        seen: impl Future<Output = Result<T, kube::runtime::wait::Error>>,
    ) -> Result<T> {
        if let Some(seen) = act.stay.for_it(seen).await? {
            return Ok(seen);
        }
        let machine = self.machine(&act.name).await?;
        Err(act.stay.too_long(&act.name, done, &message(&machine)))
    }
}

fn is_ready(machine: &VirtualMachine, generation: Option<i64>) -> bool {
    speaks_of(machine, generation) && ready(machine).is_some_and(|ready| ready.0)
}

/// Whether nothing will come of it, as the machine is declared.
fn has_failed(machine: &VirtualMachine, generation: Option<i64>) -> bool {
    let Some(status) = &machine.status else {
        return false;
    };
    let ready = condition(&status.conditions, "Ready");
    let immovable = ready.is_some_and(|ready| ready.reason == MIGRATION_FAILED);
    speaks_of(machine, generation) && (status.phase == Some(Phase::Failed) || immovable)
}

fn speaks_of(machine: &VirtualMachine, generation: Option<i64>) -> bool {
    let status = machine.status.as_ref();
    status.and_then(|status| status.observed_generation) >= generation
}

fn ready(machine: &VirtualMachine) -> Option<(bool, &str)> {
    let status = machine.status.as_ref()?;
    let ready = condition(&status.conditions, "Ready")?;
    Some((ready.status == "True", &ready.message))
}

fn message(machine: &VirtualMachine) -> String {
    ready(machine).map_or_else(
        || "nothing is known yet".to_owned(),
        |ready| ready.1.to_owned(),
    )
}
