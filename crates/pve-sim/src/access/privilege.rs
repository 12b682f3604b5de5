//! The privileges of a release and the roles that come with it.

use std::collections::BTreeSet;

use crate::release::Release;

const VM_ADMIN: &[&str] = &[
    "VM.Allocate",
    "VM.Clone",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.Migrate",
    "VM.Snapshot",
    "VM.Snapshot.Rollback",
];
const VM_ADMIN_8: &[&str] = &["VM.Monitor"];
const VM_ADMIN_9: &[&str] = &["VM.GuestAgent.Unrestricted", "VM.Replicate"];
const VM_USER: &[&str] = &[
    "VM.Backup",
    "VM.Config.CDROM",
    "VM.Config.Cloudinit",
    "VM.Console",
    "VM.PowerMgmt",
];
const VM_USER_9: &[&str] = &[
    "VM.GuestAgent.FileRead",
    "VM.GuestAgent.FileSystemMgmt",
    "VM.GuestAgent.FileWrite",
];
const VM_AUDIT: &[&str] = &["VM.Audit"];
const VM_AUDIT_9: &[&str] = &["VM.GuestAgent.Audit"];
const SYS_ROOT: &[&str] = &[
    "Sys.AccessNetwork",
    "Sys.Incoming",
    "Sys.Modify",
    "Sys.PowerMgmt",
];
const SYS_ADMIN: &[&str] = &["Sys.Console", "Sys.Syslog"];
const SYS_AUDIT: &[&str] = &["Sys.Audit"];
const STORE_ADMIN: &[&str] = &["Datastore.Allocate", "Datastore.AllocateTemplate"];
const STORE_USER: &[&str] = &["Datastore.AllocateSpace"];
const STORE_AUDIT: &[&str] = &["Datastore.Audit"];
const SDN_ADMIN: &[&str] = &["SDN.Allocate"];
const SDN_USER: &[&str] = &["SDN.Use"];
const SDN_AUDIT: &[&str] = &["SDN.Audit"];
const USER_ROOT: &[&str] = &["Permissions.Modify", "Realm.Allocate"];
const USER_ADMIN: &[&str] = &["Group.Allocate", "Realm.AllocateUser", "User.Modify"];
const POOL_ADMIN: &[&str] = &["Pool.Allocate"];
const POOL_AUDIT: &[&str] = &["Pool.Audit"];
const MAPPING_ADMIN: &[&str] = &["Mapping.Modify"];
const MAPPING_USER: &[&str] = &["Mapping.Use"];
const MAPPING_AUDIT: &[&str] = &["Mapping.Audit"];

/// The roles every PVE has.
pub(crate) const BUILT_IN: &[&str] = &[
    "Administrator",
    "NoAccess",
    "PVEAdmin",
    "PVEAuditor",
    "PVEDatastoreAdmin",
    "PVEDatastoreUser",
    "PVEMappingAdmin",
    "PVEMappingAuditor",
    "PVEMappingUser",
    "PVEPoolAdmin",
    "PVEPoolUser",
    "PVESDNAdmin",
    "PVESDNUser",
    "PVESysAdmin",
    "PVETemplateUser",
    "PVEUserAdmin",
    "PVEVMAdmin",
    "PVEVMUser",
];

fn vm_admin(release: Release) -> impl Iterator<Item = &'static [&'static str]> {
    [
        VM_ADMIN,
        if release.is_9() {
            VM_ADMIN_9
        } else {
            VM_ADMIN_8
        },
    ]
    .into_iter()
}

fn vm_user(release: Release) -> impl Iterator<Item = &'static [&'static str]> {
    [VM_USER, if release.is_9() { VM_USER_9 } else { &[] }].into_iter()
}

fn vm_audit(release: Release) -> impl Iterator<Item = &'static [&'static str]> {
    [VM_AUDIT, if release.is_9() { VM_AUDIT_9 } else { &[] }].into_iter()
}

/// All privileges of a release, sorted.
pub(crate) fn all(release: Release) -> impl Iterator<Item = &'static str> {
    let mut names: BTreeSet<&'static str> = role("PVEAdmin", release).unwrap_or_default();
    names.extend([SYS_ROOT, USER_ROOT, MAPPING_ADMIN].into_iter().flatten());
    names.into_iter()
}

/// Whether the release knows the privilege.
pub(crate) fn exists(name: &str, release: Release) -> bool {
    all(release).any(|known| known == name)
}

/// The privileges of a built-in role.
pub(crate) fn role(name: &str, release: Release) -> Option<BTreeSet<&'static str>> {
    let parts: Vec<&'static [&'static str]> = match name {
        "Administrator" => return Some(all(release).collect()),
        "NoAccess" => Vec::new(),
        "PVEAdmin" => vm_admin(release)
            .chain(vm_user(release))
            .chain(vm_audit(release))
            .chain([
                SYS_ADMIN,
                SYS_AUDIT,
                STORE_ADMIN,
                STORE_USER,
                STORE_AUDIT,
                SDN_ADMIN,
                SDN_USER,
                SDN_AUDIT,
                USER_ADMIN,
                POOL_ADMIN,
                POOL_AUDIT,
                MAPPING_USER,
                MAPPING_AUDIT,
            ])
            .collect(),
        "PVEAuditor" => vm_audit(release)
            .chain([SYS_AUDIT, STORE_AUDIT, SDN_AUDIT, POOL_AUDIT, MAPPING_AUDIT])
            .collect(),
        "PVEDatastoreAdmin" => vec![STORE_ADMIN, STORE_USER, STORE_AUDIT],
        "PVEDatastoreUser" => vec![STORE_USER, STORE_AUDIT],
        "PVEMappingAdmin" => vec![MAPPING_ADMIN, MAPPING_USER, MAPPING_AUDIT],
        "PVEMappingAuditor" => vec![MAPPING_AUDIT],
        "PVEMappingUser" => vec![MAPPING_USER, MAPPING_AUDIT],
        "PVEPoolAdmin" => vec![POOL_ADMIN, POOL_AUDIT],
        "PVEPoolUser" => vec![POOL_AUDIT],
        "PVESDNAdmin" => vec![SDN_ADMIN, SDN_USER, SDN_AUDIT],
        "PVESDNUser" => vec![SDN_USER, SDN_AUDIT],
        "PVESysAdmin" => vec![SYS_ADMIN, SYS_AUDIT],
        "PVETemplateUser" => vec![&["VM.Audit", "VM.Clone"]],
        "PVEUserAdmin" => vec![USER_ADMIN],
        "PVEVMAdmin" => vm_admin(release)
            .chain(vm_user(release))
            .chain(vm_audit(release))
            .collect(),
        "PVEVMUser" => vm_user(release).chain(vm_audit(release)).collect(),
        _ => return None,
    };
    Some(parts.into_iter().flatten().copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitor_was_replaced_by_agent_privileges_in_9() {
        assert!(exists("VM.Monitor", Release::V8_4));
        assert!(!exists("VM.Monitor", Release::V9_2));
        assert!(exists("VM.GuestAgent.Audit", Release::V9_2));
        assert!(!exists("VM.GuestAgent.Audit", Release::V8_4));
    }

    #[test]
    fn administrators_can_do_more_than_the_admin_role() {
        let admin = role("PVEAdmin", Release::V9_2).expect("built in");
        assert!(!admin.contains("Permissions.Modify") && !admin.contains("Sys.Modify"));
        assert!(
            role("Administrator", Release::V9_2)
                .expect("built in")
                .is_superset(&admin)
        );
    }
}
