//! What changes seldom: quorum, bridges, privileges.
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
    loop {
        let pause = match cluster.view() {
            // The watcher says when there is something to be surveyed.
            None => RHYTHM,
            Some(view) => {
                let online = view.nodes.iter().filter(|(_, row)| row.online);
                let online: Vec<NodeName> = online.map(|(name, _)| name.clone()).collect();
                survey(&cluster, &online).await;
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

async fn survey(cluster: &Arc<Cluster>, online: &[NodeName]) {
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
    let wake = if regained {
        std::mem::take(&mut state.stranded)
    } else {
        BTreeSet::new()
    };
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
