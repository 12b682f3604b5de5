//! The kinds the server knows: one table for the built-in ones, to which CRDs add theirs at run time.
//!
//! Everything else in the server is generic over [`Resource`]: what differs between kinds is data here, not code in
//! handlers. A request reads one immutable [`Kinds`] snapshot, so a CRD that changes meanwhile
//! cannot change a request under way.

pub(crate) mod builtin;
pub(crate) mod crd;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, RwLock},
};

use serde_json::Value;

use crate::object;

/// One version of one kind, as it is served.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// Where its objects are in the store; several groups may share one (events do).
    pub(crate) storage: Arc<str>,
    /// The `apiVersion` objects are stored in.
    pub(crate) storage_version: String,
    pub(crate) traits: Traits,
    pub(crate) crd: Option<Arc<crd::Version>>,
}

/// How a kind departs from the plain create-read-update-delete.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traits {
    /// Has a `status` subresource; the main resource then leaves `.status` alone.
    pub(crate) status: bool,
    /// `metadata.generation` counts changes of the spec.
    pub(crate) generation: bool,
    /// Has a `scale` subresource over `.spec.replicas`.
    pub(crate) scale: bool,
    /// Only `create` is served and nothing is stored.
    pub(crate) virtual_only: bool,
    /// A PUT of a name that does not exist creates it.
    pub(crate) create_on_update: bool,
    /// Dependents are orphaned unless the client asks otherwise.
    pub(crate) orphan_by_default: bool,
}

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        object::api_version(&self.group, &self.version)
    }

    pub(crate) fn is_builtin(&self) -> bool {
        self.crd.is_none()
    }

    pub(crate) fn has_status(&self) -> bool {
        self.crd
            .as_ref()
            .map_or(self.traits.status, |crd| crd.status)
    }

    pub(crate) fn has_scale(&self) -> bool {
        self.crd
            .as_ref()
            .map_or(self.traits.scale, |crd| crd.scale.is_some())
    }

    pub(crate) fn has_generation(&self) -> bool {
        self.crd.is_some() || self.traits.generation
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// The store's key of an object of this kind.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// The group whose rules its objects follow: that in which they are stored.
    pub(crate) fn storage_group(&self) -> &str {
        object::group_version(&self.storage_version).0
    }

    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        if self.traits.virtual_only {
            &["create"]
        } else if !self.is_builtin() {
            // Definitions come with their own order.
            &[
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "create",
                "update",
                "watch",
            ]
        } else if self.is("", "namespaces") {
            &[
                "create", "delete", "get", "list", "patch", "update", "watch",
            ]
        } else {
            &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ]
        }
    }

    /// The subresources beside `status` and `scale`, with the kind they speak.
    pub(crate) fn extra_subresources(
        &self,
    ) -> &'static [(
        &'static str,
        &'static str,
        &'static str,
        &'static [&'static str],
    )] {
        match (self.group.as_str(), self.plural.as_str()) {
            ("", "pods") => &[
                ("binding", "v1", "Binding", &["create"]),
                (
                    "ephemeralcontainers",
                    "v1",
                    "Pod",
                    &["get", "patch", "update"],
                ),
                ("eviction", "policy/v1", "Eviction", &["create"]),
            ],
            ("", "serviceaccounts") => &[(
                "token",
                "authentication.k8s.io/v1",
                "TokenRequest",
                &["create"],
            )],
            ("", "namespaces") => &[("finalize", "v1", "Namespace", &["update"])],
            _ => &[],
        }
    }
}

type ByPlural = BTreeMap<String, Arc<Resource>>;

/// An immutable picture of all kinds served.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    /// By group, then version, then plural; versions of a group in order of preference.
    groups: BTreeMap<String, Vec<(String, ByPlural)>>,
}

impl Kinds {
    pub(crate) fn new(resources: impl IntoIterator<Item = Resource>) -> Self {
        let mut kinds = Self::default();
        for resource in resources {
            kinds.insert(resource);
        }
        for versions in kinds.groups.values_mut() {
            versions.sort_by_key(|(version, _)| version_order(version));
        }
        kinds
    }

    fn insert(&mut self, resource: Resource) {
        let versions = self.groups.entry(resource.group.clone()).or_default();
        let at = versions
            .iter()
            .position(|(version, _)| *version == resource.version)
            .unwrap_or_else(|| {
                versions.push((resource.version.clone(), BTreeMap::new()));
                versions.len() - 1
            });
        versions[at]
            .1
            .insert(resource.plural.clone(), Arc::new(resource));
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.resources_of(group, version)?.get(plural).cloned()
    }

