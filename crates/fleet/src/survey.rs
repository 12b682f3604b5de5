//! What changes seldom: the release, quorum, bridges, privileges.
//!
//! `/cluster/resources` does not tell these, and asking for them with every look would cost as much as the look
//! itself. So they are asked for when a cluster is connected, when its nodes or credentials change, and every few minutes; while
//! the quorum is missing, at the watcher's own rhythm, because everything waits for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use pve::{
    api::cluster::Member,
    privilege::{Feature, Plan, Scope},
};

use crate::{ClusterFacts, NodeName, cluster::Cluster, watcher};

const RHYTHM: Duration = Duration::from_mins(5);

/// Surveys until the cluster is disconnected.
pub(crate) async fn watch(cluster: Arc<Cluster>) {
    // The first look has just asked for the release.
    let mut first = true;
    loop {
        let pause = match cluster.view() {
            // The watcher says when there is something to be surveyed.
            None => RHYTHM,
            Some(view) => {
                let online = view.nodes.iter().filter(|(_, row)| row.online);
                let online: Vec<NodeName> = online.map(|(name, _)| name.clone()).collect();
                let upgraded = !std::mem::take(&mut first) && is_upgraded(&cluster).await;
                survey(&cluster, &online, upgraded).await;
                if cluster.state().facts.quorate == Some(false) {
                    watcher::RHYTHM
                } else {
                    RHYTHM
                }
            }
        };
        tokio::select! {
            biased;
            () = cluster.stop.cancelled() => return,
            () = cluster.survey.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn survey(cluster: &Arc<Cluster>, online: &[NodeName], upgraded: bool) {
    let quorate = quorate(cluster).await;
    let missing = missing_privileges(cluster).await;
    let mut bridges = BTreeMap::new();
    for node in online {
        if let Some(found) = bridges_of(cluster, node).await {
            bridges.insert(node.clone(), found);
        }
    }
    let mut state = cluster.state();
    let regained = state.facts.quorate == Some(false) && quorate != Some(false);
    let mut wake = if regained || upgraded {
        std::mem::take(&mut state.stranded)
    } else {
        BTreeSet::new()
    };
    if upgraded {
        // What was refused may be done now, and the other way round.
        wake.extend(state.guests.keys().cloned());
        wake.extend(state.images.keys().map(|(owner, _)| owner.clone()));
    }
    state.facts = ClusterFacts {
        quorate,
        missing_privileges: missing.unwrap_or_else(|| state.facts.missing_privileges.clone()),
        bridges: bridges.clone(),
        ..std::mem::take(&mut state.facts)
    };
    if let Some(view) = &mut state.view {
        Arc::make_mut(view).bridges = bridges;
    }
    let facts = Arc::new(state.facts.clone());
    drop(state);
    watcher::publish(cluster, facts);
    cluster.wake(&wake.into_iter().collect::<Vec<_>>());
}

/// Whether another release answers than before: clusters are upgraded while they are watched.
async fn is_upgraded(cluster: &Cluster) -> bool {
    let Ok(version) = cluster.client.version().await else {
        return false;
    };
    let mut state = cluster.state();
    let release = version.numbers();
    state.facts.version = Some(version.version);
    let before = state.release.replace(release);
    before.is_some_and(|before| before != release)
}

/// `None` where it could not be read.
async fn quorate(cluster: &Cluster) -> Option<bool> {
    let members = cluster.client.cluster().status().await.ok()?;
    let said = members.iter().find_map(|member| match member {
        Member::Cluster { quorate, .. } => Some(*quorate),
        Member::Node { .. } => None,
    });
    // A node that stands alone needs nobody's agreement.
    Some(said.unwrap_or(true))
}

/// Privileges that are held nowhere. Whoever is confined to a pool or a storage has them there.
async fn missing_privileges(cluster: &Cluster) -> Option<BTreeMap<Feature, Vec<String>>> {
    let release = cluster.state().release?;
    let held = cluster.client.access().permissions(None, None).await.ok()?;
    let plan = Plan::new(&Feature::ALL, release, &Scope::default(), &held);
    let somewhere = |privilege: &&str| held.iter().any(|(_, held)| held.contains_key(*privilege));
    let mut missing = BTreeMap::new();
    for (feature, needs) in &plan.missing {
        let needs = needs.iter().filter(|need| !need.any.iter().any(somewhere));
        let lacking: Vec<String> = needs
            .map(|need| format!("{}: {}", need.path, need.privilege()))
            .collect();
        if !lacking.is_empty() {
            missing.insert(*feature, lacking);
        }
    }
    Some(missing)
}

/// The bridges and VNets of a node that these credentials may use; `None` where that is not known.
async fn bridges_of(cluster: &Cluster, node: &NodeName) -> Option<Vec<String>> {
    let listed = cluster.client.node(node).network(Some("any_bridge")).await;
    let mut names: Vec<String> = listed.ok()?.into_iter().map(|i| i.iface).collect();
    names.sort();
    names.dedup();
    Some(names)
}
