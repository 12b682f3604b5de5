//! The examination itself, over any client.

use std::collections::{BTreeMap, BTreeSet};

use pve::api::cluster::{Member, Resource};
use pve::api::node::NodeEntry;
use pve::privilege::{Feature, Plan};
use pve::{Client, Error, Release};

use super::Wanted;
use super::connect::chain;
use super::report::{BridgeFact, NodeFact, Report, State, StorageFact, TemplateFact};

/// Seconds a node's clock may differ before it is worth a word, and before things break.
const DRIFT: u64 = 5;
const TOO_MUCH_DRIFT: u64 = 60;

/// Looks at everything; what cannot be seen is said so.
pub(super) async fn examine(
    client: &Client,
    who: &str,
    wanted: &Wanted,
    now: u64,
    report: &mut Report,
) {
    let Some(release) = release(client, report).await else {
        return;
    };
    let nodes = match client.nodes().await {
        Ok(nodes) => nodes,
        Err(error) => {
            report.fail("nodes", chain(&error), "see the cause");
            return;
        }
    };
    let online: Vec<&NodeEntry> = nodes
        .iter()
        .filter(|node| node.status == "online")
        .collect();
    quorum(client, report).await;
    list_nodes(&nodes, report);
    clocks(client, &online, now, report).await;
    privileges(client, who, release, wanted, report).await;
    let resources = match client.cluster().resources(None).await {
        Ok(resources) => resources,
        Err(error) => {
            report.fail("resources", chain(&error), "see the cause");
            return;
        }
    };
    storages(&resources, wanted, release, report);
    templates(&resources, report);
    bridges(client, &online, wanted, report).await;
    if who.contains('!') && release < Release::new(9, 1) {
        report.info(
            "consoles",
            "no token can open a serial line before Proxmox VE 9.1; `oxmox vm vnc` works, and `oxmox vm console` does with a user and a password",
        );
    }
    if who != "root@pam" {
        report.info(
            "root",
            "CPU pinning, huge pages and devices without a mapping are for root@pam with a password; no token can set them",
        );
    }
}

async fn release(client: &Client, report: &mut Report) -> Option<Release> {
    let version = match client.version().await {
        Ok(version) => version,
        Err(error) => {
            report.fail("release", chain(&error), "see the cause");
            return None;
        }
    };
    let release = version.numbers();
    report.release = Some(version.version.clone());
    match (release.major, release.minor) {
        (8 | 9, _) => report.ok("release", format!("Proxmox VE {}", version.version)),
        (7, 4..) => report.warn(
            "release",
            format!(
                "Proxmox VE {} is old: what it lacks is refused by name",
                version.version
            ),
            "upgrade to 8 or 9",
        ),
        (..8, _) => {
            report.fail(
                "release",
                format!("Proxmox VE {} is too old", version.version),
                "upgrade to 8 or 9",
            );
        }
        _ => report.warn(
            "release",
            format!(
                "Proxmox VE {} is newer than what this was made for",
                version.version
            ),
            "look for a newer oxmox",
        ),
    }
    Some(release)
}

async fn quorum(client: &Client, report: &mut Report) {
    let members = match client.cluster().status().await {
        Ok(members) => members,
        Err(error) => return unseen("quorum", &error, "Sys.Audit on /", report),
    };
    let cluster = members.iter().find_map(|member| match member {
        Member::Cluster { name, quorate, .. } => Some((name, *quorate)),
        Member::Node { .. } => None,
    });
    match cluster {
        Some((name, true)) => report.ok("quorum", format!("cluster '{name}' has its quorum")),
        Some((name, false)) => report.fail(
            "quorum",
            format!("cluster '{name}' has no quorum: nothing can be changed"),
            "bring enough nodes back; `pvecm status` on a node says which are missing",
        ),
        None => report.info("quorum", "this node stands alone"),
    }
}

fn list_nodes(nodes: &[NodeEntry], report: &mut Report) {
    for node in nodes {
        if node.status != "online" {
            report.warn(
                "nodes",
                format!("{} is {}", node.node, node.status),
                "bring it back, or remove it from the cluster",
            );
        }
        report.nodes.push(NodeFact {
            name: node.node.to_string(),
            status: node.status.clone(),
            fingerprint: node.ssl_fingerprint.clone(),
        });
    }
    let up = nodes.iter().filter(|node| node.status == "online").count();
    report.add(
        "nodes",
        if up == nodes.len() {
            State::Ok
        } else {
            State::Info
        },
        format!("{up} of {} nodes are up", nodes.len()),
        None,
    );
}

