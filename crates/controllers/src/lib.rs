//! Reconcilers: API objects become fleet intents, fleet facts become status.
