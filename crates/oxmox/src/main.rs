//! Oxmox: everything Kubernetes needs on Proxmox VE.

fn main() {}
