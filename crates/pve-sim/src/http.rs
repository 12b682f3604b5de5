//! The way a request takes: decoding, authentication, routing, permission, validation, handler.

mod answer;
mod decode;
mod endpoint;
mod listen;
mod multipart;
mod websocket;

pub use endpoint::{Endpoint, Lost};
pub use listen::{Server, Tls};

/// Any error of a request's body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
