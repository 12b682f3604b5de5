use std::time::Duration;

use http::Method;

use crate::client::{Client, pve9, ubuntu};

async fn backups(pve: &Client) -> Vec<String> {
    let path = "/nodes/pve1/storage/nfs/content";
    let list = pve.data(Method::GET, path, &[("content", "backup")]).await;
    let rows = list.as_array().unwrap().iter();
    rows.map(|row| row["volid"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_job_saves_its_guests_by_the_calendar_and_keeps_what_its_retention_covers() {
    let (_, pve) = pve9().await;
    ubuntu(&pve, 300, &[]).await;
    let params = [
        ("id", "nightly"),
        ("schedule", "*/15"),
        ("vmid", "300"),
        ("storage", "nfs"),
        ("prune-backups", "keep-last=2"),
    ];
    pve.data(Method::POST, "/cluster/backup", &params).await;
    let job = pve.get("/cluster/backup/nightly").await;
    assert_eq!(
        (&job["enabled"], &job["type"]),
        (&1.into(), &"vzdump".into())
    );
    assert!(job["next-run"].is_u64(), "{job}");
    tokio::time::sleep(Duration::from_mins(70)).await;
    assert_eq!(backups(&pve).await.len(), 2, "older ones were pruned");
    let tasks = pve
        .data(
            Method::GET,
            "/nodes/pve1/tasks",
            &[("typefilter", "vzdump")],
        )
        .await;
    assert!(tasks.as_array().unwrap().len() >= 4, "{tasks}");
    pve.put("/cluster/backup/nightly", &[("enabled", "0")])
        .await;
    let before = backups(&pve).await;
    tokio::time::sleep(Duration::from_mins(40)).await;
    assert_eq!(backups(&pve).await, before, "a disabled job does not run");
}

#[tokio::test(start_paused = true)]
async fn jobs_are_checked_listed_and_removed() {
    let (_, pve) = pve9().await;
    let path = "/cluster/backup";
    let bad = pve
        .call(Method::POST, path, &[("schedule", "noonish"), ("all", "1")])
        .await;
    let text = bad.body["errors"]["schedule"].as_str().unwrap();
    assert!(
        text.starts_with("invalid format - invalid calendar event 'noonish'"),
        "{text}"
    );
    let none = pve.call(Method::POST, path, &[("schedule", "02:00")]).await;
    assert_eq!(none.body["errors"]["vmid"], "property is missing");
    let params = [("schedule", "sat 02:00"), ("all", "1"), ("exclude", "9000")];
    pve.data(Method::POST, path, &params).await;
    let list = pve.get(path).await;
    let id = list[0]["id"].as_str().unwrap();
    assert!(id.starts_with("backup-"), "{id}");
    let left = pve.get("/cluster/backup-info/not-backed-up").await;
    assert_eq!(
        left.as_array().unwrap().len(),
        1,
        "only the excluded one: {left}"
    );
    let tree = pve.get(&format!("{path}/{id}/included_volumes")).await;
    assert!(!tree["children"].as_array().unwrap().is_empty());
    pve.data(Method::DELETE, &format!("{path}/{id}"), &[]).await;
    let (status, _) = pve.refused(Method::GET, &format!("{path}/{id}"), &[]).await;
    assert_eq!(status, 400);
}

#[tokio::test(start_paused = true)]
async fn a_prune_does_what_its_dry_run_said() {
    let (_, pve) = pve9().await;
    ubuntu(&pve, 300, &[]).await;
    for _ in 0..3 {
        let params = [("vmid", "300"), ("storage", "nfs")];
        pve.ok(Method::POST, "/nodes/pve1/vzdump", &params).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let oldest = backups(&pve).await[0].clone();
    let path = format!("/nodes/pve1/storage/nfs/content/{oldest}");
    pve.put(&path, &[("protected", "1")]).await;
    let path = "/nodes/pve1/storage/nfs/prunebackups";
    let keep = [("prune-backups", "keep-last=1"), ("vmid", "300")];
    let plan = pve.data(Method::GET, path, &keep).await;
    let marks: Vec<_> = plan
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["mark"])
        .collect();
    assert_eq!(marks, ["keep", "remove", "protected"], "{plan}");
    pve.ok(Method::DELETE, path, &keep).await;
    let left = backups(&pve).await;
    assert_eq!(left.len(), 2);
    assert!(left.contains(&oldest));
}
