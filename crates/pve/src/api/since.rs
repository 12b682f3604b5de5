//! What a release lacks, in one table.
//!
//! Proxmox VE answers a call it does not know with 501 and an option it does not know with a parameter error; neither
//! says that an upgrade would help. So every call, and every option of a call, that the oldest supported release (7.4)
//! has not is listed here with the release that brought it, and refused by name before it is sent. Nothing is asked of
//! the server for calls that all releases have.

use super::version::Release;
use crate::client::{Call, Payload};

/// Something that not every release has.
struct Since {
    /// The call's name, or the beginning of several.
    call: &'static str,
    /// The option of the call; without one the call itself. A trailing `#` stands for a number.
    option: Option<&'static str>,
    what: &'static str,
    needs: &'static str,
    release: Release,
}

const fn call(
    call: &'static str,
    what: &'static str,
    needs: &'static str,
    release: Release,
) -> Since {
    Since {
        call,
        option: None,
        what,
        needs,
        release,
    }
}

const fn option(
    call: &'static str,
    option: &'static str,
    what: &'static str,
    needs: &'static str,
    release: Release,
) -> Since {
    Since {
        call,
        option: Some(option),
        what,
        needs,
        release,
    }
}

const V7_2: Release = Release::new(7, 2);
const V8_0: Release = Release::new(8, 0);
const V8_1: Release = Release::new(8, 1);
const V8_3: Release = Release::new(8, 3);
const V8_4: Release = Release::new(8, 4);
const V9_0: Release = Release::new(9, 0);
const V9_1: Release = Release::new(9, 1);
const V9_2: Release = Release::new(9, 2);

const TABLE: &[Since] = &[
    call(
        "qemu.cloudinit.update",
        "regenerating the cloud-init drive",
        "7.2 or later",
        V7_2,
    ),
    call(
        "mapping.",
        "naming devices for the whole cluster",
        "8.0 or later",
        V8_0,
    ),
    call(
        "qemu.agent.exec",
        "running a command in a guest with arguments of their own",
        "8.0 or later",
        V8_0,
    ),
    call(
        "lxc.interfaces",
        "listing a container's interfaces",
        "8.1 or later",
        V8_1,
    ),
    call(
        "ha.rule",
        "high availability by rules",
        "9.0 or later (use groups)",
        V9_0,
    ),
    call(
        "access.token.regenerate",
        "giving a token another value",
        "9.1 or later",
        V9_1,
    ),
    option(
        "qemu.stop",
        "overrule-shutdown",
        "overrule-shutdown of stop",
        "8.0 or later",
        V8_0,
    ),
    option(
        "lxc.stop",
        "overrule-shutdown",
        "overrule-shutdown of stop",
        "8.0 or later",
        V8_0,
    ),
    option(
        "pools.update",
        "allow-move",
        "moving a guest between pools",
        "8.1 or later",
        V8_1,
    ),
    option(
        "qemu.create",
        "import-working-storage",
        "unpacking appliances elsewhere",
        "8.3 or later",
        V8_3,
    ),
    option(
        "qemu.config.post",
        "import-working-storage",
        "unpacking appliances elsewhere",
        "8.3 or later",
        V8_3,
    ),
    option(
        "qemu.",
        "ciupgrade",
        "keeping cloud-init from upgrading packages",
        "8.0 or later",
        V8_0,
    ),
    option(
        "qemu.",
        "amd-sev",
        "encrypting a guest's memory (amd-sev)",
        "8.3 or later",
        V8_3,
    ),
    option(
        "qemu.",
        "virtiofs#",
        "sharing directories with a guest (virtiofs)",
        "8.4 or later",
        V8_4,
    ),
    option(
        "qemu.",
        "allow-ksm",
        "keeping a guest's memory from being merged (allow-ksm)",
        "9.0 or later",
        V9_0,
    ),
    option(
        "qemu.",
        "intel-tdx",
        "encrypting a guest's memory (intel-tdx)",
        "9.1 or later",
        V9_1,
    ),
    option(
        "qemu.create",
        "ha-managed",
        "taking a guest into care as it is made (ha-managed)",
        "9.0 or later",
        V9_0,
    ),
    option(
        "qemu.migrate",
        "with-conntrack-state",
        "moving the state of network connections",
        "9.0 or later",
        V9_0,
    ),
    option(
        "lxc.create",
        "ha-managed",
        "taking a guest into care as it is made (ha-managed)",
        "9.0 or later",
        V9_0,
    ),
    option(
        "lxc.",
        "dev#",
        "giving a container a device (dev)",
        "8.1 or later",
        V8_1,
    ),
    option(
        "lxc.",
        "entrypoint",
        "a container's own first program (entrypoint)",
        "9.1 or later",
        V9_1,
    ),
    option(
        "lxc.",
        "env",
        "a container's own environment (env)",
        "9.1 or later",
        V9_1,
    ),
    option(
        "ha.",
        "failback",
        "failback of one guest",
        "9.0 or later",
        V9_0,
    ),
    option(
        "ha.",
        "auto-rebalance",
        "keeping a guest from being moved for balance",
        "9.2 or later",
        V9_2,
    ),
    option(
        "firewall.options.set",
        "policy_forward",
        "a policy for what is passed on (policy_forward)",
        "8.3 or later",
        V8_3,
    ),
    option(
        "firewall.options.set",
        "log_level_forward",
        "logging what is passed on (log_level_forward)",
        "8.3 or later",
        V8_3,
    ),
    option(
        "firewall.options.set",
        "nftables",
        "the firewall on nftables",
        "8.2 or later",
        Release::new(8, 2),
    ),
    option(
        "storage.download_url",
        "compression",
        "unpacking a download (compression)",
        "8.0 or later",
        V8_0,
    ),
    option(
        "vzdump",
        "fleecing",
        "backing up by way of a fast storage (fleecing)",
        "8.2 or later",
        Release::new(8, 2),
    ),
];

