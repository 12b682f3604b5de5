//! What is around guests: firewalls, high availability, networks, files, rights.

use std::collections::BTreeSet;

use bytes::Bytes;
use pve::api::access::AclChange;
use pve::api::firewall::{IpSetMember, Rule};
use pve::api::ha::{HaGroup, HaResource, HaRule, HaRuleKind};
use pve::api::storage::upload::{Checksum, Download, Upload};
use pve::{Credentials, Error, TokenId};
use pve_sim::Release;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::lab::{client, lab, vmid};

#[tokio::test(start_paused = true)]
async fn rules_sets_and_groups_of_a_firewall() {
    let lab = lab(Release::V9_2);
    let vm = lab.machine(230).await;
    let wall = vm.firewall();
    wall.add_rule(&Rule {
        proto: Some("tcp".to_owned()),
        dport: Some("22".to_owned()),
        ..Rule::new("in", "ACCEPT")
    })
    .await
    .unwrap();
    wall.add_rule(&Rule::new("in", "DROP")).await.unwrap();
    let actions =
        |rules: Vec<Rule>| -> Vec<String> { rules.into_iter().map(|rule| rule.action).collect() };
    assert_eq!(actions(wall.rules().await.unwrap()), ["DROP", "ACCEPT"]);
    wall.move_rule(0, 2, None).await.unwrap();
    assert_eq!(actions(wall.rules().await.unwrap()), ["ACCEPT", "DROP"]);
    wall.create_ipset("lan", Some("ours")).await.unwrap();
    let member = IpSetMember {
        cidr: "10.0.0.0/8".to_owned(),
        nomatch: false,
        comment: None,
    };
    wall.add_to_ipset("lan", &member).await.unwrap();
    assert_eq!(wall.ipset("lan").await.unwrap(), [member]);
    wall.remove_from_ipset("lan", "10.0.0.0/8").await.unwrap();
    wall.delete_ipset("lan").await.unwrap();
    let bad = Rule {
        source: Some("10.0.0.1-10.0.0.9,10.0.0.20".to_owned()),
        ..Rule::new("in", "ACCEPT")
    };
    let Err(Error::Parameters { errors, .. }) = wall.add_rule(&bad).await else {
        panic!("a range in a list is refused");
    };
    assert!(errors.contains_key("source"));
    let group = lab.client.security_group("web");
    group.create(None).await.unwrap();
    group.add_rule(&Rule::new("in", "ACCEPT")).await.unwrap();
    assert!(group.delete().await.is_err(), "a group with rules stays");
    group.delete_rule(0, None).await.unwrap();
    group.delete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn groups_are_for_8_and_rules_for_9() {
    for release in [Release::V8_4, Release::V9_2] {
        let lab = lab(release);
        lab.machine(231).await;
        let ha = lab.client.ha();
        let sid = "vm:231".parse().unwrap();
        ha.add(&HaResource::started(sid)).await.unwrap();
        let group = HaGroup {
            group: "near".to_owned(),
            nodes: "pve1:2,pve2".to_owned(),
            ..HaGroup::default()
        };
        let rule = HaRule {
            name: "near".to_owned(),
            resources: vec!["vm:231".parse().unwrap()],
            kind: HaRuleKind::NodeAffinity {
                nodes: "pve1:2,pve2".to_owned(),
                strict: false,
            },
            disable: false,
            comment: None,
        };
        let (groups, rules) = (ha.create_group(&group).await, ha.create_rule(&rule).await);
        if release == Release::V9_2 {
            let error = groups.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            rules.unwrap();
            let listed = ha.rules().await.unwrap();
            assert_eq!(listed.len(), 1);
            assert_eq!(listed[0].resources, rule.resources);
            ha.delete_rule("near").await.unwrap();
        } else {
            groups.unwrap();
            let error = rules.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            assert_eq!(ha.groups().await.unwrap()[0].group, "near");
            ha.delete_group("near").await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn networks_are_read_from_cluster_and_node() {
    let lab = lab(Release::V9_2);
    let sdn = lab.client.sdn();
    assert!(
        sdn.zones()
            .await
            .unwrap()
            .iter()
            .any(|zone| zone.zone == "simple")
    );
    assert!(
        sdn.vnets()
            .await
            .unwrap()
            .iter()
            .any(|vnet| vnet.vnet == "tenant")
    );
    sdn.subnets("tenant").await.unwrap();
    let zones = lab.node().sdn_zones().await.unwrap();
    assert!(zones.iter().any(|zone| zone.zone == "simple"));
    let content = lab.node().sdn_zone_content("simple").await.unwrap();
    assert!(content.iter().any(|vnet| vnet.vnet == "tenant"));
}

/// Serves one file to whoever asks, on a port of its own.
async fn file_server(content: &'static [u8]) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                content.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(content).await;
        }
    });
    format!("http://{address}/image.iso")
}

// Not on a paused clock: a real socket is waited for.
#[tokio::test]
async fn a_node_fetches_a_file_and_checks_it() {
    let lab = lab(Release::V9_2);
    let storage = lab.node().storage(&"local".parse().unwrap());
    let download = Download {
        url: file_server(b"hello").await,
        content: "iso".to_owned(),
        filename: "image.iso".to_owned(),
        checksum: Some(Checksum {
            algorithm: "md5".to_owned(),
            value: "5d41402abc4b2a76b9719d911017c592".to_owned(),
        }),
        ..Download::default()
    };
    lab.done(&storage.download_url(&download).await.unwrap())
        .await;
    let files = storage.content(Some("iso"), None).await.unwrap();
    assert!(
        files
            .iter()
            .any(|file| file.volid.name() == "iso/image.iso")
    );
    let wrong = Download {
        checksum: Some(Checksum {
            algorithm: "sha256".to_owned(),
            value: "00".repeat(32),
        }),
        filename: "other.iso".to_owned(),
        ..download
    };
    let task = storage.download_url(&wrong).await.unwrap();
    let error = lab.client.wait(&task).await.unwrap_err();
    assert!(error.to_string().contains("checksum mismatch"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_file_is_streamed_in_pieces() {
    let lab = lab(Release::V9_2);
    let storage = lab.node().storage(&"local".parse().unwrap());
    let pieces = (0..16).map(|n| Ok::<_, std::io::Error>(Bytes::from(vec![n; 65_536])));
    let upload = Upload::iso("pieces.iso", 16 * 65_536);
    let task = storage.upload(&upload, futures::stream::iter(pieces)).await;
    lab.done(&task.unwrap()).await;
    let files = storage.content(Some("iso"), None).await.unwrap();
    let file = files
        .iter()
        .find(|file| file.volid.name() == "iso/pieces.iso");
    assert_eq!(file.unwrap().size, Some(16 * 65_536));
}

#[tokio::test(start_paused = true)]
async fn credentials_are_replaced_while_requests_are_under_way() {
    let lab = lab(Release::V9_2);
    let access = lab.client.access();
    let user = "ci@pve".parse().unwrap();
    access
        .create_user(&user, Some("geheim123"), None)
        .await
        .unwrap();
    let role = BTreeSet::from(["VM.Audit".to_owned(), "Sys.Audit".to_owned()]);
    access.create_role("Look", &role).await.unwrap();
    let change = AclChange {
        path: "/".to_owned(),
        roles: vec!["Look".to_owned()],
        users: vec![user],
        tokens: Vec::new(),
        groups: Vec::new(),
        propagate: true,
        delete: false,
    };
    access.change_acl(&change).await.unwrap();
    let mut secrets = Vec::new();
    for name in ["ci@pve!old", "ci@pve!new"] {
        let id: TokenId = name.parse().unwrap();
        let made = access.create_token(&id, false, None).await.unwrap();
        let secret = secrecy::ExposeSecret::expose_secret(&made.value).to_owned();
        secrets.push(Credentials::token(name, &secret).unwrap());
    }
    let new = secrets.pop().unwrap();
    let theirs = client(&lab.cluster, secrets.pop().unwrap());
    let calls = (0..20).map(|_| {
        let theirs = theirs.clone();
        async move {
            theirs
                .node(&"pve1".parse().unwrap())
                .qemu(vmid(9000))
                .status()
                .await
        }
    });
    let calls = futures::future::join_all(calls);
    let swap = async {
        tokio::task::yield_now().await;
        theirs.set_credentials(new);
        access
            .delete_token(&"ci@pve!old".parse().unwrap())
            .await
            .unwrap();
    };
    let (answers, ()) = futures::join!(calls, swap);
    let failed: Vec<_> = answers.iter().filter_map(|it| it.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    theirs.cluster().status().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_user_with_a_second_factor_is_told_to_make_a_token() {
    let world = "clusters: [{ name: pve, users: [{ id: p@pve, password: secret12, totp: GEZDGNBVGY3TQOJQ }] }]";
    let world = pve_sim::WorldFile::parse(world).unwrap();
    let simulator = pve_sim::Simulator::builder().world(world).build();
    let cluster = simulator.cluster("pve").unwrap();
    let person = client(cluster, Credentials::password("p@pve", "secret12").unwrap());
    let error = person.version().await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("second factor") && text.contains("pveum user token add p@pve"),
        "{text}"
    );
    let before = cluster.control().counts();
    person.version().await.unwrap_err();
    assert_eq!(
        cluster.control().counts(),
        before,
        "not asked again at once"
    );
}
