//! One suite of Kubernetes API behaviour, run against the embedded server and the real one.
