//! What the admission plugins do that Kubernetes has on by default.
//!
//! They complete objects after the writer's fields are recorded and before validation, so nobody owns
//! what they add.

use serde_json::{Value, json};

use super::{Api, meta::about};
use crate::{
    object,
    registry::{Resource, text},
    status::{Result, Status},
};

const PRIORITY_CLASSES: &str = "scheduling.k8s.io/priorityclasses";
const STORAGE_CLASSES: &str = "storage.k8s.io/storageclasses";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
pub(crate) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
pub(crate) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// How long pods stay on a node that is not ready or cannot be reached.
const EVICTION_SECONDS: i64 = 300;

impl Api {
    /// Completes a new object.
    pub(crate) fn plug_new(&self, resource: &Resource, object: &mut Value) -> Result<()> {
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("", "Pod") => {
                tolerate(object);
                self.prioritise(resource, object)?;
            }
            ("", "Node") => taint(object),
            ("", "PersistentVolumeClaim") => {
                object::add_finalizer(object, CLAIM_PROTECTION);
                self.choose_storage_class(object);
            }
            ("", "PersistentVolume") => object::add_finalizer(object, VOLUME_PROTECTION),
            ("scheduling.k8s.io", "PriorityClass") => self.one_default(resource, object)?,
            _ => {}
        }
        Ok(())
    }

    /// Completes a changed object.
    pub(crate) fn plug_update(
        &self,
        resource: &Resource,
        object: &mut Value,
        subresource: &str,
    ) -> Result<()> {
        if !subresource.is_empty() {
            return Ok(());
        }
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("", "Pod") => tolerate(object),
            ("scheduling.k8s.io", "PriorityClass") => self.one_default(resource, object)?,
            _ => {}
        }
        Ok(())
    }

    fn all(&self, storage: &str) -> Vec<Value> {
        let snapshot = self.store.list(storage, "", None);
        let entries = snapshot.map(|snapshot| snapshot.entries);
        let entries = entries.unwrap_or_default();
        entries.iter().map(|entry| entry.value()).collect()
    }

    /// Gives a pod the number that its priority class stands for.
    fn prioritise(&self, resource: &Resource, pod: &mut Value) -> Result<()> {
        let refuse =
            |pod: &Value, why: &str| Status::forbidden(about(resource, object::name(pod)), why);
        let given = text(&pod["spec"], "priorityClassName").to_owned();
        let class = if given.is_empty() {
            let default = |class: &Value| class["globalDefault"] == true;
            self.all(PRIORITY_CLASSES).into_iter().find(default)
        } else {
            let Some(entry) = self.store.get(PRIORITY_CLASSES, &given) else {
                let why = format!("no PriorityClass with name {given} was found");
                return Err(refuse(pod, &why));
            };
            Some(entry.value())
        };
        let number = class
            .as_ref()
            .map_or(0, |class| class["value"].as_i64().unwrap_or(0));
        if let Some(asked) = pod["spec"]["priority"].as_i64().filter(|p| *p != number) {
            let why = format!(
                "the integer value of priority ({asked}) must not be provided in pod spec; priority admission controller computed {number} from the given PriorityClass name"
            );
            return Err(refuse(pod, &why));
        }
        let policy = class
            .as_ref()
            .map_or("", |class| text(class, "preemptionPolicy"));
        let policy = if policy.is_empty() {
            "PreemptLowerPriority"
        } else {
            policy
        };
        if let Some(class) = class.as_ref().filter(|_| given.is_empty()) {
            pod["spec"]["priorityClassName"] = json!(object::name(class));
        }
        pod["spec"]["priority"] = json!(number);
        let asked = text(&pod["spec"], "preemptionPolicy");
        if !asked.is_empty() && asked != policy {
            let why = format!(
                "the string value of PreemptionPolicy ({asked}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            );
            return Err(refuse(pod, &why));
        }
        pod["spec"]["preemptionPolicy"] = json!(policy);
        Ok(())
    }

    /// Only one priority class can be for pods that name none.
    fn one_default(&self, resource: &Resource, class: &Value) -> Result<()> {
        if class["globalDefault"] != true {
            return Ok(());
        }
        let name = object::name(class);
        let other = self
            .all(PRIORITY_CLASSES)
            .into_iter()
            .find(|other| other["globalDefault"] == true && object::name(other) != name);
        match other {
            None => Ok(()),
            Some(other) => Err(Status::forbidden(
                about(resource, name),
                &format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    object::name(&other)
                ),
            )),
        }
    }

    /// A claim that names no class gets the newest of those marked as default.
    fn choose_storage_class(&self, claim: &mut Value) {
        if claim["spec"].get("storageClassName").is_some() {
            return;
        }
        let is_default = |class: &Value| class["metadata"]["annotations"][DEFAULT_CLASS] == "true";
        let created = |class: &Value| object::meta(class, "creationTimestamp").to_owned();
        let classes = self.all(STORAGE_CLASSES).into_iter().filter(is_default);
        let newest = classes.max_by(|a, b| {
            let by_time = created(a).cmp(&created(b));
            by_time.then_with(|| object::name(b).cmp(object::name(a)))
        });
        if let Some(class) = newest {
            claim["spec"]["storageClassName"] = json!(object::name(&class));
        }
    }
}

/// Pods stay a while on nodes that stop answering, unless they say otherwise.
fn tolerate(pod: &mut Value) {
    let given = pod["spec"]["tolerations"].as_array().cloned();
    let mut tolerations = given.unwrap_or_default();
    let before = tolerations.len();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let said = tolerations[..before].iter().any(|toleration| {
            let (of, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (of.is_empty() || of == key) && (effect.is_empty() || effect == "NoExecute")
        });
        if !said {
            tolerations.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": EVICTION_SECONDS,
            }));
        }
    }
    if tolerations.len() > before {
        pod["spec"]["tolerations"] = json!(tolerations);
    }
}

/// A new node is not ready before somebody says so.
fn taint(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let given = node["spec"]["taints"].as_array().cloned();
    let mut taints = given.unwrap_or_default();
    let same = |other: &Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
    if !taints.iter().any(same) {
        taints.push(taint);
        node["spec"]["taints"] = json!(taints);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_tolerate_everything_get_no_more_tolerations() {
        let mut pod = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        tolerate(&mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 1);
        let mut pod = json!({"spec": {}});
        tolerate(&mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
        tolerate(&mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn new_nodes_are_tainted_once() {
        let mut node = json!({"spec": {}});
        taint(&mut node);
        taint(&mut node);
        assert_eq!(node["spec"]["taints"].as_array().unwrap().len(), 1);
    }
}
