//! The one row that needs thought: a pod's state in a word.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::kinds::{aged, int, is_deleted, list, name, text, text_or};

pub(super) const COLUMNS: &str =
    "Name|Ready|Status|Restarts|Age|IP+|Node+|Nominated Node+|Readiness Gates+";

/// What is known of a pod's containers together.
#[derive(Default)]
struct Summary {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<Value>,
}

impl Summary {
    fn count_restarts(&mut self, container: &Value) {
        self.restarts += int(container, "restartCount");
        let finished = &container["lastState"]["terminated"]["finishedAt"];
        let later = match (&self.last_restart, finished.as_str()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(last), Some(finished)) => last.as_str().is_some_and(|last| last < finished),
        };
        if later {
            self.last_restart = Some(finished.clone());
        }
    }
}

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let conditions = list(&status["conditions"]);
    let holds = |kind: &str| {
        conditions
            .iter()
            .any(|c| c["type"] == kind && c["status"] == "True")
    };
    let sidecar = |name: &str| {
        let found = list(&spec["initContainers"])
            .iter()
            .find(|c| c["name"] == name);
        found.is_some_and(|c| c["restartPolicy"] == "Always")
    };
    let mut summary = Summary {
        reason: text_or(status, "reason", text(status, "phase")).to_owned(),
        ..Summary::default()
    };
    if conditions
        .iter()
        .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated")
    {
        summary.reason = "SchedulingGated".into();
    }
    let mut sidecars = Summary::default();
    let initializing = init(pod, &sidecar, &mut summary, &mut sidecars);
    if !initializing || holds("Initialized") {
        summary.restarts = sidecars.restarts;
        summary.last_restart = sidecars.last_restart;
        main(pod, holds("Ready"), &mut summary);
    }
    if is_deleted(pod) {
        if text(status, "reason") == "NodeLost" {
            summary.reason = "Unknown".into();
        } else if !matches!(text(status, "phase"), "Succeeded" | "Failed") {
            summary.reason = "Terminating".into();
        }
    }
    let total = list(&spec["containers"]).len()
        + list(&spec["initContainers"])
            .iter()
            .filter(|c| c["restartPolicy"] == "Always")
            .count();
    let restarts = match (&summary.last_restart, summary.restarts) {
        (Some(last), count) if count != 0 => format!("{count} ({} ago)", age::since(last, now)),
        (_, count) => count.to_string(),
    };
    let gates = list(&spec["readinessGates"]);
    let open = gates
        .iter()
        .filter(|gate| holds(text(gate, "conditionType")))
        .count();
    let gates = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        format!("{open}/{}", gates.len())
    };
    let ip = list(&status["podIPs"])
        .first()
        .map_or("", |ip| text(ip, "ip"));
    vec![
        name(pod),
        format!("{}/{total}", summary.ready).into(),
        summary.reason.into(),
        restarts.into(),
        aged(pod, now),
        if ip.is_empty() { "<none>" } else { ip }.into(),
        text_or(spec, "nodeName", "<none>").into(),
        text_or(status, "nominatedNodeName", "<none>").into(),
        gates.into(),
    ]
}

/// Pods that are done are marked, so that clients may hide them.
pub(super) fn completed(phase: &str) -> Option<Value> {
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

/// Looks at init containers up to the first that is not done; says whether one is not.
fn init(
    pod: &Value,
    sidecar: &impl Fn(&str) -> bool,
    summary: &mut Summary,
    sidecars: &mut Summary,
) -> bool {
    let total = list(&pod["spec"]["initContainers"]).len();
    for (i, container) in list(&pod["status"]["initContainerStatuses"])
        .iter()
        .enumerate()
    {
        summary.count_restarts(container);
        let stays = sidecar(text(container, "name"));
        if stays {
            sidecars.count_restarts(container);
        }
        let (ended, waiting) = (
            &container["state"]["terminated"],
            &container["state"]["waiting"],
        );
        if ended.is_object() && int(ended, "exitCode") == 0 {
            continue;
        }
        if stays && container["started"] == true {
            summary.ready += usize::from(container["ready"] == true);
            continue;
        }
        let waits = text(waiting, "reason");
        summary.reason = if ended.is_object() {
            format!("Init:{}", end_reason(ended))
        } else if !waits.is_empty() && waits != "PodInitializing" {
            format!("Init:{waits}")
        } else {
            format!("Init:{i}/{total}")
        };
        return true;
    }
    false
}

fn main(pod: &Value, pod_ready: bool, summary: &mut Summary) {
    let mut running = false;
    let mut failed = None;
    for container in list(&pod["status"]["containerStatuses"]).iter().rev() {
        summary.count_restarts(container);
        let state = &container["state"];
        let waits = text(&state["waiting"], "reason");
        if !waits.is_empty() {
            waits.clone_into(&mut summary.reason);
        } else if state["terminated"].is_object() {
            summary.reason = end_reason(&state["terminated"]);
            if int(&state["terminated"], "exitCode") != 0 {
                failed = Some(summary.reason.clone());
            }
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" {
        match (running, failed) {
            (true, _) if pod_ready => summary.reason = "Running".into(),
            (_, Some(reason)) => summary.reason = reason,
            (true, None) => summary.reason = "NotReady".into(),
            (false, None) => {}
        }
    }
}

fn end_reason(ended: &Value) -> String {
    match (text(ended, "reason"), int(ended, "signal")) {
        ("", 0) => format!("ExitCode:{}", int(ended, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
