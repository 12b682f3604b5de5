//! Kubeconfigs, as kubectl, Helm and the components read them.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::pki::Identity;

/// Writes a kubeconfig with everything inline, readable by its owner only.
pub(crate) fn write(
    path: &Path,
    url: &str,
    ca: &str,
    identity: &Identity,
) -> Result<(), std::io::Error> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": {
            "server": url,
            "certificate-authority-data": STANDARD.encode(ca),
        }}],
        "users": [{"name": "admin", "user": {
            "client-certificate-data": STANDARD.encode(&identity.cert),
            "client-key-data": STANDARD.encode(&identity.key),
        }}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "admin"}}],
        "current-context": "testbed",
    });
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(config.to_string().as_bytes())
}
