//! Starts real Kubernetes components, built from their Go modules, for tests.
