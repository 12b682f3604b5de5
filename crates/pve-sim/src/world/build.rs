//! Turns a description of a cluster into its world.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use super::file::{AclSpec, ClusterSpec, FileError, GuestSpec, NodeSpec, StorageSpec, UserSpec};
use crate::access::tfa::{Factor, Kind as FactorKind, Totp};
use crate::access::{Group, Subject, Token, User};
use crate::clock::{Clock, HOST_UPTIME};
use crate::guest::defaults::{self, Plan};
use crate::node::{Node, bridge};
use crate::pool::Pool;
use crate::release::Release;
use crate::sdn::Staged;
use crate::storage::{Definition, Kind, Storage};

const GIB: u64 = 1 << 30;

impl ClusterSpec {
    /// The world of this cluster, as `release` unless it says otherwise.
    pub(crate) fn build(
        &self,
        release: Release,
        seed: u64,
        clock: Clock,
    ) -> Result<World, FileError> {
        let release = self.release.unwrap_or(release);
        let mut world = World::new(&self.name, release, seed, clock);
        let result = self.fill(&mut world, clock);
        result.map_err(|problem| FileError::Content {
            cluster: self.name.clone(),
            problem,
        })?;
        Ok(world)
    }

    fn fill(&self, world: &mut World, clock: Clock) -> Result<(), String> {
        let started = clock.now().saturating_sub(HOST_UPTIME);
        match &self.nodes {
            None => {
                for id in 1..=3 {
                    world
                        .nodes
                        .insert(format!("pve{id}"), Node::new(id, started));
                }
            }
            Some(nodes) if nodes.is_empty() => return Err("it has no nodes".to_owned()),
            Some(nodes) => {
                for (id, spec) in (1..).zip(nodes) {
                    world
                        .nodes
                        .insert(spec.name.clone(), node(spec, id, started));
                }
            }
        }
        self.networks(world);
        defaults::images(world);
        world.guests.images.extend(self.images.clone());
        match &self.storages {
            None => {
                defaults::storages(world);
                defaults::files(world).map_err(|failure| failure.message)?;
            }
            Some(storages) => {
                for spec in storages {
                    world.storages.insert(storage(spec)?);
                }
            }
        }
        match &self.guests {
            Some(guests) => {
                for spec in guests {
                    guest(world, spec)?;
                }
            }
            None if self.nodes.is_none() && self.storages.is_none() => {
                defaults::guests(world).map_err(|failure| failure.message)?;
            }
            None => {}
        }
        self.people(world)?;
        world.options.extend(self.options.clone());
        Ok(())
    }

