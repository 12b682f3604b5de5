//! The client and the simulated Proxmox VE: two readings of the same API must agree.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use pve::api::access::AclChange;
use pve::api::cluster::ResourceFilter;
use pve::api::guest::power::Stop;
use pve::api::guest::snapshot::CreateSnapshot;
use pve::api::guest::{ConfigView, DeleteGuest};
use pve::api::ha::HaResource;
use pve::api::storage::upload::Upload;
use pve::prop::{Disk, Net, Size};
use pve::task::{TaskEnd, Watch};
use pve::{CloneGuest, ConfigChange, CreateQemu, Credentials, Error, GuestConfig, Object, TokenId};
use pve_sim::{Action, Fault, Release};

use crate::lab::{client, lab, vmid};

#[tokio::test(start_paused = true)]
async fn a_machine_lives_from_template_to_removal_on_both_releases() {
    for release in [Release::V8_4, Release::V9_2] {
        let lab = lab(release);
        let clone = CloneGuest {
            name: Some("web".to_owned()),
            ..CloneGuest::new(vmid(200))
        };
        let task = lab.node().qemu(vmid(9000)).clone_to(&clone).await.unwrap();
        assert_eq!(lab.client.wait(&task).await.unwrap(), TaskEnd::Ok);
        let vm = lab.node().qemu(vmid(200));
        vm.configure(&ConfigChange::set(
            GuestConfig::new().with("cores", 4).with("tags", "b;a"),
        ))
        .await
        .unwrap();
        let task = vm.resize("scsi0", "8G", None).await.unwrap().unwrap();
        lab.client.wait(&task).await.unwrap();
        lab.client.wait(&vm.start().await.unwrap()).await.unwrap();
        let config = vm.config(ConfigView::Current).await.unwrap();
        let disk: Disk = config.get_as("scsi0").unwrap().unwrap();
        assert_eq!(disk.size, Some(Size::from_gib(8)));
        assert_eq!(
            (config.name(), config.get("cores")),
            (Some("web"), Some("4"))
        );
        assert!(config.digest().is_some());
        assert!(vm.status().await.unwrap().is_running());
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert!(vm.agent_ping().await.unwrap());
        assert!(
            vm.agent_interfaces()
                .await
                .unwrap()
                .iter()
                .any(|interface| interface.mac.is_some())
        );
        lab.client
            .wait(&vm.stop(Stop::default()).await.unwrap())
            .await
            .unwrap();
        lab.client
            .wait(&vm.delete(DeleteGuest::default()).await.unwrap())
            .await
            .unwrap();
        let error = vm.status().await.unwrap_err();
        assert!(error.is_guest_not_found(), "{release}: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn everything_in_one_call_and_few_requests() {
    let lab = lab(Release::V9_2);
    lab.client.version().await.unwrap();
    lab.cluster.control().reset_counts();
    let template = lab
        .node()
        .qemu(vmid(9000))
        .config(ConfigView::Next)
        .await
        .unwrap();
    let source: Disk = template.get_as("scsi0").unwrap().unwrap();
    let disk = Disk::import("ceph".parse().unwrap(), source.file.volume().unwrap()).unwrap();
    let config = GuestConfig::new()
        .with("name", "one")
        .with("memory", 2048)
        .with("scsi0", disk)
        .with("net0", Net::virtio("vmbr0").unwrap())
        .with("description", "owner");
    let create = CreateQemu {
        start: true,
        ..CreateQemu::new(vmid(201), config)
    };
    lab.client
        .wait(&lab.node().create_qemu(&create).await.unwrap())
        .await
        .unwrap();
    let total = lab.cluster.control().total();
    assert!(
        total <= 16,
        "{total} requests: {:?}",
        lab.cluster.control().counts()
    );
    assert_eq!(
        lab.node()
            .qemu(vmid(201))
            .config(ConfigView::Next)
            .await
            .unwrap()
            .description(),
        Some("owner")
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_the_clone_to_be_found() {
    let lab = lab(Release::V9_2);
    lab.cluster.control().inject(Fault::once(
        "POST /nodes/{node}/qemu/{vmid}/clone",
        Action::DropAnswer,
    ));
    let clone = CloneGuest {
        description: Some("mine".to_owned()),
        ..CloneGuest::new(vmid(202))
    };
    let error = lab
        .node()
        .qemu(vmid(9000))
        .clone_to(&clone)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    assert_eq!(
        lab.cluster.control().counts()["POST /nodes/{node}/qemu/{vmid}/clone"],
        1,
        "it is not repeated"
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    let found = lab
        .node()
        .qemu(vmid(202))
        .config(ConfigView::Next)
        .await
        .unwrap();
    assert_eq!(found.description(), Some("mine"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_reached_through_another_is_unknown() {
    let lab = lab(Release::V9_2);
    lab.cluster.control().inject(Fault::every(
        "* /nodes/{node}/qemu/*",
        Action::Proxy { status: 595 },
    ));
    let vm = lab.node().qemu(vmid(9000));
    assert!(matches!(
        vm.start().await,
        Err(Error::OutcomeUnknown { .. })
    ));
    assert!(matches!(vm.status().await, Err(Error::Unreachable { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_good_for_days() {
    let lab = lab(Release::V9_2);
    for _ in 0..60 {
        lab.client.version().await.unwrap();
        tokio::time::sleep(Duration::from_mins(50)).await;
    }
    let logins = lab.cluster.control().counts()["POST /access/ticket"];
    assert!(
        (20..=60).contains(&logins),
        "{logins} logins in fifty hours"
    );
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_outlived_its_time_is_replaced_once() {
    let lab = lab(Release::V9_2);
    lab.client.version().await.unwrap();
    tokio::time::sleep(Duration::from_hours(5)).await;
    lab.cluster.control().reset_counts();
    lab.machine(203).await;
    assert_eq!(lab.cluster.control().counts()["POST /access/ticket"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_has_only_what_it_was_given() {
    let lab = lab(Release::V9_2);
    let access = lab.client.access();
    access
        .create_user(&"ci@pve".parse().unwrap(), Some("geheim123"), None)
        .await
        .unwrap();
    let id: TokenId = "ci@pve!main".parse().unwrap();
    let token = access.create_token(&id, false, None).await.unwrap();
    let privs = BTreeSet::from(["VM.Audit".to_owned()]);
    access.create_role("Look", &privs).await.unwrap();
    let change = AclChange {
        path: "/vms".to_owned(),
        roles: vec!["Look".to_owned()],
        users: vec!["ci@pve".parse().unwrap()],
        tokens: Vec::new(),
        groups: Vec::new(),
        propagate: true,
        delete: false,
    };
    access.change_acl(&change).await.unwrap();
    let secret = secrecy::ExposeSecret::expose_secret(&token.value);
    let theirs = client(
        &lab.cluster,
        Credentials::token("ci@pve!main", secret).unwrap(),
    );
    let vm = theirs.node(&lab.node).qemu(vmid(9000));
    vm.status().await.unwrap();
    let Err(Error::Denied {
        path: Some(path),
        privilege: Some(privilege),
        ..
    }) = vm.start().await
    else {
        panic!("starting needs more than looking");
    };
    assert_eq!(
        (path.as_str(), privilege.as_str()),
        ("/vms/9000", "VM.PowerMgmt")
    );
    let held = theirs.access().permissions(None, None).await.unwrap();
    assert!(held.has("/vms/123", "VM.Audit") && !held.has("/vms/123", "VM.PowerMgmt"));
}

#[tokio::test(start_paused = true)]
async fn failures_come_as_cases() {
    let lab = lab(Release::V9_2);
    let vm = lab.machine(204).await;
    let digest = vm
        .config(ConfigView::Next)
        .await
        .unwrap()
        .digest()
        .map(str::to_owned);
    let change = |cores: u32, digest: Option<String>| ConfigChange {
        digest,
        ..ConfigChange::set(GuestConfig::new().with("cores", cores))
    };
    vm.configure(&change(2, digest.clone())).await.unwrap();
    assert!(matches!(
        vm.configure(&change(3, digest)).await,
        Err(Error::DigestMismatch { .. })
    ));
    assert!(matches!(
        vm.agent_interfaces().await,
        Err(Error::NotRunning { .. } | Error::AgentAbsent { .. })
    ));
    assert!(matches!(
        vm.reboot(None).await,
        Err(Error::NotRunning { .. })
    ));
    let task = vm.rollback(&"nope".parse().unwrap(), false).await.unwrap();
    assert!(matches!(
        lab.client.wait(&task).await,
        Err(Error::NotFound {
            what: Object::Snapshot(_),
            ..
        })
    ));
    let create = CreateQemu::new(vmid(204), GuestConfig::new());
    assert!(
        lab.node()
            .create_qemu(&create)
            .await
            .unwrap_err()
            .is_vmid_taken()
    );
    let create = CreateQemu::new(vmid(205), GuestConfig::new().with("scsi0", "nope:4"));
    assert!(matches!(
        lab.node().create_qemu(&create).await,
        Err(Error::StorageMissing { .. })
    ));
    let Err(Error::Parameters { errors, .. }) = vm
        .configure(&ConfigChange::set(
            GuestConfig::new().with("cores", "many").with("bogus", 1),
        ))
        .await
    else {
        panic!("wrong parameters are reported");
    };
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["bogus", "cores"]);
    let foreign = lab.client.node(&"pve2".parse().unwrap()).qemu(vmid(100));
    assert!(foreign.delete(DeleteGuest::default()).await.is_err());
    assert!(!lab.client.cluster().is_free(vmid(204)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_seed_image_is_uploaded_listed_and_removed() {
    let lab = lab(Release::V9_2);
    let storage = lab.node().storage(&"local".parse().unwrap());
    let upload = Upload::iso("seed-200.iso", 4096);
    let task = storage
        .upload_bytes(&upload, Bytes::from(vec![7; 4096]))
        .await
        .unwrap();
    lab.client.wait(&task).await.unwrap();
    let volumes = storage.content(Some("iso"), None).await.unwrap();
    let volume = volumes
        .iter()
        .find(|volume| volume.volid.name() == "iso/seed-200.iso")
        .unwrap();
    assert_eq!(volume.size, Some(4096));
    if let Some(task) = storage.delete_volume(&volume.volid, Some(5)).await.unwrap() {
        lab.client.wait(&task).await.unwrap();
    }
    assert!(
        storage
            .content(Some("iso"), None)
            .await
            .unwrap()
            .iter()
            .all(|left| left.volid != volume.volid)
    );
}

#[tokio::test(start_paused = true)]
async fn snapshots_form_a_line() {
    let lab = lab(Release::V9_2);
    let vm = lab.machine(206).await;
    for name in ["first", "second"] {
        let task = vm
            .snapshot(&CreateSnapshot::new(name.parse().unwrap()))
            .await
            .unwrap();
        lab.client.wait(&task).await.unwrap();
    }
    let snapshots = vm.snapshots().await.unwrap();
    let parent = |name: &str| {
        snapshots
            .iter()
            .find(|snapshot| snapshot.name == name)
            .unwrap()
            .parent
            .clone()
    };
    assert_eq!(parent("second").as_deref(), Some("first"));
    assert_eq!(parent("current").as_deref(), Some("second"));
    let task = vm
        .delete_snapshot(&"first".parse().unwrap(), false)
        .await
        .unwrap();
    lab.client.wait(&task).await.unwrap();
    assert_eq!(vm.snapshots().await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn many_clones_are_waited_for_at_the_cost_of_one() {
    let lab = lab(Release::V9_2);
    let template = lab.node().qemu(vmid(9000));
    let watch = Watch::new(lab.client.clone());
    let mut tasks = Vec::new();
    for number in 300..320 {
        tasks.push(
            template
                .clone_to(&CloneGuest::new(vmid(number)))
                .await
                .unwrap(),
        );
    }
    lab.cluster.control().reset_counts();
    let ends = futures::future::join_all(tasks.iter().map(|task| watch.wait(task))).await;
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    let counts = lab.cluster.control().counts();
    assert_eq!(counts["GET /nodes/{node}/tasks/{upid}/status"], 20);
    let lists = counts["GET /nodes/{node}/tasks"];
    assert!(lists < 60, "{lists} ticks");
    assert_eq!(counts.len(), 2, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn the_cluster_tells_what_it_has() {
    for release in [Release::V8_4, Release::V9_2] {
        let lab = lab(release);
        assert_eq!(lab.client.nodes().await.unwrap().len(), 3);
        assert_eq!(lab.client.cluster().status().await.unwrap().len(), 4);
        tokio::time::sleep(Duration::from_secs(15)).await;
        let guests = lab
            .client
            .cluster()
            .resources(Some(ResourceFilter::Guests))
            .await
            .unwrap();
        assert!(
            guests
                .iter()
                .any(|guest| guest.template && guest.vmid == Some(vmid(9000)))
        );
        let status = lab.node().status().await.unwrap();
        assert_eq!(status.cpuinfo.cpus, Some(32));
        let storages = lab
            .node()
            .storages(&pve::api::storage::StorageFilter::default())
            .await
            .unwrap();
        assert!(
            storages
                .iter()
                .any(|storage| storage.shared && storage.holds("images"))
        );
        assert!(
            !lab.node()
                .network(Some("any_bridge"))
                .await
                .unwrap()
                .is_empty()
        );
        assert!(!lab.client.storages().await.unwrap().is_empty());
        assert!(
            lab.client
                .access()
                .roles()
                .await
                .unwrap()
                .iter()
                .any(|role| role.name == "PVEAdmin" && role.special)
        );
        lab.client.sdn().vnets().await.unwrap();
        lab.client.cluster().tasks().await.unwrap();
        lab.client.cluster().options().await.unwrap();
        lab.client.firewall().options().await.unwrap();
        lab.client.pools().list().await.unwrap();
        lab.node().time().await.unwrap();
        assert!(lab.client.cluster().next_id().await.unwrap() > vmid(100));
    }
}

#[tokio::test(start_paused = true)]
async fn pools_and_high_availability() {
    for release in [Release::V8_4, Release::V9_2] {
        let lab = lab(release);
        lab.machine(207).await;
        let pools = lab.client.pools();
        let pool = "k8s".parse().unwrap();
        pools.create(&pool, Some("ours")).await.unwrap();
        let change = pve::api::pool::PoolChange {
            vms: vec![vmid(207)],
            ..Default::default()
        };
        pools.update(&pool, &change).await.unwrap();
        let members = pools.get(&pool).await.unwrap().members;
        assert_eq!(
            members
                .iter()
                .filter_map(|member| member.vmid)
                .collect::<Vec<_>>(),
            [vmid(207)]
        );
        assert!(matches!(
            pools.delete(&pool).await,
            Err(Error::InUse { .. })
        ));
        let ha = lab.client.ha();
        ha.add(&HaResource::started("vm:207".parse().unwrap()))
            .await
            .unwrap();
        assert!(matches!(
            ha.add(&HaResource::started("vm:207".parse().unwrap()))
                .await,
            Err(Error::AlreadyExists { .. })
        ));
        assert_eq!(ha.resources().await.unwrap().len(), 1);
        ha.remove(&"vm:207".parse().unwrap()).await.unwrap();
    }
}
