//! Guests whose processors stand still.
//!
//! PVE's list shows them as running, and only a question to the guest itself tells. So it is remembered of a guest that it was
//! paused, until something is seen that ends every pause.

use pve::{GuestKind, api::guest::GuestStatus};

use super::{Flow, Pass};
use crate::{
    NodeName, Outcome, PowerFact,
    record::{Identity, StepKind},
    view::GuestRow,
};

impl Pass<'_> {
    /// Lets the processors stand still.
    pub(super) async fn pause(
        &mut self,
        identity: &Identity,
        node: &NodeName,
    ) -> Flow<Option<Outcome>> {
        let guest = self.handle(node, identity.vmid);
        let sent = self
            .power_step(node, StepKind::Pause, guest.suspend())
            .await?;
        // Should the end of the task not be heard of, it is better to resume what runs than to leave it standing.
        self.record.paused |= !self.record.in_flight.is_empty();
        Ok(sent)
    }

    /// What the end of a step means for a pause. Where it is only written down for high availability, nothing yet.
    pub(super) fn paused_or_not(&mut self, step: StepKind, wish: bool) {
        let ends = matches!(
            step,
            StepKind::Start
                | StepKind::Stop
                | StepKind::Shutdown
                | StepKind::Reboot
                | StepKind::Resume
                | StepKind::Suspend
        );
        self.record.paused &= wish || !ends;
    }

    /// Forgets a pause that is over by what the list shows: who was off, or started anew, is not paused any more.
    pub(super) fn notice_end_of_pause(&mut self, power: PowerFact) {
        let restarted = self.memory(|memory| std::mem::take(&mut memory.restarted));
        let off = matches!(power, PowerFact::Stopped | PowerFact::Suspended);
        self.record.paused &= !(restarted || off);
    }

    /// The power that the list shows of a guest, and what it does not show.
    pub(super) fn listed_power(&self, row: &GuestRow) -> PowerFact {
        match row.power {
            PowerFact::Running if self.record.paused => PowerFact::Paused,
            power => power,
        }
    }

    /// The power that PVE tells when it is asked for one guest. Of containers it never says that they are paused.
    pub(super) fn told_power(&mut self, status: &GuestStatus) -> PowerFact {
        let tells = self.kind() == GuestKind::Qemu;
        let paused = if tells {
            status.qmpstatus.as_deref() == Some("paused")
        } else {
            self.record.paused
        };
        self.record.paused = paused && status.is_running();
        match (status.is_running(), paused) {
            (false, _) => PowerFact::Stopped,
            (true, true) => PowerFact::Paused,
            (true, false) => PowerFact::Running,
        }
    }
}
