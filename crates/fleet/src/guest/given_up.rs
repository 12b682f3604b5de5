//! A guest that high availability has given up.
//!
//! When it could be neither started nor moved too often, its state is `error`, and it stays there whatever is asked for:
//! starts and stops are written down and nothing is done. Only who disables it first can go on.

use pve::{HaSid, api::ha::HaResource};
use tokio::time::Instant;

use super::{Flow, Pass};
use crate::{
    Waiting,
    cluster::{HA_PATIENCE, HA_PAUSE},
    record::Identity,
    trouble,
};

impl Pass<'_> {
    /// Comes back when high availability does what it is asked for.
    pub(super) async fn be_heeded(&mut self, identity: &Identity) -> Flow<()> {
        let row = self.cluster.row(identity.vmid);
        if row.and_then(|row| row.ha).as_deref() != Some("error") {
            return Ok(());
        }
        let message = "high availability has given the guest up and is told to begin anew";
        let given_up = self.memory(|memory| memory.given_up);
        if let Some((times, at)) = given_up
            && at.elapsed() < HA_PATIENCE.max(trouble::backoff(times))
        {
            return Err(self.wait(Waiting::Guest, message, HA_PAUSE));
        }
        let times = given_up.map_or(1, |(times, _)| times + 1);
        let mut resource = HaResource::started(HaSid::of(self.kind(), identity.vmid));
        resource.state = Some("disabled".to_owned());
        match self.cluster.client.ha().update(&resource).await {
            Ok(()) => {}
            // Somebody took it out: the view will show it.
            Err(error) if error.is_not_found() => self.cluster.refresh(),
            Err(error) => {
                return Err(self.trouble("disabling the guest's high availability", &error));
            }
        }
        if times.is_power_of_two() {
            self.warn(
                "GivenUp",
                "high availability has given the guest up (state error): it is disabled there, and asked again for what is \
                 declared when it has let go; the tasks of the guest say what failed",
            );
        }
        let now = Instant::now();
        self.memory(|memory| {
            memory.given_up = Some((times, now));
            memory.wish = None;
            memory.asked_ha = None;
        });
        Err(self.wait(Waiting::Guest, message, HA_PAUSE))
    }
}
