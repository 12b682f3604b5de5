//! `oxmox doctor` as people and their scripts run it: what it says, and what its exit code does.

use serde_json::Value;
use tokio::process::Command;

use crate::harness::{OXMOX, Sim};

const GOOD: &str = "oxmox@pve!good=11111111-2222-3333-4444-555555555555";
const OLD: &str = "oxmox@pve!old=11111111-2222-3333-4444-666666666666";

const WORLD: &str = "
clusters:
  - name: pve
    users:
      - id: oxmox@pve
        tokens:
          - { id: good, secret: 11111111-2222-3333-4444-555555555555, privsep: false }
          - { id: old, secret: 11111111-2222-3333-4444-666666666666, privsep: false, expire: 1000 }
      - { id: person@pve, password: secret12, totp: GEZDGNBVGY3TQOJQ }
    acl: [{ path: /, user: oxmox@pve, role: Administrator }]
";

/// How a doctor ended and what it wrote to its two outputs.
struct Visit {
    code: Option<i32>,
    report: String,
    said: String,
}

impl Visit {
    async fn to(sim: &Sim, args: &[&str]) -> Self {
        let output = Command::new(OXMOX)
            .args(["doctor", "--endpoint", &sim.url])
            .args(args)
            .env_remove("PVE_TOKEN")
            .env_remove("PVE_PASSWORD")
            .output()
            .await
            .unwrap();
        Self {
            code: output.status.code(),
            report: String::from_utf8(output.stdout).unwrap(),
            said: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The texts of what failed, in a report for programs.
    fn failures(&self) -> Vec<String> {
        let report: Value = serde_json::from_str(&self.report).unwrap();
        let checks = report["checks"].as_array().unwrap().iter();
        let failed = checks.filter(|check| check["state"] == "fail");
        failed
            .map(|check| format!("{}: {} ({})", check["subject"], check["text"], check["fix"]))
            .collect()
    }
}

#[tokio::test]
async fn the_exit_code_says_whether_there_is_a_problem_and_the_report_which() {
    let sim = Sim::start_in(WORLD).await;
    let pinned = ["--fingerprint", sim.fingerprint.as_str()];

    let args = [&pinned[..], &["--token", GOOD, "--output", "json"]].concat();
    let healthy = Visit::to(&sim, &args).await;
    // The clock of this machine decides about drift, so other checks decide here.
    let others: Vec<String> = healthy
        .failures()
        .into_iter()
        .filter(|text| !text.contains("clock"))
        .collect();
    assert_eq!(others, Vec::<String>::new(), "{}", healthy.said);
    let report: Value = serde_json::from_str(&healthy.report).unwrap();
    assert_eq!(report["release"], "9.2.11");
    assert_eq!(report["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(
        healthy.code,
        Some(i32::from(!healthy.failures().is_empty()))
    );

    let args = [&pinned[..], &["--token", OLD, "--output", "json"]].concat();
    let expired = Visit::to(&sim, &args).await;
    assert_eq!(expired.code, Some(1));
    let failures = expired.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(
        failures[0].starts_with("\"login\"") && failures[0].contains("has not expired"),
        "{failures:?}"
    );
    assert!(
        !expired.report.contains("666666666666"),
        "no secret in a report"
    );

    let other = "00:".repeat(31) + "00";
    let args = ["--fingerprint", other.as_str(), "--token", GOOD];
    let wrong = Visit::to(&sim, &args).await;
    assert_eq!(wrong.code, Some(1));
    assert!(
        wrong.report.contains("not believed") && wrong.report.contains(&sim.fingerprint),
        "{}",
        wrong.report
    );

    let login = ["--user", "person@pve", "--password", "secret12"];
    let person = Visit::to(&sim, &[&pinned[..], &login[..]].concat()).await;
    assert_eq!(person.code, Some(1));
    assert!(
        person.report.contains("second factor") && person.report.contains("pveum user token add"),
        "{}",
        person.report
    );

    let nobody = Visit::to(&sim, &pinned).await;
    assert_ne!(nobody.code, Some(0));
    assert!(
        nobody.said.contains("no credentials: give --token"),
        "{}",
        nobody.said
    );
    assert_eq!(
        nobody.report, "",
        "what is no report goes to the other output"
    );
}
