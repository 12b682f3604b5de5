//! What goes over the wire for each call: method, path and the names of parameters.

use std::collections::BTreeSet;

use pve::api::backup::{Backup, Selection};
use pve::api::firewall::Rule;
use pve::api::guest::migrate::MigrateQemu;
use pve::api::guest::power::{Shutdown, Stop};
use pve::api::guest::snapshot::CreateSnapshot;
use pve::api::guest::{ConfigView, DeleteGuest};
use pve::api::ha::{HaGroup, HaResource, HaRule, HaRuleKind};
use pve::api::pool::PoolChange;
use pve::api::qemu::MoveTo;
use pve::api::storage::content::Allocate;
use pve::prop::{Agent, Disk, Net};
use pve::{CloneGuest, ConfigChange, CreateLxc, CreateQemu, Error, GuestConfig, Node, Vmid};
use serde_json::{Value, json};

use crate::fake::{Fake, Reply, version};

const UPID: &str = "UPID:pve1:00000001:00000001:00000001:qmstart:100:a@pve:";

fn server(release: &'static str) -> Fake {
    Fake::new(
        move |seen, _| match (seen.method.as_str(), seen.path.as_str()) {
            ("GET", "/version") => version(release),
            ("GET", _) => Reply::Data(json!([])),
            (_, path) if path.starts_with("/nodes") => Reply::Data(json!(UPID)),
            _ => Reply::Data(Value::Null),
        },
    )
}

fn vmid(number: u32) -> Vmid {
    Vmid::new(number).unwrap()
}

fn node(fake: &Fake) -> Node {
    fake.client().node(&"pve1".parse().unwrap())
}

/// The last request, as a line.
fn line(fake: &Fake) -> String {
    let seen = fake.seen().pop().unwrap();
    let params = [seen.query, seen.body]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<String>();
    format!(
        "{} {} {}",
        seen.method,
        seen.path,
        pve::params::unescape(&params)
    )
    .trim_end()
    .to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_made_with_everything_in_one_call() {
    let fake = server("9.2.11");
    let config = GuestConfig::new()
        .with("name", "web")
        .with(
            "scsi0",
            Disk::import(
                "tank".parse().unwrap(),
                &"tank:base-9000-disk-0".parse().unwrap(),
            )
            .unwrap(),
        )
        .with("net0", Net::virtio("vmbr0").unwrap())
        .with("agent", Agent::new(true))
        .with("description", "owner: a & b\nline");
    let create = CreateQemu {
        start: true,
        pool: Some("web".parse().unwrap()),
        ..CreateQemu::new(vmid(100), config)
    };
    node(&fake).create_qemu(&create).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu vmid=100&agent=1&description=owner: a & b\nline&name=web&net0=virtio,bridge=vmbr0\
         &scsi0=tank:0,import-from=tank:base-9000-disk-0&pool=web&start=1"
    );
}

#[tokio::test(start_paused = true)]
async fn the_machine_family_says_what_the_server_reads() {
    let fake = server("9.2.11");
    let vm = node(&fake).qemu(vmid(100));
    let clone = CloneGuest {
        name: Some("a".to_owned()),
        description: Some("mark".to_owned()),
        full: Some(false),
        target: Some("pve2".parse().unwrap()),
        ..CloneGuest::new(vmid(101))
    };
    vm.clone_to(&clone).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/clone newid=101&name=a&description=mark&full=0&target=pve2"
    );
    vm.configure_in_task(
        &ConfigChange::set(GuestConfig::new().with("cores", 4)),
        Some(5),
    )
    .await
    .unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/config cores=4&background_delay=5"
    );
    vm.resize("scsi0", "+10G", Some("d")).await.unwrap();
    assert_eq!(
        line(&fake),
        "PUT /nodes/pve1/qemu/100/resize disk=scsi0&size=+10G&digest=d"
    );
    vm.delete(DeleteGuest {
        purge: true,
        unreferenced_disks: true,
        force: false,
    })
    .await
    .unwrap();
    assert_eq!(
        line(&fake),
        "DELETE /nodes/pve1/qemu/100 purge=1&destroy-unreferenced-disks=1"
    );
    vm.stop(Stop {
        overrule_shutdown: true,
    })
    .await
    .unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/status/stop overrule-shutdown=1"
    );
    vm.shutdown(Shutdown {
        timeout: Some(30),
        force_stop: true,
    })
    .await
    .unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/status/shutdown timeout=30&forceStop=1"
    );
    vm.hibernate(None).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/status/suspend todisk=1"
    );
    vm.move_disk(
        "scsi0",
        &MoveTo::Storage("ceph".parse().unwrap(), Some("raw".to_owned())),
        true,
        None,
    )
    .await
    .unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/move_disk disk=scsi0&storage=ceph&format=raw&delete=1"
    );
    let migrate = MigrateQemu {
        with_local_disks: true,
        ..MigrateQemu::online("pve2".parse().unwrap())
    };
    vm.migrate(&migrate).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/migrate target=pve2&online=1&with-local-disks=1"
    );
    let snapshot = CreateSnapshot {
        vmstate: true,
        ..CreateSnapshot::new("before".parse().unwrap())
    };
    vm.snapshot(&snapshot).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/snapshot snapname=before&vmstate=1"
    );
    vm.rollback(&"before".parse().unwrap(), true).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/snapshot/before/rollback start=1"
    );
    let _ = vm.config(ConfigView::Current).await;
    assert_eq!(line(&fake), "GET /nodes/pve1/qemu/100/config current=1");
    let _ = vm.agent_exec(&["/bin/ls", "-l"], None).await;
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/agent/exec command=/bin/ls&command=-l"
    );
    let _ = vm
        .firewall()
        .add_rule(&Rule {
            dport: Some("22".to_owned()),
            ..Rule::new("in", "ACCEPT")
        })
        .await;
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/qemu/100/firewall/rules type=in&action=ACCEPT&enable=1&dport=22"
    );
}

