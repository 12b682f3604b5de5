//! Which privileges a piece of work needs on which release, and how to grant what is missing.
//!
//! Proxmox VE renames privileges between releases (9 took `VM.Monitor` away and split it up), so a role for
//! everything is a role for nothing. This table is asked with a release and a scope; [`Plan::missing`] compares it
//! with what the server says is held, and [`Plan::commands`] prints the `pveum` lines that grant exactly that.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::access::Permissions;
use crate::api::version::Release;
use crate::id::{PoolId, StorageId};

/// A piece of work that needs privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Making, changing, starting, stopping and removing virtual machines.
    Machines,
    /// Reading addresses and names from inside of guests.
    GuestAgent,
    /// Uploading first-boot images and removing them.
    SeedImages,
    /// Letting nodes fetch images from a URL.
    ImageDownloads,
    /// Containers.
    Containers,
    /// Serial lines and screens of guests.
    Consoles,
    /// Snapshots and the way back.
    Snapshots,
    /// Backups.
    Backups,
    /// Moving guests between nodes.
    Migration,
    /// Putting guests into pools and making pools.
    Pools,
    /// High availability.
    HighAvailability,
    /// Firewall rules of guests.
    Firewall,
    /// Devices under names of the cluster.
    Devices,
    /// The order in which guests start with their host.
    StartupOrder,
}

impl Feature {
    /// All of them, the most basic first.
    pub const ALL: [Feature; 14] = [
        Feature::Machines,
        Feature::GuestAgent,
        Feature::SeedImages,
        Feature::ImageDownloads,
        Feature::Containers,
        Feature::Consoles,
        Feature::Snapshots,
        Feature::Backups,
        Feature::Migration,
        Feature::Pools,
        Feature::HighAvailability,
        Feature::Firewall,
        Feature::Devices,
        Feature::StartupOrder,
    ];

    /// Its name, in lower case with hyphens.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Machines => "machines",
            Feature::GuestAgent => "guest-agent",
            Feature::SeedImages => "seed-images",
            Feature::ImageDownloads => "image-downloads",
            Feature::Containers => "containers",
            Feature::Consoles => "consoles",
            Feature::Snapshots => "snapshots",
            Feature::Backups => "backups",
            Feature::Migration => "migration",
            Feature::Pools => "pools",
            Feature::HighAvailability => "high-availability",
            Feature::Firewall => "firewall",
            Feature::Devices => "devices",
            Feature::StartupOrder => "startup-order",
        }
    }

    /// The feature of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }

    /// Whether nothing works without it.
    pub fn is_basic(self) -> bool {
        matches!(
            self,
            Feature::Machines | Feature::GuestAgent | Feature::SeedImages
        )
    }
}

/// Where the privileges are needed: everywhere, unless it is narrowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Guests of this pool only.
    pub pool: Option<PoolId>,
    /// These storages only.
    pub storages: Vec<StorageId>,
    /// These bridges of the zone `localnetwork` only.
    pub bridges: Vec<String>,
}

impl Scope {
    fn guests(&self) -> Vec<String> {
        vec![
            self.pool
                .as_ref()
                .map_or("/vms".to_owned(), |pool| format!("/pool/{pool}")),
        ]
    }

    fn storages(&self) -> Vec<String> {
        match self.storages.as_slice() {
            [] => vec!["/storage".to_owned()],
            some => some
                .iter()
                .map(|storage| format!("/storage/{storage}"))
                .collect(),
        }
    }

    fn bridges(&self) -> Vec<String> {
        match self.bridges.as_slice() {
            [] => vec!["/sdn/zones".to_owned()],
            some => some
                .iter()
                .map(|bridge| format!("/sdn/zones/localnetwork/{bridge}"))
                .collect(),
        }
    }
}

/// One privilege that is needed on one path; any of the alternatives will do, and the first is what is granted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Where.
    pub path: String,
    /// What, the best choice first.
    pub any: Vec<&'static str>,
}

impl Need {
    /// What is granted if nothing of it is held.
    pub fn privilege(&self) -> &'static str {
        self.any.first().copied().unwrap_or_default()
    }

    fn is_met(&self, held: &Permissions) -> bool {
        self.any
            .iter()
            .any(|privilege| held.has(&self.path, privilege))
    }
}

const GUEST: &[&str] = &[
    "VM.Audit",
    "VM.Allocate",
    "VM.Clone",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Disk",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.PowerMgmt",
];
const MACHINE: &[&str] = &["VM.Config.HWType", "VM.Config.Cloudinit", "VM.Config.CDROM"];

