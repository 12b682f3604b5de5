//! Starts and stops guests.
//!
//! All of these return a task. For guests that high availability cares for the task only writes the wish down and
//! ends at once; the state changes some ten seconds later.

use super::Guest;
use crate::client::Call;
use crate::error::Result;
use crate::params::Params;
use crate::upid::Upid;

/// How to shut a guest down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// How long to wait for the guest, in seconds; the server's default is 60.
    pub timeout: Option<u32>,
    /// Whether to stop it the hard way when the time is over.
    pub force_stop: bool,
}

/// How to stop a guest the hard way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stop {
    /// Whether to break off a shutdown that is under way; since 8.
    pub overrule_shutdown: bool,
}

impl Guest {
    /// Starts it.
    pub async fn start(&self) -> Result<Upid> {
        self.power(
            "start",
            self.named("qemu.start", "lxc.start"),
            Params::new(),
        )
        .await
    }

    /// Stops it the hard way. Stopping what is stopped is fine.
    pub async fn stop(&self, how: Stop) -> Result<Upid> {
        let params = Params::new().flag("overrule-shutdown", how.overrule_shutdown);
        self.power("stop", self.named("qemu.stop", "lxc.stop"), params)
            .await
    }

    /// Asks the guest to shut down.
    pub async fn shutdown(&self, how: Shutdown) -> Result<Upid> {
        let params = Params::new()
            .maybe("timeout", how.timeout)
            .flag("forceStop", how.force_stop);
        self.power(
            "shutdown",
            self.named("qemu.shutdown", "lxc.shutdown"),
            params,
        )
        .await
    }

    /// Shuts it down and starts it again, which applies pending changes.
    pub async fn reboot(&self, timeout: Option<u32>) -> Result<Upid> {
        let params = Params::new().maybe("timeout", timeout);
        self.power("reboot", self.named("qemu.reboot", "lxc.reboot"), params)
            .await
    }

    /// Pauses it.
    pub async fn suspend(&self) -> Result<Upid> {
        self.power(
            "suspend",
            self.named("qemu.suspend", "lxc.suspend"),
            Params::new(),
        )
        .await
    }

    /// Goes on after a pause.
    pub async fn resume(&self) -> Result<Upid> {
        self.power(
            "resume",
            self.named("qemu.resume", "lxc.resume"),
            Params::new(),
        )
        .await
    }

    pub(crate) async fn power(
        &self,
        act: &str,
        name: &'static str,
        params: Params,
    ) -> Result<Upid> {
        self.client
            .call(Call::post(name, self.path(&format!("/status/{act}"))).params(params))
            .await
    }
}
