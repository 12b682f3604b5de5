//! Waiting for tasks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pve::task::{TaskEnd, Watch};
use pve::{Error, Upid};
use serde_json::json;

use crate::fake::{Fake, Reply};

fn upid(node: &str, number: u32) -> Upid {
    format!("UPID:{node}:{number:08X}:00000001:00000001:qmclone:100:a@pve:")
        .parse()
        .unwrap()
}

/// A server whose tasks run until they are taken out of the set.
fn task_server(running: Arc<Mutex<BTreeSet<Upid>>>, exit: &'static str) -> Fake {
    Fake::new(move |seen, _| {
        let running = running.lock().unwrap();
        let mut parts = seen.path.split('/').skip(2);
        let (node, rest) = (parts.next().unwrap(), parts.nth(1));
        match rest {
            None => {
                let list: Vec<_> = running
                    .iter()
                    .filter(|task| task.node().as_str() == node)
                    .map(|task| json!({ "upid": task, "status": "RUNNING", "starttime": 1 }))
                    .collect();
                Reply::Data(json!(list))
            }
            Some(task) => {
                let task: Upid = pve::params::unescape(task).parse().unwrap();
                if running.contains(&task) {
                    Reply::Data(json!({ "status": "running" }))
                } else {
                    Reply::Data(json!({ "status": "stopped", "exitstatus": exit }))
                }
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn many_tasks_cost_one_request_per_node_and_tick_and_one_per_end() {
    let tasks: Vec<Upid> = (0..40)
        .map(|number| upid(if number % 2 == 0 { "pve1" } else { "pve2" }, number))
        .collect();
    let running = Arc::new(Mutex::new(tasks.iter().cloned().collect::<BTreeSet<_>>()));
    let fake = task_server(running.clone(), "OK");
    let watch = Watch::new(fake.client());
    let waits = futures::future::join_all(tasks.iter().map(|task| watch.wait(task)));
    let work = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let ticks = (
            fake.count("/nodes/pve1/tasks"),
            fake.count("/nodes/pve2/tasks"),
        );
        assert_eq!(
            fake.seen().len(),
            ticks.0 + ticks.1,
            "nothing else is asked while tasks run"
        );
        assert_eq!(ticks.0, ticks.1);
        assert!((20..=60).contains(&ticks.0), "{ticks:?}");
        running.lock().unwrap().clear();
    };
    let (ends, ()) = tokio::join!(waits, work);
    assert!(ends.into_iter().all(|end| end.unwrap() == TaskEnd::Ok));
    let lists = fake.count("/nodes/pve1/tasks") + fake.count("/nodes/pve2/tasks");
    assert_eq!(fake.seen().len() - lists, 40, "one status for each end");
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_up_hands_the_asking_on() {
    let (first, second) = (upid("pve1", 1), upid("pve1", 2));
    let running = Arc::new(Mutex::new(BTreeSet::from([first.clone(), second.clone()])));
    let fake = task_server(running.clone(), "WARNINGS: 2");
    let watch = Watch::new(fake.client());
    let gives_up = tokio::time::timeout(Duration::from_secs(5), watch.wait(&first));
    let waits = watch.wait(&second);
    let work = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        running.lock().unwrap().clear();
    };
    let (given_up, end, ()) = tokio::join!(gives_up, waits, work);
    assert!(given_up.is_err());
    assert_eq!(end.unwrap(), TaskEnd::Warnings(2));
    let statuses = fake
        .seen()
        .iter()
        .filter(|seen| seen.path.ends_with("/status"))
        .count();
    assert_eq!(statuses, 1, "nobody asks for the task nobody waits for");
}

#[tokio::test(start_paused = true)]
async fn the_exit_text_becomes_an_error_to_match() {
    let fake = task_server(Arc::default(), "VM is locked (backup)");
    let end = fake.client().wait(&upid("pve1", 1)).await;
    assert!(matches!(end, Err(Error::Locked { by }) if by == "backup"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_away_for_a_while_does_not_end_the_wait() {
    let fake = Fake::new(|seen, before| match before {
        0..9 => Reply::Failure(595, "No route to host".to_owned()),
        _ if seen.path.ends_with("/status") => {
            Reply::Data(json!({ "status": "stopped", "exitstatus": "OK" }))
        }
        _ => Reply::Data(json!([])),
    });
    assert_eq!(
        fake.client().wait(&upid("pve1", 1)).await.unwrap(),
        TaskEnd::Ok
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_nobody_knows_is_an_error() {
    let fake = Fake::new(|seen, _| {
        if seen.path.ends_with("/status") {
            Reply::Failure(500, "no such task".to_owned())
        } else {
            Reply::Data(json!([]))
        }
    });
    assert!(fake.client().wait(&upid("pve1", 1)).await.is_err());
}