/// What a feature needs on a release. Empty means that the release has no such feature.
pub fn needs(feature: Feature, release: Release, scope: &Scope) -> Vec<Need> {
    let mut list = List(Vec::new());
    let (guests, storages) = (scope.guests(), scope.storages());
    let (root, nodes) = (["/".to_owned()], ["/nodes".to_owned()]);
    match feature {
        Feature::Machines | Feature::Containers => {
            list.all(&guests, GUEST);
            if feature == Feature::Machines {
                list.all(&guests, MACHINE);
            }
            list.all(&storages, &["Datastore.AllocateSpace", "Datastore.Audit"]);
            if release.major >= 8 {
                list.all(&scope.bridges(), &["SDN.Use"]);
            }
            list.all(&root, &["Sys.Audit"]);
            list.all(&nodes, &["Sys.Audit"]);
        }
        Feature::GuestAgent if release.major >= 9 => {
            list.any(
                &guests,
                &["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"],
            );
        }
        Feature::GuestAgent => list.all(&guests, &["VM.Monitor"]),
        // Uploading takes one privilege, removing what was uploaded the other.
        Feature::SeedImages => list.all(
            &storages,
            &["Datastore.AllocateTemplate", "Datastore.Allocate"],
        ),
        Feature::ImageDownloads => {
            list.all(&storages, &["Datastore.AllocateTemplate"]);
            if release.major >= 8 {
                list.all(&nodes, &["Sys.AccessNetwork"]);
            } else {
                list.all(&root, &["Sys.Audit", "Sys.Modify"]);
            }
        }
        Feature::Consoles => list.all(&guests, &["VM.Console"]),
        Feature::Snapshots => list.all(&guests, &["VM.Snapshot", "VM.Snapshot.Rollback"]),
        Feature::Backups => {
            list.all(&guests, &["VM.Backup"]);
            list.all(&storages, &["Datastore.AllocateSpace"]);
        }
        Feature::Migration => list.all(&guests, &["VM.Migrate"]),
        Feature::Pools => {
            let pool = scope
                .pool
                .as_ref()
                .map_or("/pool".to_owned(), |pool| format!("/pool/{pool}"));
            list.all(&[pool], &["Pool.Allocate", "Pool.Audit"]);
        }
        Feature::HighAvailability => list.all(&root, &["Sys.Audit", "Sys.Console"]),
        Feature::Firewall => list.all(&guests, &["VM.Config.Network"]),
        Feature::StartupOrder => list.all(&root, &["Sys.Modify"]),
        Feature::Devices if release.major >= 8 => {
            list.all(&["/mapping".to_owned()], &["Mapping.Use"]);
        }
        Feature::Devices => {}
    }
    list.0
}

struct List(Vec<Need>);

impl List {
    fn all(&mut self, paths: &[String], privileges: &[&'static str]) {
        for privilege in privileges {
            self.any(paths, &[privilege]);
        }
    }

    fn any(&mut self, paths: &[String], any: &[&'static str]) {
        self.0.extend(paths.iter().map(|path| Need {
            path: path.clone(),
            any: any.to_vec(),
        }));
    }
}

/// What is missing for which feature, and what is needed on which path in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The needs that are not met, by feature.
    pub missing: BTreeMap<Feature, Vec<Need>>,
    /// For each path where something is missing: what a role for it must hold.
    roles: BTreeMap<String, BTreeSet<String>>,
}

impl Plan {
    /// Compares what is needed with what is held.
    pub fn new(features: &[Feature], release: Release, scope: &Scope, held: &Permissions) -> Self {
        let needed: Vec<(Feature, Need)> = features
            .iter()
            .flat_map(|feature| {
                needs(*feature, release, scope)
                    .into_iter()
                    .map(|need| (*feature, need))
            })
            .collect();
        let mut missing: BTreeMap<Feature, Vec<Need>> = BTreeMap::new();
        let mut roles: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (feature, need) in &needed {
            if !need.is_met(held) {
                missing.entry(*feature).or_default().push(need.clone());
                roles.entry(need.path.clone()).or_default();
            }
        }
        // A grant on a path takes the place of what is handed down to it from above. So the role must hold
        // everything that is needed there, and what is held there now, or granting would take rights away.
        for (path, role) in &mut roles {
            let here = needed.iter().filter(|(_, need)| need.path == *path);
            role.extend(here.map(|(_, need)| need.privilege().to_owned()));
            role.extend(held.on(path));
        }
        Self { missing, roles }
    }

