//! Renders the field numbers of Kubernetes' protobuf messages, from the published `.proto` files.
//!
//! ```text
//! core.v1.Probe
//!  1 handler core.v1.ProbeHandler
//!  2 initialDelaySeconds int32
//! ```

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

/// Packages of `k8s.io/api` whose kinds clients send as protobuf.
pub(super) const PACKAGES: [&str; 18] = [
    "admissionregistration/v1",
    "apps/v1",
    "authentication/v1",
    "authorization/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "certificates/v1",
    "coordination/v1",
    "core/v1",
    "discovery/v1",
    "events/v1",
    "networking/v1",
    "node/v1",
    "policy/v1",
    "rbac/v1",
    "scheduling/v1",
    "storage/v1",
];

/// Renders the messages of the modules `k8s.io/api` and `k8s.io/apimachinery`.
pub(super) fn render(api: &Path, machinery: &Path) -> Result<String> {
    let mut out = String::new();
    for package in PACKAGES {
        let path = api.join(package).join("generated.proto");
        messages(&path, &package.replace('/', "."), &mut out)?;
    }
    messages(
        &machinery.join("pkg/apis/meta/v1/generated.proto"),
        "meta.v1",
        &mut out,
    )?;
    Ok(out)
}

fn messages(path: &Path, package: &str, out: &mut String) -> Result<()> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("message ") {
            let _ = writeln!(out, "{package}.{}", name.trim_end_matches([' ', '{']));
            inside = true;
        } else if line == "}" {
            inside = false;
        } else if inside && !line.starts_with("//") && !line.is_empty() {
            field(line, package, out);
        }
    }
    Ok(())
}

fn field(line: &str, package: &str, out: &mut String) {
    let Some((left, number)) = line.trim_end_matches(';').rsplit_once(" = ") else {
        return;
    };
    let (left, mark) = match left.strip_prefix("repeated ") {
        Some(rest) => (rest, "[]"),
        None => (left.strip_prefix("optional ").unwrap_or(left), ""),
    };
    let Some((ty, name)) = left.rsplit_once(' ') else {
        return;
    };
    let (ty, mark) = match ty
        .strip_prefix("map<string, ")
        .and_then(|t| t.strip_suffix('>'))
    {
        Some(value) => (value, "{}"),
        None => (ty, mark),
    };
    let _ = writeln!(out, " {number} {name} {mark}{}", type_name(ty, package));
}

fn type_name(ty: &str, package: &str) -> String {
    let scalar = matches!(
        ty,
        "string" | "bool" | "int32" | "int64" | "bytes" | "double"
    );
    for (long, short) in [
        (".k8s.io.apimachinery.pkg.apis.meta.", "meta."),
        (".k8s.io.api.", ""),
        (".k8s.io.apimachinery.pkg.", "apimachinery."),
    ] {
        if let Some(rest) = ty.strip_prefix(long) {
            return format!("{short}{rest}");
        }
    }
    if scalar {
        ty.to_owned()
    } else {
        format!("{package}.{ty}")
    }
}
