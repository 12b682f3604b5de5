//! Fields that fit only together: apart they would have no effect, or keep a guest from starting.

use super::super::Invalid;
use crate::intent::{Bus, Disk, DiskRole, GuestIntent, NicModel, Source};

/// The only SCSI controller whose disks have I/O threads.
pub(in crate::desired) const WITH_THREADS: &str = "virtio-scsi-single";

/// Checks what disks and interfaces need of their bus, controller or model.
pub(super) fn devices(intent: &GuestIntent) -> Result<(), Invalid> {
    let controller = intent.hardware.scsi_controller.as_deref();
    for disk in intent
        .disks
        .iter()
        .filter(|disk| disk.iothread == Some(true))
    {
        let field = || format!("disks[{}].iothread", disk.name);
        match bus(disk, intent) {
            Some(bus @ (Bus::Sata | Bus::Ide)) => {
                let problem = format!(
                    "needs a disk on the bus scsi or virtio, and this one is on {}: move it there, or leave it out",
                    bus.as_str()
                );
                return Err(Invalid::new(field(), problem));
            }
            Some(Bus::Scsi) if controller.is_some_and(|name| name != WITH_THREADS) => {
                let problem = format!(
                    "needs the controller {WITH_THREADS}, and scsiController names another: change or drop one of the two"
                );
                return Err(Invalid::new(field(), problem));
            }
            _ => {}
        }
    }
    let other_model = |model: NicModel| model != NicModel::Virtio;
    for nic in &intent.nics {
        if nic.queues.is_some() && nic.model.is_some_and(other_model) {
            return Err(Invalid::new(
                format!("networks[{}].queues", nic.name),
                "are for the model virtio only: change the model, or leave them out",
            ));
        }
    }
    Ok(())
}

/// The bus a disk will be on; nothing if its source decides that.
fn bus(disk: &Disk, intent: &GuestIntent) -> Option<Bus> {
    let said = disk.slot.map(|slot| slot.bus).or(disk.bus);
    let copied = matches!(
        intent.source,
        Source::Template { .. } | Source::Backup { .. }
    );
    let found = intent.adopt.is_some() || (copied && disk.role == DiskRole::Root);
    said.or((!found).then_some(Bus::Scsi))
}
