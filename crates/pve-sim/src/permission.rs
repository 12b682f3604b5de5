//! Who may call a route: PVE's permission expressions.

use crate::access::{Access, Caller};
use crate::failure::Failure;
use crate::params::Params;
use crate::world::World;

/// A permission expression. Paths may hold parameters: `/vms/{vmid}`.
#[derive(Clone, Debug)]
pub(crate) enum Perm {
    /// Only `root@pam` itself, never a token.
    Root,
    /// Anybody, without a ticket.
    World,
    /// Every authenticated caller; the handler filters or checks.
    User,
    /// All of the privileges on the path.
    All(&'static str, &'static [&'static str]),
    /// At least one of the privileges on the path.
    Any(&'static str, &'static [&'static str]),
    /// Every part must hold.
    And(Vec<Perm>),
    /// One part is enough.
    Or(Vec<Perm>),
    /// The parameter was given.
    Given(&'static str),
    /// The parameter names the caller's own user.
    SelfParam(&'static str),
    /// A rule of its own.
    Rule(fn(&World, &Caller, &Params) -> Result<(), Failure>),
}

/// All of `privileges` on `path`.
pub(crate) fn all(path: &'static str, privileges: &'static [&'static str]) -> Perm {
    Perm::All(path, privileges)
}

/// At least one of `privileges` on `path`.
pub(crate) fn any(path: &'static str, privileges: &'static [&'static str]) -> Perm {
    Perm::Any(path, privileges)
}

impl Perm {
    /// Checks the expression for `caller`.
    pub(crate) fn check(
        &self,
        world: &World,
        caller: &Caller,
        params: &Params,
    ) -> Result<(), Failure> {
        let access = &world.access;
        if caller.is_root() {
            return Ok(());
        }
        match self {
            Self::Root => Err(Failure::denied("user != root@pam")),
            Self::All(path, privileges) => access.need(caller, &fill(path, params), privileges),
            Self::Any(path, privileges) => any_of(access, caller, &fill(path, params), privileges),
            Self::And(parts) => parts
                .iter()
                .try_for_each(|it| it.check(world, caller, params)),
            Self::Or(parts) => {
                if parts
                    .iter()
                    .any(|it| it.check(world, caller, params).is_ok())
                {
                    Ok(())
                } else {
                    Err(Failure::denied_all())
                }
            }
            Self::World | Self::User => Ok(()),
            Self::Given(name) if params.has(name) => Ok(()),
            Self::Given(_) => Err(Failure::denied_all()),
            Self::SelfParam(name) => {
                if params.get(name) == Some(caller.user()) {
                    Ok(())
                } else {
                    Err(Failure::denied_all())
                }
            }
            Self::Rule(rule) => rule(world, caller, params),
        }
    }
}

fn any_of(
    access: &Access,
    caller: &Caller,
    path: &str,
    privileges: &[&str],
) -> Result<(), Failure> {
    if privileges
        .iter()
        .any(|privilege| access.may(caller, path, privilege))
    {
        Ok(())
    } else {
        Err(Failure::denied(format!("{path}, {}", privileges.join("|"))))
    }
}

/// The path with its parameters; one that was not given leaves a dash.
fn fill(path: &str, params: &Params) -> String {
    let mut filled = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            break;
        };
        filled.push_str(before);
        let value = params.get(name).filter(|value| !matches!(*value, "" | "0"));
        filled.push_str(value.unwrap_or("-"));
        rest = after;
    }
    filled.push_str(rest);
    filled
}
