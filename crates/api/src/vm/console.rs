//! `VMConsole`: a visit to a machine's console.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::common::LocalRef;

/// Asks for one visit to a machine's serial line or screen. Whoever may create it in a namespace may see the consoles there.
///
/// The visitor makes up a secret, writes its digest here and goes with the object's name and the secret to the address in the
/// machine's `status.consoleURL`. It is good for a minute; the object is taken away with the visit, or some minutes later.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMConsole",
    plural = "vmconsoles",
    namespaced,
    shortname = "vmcon",
    category = "oxmox",
    derive = "PartialEq",
    doc = "Asks for one visit to a machine's serial line or screen: whoever may create it in a namespace may see the consoles there. `oxmox vm console` makes it, it is good for a minute, and gone after the visit or some minutes later.",
    printcolumn(name = "VM", type_ = "string", json_path = ".spec.vmRef.name"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("a VMConsole is good for one visit and cannot change; make another one"))]
pub struct VMConsoleSpec {
    /// The machine.
    pub vm_ref: LocalRef,
    /// The digest of the visitor's secret: `sha256:` and 64 hexadecimal digits.
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub token: String,
}