#[tokio::test(start_paused = true)]
async fn containers_have_names_of_their_own_for_the_same() {
    let fake = server("9.2.11");
    let config = GuestConfig::new()
        .with("hostname", "db")
        .with("rootfs", "tank:8");
    let create = CreateLxc::new(vmid(200), "local:vztmpl/debian.tar.zst", config);
    node(&fake).create_lxc(&create).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/lxc vmid=200&ostemplate=local:vztmpl/debian.tar.zst&hostname=db&rootfs=tank:8&unprivileged=1"
    );
    let ct = node(&fake).lxc(vmid(200));
    let clone = CloneGuest {
        name: Some("db2".to_owned()),
        ..CloneGuest::new(vmid(201))
    };
    ct.clone_to(&clone).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/lxc/200/clone newid=201&hostname=db2"
    );
    let sent = fake.seen().len();
    let format = CloneGuest {
        format: Some("raw".to_owned()),
        ..clone
    };
    assert!(matches!(
        ct.clone_to(&format).await,
        Err(Error::Request { .. })
    ));
    let vmstate = CreateSnapshot {
        vmstate: true,
        ..CreateSnapshot::new("s1".parse().unwrap())
    };
    assert!(matches!(
        ct.snapshot(&vmstate).await,
        Err(Error::Request { .. })
    ));
    assert_eq!(
        fake.seen().len(),
        sent,
        "what containers cannot do is not sent"
    );
}

#[tokio::test(start_paused = true)]
async fn storage_backup_and_pools() {
    let fake = server("9.2.11");
    let storage = node(&fake).storage(&"local".parse().unwrap());
    let allocate = Allocate {
        vmid: vmid(100),
        filename: "vm-100-disk-7.raw".to_owned(),
        size: "1G".to_owned(),
        format: Some("raw".to_owned()),
    };
    let _ = storage.allocate(&allocate).await;
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/storage/local/content vmid=100&filename=vm-100-disk-7.raw&size=1G&format=raw"
    );
    storage
        .delete_volume(
            &"local:iso/a b.iso".replace(' ', "_").parse().unwrap(),
            Some(5),
        )
        .await
        .unwrap();
    assert_eq!(
        line(&fake),
        "DELETE /nodes/pve1/storage/local/content/local%3Aiso%2Fa_b.iso delay=5"
    );
    let backup = Backup {
        mode: Some("stop".to_owned()),
        ..Backup::of(vmid(100), "nfs".parse().unwrap())
    };
    node(&fake).backup(&backup).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /nodes/pve1/vzdump vmid=100&storage=nfs&mode=stop"
    );
    let nothing = Backup {
        selection: Selection::Guests(Vec::new()),
        ..backup
    };
    assert!(node(&fake).backup(&nothing).await.is_err());
    let change = PoolChange {
        vms: vec![vmid(100), vmid(101)],
        allow_move: true,
        ..PoolChange::default()
    };
    fake.client()
        .pools()
        .update(&"a/b".parse().unwrap(), &change)
        .await
        .unwrap();
    assert_eq!(
        line(&fake),
        "PUT /pools poolid=a/b&vms=100,101&allow-move=1"
    );
    let privs = BTreeSet::from(["VM.Audit".to_owned(), "VM.Clone".to_owned()]);
    fake.client()
        .access()
        .create_role("Oxmox", &privs)
        .await
        .unwrap();
    assert_eq!(
        line(&fake),
        "POST /access/roles roleid=Oxmox&privs=VM.Audit,VM.Clone"
    );
}