/// What a call needs that not every release has: what, the words for the releases that do, and the first of them.
pub(crate) fn needed(call: &Call) -> Option<(&'static str, &'static str, Release)> {
    let named = |since: &&Since| match since.call.strip_suffix('.') {
        Some(_) => call.name.starts_with(since.call),
        // `ha.rule` is also `ha.rules` and `ha.rule.create`; options belong to one call.
        None if since.option.is_none() => call.name.starts_with(since.call),
        None => call.name == since.call,
    };
    let given = |since: &&Since| match (since.option, &call.payload) {
        (None, _) => true,
        (Some(option), Payload::Params(params)) => params.iter().any(|(key, _)| is(option, key)),
        (Some(_), Payload::Stream { .. }) => false,
    };
    let all = TABLE.iter().filter(named).filter(given);
    let newest = all.max_by_key(|since| since.release)?;
    Some((newest.what, newest.needs, newest.release))
}

/// Whether an option is the named one, or one of a numbered family.
fn is(option: &str, key: &str) -> bool {
    match option.strip_suffix('#') {
        None => option == key,
        Some(stem) => key.strip_prefix(stem).is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;

    #[test]
    fn each_entry_says_the_release_it_compares_with() {
        for since in TABLE {
            let words = format!("{}.{} or later", since.release.major, since.release.minor);
            assert!(since.needs.starts_with(&words), "{}", since.what);
        }
    }

    #[test]
    fn what_every_release_has_needs_no_question() {
        let plain = Call::post("qemu.create", "/x").params(Params::new().with("memory", 1));
        assert_eq!(needed(&plain), None);
        assert_eq!(needed(&Call::get("ha.resources", "/x")), None);
    }

    #[test]
    fn the_newest_of_several_needs_decides() {
        let params = Params::new().with("virtiofs0", "a").with("allow-ksm", 0);
        let call = Call::put("qemu.config.put", "/x").params(params);
        assert_eq!(needed(&call).unwrap().2, V9_0);
        let other = Params::new().with("virtiofs", "a").with("device", 0);
        assert_eq!(
            needed(&Call::put("qemu.config.put", "/x").params(other)),
            None
        );
    }
}
