//! Proxmox VE's HTTP API: client, typed parameters and answers, errors, tasks.
