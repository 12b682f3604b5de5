//! The endpoints of backups.

use super::storage;
use crate::guest::backup;
use crate::permission::Perm;
use crate::release::Release;
use crate::route::{Route, get, post};
use crate::schema::format::backup as kinds;
use crate::schema::{Param, array, choice, flag, format, int, text};

/// The name of a backup job: anything without blanks.
fn is_job_id(value: &str) -> bool {
    !value.is_empty() && !value.contains(char::is_whitespace)
}

/// Endpoints of backups.
pub(super) fn routes(release: Release) -> Vec<Route> {
    let on_dump = dump_params(release);
    vec![
        post("/nodes/{node}/vzdump", backup::vzdump)
            .perm(Perm::User)
            .params(on_dump),
        get("/nodes/{node}/vzdump/defaults", backup::defaults)
            .perm(Perm::User)
            .params([storage()]),
        get("/nodes/{node}/vzdump/extractconfig", backup::extract_config)
            .perm(Perm::User)
            .params([text("volume")])
            .protected(),
    ]
}

/// The parameters of a backup: of one call, and of a job.
pub(crate) fn dump_params(release: Release) -> Vec<Param> {
    let mut on_dump = vec![
        text("vmid").format(format::VMID_LIST).optional(),
        flag("all"),
        text("pool").optional(),
        storage(),
        choice("mode", &["snapshot", "suspend", "stop"]).optional(),
        kinds::compress(),
        text("exclude").format(format::VMID_LIST).optional(),
        text("notes-template")
            .max_len(1024)
            .requires("storage")
            .optional(),
        flag("protected").requires("storage"),
        flag("remove"),
        text("prune-backups").property(&kinds::prune()).optional(),
        int("lockwait").min(0).optional(),
        int("bwlimit").min(0).optional(),
        int("ionice").min(0).max(8).optional(),
        int("stopwait").min(0).optional(),
        int("zstd").optional(),
        int("pigz").optional(),
        flag("quiet"),
        flag("stop"),
        flag("stdexcludes"),
        array("exclude-path").optional(),
        text("dumpdir").optional(),
        text("tmpdir").optional(),
        text("script").optional(),
        text("mailto").format(kinds::RECIPIENTS).optional(),
        choice("mailnotification", &["always", "failure"]).optional(),
        choice(
            "notification-mode",
            &["auto", "legacy-sendmail", "notification-system"],
        )
        .optional(),
        text("fleecing").property(&kinds::fleecing()).optional(),
        text("performance")
            .property(&kinds::performance())
            .optional(),
        choice("pbs-change-detection-mode", &["legacy", "data", "metadata"]).optional(),
        text("job-id").max_len(50).pattern(is_job_id).optional(),
        flag("stdout"),
    ];
    if !release.is_9() {
        on_dump.extend([
            int("maxfiles").min(1).optional(),
            choice("notification-policy", &["always", "failure", "never"]).optional(),
            text("notification-target")
                .format(format::CONFIG_ID)
                .optional(),
        ]);
    }
    on_dump
}
