//! Guests that move, are saved and brought back, and are talked to from inside.

use std::time::Duration;

use pve::api::backup::Backup;
use pve::api::guest::migrate::{MigrateLxc, MigrateQemu};
use pve::api::guest::{ConfigView, DeleteGuest};
use pve::api::lxc::{CreateLxc, MoveVolume};
use pve::api::qemu::MoveTo;
use pve::prop::Disk;
use pve::{CloneGuest, Error, GuestConfig, NodeName};
use pve_sim::{Process, Release};

use crate::lab::{Lab, lab, vmid};

/// A running machine with a system inside, cloned from the template.
async fn system(lab: &Lab, number: u32) -> pve::Qemu {
    let template = lab.node().qemu(vmid(9000));
    let task = template.clone_to(&CloneGuest::new(vmid(number))).await;
    lab.done(&task.unwrap()).await;
    let vm = lab.node().qemu(vmid(number));
    lab.done(&vm.start().await.unwrap()).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    vm
}

fn pve2() -> NodeName {
    NodeName::new("pve2").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_running_machine_moves_and_its_old_node_forgets_it() {
    for release in [Release::V8_4, Release::V9_2] {
        let lab = lab(release);
        let vm = system(&lab, 210).await;
        let check = vm.migration_check(None).await.unwrap();
        assert!(check.running && check.local_disks.is_empty(), "{check:?}");
        lab.done(&vm.migrate(&MigrateQemu::online(pve2())).await.unwrap())
            .await;
        assert!(vm.status().await.unwrap_err().is_guest_not_found());
        let there = lab.client.node(&pve2()).qemu(vmid(210));
        assert!(there.status().await.unwrap().is_running());
    }
}

#[tokio::test(start_paused = true)]
async fn local_disks_are_carried_to_the_storage_they_are_mapped_to() {
    let lab = lab(Release::V9_2);
    let vm = lab.machine(211).await;
    let check = vm.migration_check(Some(&pve2())).await.unwrap();
    assert_eq!(check.local_disks.len(), 1);
    let how = MigrateQemu {
        with_local_disks: true,
        targetstorage: Some("local-lvm:tank".to_owned()),
        ..MigrateQemu::online(pve2())
    };
    lab.done(&vm.migrate(&how).await.unwrap()).await;
    let there = lab.client.node(&pve2()).qemu(vmid(211));
    let config = there.config(ConfigView::Current).await.unwrap();
    let disk: Disk = config.get_as("scsi0").unwrap().unwrap();
    assert!(disk.to_string().starts_with("tank:vm-211-disk-0"), "{disk}");
}

#[tokio::test(start_paused = true)]
async fn what_7_and_8_lack_is_refused_before_it_is_sent() {
    let lab = lab(Release::V8_4);
    let vm = lab.machine(212).await;
    lab.cluster.control().reset_counts();
    let how = MigrateQemu {
        with_conntrack_state: true,
        ..MigrateQemu::online(pve2())
    };
    let error = vm.migrate(&how).await.unwrap_err();
    assert!(error.to_string().contains("9.0 or later"), "{error}");
    let counts = lab.cluster.control().counts();
    assert!(!counts.contains_key("POST /nodes/{node}/qemu/{vmid}/migrate"));
}

#[tokio::test(start_paused = true)]
async fn a_backup_becomes_a_machine_of_its_own() {
    let lab = lab(Release::V9_2);
    let vm = lab.machine(213).await;
    let nfs: pve::StorageId = "nfs".parse().unwrap();
    let backup = Backup {
        notes_template: Some("{{guestname}} before the change".to_owned()),
        protected: Some(true),
        ..Backup::of(vmid(213), nfs.clone())
    };
    lab.done(&lab.node().backup(&backup).await.unwrap()).await;
    let saved = lab
        .node()
        .storage(&nfs)
        .content(Some("backup"), None)
        .await
        .unwrap();
    assert_eq!(saved.len(), 1);
    let config = GuestConfig::new().with("name", "restored");
    let tank = "tank".parse().unwrap();
    let task = lab
        .node()
        .restore_qemu(vmid(214), &saved[0].volid, Some(&tank), config)
        .await
        .unwrap();
    lab.done(&task).await;
    let view = ConfigView::Current;
    let (before, after) = (vm.config(view).await.unwrap(), lab.node().qemu(vmid(214)));
    let after = after.config(ConfigView::Current).await.unwrap();
    assert_eq!(after.name(), Some("restored"));
    assert_ne!(
        before.get("net0"),
        after.get("net0"),
        "a copy has its own address"
    );
    lab.done(&vm.delete(DeleteGuest::default()).await.unwrap())
        .await;
}

#[tokio::test(start_paused = true)]
async fn disks_move_become_unused_and_are_unlinked() {
    let lab = lab(Release::V9_2);
    let vm = lab.machine(215).await;
    let to = MoveTo::Storage("tank".parse().unwrap(), None);
    lab.done(&vm.move_disk("scsi0", &to, false, None).await.unwrap())
        .await;
    let config = vm.config(ConfigView::Current).await.unwrap();
    assert!(config.get("scsi0").unwrap().starts_with("tank:"));
    assert!(config.get("unused0").unwrap().starts_with("local-lvm:"));
    vm.unlink(["unused0"], true).await.unwrap();
    assert_eq!(
        vm.config(ConfigView::Current).await.unwrap().get("unused0"),
        None
    );
    let left = lab.node().storage(&"local-lvm".parse().unwrap());
    let left = left.content(Some("images"), Some(vmid(215))).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn the_agent_runs_commands_and_carries_files() {
    let lab = lab(Release::V9_2);
    let vm = system(&lab, 216).await;
    let answer = Process {
        out: "42\n".to_owned(),
        ..Process::default()
    };
    lab.cluster.script(216, "answer --all", answer).unwrap();
    let pid = vm.agent_exec(&["answer", "--all"], None).await.unwrap();
    let status = vm.agent_exec_status(pid).await.unwrap();
    assert!(status.exited);
    assert_eq!(
        (status.exitcode, status.stdout.as_deref()),
        (Some(0), Some("42\n"))
    );
    vm.agent_write_file("/tmp/note", "hello\n").await.unwrap();
    assert_eq!(vm.agent_read_file("/tmp/note").await.unwrap(), "hello\n");
    assert!(vm.agent_osinfo().await.unwrap().id.is_some());
    assert!(!vm.agent_hostname().await.unwrap().is_empty());
    vm.send_key("ret").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_moved_and_gives_a_volume_away() {
    let lab = lab(Release::V9_2);
    let local = lab.node().storage(&"local".parse().unwrap());
    let templates = local.content(Some("vztmpl"), None).await.unwrap();
    let template = templates[0].volid.to_string();
    for number in [220, 221] {
        let config = GuestConfig::new()
            .with("hostname", format!("ct{number}"))
            .with("rootfs", "ceph:4")
            .with("mp0", "ceph:1,mp=/data")
            .with("net0", "name=eth0,bridge=vmbr0,ip=dhcp");
        let config = if number == 220 {
            config
        } else {
            config.with("mp0", "ceph:2,mp=/other")
        };
        let create = CreateLxc::new(vmid(number), template.clone(), config);
        lab.done(&lab.node().create_lxc(&create).await.unwrap())
            .await;
    }
    let ct = lab.node().lxc(vmid(220));
    let to = MoveVolume::Container(vmid(221), Some("mp1".to_owned()));
    lab.done(&ct.move_volume("mp0", &to, false, None).await.unwrap())
        .await;
    let theirs = lab
        .node()
        .lxc(vmid(221))
        .config(ConfigView::Current)
        .await
        .unwrap();
    assert!(
        theirs.get("mp1").unwrap().starts_with("ceph:vm-221-"),
        "{theirs:?}"
    );
    assert_eq!(
        ct.config(ConfigView::Current).await.unwrap().get("mp0"),
        None
    );
    lab.done(&ct.start().await.unwrap()).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        ct.interfaces()
            .await
            .unwrap()
            .iter()
            .any(|it| it.inet.is_some())
    );
    lab.done(&ct.migrate(&MigrateLxc::restart(pve2())).await.unwrap())
        .await;
    let there = lab.client.node(&pve2()).lxc(vmid(220));
    assert!(there.status().await.unwrap().is_running());
}

#[tokio::test(start_paused = true)]
async fn a_killed_node_does_not_take_the_client_with_it() {
    let lab = lab(Release::V9_2);
    lab.client.version().await.unwrap();
    lab.cluster.kill_node("pve1");
    let nodes = lab.client.nodes().await.unwrap();
    let status: Vec<&str> = nodes.iter().map(|node| node.status.as_str()).collect();
    assert_eq!(
        status,
        ["offline", "online", "online"],
        "another endpoint answers"
    );
    let error = lab.node().status().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    let error = lab.node().qemu(vmid(9000)).start().await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    lab.cluster.revive_node("pve1");
    lab.node().status().await.unwrap();
}