#[tokio::test(start_paused = true)]
async fn high_availability_is_rules_on_9_and_groups_before() {
    let group = HaGroup {
        group: "g".to_owned(),
        nodes: "pve1:2,pve2".to_owned(),
        restricted: true,
        ..HaGroup::default()
    };
    let rule = HaRule {
        name: "apart".to_owned(),
        resources: vec!["vm:100".parse().unwrap(), "vm:101".parse().unwrap()],
        kind: HaRuleKind::ResourceAffinity { together: false },
        disable: false,
        comment: None,
    };
    let fake = server("9.2.11");
    let ha = fake.client().ha();
    ha.create_rule(&rule).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /cluster/ha/rules rule=apart&type=resource-affinity&affinity=negative&resources=vm:100,vm:101&disable=0"
    );
    let error = ha.create_group(&group).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "high availability by groups needs Proxmox VE 8.4 or earlier (use rules), this one is 9.2.11"
    );

    let fake = server("8.4.21");
    let ha = fake.client().ha();
    ha.create_group(&group).await.unwrap();
    assert_eq!(
        line(&fake),
        "POST /cluster/ha/groups group=g&nodes=pve1:2,pve2&restricted=1"
    );
    assert!(matches!(
        ha.create_rule(&rule).await,
        Err(Error::Unsupported { .. })
    ));
    ha.add(&HaResource {
        max_restart: Some(2),
        ..HaResource::started("vm:100".parse().unwrap())
    })
    .await
    .unwrap();
    assert_eq!(
        line(&fake),
        "POST /cluster/ha/resources sid=vm:100&state=started&max_restart=2"
    );
}

#[tokio::test(start_paused = true)]
async fn what_7_4_lacks_is_refused_by_name() {
    let fake = server("7.4-16");
    let client = fake.client();
    let vm = node(&fake).qemu(vmid(100));
    let mut refused = vec![
        vm.stop(Stop {
            overrule_shutdown: true,
        })
        .await
        .unwrap_err(),
        node(&fake).lxc(vmid(200)).interfaces().await.unwrap_err(),
        client.pci_mappings().await.unwrap_err(),
        client
            .pools()
            .create(&"a/b".parse().unwrap(), None)
            .await
            .unwrap_err(),
        client.ha().rules().await.unwrap_err(),
    ];
    refused.push(vm.agent_exec(&["ls"], None).await.unwrap_err());
    let token = "a@pve!b".parse().unwrap();
    refused.push(client.access().regenerate_token(&token).await.unwrap_err());
    let change = PoolChange {
        allow_move: true,
        ..PoolChange::default()
    };
    let pool = "a".parse().unwrap();
    refused.push(client.pools().update(&pool, &change).await.unwrap_err());
    let resource = HaResource {
        failback: Some(true),
        ..HaResource::started("vm:100".parse().unwrap())
    };
    refused.push(client.ha().add(&resource).await.unwrap_err());
    for option in [
        "amd-sev",
        "ciupgrade",
        "virtiofs3",
        "allow-ksm",
        "intel-tdx",
        "import-working-storage",
        "ha-managed",
    ] {
        let config = GuestConfig::default().with(option, 1);
        let create = CreateQemu::new(vmid(101), config);
        let error = node(&fake).create_qemu(&create).await.unwrap_err();
        assert!(
            error.to_string().contains("Proxmox VE"),
            "{option}: {error}"
        );
        refused.push(error);
    }
    for option in ["dev0", "entrypoint", "env"] {
        let change = ConfigChange::set(GuestConfig::default().with(option, 1));
        let container = node(&fake).lxc(vmid(200));
        refused.push(container.configure(&change).await.unwrap_err());
    }
    for error in refused {
        assert!(
            matches!(error, Error::Unsupported { .. }) && error.to_string().contains("7.4.16"),
            "{error}"
        );
    }
    let changes = fake.seen();
    let changes = changes
        .iter()
        .filter(|seen| seen.method != http::Method::GET);
    assert_eq!(changes.count(), 0, "what is refused is not sent");
    // Pools by path, as 7.4 wants them.
    client.pools().delete(&"a".parse().unwrap()).await.unwrap();
    assert_eq!(line(&fake), "DELETE /pools/a");
}

#[tokio::test(start_paused = true)]
async fn the_release_is_asked_for_once_in_a_while() {
    let fake = server("9.2.11");
    let ha = fake.client().ha();
    for _ in 0..5 {
        ha.rules().await.unwrap();
    }
    assert_eq!(fake.count("/version"), 1);
    tokio::time::advance(std::time::Duration::from_mins(11)).await;
    ha.rules().await.unwrap();
    assert_eq!(
        fake.count("/version"),
        2,
        "a cluster may be upgraded under a client"
    );
}
