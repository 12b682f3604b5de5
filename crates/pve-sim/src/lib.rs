//! A simulated Proxmox VE that speaks the real one's HTTP API.
