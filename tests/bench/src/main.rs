//! The embedded API server beside etcd and kube-apiserver: the same load, on the same machine, in one run.
//!
//! `cargo xtask bench apiserver` runs this in release mode. Every server is a process of its own, spoken to
//! over TLS by the same client, so what differs is the server. Three are measured:
//!
//! - ours, which acknowledges a write when it is durable;
//! - etcd and kube-apiserver, durable as well;
//! - the same with an etcd that does not wait for the disk, which no cluster should run but which shows
//!   how much of the time is the disk's.
//!
//! It is here and not in `oxmox bench` because it needs the real programs, which only a checkout builds.

mod load;
mod report;
mod subject;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

use self::{report::Row, subject::Subject};

#[derive(Parser)]
#[command(name = "bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compares the embedded API server with etcd and kube-apiserver.
    Apiserver {
        /// How many objects to create, list and hold.
        #[arg(long, default_value_t = 10_000)]
        objects: usize,
        /// How many clients write at once, each on its own connection.
        #[arg(long, default_value_t = 16)]
        clients: usize,
        /// Writes the figures as JSON to this file, too.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Measures only the embedded server.
        #[arg(long)]
        only_ours: bool,
    },
    /// Runs the embedded server in a directory until standard input ends.
    #[command(hide = true)]
    Serve {
        /// Where its data lies.
        directory: PathBuf,
    },
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    match Cli::parse().command {
        Command::Serve { directory } => runtime.block_on(subject::serve(directory)),
        Command::Apiserver {
            objects,
            clients,
            json,
            only_ours,
        } => {
            let rows = runtime.block_on(compare(objects, clients, only_ours))?;
            anstream::println!("{}", report::table(&rows));
            let text = report::json(&rows, objects, clients)?;
            anstream::println!("{text}");
            if let Some(path) = json {
                std::fs::write(path, format!("{text}\n"))?;
            }
            Ok(())
        }
    }
}

async fn compare(objects: usize, clients: usize, only_ours: bool) -> Result<Vec<Row>> {
    let mut kinds = vec![subject::Kind::Embedded];
    if !only_ours {
        kinds.extend([subject::Kind::Durable, subject::Kind::Hasty]);
    }
    let mut rows = Vec::new();
    for kind in kinds {
        anstream::eprintln!("{} ...", kind.name());
        let subject = Subject::start(kind).await?;
        rows.push(load::measure(&subject, objects, clients).await?);
    }
    Ok(rows)
}
