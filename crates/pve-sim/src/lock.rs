//! The locks of PVE: files locked with flock on one node, and locks of the cluster file system.
//!
//! The third kind, the key `lock` in a guest's configuration, is plain data of the guest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout;

use crate::failure::Failure;

/// Whether a lock is shared with others of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Many holders at once.
    Shared,
    /// One holder.
    Exclusive,
}

/// A held lock; dropping it releases.
#[derive(Debug)]
pub(crate) struct Held {
    _guard: Guard,
}

#[derive(Debug)]
#[expect(dead_code, reason = "guards are held for their effect when dropped")]
enum Guard {
    Read(OwnedRwLockReadGuard<()>),
    Write(OwnedRwLockWriteGuard<()>),
}

/// All locks by name.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    table: Mutex<BTreeMap<String, Arc<RwLock<()>>>>,
}

/// How long the cluster file system waits for a lock.
pub(crate) const CFS_WAIT: Duration = Duration::from_secs(10);

impl Locks {
    fn named(&self, name: &str) -> Arc<RwLock<()>> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() > 1024 {
            table.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        Arc::clone(table.entry(name.to_owned()).or_default())
    }

    /// The lock, if it is free now.
    pub(crate) fn try_now(&self, name: &str, mode: Mode) -> Option<Held> {
        let lock = self.named(name);
        let guard = match mode {
            Mode::Shared => lock.try_read_owned().map(Guard::Read),
            Mode::Exclusive => lock.try_write_owned().map(Guard::Write),
        };
        guard.ok().map(|guard| Held { _guard: guard })
    }

    /// The lock, waiting at most `wait`.
    pub(crate) async fn wait(&self, name: &str, mode: Mode, wait: Duration) -> Option<Held> {
        let lock = self.named(name);
        let guard = timeout(wait, async {
            match mode {
                Mode::Shared => Guard::Read(lock.read_owned().await),
                Mode::Exclusive => Guard::Write(lock.write_owned().await),
            }
        });
        guard.await.ok().map(|guard| Held { _guard: guard })
    }
}

/// The name of a file lock on a node, in the table of all locks.
pub(crate) fn file_key(node: &str, path: &str) -> String {
    format!("{node}:{path}")
}

/// What a call dies of that did not get a file lock in time.
pub(crate) fn file_timeout(path: &str) -> Failure {
    Failure::die(format!("can't lock file '{path}' - got timeout"))
}

/// What a call dies of that did not get a cluster lock in time.
pub(crate) fn cfs_timeout(name: &str) -> Failure {
    Failure::die(format!("cfs-lock '{name}' error: got lock request timeout"))
}

/// The path of a VM's configuration lock.
pub(crate) fn qemu_path(vmid: u32) -> String {
    format!("/var/lock/qemu-server/lock-{vmid}.conf")
}

/// The path of a container's configuration lock.
pub(crate) fn lxc_path(vmid: u32) -> String {
    format!("/run/lock/lxc/pve-config-{vmid}.lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_exclusive_lock_is_waited_for_and_given_up() {
        let locks = Locks::default();
        let held = locks.try_now("a", Mode::Exclusive);
        assert!(held.is_some());
        assert!(locks.try_now("a", Mode::Shared).is_none());
        assert!(
            locks
                .wait("a", Mode::Exclusive, Duration::from_secs(10))
                .await
                .is_none()
        );
        drop(held);
        assert!(
            locks
                .wait("a", Mode::Exclusive, Duration::from_secs(10))
                .await
                .is_some()
        );
    }

    #[test]
    fn shared_locks_do_not_exclude_each_other() {
        let locks = Locks::default();
        let _one = locks.try_now("a", Mode::Shared).expect("free");
        assert!(locks.try_now("a", Mode::Shared).is_some());
        assert!(locks.try_now("a", Mode::Exclusive).is_none());
        assert!(locks.try_now("b", Mode::Exclusive).is_some());
    }
}
