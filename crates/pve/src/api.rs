//! The calls, by what they are about.

pub mod access;
pub mod backup;
pub mod cluster;
pub mod firewall;
pub mod guest;
pub mod ha;
pub mod hardware;
pub mod lxc;
pub mod node;
pub mod pool;
pub mod qemu;
pub mod sdn;
pub(crate) mod since;
pub mod storage;
pub mod version;
