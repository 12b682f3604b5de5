//! The texts of real servers, and what they mean.

use super::*;

fn of(status: u16, text: &str) -> Error {
    Error::from_text(Some(status), text, BTreeMap::new())
}

fn exit(text: &str) -> Error {
    Error::from_text(None, text, BTreeMap::new())
}

fn parameter(key: &str, text: &str) -> Error {
    let errors = BTreeMap::from([(key.to_owned(), text.to_owned())]);
    Error::from_text(Some(400), "Parameter verification failed.\n", errors)
}

/// One word for a case, so that the tables below stay tables.
fn case(error: &Error) -> String {
    match error {
        Error::NotFound { what, .. } => format!("missing {what}"),
        Error::AlreadyExists { what, .. } => format!("exists {what}"),
        Error::StorageMissing { storage } => format!("storage missing {storage}"),
        Error::Locked { by } => format!("locked {by}"),
        Error::Denied {
            path, privilege, ..
        } => {
            let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
            format!("denied {} {}", word(path), word(privilege))
        }
        Error::RootOnly { option, .. } => format!("root only {}", option.as_deref().unwrap_or("?")),
        Error::AgentAbsent { configured, .. } => format!("agent absent, configured {configured}"),
        Error::LockTimeout { .. } => "lock timeout".to_owned(),
        Error::DigestMismatch { .. } => "digest".to_owned(),
        Error::NotRunning { .. } => "not running".to_owned(),
        Error::Running { .. } => "running".to_owned(),
        Error::IsTemplate { .. } => "template".to_owned(),
        Error::Agent { .. } => "agent".to_owned(),
        Error::Protected { .. } => "protected".to_owned(),
        Error::InUse { .. } => "in use".to_owned(),
        Error::GuestTimeout { .. } => "guest timeout".to_owned(),
        Error::NoFreeVmid { .. } => "no free id".to_owned(),
        Error::OutOfSpace { .. } => "no space".to_owned(),
        Error::FeatureMissing { .. } => "feature".to_owned(),
        Error::NoQuorum { .. } => "no quorum".to_owned(),
        Error::Interrupted { .. } => "interrupted".to_owned(),
        Error::NotImplemented { .. } => "not implemented".to_owned(),
        Error::Unauthenticated { .. } => "unauthenticated".to_owned(),
        Error::Hotplug { .. } => "hotplug".to_owned(),
        Error::NotTaken { .. } => "not taken".to_owned(),
        Error::Parameters { .. } => "parameters".to_owned(),
        Error::Other { .. } => "other".to_owned(),
        error => format!("{error:?}"),
    }
}

#[test]
fn a_download_in_the_way_of_another_is_there_already() {
    let text = "refusing to override existing file '/var/lib/vz/import/a.qcow2'";
    let error = exit(text);
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error:?}");
}

