//! Beside the provider that Oxmox takes the place of, on the same manifests and the same kind of Proxmox VE.

use std::collections::{BTreeMap, BTreeSet};

use cluster_api::{Bed, Datacenter, Guest, Kind, Plan, alone, condition, kinds};
use serde_json::{Value, json};
use testbed::Provider;

/// What may differ in a guest's configuration, and why.
const CONFIG: &[(&str, &str)] = &[
    (
        "boot",
        "the drive with the bootstrap data is nothing to boot from, nor is the network",
    ),
    ("description", "a guest carries the mark of its owner"),
    (
        "ide0",
        "the drive goes with the bootstrap data; an empty one would stay for nothing",
    ),
    (
        "smbios1",
        "the serial number tells cloud-init where its data is, so that it does not search",
    ),
    ("vmgenid", "Proxmox VE draws one for every guest"),
];

/// What may differ in the files a guest reads at its first boot, and why.
const FILES: &[(&str, &str)] = &[(
    "network-config.network.ethernets.eth1.routes",
    "the way out is that of the cluster's own addresses; a second one without a metric would go before it",
)];

/// What may differ in what is said about machines, and why.
const STATUS: &[(&str, &str)] = &[
    (
        "metadata.annotations.oxmox.dev/conversion-data",
        "what this version has no word for",
    ),
    (
        "status.addresses",
        "all addresses of a machine are said, also those of its further interfaces",
    ),
    (
        "status.conditions[Paused]",
        "Cluster API's contract asks for it",
    ),
    (
        "status.conditions[Ready].reason",
        "it says what made it so, not that something was reported",
    ),
];

/// A plan in the words of the other provider.
async fn plan(bed: &Bed, name: &str, datacenter: &Datacenter, number: usize) -> Plan {
    let mut plan = bed.plan(name, datacenter).await;
    plan.version = "v1alpha2";
    plan.workers = 2;
    plan.infrastructure = json!({
        "credentialsRef": {"name": format!("pve-{number}")},
        "allowedNodes": ["pve1", "pve2", "pve3"],
        "schedulerHints": {"memoryAdjustment": 0},
        "ipv6Config": {"addresses": ["2001:db8::10-2001:db8::ff"], "prefix": 64, "gateway": "2001:db8::1", "metric": 200},
    });
    plan.machine = json!({
        "sourceNode": "pve1", "templateID": 9000, "full": false,
        "numSockets": 1, "numCores": 2, "memoryMiB": 4096,
        "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
        "network": {"networkDevices": [{"name": "net0", "bridge": "vmbr0", "model": "virtio", "defaultIPv4": true}]},
        "tags": ["prod"],
        "checks": {"skipCloudInitStatus": true},
    });
    plan
}

/// Workers with much that a network can have: both families, a second interface in a VLAN with a pool of its own, routes and
/// rules (no VRF: the limit in CAPMOX's schema is none that this API server takes); from a template that is found by its tags.
fn wide(plan: &Plan) -> Vec<Value> {
    let mut wide = plan.clone();
    wide.group = "wide";
    wide.workers = 1;
    wide.machine = json!({
        "templateSelector": {"matchTags": ["capi", "v1.36"]}, "full": false,
        "numSockets": 2, "numCores": 1, "memoryMiB": 2048,
        "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 10}},
        "network": {
            "networkDevices": [
                {"name": "net0", "bridge": "vmbr0", "model": "virtio", "defaultIPv4": true, "defaultIPv6": true, "linkMtu": 1450},
                {
                    "name": "net1", "bridge": "vmbr0", "model": "e1000", "vlan": 100, "mtu": 1400,
                    "ipPoolRef": [{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "second"}],
                    "dnsServers": ["10.20.0.53"],
                    "routes": [{"to": "172.16.0.0/12", "via": "10.20.0.1", "metric": 50, "table": 500}],
                    "routingPolicy": [{"from": "10.20.0.0/24", "table": 500, "priority": 100}],
                },
            ],
        },
        "metadataSettings": {"providerIDInjection": true},
        "description": "wide",
        "checks": {"skipCloudInitStatus": true},
    });
    let mut objects = vec![json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool", "metadata": {"name": "second"},
        "spec": {"addresses": ["10.20.0.10-10.20.0.99"], "prefix": 24, "gateway": "10.20.0.1"},
    })];
    objects.extend(wide.workers());
    objects
}

