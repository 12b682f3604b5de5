//! The controllers of `infra.virtrigaud.io`.

mod action;
mod apart;
pub(crate) mod clone;
pub(crate) mod container;
mod follow;
pub(crate) mod image;
pub(crate) mod machine;
mod made;
pub(crate) mod provider;
mod refs;
pub(crate) mod restore;
pub(crate) mod schedule;
pub(crate) mod set;
pub(crate) mod snapshot;
pub(crate) mod transfer;
pub(crate) mod translate;
pub(crate) mod usage;

use std::sync::Arc;

use api::vm::UserData;

use crate::{
    context::{Context, namespace},
    kinds::Watches,
};

/// Has every kind looked at again when something it reads has changed.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    follow::wire(watches, context);
    machine::wire(watches, context);
    provider::wire(watches, context);
    clone::wire(watches, context);
    container::wire(watches, context);
    image::wire(watches, context);
    restore::wire(watches, context);
    schedule::wire(watches, context);
    set::wire(watches, context);
    snapshot::wire(watches, context);
    transfer::wire(watches, context);
    usage::wire(watches, context);
}

/// The beginning of a name, to which something is added.
fn shortened(name: &str, most: usize) -> &str {
    let short = name.get(..most).unwrap_or(name);
    // A label neither ends with a dash nor begins with one.
    short.trim_end_matches(['-', '.'])
}

/// Has everything looked at again that reads a Secret of this namespace.
pub(crate) fn secret_changed(context: &Context, place: &str, secret: &str) {
    provider::secret_changed(context, place, secret);
    for machine in context.stores.machines.state() {
        let data = machine.spec.user_data.as_ref();
        let mut read = data.into_iter().flat_map(UserData::secrets);
        if namespace(&*machine) == place && read.any(|name| name == secret) {
            context.queues.machines.push_object(&machine);
        }
    }
    for container in context.stores.containers.state() {
        let read = container.spec.password_secret_ref.as_ref();
        if namespace(&*container) == place && read.is_some_and(|read| read.name == secret) {
            context.queues.containers.push_object(&container);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn names_that_are_cut_short_end_with_what_a_label_may_end_with() {
        assert_eq!(shortened("web.example.org", 4), "web");
        assert_eq!(shortened("web--.1", 6), "web");
        assert_eq!(shortened("web", 4), "web");
    }
}
