//! The bootstrap data of a machine.

use api::infrastructure::v1beta1::ProxmoxMachine;
use fleet::intent::Payload;
use k8s_openapi::ByteString;
use kube::ResourceExt as _;

use super::super::{Stop, Wait};
use super::Subject;
use crate::context::{Context, namespace};

/// What a machine is told at its first boot, and in which language.
pub(super) struct Bootstrap {
    pub(super) data: Payload,
    pub(super) format: Format,
    /// The data is no longer at hand, and the machine has read it.
    pub(super) forgotten: bool,
}

/// The languages of bootstrap data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// cloud-init's.
    CloudConfig,
    /// Ignition's: the image reads only user data.
    Ignition,
    /// Talos' machine configuration, taken as it is.
    Talos,
}

/// The bootstrap data, unless the machine has read it (`told`) and it is gone: keys that were used need not be kept.
pub(super) async fn read(
    context: &Context,
    subject: &Subject<'_>,
    told: bool,
) -> Result<Bootstrap, Stop> {
    match find(context, subject).await {
        Err(Stop::Wait(_)) if told => Ok(Bootstrap {
            data: Payload::new(Vec::new()),
            format: Format::CloudConfig,
            forgotten: true,
        }),
        found => found,
    }
}

/// Reads the Secret the Machine names.
async fn find(context: &Context, subject: &Subject<'_>) -> Result<Bootstrap, Stop> {
    let wait = |message: String| Stop::from(Wait::new("WaitingForBootstrapData", message));
    let Some(name) = &subject.machine.spec.bootstrap.data_secret_name else {
        return Err(wait("there is no bootstrap data yet".to_owned()));
    };
    let Some(secret) = context.secret(&namespace(subject.object), name).await? else {
        return Err(wait(format!("the bootstrap Secret {name:?} is not there")));
    };
    let mut entries = secret.data.unwrap_or_default();
    let Some(ByteString(data)) = entries.remove("value") else {
        return Err(wait(format!(
            "the bootstrap Secret {name:?} has no entry \"value\""
        )));
    };
    let format = entries.remove("format").unwrap_or_default();
    let format = match std::str::from_utf8(&format.0).map(str::trim) {
        // Talos' bootstrap provider does not say what it writes.
        Ok("" | "cloud-config") if is_talos(&data) => Format::Talos,
        Ok("" | "cloud-config") => Format::CloudConfig,
        Ok("ignition") => Format::Ignition,
        Ok("talos") => Format::Talos,
        _ => {
            return Err(Wait::new(
                "BootstrapFormatUnknown",
                format!("the bootstrap Secret {name:?} has a format other than cloud-config, ignition and talos"),
            )
            .into());
        }
    };
    Ok(Bootstrap {
        data: Payload::new(data),
        format,
        forgotten: false,
    })
}

/// Whether data is a machine configuration of Talos.
fn is_talos(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    !text.starts_with('#') && has("version: v1alpha1") && has("machine:")
}

/// Whether the guest's agent shall be waited for.
pub(super) fn waits_for_agent(object: &ProxmoxMachine, format: Format) -> bool {
    let skipped = object
        .spec
        .checks
        .as_ref()
        .and_then(|checks| checks.skip_qemu_guest_agent);
    match skipped {
        Some(skipped) => !skipped,
        // Talos has no agent unless its image was built with one.
        None => format != Format::Talos,
    }
}

/// The host name of a machine.
pub(super) fn hostname(object: &ProxmoxMachine) -> String {
    object.name_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn talos_is_known_by_its_own_words() {
        assert!(is_talos(b"version: v1alpha1\nmachine:\n  type: worker\n"));
        assert!(!is_talos(b"#cloud-config\nwrite_files: []\n"));
        assert!(!is_talos(b"#cloud-config\nversion: v1alpha1\nmachine: x\n"));
    }
}
