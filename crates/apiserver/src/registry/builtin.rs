//! The built-in kinds. Adding one is adding a line to [`TABLE`].

use std::sync::Arc;

use super::{Resource, Traits};
use crate::object;

/// One line of the table.
struct Line {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    traits: Traits,
    /// Group and version in which objects are stored, when not its own.
    stored_as: Option<(&'static str, &'static str)>,
}

const fn namespaced(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Line {
    Line {
        group,
        version,
        kind,
        plural,
        namespaced: true,
        short: &[],
        categories: &[],
        traits: Traits {
            status: false,
            generation: false,
            scale: false,
            virtual_only: false,
            create_on_update: false,
            orphan_by_default: false,
        },
        stored_as: None,
    }
}

const fn cluster(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Line {
    let mut line = namespaced(group, version, kind, plural);
    line.namespaced = false;
    line
}

impl Line {
    const fn short(mut self, short: &'static [&'static str]) -> Self {
        self.short = short;
        self
    }

    const fn all(mut self) -> Self {
        self.categories = &["all"];
        self
    }

    const fn in_category(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    const fn status(mut self) -> Self {
        self.traits.status = true;
        self
    }

    const fn generation(mut self) -> Self {
        self.traits.generation = true;
        self
    }

    const fn scale(mut self) -> Self {
        self.traits.scale = true;
        self
    }

    const fn upsert(mut self) -> Self {
        self.traits.create_on_update = true;
        self
    }

    const fn orphans(mut self) -> Self {
        self.traits.orphan_by_default = true;
        self
    }

    const fn virtual_only(mut self) -> Self {
        self.traits.virtual_only = true;
        self
    }

    const fn stored_as(mut self, group: &'static str, version: &'static str) -> Self {
        self.stored_as = Some((group, version));
        self
    }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const EXTENSIONS: &str = "apiextensions.k8s.io";
const AUTHN: &str = "authentication.k8s.io";
const AUTHZ: &str = "authorization.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";

#[rustfmt::skip]
const TABLE: &[Line] = &[
    namespaced("", "v1", "Binding", "bindings").virtual_only(),
    namespaced("", "v1", "ConfigMap", "configmaps").short(&["cm"]),
    namespaced("", "v1", "Endpoints", "endpoints").short(&["ep"]).upsert(),
    namespaced("", "v1", "Event", "events").short(&["ev"]).upsert(),
    namespaced("", "v1", "LimitRange", "limitranges").short(&["limits"]).upsert(),
    cluster("", "v1", "Namespace", "namespaces").short(&["ns"]).status(),
    cluster("", "v1", "Node", "nodes").short(&["no"]).status(),
    namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims").short(&["pvc"]).status(),
    cluster("", "v1", "PersistentVolume", "persistentvolumes").short(&["pv"]).status(),
    namespaced("", "v1", "Pod", "pods").short(&["po"]).all().status().generation(),
    namespaced("", "v1", "PodTemplate", "podtemplates").generation(),
    namespaced("", "v1", "ReplicationController", "replicationcontrollers").short(&["rc"]).all().status().generation().scale().orphans(),
    namespaced("", "v1", "ResourceQuota", "resourcequotas").short(&["quota"]).status(),
    namespaced("", "v1", "Secret", "secrets"),
    namespaced("", "v1", "ServiceAccount", "serviceaccounts").short(&["sa"]),
    namespaced("", "v1", "Service", "services").short(&["svc"]).all().status().upsert(),

    cluster(ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations").in_category(&["api-extensions"]).generation(),
    cluster(ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations").in_category(&["api-extensions"]).generation(),
    cluster(EXTENSIONS, "v1", "CustomResourceDefinition", "customresourcedefinitions").short(&["crd", "crds"]).in_category(&["api-extensions"]).status().generation(),
    cluster("apiregistration.k8s.io", "v1", "APIService", "apiservices").in_category(&["api-extensions"]).status().upsert(),

    namespaced("apps", "v1", "ControllerRevision", "controllerrevisions"),
    namespaced("apps", "v1", "DaemonSet", "daemonsets").short(&["ds"]).all().status().generation(),
    namespaced("apps", "v1", "Deployment", "deployments").short(&["deploy"]).all().status().generation().scale(),
    namespaced("apps", "v1", "ReplicaSet", "replicasets").short(&["rs"]).all().status().generation().scale(),
    namespaced("apps", "v1", "StatefulSet", "statefulsets").short(&["sts"]).all().status().generation().scale(),

    cluster(AUTHN, "v1", "SelfSubjectReview", "selfsubjectreviews").virtual_only(),
    cluster(AUTHN, "v1", "TokenReview", "tokenreviews").virtual_only(),
    namespaced(AUTHZ, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews").virtual_only(),
    cluster(AUTHZ, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews").virtual_only(),
    cluster(AUTHZ, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews").virtual_only(),
    cluster(AUTHZ, "v1", "SubjectAccessReview", "subjectaccessreviews").virtual_only(),

    namespaced("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers").short(&["hpa"]).all().status(),
    namespaced("batch", "v1", "CronJob", "cronjobs").short(&["cj"]).all().status().generation(),
    namespaced("batch", "v1", "Job", "jobs").all().status().generation().orphans(),
    cluster("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests").short(&["csr"]).status(),
    namespaced("coordination.k8s.io", "v1", "Lease", "leases").upsert(),
    namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices").generation(),
    namespaced("events.k8s.io", "v1", "Event", "events").short(&["ev"]).upsert().stored_as("", "v1"),
    cluster("networking.k8s.io", "v1", "IngressClass", "ingressclasses").generation(),
    namespaced("networking.k8s.io", "v1", "Ingress", "ingresses").short(&["ing"]).status().generation(),
    namespaced("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies").short(&["netpol"]).generation(),
    cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses"),
    namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets").short(&["pdb"]).status().generation(),
    cluster(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings").upsert(),
    cluster(RBAC, "v1", "ClusterRole", "clusterroles").upsert(),
    namespaced(RBAC, "v1", "RoleBinding", "rolebindings").upsert(),
    namespaced(RBAC, "v1", "Role", "roles").upsert(),
    cluster("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses").short(&["pc"]).generation(),
    cluster(STORAGE, "v1", "CSIDriver", "csidrivers"),
    cluster(STORAGE, "v1", "CSINode", "csinodes"),
    namespaced(STORAGE, "v1", "CSIStorageCapacity", "csistoragecapacities"),
    cluster(STORAGE, "v1", "StorageClass", "storageclasses").short(&["sc"]),
    cluster(STORAGE, "v1", "VolumeAttachment", "volumeattachments").status(),
];

/// All built-in kinds as resources.
pub(crate) fn resources() -> Vec<Resource> {
    TABLE.iter().map(resource).collect()
}

fn resource(line: &Line) -> Resource {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
    let (group, version) = line.stored_as.unwrap_or((line.group, line.version));
    Resource {
        group: line.group.to_owned(),
        version: line.version.to_owned(),
        kind: line.kind.to_owned(),
        list_kind: format!("{}List", line.kind),
        plural: line.plural.to_owned(),
        singular: line.kind.to_lowercase(),
        namespaced: line.namespaced,
        short_names: owned(line.short),
        categories: owned(line.categories),
        storage: Arc::from(storage(group, line.plural)),
        storage_version: object::api_version(group, version),
        traits: line.traits,
        crd: None,
    }
}

/// The store's name of a resource.
pub(crate) fn storage(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}
