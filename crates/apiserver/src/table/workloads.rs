//! Deployments and their like, and jobs.

use jiff::Timestamp;
use serde_json::Value;

use super::kinds::{aged, int, is_deleted, labels, list, name, selector, text, text_or};
use super::{Cells, age};

pub(super) fn find(kind: &str) -> (&'static str, Cells) {
    match kind {
        "Deployment" => (
            "Name|Ready|Up-to-date|Available|Age|Containers+|Images+|Selector+",
            deployment,
        ),
        "ReplicaSet" => (
            "Name|Desired#|Current#|Ready#|Age|Containers+|Images+|Selector+",
            replica_set,
        ),
        "StatefulSet" => ("Name|Ready|Age|Containers+|Images+", stateful_set),
        "DaemonSet" => (
            "Name|Desired#|Current#|Ready#|Up-to-date#|Available#|Node Selector|Age|Containers+|\
             Images+|Selector+",
            daemon_set,
        ),
        "Job" => (
            "Name|Status|Completions|Duration|Age|Containers+|Images+|Selector+",
            job,
        ),
        "CronJob" => (
            "Name|Schedule|Timezone|Suspend?|Active#|Last Schedule|Age|Containers+|Images+|Selector+",
            cron_job,
        ),
        "ControllerRevision" => ("Name|Controller|Revision#|Age", |o, now| {
            let owners = list(&o["metadata"]["ownerReferences"]);
            let owner = owners.iter().find(|owner| owner["controller"] == true);
            let owner = owner.map_or("<none>".into(), |owner| {
                format!(
                    "{}/{}",
                    text(owner, "kind").to_lowercase(),
                    text(owner, "name")
                )
            });
            vec![
                name(o),
                owner.into(),
                int(o, "revision").into(),
                aged(o, now),
            ]
        }),
        _ => ("Name|Created At@", |o, _| {
            vec![name(o), o["metadata"]["creationTimestamp"].clone()]
        }),
    }
}

/// Names and images of a template's containers.
fn containers(template: &Value) -> [Value; 2] {
    let containers = list(&template["spec"]["containers"]);
    ["name", "image"].map(|field| {
        let parts: Vec<_> = containers.iter().map(|c| text(c, field)).collect();
        parts.join(",").into()
    })
}

fn with_template(mut cells: Vec<Value>, spec: &Value) -> Vec<Value> {
    cells.extend(containers(&spec["template"]));
    cells.push(selector(&spec["selector"]).into());
    cells
}

fn deployment(o: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let ready = format!("{}/{}", int(status, "readyReplicas"), int(spec, "replicas"));
    let cells = vec![
        name(o),
        ready.into(),
        int(status, "updatedReplicas").into(),
        int(status, "availableReplicas").into(),
        aged(o, now),
    ];
    with_template(cells, spec)
}

fn replica_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let cells = vec![
        name(o),
        int(spec, "replicas").into(),
        int(status, "replicas").into(),
        int(status, "readyReplicas").into(),
        aged(o, now),
    ];
    with_template(cells, spec)
}

fn stateful_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let ready = format!(
        "{}/{}",
        int(&o["status"], "readyReplicas"),
        int(&o["spec"], "replicas")
    );
    let mut cells = vec![name(o), ready.into(), aged(o, now)];
    cells.extend(containers(&o["spec"]["template"]));
    cells
}

fn daemon_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let mut cells = vec![name(o)];
    cells.extend(
        [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        ]
        .map(|field| int(status, field).into()),
    );
    cells.push(labels(&spec["template"]["spec"]["nodeSelector"]).into());
    cells.push(aged(o, now));
    with_template(cells, spec)
}

fn job(o: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let done = int(status, "succeeded");
    let completions = match (spec["completions"].as_i64(), int(spec, "parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    };
    let time = |field: &str| -> Option<Timestamp> { status[field].as_str()?.parse().ok() };
    let duration = time("startTime").map_or(String::new(), |start| {
        let end = time("completionTime").unwrap_or(now);
        age::human(end.as_second() - start.as_second())
    });
    let holds = |kind: &str| {
        list(&status["conditions"])
            .iter()
            .any(|c| c["type"] == kind && c["status"] == "True")
    };
    let state = match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if is_deleted(o) => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let cells = vec![
        name(o),
        state.into(),
        completions.into(),
        duration.into(),
        aged(o, now),
    ];
    with_template(cells, spec)
}

fn cron_job(o: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let last = match &status["lastScheduleTime"] {
        Value::Null => "<none>".into(),
        time => age::since(time, now),
    };
    let suspended = if spec["suspend"] == true {
        "True"
    } else {
        "False"
    };
    let cells = vec![
        name(o),
        text(spec, "schedule").into(),
        text_or(spec, "timeZone", "<none>").into(),
        suspended.into(),
        list(&status["active"]).len().into(),
        last.into(),
        aged(o, now),
    ];
    with_template(cells, &spec["jobTemplate"]["spec"])
}
