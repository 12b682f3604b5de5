//! What somebody does on Proxmox VE's own page shows.

use std::time::Duration;

use api::vm::VirtualMachine;
use pve::{NodeName, Vmid, api::guest::power::Stop};
use scenarios::Bed;
use tokio::time::Instant;

use crate::{manifest, prepared};

/// How long a change on Proxmox VE may go unnoticed: its nodes tell each other of power every ten seconds, and it is asked twice
/// as often.
const SOON: Duration = Duration::from_secs(15);

/// How long it takes until the machine's object says so. What is put right is said for a moment only.
async fn until(bed: &Bed, is: impl Fn(&VirtualMachine) -> bool) -> Duration {
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(1) && !is(&bed.get("web-server").await) {
        bed.sleep(Duration::from_millis(100)).await;
    }
    start.elapsed()
}

fn power(machine: &VirtualMachine) -> Option<&str> {
    machine.status.as_ref()?.power_state.as_deref()
}

fn node(machine: &VirtualMachine) -> Option<&str> {
    machine.status.as_ref()?.node.as_deref()
}

fn reason(machine: &VirtualMachine) -> Option<&str> {
    let status = machine.status.as_ref()?;
    let ready = api::vm::condition(&status.conditions, "Ready")?;
    Some(ready.reason.as_str())
}

#[tokio::test(start_paused = true)]
async fn power_node_and_loss_show_soon() {
    let bed = prepared().await;
    // Whenever it happens in the rhythm at which everything is looked at.
    for moment in [0, 1, 3, 4, 6, 7] {
        bed.apply(manifest!("machine")).await;
        bed.until_ready::<VirtualMachine>("web-server").await;
        let pause = Duration::from_mins(3) + Duration::from_secs(moment);
        bed.sleep(pause).await;

        let guest = bed.guest("web-server").await;
        let nodes = bed.pve().nodes();
        let other = nodes.iter().find(|node| **node != guest.node).unwrap();
        bed.migrate("web-server", other).await;
        let took = until(&bed, |it| node(it) == Some(other)).await;
        assert!(took <= SOON, "moved: {took:?}");

        bed.sleep(pause).await;
        let root = bed.root();
        let qemu = root
            .node(&NodeName::new(other.as_str()).unwrap())
            .qemu(Vmid::new(guest.vmid).unwrap());
        let stopped = qemu.stop(Stop::default()).await.unwrap();
        root.wait(&stopped).await.unwrap();
        let took = until(&bed, |it| {
            power(it) != Some("On") || reason(it) == Some("Starting")
        })
        .await;
        assert!(took <= SOON, "stopped: {took:?}");

        bed.until_ready::<VirtualMachine>("web-server").await;
        bed.sleep(pause).await;
        bed.destroy("web-server").await;
        let took = until(&bed, |it| reason(it) == Some("GuestLost")).await;
        assert!(took <= SOON, "destroyed: {took:?}");
        bed.delete::<VirtualMachine>("web-server").await;
    }
}
