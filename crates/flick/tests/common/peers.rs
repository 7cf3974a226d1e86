//! Real peers: servers of memcached and Redis, and the programs that come with them.
//! Promises: a program that is missing fails the test and names the Debian package it comes in.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use super::process::OwnedChild;
use super::wait;

/// Attempts to find a free port: another process may bind it first.
const PORT_TRIES_MAX: usize = 5;

/// A real server that a test has started and that ends with it.
pub struct Server {
    child: OwnedChild,
    start_at: fn(SocketAddr) -> Option<Self>,
    /// Address that it listens on.
    pub address: SocketAddr,
}

impl Server {
    fn start_on(address: impl Fn() -> SocketAddr, start_at: fn(SocketAddr) -> Option<Self>) -> Self {
        (0..PORT_TRIES_MAX).find_map(|_| start_at(address())).expect("a server finds a free port")
    }

    /// Starts `command`; `None` if it ends at once, because the port is taken.
    fn launch(
        command: &mut Command,
        package: &str,
        address: SocketAddr,
        start_at: fn(SocketAddr) -> Option<Self>,
    ) -> Option<Self> {
        let mut child = OwnedChild(spawn(command, package));
        let answers =
            wait::until("a server to answer or end", || match child.try_wait().expect("our own child") {
                Some(_) => Some(false),
                None => TcpStream::connect(address).is_ok().then_some(true),
            });
        answers.then_some(Self { child, start_at, address })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it as `kill -9` does.
    pub fn kill(mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }

    /// Kills it and starts another one at its address.
    pub fn replace(self) -> Self {
        let (address, start_at) = (self.address, self.start_at);
        self.kill();
        wait::until("its port to be free", || start_at(address))
    }
}

/// Starts servers of memcached.
pub struct Memcached;

impl Memcached {
    /// Starts one on a free port.
    pub fn start() -> Server {
        Server::start_on(free_address, Self::start_at)
    }

    /// Starts one on this port; `None` if the port is taken.
    pub fn start_at(address: SocketAddr) -> Option<Server> {
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let args = ["-l", &ip, "-p", &port, "-U", "0", "-t", "1", "-m", "256", "-c", "4096", "-u", "nobody"];
        Server::launch(Command::new("memcached").args(args), "memcached", address, Self::start_at)
    }

    /// Starts several, each on an address that stays its own when it is killed.
    pub fn several(count: usize) -> Vec<Server> {
        (0..count).map(|_| Server::start_on(own_address, Self::start_at)).collect()
    }
}

/// Starts servers of Redis that keep nothing on disk.
pub struct Redis;

impl Redis {
    /// Starts one on a free port.
    pub fn start() -> Server {
        Server::start_on(free_address, Self::start_at)
    }

    /// As [`Memcached::start_at`].
    pub fn start_at(address: SocketAddr) -> Option<Server> {
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let args = ["--bind", &ip, "--port", &port, "--save", "", "--appendonly", "no"];
        Server::launch(Command::new("redis-server").args(args), "redis-server", address, Self::start_at)
    }

    /// As [`Memcached::several`].
    pub fn several(count: usize) -> Vec<Server> {
        (0..count).map(|_| Server::start_on(own_address, Self::start_at)).collect()
    }
}

/// Addresses of several.
pub fn addresses(servers: &[Server]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.address).collect()
}

/// A port of a loopback address that no other server of this process has: the port of a server that was killed stays
/// free until the server is started again.
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    free_address_of(Ipv4Addr::new(127, 1 + high, low, 1))
}

/// A port that was free a moment ago.
pub fn free_address() -> SocketAddr {
    free_address_of(Ipv4Addr::LOCALHOST)
}

/// Ports below the range of outgoing connections, which could take one before the test listens; each is given once
/// until all were, so that no test of this process gets the port of another.
fn free_address_of(ip: Ipv4Addr) -> SocketAddr {
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Processes that run side by side begin at different ports: a prime stride spreads neighbouring process ids.
    let start = std::process::id().wrapping_mul(1_009);
    for _ in 0..COUNT {
        let offset = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("FIRST + COUNT is a port");
        if TcpListener::bind((ip, port)).is_ok() {
            return SocketAddr::from((ip, port));
        }
    }
    panic!("every port from {FIRST} to {} is taken", FIRST + COUNT - 1);
}

/// Starts a program without output. Panics naming its package when it is missing.
pub fn spawn(command: &mut Command, package: &str) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| missing(command, package, &error))
}

/// Runs a program to its end. Panics naming its package when it is missing.
pub fn output(command: &mut Command, package: &str) -> Output {
    command.stdin(Stdio::null());
    command.output().unwrap_or_else(|error| missing(command, package, &error))
}

fn missing<T>(command: &Command, package: &str, error: &std::io::Error) -> T {
    let program = command.get_program().to_string_lossy();
    if error.kind() == ErrorKind::NotFound {
        panic!(
            "`{program}` is not installed; it is in the Debian package {package}: `apt-get install {package}`"
        );
    }
    panic!("cannot start `{program}`: {error}");
}

/// Sends a signal to a process that the test has started.
pub fn signal(pid: u32, name: &str) {
    let status =
        Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().expect("`kill` exists");
    assert!(status.success(), "kill -{name} {pid}: {status}");
}