#[test]
fn texts_of_calls_are_recognised() {
    for (text, expected) in [
        (
            "Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist\n",
            "missing guest 999",
        ),
        (
            "Configuration file 'nodes/pve1/lxc/101.conf' does not exist\n",
            "missing guest 101",
        ),
        (
            "unable to find configuration file for VM 111 on node 'pve1'\n",
            "missing guest 111",
        ),
        (
            "hostname lookup 'pve9' failed - failed to get address info for: pve9: Temporary failure in name resolution\n",
            "missing node 'pve9'",
        ),
        ("no such cluster node 'pve9'\n", "missing node 'pve9'"),
        ("storage 'nope' does not exist\n", "storage missing nope"),
        (
            "volume 'dir2:iso/none.iso' does not exist\n",
            "missing volume 'dir2:iso/none.iso'",
        ),
        (
            "snapshot 'nope' does not exist\n",
            "missing snapshot 'nope'",
        ),
        ("pool 'x' does not exist\n", "missing pool 'x'"),
        (
            "resource 'vm:9999' does not exist in cluster\n",
            "missing resource 'vm:9999'",
        ),
        (
            "ACL update failed: role 'NoRole' does not exist\n",
            "missing role 'NoRole'",
        ),
        ("no rule at position 9\n", "missing firewall rule"),
        (
            "unable to create VM 320 - VM 320 already exists on node 'pve1'\n",
            "exists guest 320",
        ),
        ("VM 101 already exists on node 'pve1'\n", "exists guest 101"),
        (
            "unable to create VM 310: config file already exists\n",
            "exists guest 310",
        ),
        (
            "disk image '/var/lib/dir2/images/101/vm-101-disk-7.raw' already exists\n",
            "exists volume '/var/lib/dir2/images/101/vm-101-disk-7.raw'",
        ),
        (
            "create storage failed: storage ID 'dir2' already defined\n",
            "exists storage 'dir2'",
        ),
        (
            "create pool failed: pool 'p1' already exists\n",
            "exists pool 'p1'",
        ),
        (
            "create user failed: user 'u1@pve' already exists\n",
            "exists object",
        ),
        (
            "create resource failed: resource ID 'vm:101' already defined\n",
            "exists HA resource 'vm:101'",
        ),
        (
            "create ha rule failed: HA rule 'oxmox-105' already defined\n",
            "exists HA rule 'oxmox-105'",
        ),
        (
            "cannot delete service 'vm:105', not HA managed!\n",
            "missing HA resource 'vm:105'",
        ),
        (
            "update pools failed: VM 101 is already a pool member\n",
            "exists pool member",
        ),
        ("VM is locked (clone)\n", "locked clone"),
        ("CT is locked (snapshot-delete)\n", "locked snapshot-delete"),
        (
            "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout\n",
            "lock timeout",
        ),
        (
            "cfs-lock 'storage-ceph' error: got lock request timeout\n",
            "lock timeout",
        ),
        ("cfs-lock 'file-user_cfg' error: no quorum!\n", "no quorum"),
        ("checksum mismatch (file change by other user?)\n", "digest"),
        (
            "detected modified configuration - file changed by other user? Try again.\n",
            "digest",
        ),
        ("VM 113 not running\n", "not running"),
        ("VM 100 is not running\n", "not running"),
        ("VM 120 is running - destroy failed\n", "running"),
        (
            "you can't convert a VM to template if VM is running\n",
            "running",
        ),
        ("can't migrate running VM without --online\n", "running"),
        ("you can't convert a template to a template\n", "template"),
        (
            "No QEMU guest agent configured\n",
            "agent absent, configured false",
        ),
        (
            "QEMU guest agent is not running\n",
            "agent absent, configured true",
        ),
        (
            "Agent error: The command guest-exec has been disabled\n",
            "agent",
        ),
        (
            "can't remove VM 120 - protection mode enabled\n",
            "protected",
        ),
        (
            "unable to remove VM 100 - used in HA resources and purge parameter not set.\n",
            "in use",
        ),
        (
            "delete pool failed: pool 'p1' is not empty (contains VM 101)\n",
            "in use",
        ),
        ("Security group 'g1' is not empty\n", "in use"),
        (
            "unable to get any free VMID in range [5000, 5002]\n",
            "no free id",
        ),
        (
            "only root can set 'affinity' config\n",
            "root only affinity",
        ),
        (
            "only root can set 'hostpci0' config for non-mapped devices\n",
            "root only hostpci0",
        ),
        (
            "Only root can pass arbitrary filesystem paths. at PVE/Storage.pm line 651.\n",
            "root only ?",
        ),
        (
            "parameter 'storage' not allowed for linked clones\n",
            "other",
        ),
        ("no options specified\n", "other"),
        (
            "you can't move to the same storage with same format\n",
            "other",
        ),
    ] {
        assert_eq!(case(&of(500, text)), expected, "{text}");
    }
}

#[test]
fn exits_of_tasks_give_the_same_cases() {
    for (text, expected) in [
        ("VM is locked (suspending)", "locked suspending"),
        ("VM 113 already running", "running"),
        ("you can't start a vm if it's a template", "template"),
        (
            "volume 'dir2:snippets/u.yaml' does not exist",
            "missing volume 'dir2:snippets/u.yaml'",
        ),
        (
            "unable to create VM 100 - volume 'a:b' does not exist",
            "missing volume 'a:b'",
        ),
        (
            "unable to create VM 310: config file already exists",
            "exists guest 310",
        ),
        (
            "Configuration file 'nodes/pve1/qemu-server/120.conf' does not exist",
            "missing guest 120",
        ),
        ("snapshot name 's1' already used", "exists snapshot 's1'"),
        ("snapshot 's1' does not exist", "missing snapshot 's1'"),
        ("disk 'scsi9' does not exist", "missing disk 'scsi9'"),
        ("bridge 'vmbr7' does not exist", "missing bridge 'vmbr7'"),
        ("snapshot feature is not available", "feature"),
        (
            "Linked clone feature is not supported for 'lvm:vm-100-disk-0' (scsi0)",
            "feature",
        ),
        (
            "Linked clone feature for 'nfs:9200/base-9200-disk-0.raw' is not available",
            "feature",
        ),
        (
            "Full clone feature is not supported for a snapshot of 'tank:vm-101-disk-0' (scsi0)",
            "feature",
        ),
        (
            "base volume 'dir2:100/base-100-disk-0.qcow2' is still in use by linked cloned",
            "in use",
        ),
        (
            "can't rollback, 's1' is not most recent snapshot on 'tank:vm-100-disk-0'",
            "in use",
        ),
        ("VM quit/powerdown failed - got timeout", "guest timeout"),
        ("received interrupt", "interrupted"),
        ("interrupted by signal", "interrupted"),
        ("unexpected status", "interrupted"),
        (
            "clone failed: copy failed: No space left on device",
            "no space",
        ),
        (
            "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout",
            "lock timeout",
        ),
        ("shrinking disks is not supported", "other"),
        ("start failed: QEMU exited with code 1", "other"),
        ("MAX 2 vcpus allowed per VM on this node", "other"),
    ] {
        assert_eq!(case(&exit(text)), expected, "{text}");
    }
}

