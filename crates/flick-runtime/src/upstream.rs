//! Backends: the connections to them and their health.

pub(crate) mod backend;
pub(crate) mod health;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use flick_net::Endpoint;

use self::backend::{Backend, BackendConn, BackendConns, BackendLife};
use self::health::BackendHealth;
use crate::backend_set::BackendSet;
use crate::setup::Setup;

/// Component of the worker. Backends and the connections to them.
pub(crate) struct Upstream {
    pub(crate) conns: BackendConns,
    pub(crate) backends: Vec<Backend>,
    /// The lists of backends of the present iteration.
    pub(crate) backend_set: Arc<BackendSet>,
    /// Removed backends with requests in flight.
    pub(crate) draining: u32,
    /// Connections that a client stalls.
    pub(crate) stalled_count: u32,
    /// Connections that were stalled since the last look; some may have resumed.
    pub(crate) stalled: Vec<u32>,
    /// Connections with requests in their batch buffer, which are sent at the end of the iteration.
    pub(crate) filled: Vec<u32>,
    /// State of the generator of reconnect jitter.
    pub(crate) random: u64,
}

impl Upstream {
    /// Slots for the backends and connections that `setup` allows. None is connected yet.
    pub(crate) fn new(setup: &Setup, seed: u64) -> Self {
        let (conns, backends) = backend_conns_of(setup);
        Self {
            stalled_count: 0,
            stalled: Vec::with_capacity(conns.len()),
            filled: Vec::with_capacity(conns.len()),
            random: seed | 1,
            conns: BackendConns(conns),
            backends,
            backend_set: setup.backend_sets.latest(),
            draining: 0,
        }
    }
}

/// The connections to all backends, none of them dialled yet.
fn backend_conns_of(setup: &Setup) -> (Vec<BackendConn>, Vec<Backend>) {
    let mut backend_conns = Vec::new();
    let mut backends = Vec::new();
    for (index, channel) in setup.slots.iter().copied().enumerate() {
        let shared_conn = backend_conns.len() as u32;
        let is_relay = setup.is_relay;
        let exclusive = setup.protocol_of(channel).exclusive || is_relay;
        let dedicated_max = setup.max_dedicated_connections(channel);
        let dedicated = shared_conn + 1..shared_conn + 1 + dedicated_max;
        let mut spare = Vec::with_capacity(dedicated_max as usize);
        spare.extend(dedicated.clone().rev().filter(|_| exclusive));
        backend_conns.push(BackendConn::new(index as u32, exclusive));
        backend_conns.extend((0..dedicated_max).map(|_| BackendConn::new(index as u32, true)));
        backends.push(Backend {
            life: BackendLife::Free,
            endpoint: NOWHERE,
            channel,
            element: 0,
            shared: shared_conn,
            dedicated,
            failures: 0,
            exclusive,
            is_relay,
            idle: Vec::with_capacity(1 + dedicated_max as usize),
            spare,
            promised: 0,
            pending: 0,
            health: BackendHealth::default(),
            is_up: false,
        });
    }
    (backend_conns, backends)
}

/// Where the backend of a slot is that nobody ever had.
const NOWHERE: Endpoint = Endpoint::Tcp(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));
