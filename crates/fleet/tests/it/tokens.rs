//! Tokens that may not see everybody's tasks: PVE's common list shows them none, not even their own.

use std::time::Duration;

use fleet::{
    ImageRecord, NodeName, Outcome, StepKind,
    intent::{CloneMode, Source, TemplateRef},
};
use pve_sim::{Latency, Simulator, WorldFile};

use crate::{
    harness::{Bench, machine},
    images,
};

pub(crate) const WORLD: &str = r"
clusters:
  - name: lab
    users:
      - id: oxmox@pve
        tokens: [{ id: op, secret: 11111111-2222-3333-4444-555555555555, privsep: false }]
    acl:
      - { path: /vms, user: oxmox@pve, role: Administrator }
      - { path: /storage, user: oxmox@pve, role: Administrator }
      - { path: /nodes, user: oxmox@pve, role: Administrator }
      - { path: /sdn, user: oxmox@pve, role: Administrator }
      - { path: /mapping, user: oxmox@pve, role: Administrator }
";

/// A bench whose engine has such a token.
async fn bench() -> Bench {
    let world = WorldFile::parse(WORLD).unwrap();
    let sim = Simulator::builder().seed(7).world(world);
    let mut bench = Bench::with(sim.latency(Latency::real()).build());
    connect(&mut bench).await;
    bench
}

/// What was known is gone, and the token is used from now on.
pub(crate) async fn connect(bench: &mut Bench) {
    let token = "11111111-2222-3333-4444-555555555555";
    let credentials = pve::Credentials::token("oxmox@pve!op", token).unwrap();
    let client = pve::Client::builder()
        .endpoint("https://pve1:8006")
        .service(bench.cluster().endpoint("pve1"))
        .credentials(credentials)
        .build()
        .unwrap();
    bench.restart_with(client);
    bench.ready().await;
}

fn full_copy(name: &str) -> fleet::GuestIntent {
    let mut intent = machine(name, "ubuntu-24-04");
    intent.source = Source::Template {
        from: TemplateRef::Name("ubuntu-24-04".to_owned()),
        mode: CloneMode::Full,
        snapshot: None,
    };
    intent.placement.nodes = vec![NodeName::new("pve1").unwrap()];
    intent
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_begun_before_a_crash_is_waited_for() {
    let mut bench = bench().await;
    let owner = bench.want(full_copy("web"));
    let copies = |bench: &Bench| {
        let mut flying = bench.record(&owner).in_flight.iter();
        flying.any(|task| matches!(task.step, StepKind::Clone | StepKind::Create))
    };
    while !copies(&bench) {
        bench.call_now(&owner).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // What PVE answered was never written down.
    let matter = bench.matters.get_mut(&owner).unwrap();
    matter.record.in_flight.clear();
    matter.last = None;
    connect(&mut bench).await;
    bench.run().await;
    let story = bench.matters[&owner].story.join("\n");
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled, "{story}");
    assert_eq!(bench.inventory().await.of(&owner).len(), 1, "{story}");
}

#[tokio::test(start_paused = true)]
async fn tasks_are_asked_for_by_the_list_of_their_node() {
    let mut bench = bench().await;
    for number in 0..10 {
        bench.want(full_copy(&format!("web-{number}")));
    }
    bench.run().await;
    let counts = bench.cluster().control().counts();
    let by_name = counts.get("GET /nodes/{node}/tasks/{upid}/status");
    assert!(
        by_name.is_none_or(|count| *count <= 30),
        "{}",
        bench.counts()
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_copy_has_what_its_template_has_and_the_token_may_not_write() {
    for (key, value) in [("startup", "order=2,up=10"), ("rng0", "source=/dev/hwrng")] {
        let mut bench = bench().await;
        let node = NodeName::new("pve1").unwrap();
        let vmid = pve::Vmid::new(9000).unwrap();
        let template = bench.client().node(&node).qemu(vmid);
        let brought = pve::GuestConfig::new().with(key, value);
        let change = pve::ConfigChange::set(brought);
        template.configure(&change).await.unwrap();
        let owner = bench.want(full_copy("web"));
        bench.run().await;
        let story = bench.matters[&owner].story.join("\n");
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled, "{story}");
        let identity = bench.record(&owner).identity.clone().unwrap();
        let copy = bench.client().node(&identity.node).qemu(identity.vmid);
        let config = copy
            .config(pve::api::guest::ConfigView::Next)
            .await
            .unwrap();
        assert_eq!(config.get(key), Some(value), "{story}");
        assert_eq!(bench.record(&owner).linked, Some(false));
    }
}

/// A token whose guests are all in one pool.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_confined_to_a_pool_makes_its_images_there() {
    let world = WORLD.replace("path: /vms", "path: /pool/k8s");
    let world = WorldFile::parse(&world).unwrap();
    let sim = Simulator::builder().seed(7).world(world);
    let mut bench = Bench::with(sim.latency(Latency::real()).build());
    let pool = pve::PoolId::new("k8s").unwrap();
    bench.client().pools().create(&pool, None).await.unwrap();
    connect(&mut bench).await;
    let before = bench.inventory().await;
    let url = "https://images.example.com/noble.img";
    bench.cluster().control().serve(url, vec![7; 1 << 20]);
    let mut intent = images::image("noble", url);
    intent.checksum = None;
    intent.pool = Some("k8s".to_owned());
    let mut record = ImageRecord::default();
    let made = images::drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(made.outcome, Outcome::Settled, "{made:?}");
    bench.run_for(Duration::from_secs(30)).await;
    // One that is in another pool, or that pool is none, is used all the same.
    intent.pool = None;
    let same = images::drive(&mut bench, &intent, &mut record, false).await;
    assert_eq!(same.facts.templates.len(), 1, "{same:?}");
    let gone = images::drive(&mut bench, &intent, &mut record, true).await;
    assert_eq!(gone.outcome, Outcome::Gone);
    assert_eq!(bench.inventory().await, before);
}
