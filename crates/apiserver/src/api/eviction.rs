//! Pods' special doors: binding to a node, and eviction as disruption budgets allow it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Api,
    context::Context,
    decode,
    delete::Options,
    dispatch::Answer,
    meta::{self, about},
    render::Renderer,
    update::{Address, By},
};
use crate::{
    object,
    registry::{Resource, text},
    selector::LabelSelector,
    status::{Cause, Result, Status},
};

const BUDGETS: &str = "policy/poddisruptionbudgets";

impl Api {
    /// `POST` on `pods/binding`: the scheduler says where a pod runs.
    pub(crate) async fn bind(
        self: &Arc<Self>,
        context: &Context,
        pods: &Arc<Resource>,
        at: Address<'_>,
    ) -> Result<Answer> {
        let mut binding = decode::body(context, "Binding")?;
        meta::expect_kind(&mut binding, "v1", "Binding")?;
        let target = &binding["target"];
        let kind = text(target, "kind");
        let mut causes = Vec::new();
        if !matches!(kind, "" | "Node") {
            causes.push(Cause::unsupported(
                "target.kind",
                kind,
                &["Node", "<empty>"],
            ));
        }
        if text(target, "name").is_empty() {
            causes.push(Cause::required("target.name", ""));
        }
        if !causes.is_empty() {
            return Err(Status::invalid("", "Binding", at.name, causes));
        }
        self.track_action(context, at, ("v1", "Binding"), &mut binding);
        self.admit_action(context, pods, at, ("v1", "Binding"), &mut binding)
            .await?;
        let node = text(&binding["target"], "name").to_owned();
        let now = self.clock.now_rfc3339();
        self.change(
            context,
            pods,
            Address {
                subresource: "binding",
                ..at
            },
            // Nobody owns what the server does to bind.
            By::Apply,
            |old| {
                let bound = text(&old["spec"], "nodeName");
                if !bound.is_empty() {
                    return Err(Status::conflict(
                        crate::status::About {
                            group: "",
                            resource: "pods/binding",
                            name: at.name,
                        },
                        &format!("pod {} is already assigned to node \"{bound}\"", at.name),
                    ));
                }
                if object::is_deleting(old) {
                    return Err(Status::conflict(
                        crate::status::About {
                            group: "",
                            resource: "pods/binding",
                            name: at.name,
                        },
                        &format!(
                            "pod {} is being deleted, cannot be assigned to a host",
                            at.name
                        ),
                    ));
                }
                let mut pod = old.clone();
                pod["spec"]["nodeName"] = json!(node);
                let mut conditions = pod["status"]["conditions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                match conditions.iter_mut().find(|c| c["type"] == "PodScheduled") {
                    Some(condition) => condition["status"] = json!("True"),
                    None => conditions.push(json!({
                        "type": "PodScheduled", "status": "True",
                        "lastProbeTime": null, "lastTransitionTime": now,
                    })),
                }
                pod["status"]["conditions"] = json!(conditions);
                Ok(pod)
            },
        )
        .await?;
        Ok(Answer::created(&json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        })))
    }

    /// `POST` on `pods/eviction`.
    pub(crate) async fn evict(
        self: &Arc<Self>,
        context: &Context,
        pods: &Arc<Resource>,
        at: Address<'_>,
    ) -> Result<Answer> {
        let mut eviction = decode::body(context, "Eviction")?;
        meta::expect_kind(&mut eviction, "policy/v1", "Eviction")?;
        let named = object::name(&eviction);
        if !named.is_empty() && named != at.name {
            return Err(Status::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        self.track_action(context, at, ("policy/v1", "Eviction"), &mut eviction);
        self.admit_action(context, pods, at, ("policy/v1", "Eviction"), &mut eviction)
            .await?;
        let mut options = Options::from(context, &eviction["deleteOptions"])?;
        options.evicts = true;
        let Some(entry) = self
            .store
            .get(&pods.storage, &pods.key(at.namespace, at.name))
        else {
            return Err(Status::not_found(about(pods, at.name)));
        };
        let pod = Renderer::new(self, pods).value(&entry).await?;
        let finished = matches!(
            text(&pod["status"], "phase"),
            "Succeeded" | "Failed" | "Pending"
        );
        if !finished && !object::is_deleting(&pod) {
            self.spend_budget(at, &pod, options.dry_run).await?;
        }
        self.delete_object(context, pods, (at.namespace, at.name), &options)
            .await?;
        Ok(Answer::created(&json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        })))
    }

    /// Takes one allowed disruption from the budget that protects a pod, or refuses.
    async fn spend_budget(
        self: &Arc<Self>,
        at: Address<'_>,
        pod: &Value,
        dry_run: bool,
    ) -> Result<()> {
        let Ok(snapshot) = self
            .store
            .list(BUDGETS, &format!("{}/", at.namespace), None)
        else {
            return Ok(());
        };
        let matching: Vec<Value> = snapshot
            .entries
            .iter()
            .map(|entry| entry.value())
            .filter(|budget| {
                budget["spec"]["selector"].is_object()
                    && LabelSelector::from_object(&budget["spec"]["selector"])
                        .is_some_and(|selector| selector.matches(pod))
            })
            .collect();
        let budget = match matching.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                return Err(Status::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let ready = pod["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|c| c["type"] == "Ready" && c["status"] == "True");
        let status = &budget["status"];
        let enough = status["currentHealthy"].as_i64().unwrap_or(0)
            >= status["desiredHealthy"].as_i64().unwrap_or(0)
            && status["desiredHealthy"].as_i64().unwrap_or(0) > 0;
        let always = text(&budget["spec"], "unhealthyPodEvictionPolicy") == "AlwaysAllow";
        if !ready && (always || enough) {
            return Ok(());
        }
        let name = object::name(budget).to_owned();
        let kinds = self.kinds();
        let Some(budgets) = kinds.find("policy", "v1", "poddisruptionbudgets") else {
            return Ok(());
        };
        let address = Address {
            namespace: at.namespace,
            name: &name,
            subresource: "status",
        };
        let now = self.clock.now_rfc3339();
        let make = |old: &Value| {
            let status = &old["status"];
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
            if status["observedGeneration"].as_i64().unwrap_or(0) < generation {
                return Err(budget_refusal(
                    format!("The disruption budget {name} is still being processed by the server."),
                    10,
                ));
            }
            let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
            if allowed <= 0 {
                let (desired, healthy) = (
                    status["desiredHealthy"].as_i64().unwrap_or(0),
                    status["currentHealthy"].as_i64().unwrap_or(0),
                );
                return Err(budget_refusal(
                    format!(
                        "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
                    ),
                    0,
                ));
            }
            let mut new = old.clone();
            new["status"]["disruptionsAllowed"] = json!(allowed - 1);
            if allowed == 1 {
                // Nothing more is allowed, which people see from the condition.
                let given = new["status"]["conditions"].as_array().cloned();
                let mut conditions = given.unwrap_or_default();
                let said = ("DisruptionAllowed", "False");
                object::set_condition(&mut conditions, said, ("InsufficientPods", ""), &now);
                for condition in &mut conditions {
                    if condition["type"] == said.0 {
                        condition["observedGeneration"] = json!(generation);
                    }
                }
                new["status"]["conditions"] = json!(conditions);
            }
            new["status"]["disruptedPods"][at.name] = json!(now);
            allow_disruption(&mut new, allowed - 1, &now);
            Ok(new)
        };
        if dry_run {
            return make(budget).map(drop);
        }
        // The server itself keeps the budget's books.
        let own = Context::internal("system:apiserver", "kube-apiserver");
        self.change(&own, &budgets, address, By::Update, make)
            .await
            .map(drop)
    }
}

/// Says on a budget whether another pod may go.
fn allow_disruption(budget: &mut Value, allowed: i64, now: &str) {
    let (status, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let generation = budget["metadata"]["generation"].clone();
    let mut conditions = budget["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    object::set_condition(
        &mut conditions,
        ("DisruptionAllowed", status),
        (reason, ""),
        now,
    );
    if let Some(condition) = conditions
        .iter_mut()
        .find(|c| c["type"] == "DisruptionAllowed")
    {
        condition["observedGeneration"] = generation;
    }
    budget["status"]["conditions"] = Value::Array(conditions);
}

fn budget_refusal(cause: String, retry_after: u32) -> Status {
    Status::too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        retry_after,
    )
    .with_causes(vec![Cause::new("DisruptionBudget", "", cause)])
}
