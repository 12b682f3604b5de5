//! `oxmox crds`: the definitions of Oxmox's kinds.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::output;

/// Prints the custom resource definitions: `oxmox crds | kubectl apply --server-side --force-conflicts -f -`.
#[derive(Args)]
pub(crate) struct Crds {
    /// Only these kinds, such as VirtualMachine.
    #[arg(value_name = "KIND")]
    kinds: Vec<String>,
}

impl Crds {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let all = api::installed_crds();
        for kind in &self.kinds {
            if !all
                .iter()
                .any(|crd| crd.spec.names.kind.eq_ignore_ascii_case(kind))
            {
                let known: Vec<&str> = all.iter().map(|crd| crd.spec.names.kind.as_str()).collect();
                bail!("there is no kind {kind:?}; there are {}", known.join(", "));
            }
        }
        let wanted = all.iter().filter(|crd| {
            self.kinds.is_empty()
                || self
                    .kinds
                    .iter()
                    .any(|k| crd.spec.names.kind.eq_ignore_ascii_case(k))
        });
        let mut text = String::new();
        for crd in wanted {
            let value = serde_json::to_value(crd).context("a definition cannot be written")?;
            text.push_str("---\n");
            text.push_str(
                &serde_saphyr::to_string(&value).context("a definition cannot be written")?,
            );
        }
        output::data(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
