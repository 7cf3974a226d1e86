//! Handoff: the sockets and the state that a platform hands over to its successor, and the number of its clients.
//! Promises: an address that both listen on is listened on all the time, with the same sockets, so that no peer in
//! their backlogs is lost; the handoff does not change the old platform.

use std::io;
use std::sync::Arc;

use flick_net::{Endpoint, ListenSockets};

use super::RunningService;
use crate::observe::outlier::UnhealthyBackend;
use crate::shared::Shared;
use crate::state::State;

/// Sockets by the addresses that were asked for, and by service what its workers and its program's code share.
#[derive(Debug, Default)]
pub struct Handoff {
    sockets: Vec<(Endpoint, ListenSockets)>,
    services: Vec<OldService>,
    clients: Vec<(String, u32)>,
}

/// State that a service leaves to its successor.
#[derive(Debug)]
struct OldService {
    name: String,
    shared: Arc<Shared>,
    state: Arc<State>,
    /// By worker.
    health_problems: Vec<Vec<UnhealthyBackend>>,
}

impl Handoff {
    /// Sockets, and by name of the service how many clients it has, from another process.
    pub fn of_sockets(sockets: Vec<(Endpoint, ListenSockets)>, clients: Vec<(String, u32)>) -> Self {
        Self { sockets, services: Vec::new(), clients }
    }

    /// Adds sockets that were opened beforehand.
    pub fn add_sockets(&mut self, sockets: Vec<(Endpoint, ListenSockets)>) {
        self.sockets.extend(sockets);
    }

    pub(super) fn of(services: &[RunningService]) -> io::Result<Self> {
        let duplicate = |(at, sockets): &(Endpoint, ListenSockets)| Ok((at.clone(), sockets.duplicate(0)?));
        let of = |service: &RunningService| OldService {
            name: service.name.clone(),
            shared: Arc::clone(&service.shared),
            state: Arc::clone(&service.state),
            health_problems: service.health_problems(),
        };
        let mut sockets = Vec::new();
        for service in services {
            let kept = service.shared.kept();
            sockets.extend(kept.iter().map(duplicate).collect::<io::Result<Vec<_>>>()?);
        }
        let clients =
            services.iter().map(|service| (service.name.clone(), service.shared.session_count().sessions()));
        Ok(Self { sockets, services: services.iter().map(of).collect(), clients: clients.collect() })
    }

    /// Returns the number of clients of each service, by its name.
    pub fn clients(&self) -> &[(String, u32)] {
        &self.clients
    }

    /// Returns the number of clients that may be handed over to the service of this name: the clients of all services,
    /// if none had this name before.
    pub(super) fn clients_of(&self, service: &str) -> u32 {
        let known = self.clients.iter().find(|(name, _)| name == service);
        known.map_or_else(|| self.clients.iter().map(|(_, count)| count).sum(), |(_, count)| *count)
    }

    /// The sockets, with the addresses that were asked for.
    pub fn sockets(&self) -> &[(Endpoint, ListenSockets)] {
        &self.sockets
    }

    /// The sockets of an address: those that were handed over, and new ones until there are `workers`.
    pub(super) fn listen(&mut self, at: &Endpoint, workers: usize) -> io::Result<ListenSockets> {
        match self.sockets.iter().position(|(known, _)| known == at) {
            // Each once: two services may both have asked for any port.
            Some(found) => self.sockets.remove(found).1.duplicate(workers),
            None => ListenSockets::open(at, workers),
        }
    }

    pub(super) fn state_of(&self, service: &str) -> Option<Arc<State>> {
        self.left_by(service).map(|left| Arc::clone(&left.state))
    }

    /// Returns the shared state for the workers of a service, which may be the successor of another service.
    pub(super) fn shared_for(&self, service: &str, workers: usize) -> Shared {
        match self.left_by(service) {
            Some(left) => Shared::new(workers, Some(&left.shared)).knowing(left.health_problems.clone()),
            None => Shared::new(workers, None),
        }
    }

    fn left_by(&self, service: &str) -> Option<&OldService> {
        self.services.iter().find(|left| left.name == service)
    }
}
