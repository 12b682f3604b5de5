//! Objects that one object makes of another: made once, then followed.
//!
//! Where the new guest comes from is written on its own object, so everything after its creation is that kind's
//! business, and deleting whoever made it takes nothing away.

use std::{collections::BTreeMap, time::Duration};

use api::vm::{Container, NamespacedRef, Phase, VirtualMachine, condition};
use fleet::ClusterName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Resource, ResourceExt as _, api::PostParams, core::NamespaceResourceScope};
use serde::Serialize;

use super::refs;
use crate::{
    context::{Context, Error, refusal},
    hub::Kind,
    known::Known,
};

/// The annotation that says which object made this one.
const MADE_BY: &str = "infra.virtrigaud.io/made-by";

/// A kind whose objects are made by others.
pub(super) trait Made: Kind + Resource<Scope = NamespaceResourceScope> + Serialize {
    fn store(context: &Context) -> &Known<Self>;
    fn conditions(&self) -> &[Condition];
}

impl Made for VirtualMachine {
    fn store(context: &Context) -> &Known<Self> {
        &context.stores.machines
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |it| &it.conditions)
    }
}

impl Made for Container {
    fn store(context: &Context) -> &Known<Self> {
        &context.stores.containers
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |it| &it.conditions)
    }
}

/// The Provider of the cluster that a guest of a namespace is on, by the name it has there.
pub(super) fn provider_of(cluster: &ClusterName, place: &str) -> Option<NamespacedRef> {
    let (theirs, name) = cluster.as_str().split_once('/')?;
    Some(NamespacedRef {
        name: name.to_owned(),
        namespace: (theirs != place).then(|| theirs.to_owned()),
    })
}

/// Who made an object.
pub(super) fn maker(object: &impl Made) -> Option<&String> {
    object.annotations().get(MADE_BY)
}

/// The object of that name, whoever made it.
pub(super) async fn find<K: Made>(
    context: &Context,
    place: &str,
    name: &str,
) -> Result<Option<K>, Error> {
    if let Some(found) = refs::find(K::store(context), place, name) {
        return Ok(Some((*found).clone()));
    }
    // The store may be behind what was made a moment ago.
    let api = Api::<K>::namespaced(context.client.clone(), place);
    Ok(api.get_opt(name).await?)
}

/// How soon what was refused is tried again: a quota may have grown since.
pub(super) const REFUSED: Duration = Duration::from_mins(1);

/// Makes an object, or finds who has its name; or says why it cannot be made.
pub(super) async fn make<K: Made>(
    context: &Context,
    place: &str,
    maker: &str,
    labels: BTreeMap<String, String>,
    mut object: K,
) -> Result<Result<K, Standing>, Error> {
    let api: Api<K> = Api::namespaced(context.client.clone(), place);
    let name = object.name_any();
    let metadata = object.meta_mut();
    metadata.labels = (!labels.is_empty()).then_some(labels);
    metadata.annotations = Some(BTreeMap::from([(MADE_BY.to_owned(), maker.to_owned())]));
    match api.create(&PostParams::default(), &object).await {
        Ok(made) => Ok(Ok(made)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Ok(api.get(&name).await?)),
        Err(error) => match refusal(&error) {
            Some(message) => {
                let kind = K::kind(&());
                let message = format!("{kind} {name:?} is refused: {message}");
                Ok(Err(Standing {
                    phase: Phase::Failed,
                    ..Standing::waiting("Refused", message)
                }))
            }
            None => Err(error.into()),
        },
    }
}

/// Where the object that was to be made stands.
pub(super) struct Standing {
    pub(super) ready: bool,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) phase: Phase,
    pub(super) made: Option<String>,
}

impl Standing {
    pub(super) fn waiting(reason: &str, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.to_owned(), message.into());
        Self {
            ready: false,
            reason,
            message,
            phase: Phase::Pending,
            made: None,
        }
    }

    /// Whether somebody has to do something about it.
    pub(super) fn is_wrong(&self) -> bool {
        let awaited = ["SourceNotFound", "BackupNotFound", "TargetDeleted"];
        self.phase == Phase::Failed || awaited.contains(&self.reason.as_str())
    }

    /// The object is ours, by this name.
    pub(super) fn named(mut self, name: String) -> Self {
        if self.phase != Phase::Failed {
            self.made = Some(name);
        }
        self
    }
}

/// Where the object that `made_by` was to make stands.
pub(super) fn follow<K: Made>(object: Option<&K>, name: &str, made_by: &str) -> Standing {
    let kind = K::kind(&());
    let Some(object) = object else {
        return Standing::waiting("TargetDeleted", format!("{kind} {name:?} was deleted"));
    };
    if maker(object).map(String::as_str) != Some(made_by) {
        let message =
            format!("{kind} {name:?} exists already and is not ours; choose another name");
        return Standing {
            phase: Phase::Failed,
            ..Standing::waiting("NameTaken", message)
        };
    }
    match condition(object.conditions(), "Ready") {
        None => Standing::waiting(
            "Created",
            format!("{kind} {name:?} has not been looked at yet"),
        ),
        Some(ready) if ready.status == "True" => Standing {
            ready: true,
            reason: "Completed".to_owned(),
            message: format!("{kind} {name:?} is ready"),
            phase: Phase::Succeeded,
            made: None,
        },
        Some(other) => Standing {
            phase: Phase::Provisioning,
            ..Standing::waiting(&other.reason, other.message.clone())
        },
    }
}
