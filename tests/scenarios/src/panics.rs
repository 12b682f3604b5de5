//! Panics of any task.
//!
//! A task that panics takes nobody along: its handle is dropped, or says so to somebody who does not ask. Each bed
//! lives on one thread, so what panicked on this thread since it was made panicked in it.

use std::{cell::RefCell, sync::Once};

thread_local! {
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// From now on panics of this thread are remembered; those before are forgotten.
pub(crate) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let text = panic.payload_as_str().unwrap_or("it panicked");
            let place = panic.location().map(ToString::to_string);
            let said = format!("{text} at {}", place.unwrap_or_default());
            SEEN.with_borrow_mut(|seen| seen.push(said));
            before(panic);
        }));
    });
    SEEN.with_borrow_mut(Vec::clear);
}

/// What has panicked.
pub(crate) fn seen() -> Vec<String> {
    SEEN.with_borrow(Clone::clone)
}
