//! Waiting, and telling all that is known when it takes too long.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;

use kube::api::ListParams;
use testbed::process::Process;
use tokio::time::{Instant, sleep};

use super::{Bed, PATIENCE};
use crate::objects::kinds;

impl Bed {
    /// Waits until `met` gives something.
    ///
    /// # Panics
    /// When it takes too long: with everything that is known about the namespace.
    pub async fn until<T>(
        &self,
        namespace: &str,
        what: &str,
        met: impl AsyncFn() -> Option<T>,
    ) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = met().await {
                return found;
            }
            if start.elapsed() > *PATIENCE {
                self.tell(namespace).await;
                panic!("{namespace}: not {what} in time");
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Says how things stand in a namespace.
    async fn tell(&self, namespace: &str) {
        let mut out = std::io::stderr();
        for kind in [
            kinds::CLUSTER,
            kinds::PROXMOX_CLUSTER,
            kinds::CONTROL_PLANE,
            kinds::MACHINE_DEPLOYMENT,
            kinds::MACHINE,
            kinds::PROXMOX_MACHINE,
        ] {
            // Another provider may not serve our version of it.
            let listed = self.api(namespace, kind).list(&ListParams::default()).await;
            for object in listed.into_iter().flatten() {
                let object = serde_json::to_value(object).unwrap();
                let name = &object["metadata"]["name"];
                let _ = writeln!(out, "{} {name}: spec {}", kind.kind, object["spec"]);
                for condition in object["status"]["conditions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                {
                    let [kind, status, reason, message] =
                        ["type", "status", "reason", "message"].map(|key| &condition[key]);
                    let _ = writeln!(out, "    {kind} {status} {reason} {message}");
                }
            }
        }
        for line in self.guests.journal() {
            let _ = writeln!(out, "guest {line}");
        }
        // `CLUSTER_API_LOGS` names a directory for everything that everybody has said.
        let dir = std::env::var_os("CLUSTER_API_LOGS").map(PathBuf::from);
        let mut keep = |process: &Process| {
            let _ = writeln!(out, "{}:\n{}", process.name(), process.log_tail());
            if let Some(dir) = &dir {
                let file = dir.join(format!("{namespace}-{}.log", process.name()));
                let _ = std::fs::write(file, process.log());
            }
        };
        let managers = self.managers.lock().unwrap_or_else(PoisonError::into_inner);
        for manager in &*managers {
            keep(manager.process());
        }
        for process in self.plane.processes() {
            keep(process);
        }
        let operator = self.operator.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(operator) = &*operator {
            keep(operator);
        }
    }
}
