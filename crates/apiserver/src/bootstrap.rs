//! The objects a new server begins with.

use std::sync::Arc;

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::{
    api::{Api, By, context::Context},
    auth::bootstrap as roles,
    status::Result,
};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The priorities of pods without which a cluster does not work: name, value and purpose.
const PRIORITIES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

fn priority((name, value, purpose): (&str, i64, &str)) -> Value {
    json!({
        "metadata": {"name": name},
        "value": value,
        "description": purpose,
        "preemptionPolicy": "PreemptLowerPriority",
    })
}

/// Creates what is missing.
pub(crate) async fn run(api: &Arc<Api>) -> Result<()> {
    let context = Context::internal("system:apiserver", "kube-apiserver");
    let namespaces = NAMESPACES.map(|name| json!({"metadata": {"name": name}}));
    let rbac = "rbac.authorization.k8s.io";
    for (kind, objects) in [
        (("", "v1", "namespaces"), namespaces.to_vec()),
        (
            ("scheduling.k8s.io", "v1", "priorityclasses"),
            PRIORITIES.map(priority).to_vec(),
        ),
        ((rbac, "v1", "clusterroles"), roles::cluster_roles()),
        (
            (rbac, "v1", "clusterrolebindings"),
            roles::cluster_role_bindings(),
        ),
    ] {
        // Handed in together they are made durable together, so a first start waits for the disk only
        // a few times.
        let ensured = objects
            .into_iter()
            .map(|object| ensure(api, &context, kind, object));
        try_join_all(ensured).await?;
    }
    Ok(())
}

async fn ensure(
    api: &Arc<Api>,
    context: &Context,
    (group, version, plural): (&str, &str, &str),
    mut object: Value,
) -> Result<()> {
    let Some(resource) = api.kinds().find(group, version, plural) else {
        return Ok(());
    };
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    let namespace = crate::object::namespace(&object).to_owned();
    let key = resource.key(&namespace, crate::object::name(&object));
    if api.store.get(&resource.storage, &key).is_none() {
        api.create_object(context, &resource, &namespace, object, By::Update)
            .await?;
    }
    Ok(())
}