    pub(crate) fn find_kind(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Option<Arc<Resource>> {
        self.resources_of(group, version)?
            .values()
            .find(|resource| resource.kind == kind)
            .cloned()
    }

    /// A kind of a group in any version.
    pub(crate) fn any_version(&self, group: &str, kind: &str) -> Option<Arc<Resource>> {
        self.all()
            .find(|r| r.group == group && r.kind == kind)
            .cloned()
    }

    /// The preferred version of a group's resource.
    pub(crate) fn preferred(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.groups
            .get(group)?
            .iter()
            .find_map(|(_, resources)| resources.get(plural).cloned())
    }

    pub(crate) fn resources_of(
        &self,
        group: &str,
        version: &str,
    ) -> Option<&BTreeMap<String, Arc<Resource>>> {
        self.groups
            .get(group)?
            .iter()
            .find(|(v, _)| v == version)
            .map(|(_, resources)| resources)
    }

    /// Groups with their versions in order of preference; the core group is the empty name.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.groups.iter().map(|(group, versions)| {
            let versions = versions.iter().map(|(version, _)| version.as_str());
            (group.as_str(), versions.collect())
        })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups
            .values()
            .flatten()
            .flat_map(|(_, resources)| resources.values())
    }

    /// One resource per place in the store, for those who walk over all objects.
    pub(crate) fn stored(&self) -> Vec<Arc<Resource>> {
        let mut seen = BTreeSet::new();
        self.all()
            .filter(|resource| !resource.traits.virtual_only)
            .filter(|resource| {
                resource.api_version() == resource.storage_version
                    && seen.insert(Arc::clone(&resource.storage))
            })
            .cloned()
            .collect()
    }

    /// The resource whose objects are stored there.
    pub(crate) fn by_storage(&self, storage: &str) -> Option<Arc<Resource>> {
        self.all()
            .find(|r| &*r.storage == storage && r.api_version() == r.storage_version)
            .cloned()
    }
}

/// Kubernetes' order of versions: `v2` before `v1` before `v1beta2` before `v1alpha1`, then by name.
fn version_order(version: &str) -> (u8, std::cmp::Reverse<(u32, u32)>, String) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major: u32 = rest[..digits].parse().ok()?;
        let (stage, minor) = match &rest[digits..] {
            "" => (0, 0),
            tail => {
                let (stage, number) = tail
                    .strip_prefix("beta")
                    .map(|n| (1, n))
                    .or_else(|| tail.strip_prefix("alpha").map(|n| (2, n)))?;
                (stage, number.parse().ok()?)
            }
        };
        Some((stage, std::cmp::Reverse((major, minor)), String::new()))
    };
    parse().unwrap_or((3, std::cmp::Reverse((0, 0)), version.to_owned()))
}

/// The current [`Kinds`], replaced as a whole when CRDs change.
pub(crate) struct Registry {
    current: RwLock<Arc<Kinds>>,
    crds: RwLock<BTreeMap<String, Vec<Resource>>>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            current: RwLock::new(Arc::new(Kinds::new(builtin::resources()))),
            crds: RwLock::default(),
        }
    }

    pub(crate) fn kinds(&self) -> Arc<Kinds> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves a CRD's versions from now on, in place of what it served before.
    pub(crate) fn set_crd(&self, name: &str, resources: Vec<Resource>) {
        let mut crds = self.crds.write().unwrap_or_else(PoisonError::into_inner);
        if resources.is_empty() {
            crds.remove(name);
        } else {
            crds.insert(name.to_owned(), resources);
        }
        let custom = crds.values().flatten().cloned();
        let kinds = Kinds::new(builtin::resources().into_iter().chain(custom));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(kinds);
    }
}

/// The value of `apiVersion` or `kind` in an object, or the empty string.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_by_kubernetes_preference() {
        let mut versions = [
            "foo10",
            "v1",
            "v1beta1",
            "v10",
            "v11alpha2",
            "v2",
            "v3beta1",
            "v12alpha1",
        ];
        versions.sort_by_key(|v| version_order(v));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v3beta1",
                "v1beta1",
                "v12alpha1",
                "v11alpha2",
                "foo10"
            ]
        );
    }

    #[test]
    fn every_builtin_kind_can_be_found_and_has_a_place_in_the_store() {
        let registry = Registry::new();
        let kinds = registry.kinds();
        assert!(kinds.find("", "v1", "pods").is_some());
        assert!(kinds.find("apps", "v1", "deployments").is_some());
        for resource in kinds.all() {
            assert!(
                resource.traits.virtual_only || kinds.by_storage(&resource.storage).is_some(),
                "{}",
                resource.plural
            );
        }
    }
}
