//! What a platform leaves to the one that takes its place.
//! Promises: an address that both listen on is listened on all the time, at the same sockets, so that no peer that waits in
//! their queues is lost; taking it leaves the old platform as it is.

use std::io;
use std::sync::Arc;

use flick_net::{Endpoint, ListenSockets};

use super::Running;
use crate::shared::Shared;
use crate::state::State;

/// Sockets by the addresses that were asked for, and by service what its workers and its program's code share.
#[derive(Debug, Default)]
pub struct Estate {
    sockets: Vec<(Endpoint, ListenSockets)>,
    services: Vec<(String, Arc<Shared>, Arc<State>)>,
}

impl Estate {
    /// Sockets alone, from another process.
    pub fn of_sockets(sockets: Vec<(Endpoint, ListenSockets)>) -> Self {
        Self { sockets, services: Vec::new() }
    }

    pub(super) fn of(services: &[Running]) -> io::Result<Self> {
        let duplicate = |(at, sockets): &(Endpoint, ListenSockets)| Ok((at.clone(), sockets.duplicate(0)?));
        let of = |service: &Running| {
            (service.name.clone(), Arc::clone(&service.shared), Arc::clone(&service.state))
        };
        let mut sockets = Vec::new();
        for service in services {
            let kept = service.shared.kept();
            sockets.extend(kept.iter().map(duplicate).collect::<io::Result<Vec<_>>>()?);
        }
        Ok(Self { sockets, services: services.iter().map(of).collect() })
    }

    /// The sockets, with the addresses that were asked for.
    pub fn sockets(&self) -> &[(Endpoint, ListenSockets)] {
        &self.sockets
    }

    /// The sockets of an address that was asked for, as many as there are and `workers` at least; new ones if there are none.
    pub(super) fn listen(&mut self, at: &Endpoint, workers: usize) -> io::Result<ListenSockets> {
        match self.sockets.iter().position(|(known, _)| known == at) {
            // Each once: two services may both have asked for any port.
            Some(found) => self.sockets.remove(found).1.duplicate(workers),
            None => ListenSockets::open(at, workers),
        }
    }

    pub(super) fn state_of(&self, service: &str) -> Option<Arc<State>> {
        self.services.iter().find(|(name, ..)| name == service).map(|(_, _, state)| Arc::clone(state))
    }

    pub(super) fn shared_of(&self, service: &str) -> Option<Arc<Shared>> {
        self.services.iter().find(|(name, ..)| name == service).map(|(_, shared, _)| Arc::clone(shared))
    }
}
