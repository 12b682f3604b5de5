//! Runs a real control plane until Ctrl-C, for looking things up by hand.
//!
//! `cargo run -p testbed --example control-plane`, then use the kubeconfig that it prints.

use std::io::Write as _;

use testbed::{ControlPlane, Options, assets};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let controllers = vec!["*".into()];
    let options = Options {
        controllers,
        ..Options::default()
    };
    let plane = ControlPlane::start(&assets(), &options).await?;
    writeln!(std::io::stdout(), "{}", plane.kubeconfig().display())?;
    tokio::signal::ctrl_c().await?;
    Ok(())
}
