//! Images from the web become templates where they are needed, once, and go when nobody needs them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use api::vm::{VMImage, VirtualMachine};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use scenarios::Bed;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::prepared;

/// SHA-256 of [`CONTENT`].
const DIGEST: &str = "2cf9fdb9ca94af2e2b0f5a7cb38aea6ad2e4b0d6ca4e18ad13ab46e4c8ac4d0d";
const CONTENT: &[u8] = b"QFI\xfb a small disk image";

/// A web server on loopback that has one file, and counts how often it was fetched.
struct Web {
    url: String,
    count: Arc<AtomicU32>,
}

impl Web {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/noble.img", listener.local_addr().unwrap());
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    CONTENT.len()
                );
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(CONTENT).await;
            }
        });
        Self { url, count }
    }

    fn fetched(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }
}

/// A prepared bed with an image `noble` from the web.
async fn published(more: &Value) -> (Bed, Web) {
    let bed = prepared().await;
    let web = Web::new().await;
    let image = image("noble", &web.url, more);
    bed.try_apply(&image).await.unwrap();
    (bed, web)
}

/// Makes a machine of it.
async fn run(bed: &Bed, name: &str) {
    bed.try_apply(&machine(name, "noble")).await.unwrap();
    bed.until_ready::<VirtualMachine>(name).await;
}

fn digest() -> String {
    use std::fmt::Write as _;

    use sha2::Digest as _;
    let bytes = sha2::Sha256::digest(CONTENT);
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn image(name: &str, url: &str, more: &Value) -> Value {
    let mut spec = json!({ "source": url, "checksum": { "value": digest() } });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMImage",
        "metadata": { "name": name }, "spec": spec,
    })
}

fn machine(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
        "metadata": { "name": name },
        "spec": {
            "classRef": { "name": "small" }, "imageRef": { "name": image },
            "readiness": "Running", "networks": [{ "name": "lan" }],
        },
    })
}

async fn templates(bed: &Bed) -> Vec<u32> {
    let guests = bed.guests().await.into_iter();
    let made = guests.filter(|guest| guest.template && guest.key("tags").contains("oxmox-image-"));
    made.map(|guest| guest.vmid).collect()
}

