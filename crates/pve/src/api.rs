//! The calls, by what they are about.

pub mod cluster;
pub mod guest;
pub mod lxc;
pub mod node;
pub mod qemu;
pub mod storage;
pub mod version;
