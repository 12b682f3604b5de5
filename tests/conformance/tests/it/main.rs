//! Our API server against the real one, subject by subject.

mod access;
mod apply;
mod conversions;
mod definitions;
mod dry_run;
mod fixtures;
mod front;
mod helm;
mod kinds;
mod kubectl;
mod lifecycles;
mod lists;
mod meta;
mod patches;
mod policies;
mod random;
mod rules;
mod schemas;
mod verbs;
mod watches;
mod webhooks;
