//! The objects a new server begins with.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    api::{Api, By, context::Context},
    auth::bootstrap as roles,
    status::Result,
};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates what is missing.
pub(crate) async fn run(api: &Arc<Api>) -> Result<()> {
    let context = Context::internal("system:apiserver", "kube-apiserver");
    for name in NAMESPACES {
        ensure(
            api,
            &context,
            ("", "v1", "namespaces"),
            json!({"metadata": {"name": name}}),
        )
        .await?;
    }
    let rbac = "rbac.authorization.k8s.io";
    for role in roles::cluster_roles() {
        ensure(api, &context, (rbac, "v1", "clusterroles"), role).await?;
    }
    for binding in roles::cluster_role_bindings() {
        ensure(api, &context, (rbac, "v1", "clusterrolebindings"), binding).await?;
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
