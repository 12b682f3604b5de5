//! What the log of a move says.

use std::collections::BTreeMap;

/// How much of a log is read; what stands in the way comes before anything is copied.
pub(super) const LINES: u64 = 200;

/// How the log of a move begins to say what cannot go along.
const OBSTACLES: [&str; 5] = [
    "can't migrate local",
    "can't migrate '",
    "can't migrate to '",
    "can't live migrate",
    "VMs with 'clipboard'",
];

/// How the log of a move says that a container is stopped for it, which comes before anything is checked.
const STOPPED: &str = "shutdown CT ";

/// What the log of a move says about what cannot go along; nothing if it failed otherwise.
pub(super) fn obstacles(log: &[String]) -> String {
    let said = log.iter().filter_map(|line| {
        let at = OBSTACLES.iter().find_map(|words| line.find(words))?;
        Some(line[at..].trim_end())
    });
    let mut all: Vec<&str> = said.collect();
    all.dedup();
    all.join("; ")
}

/// What the log of a move says last of why it failed.
pub(super) fn complaint(log: &[String]) -> Option<&str> {
    let said = log.iter().rev();
    let mut said = said.filter_map(|line| line.split_once("ERROR: "));
    said.next().map(|(_, why)| why.trim_end())
}

/// Whether a container was stopped for its move.
pub(super) fn has_stopped(log: &[String]) -> bool {
    log.iter().any(|line| line.contains(STOPPED))
}

/// Whether a move has left copies of volumes behind where it was to go.
pub(super) fn has_left_copies(log: &[String]) -> bool {
    log.iter().any(|line| line.contains("stale volume copy"))
}

/// Whether somebody, or the end of the node, has stopped a move.
pub(super) fn is_interrupted(error: &pve::Error, log: &[String]) -> bool {
    let cause = complaint(log).map(|why| pve::Error::from_text(None, why, BTreeMap::new()));
    let interrupted = |error: &pve::Error| matches!(error, pve::Error::Interrupted { .. });
    interrupted(error) || cause.as_ref().is_some_and(interrupted)
}

#[cfg(test)]
mod tests {
    use super::obstacles;

    #[test]
    fn a_log_says_what_stands_in_the_way_of_a_move() {
        let lines = [
            "2026-01-01 00:00:01 starting migration of VM 101 to node 'pve3' (192.0.2.3)",
            "2026-01-01 00:00:01 can't migrate local disk 'local-lvm:vm-101-disk-0': non-migratable snapshot exists",
            "2026-01-01 00:00:01 ERROR: Problem found while scanning volumes - can't migrate VM - check log",
        ];
        assert_eq!(
            obstacles(&lines.map(str::to_owned)),
            "can't migrate local disk 'local-lvm:vm-101-disk-0': non-migratable snapshot exists"
        );
        assert_eq!(obstacles(&["ERROR: no route to host".to_owned()]), "");
        let mapped = "2026-01-01 00:00:01 ERROR: migration aborted (duration 00:00:00): can't live migrate running VM which uses \
                      following mapped devices: hostpci0:gpu";
        let told = obstacles(&[mapped.to_owned()]);
        assert!(
            told.ends_with("hostpci0:gpu") && told.starts_with("can't"),
            "{told}"
        );
    }
}
