//! What people do to single machines.

use api::vm::{Disk, VMImage, VirtualMachine};
use serde_json::{Value, json};

use super::{
    acts::{Done, delete, patch},
    images,
};
use crate::{Bed, Dice};

/// Makes a machine, or does something to one that is there.
pub(super) async fn act(bed: &Bed, dice: &mut Dice) -> Done {
    let name = format!("vm-{}", dice.below(4));
    let api = bed.api::<VirtualMachine>();
    let Some(machine) = api.get_opt(&name).await.unwrap() else {
        return create(bed, dice, &name).await;
    };
    if machine.metadata.deletion_timestamp.is_some() {
        return Done::nothing(format!("{name} is going"));
    }
    if dice.one_in(5) {
        delete::<VirtualMachine>(bed, &name).await;
        return Done::a("delete a machine", format!("delete {name}"));
    }
    let (change, done) = match dice.below(10) {
        0 => {
            let power = dice.pick(&["On", "On", "Off", "OffHard", "Paused"]);
            (
                json!({ "powerState": power }),
                Done::a("power", format!("power of {name}: {power}")),
            )
        }
        1 => {
            let class = dice.pick(&["small", "large"]);
            let update = dice.pick(&["RestartIfNeeded", "Live"]);
            (
                json!({ "classRef": { "name": class }, "updatePolicy": update }),
                Done::a("class", format!("class of {name}: {class}, {update}")),
            )
        }
        2 => match grow(dice, &name, machine.spec.disks) {
            Ok(grown) => grown,
            Err(nothing) => return nothing,
        },
        3 => {
            let labels =
                json!({ "metadata": { "labels": { "turn": dice.below(1000).to_string() } } });
            patch::<VirtualMachine>(bed, &name, &labels).await;
            return Done::a("label", format!("label {name}"));
        }
        4 => {
            let restarts = machine.spec.restarts.unwrap_or_default() + 1;
            (
                json!({ "restarts": restarts }),
                Done::a("restart", format!("restart {name}")),
            )
        }
        5 => {
            let tag = format!("t{}", dice.below(9));
            (
                json!({ "tags": [tag] }),
                Done::a("tag", format!("tag {name}: {tag}")),
            )
        }
        6 => second_disk(&name, machine.spec.disks),
        7 => {
            let two = machine.spec.networks.len() < 2;
            let lan = json!({ "name": "lan" });
            let networks = if two {
                json!([lan, { "name": "back", "bridge": "vmbr0", "vlan": 7 }])
            } else {
                json!([lan])
            };
            (
                json!({ "networks": networks }),
                Done::a(
                    "second interface",
                    format!("second interface of {name}: {two}"),
                ),
            )
        }
        8 => {
            let port = dice.pick(&[None, Some("22"), Some("443")]);
            (
                json!({ "firewall": port.map(firewall) }),
                Done::a("firewall", format!("firewall of {name}: {port:?}")),
            )
        }
        _ => {
            let line = dice.below(1000);
            (
                json!({ "userData": first_boot(&name, line) }),
                Done::a(
                    "first-boot data",
                    format!("first-boot data of {name}: {line}"),
                ),
            )
        }
    };
    patch::<VirtualMachine>(bed, &name, &json!({ "spec": change })).await;
    done
}

async fn create(bed: &Bed, dice: &mut Dice, name: &str) -> Done {
    let disk = 10 + dice.below(20);
    let provider = dice.pick(&["pve", "pve-1"]);
    let image = image(bed, dice).await;
    let linked = dice.below(4) > 0;
    let document = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1",
        "kind": "VirtualMachine",
        "metadata": { "name": name },
        "spec": {
            "providerRef": { "name": provider },
            "classRef": { "name": "small" },
            "imageRef": { "name": image },
            "linkedClone": linked,
            "networks": [{ "name": "lan" }],
            "disks": [{ "name": "root", "size": format!("{disk}Gi") }],
            "userData": first_boot(name, 0),
        },
    });
    bed.try_apply(&document).await.unwrap();
    Done::a(
        "create",
        format!("create {name} on {provider} from {image} with {disk} GiB, linked: {linked}"),
    )
}

/// What a machine is made from: a template, or an image from the web that is there.
async fn image(bed: &Bed, dice: &mut Dice) -> &'static str {
    let template = dice.pick(&["ubuntu", "ubuntu", "local"]);
    let fetched = dice.pick(&images::NAMES);
    let there = bed.api::<VMImage>().get_opt(fetched).await.unwrap();
    if there.is_some_and(|image| image.metadata.deletion_timestamp.is_none()) && dice.one_in(2) {
        fetched
    } else {
        template
    }
}

fn first_boot(name: &str, line: u64) -> Value {
    let text = format!("#cloud-config\nhostname: {name}\n# {line}\n");
    json!({ "cloudInit": { "inline": text } })
}

fn firewall(port: &str) -> Value {
    let rule = json!({ "direction": "in", "action": "ACCEPT", "protocol": "tcp", "ports": port });
    json!({ "enabled": true, "rules": [rule] })
}

fn grow(dice: &mut Dice, name: &str, mut disks: Vec<Disk>) -> Result<(Value, Done), Done> {
    let to = 30 + dice.below(20);
    let Some(root) = disks.first_mut().filter(|root| root.size.as_gib() < to) else {
        return Err(Done::nothing(format!("{name} is large enough")));
    };
    let from = root.size.as_gib();
    root.size = format!("{to}Gi").parse().unwrap();
    let done = Done::a("grow", format!("grow {name} from {from} to {to} GiB"));
    Ok((json!({ "disks": disks }), done))
}

/// Gives it a second disk, or takes it out.
fn second_disk(name: &str, mut disks: Vec<Disk>) -> (Value, Done) {
    let two = disks.len() < 2;
    disks.truncate(1);
    if two {
        disks.push(Disk {
            name: "data".to_owned(),
            size: "2Gi".parse().unwrap(),
            ..Disk::default()
        });
    }
    let done = Done::a("second disk", format!("second disk of {name}: {two}"));
    (json!({ "disks": disks }), done)
}