async fn clocks(client: &Client, online: &[&NodeEntry], now: u64, report: &mut Report) {
    let mut fine = 0;
    let mut hidden = None;
    for node in online {
        match client.node(&node.node).time().await {
            Ok(time) => {
                let drift = time.time.abs_diff(now);
                if drift <= DRIFT {
                    fine += 1;
                    continue;
                }
                let text = format!(
                    "the clock of {} differs by {drift} seconds from this machine's",
                    node.node
                );
                let fix = "let both keep time: `systemctl status chrony`";
                if drift > TOO_MUCH_DRIFT {
                    report.fail("clock", text, fix);
                } else {
                    report.warn("clock", text, fix);
                }
            }
            Err(error) => hidden = Some((node, error)),
        }
    }
    // One line is enough: what hides one node's clock hides all of them.
    if let Some((node, error)) = hidden {
        let right = match online {
            [_] => format!("Sys.Audit on /nodes/{}", node.node),
            _ => "Sys.Audit on /nodes".to_owned(),
        };
        unseen("clock", &error, &right, report);
    }
    if fine > 0 {
        report.ok(
            "clock",
            format!(
                "{fine} of {} clocks agree with this machine's",
                online.len()
            ),
        );
    }
}

async fn privileges(
    client: &Client,
    who: &str,
    release: Release,
    wanted: &Wanted,
    report: &mut Report,
) {
    let held = match client.access().permissions(None, None).await {
        Ok(held) => held,
        Err(error) => {
            return unseen(
                "rights",
                &error,
                "nothing; every user may ask for its own",
                report,
            );
        }
    };
    let features = if wanted.features.is_empty() {
        Feature::ALL.to_vec()
    } else {
        wanted.features.clone()
    };
    let plan = Plan::new(&features, release, &wanted.scope, &held);
    for feature in features {
        let Some(missing) = plan.missing.get(&feature) else {
            report.ok("rights", format!("{}: granted", feature.name()));
            continue;
        };
        let mut by_path: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for need in missing {
            by_path
                .entry(&need.path)
                .or_default()
                .push(need.privilege());
        }
        let list: Vec<String> = by_path
            .into_iter()
            .map(|(path, privileges)| format!("{} on {path}", privileges.join(" ")))
            .collect();
        let text = format!("{}: missing {}", feature.name(), list.join("; "));
        let fix = "run the commands below";
        if feature.is_basic() || !wanted.features.is_empty() {
            report.fail("rights", text, fix);
        } else {
            report.warn("rights", text, fix);
        }
    }
    report.commands = plan.commands(who);
}

fn storages(resources: &[Resource], wanted: &Wanted, release: Release, report: &mut Report) {
    let mut found: BTreeMap<String, StorageFact> = BTreeMap::new();
    for row in resources.iter().filter(|row| row.kind == "storage") {
        let Some(storage) = &row.storage else {
            continue;
        };
        let fact = found
            .entry(storage.to_string())
            .or_insert_with(|| StorageFact {
                name: storage.to_string(),
                kind: row.plugintype.clone().unwrap_or_default(),
                shared: row.shared,
                content: row.content.clone(),
                nodes: Vec::new(),
            });
        if row.status.as_deref() == Some("available") {
            fact.nodes
                .extend(row.node.as_ref().map(ToString::to_string));
        } else if let Some(node) = &row.node {
            report.warn(
                "storage",
                format!("{storage} cannot be used on {node} now"),
                format!("`pvesm status --storage {storage}` on {node} says why"),
            );
        }
    }
    for storage in &wanted.scope.storages {
        if !found.contains_key(storage.as_str()) {
            report.fail(
                "storage",
                format!("{storage} does not exist or may not be seen"),
                "check its name, and Datastore.Audit on it",
            );
        }
    }
    // Content is only known of storages that can be seen: advice about the others would be a guess.
    if found.is_empty() {
        report.fail(
            "storage",
            "no storage can be seen",
            "grant Datastore.Audit on /storage, then look again",
        );
        return;
    }
    let usable = |content: &str| {
        found
            .values()
            .any(|fact| fact.content.iter().any(|held| held == content))
    };
    let mut needs = vec![
        ("images", State::Fail, "disks of virtual machines"),
        ("iso", State::Fail, "first-boot images"),
        ("rootdir", State::Info, "containers"),
        ("vztmpl", State::Info, "container templates"),
        ("backup", State::Info, "backups"),
    ];
    if release >= Release::new(8, 3) {
        needs.push(("import", State::Info, "images to import"));
    }
    for (content, without, purpose) in needs {
        if usable(content) {
            report.ok(
                "storage",
                format!("there is room for {purpose} ({content})"),
            );
        } else {
            report.add(
                "storage",
                without,
                format!("no storage holds {content}: there is no room for {purpose}"),
                Some(add_content(&found, content)),
            );
        }
    }
    report.storages = found.into_values().collect();
}

