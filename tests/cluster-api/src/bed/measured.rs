//! What providers cost.

use std::sync::PoisonError;

use testbed::process::Process;

use super::Bed;

impl Bed {
    /// Memory that a provider (`oxmox`, or a component) holds, in bytes.
    pub fn memory(&self, component: &str) -> u64 {
        let resident = |process: &Process| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()));
            let status = status.unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let number = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
            1024 * number.unwrap_or(0_u64)
        };
        let managers = self.managers.lock().unwrap_or_else(PoisonError::into_inner);
        let operator = self.operator.lock().unwrap_or_else(PoisonError::into_inner);
        let mut managers = managers.iter();
        match managers.find(|manager| manager.component() == component) {
            Some(manager) => resident(manager.process()),
            None => operator.as_ref().map_or(0, resident),
        }
    }

    /// Writes so far to machines, clusters and claims, by whomever, as the API server counts them.
    pub async fn writes(&self) -> u64 {
        let answer = self
            .plane
            .client()
            .send(&http::Method::GET, "/metrics", &[], bytes::Bytes::new())
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&answer.body);
        let counted = text.lines().filter(|line| {
            let verbs = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
            let kinds = ["proxmoxmachines", "proxmoxclusters", "ipaddressclaims"];
            line.starts_with("apiserver_request_total{")
                && verbs
                    .iter()
                    .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
                && kinds
                    .iter()
                    .any(|kind| line.contains(&format!("resource=\"{kind}\"")))
        });
        counted
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }
}
