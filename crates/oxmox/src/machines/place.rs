//! Which cluster, and which namespace of it.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::act::There;

/// Which cluster and namespace.
#[derive(Args)]
pub(super) struct Place {
    /// The kubeconfig to use; otherwise $KUBECONFIG, ~/.kube/config, or the one `oxmox up` wrote in $OXMOX_DATA_DIR or its usual directory.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// The namespace; otherwise the context's.
    #[arg(long, short, global = true)]
    namespace: Option<String>,
}

impl Place {
    /// A client, and the namespace to look in.
    pub(super) async fn connect(&self) -> Result<There> {
        let config = self.config().await?;
        let namespace = self
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.clone();
        let client = Client::try_from(config).context("cannot use the kubeconfig")?;
        Ok(There {
            client,
            namespace,
            server,
        })
    }

    async fn config(&self) -> Result<Config> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let read = |file: &PathBuf| {
            Kubeconfig::read_from(file).with_context(|| format!("cannot read {}", file.display()))
        };
        if let Some(file) = &self.kubeconfig {
            return Ok(Config::from_custom_kubeconfig(read(file)?, &options).await?);
        }
        if self.context.is_some() {
            return Config::from_kubeconfig(&options)
                .await
                .context("cannot find that context");
        }
        match Config::infer().await {
            Ok(config) => Ok(config),
            Err(error) => {
                let ours = crate::up::default_directory().ok();
                let ours = ours.map(|directory| directory.join("kubeconfig"));
                let ours = ours.filter(|file| file.exists() && !is_another_meant());
                match ours {
                    Some(file) => Ok(Config::from_custom_kubeconfig(read(&file)?, &options).await?),
                    None => Err(error).context(
                        "cannot find a Kubernetes cluster: give --kubeconfig, or correct $KUBECONFIG or ~/.kube/config",
                    ),
                }
            }
        }
    }
}

/// Whether somebody has said which cluster is meant. One that cannot be reached is no reason to act on another.
fn is_another_meant() -> bool {
    let said = std::env::var_os("KUBECONFIG");
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    is_meant(said.as_deref(), home.is_some_and(|file| file.exists()))
}

fn is_meant(said: Option<&OsStr>, usual_exists: bool) -> bool {
    said.is_some_and(|said| !said.is_empty()) || usual_exists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_was_named_and_is_gone_is_not_mistaken_for_ours() {
        assert!(is_meant(Some(OsStr::new("/tmp/gone/kubeconfig")), false));
        assert!(is_meant(None, true));
        assert!(!is_meant(None, false));
        assert!(!is_meant(Some(OsStr::new("")), false));
    }
}
