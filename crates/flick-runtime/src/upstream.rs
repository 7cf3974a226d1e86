//! Backends: the connections to them and their health.

pub(crate) mod backend;
pub(crate) mod health;