    fn networks(&self, world: &mut World) {
        let staged = |options: BTreeMap<String, String>| Staged {
            running: Some(options.clone()),
            wanted: Some(options),
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        match &self.zones {
            None => {
                let options = BTreeMap::from([pair("type", "simple")]);
                world.sdn.zones.insert("simple".to_owned(), staged(options));
            }
            Some(zones) => {
                for zone in zones {
                    let mut options = zone.options.clone();
                    options.extend([pair("type", &zone.kind)]);
                    world.sdn.zones.insert(zone.id.clone(), staged(options));
                }
            }
        }
        match &self.vnets {
            None if self.zones.is_none() => {
                let options = BTreeMap::from([pair("zone", "simple"), pair("type", "vnet")]);
                world.sdn.vnets.insert("tenant".to_owned(), staged(options));
            }
            None => {}
            Some(vnets) => {
                for vnet in vnets {
                    let mut options = vnet.options.clone();
                    options.extend([pair("zone", &vnet.zone), pair("type", "vnet")]);
                    world.sdn.vnets.insert(vnet.id.clone(), staged(options));
                }
            }
        }
    }

    fn people(&self, world: &mut World) -> Result<(), String> {
        let access = &mut world.access;
        for group in &self.groups {
            access.groups.insert(group.clone(), Group::default());
        }
        for role in &self.roles {
            let unknown = role
                .privs
                .iter()
                .find(|name| !crate::access::privilege::exists(name, world.release));
            if let Some(name) = unknown {
                return Err(format!("role '{}': invalid privilege '{name}'", role.id));
            }
            access
                .roles
                .insert(role.id.clone(), role.privs.iter().cloned().collect());
        }
        for spec in &self.users {
            user(world, spec)?;
        }
        for spec in &self.pools {
            let guests: BTreeSet<u32> = spec.guests.iter().copied().collect();
            let storages: BTreeSet<String> = spec.storages.iter().cloned().collect();
            let pool = Pool {
                comment: spec.comment.clone(),
                guests,
                storages,
            };
            world.access.pools.insert(spec.id.clone(), pool);
        }
        for spec in &self.acl {
            entry(world, spec)?;
        }
        Ok(())
    }
}

fn node(spec: &NodeSpec, id: u32, started: u64) -> Node {
    let mut node = Node::new(id, started);
    if let Some(ip) = &spec.ip {
        node.ip.clone_from(ip);
    }
    node.sockets = spec.sockets.unwrap_or(node.sockets);
    node.cores = spec.cores.unwrap_or(node.cores);
    node.cpus = spec.cpus.unwrap_or(node.cpus);
    node.numa_cells = spec.numa_cells.unwrap_or(node.numa_cells);
    node.memory = spec.memory_gib.map_or(node.memory, |gib| gib * GIB);
    node.disk = spec.disk_gib.map_or(node.disk, |gib| gib * GIB);
    if let Some(bridges) = &spec.bridges {
        node.network
            .retain(|name, _| !node_bridge(name) || bridges.contains(name));
        for name in bridges {
            node.network
                .entry(name.clone())
                .or_insert_with(|| bridge(""));
        }
    }
    node.pci.clone_from(&spec.pci);
    node.usb.clone_from(&spec.usb);
    node
}

fn node_bridge(name: &str) -> bool {
    name.starts_with("vmbr")
}

fn storage(spec: &StorageSpec) -> Result<Storage, String> {
    let kind = Kind::parse(&spec.kind)
        .ok_or_else(|| format!("storage '{}' has an unknown type '{}'", spec.id, spec.kind))?;
    let content: Vec<&str> = spec.content.iter().map(String::as_str).collect();
    let mut def = Definition::new(&spec.id, kind, &content, spec.capacity_gib * GIB);
    def.shared = spec.shared.unwrap_or(def.shared);
    def.disabled = spec.disabled;
    def.nodes = spec.nodes.iter().cloned().collect();
    def.options.clone_from(&spec.options);
    Ok(Storage::new(def))
}

fn guest(world: &mut World, spec: &GuestSpec) -> Result<(), String> {
    let GuestSpec { vmid, node, .. } = spec;
    if !world.nodes.contains_key(node) {
        return Err(format!("guest {vmid} is on an unknown node '{node}'"));
    }
    let image = spec
        .image
        .clone()
        .unwrap_or_else(|| crate::guest::image::GENERIC.to_owned());
    if !world.guests.images.contains_key(&image) {
        return Err(format!("guest {vmid} has an unknown image '{image}'"));
    }
    let disk = spec
        .storage
        .clone()
        .map(|storage| (storage, spec.disk_gib.max(1) * GIB, image));
    let plan = Plan {
        vmid: *vmid,
        node: node.clone(),
        options: spec.options.clone(),
        disk,
        template: spec.template,
        running: spec.running,
    };
    defaults::guest(world, plan).map_err(|failure| format!("guest {vmid}: {}", failure.message))
}

fn user(world: &mut World, spec: &UserSpec) -> Result<(), String> {
    let now = world.now();
    let tokens = spec.tokens.iter().map(|token| {
        let made = Token {
            secret: token.secret.clone(),
            privsep: token.privsep,
            expire: token.expire,
            comment: token.comment.clone(),
        };
        (token.id.clone(), made)
    });
    let user = world
        .access
        .users
        .entry(spec.id.clone())
        .or_insert_with(|| User {
            enable: true,
            ..User::default()
        });
    user.groups.extend(spec.groups.iter().cloned());
    user.tokens.extend(tokens);
    if let Some(secret) = &spec.totp {
        let totp = Totp::new(secret);
        let totp = totp.ok_or_else(|| format!("user '{}': totp is no base 32", spec.id))?;
        let factor = Factor {
            description: String::new(),
            created: now,
            enable: true,
            kind: FactorKind::Totp(totp),
        };
        user.tfa.entries.insert("totp".to_owned(), factor);
    }
    if let Some(password) = &spec.password {
        world.access.set_password(&spec.id, password);
    }
    Ok(())
}

fn entry(world: &mut World, spec: &AclSpec) -> Result<(), String> {
    if world.access.role(&spec.role).is_none() {
        return Err(format!(
            "the entry on '{}' has an unknown role '{}'",
            spec.path, spec.role
        ));
    }
    let (subject, name) = match (&spec.user, &spec.group, &spec.token) {
        (Some(user), None, None) => (Subject::User, user),
        (None, Some(group), None) => (Subject::Group, group),
        (None, None, Some(token)) => (Subject::Token, token),
        _ => {
            let path = &spec.path;
            return Err(format!(
                "the entry on '{path}' needs one of user, group and token"
            ));
        }
    };
    let entries = world.access.acl.entry(spec.path.clone()).or_default();
    entries.insert((subject, name.clone(), spec.role.clone()), spec.propagate);
    Ok(())
}