/// A text in which everything that belongs to one guest alone is replaced by a word for it.
struct Words(Vec<(String, &'static str)>);

impl Words {
    fn of(guest: &Guest, machine: &Value) -> Self {
        let mut words = vec![
            (guest.name.clone(), "NAME"),
            (guest.uuid().to_owned(), "UUID"),
        ];
        for net in machine["status"]["ipAddresses"]
            .as_array()
            .into_iter()
            .flatten()
        {
            for (family, word) in [("ipv4", "ADDRESS4"), ("ipv6", "ADDRESS6")] {
                for address in net[family].as_array().into_iter().flatten() {
                    words.push((address.as_str().unwrap_or_default().to_owned(), word));
                }
            }
        }
        for (card, word) in [("net0", "MAC0"), ("net1", "MAC1")] {
            let first = guest.key(card).split(',').next().unwrap_or_default();
            if let Some((_, mac)) = first.split_once('=') {
                words.push((mac.to_owned(), word));
                words.push((mac.to_lowercase(), word));
            }
        }
        words.push((format!("vm-{}-", guest.vmid), "vm-VMID-"));
        words.push((format!("-{}.iso", guest.vmid), "-VMID.iso"));
        Self(words)
    }

    fn plain(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (word, plain) in self.0.iter().filter(|(word, _)| !word.is_empty()) {
            text = text.replace(word, plain);
        }
        text
    }
}

/// Everything that can be said about a machine, by key.
struct Account {
    config: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    status: BTreeMap<String, String>,
}

async fn account(bed: &Bed, guest: &Guest, plan: &Plan) -> Account {
    let old = Kind {
        version: "v1alpha2",
        ..kinds::PROXMOX_MACHINE
    };
    let machine = bed.get(&plan.name, old, &guest.name).await.unwrap();
    let words = Words::of(guest, &machine);
    let config = guest.config.iter().map(|(key, value)| {
        // The template's day of birth comes along with the clone.
        let lasting = value.split(",ctime=").next().unwrap_or_default();
        (key.clone(), words.plain(lasting))
    });
    let (_, seed) = bed.past(guest);
    let mut files = BTreeMap::new();
    let documents = [
        ("meta-data", seed.meta_data),
        ("network-config", seed.network_config.unwrap_or_default()),
    ];
    for (name, text) in documents {
        let document: Value = serde_saphyr::from_str(&text).unwrap();
        flatten(name, &document, &mut |key, value| {
            files.insert(key, words.plain(&value));
        });
    }
    files.insert(
        "user-data".to_owned(),
        seed.user_data.lines().next().unwrap_or_default().to_owned(),
    );
    let mut status = BTreeMap::new();
    for part in ["spec", "status"] {
        flatten(part, &machine[part], &mut |key, value| {
            status.insert(key, words.plain(&value));
        });
    }
    for name in ["labels", "annotations"] {
        for key in machine["metadata"][name].as_object().into_iter().flatten() {
            status.insert(format!("metadata.{name}.{}", key.0), String::new());
        }
    }
    // Written only where a busy Cluster API had to be woken again.
    status.remove("metadata.annotations.oxmox.dev/unnoticed");
    Account {
        config: config.collect(),
        files,
        status,
    }
}

/// Walks through a document. Lists of named things are told apart by name, not by place.
fn flatten(path: &str, value: &Value, tell: &mut impl FnMut(String, String)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                flatten(&format!("{path}.{key}"), value, tell);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                let name = |item: &Value| {
                    let mut keys = ["type", "name", "net"].iter();
                    keys.find_map(|key| item[key].as_str().map(str::to_owned))
                };
                let alone = items.iter().filter(|other| name(other) == name(item));
                let unique = name(item).filter(|_| alone.count() == 1);
                let name = unique.unwrap_or_else(|| number.to_string());
                flatten(&format!("{path}[{name}]"), item, tell);
            }
        }
        // When something happened, how often it changed before and where there was room for it is no property of it.
        _ if path.ends_with(".lastTransitionTime")
            || path.ends_with(".observedGeneration")
            || path == "spec.virtualMachineID"
            || path == "status.proxmoxNode" => {}
        Value::String(text) => tell(path.to_owned(), text.clone()),
        other => tell(path.to_owned(), other.to_string()),
    }
}

/// Compares two accounts; every difference must be listed, and every listed one must be there.
fn compare(
    what: &str,
    theirs: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
    reasons: &[(&str, &str)],
    met: &mut BTreeSet<String>,
) -> Vec<String> {
    let keys: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    let mut unexplained = Vec::new();
    for key in keys {
        let (theirs, ours) = (theirs.get(key), ours.get(key));
        if theirs == ours {
            continue;
        }
        match reasons.iter().find(|(prefix, _)| key.starts_with(prefix)) {
            Some((prefix, _)) => {
                met.insert(format!("{what} {prefix}"));
            }
            None => unexplained.push(format!("{what} {key}: theirs {theirs:?}, ours {ours:?}")),
        }
    }
    unexplained
}

/// One machine of each group, in the order of groups.
async fn one_of_each(
    bed: &Bed,
    datacenter: &Datacenter,
    number: usize,
    plan: &Plan,
) -> [Account; 2] {
    let guests = datacenter.guests(number).await;
    let of = |group: &str| guests.iter().find(|guest| guest.name.contains(group));
    let [workers, wide] = ["-workers-", "-wide-"].map(|group| of(group).unwrap());
    [
        account(bed, workers, plan).await,
        account(bed, wide, plan).await,
    ]
}

