//! Guests: virtual machines and containers, from their configuration file to the system inside.
//!
//! A [`Guest`] is three things at once. Its [`config`] is the text file PVE keeps, with pending values
//! and snapshots. Its [`live::Run`] exists while a process runs it. And its [`live::System`] is the
//! operating system on its disk, which boots, reads its cloud-init seed, takes addresses and answers
//! the agent; it outlives the process, as a disk does.
//!
//! The calls of the API are spread over modules by subject (`create`, `clone`, `power`, …). Each
//! module splits a call as PVE does: what is checked at once, and what only the worker finds out.

pub(crate) mod agent;
pub(crate) mod backup;
pub(crate) mod bulk;
pub(crate) mod change;
pub(crate) mod clone;
pub(crate) mod cloudinit;
pub(crate) mod config;
pub(crate) mod configure;
pub(crate) mod console;
pub(crate) mod control;
pub(crate) mod create;
pub(crate) mod defaults;
pub(crate) mod destroy;
pub(crate) mod disks;
pub(crate) mod drive;
pub(crate) mod formats;
pub(crate) mod hand;
pub(crate) mod hotplug;
pub(crate) mod image;
pub(crate) mod inside;
pub(crate) mod iso9660;
pub(crate) mod live;
pub(crate) mod lxc;
pub(crate) mod migrate;
pub(crate) mod netconfig;
pub(crate) mod options;
pub(crate) mod outside;
pub(crate) mod patterns;
pub(crate) mod permit;
pub(crate) mod power;
pub(crate) mod read;
pub(crate) mod routes;
pub(crate) mod secret;
pub(crate) mod seed;
pub(crate) mod size;
pub(crate) mod snapshot;
pub(crate) mod start;
pub(crate) mod tag;
pub(crate) mod view;
pub(crate) mod volumes;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use config::Config;
use live::{Dhcp, Quirks, Run, System};

/// Virtual machine or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Qemu,
    Lxc,
}

impl Kind {
    /// The name in paths and answers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Qemu => "qemu",
            Kind::Lxc => "lxc",
        }
    }

    /// The word in messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Qemu => "VM",
            Kind::Lxc => "CT",
        }
    }

    fn directory(self) -> &'static str {
        match self {
            Kind::Qemu => "qemu-server",
            Kind::Lxc => "lxc",
        }
    }

    /// The configuration file PVE speaks of when it is missing.
    pub(crate) fn no_config(self, node: &str, vmid: u32) -> Failure {
        Failure::die(format!(
            "Configuration file 'nodes/{node}/{}/{vmid}.conf' does not exist",
            self.directory()
        ))
    }
}

/// One guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Guest {
    pub(crate) vmid: u32,
    pub(crate) kind: Kind,
    pub(crate) node: String,
    pub(crate) config: Config,
    /// The running process, if there is one.
    #[serde(default)]
    pub(crate) run: Option<Run>,
    /// The operating system on the disk, once it has booted.
    #[serde(default)]
    pub(crate) system: Option<System>,
    /// How tests want this guest to misbehave.
    #[serde(default)]
    pub(crate) quirks: Quirks,
}

impl Guest {
    pub(crate) fn new(kind: Kind, vmid: u32, node: &str, config: Config) -> Guest {
        Guest {
            vmid,
            kind,
            node: node.to_owned(),
            config,
            run: None,
            system: None,
            quirks: Quirks::default(),
        }
    }

