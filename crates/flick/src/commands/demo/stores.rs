//! The stores behind the proxy: threads of this process, or real memcached servers.
//! Promises: free ports of the loopback only; whatever was started is stopped when this is dropped, by its own handle.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flick_load::store::{EmbeddedStore, StoreHandle};
use flick_net::Endpoint;

use crate::failure::Failure;

/// Longest time until a memcached accepts its first connection.
const START_MAX: Duration = Duration::from_secs(5);
/// Attempts to find a free port: another process may bind it first.
const PORT_TRIES_MAX: usize = 5;

/// Kind of the stores to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Threads of this process.
    Embedded,
    /// Debian's memcached.
    Memcached,
}

impl Kind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Embedded => "embedded stores",
            Kind::Memcached => "memcached servers",
        }
    }
}

/// Running stores.
pub struct Stores {
    addresses: Vec<SocketAddr>,
    _embedded: Vec<StoreHandle>,
    processes: Vec<Child>,
}

impl Stores {
    /// Starts `count` stores.
    ///
    /// Errors: no port is free, or memcached is not installed.
    pub fn start(kind: Kind, count: usize) -> Result<Self, Failure> {
        let mut stores = Self { addresses: Vec::new(), _embedded: Vec::new(), processes: Vec::new() };
        for _ in 0..count {
            match kind {
                Kind::Embedded => {
                    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
                    let store = EmbeddedStore::start(any_port)
                        .map_err(|error| Failure::failed(format!("cannot start a store: {error}")))?;
                    stores.addresses.push(store.addr());
                    stores._embedded.push(store);
                }
                Kind::Memcached => stores.start_memcached()?,
            }
        }
        Ok(stores)
    }

    /// Returns the addresses that the stores listen on.
    pub fn addresses(&self) -> Vec<Endpoint> {
        self.addresses.iter().map(|address| Endpoint::Tcp(*address)).collect()
    }

    fn start_memcached(&mut self) -> Result<(), Failure> {
        for _ in 0..PORT_TRIES_MAX {
            let address =
                free_address().map_err(|error| Failure::failed(format!("no port is free: {error}")))?;
            let port = address.port().to_string();
            let mut command = Command::new("memcached");
            command.args(["-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", "1", "-m", "64", "-u", "nobody"]);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let child = child.map_err(|error| {
                Failure::failed(format!(
                    "cannot start memcached: {error}; install it: `apt-get install memcached`"
                ))
            })?;
            self.processes.push(child);
            if self.answers(address) {
                self.addresses.push(address);
                return Ok(());
            }
        }
        Err(Failure::failed("memcached was started but did not answer"))
    }

    /// Whether the store started last takes connections before it ends or the time is over.
    fn answers(&mut self, address: SocketAddr) -> bool {
        let start = Instant::now();
        let child = self.processes.last_mut().expect("a process was started on the line before");
        while start.elapsed() < START_MAX && matches!(child.try_wait(), Ok(None)) {
            if TcpStream::connect(address).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        for child in &mut self.processes {
            // A process that has ended by itself cannot be killed; either way it is gone after `wait`.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A port that was free a moment ago.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}
