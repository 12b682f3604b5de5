//! The controllers of `infra.virtrigaud.io`.

mod action;
pub(crate) mod clone;
pub(crate) mod container;
mod follow;
pub(crate) mod image;
pub(crate) mod machine;
pub(crate) mod provider;
mod refs;
pub(crate) mod schedule;
pub(crate) mod set;
pub(crate) mod snapshot;
pub(crate) mod transfer;
pub(crate) mod translate;
pub(crate) mod usage;

use std::sync::Arc;

use crate::{context::Context, kinds::Watches};

/// Has every kind looked at again when something it reads has changed.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    follow::wire(watches, context);
    machine::wire(watches, context);
    provider::wire(watches, context);
    clone::wire(watches, context);
    container::wire(watches, context);
    image::wire(watches, context);
    schedule::wire(watches, context);
    set::wire(watches, context);
    snapshot::wire(watches, context);
    transfer::wire(watches, context);
    usage::wire(watches, context);
}
