//! Listing 1 as a service inside the test, so that its counters can be read.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use flick_abi::{Engine, Program};
use flick_compiler::{EngineKind, Input, compile};
use flick_load::store::{EmbeddedStore, StoreHandle};
use flick_net::{Endpoint, IoKind};
use flick_runtime::{Binding, Limits, Platform, PlatformConfig, StatsSnapshot, Totals};

use crate::common::peers::own_address;
use crate::common::{self, wait};

/// Every kernel interface that a test runs over.
pub const IOS: [IoKind; 2] = [IoKind::Epoll, IoKind::Uring];

/// A running service; dropping it stops it.
pub struct Proxy {
    platform: Option<Platform>,
}

/// Listing 1, compiled once for all tests.
fn program() -> (Arc<Program>, Arc<dyn Engine>) {
    static PROGRAM: OnceLock<(Arc<Program>, Arc<dyn Engine>)> = OnceLock::new();
    let (program, engine) = PROGRAM.get_or_init(|| {
        let input = Input::file(&common::root().join(common::PROXY));
        let compiled = input.and_then(|input| compile(&input, EngineKind::Native));
        let executable = compiled.unwrap_or_else(|failure| panic!("Listing 1: {failure}")).into_first();
        (executable.program(), executable.engine)
    });
    (Arc::clone(program), Arc::clone(engine))
}

/// Four embedded stores.
pub fn stores(count: usize) -> (Vec<StoreHandle>, Vec<SocketAddr>) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let stores: Vec<_> =
        (0..count).map(|_| EmbeddedStore::start(any).expect("the loopback has free ports")).collect();
    let addresses = stores.iter().map(StoreHandle::addr).collect();
    (stores, addresses)
}

impl Proxy {
    /// Starts one before these backends, on one worker unless `change` says otherwise, and waits until every
    /// backend that answers is connected.
    pub fn start(backends: &[SocketAddr], io: IoKind, change: impl FnOnce(&mut PlatformConfig)) -> Self {
        let backends: Vec<Endpoint> = backends.iter().copied().map(Endpoint::Tcp).collect();
        Self::start_at(backends, io, change)
    }

    /// As `start`, with backends of any kind.
    pub fn start_at(backends: Vec<Endpoint>, io: IoKind, change: impl FnOnce(&mut PlatformConfig)) -> Self {
        // Not the port of a backend that another test has stopped, to which its proxy connects again.
        let any = Endpoint::Tcp(own_address());
        let mut config = PlatformConfig {
            io,
            limits: Limits { buffer_memory: 256 << 20, ..Limits::default() },
            ..PlatformConfig::new(
                vec![Binding::new("client", vec![any])],
                vec![Binding::new("backends", backends)],
            )
        };
        change(&mut config);
        let (program, engine) = program();
        let platform = Platform::start(program, engine, config).expect("the service starts");
        Self { platform: Some(platform) }
    }

    fn platform(&self) -> &Platform {
        self.platform.as_ref().expect("it runs until it is dropped")
    }

    /// Returns the address that clients connect to, over TCP.
    pub fn address(&self) -> SocketAddr {
        self.endpoints()
            .into_iter()
            .find_map(|endpoint| match endpoint {
                Endpoint::Tcp(address) => Some(address),
                Endpoint::Unix(_) | Endpoint::Shm(_) | Endpoint::Descriptor(_) => None,
            })
            .expect("it listens on TCP")
    }

    /// Returns the endpoints that clients connect to.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.platform().addresses().iter().map(|(_, endpoint)| endpoint.clone()).collect()
    }

    /// All counters.
    pub fn metrics(&self) -> StatsSnapshot {
        self.platform().snapshot()
    }

    /// The platform's counters.
    pub fn totals(&self) -> Totals {
        self.metrics().totals
    }

    /// Waits until the counters are as `fits` says.
    pub fn until(&self, what: &str, fits: impl Fn(&Totals) -> bool) -> Totals {
        let found = wait::within(wait::WAIT_MAX, || Some(self.totals()).filter(&fits));
        found.unwrap_or_else(|| panic!("waited in vain for {what}: {:?}", self.totals()))
    }

    /// Waits until every worker's connection to `backend` is up, or down.
    pub fn until_backend(&self, backend: usize, up: u64) {
        let what = format!("backend {backend} to have {up} connections");
        wait::until(&what, || (self.metrics().backends[backend].workers_connected == up).then_some(()));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let Some(platform) = self.platform.take() else { return };
        platform.stop();
        if std::thread::panicking() {
            // The panic of a worker must not become a second one here.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| platform.wait()));
            return;
        }
        let outcome = platform.wait();
        assert!(outcome.errors.is_empty(), "no worker ends by an error: {:?}", outcome.errors);
    }
}
