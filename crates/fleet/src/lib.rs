//! What is known and done across Proxmox VE clusters: watcher, placement, identity, guests.
