//! Every option of a container's configuration.

use std::sync::LazyLock;

use crate::guest::config::Config;
use crate::guest::formats;
use crate::guest::options::{Need, indexed};
use crate::release::Release;
use crate::schema::{Format, Kind, Param, Schema, choice, flag, format, int, number, text};

/// Declares all options of a container.
pub(crate) fn lxc(release: Release) -> Vec<Param> {
    let mut all = vec![
        choice(
            "arch",
            &["amd64", "i386", "arm64", "armhf", "riscv32", "riscv64"],
        ),
        choice("cmode", &["shell", "console", "tty"]),
        flag("console"),
        int("cores").min(1).max(8192),
        number("cpulimit").min(0).max(8192),
        int("cpuunits").min(0).max(500_000),
        flag("debug"),
        text("description").max_len(8192),
        text("features").property(&formats::features()),
        text("hookscript").format(Format::One(formats::volume_id)),
        text("hostname").format(format::DNS_NAME).max_len(255),
        choice(
            "lock",
            &[
                "backup",
                "create",
                "destroyed",
                "disk",
                "fstrim",
                "migrate",
                "mounted",
                "rollback",
                "snapshot",
                "snapshot-delete",
            ],
        ),
        int("memory").min(16),
        text("nameserver").format(format::ADDRESS_LIST),
        flag("onboot"),
        choice(
            "ostype",
            &[
                "debian",
                "devuan",
                "ubuntu",
                "centos",
                "fedora",
                "opensuse",
                "archlinux",
                "alpine",
                "gentoo",
                "nixos",
                "unmanaged",
            ],
        ),
        flag("protection"),
        text("rootfs").property(&formats::mount(false, release)),
        text("searchdomain").format(format::DNS_NAME_LIST),
        text("startup").property(&formats::small("startup")),
        int("swap").min(0),
        text("tags").format(format::TAG_LIST),
        flag("template"),
        text("timezone").format(Format::One(timezone)),
        int("tty").min(0).max(6),
        flag("unprivileged"),
        text("net").property(&formats::ct_net(release)).indexed(32),
        text("mp")
            .property(&formats::mount(true, release))
            .indexed(256),
        text("unused").property(&formats::ct_unused()).indexed(256),
        text("dev").property(&formats::dev()).indexed(256),
    ];
    if release.is_9() {
        all.push(text("entrypoint").pattern(printable));
        all.push(text("env").pattern(environment));
    }
    all.into_iter().map(Param::optional).collect()
}

fn timezone(value: &str) -> Result<(), String> {
    let part = |c: char| c.is_ascii_alphanumeric() || "_+-".contains(c);
    let ok = value == "host" || value.split('/').all(|it| format::word(it, part, part));
    if ok {
        Ok(())
    } else {
        Err(format!("invalid time zone '{value}'"))
    }
}

/// Text without control characters other than tabs.
fn printable(value: &str) -> bool {
    !value.is_empty() && !value.chars().any(|c| c.is_ascii_control() && c != '\t')
}

/// `NAME=value` pairs, separated by NUL.
fn environment(value: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    value.split('\0').all(|pair| {
        pair.split_once('=').is_some_and(|(key, value)| {
            format::word(key, name, name) && (value.is_empty() || printable(value))
        })
    })
}

static KNOWN: LazyLock<Schema> = LazyLock::new(|| Schema::new(lxc(Release::V9_2)));

/// Whether this is an option of a container.
pub(crate) fn is_option(name: &str) -> bool {
    KNOWN.knows(name)
}

/// Whether answers show the option as a number.
pub(crate) fn is_numeric(option: &str) -> bool {
    option == "snaptime" || matches!(KNOWN.kind(option), Some(Kind::Integer | Kind::Boolean))
}

/// The privilege an option takes.
pub(crate) fn need(option: &str) -> Need {
    match option {
        "cores" | "cpulimit" | "cpuunits" => Need::Privilege("VM.Config.CPU"),
        "memory" | "swap" => Need::Privilege("VM.Config.Memory"),
        "rootfs" => Need::Privilege("VM.Config.Disk"),
        "nameserver" | "searchdomain" | "hostname" => Need::Privilege("VM.Config.Network"),
        "features" => Need::Privilege("VM.Allocate"),
        "startup" => Need::Startup,
        "hookscript" | "lock" | "entrypoint" | "env" => Need::Root,
        _ => match indexed(option).map(|(name, _)| name) {
            Some("mp" | "unused") => Need::Privilege("VM.Config.Disk"),
            Some("net") => Need::Privilege("VM.Config.Network"),
            Some("dev") => Need::Root,
            _ => Need::Privilege("VM.Config.Options"),
        },
    }
}

/// Whether a running container takes a new value at once. What is mounted already is not mounted anew.
pub(crate) fn taken_at_once(option: &str, config: &Config) -> bool {
    let mounted = indexed(option).is_some_and(|(name, _)| name == "mp");
    at_once(option) && !(mounted && config.get(option).is_some())
}

/// Whether a running container does without the option at once.
pub(crate) fn goes_at_once(option: &str) -> bool {
    at_once(option) && indexed(option).is_none_or(|(name, _)| name != "mp")
}

fn at_once(option: &str) -> bool {
    let later = [
        "arch",
        "cmode",
        "console",
        "entrypoint",
        "env",
        "features",
        "ostype",
        "rootfs",
        "timezone",
        "tty",
        "unprivileged",
        "debug",
    ];
    !later.contains(&option) && indexed(option).is_none_or(|(name, _)| name != "dev")
}
