//! Things done to a guest that already exists: snapshots, migrations, backups.

use std::collections::BTreeSet;

use super::Placement;
use crate::{ClusterName, NodeName, Owner, StorageId, Vmid, record::Likeness};

/// What shall become of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SnapshotWish {
    /// It shall exist.
    #[default]
    Present,
    /// It shall not exist.
    Absent,
    /// The guest shall be taken back to it, once for every new value of the number.
    Reverted {
        /// Raising it reverts again.
        generation: u64,
        /// Start the guest afterwards; a snapshot with memory resumes in any case.
        start: bool,
    },
}

/// A snapshot of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotIntent {
    /// Who asks for the snapshot (not the guest's owner).
    pub owner: Owner,
    /// The guest's cluster.
    pub cluster: ClusterName,
    /// The guest.
    pub guest: Vmid,
    /// The guest's owner, checked before anything is done; `None` where it carries no mark.
    pub guest_owner: Option<Owner>,
    /// Who has taken the guest over, where it was there before: it may carry that one's mark, and no other's.
    pub guest_keeper: Option<Owner>,
    /// How the guest is known where its notes carry no mark; with neither, any guest without one is accepted.
    pub likeness: Likeness,
    /// The snapshot's name in PVE: a letter first, then letters, digits, `_` and `-`, at most 40.
    pub name: String,
    /// Text for people. A mark of who asked is added to it.
    pub description: String,
    /// Keep the memory of a running guest too.
    pub memory: bool,
    /// What shall become of it.
    pub wish: SnapshotWish,
}

/// Moving a guest to another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationIntent {
    /// Who asks.
    pub owner: Owner,
    /// The guest's cluster.
    pub cluster: ClusterName,
    /// The guest.
    pub guest: Vmid,
    /// The guest's owner, checked before anything is done; `None` where it carries no mark.
    pub guest_owner: Option<Owner>,
    /// Who has taken the guest over, where it was there before: it may carry that one's mark, and no other's.
    pub guest_keeper: Option<Owner>,
    /// How the guest is known where its notes carry no mark; with neither, any guest without one is accepted.
    pub likeness: Likeness,
    /// Where to; `None` lets placement choose.
    pub target: Option<NodeName>,
    /// What placement has to heed.
    pub placement: Placement,
    /// Bridges and VNets its interfaces are on, which placement looks for.
    pub bridges: Vec<String>,
    /// Let a running guest run on while it moves.
    pub online: bool,
    /// Move local disks too.
    pub with_local_disks: bool,
    /// The storage local disks go to; `None` keeps the names.
    pub target_storage: Option<StorageId>,
    /// The storages that its disks are declared on: what leaves one of these is brought back by who keeps the guest.
    pub declared: BTreeSet<StorageId>,
}

/// How a running guest is kept consistent during a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackupMode {
    /// It runs on.
    #[default]
    Snapshot,
    /// It is suspended.
    Suspend,
    /// It is shut down and started again.
    Stop,
}

/// Compression of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Zstandard.
    #[default]
    Zstd,
    /// LZO.
    Lzo,
    /// Gzip.
    Gzip,
    /// None.
    None,
}

/// A backup of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupIntent {
    /// Who asks.
    pub owner: Owner,
    /// The guest's cluster.
    pub cluster: ClusterName,
    /// The guest.
    pub guest: Vmid,
    /// The guest's owner, checked before anything is done; `None` where it carries no mark.
    pub guest_owner: Option<Owner>,
    /// Who has taken the guest over, where it was there before: it may carry that one's mark, and no other's.
    pub guest_keeper: Option<Owner>,
    /// How the guest is known where its notes carry no mark; with neither, any guest without one is accepted.
    pub likeness: Likeness,
    /// Where it is kept.
    pub storage: StorageId,
    /// Consistency.
    pub mode: BackupMode,
    /// Compression.
    pub compress: Compression,
    /// A note for people; the mark of who asked is added.
    pub notes: String,
    /// Keep it from being pruned.
    pub protected: bool,
}
