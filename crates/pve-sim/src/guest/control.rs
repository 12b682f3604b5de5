//! What tests do to guests from outside PVE's API: watch them come up, make them misbehave.

use std::net::IpAddr;

use tokio::sync::broadcast;

use super::live::{Boot, Inside, Interface, Machine, Process, Quirks};
use super::{Guest, create, inside, power};
use crate::cluster::Cluster;
use crate::world::World;

/// There is no guest with this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no guest has the id {0}")]
pub struct NoGuest(pub u32);

impl Cluster {
    /// Every boot from now on, with what the guest read and became.
    ///
    /// This is where a test plugs in the software inside guests: a kubelet that joins a cluster, a
    /// database that starts. A listener that falls 4096 boots behind loses the oldest.
    pub fn boots(&self) -> broadcast::Receiver<Boot> {
        self.world(|world| world.guests.bell.listen())
    }

    fn with_guest<T>(&self, vmid: u32, act: impl FnOnce(&mut Guest) -> T) -> Result<T, NoGuest> {
        self.world(|world| world.guests.get_mut(vmid).map(act).ok_or(NoGuest(vmid)))
    }

    /// Sets how a guest misbehaves from now on.
    pub fn set_quirks(&self, vmid: u32, quirks: Quirks) -> Result<(), NoGuest> {
        self.with_guest(vmid, |guest| guest.quirks = quirks)
    }

    /// How a guest misbehaves.
    pub fn quirks(&self, vmid: u32) -> Result<Quirks, NoGuest> {
        self.with_guest(vmid, |guest| guest.quirks.clone())
    }

    /// The system inside hangs: its process runs, but it answers nobody.
    pub fn hang_guest(&self, vmid: u32) -> Result<(), NoGuest> {
        self.with_guest(vmid, |guest| set_inside(guest, Inside::Hung))
    }

    /// The kernel inside panics and stops.
    pub fn crash_guest(&self, vmid: u32) -> Result<(), NoGuest> {
        self.with_guest(vmid, |guest| set_inside(guest, Inside::Crashed))
    }

    /// The process of a guest dies, as when the host runs out of memory.
    pub fn kill_guest(&self, vmid: u32) -> Result<(), NoGuest> {
        self.with_guest(vmid, |_| ())?;
        self.world(|world| power::halt(world, vmid));
        Ok(())
    }

    /// High availability gives a guest up: its state is `error` from now on.
    pub fn give_up_guest(&self, vmid: u32) -> Result<(), NoGuest> {
        self.with_guest(vmid, |_| ())?;
        self.world(|world| world.ha.give_up(vmid));
        Ok(())
    }

    /// Somebody gives a guest whose node is lost to another, by moving its configuration there.
    pub fn rescue_guest(&self, vmid: u32, node: &str) -> Result<(), NoGuest> {
        self.with_guest(vmid, |_| ())?;
        self.world(|world| world.guests.relocate(vmid, node));
        Ok(())
    }

    /// The guest reboots from inside.
    pub fn reboot_inside(&self, vmid: u32) -> Result<(), NoGuest> {
        self.with_guest(vmid, |_| ())?;
        self.world(|world| power::restart_inside(world, vmid));
        inside::boot(self, vmid);
        Ok(())
    }

    /// The guest writes `bytes` to its first disk; a full storage stops it with an I/O error.
    pub fn fill_disk(&self, vmid: u32, bytes: u64) -> Result<(), NoGuest> {
        self.with_guest(vmid, |_| ())?;
        self.world(|world| fill(world, vmid, bytes));
        Ok(())
    }

    /// Prepares the answer to a command that somebody will run through the agent.
    pub fn script(&self, vmid: u32, command: &str, answer: Process) -> Result<(), NoGuest> {
        self.with_guest(vmid, |guest| {
            let system = guest.system.get_or_insert_default();
            system.scripts.insert(command.to_owned(), answer);
        })
    }

    /// Puts a file into a guest, where the agent can read it.
    pub fn put_file(&self, vmid: u32, path: &str, content: &[u8]) -> Result<(), NoGuest> {
        self.with_guest(vmid, |guest| {
            let system = guest.system.get_or_insert_default();
            system.files.insert(path.to_owned(), content.to_vec());
        })
    }

    /// A guest gets an address at a card, some time after it came up.
    pub fn give_address(&self, vmid: u32, mac: &str, address: IpAddr) -> Result<(), NoGuest> {
        self.with_guest(vmid, |guest| {
            let system = guest.system.get_or_insert_default();
            let mut cards = system.interfaces.iter_mut();
            let card = cards.find(|card| card.mac.eq_ignore_ascii_case(mac));
            if let Some(card) = card {
                card.addresses.push((address, 24));
                return;
            }
            let name = format!("eth{}", system.interfaces.len());
            system.interfaces.push(Interface {
                name,
                mac: mac.to_owned(),
                addresses: vec![(address, 24)],
            });
        })
    }

    /// The interfaces of a guest that is up.
    pub fn interfaces(&self, vmid: u32) -> Result<Vec<Interface>, NoGuest> {
        self.with_guest(vmid, |guest| {
            let up = guest
                .run
                .as_ref()
                .is_some_and(|run| run.inside == Inside::Up);
            guest
                .system
                .as_ref()
                .filter(|_| up)
                .map(|s| s.interfaces.clone())
                .unwrap_or_default()
        })
    }
}

fn set_inside(guest: &mut Guest, inside: Inside) {
    if let Some(run) = &mut guest.run {
        run.inside = inside;
    }
    if let Some(system) = &mut guest.system {
        system.agent = false;
    }
}

fn fill(world: &mut World, vmid: u32, bytes: u64) {
    let Some(guest) = world.guests.get(vmid) else {
        return;
    };
    let node = guest.node.clone();
    let disk = create::drives(&guest.config.current)
        .find(|(_, drive)| !drive.is_cdrom())
        .and_then(|(_, drive)| drive.volume().map(str::to_owned));
    let Some(volid) = disk else { return };
    let storage = volid.split(':').next().unwrap_or_default().to_owned();
    let full = world.storages.check_room(&storage, &node, bytes).is_err();
    if let Ok(volume) = world.storages.volume_mut(&node, &volid) {
        volume.used = volume.used.saturating_add(bytes).min(volume.size);
    }
    if full
        && let Some(run) = world
            .guests
            .get_mut(vmid)
            .and_then(|guest| guest.run.as_mut())
    {
        run.state = Machine::IoError;
    }
}
