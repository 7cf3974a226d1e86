//! What a worker reads and never changes: its program, its limits, its name, and what the workers of a service share.

use std::sync::Arc;

use crate::setup::Setup;
use crate::shared::Shared;

/// Component of the worker. What does not change while the worker runs.
pub(crate) struct Context {
    /// The program, bound to its channels, and the limits of the service.
    pub(crate) setup: Arc<Setup>,
    /// What the workers of the service share with each other and with the control thread.
    pub(crate) shared: Arc<Shared>,
    /// Name of the service.
    pub(crate) service: String,
    /// Number of the worker, from 0.
    pub(crate) index: usize,
}
