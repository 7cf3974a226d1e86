//! The HTTP server of the admin endpoint.
//! Promises: runs on threads of its own; at most `CONNECTIONS_MAX` connections, each with a timeout, and a new
//! connection replaces one that has sent no request; the file of a Unix socket is removed when its server ends, unless
//! another file has its path by then, and a stale one is replaced; connections are accepted only between `serve` and
//! the end, even if another process shares the socket.
//! Refuses: an address that other machines can reach without a token.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::history::Sample;
use crate::limits::{
    ACCEPT_PAUSE, CONNECTION_STACK_BYTES, CONNECTIONS_MAX, EXCHANGE_TIME_MAX, HISTORY_INTERVAL,
    REQUEST_BYTES_MAX,
};
use crate::peer;
use crate::policy::{AccessPolicy, Tokens};
use crate::request::Request;
use crate::response::{Response, respond};
use crate::state::{BackendEntry, Sessions, StateReport};
use crate::tap::{self, TapLines};

/// A command to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminCommand {
    /// Reload programs and settings.
    Reload,
    /// Perform a hot restart.
    Upgrade,
}

/// Interface of the admin endpoint to the process: its state, its health and its commands.
pub trait StateProvider: Send + Sync {
    /// The current state.
    fn state(&self) -> StateReport;

    /// Adds a sample of each service to the history. Called every `HISTORY_INTERVAL`.
    fn record(&self);

    /// The history of each service, by its name, oldest sample first.
    fn history(&self) -> BTreeMap<String, Vec<Sample>>;

    /// A sample of the current clients.
    fn sessions(&self) -> Sessions;

    /// Whether all workers are alive.
    ///
    /// Errors: which are stalled.
    fn alive(&self) -> Result<(), String>;

    /// Whether the services are ready for clients.
    ///
    /// Errors: why they are not.
    fn ready(&self) -> Result<(), String>;

    /// Executes a command and returns its result.
    ///
    /// Errors: why nothing has changed.
    fn execute(&self, command: AdminCommand) -> Result<String, String>;

    /// Changes tunables of a service, or of every service if none is named. `changes` are names and values, as in the
    /// settings.
    ///
    /// Errors: a name or a value is wrong; nothing has changed.
    fn tune(&self, service: Option<&str>, changes: &[(&str, &str)]) -> Result<(), String>;

    /// Begins to copy what passes through connections.
    ///
    /// Errors: a parameter is wrong, or the service has a tap already.
    fn tap(&self, parameters: &[(&str, &str)]) -> Result<Box<dyn TapLines>, String>;

    /// The backends of all services.
    fn backends(&self) -> Vec<BackendEntry>;

    /// Changes a backend. Returns what has changed, one line for each service and channel that have the backend.
    ///
    /// Errors: no list has the backend, or a parameter is wrong; nothing has changed.
    fn change_backend(&self, parameters: &[(&str, &str)]) -> Result<String, String>;
}

/// Address of an admin endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address and port. A port alone means the loopback.
    Tcp(SocketAddr),
    /// The path of a Unix socket that only its owner may use.
    Unix(PathBuf),
}

impl Address {
    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Self::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!("`{text}` is not an address; write a port, `9900`, an address, `127.0.0.1:9900`, or `unix:PATH`")
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Settings of the admin endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its address.
    pub address: Address,
    /// Its bearer tokens.
    pub tokens: Tokens,
}

/// A running server. Dropping it closes the socket.
pub struct Server {
    address: Address,
    listener: Arc<Listener>,
    /// Controls the accepting thread: a byte starts it, the end of the stream ends it.
    control: Option<UnixStream>,
    policy: Arc<Mutex<AccessPolicy>>,
    connections: Arc<Connections>,
    thread: Option<JoinHandle<()>>,
    /// Whether another process shares the socket, and owns its file.
    is_shared: bool,
    /// Device and inode of the file of a Unix socket. Another file may have its path by the end.
    file_id: Option<(u64, u64)>,
}

