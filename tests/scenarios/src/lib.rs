//! Whole-system scenarios.
