//! The Kubernetes types, one module per API group: defaults, validation, conversion.
