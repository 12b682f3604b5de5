//! What the types promise: the documented manifests read, and the definitions in the chart are these.

mod definitions;
mod manifests;