    /// The name in lists: a VM without one is called after its id.
    pub(crate) fn name(&self) -> String {
        let option = if self.kind == Kind::Qemu {
            "name"
        } else {
            "hostname"
        };
        match self.config.get(option) {
            Some(name) => name.to_owned(),
            None => format!("{} {}", self.kind.word(), self.vmid).replace("CT ", "CT"),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.run.is_some()
    }

    pub(crate) fn is_template(&self) -> bool {
        self.config.is_template()
    }

    pub(crate) fn tags(&self) -> Option<&str> {
        self.config.get("tags").filter(|tags| !tags.is_empty())
    }

    pub(crate) fn lock(&self) -> Option<&str> {
        self.config.lock()
    }

    /// Dies of the configuration's own lock.
    pub(crate) fn check_lock(&self) -> Result<(), Failure> {
        match self.config.lock() {
            Some(lock) => Err(Failure::die(format!(
                "{} is locked ({lock})",
                self.kind.word()
            ))),
            None => Ok(()),
        }
    }

    /// Dies if the caller has seen another configuration.
    pub(crate) fn check_digest(&self, digest: Option<&str>) -> Result<(), Failure> {
        match digest {
            Some(seen) if !seen.is_empty() && seen != self.config.digest() => Err(Failure::die(
                "checksum mismatch (file change by other user?)",
            )),
            _ => Ok(()),
        }
    }
}

/// All guests of one PVE cluster, and the address pools they share.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Guests {
    all: BTreeMap<u32, Guest>,
    #[serde(default)]
    pub(crate) dhcp: Dhcp,
    /// Operating system images by name.
    #[serde(default)]
    pub(crate) images: BTreeMap<String, image::Image>,
    /// Numbers boots, so that a late event of an earlier boot is recognised.
    #[serde(default)]
    boots: u64,
    /// Rings when a guest has come up.
    #[serde(skip)]
    pub(crate) bell: inside::Bell,
}

impl Guests {
    pub(crate) fn exists(&self, vmid: u32) -> bool {
        self.all.contains_key(&vmid)
    }

    pub(crate) fn get(&self, vmid: u32) -> Option<&Guest> {
        self.all.get(&vmid)
    }

    pub(crate) fn get_mut(&mut self, vmid: u32) -> Option<&mut Guest> {
        self.all.get_mut(&vmid)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Guest> {
        self.all.values()
    }

    pub(crate) fn on_node<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Guest> {
        self.all.values().filter(move |guest| guest.node == node)
    }

    pub(crate) fn insert(&mut self, guest: Guest) {
        self.all.insert(guest.vmid, guest);
    }

    pub(crate) fn remove(&mut self, vmid: u32) -> Option<Guest> {
        self.all.remove(&vmid)
    }

    /// The guest whose configuration is on `node`; otherwise PVE misses the file.
    pub(crate) fn find(&self, kind: Kind, node: &str, vmid: u32) -> Result<&Guest, Failure> {
        self.get(vmid)
            .filter(|guest| guest.kind == kind && guest.node == node)
            .ok_or_else(|| kind.no_config(node, vmid))
    }

    /// The same, to be changed.
    pub(crate) fn find_mut(
        &mut self,
        kind: Kind,
        node: &str,
        vmid: u32,
    ) -> Result<&mut Guest, Failure> {
        self.get_mut(vmid)
            .filter(|guest| guest.kind == kind && guest.node == node)
            .ok_or_else(|| kind.no_config(node, vmid))
    }

    /// Dies if the id is taken, by whatever kind of guest on whatever node.
    pub(crate) fn check_unused(&self, vmid: u32) -> Result<(), Failure> {
        match self.get(vmid) {
            Some(guest) => Err(Failure::die(format!(
                "{} {vmid} already exists on node '{}'",
                guest.kind.word(),
                guest.node
            ))),
            None => Ok(()),
        }
    }

    /// The number of the next boot.
    pub(crate) fn next_boot(&mut self) -> u64 {
        self.boots += 1;
        self.boots
    }

    /// A node lost its power: its guests stop where they are.
    pub(crate) fn power_loss(&mut self, node: &str) {
        for guest in self.all.values_mut().filter(|guest| guest.node == node) {
            guest.run = None;
        }
    }

    /// Moves a guest's configuration file to another node.
    pub(crate) fn relocate(&mut self, vmid: u32, node: &str) {
        if let Some(guest) = self.all.get_mut(&vmid) {
            node.clone_into(&mut guest.node);
        }
    }
}

/// The endpoints of guests.
pub(crate) fn routes(release: crate::release::Release) -> Vec<crate::route::Route> {
    routes::routes(release)
}