impl Server {
    /// Opens the address, or adopts a socket that another process has opened for it. Connections wait until `serve`.
    ///
    /// Errors: the address is not available, or other machines can reach it without a token.
    pub fn open(
        config: Config,
        opened: Option<OwnedFd>,
        provider: Arc<dyn StateProvider>,
    ) -> io::Result<Self> {
        let is_local = config.address.is_local();
        if !is_local && !config.tokens.any() {
            let why =
                format!("other machines can reach {}, so the admin endpoint needs a token", config.address);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let is_shared = opened.is_some();
        let (listener, address) = match opened {
            Some(socket) => Listener::adopt(&config.address, socket)?,
            None => Listener::open(&config.address)?,
        };
        let file_id = file_id(&address);
        listener.set_nonblocking()?;
        let listener = Arc::new(listener);
        let is_tcp = matches!(address, Address::Tcp(_));
        let policy = Arc::new(Mutex::new(AccessPolicy { is_tcp, tokens: config.tokens }));
        let connections = Arc::new(Connections::default());
        let (control, controlled) = UnixStream::pair()?;
        let accept_loop = AcceptLoop {
            listener: Arc::clone(&listener),
            control: controlled,
            connections: Arc::clone(&connections),
            policy: Arc::clone(&policy),
            provider,
        };
        let thread = std::thread::Builder::new().name("flick-admin".to_owned());
        let thread = thread.spawn(move || accept_loop.run())?;
        let (control, thread) = (Some(control), Some(thread));
        Ok(Self { address, listener, control, policy, connections, thread, is_shared, file_id })
    }

    /// Starts accepting connections. The process that opened the socket has stopped.
    pub fn serve(&mut self) {
        self.is_shared = false;
        // This fails if the thread has panicked, which was reported then.
        let _ = self.control.as_ref().map(|mut control| control.write_all(&[0]));
    }

    /// The listening socket, for the new process of a hot restart.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The bearer tokens.
    pub fn tokens(&self) -> Tokens {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).tokens.clone()
    }

    /// Ends this server; another process accepts from the same socket from now on. Open connections continue.
    pub fn hand_over(mut self) -> Responses {
        self.is_shared = true;
        Responses(Arc::clone(&self.connections))
    }

    /// Its address, with the actual port if it is set to 0.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Changes the bearer tokens that are given; the others stay.
    pub fn set_tokens(&self, tokens: Tokens) {
        let known = &mut self.policy.lock().unwrap_or_else(PoisonError::into_inner).tokens;
        known.control = tokens.control.or(known.control.take());
        known.read = tokens.read.or(known.read.take());
    }
}

/// Responses in progress.
pub struct Responses(Arc<Connections>);

impl Responses {
    /// Waits until all requests were answered, at most `time_max`.
    pub fn finish(&self, time_max: Duration) {
        let has_request = |open: &mut VecDeque<Connection>| open.iter().any(|other| other.has_request);
        // A client that does not read its response in time does not get it.
        drop(self.0.closed.wait_timeout_while(self.0.open(), time_max, has_request));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.control.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
        if let Address::Unix(path) = &self.address
            && !self.is_shared
            && self.file_id.is_some_and(|id| file_id(&self.address) == Some(id))
        {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the device and the inode of a Unix socket's file; `None` if there is none, or something else.
fn file_id(address: &Address) -> Option<(u64, u64)> {
    let Address::Unix(path) = address else { return None };
    let file = std::fs::symlink_metadata(path).ok()?;
    file.file_type().is_socket().then(|| (file.dev(), file.ino()))
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn open(address: &Address) -> io::Result<(Self, Address)> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let address = Address::Tcp(listener.local_addr()?);
                Ok((Self::Tcp(listener), address))
            }
            Address::Unix(path) => {
                // Nothing may be there, or a stale socket.
                let is_other = path.symlink_metadata().is_ok() && file_id(address).is_none();
                if is_other || UnixStream::connect(path).is_ok() {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                // Created under another name, so that it never has other permissions at its path.
                let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
                let listener = UnixListener::bind(&temporary)?;
                std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
                std::fs::rename(&temporary, path)?;
                Ok((Self::Unix(listener), address.clone()))
            }
        }
    }

    /// Adopts a socket that listens at this address. A Unix socket without its file is replaced by a new one.
    fn adopt(address: &Address, socket: OwnedFd) -> io::Result<(Self, Address)> {
        match address {
            Address::Tcp(_) => {
                let listener = TcpListener::from(socket);
                let address = Address::Tcp(listener.local_addr()?);
                Ok((Self::Tcp(listener), address))
            }
            Address::Unix(path) => match std::fs::symlink_metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Self::open(address),
                // A process that may no longer see the file may still accept.
                _ => Ok((Self::Unix(UnixListener::from(socket)), address.clone())),
            },
        }
    }

