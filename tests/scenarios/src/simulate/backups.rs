//! What people keep of their machines, and make machines of again.

use api::vm::{Phase, VMBackup, VMRestore, VirtualMachine};
use kube::ResourceExt as _;
use serde_json::json;

use super::acts::{Done, one};
use crate::{Bed, Dice};

pub(super) async fn back_up(bed: &Bed, dice: &mut Dice, turn: u64) -> Done {
    let Some(machine) = one::<VirtualMachine>(bed, dice).await else {
        return Done::nothing("there is no machine to back up");
    };
    let name = machine.name_any();
    let document = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1",
        "kind": "VMBackup",
        "metadata": { "name": format!("backup-{turn}") },
        "spec": { "vmRef": { "name": name }, "storage": "nfs", "deletionPolicy": "Delete" },
    });
    bed.try_apply(&document).await.unwrap();
    Done::a("back up", format!("backup-{turn}: back up {name}"))
}

pub(super) async fn restore(bed: &Bed, dice: &mut Dice) -> Done {
    let Some(backup) = one::<VMBackup>(bed, dice).await else {
        return Done::nothing("there is no backup to restore");
    };
    let from = backup.name_any();
    let made = backup
        .status
        .is_some_and(|it| it.phase == Some(Phase::Succeeded));
    if !made {
        return Done::nothing(format!("{from} is not made yet"));
    }
    let name = format!("again-{}", dice.below(2));
    let machine = bed.api::<VirtualMachine>().get_opt(&name).await.unwrap();
    let asked = bed.api::<VMRestore>().get_opt(&name).await.unwrap();
    if machine.is_some() || asked.is_some() {
        return Done::nothing(format!("{name} is there already"));
    }
    let document = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1",
        "kind": "VMRestore",
        "metadata": { "name": name },
        "spec": { "backupRef": { "name": from }, "targetName": name, "start": dice.one_in(2) },
    });
    bed.try_apply(&document).await.unwrap();
    Done::a("restore", format!("restore {from} as {name}"))
}
