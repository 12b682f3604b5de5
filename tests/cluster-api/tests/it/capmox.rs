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
const FILES: &[(&str, &str)] = &[];

/// What may differ in what is said about machines, and why.
const STATUS: &[(&str, &str)] = &[
    (
        "metadata.annotations.oxmox.dev/conversion-data",
        "what this version has no word for",
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

/// A text in which everything that belongs to one guest alone is replaced by a word for it.
struct Words(Vec<(String, &'static str)>);

impl Words {
    fn of(guest: &Guest, machine: &Value) -> Self {
        let mut words = vec![
            (guest.name.clone(), "NAME"),
            (guest.uuid().to_owned(), "UUID"),
        ];
        for address in machine["status"]["addresses"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let address = address["address"].as_str().unwrap_or_default();
            words.push((address.to_owned(), "ADDRESS"));
        }
        for part in guest.key("net0").split(',') {
            if let Some(mac) = part.strip_prefix("virtio=") {
                words.push((mac.to_owned(), "MAC"));
                words.push((mac.to_lowercase(), "MAC"));
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
                let name = ["type", "name", "net"]
                    .iter()
                    .find_map(|key| item[key].as_str());
                let name = name.map_or_else(|| number.to_string(), str::to_owned);
                flatten(&format!("{path}[{name}]"), item, tell);
            }
        }
        // When something happened, how often it changed before and where there was room for it is no property of it.
        _ if path.ends_with(".lastTransitionTime")
            || path.ends_with(".observedGeneration")
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

async fn workers(datacenter: &Datacenter, number: usize) -> Vec<Guest> {
    let mut guests = datacenter.guests(number).await;
    guests.retain(|guest| guest.name.contains("-workers-"));
    guests
}

#[test]
fn machines_of_capmox_are_taken_over_and_ours_are_like_them() {
    alone("cluster-api", async |bed| {
        let datacenter = bed.datacenter(&["theirs", "ours"]).await;
        bed.start_provider(Provider::CAPMOX).await;
        let theirs = plan(bed, "theirs", &datacenter, 0).await;
        bed.create(&theirs).await;
        bed.until_running("theirs", 3).await;
        let made = workers(&datacenter, 0).await;
        let said = account(bed, &made[0], &theirs).await;
        let before = datacenter.guests(0).await;
        let past: Vec<_> = before.iter().map(|guest| bed.past(guest).0).collect();

        // The take-over: nothing but the provider changes.
        bed.stop_provider(Provider::CAPMOX);
        bed.install_oxmox().await;
        bed.start_operator().await;
        // Cluster API goes on watching the version it began with while it reads the newest, and may act on a change before
        // it can read it. Begun anew, it watches what it reads.
        bed.stop_provider(Provider::CORE);
        bed.start_provider(Provider::CORE).await;
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
        bed.until_running("theirs", 4).await;
        let after = datacenter.guests(0).await;
        for (guest, boots) in before.iter().zip(past) {
            let now = after.iter().find(|now| now.vmid == guest.vmid).unwrap();
            assert_eq!((&now.name, now.uuid()), (&guest.name, guest.uuid()));
            assert_eq!(now.key("net0"), guest.key("net0"));
            assert!(now.running, "{}", now.name);
            assert_eq!(bed.past(now).0, boots, "{} was restarted", now.name);
        }

        // Side by side: the same manifests on a Proxmox VE of the same kind.
        let ours = plan(bed, "ours", &datacenter, 1).await;
        bed.create(&ours).await;
        bed.until_running("ours", 3).await;
        let like = workers(&datacenter, 1).await;
        let like = account(bed, &like[0], &ours).await;
        let mut met = BTreeSet::new();
        let mut unexplained = compare("config", &said.config, &like.config, CONFIG, &mut met);
        unexplained.extend(compare("file", &said.files, &like.files, FILES, &mut met));
        unexplained.extend(compare(
            "object",
            &said.status,
            &like.status,
            STATUS,
            &mut met,
        ));
        assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
        for (what, reasons) in [("config", CONFIG), ("file", FILES), ("object", STATUS)] {
            for (prefix, reason) in reasons {
                let listed = format!("{what} {prefix}");
                assert!(met.contains(&listed), "{listed} does not differ ({reason})");
            }
        }

        // What they made, we take away, and what they held on to, we let go.
        bed.delete_cluster(&theirs).await;
        let secret = bed.get("theirs", kinds::SECRET, "pve-0").await;
        let held = secret.map_or(json!(null), |secret| {
            secret["metadata"]["finalizers"].clone()
        });
        assert!(held.is_null(), "{held}");
        bed.delete_cluster(&ours).await;
        for number in 0..2 {
            let left = datacenter.guests(number).await;
            assert_eq!(left.len(), 1, "only who was there before: {left:#?}");
        }
    });
}
