//! `kill -9` at any moment: what was acknowledged is there, and revisions only grow.
//!
//! The test runs itself as a child process that writes until it is killed, and reports each
//! acknowledged write on its standard output.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use apiserver::{Config, Server};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::client::config_map;

const DIRECTORY: &str = "APISERVER_CRASH_DIRECTORY";
const ROUNDS: usize = 6;

async fn open(directory: &Path) -> (Server, Api<ConfigMap>) {
    let server = Server::start(Config::new(directory)).await.unwrap();
    let maps = Api::default_namespaced(Client::new(server.service(), "default"));
    (server, maps)
}

/// The child: sixteen writers, each creating and then updating objects for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let (_server, maps) = open(Path::new(&directory)).await;
    let start = maps.list(&ListParams::default()).await.unwrap().items.len();
    let writers = (0..16).map(|writer| {
        let maps = maps.clone();
        tokio::spawn(async move {
            for round in 0.. {
                let name = format!("w{writer}-{start}-{round}");
                maps.create(&PostParams::default(), &config_map(&name))
                    .await
                    .unwrap();
                let patch = Patch::Merge(json!({"data": {"round": round.to_string()}}));
                let map = maps
                    .patch(&name, &PatchParams::default(), &patch)
                    .await
                    .unwrap();
                let version = map.metadata.resource_version.unwrap();
                let mut out = std::io::stdout().lock();
                writeln!(out, "acknowledged {name} {version}").unwrap();
                out.flush().unwrap();
            }
        })
    });
    futures::future::join_all(writers).await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "crash::child_that_writes_until_it_is_killed",
                "--nocapture",
            ])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A different number of writes each time puts the kill at a different point of the commit.
        let mut wanted = 60 + 7 * round;
        let mut note = |line: String| {
            let mut words = line
                .split(' ')
                .skip_while(|w| !w.ends_with("acknowledged"))
                .skip(1);
            if let (Some(name), Some(version)) = (words.next(), words.next())
                && let Ok(version) = version.parse()
            {
                acknowledged.insert(name.to_owned(), version);
                return true;
            }
            false
        };
        for line in lines.by_ref() {
            if note(line.unwrap()) {
                wanted -= 1;
            }
            if wanted == 0 {
                break;
            }
        }
        child.kill().unwrap();
        // What the child managed to say before it died counts, too.
        for line in lines.map_while(Result::ok) {
            note(line);
        }
        child.wait().unwrap();

        let (server, maps) = open(directory.path()).await;
        let list = maps.list(&ListParams::default()).await.unwrap();
        let stored: BTreeMap<_, _> = list
            .items
            .iter()
            .map(|map| {
                let version: u64 = map
                    .metadata
                    .resource_version
                    .as_ref()
                    .unwrap()
                    .parse()
                    .unwrap();
                (map.metadata.name.clone().unwrap(), version)
            })
            .collect();
        let highest = acknowledged.values().max().copied().unwrap_or_default();
        for (name, version) in &acknowledged {
            assert_eq!(
                stored.get(name),
                Some(version),
                "{name} after round {round}"
            );
        }
        let now: u64 = list.metadata.resource_version.unwrap().parse().unwrap();
        assert!(now >= highest, "revision {now} went back behind {highest}");
        server.shutdown().await;
    }
    assert!(acknowledged.len() >= 60 * ROUNDS);
}