#[tokio::test(start_paused = true)]
async fn machines_of_one_image_share_the_template_made_for_the_first() {
    let (bed, web) = published(&json!({})).await;
    bed.until_reason::<VMImage>("noble", "Ready", "NotNeeded")
        .await;
    assert_eq!(templates(&bed).await, [0; 0], "nobody needs it yet");

    bed.try_apply(&machine("one", "noble")).await.unwrap();
    bed.try_apply(&machine("two", "noble")).await.unwrap();
    bed.until_ready::<VirtualMachine>("one").await;
    bed.until_ready::<VirtualMachine>("two").await;
    let image: VMImage = bed.until_ready("noble").await;
    let made = templates(&bed).await;
    assert_eq!(made.len(), 1, "{made:?}");
    let status = image.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Ready"));
    assert_eq!(status.templates.len(), 1);
    assert_eq!(status.templates[0].vmid, Some(made[0]));
    assert_eq!(web.fetched(), 1);
    let template = bed
        .guests()
        .await
        .into_iter()
        .find(|g| g.vmid == made[0])
        .unwrap();
    assert!(
        template.key("description").contains(&web.url),
        "{}",
        template.key("description")
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_of_a_known_digest_is_not_fetched_again() {
    let here = json!({ "providerRef": { "name": "proxmox-prod" }, "storage": "ceph" });
    let (bed, web) = published(&here).await;
    bed.until_ready::<VMImage>("noble").await;
    bed.try_apply(&image("same", &format!("{}?mirror=2", web.url), &here))
        .await
        .unwrap();
    let same: VMImage = bed.until_ready("same").await;
    assert_eq!(web.fetched(), 1);
    assert_eq!(templates(&bed).await.len(), 1);
    assert_eq!(
        same.status.unwrap().templates[0].storage.as_deref(),
        Some("ceph")
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_digest_is_not_used_and_the_machine_says_why() {
    let wrong = json!({ "checksum": { "value": DIGEST } });
    let (bed, web) = published(&wrong).await;
    bed.try_apply(&machine("one", "noble")).await.unwrap();
    let said = |conditions: &[Condition]| {
        let ready = api::vm::condition(conditions, "Ready");
        ready.is_some_and(|ready| ready.status == "False" && ready.message.contains("checksum"))
    };
    bed.until("noble", "refused", |image: &VMImage| {
        image
            .status
            .as_ref()
            .is_some_and(|status| said(&status.conditions))
    })
    .await;
    bed.until("one", "told of it", |machine: &VirtualMachine| {
        machine
            .status
            .as_ref()
            .is_some_and(|status| said(&status.conditions))
    })
    .await;
    bed.sleep(Duration::from_mins(5)).await;
    assert_eq!(templates(&bed).await, [0; 0]);
    let fetched = web.fetched();
    assert!(fetched <= 2, "fetched {fetched} times in vain");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_needs_is_collected_and_a_deleted_image_leaves_nothing() {
    let (bed, _) = published(&json!({})).await;
    let foreign = bed.foreign().await;
    run(&bed, "one").await;
    bed.delete::<VirtualMachine>("one").await;
    bed.sleep(Duration::from_mins(30)).await;
    assert_eq!(
        templates(&bed).await.len(),
        1,
        "it may be needed again soon"
    );
    bed.sleep(Duration::from_hours(1)).await;
    assert_eq!(templates(&bed).await, [0; 0]);

    run(&bed, "two").await;
    bed.delete::<VirtualMachine>("two").await;
    bed.delete::<VMImage>("noble").await;
    assert_eq!(templates(&bed).await, [0; 0]);
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_template_stays_when_its_storage_is_named_that_was_chosen_before() {
    let (bed, web) = published(&json!({})).await;
    run(&bed, "one").await;
    let before = templates(&bed).await;
    let made: VMImage = bed.until_ready("noble").await;
    let storage = made.status.unwrap().templates[0].storage.clone();
    // Named, and left out again.
    for storage in [json!(storage), json!(null)] {
        bed.change::<VMImage>("noble", json!({ "storage": storage }))
            .await;
        bed.sleep(Duration::from_mins(90)).await;
        assert_eq!(templates(&bed).await, before);
        let kept: VMImage = bed.until_ready("noble").await;
        let kept = kept.status.unwrap().templates;
        assert_eq!((kept.len(), kept[0].vmid), (1, Some(before[0])));
    }
    assert_eq!(web.fetched(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_image_with_linked_machines_waits_to_be_deleted() {
    let (bed, _) = published(&json!({ "storage": "ceph" })).await;
    run(&bed, "one").await;
    bed.api::<VMImage>()
        .delete("noble", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    bed.sleep(Duration::from_mins(5)).await;
    bed.pve().control().reset_counts();
    bed.line().forget();
    bed.sleep(Duration::from_mins(30)).await;
    // As long as all guests are there nothing is tried again, and nothing written.
    assert_eq!(bed.count("DELETE /nodes/{node}/qemu/{vmid}"), 0);
    assert_eq!(bed.line().kubernetes_writes(), Vec::<String>::new());
    assert_eq!(templates(&bed).await.len(), 1);
    assert!(bed.guest("one").await.running);
    bed.delete::<VirtualMachine>("one").await;
    bed.until_gone::<VMImage>("noble").await;
    assert_eq!(templates(&bed).await, [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_template_is_found_or_said_to_be_missing() {
    let bed = prepared().await;
    let found: VMImage = bed.until_ready("ubuntu-22").await;
    assert_eq!(found.status.unwrap().templates[0].vmid, Some(9000));
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMImage
metadata: { name: misspelt }
spec: { source: ubunut-22-template }
",
    )
    .await;
    bed.until_reason::<VMImage>("misspelt", "Ready", "TemplateNotFound")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_stays_the_copy_it_is_when_its_image_becomes_an_installer() {
    let bed = crate::with_machine().await;
    let before = bed.guest("web-server").await;
    bed.change::<VMImage>("ubuntu-22", json!({ "source": "local:iso/win11.iso" }))
        .await;
    bed.sleep(Duration::from_mins(10)).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let now = bed.guest("web-server").await;
    assert_eq!(now.config, before.config);
    assert_eq!(now.process, before.process, "it runs on");
}

#[tokio::test(start_paused = true)]
async fn a_checksum_of_another_algorithm_is_refused_before_anything_is_fetched() {
    let bed = prepared().await;
    let url = "http://127.0.0.1:9/noble.img";
    for (checksum, digits) in [
        (json!({ "value": "0".repeat(128) }), "128"),
        (json!({ "value": DIGEST, "algorithm": "sha512" }), "128"),
    ] {
        let image = image("odd", url, &json!({ "checksum": checksum }));
        let refused = bed.try_apply(&image).await.unwrap_err().to_string();
        assert!(
            refused.contains(digits) && refused.contains("set algorithm"),
            "{refused}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_checksum_without_a_download_is_refused() {
    let bed = prepared().await;
    for source in [
        json!("ubuntu-22-template"),
        json!(9000),
        json!("local:iso/d.iso"),
    ] {
        for (field, value) in [
            ("checksum", json!({ "value": DIGEST })),
            ("storage", json!("ceph")),
        ] {
            let refused = bed
                .try_apply(&json!({
                    "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMImage",
                    "metadata": { "name": "odd" }, "spec": { "source": source, field: value },
                }))
                .await
                .unwrap_err()
                .to_string();
            assert!(
                refused.contains("give a URL as source, or remove it"),
                "{refused}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_download_that_pve_cannot_unpack_is_refused_and_another_one_is_another_image() {
    let bed = prepared().await;
    for packed in ["a.img.xz", "a.raw.gz"] {
        let url = format!("https://example.org/{packed}");
        let refused = bed.try_apply(&image("packed", &url, &json!({}))).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("qcow2, raw or vmdk"), "{refused}");
    }
    let url = "https://example.org/noble.qcow2";
    bed.try_apply(&image("noble", url, &json!({})))
        .await
        .unwrap();
    let same = image("noble", url, &json!({ "linkedClone": false }));
    bed.try_apply(&same).await.unwrap();
    for (url, more) in [
        ("https://example.org/plucky.img", json!({})),
        (url, json!({ "checksum": { "value": "0".repeat(64) } })),
    ] {
        let refused = bed.try_apply(&image("noble", url, &more)).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("make another VMImage"), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_has_got_the_vmid_of_a_template_is_not_copied() {
    let (bed, web) = published(&json!({})).await;
    run(&bed, "one").await;
    bed.delete::<VirtualMachine>("one").await;
    bed.until_reason::<VMImage>("noble", "Ready", "NotNeeded")
        .await;

    let taken = templates(&bed).await[0];
    let mut guests = bed.guests().await.into_iter();
    let template = guests.find(|guest| guest.vmid == taken).unwrap();
    let (root, vmid) = (bed.root(), pve::Vmid::new(taken).unwrap());
    let node = root.node(&pve::NodeName::new(template.node.as_str()).unwrap());
    let also = pve::api::guest::DeleteGuest::default();
    let gone = node.qemu(vmid).delete(also).await.unwrap();
    root.wait(&gone).await.unwrap();
    let theirs = pve::GuestConfig::new().with("name", "theirs");
    let theirs = pve::CreateQemu::new(vmid, theirs.with("scsi0", "ceph:1"));
    let made = node.create_qemu(&theirs).await.unwrap();
    root.wait(&made).await.unwrap();

    bed.sleep(Duration::from_secs(12)).await;
    bed.pve().control().reset_counts();
    run(&bed, "two").await;
    // One copy was made, and of the template that was made anew.
    assert_eq!(bed.count("POST /nodes/{node}/qemu/{vmid}/clone"), 1);
    assert_eq!(web.fetched(), 2);
    let made = templates(&bed).await;
    assert_eq!(made.len(), 1);
    assert_ne!(made[0], taken);
    let linked = bed.guest("two").await.key("scsi0").to_owned();
    assert!(linked.contains(&format!("base-{}-", made[0])), "{linked}");
    assert_eq!(bed.guest("theirs").await.vmid, taken);
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_linked_is_left_alone_while_its_image_is_kept_elsewhere_too() {
    let (bed, _web) = published(&json!({ "storage": "ceph" })).await;
    run(&bed, "one").await;
    bed.change::<VMImage>("noble", json!({ "storage": "local-lvm" }))
        .await;
    run(&bed, "two").await;
    bed.sleep(Duration::from_mins(90)).await;
    assert_eq!(templates(&bed).await.len(), 2);
    let destroy = "DELETE /nodes/{node}/qemu/{vmid}";
    let asked = bed.count(destroy);
    assert!(asked > 0, "nobody needs the first one any more");
    bed.sleep(Duration::from_mins(25)).await;
    assert_eq!(bed.count(destroy), asked);
    bed.delete::<VirtualMachine>("one").await;
    bed.sleep(Duration::from_mins(2)).await;
    assert_eq!(templates(&bed).await.len(), 1);
}
