//! Constant context of a worker: its program, its limits, its name, and the state that the workers of a service share.

use std::sync::Arc;

use crate::setup::Setup;
use crate::shared::Shared;

/// Data that does not change while the worker runs.
///
/// Component of the worker.
pub(crate) struct Context {
    setup: Arc<Setup>,
    shared: Arc<Shared>,
    service: String,
    index: usize,
}

impl Context {
    /// The context of worker `index` of `service`.
    pub(crate) fn new(setup: Arc<Setup>, shared: Arc<Shared>, service: String, index: usize) -> Self {
        Self { setup, shared, service, index }
    }

    /// The program, bound to its channels, and the limits of the service.
    #[inline]
    pub(crate) fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    /// Returns the state that the workers of the service share with each other and with the control thread.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Name of the service.
    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    /// Number of the worker, from 0.
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}