#[test]
fn denials_name_path_and_privilege() {
    for (text, expected) in [
        (
            "Permission check failed (/vms/101, VM.Audit)\n",
            "denied /vms/101 VM.Audit",
        ),
        (
            "Permission check failed (/sdn/zones/localnetwork/vmbr0, SDN.Use)\n",
            "denied /sdn/zones/localnetwork/vmbr0 SDN.Use",
        ),
        ("Permission check failed\n", "denied ? ?"),
        (
            "Permission check failed (user != root@pam)\n",
            "root only ?",
        ),
        (
            "Permission check failed (pool 'nopool' does not exist)\n",
            "missing pool 'nopool'",
        ),
        (
            "Permission check failed (URI '/access/ticket' not available with API token, need proper ticket.\n)\n",
            "denied ? ?",
        ),
    ] {
        assert_eq!(case(&of(403, text)), expected, "{text}");
    }
    assert_eq!(
        case(&of(401, "authentication failure\n")),
        "unauthenticated"
    );
    assert_eq!(
        case(&of(501, "Method 'GET /nope' not implemented")),
        "not implemented"
    );
}

#[test]
fn parameter_errors_keep_their_map() {
    for (key, text, expected) in [
        ("vmid", "VM 151 already exists", "exists guest 151"),
        ("tokenid", "Token already exists.", "exists tokenid"),
        ("upid", "no such task", "missing task"),
        ("storage", "No such storage.", "missing storage ''"),
        ("storage", "storage 'x' does not exist", "storage missing x"),
        ("force", "Only root may use this option.", "root only force"),
        (
            "scsi0",
            "hotplug problem - can't unplug bootdisk 'scsi0'\n",
            "hotplug",
        ),
        (
            "memory",
            "unable to hotplug memory: cannot lower it below its use\n",
            "not taken",
        ),
        (
            "mp1",
            "unable to hotplug mp1: zfs error: cannot create 'tank/subvol-100-disk-1': out of space\n",
            "no space",
        ),
        (
            "mp1",
            "unable to apply pending change mp1 : can't lock file '/var/lock/pve-manager/pve-storage-a' - got timeout\n",
            "lock timeout",
        ),
        (
            "mp1",
            "unable to apply pending change mp1 : mkfs did not like it\n",
            "not taken",
        ),
        ("upid", "unable to parse worker upid", "parameters"),
        (
            "cores",
            "type check ('integer') failed - got 'abc'",
            "parameters",
        ),
    ] {
        assert_eq!(case(&parameter(key, text)), expected, "{key}: {text}");
    }
    let Error::Parameters { errors, .. } =
        parameter("cores", "value must have a minimum value of 1")
    else {
        panic!("a refused parameter is a parameter error");
    };
    assert_eq!(errors["cores"], "value must have a minimum value of 1");
}

#[test]
fn a_refused_password_is_not_repeated() {
    let error = parameter("cipassword", "type check ('string') failed - got 'geheim'");
    assert!(!format!("{error} {error:?}").contains("geheim"));
}

#[test]
fn what_is_not_known_never_looks_like_absence() {
    let lost = Error::OutcomeUnknown {
        text: "lost".to_owned(),
        cause: None,
    };
    let down = Error::Unreachable {
        text: "down".to_owned(),
        cause: None,
    };
    for error in [
        lost,
        down,
        of(403, "Permission check failed (/vms/101, VM.Audit)"),
        of(401, "No ticket"),
        of(
            500,
            "hostname lookup 'pve2' failed - failed to get address info for: pve2: Name or service not known",
        ),
    ] {
        assert!(error.is_unknown() && !error.is_not_found(), "{error}");
    }
    assert!(
        of(
            500,
            "Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist"
        )
        .is_guest_not_found()
    );
}
