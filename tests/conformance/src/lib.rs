//! One suite for two API servers: the real kube-apiserver, and ours.
//!
//! A case is a small conversation with a server ([`Session`]). Everything the server says is written
//! down as [`Step`]s: status, the headers that matter, the body, with what must differ between any two
//! runs masked ([`mask`]). The case is held twice, once with each server, and the two protocols are
//! compared step by step. So nobody has to know what the right answer is: the real server says it, and
//! a case that would expect something wrong cannot be written.
//!
//! Where ours differs on purpose, [`differences`] says so with the reason, and nothing else may differ.
//!
//! Cases lie in `tests/it`, one file per subject:
//!
//! ```text
//! case!(a_merge_patch_removes_what_is_null, async |s| {
//!     s.post("create", &s.configmaps(), &configmap("a", &[("x", "1")])).await;
//!     s.merge("patch", &s.configmap("a"), &json!({"data": {"x": null}})).await;
//! });
//! ```
//!
//! With `CONFORMANCE_DUMP=dir` each protocol is written to `dir/<server>/<case>.json` for reading.

mod compare;
pub mod differences;
mod hook;
pub mod mask;
mod ours;
pub mod pair;
mod script;
mod session;
mod tls;
mod watch;

pub use hook::Hook;
pub use pair::{run, run_script};
pub use script::Script;
pub use session::{Reply, Session, Step};
pub use watch::Watch;

/// Defines a test that holds one conversation with each server and compares what they said.
#[macro_export]
macro_rules! case {
    ($name:ident, $case:expr) => {
        #[test]
        fn $name() {
            $crate::run(concat!(module_path!(), "::", stringify!($name)), $case);
        }
    };
}

/// Defines a test that types the same commands at both servers and compares what is printed.
#[macro_export]
macro_rules! script {
    ($name:ident, $script:expr) => {
        #[test]
        fn $name() {
            $crate::run_script(concat!(module_path!(), "::", stringify!($name)), $script);
        }
    };
}