    /// Whether everything is granted.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// The commands that grant what is missing, to be run on any node.
    ///
    /// For a token both the user and the token get the role: a token with privileges of its own has no more than
    /// its user.
    pub fn commands(&self, who: &str) -> Vec<String> {
        let user = who.split('!').next().unwrap_or(who);
        let mut commands = Vec::new();
        for (path, privileges) in &self.roles {
            let role = role_name(path);
            let list: Vec<&str> = privileges.iter().map(String::as_str).collect();
            let list = list.join(",");
            commands.push(format!(
                "pveum role add {role} --privs {list} || pveum role modify {role} --privs {list}"
            ));
            commands.push(format!(
                "pveum acl modify {path} --users {user} --roles {role}"
            ));
            if who != user {
                commands.push(format!(
                    "pveum acl modify {path} --tokens '{who}' --roles {role}"
                ));
            }
        }
        commands
    }
}

/// `OxmoxVms` for `/vms`, `OxmoxStorageLocal` for `/storage/local`.
fn role_name(path: &str) -> String {
    let mut name = "Oxmox".to_owned();
    for part in path
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
    {
        let (first, rest) = part.split_at(1);
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(rest);
    }
    if path == "/" {
        "OxmoxCluster".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(text: &str) -> Permissions {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_agent_needs_another_privilege_on_9() {
        let scope = Scope::default();
        let of = |major, feature| needs(feature, Release::new(major, 0), &scope)[0].privilege();
        assert_eq!(of(8, Feature::GuestAgent), "VM.Monitor");
        assert_eq!(of(9, Feature::GuestAgent), "VM.GuestAgent.Audit");
    }

    #[test]
    fn no_release_is_asked_for_what_it_does_not_know() {
        for (major, unknown) in [
            (9, "VM.Monitor"),
            (8, "VM.GuestAgent"),
            (7, "SDN.Use"),
            (7, "Sys.AccessNetwork"),
            (7, "Mapping"),
        ] {
            for feature in Feature::ALL {
                for need in needs(feature, Release::new(major, 0), &Scope::default()) {
                    assert!(
                        need.any.iter().all(|name| !name.starts_with(unknown)),
                        "{feature:?} on {major}: {need:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_alternative_counts() {
        let held = held(r#"{"/vms": {"VM.GuestAgent.Unrestricted": 1}}"#);
        let plan = Plan::new(
            &[Feature::GuestAgent],
            Release::new(9, 0),
            &Scope::default(),
            &held,
        );
        assert!(plan.is_complete());
    }

    #[test]
    fn a_grant_does_not_take_away_what_is_handed_down() {
        let held =
            held(r#"{"/": {"Sys.Audit": 1, "Sys.PowerMgmt": 1, "Datastore.AllocateTemplate": 1}}"#);
        let plan = Plan::new(
            &[Feature::ImageDownloads],
            Release::new(8, 4),
            &Scope::default(),
            &held,
        );
        assert_eq!(
            plan.commands("oxmox@pve!main"),
            [
                "pveum role add OxmoxNodes --privs Datastore.AllocateTemplate,Sys.AccessNetwork,Sys.Audit,Sys.PowerMgmt \
                 || pveum role modify OxmoxNodes --privs Datastore.AllocateTemplate,Sys.AccessNetwork,Sys.Audit,Sys.PowerMgmt",
                "pveum acl modify /nodes --users oxmox@pve --roles OxmoxNodes",
                "pveum acl modify /nodes --tokens 'oxmox@pve!main' --roles OxmoxNodes",
            ]
        );
    }

    #[test]
    fn a_scope_narrows_the_paths() {
        let scope = Scope {
            pool: Some("k8s".parse().unwrap()),
            storages: vec!["tank".parse().unwrap()],
            bridges: vec!["vmbr1".to_owned()],
        };
        let plan = Plan::new(
            &[Feature::Machines],
            Release::new(9, 0),
            &scope,
            &Permissions::default(),
        );
        let paths: BTreeSet<&str> = plan.missing[&Feature::Machines]
            .iter()
            .map(|need| need.path.as_str())
            .collect();
        assert_eq!(
            paths,
            BTreeSet::from([
                "/",
                "/nodes",
                "/pool/k8s",
                "/sdn/zones/localnetwork/vmbr1",
                "/storage/tank"
            ])
        );
        assert!(
            plan.commands("a@pve")
                .iter()
                .all(|command| !command.contains("--tokens"))
        );
    }

    #[test]
    fn names_lead_back_to_features() {
        for feature in Feature::ALL {
            assert_eq!(Feature::from_name(feature.name()), Some(feature));
        }
    }
}