    /// Makes `accept` non-blocking: another process may share the socket and accept first.
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
        }
    }

    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept()?.0),
            Self::Unix(listener) => Box::new(listener.accept()?.0),
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A connection with timeouts.
pub(crate) trait Stream: Read + Write + Send {
    fn set_timeouts(&self, time: Duration) -> io::Result<()>;

    /// A handle to close it from another thread.
    fn closer(&self) -> io::Result<Closer>;

    /// The user id at the other end, if that is on this machine.
    fn user(&self) -> Option<u32>;
}

/// Closes a connection that another thread reads.
pub(crate) enum Closer {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Closer {
    fn close(&self) {
        // This fails if the peer has disconnected.
        let _ = match self {
            Closer::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Closer::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Stream for TcpStream {
    fn set_timeouts(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn closer(&self) -> io::Result<Closer> {
        self.try_clone().map(Closer::Tcp)
    }

    fn user(&self) -> Option<u32> {
        peer::of_tcp(self)
    }
}

impl Stream for UnixStream {
    fn set_timeouts(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn closer(&self) -> io::Result<Closer> {
        self.try_clone().map(Closer::Unix)
    }

    fn user(&self) -> Option<u32> {
        peer::of_unix(self)
    }
}

/// Accepts connections and starts a thread for each.
struct AcceptLoop {
    listener: Arc<Listener>,
    control: UnixStream,
    connections: Arc<Connections>,
    policy: Arc<Mutex<AccessPolicy>>,
    provider: Arc<dyn StateProvider>,
}

impl AcceptLoop {
    fn run(mut self) {
        if self.control.read_exact(&mut [0]).is_err() {
            return;
        }
        let mut recorded = Instant::now();
        self.provider.record();
        while self.wait(HISTORY_INTERVAL.saturating_sub(recorded.elapsed())) {
            if recorded.elapsed() >= HISTORY_INTERVAL {
                recorded = Instant::now();
                self.provider.record();
            }
            match self.listener.accept() {
                Ok(stream) => self.start(stream),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => {
                    tracing::debug!(%error, "the admin endpoint cannot accept a connection");
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Waits for a connection, at most `time_max`; false once the server ends.
    fn wait(&self, time_max: Duration) -> bool {
        let mut both =
            [PollFd::new(&*self.listener, PollFlags::IN), PollFd::new(&self.control, PollFlags::IN)];
        // Shorter than a minute.
        let timeout = Timespec::try_from(time_max).ok();
        match poll(&mut both, timeout.as_ref()) {
            Ok(_) => both[1].revents().is_empty(),
            Err(Errno::INTR) => true,
            Err(error) => {
                tracing::debug!(%error, "the admin endpoint cannot wait for connections");
                std::thread::sleep(ACCEPT_PAUSE);
                true
            }
        }
    }

    fn start(&self, stream: Box<dyn Stream>) {
        let closer = stream.closer().ok();
        let Some(slot) = closer.and_then(|closer| Connections::add(&self.connections, closer)) else {
            return reject(stream);
        };
        let (policy, provider) = (Arc::clone(&self.policy), Arc::clone(&self.provider));
        // If no thread can be started, the slot is released with the closure.
        let _ = std::thread::Builder::new()
            .name("flick-response".to_owned())
            .stack_size(CONNECTION_STACK_BYTES)
            .spawn(move || {
                // An error means that the client has disconnected.
                let _ = exchange(stream, &slot, &policy, &*provider);
            });
    }
}

/// The open connections, oldest first.
#[derive(Default)]
struct Connections {
    open: Mutex<VecDeque<Connection>>,
    /// Signalled when a connection is closed.
    closed: Condvar,
    /// Number of connection threads, including those whose connection was closed.
    threads: AtomicUsize,
    next: AtomicU64,
}

struct Connection {
    id: u64,
    closer: Closer,
    /// Whether it has sent a request.
    has_request: bool,
}

/// A slot among the open connections. Dropping it releases the slot.
struct ConnectionSlot {
    connections: Arc<Connections>,
    id: u64,
}

impl Connections {
    /// Adds a connection. If all slots are in use, closes the oldest connection without a request; `None` if there is
    /// none.
    fn add(connections: &Arc<Connections>, closer: Closer) -> Option<ConnectionSlot> {
        let mut open = connections.open();
        if open.len() >= CONNECTIONS_MAX {
            let idle = open.iter().position(|other| !other.has_request)?;
            if connections.threads.load(Ordering::Relaxed) >= 2 * CONNECTIONS_MAX {
                return None;
            }
            open.remove(idle).iter().for_each(|other| other.closer.close());
        }
        let id = connections.next.fetch_add(1, Ordering::Relaxed);
        connections.threads.fetch_add(1, Ordering::Relaxed);
        open.push_back(Connection { id, closer, has_request: false });
        Some(ConnectionSlot { connections: Arc::clone(connections), id })
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Marks the connection as having sent a request, so that it keeps its slot.
    fn mark_request(&self) {
        let mut open = self.connections.open();
        let own = open.iter_mut().filter(|connection| connection.id == self.id);
        own.for_each(|connection| connection.has_request = true);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.open().retain(|connection| connection.id != self.id);
        self.connections.threads.fetch_sub(1, Ordering::Relaxed);
        self.connections.closed.notify_all();
    }
}

fn reject(mut stream: Box<dyn Stream>) {
    let busy = Response::plain("503 Service Unavailable", "too many connections to the admin endpoint");
    // The response fits into the socket buffer.
    let _ = stream.set_timeouts(ACCEPT_PAUSE).and_then(|()| stream.write_all(&busy.bytes()));
}

/// Reads one request and answers it.
fn exchange(
    mut stream: Box<dyn Stream>,
    slot: &ConnectionSlot,
    policy: &Mutex<AccessPolicy>,
    provider: &dyn StateProvider,
) -> io::Result<()> {
    let start = Instant::now();
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    let request = loop {
        let parsed = Request::parse(&head).map(|request| request.is_some());
        if parsed != Ok(false) {
            break Request::parse(&head);
        }
        if head.len() >= REQUEST_BYTES_MAX {
            let text = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
            return send(stream, &Response::plain("431 Request Header Fields Too Large", &text));
        }
        stream.set_timeouts(time_left(start)?)?;
        let length = stream.read(&mut piece)?;
        if length == 0 {
            return Ok(());
        }
        head.extend_from_slice(&piece[..length]);
    };
    slot.mark_request();
    // The policy at the time of the request applies.
    let policy = policy.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let request = request.map(|request| request.expect("the loop ends with a complete request"));
    if let Ok(request) = &request
        && (request.method, request.path) == ("POST", tap::PATH)
    {
        return match tap::begin(request, &policy, || stream.user(), provider) {
            Ok(lines) => tap::stream(stream, lines),
            Err(refused) => send(stream, &refused),
        };
    }
    let response = respond(request.as_ref().map_err(|error| *error), &policy, || stream.user(), provider);
    send(stream, &response)
}

/// Writes a response within its timeout, however slowly the client reads.
fn send(mut stream: Box<dyn Stream>, response: &Response) -> io::Result<()> {
    let start = Instant::now();
    let bytes = response.bytes();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        stream.set_timeouts(time_left(start)?)?;
        let length = stream.write(rest)?;
        rest = &rest[length..];
    }
    Ok(())
}

/// Time left of an exchange. Errors: none.
fn time_left(start: Instant) -> io::Result<Duration> {
    let left = EXCHANGE_TIME_MAX.saturating_sub(start.elapsed());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