/// How to let a storage hold one kind more. The option replaces the whole list, so a command is only given for a
/// storage whose list can be seen.
fn add_content(found: &BTreeMap<String, StorageFact>, content: &str) -> String {
    match found.get("local") {
        Some(local) => {
            let mut list: BTreeSet<&str> = local.content.iter().map(String::as_str).collect();
            list.insert(content);
            let list = list.into_iter().collect::<Vec<_>>().join(",");
            format!("add it to a storage: `pvesm set local --content {list}`")
        }
        None => format!("add {content} to what a storage may hold, in Datacenter > Storage"),
    }
}

fn templates(resources: &[Resource], report: &mut Report) {
    report.templates = resources
        .iter()
        .filter(|row| row.template)
        .filter_map(|row| {
            Some(TemplateFact {
                vmid: row.vmid?.get(),
                name: row.name.clone(),
                kind: row.kind.clone(),
                node: row.node.as_ref()?.to_string(),
            })
        })
        .collect();
    report.templates.sort_by_key(|template| template.vmid);
    if report.templates.is_empty() {
        report.warn(
            "templates",
            "there is no template to make machines from, or none that may be seen",
            "make one (`qm template ID`), or give image URLs instead; templates need VM.Audit and VM.Clone",
        );
    } else {
        report.ok("templates", format!("{} templates", report.templates.len()));
    }
}

async fn bridges(client: &Client, online: &[&NodeEntry], wanted: &Wanted, report: &mut Report) {
    let mut found: BTreeMap<String, BridgeFact> = BTreeMap::new();
    for node in online {
        match client.node(&node.node).network(Some("any_bridge")).await {
            Ok(interfaces) => {
                for interface in interfaces {
                    let fact = found
                        .entry(interface.iface.clone())
                        .or_insert_with(|| BridgeFact {
                            name: interface.iface.clone(),
                            nodes: Vec::new(),
                            vlan_aware: interface.bridge_vlan_aware,
                        });
                    fact.nodes.push(node.node.to_string());
                }
            }
            Err(error) => unseen(
                "bridges",
                &error,
                &format!("SDN.Audit or SDN.Use for {}", node.node),
                report,
            ),
        }
    }
    for fact in found
        .values()
        .filter(|fact| fact.nodes.len() < online.len())
    {
        report.warn(
            "bridges",
            format!(
                "{} is on {} only: machines that use it cannot run elsewhere",
                fact.name,
                fact.nodes.join(", ")
            ),
            "add it to the other nodes, or keep such machines there",
        );
    }
    for bridge in wanted
        .scope
        .bridges
        .iter()
        .filter(|bridge| !found.contains_key(*bridge))
    {
        report.fail(
            "bridges",
            format!("{bridge} does not exist or may not be seen"),
            "check its name, and SDN.Use on it",
        );
    }
    if found.is_empty() {
        report.fail(
            "bridges",
            "no bridge can be seen",
            "add one, or grant SDN.Use on /sdn/zones",
        );
    } else {
        report.ok(
            "bridges",
            found.keys().cloned().collect::<Vec<_>>().join(", "),
        );
    }
    report.bridges = found.into_values().collect();
}

/// Says that something could not be looked at, and which right would let it be.
fn unseen(subject: &'static str, error: &Error, right: &str, report: &mut Report) {
    match error {
        Error::Denied { .. } => report.warn(
            subject,
            format!("may not be seen: {error}"),
            format!("grant {right}"),
        ),
        error => report.fail(subject, chain(error), "see the cause"),
    }
}
