//! Formats of storages and of what is kept in them.

use std::net::IpAddr;

use super::{Format, alnum, label, require, word};

/// `pve-storage-content`
pub(crate) const CONTENT: Format = Format::One(content);
/// `pve-storage-content-list`
pub(crate) const CONTENT_LIST: Format = Format::List(content);
/// `pve-storage-path`
pub(crate) const PATH: Format = Format::One(path);
/// `pve-storage-server`
pub(crate) const SERVER: Format = Format::One(server);
/// `pve-storage-vgname`
pub(crate) const VG_NAME: Format = Format::One(vg_name);
/// `pve-storage-portal-dns`
pub(crate) const PORTAL: Format = Format::One(portal);
/// `pve-storage-portal-dns-list`
pub(crate) const PORTAL_LIST: Format = Format::List(portal);
/// `pve-storage-options`
pub(crate) const OPTIONS: Format = Format::One(options);
/// `pve-dir-override-list`
pub(crate) const DIR_OVERRIDES: Format = Format::List(dir_override);
/// `pve-storage-zfs-blocksize`
pub(crate) const BLOCK_SIZE: Format = Format::One(block_size);
/// `storage-pair-list`
pub(crate) const STORAGE_PAIRS: Format = Format::List(storage_pair);

fn content(value: &str) -> Result<(), String> {
    let known = [
        "images", "rootdir", "vztmpl", "iso", "backup", "snippets", "none", "import",
    ];
    require(known.contains(&value), || {
        format!("invalid content type '{value}'")
    })
}

fn path(value: &str) -> Result<(), String> {
    let rest = value.strip_prefix('/');
    let ok = rest.is_some_and(|rest| rest.starts_with(|c| !";()".contains(c)));
    require(ok, || {
        "value does not look like a valid absolute path".to_owned()
    })
}

fn is_host(value: &str) -> bool {
    let bare = value.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    bare.unwrap_or(value).parse::<IpAddr>().is_ok() || value.split('.').all(label)
}

fn server(value: &str) -> Result<(), String> {
    require(is_host(value), || {
        "value does not look like a valid server name or IP address".to_owned()
    })
}

fn portal(value: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u16>().is_ok();
    let ok = is_host(value)
        || value
            .rsplit_once(':')
            .is_some_and(|(host, port)| is_host(host) && number(port));
    require(ok, || {
        "value does not look like a valid portal address".to_owned()
    })
}

fn vg_name(value: &str) -> Result<(), String> {
    let ok = value.len() > 1
        && word(value, alnum, |c| alnum(c) || matches!(c, '-' | '_' | '.'))
        && value.ends_with(alnum);
    require(ok, || {
        format!("lvm name '{value}' contains illegal characters")
    })
}

fn options(value: &str) -> Result<(), String> {
    require(
        !value.is_empty() && !value.contains(char::is_whitespace),
        || format!("invalid options '{value}'"),
    )
}

fn dir_override(value: &str) -> Result<(), String> {
    let bad = || format!("invalid override '{value}'");
    let (kind, path) = value.split_once('=').ok_or_else(bad)?;
    require(!path.is_empty() && !path.contains(".."), bad)?;
    content(kind)
}

fn block_size(value: &str) -> Result<(), String> {
    let digits = value.strip_suffix(['k', 'K', 'm', 'M']).unwrap_or(value);
    let ok = digits.parse::<u64>().is_ok_and(|it| it > 0);
    require(ok, || {
        "value does not look like a valid blocksize".to_owned()
    })
}

/// `1`, a storage for everything, or `from:to`.
fn storage_pair(value: &str) -> Result<(), String> {
    if value == "1" {
        return Ok(());
    }
    match value.split_once(':') {
        Some((from, to)) => super::storage(from).and_then(|()| super::storage(to)),
        None => super::storage(value),
    }
}
