//! The routing table: one declaration per endpoint.
//!
//! ```ignore
//! get("/nodes/{node}/status", status)
//!     .perm(all("/nodes/{node}", &["Sys.Audit"]))
//!     .params([...])
//! ```
//!
//! Parameters in the path are declared by it: `{node}` and `{vmid}` with their formats, others
//! as text unless [`Route::params`] says more. A last parameter `{name*}` takes the rest of the
//! path, slashes included. Routes below `/nodes/{node}/` are answered by that node; calls that
//! change something run in the node's daemon, others in its proxy.

mod table;

use http::Method;

use crate::call::Handler;
use crate::permission::Perm;
use crate::schema::{self, Param, Schema};

pub(crate) use table::Table;

/// One endpoint of the API.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) perm: Perm,
    pub(crate) schema: Schema,
    /// Answered by the node in the path.
    pub(crate) on_node: bool,
    /// Runs in the daemon, of which a node has three workers.
    pub(crate) protected: bool,
    /// Writes to the cluster's configuration, which needs quorum.
    pub(crate) writes: bool,
    pub(crate) token: bool,
    pub(crate) upload: bool,
    pub(crate) handler: Handler,
}

/// An endpoint that reads.
pub(crate) fn get(path: &'static str, handler: Handler) -> Route {
    Route::new(Method::GET, path, handler)
}

/// An endpoint that creates or acts.
pub(crate) fn post(path: &'static str, handler: Handler) -> Route {
    Route::new(Method::POST, path, handler)
}

/// An endpoint that changes.
pub(crate) fn put(path: &'static str, handler: Handler) -> Route {
    Route::new(Method::PUT, path, handler)
}

/// An endpoint that removes.
pub(crate) fn delete(path: &'static str, handler: Handler) -> Route {
    Route::new(Method::DELETE, path, handler)
}

impl Route {
    fn new(method: Method, path: &'static str, handler: Handler) -> Self {
        let changes = method != Method::GET;
        let in_path = names(path).map(|name| match name {
            "node" => schema::node(),
            "vmid" => schema::vmid("vmid"),
            name => schema::text(name),
        });
        Self {
            schema: Schema::new(in_path),
            perm: Perm::Root,
            on_node: path.starts_with("/nodes/{node}/"),
            protected: changes,
            writes: changes,
            token: true,
            upload: false,
            method,
            path,
            handler,
        }
    }

    /// Who may call; without it only `root@pam` itself.
    #[must_use]
    pub(crate) fn perm(mut self, perm: Perm) -> Self {
        self.perm = perm;
        self
    }

    /// Declares parameters beside those of the path.
    #[must_use]
    pub(crate) fn params(mut self, params: impl IntoIterator<Item = Param>) -> Self {
        self.schema.extend(params);
        self
    }

    /// A reading call that runs in the daemon.
    #[must_use]
    pub(crate) fn protected(mut self) -> Self {
        self.protected = true;
        self
    }

    /// A changing call that works without quorum.
    #[must_use]
    pub(crate) fn without_quorum(mut self) -> Self {
        self.writes = false;
        self
    }

    /// Answered by whichever node was asked, although the path names another.
    #[must_use]
    pub(crate) fn here(mut self) -> Self {
        self.on_node = false;
        self
    }

    /// Refused to API tokens.
    #[must_use]
    pub(crate) fn no_token(mut self) -> Self {
        self.token = false;
        self
    }

    /// Takes a multipart body with a file.
    #[must_use]
    pub(crate) fn upload(mut self) -> Self {
        self.upload = true;
        self
    }

    /// The name of the route in counts, faults and latencies: `GET /nodes/{node}/status`.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// The names of the parameters in a path pattern, in order.
pub(crate) fn names(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        Some(name.strip_suffix('*').unwrap_or(name))
    })
}
