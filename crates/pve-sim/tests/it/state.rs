//! World files and kept state.

use pve_sim::{Release, Simulator, WorldFile};

use crate::client::Client;

const TWO: &str = r#"
clusters:
  - name: east
    nodes: [{ name: a1, memory-gib: 64, cpus: 8 }, { name: a2 }]
    storages: [{ id: tank, type: zfspool, content: [images], capacity-gib: 100 }]
    users:
      - id: op@pve
        tokens: [{ id: t1, secret: 11111111-2222-3333-4444-555555555555, privsep: false }]
    acl: [{ path: /, user: op@pve, role: PVEAuditor }]
  - name: west
    release: "8.4"
"#;

#[tokio::test(start_paused = true)]
async fn a_world_file_describes_several_clusters() {
    let world = WorldFile::parse(TWO).unwrap();
    let simulator = Simulator::builder().world(world).build();
    let east = simulator.cluster("east").unwrap();
    assert_eq!(east.nodes(), ["a1", "a2"]);
    let secret = "op@pve!t1=11111111-2222-3333-4444-555555555555";
    let op = Client::token(east.endpoint("a1"), secret);
    let rows = op
        .try_query("/cluster/resources", &[("type", "node")])
        .await
        .data();
    assert_eq!(rows[0]["maxcpu"], 8);
    assert_eq!(
        op.try_get("/nodes/a1/qemu").await.data(),
        serde_json::json!([])
    );
    let west = simulator.cluster("west").unwrap();
    let root = Client::login(west.endpoint("pve1"), "root@pam", "oxmox").await;
    assert_eq!(root.try_get("/version").await.data()["version"], "8.4.21");
    assert_eq!(
        Client::token(west.endpoint("pve1"), secret)
            .try_get("/version")
            .await
            .status,
        401
    );
}

#[tokio::test(start_paused = true)]
async fn kept_state_goes_on_where_it_was() {
    let dir = std::env::temp_dir().join(format!("pve-sim-state-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("state.json");
    let _ = std::fs::remove_file(&path);
    let build = || {
        Simulator::builder()
            .release(Release::V8_4)
            .state(&path)
            .build()
    };
    let before = build();
    let root = Client::root(&before).await;
    let create = [("vmid", "200"), ("name", "kept"), ("scsi0", "local-lvm:2")];
    root.exit_of(&root.try_post("/nodes/pve1/qemu", &create).await)
        .await;
    root.exit_of(
        &root
            .try_post("/nodes/pve1/qemu/200/snapshot", &[("snapname", "one")])
            .await,
    )
    .await;
    let config = root.try_get("/nodes/pve1/qemu/200/config").await.data();
    let tasks = root.try_get("/nodes/pve1/tasks").await.body["total"].clone();
    before.save(&path).unwrap();

    let after = build();
    let root = Client::root(&after).await;
    assert_eq!(
        root.try_get("/nodes/pve1/qemu/200/config").await.data(),
        config
    );
    assert_eq!(root.try_get("/nodes/pve1/tasks").await.body["total"], tasks);
    let snapshots = root.try_get("/nodes/pve1/qemu/200/snapshot").await.data();
    assert_eq!(snapshots.as_array().unwrap().len(), 2);
    std::fs::remove_dir_all(&dir).unwrap();
}