#[test]
fn machines_of_capmox_are_taken_over_and_ours_are_like_them() {
    alone("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["theirs", "ours"]).await;
        for number in 0..2 {
            datacenter
                .configure(number, 9000, "tags", "capi;v1.36")
                .await;
        }
        bed.start_provider(Provider::CAPMOX).await;
        let theirs = plan(bed, "theirs", &datacenter, 0).await;
        bed.create(&theirs).await;
        for object in wide(&theirs) {
            bed.apply("theirs", &object).await;
        }
        bed.until_running("theirs", 4).await;
        // Their tag for a drive with bootstrap data goes a moment after a machine has joined.
        bed.until("theirs", "without first-boot images", async || {
            let guests = datacenter.guests(0).await;
            let told = |guest: &Guest| guest.key("tags").contains("cloud-init");
            (!guests.iter().any(told)).then_some(())
        })
        .await;
        let said = one_of_each(bed, &datacenter, 0, &theirs).await;
        let before = datacenter.guests(0).await;
        let past: Vec<_> = before.iter().map(|guest| bed.past(guest).0).collect();

        // The take-over: nothing but the provider changes.
        bed.stop_provider(Provider::CAPMOX);
        bed.install_oxmox().await;
        bed.start_operator().await;
        // Side by side: the same manifests on a Proxmox VE of the same kind. It goes on while the other is taken over.
        let ours = plan(bed, "ours", &datacenter, 1).await;
        bed.create(&ours).await;
        for object in wide(&ours) {
            bed.apply("ours", &object).await;
        }
        let taken_over = async {
            bed.until("theirs", "taken over", async || {
                let machines = bed.list("theirs", kinds::PROXMOX_MACHINE).await;
                let ours = machines.iter().all(|machine| {
                    condition(machine, "Paused") == "False" && condition(machine, "Ready") == "True"
                });
                ours.then_some(())
            })
            .await;
            // Scaling goes on.
            bed.scale(&theirs, 3).await;
            bed.until_running("theirs", 5).await;
        };
        let made_anew = async {
            // We are killed in the middle of it all, and begin again.
            bed.until("ours", "begun", async || {
                let machines = bed.list("ours", kinds::PROXMOX_MACHINE).await;
                let begun = machines
                    .iter()
                    .any(|m| m["spec"]["virtualMachineID"].is_i64());
                begun.then_some(())
            })
            .await;
            bed.crash_operator();
            bed.start_operator().await;
            bed.until_running("ours", 4).await;
            // What it was told at its first boot goes a moment after it has joined.
            bed.until("ours", "without first-boot images", async || {
                let guests = datacenter.guests(1).await;
                let told = |guest: &Guest| guest.key("ide2").contains("oxmox-");
                (!guests.iter().any(told)).then_some(())
            })
            .await;
        };
        tokio::join!(taken_over, made_anew);
        let after = datacenter.guests(0).await;
        for (guest, boots) in before.iter().zip(past) {
            let now = after.iter().find(|now| now.vmid == guest.vmid).unwrap();
            assert_eq!((&now.name, now.uuid()), (&guest.name, guest.uuid()));
            for card in ["net0", "net1"] {
                assert_eq!(now.key(card), guest.key(card));
            }
            assert!(now.running, "{}", now.name);
            assert_eq!(bed.past(now).0, boots, "{} was restarted", now.name);
        }

        let made = datacenter.guests(1).await;
        assert_eq!(made.len(), 5, "one that was there, four of ours: {made:#?}");
        let like = one_of_each(bed, &datacenter, 1, &ours).await;
        let mut met = BTreeSet::new();
        let mut unexplained = Vec::new();
        for (said, like) in said.iter().zip(&like) {
            unexplained.extend(compare(
                "config",
                &said.config,
                &like.config,
                CONFIG,
                &mut met,
            ));
            unexplained.extend(compare("file", &said.files, &like.files, FILES, &mut met));
            unexplained.extend(compare(
                "object",
                &said.status,
                &like.status,
                STATUS,
                &mut met,
            ));
        }
        assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
        for (what, reasons) in [("config", CONFIG), ("file", FILES), ("object", STATUS)] {
            for (prefix, reason) in reasons {
                let listed = format!("{what} {prefix}");
                assert!(met.contains(&listed), "{listed} does not differ ({reason})");
            }
        }

        // What they made, we take away, and what they held on to, we let go.
        tokio::join!(bed.delete_cluster(&theirs), bed.delete_cluster(&ours));
        let secret = bed.get("theirs", kinds::SECRET, "pve-0").await;
        let held = secret.map_or(json!(null), |secret| {
            secret["metadata"]["finalizers"].clone()
        });
        assert!(held.is_null(), "{held}");
        for number in 0..2 {
            let left = datacenter.guests(number).await;
            assert_eq!(left.len(), 1, "only who was there before: {left:#?}");
        }
    });
}
