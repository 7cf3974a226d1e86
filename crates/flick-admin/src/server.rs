//! The socket of the admin side, and the threads that answer on it.
//! Promises: never a worker's time, only its own threads; at most `CONNECTIONS_MAX` at once, each with a deadline, and whoever
//! has asked for nothing yet makes room for who comes; a
//! socket file is removed when its server ends, and one that nobody listens on any more is replaced; nobody is accepted before
//! the server is told to serve, nor behind its end, whoever else holds the socket: who comes meanwhile waits.
//! Refuses: an address that others can reach without a token.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::answer::{Answer, Policy, answer};
use crate::limits::{
    ACCEPT_PAUSE, ANSWER_STACK_BYTES, CONNECTIONS_MAX, EXCHANGE_TIME_MAX, REQUEST_BYTES_MAX,
};
use crate::request;
use crate::state::{Sessions, State};

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Read programs and settings again, and go on with them.
    Reload,
    /// Have a new process take this one's place.
    Upgrade,
}

/// Who says what there is to see.
pub trait Source: Send + Sync {
    /// Everything, now.
    fn state(&self) -> State;

    /// Some of the clients, asked for now.
    fn sessions(&self) -> Sessions;

    /// Whether everything still turns.
    ///
    /// Errors: what does not.
    fn alive(&self) -> Result<(), String>;

    /// Whether new clients should come.
    ///
    /// Errors: why they should not.
    fn ready(&self) -> Result<(), String>;

    /// Does what is asked, and says what came of it.
    ///
    /// Errors: why nothing has changed.
    fn ask(&self, ask: Ask) -> Result<String, String>;
}

/// Where the admin side listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and port; a port alone is one of the loopback.
    Tcp(SocketAddr),
    /// The path of a socket that only its owner may use.
    Unix(PathBuf),
}

impl Address {
    /// Whether nobody but this machine reaches it.
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
            format!("`{text}` is no address; write a port of this machine, `9900`, an address, `127.0.0.1:9900`, or `unix:PATH`")
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

/// How to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where.
    pub address: Address,
    /// What a reader of the state must show.
    pub token: Option<String>,
}

/// The admin side, until it is dropped.
pub struct Server {
    address: Address,
    listener: Arc<Listener>,
    /// A byte through it lets the thread that accepts begin, its end lets it end.
    door: Option<UnixStream>,
    policy: Arc<Mutex<Policy>>,
    places: Arc<Places>,
    thread: Option<JoinHandle<()>>,
    /// Another process listens there, too, and its file is that one's.
    is_shared: bool,
}

impl Server {
    /// Listens from here on, on a socket that somebody else has opened for this address if there is one, and answers when it
    /// is told to serve.
    ///
    /// Errors: the address cannot be had, or is for everybody and there is no token.
    pub fn open(config: Config, opened: Option<OwnedFd>, source: Arc<dyn Source>) -> io::Result<Self> {
        let is_local = config.address.is_local();
        if !is_local && config.token.is_none() {
            let why = format!("{} can be reached by others: that needs a token", config.address);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let is_shared = opened.is_some();
        let (listener, address) = match opened {
            Some(socket) => Listener::adopt(&config.address, socket)?,
            None => Listener::open(&config.address)?,
        };
        listener.set_nonblocking()?;
        let listener = Arc::new(listener);
        let is_tcp = matches!(address, Address::Tcp(_));
        let policy = Policy { is_local_only: is_tcp && config.token.is_none(), token: config.token };
        let policy = Arc::new(Mutex::new(policy));
        let places = Arc::new(Places::default());
        let (door, inside) = UnixStream::pair()?;
        let (accepts, taken, holds) = (Arc::clone(&listener), Arc::clone(&places), Arc::clone(&policy));
        let thread = std::thread::Builder::new()
            .name("flick-admin".to_owned())
            .spawn(move || accept_all(&accepts, &inside, &taken, &holds, &source))?;
        let (door, thread) = (Some(door), Some(thread));
        Ok(Self { address, listener, door, policy, places, thread, is_shared })
    }

    /// Answers from here on; whoever opened the socket does not any more.
    pub fn serve(&mut self) {
        self.is_shared = false;
        // A thread that has panicked reads nothing, and that was reported when it happened.
        let _ = self.door.as_ref().map(|mut door| door.write_all(&[0]));
    }

    /// The socket that listens, for a process that takes this one's place.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// What a reader of the state must show.
    pub fn token(&self) -> Option<String> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).token.clone()
    }

    /// Ends, where another process listens on the same socket from here on. What is being answered goes on.
    pub fn give_away(mut self) -> Answers {
        self.is_shared = true;
        Answers(Arc::clone(&self.places))
    }

    /// Where it listens: with the port that it was given if it asked for any.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Readers of the state must show this one from here on.
    pub fn set_token(&self, token: String) {
        let policy = Policy { token: Some(token), is_local_only: false };
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }
}

/// Answers under way.
pub struct Answers(Arc<Places>);

impl Answers {
    /// Waits until whoever has asked for something has its answer, so long at most.
    pub fn finish(&self, time_max: Duration) {
        let is_heard = |taken: &mut VecDeque<Taken>| taken.iter().any(|other| other.is_heard);
        // Who does not take it in time goes without.
        drop(self.0.given_back.wait_timeout_while(self.0.taken(), time_max, is_heard));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.door.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
        if let (Address::Unix(path), false) = (&self.address, self.is_shared) {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
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
                let is_socket = |found: &std::fs::Metadata| found.file_type().is_socket();
                match std::fs::symlink_metadata(path) {
                    Ok(found) if !is_socket(&found) || UnixStream::connect(path).is_ok() => {
                        return Err(io::ErrorKind::AddrInUse.into());
                    }
                    // Nothing is there, or a socket that nobody listens on.
                    _ => {}
                }
                // Made beside its place, so that it is never there with the rights of others.
                let beside = path.with_extension(format!("{}.tmp", std::process::id()));
                let listener = UnixListener::bind(&beside)?;
                std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600))?;
                std::fs::rename(&beside, path)?;
                Ok((Self::Unix(listener), address.clone()))
            }
        }
    }

    /// A socket that listens at this address already. Where its file has gone nobody finds it, and there is a new one.
    fn adopt(address: &Address, socket: OwnedFd) -> io::Result<(Self, Address)> {
        match address {
            Address::Tcp(_) => {
                let listener = TcpListener::from(socket);
                let address = Address::Tcp(listener.local_addr()?);
                Ok((Self::Tcp(listener), address))
            }
            Address::Unix(path) => match std::fs::symlink_metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Self::open(address),
                // Who may not look any more may still accept.
                _ => Ok((Self::Unix(UnixListener::from(socket)), address.clone())),
            },
        }
    }

    /// Several processes may accept from one socket: whoever comes late must not wait there.
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

/// A connection with deadlines.
pub(crate) trait Stream: Read + Write + Send {
    fn set_deadlines(&self, left: Duration) -> io::Result<()>;

    /// What ends it from another thread.
    fn cutter(&self) -> io::Result<Cutter>;
}

/// Ends a connection that another thread waits on.
pub(crate) enum Cutter {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Cutter {
    fn cut(&self) {
        // It fails where the peer has gone, which is as good.
        let _ = match self {
            Cutter::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Cutter::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Stream for TcpStream {
    fn set_deadlines(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }

    fn cutter(&self) -> io::Result<Cutter> {
        self.try_clone().map(Cutter::Tcp)
    }
}

impl Stream for UnixStream {
    fn set_deadlines(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }

    fn cutter(&self) -> io::Result<Cutter> {
        self.try_clone().map(Cutter::Unix)
    }
}

/// Waits until somebody comes; whether he is let in.
fn waits(listener: &Listener, inside: &UnixStream) -> bool {
    let mut both = [PollFd::new(listener, PollFlags::IN), PollFd::new(inside, PollFlags::IN)];
    match poll(&mut both, None) {
        Ok(_) => both[1].revents().is_empty(),
        Err(Errno::INTR) => true,
        Err(error) => {
            tracing::debug!(%error, "the admin side cannot wait");
            std::thread::sleep(ACCEPT_PAUSE);
            true
        }
    }
}

fn accept_all(
    listener: &Listener,
    mut inside: &UnixStream,
    places: &Arc<Places>,
    policy: &Arc<Mutex<Policy>>,
    source: &Arc<dyn Source>,
) {
    let mut told = [0];
    if inside.read_exact(&mut told).is_err() {
        return;
    }
    while waits(listener, inside) {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                continue;
            }
            Err(error) => {
                tracing::debug!(%error, "the admin side cannot accept");
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        let Some(place) = stream.cutter().ok().and_then(|cutter| Places::take(places, cutter)) else {
            refuse(stream);
            continue;
        };
        let (policy, source) = (Arc::clone(policy), Arc::clone(source));
        // Without a thread the place is given back with the closure.
        let _ = std::thread::Builder::new()
            .name("flick-answer".to_owned())
            .stack_size(ANSWER_STACK_BYTES)
            .spawn(move || {
                // A reader that goes away has had its answer, or does not want it.
                let _ = exchange(stream, &place, &policy, &*source);
            });
    }
}

/// Who is connected, in the order of coming.
#[derive(Default)]
struct Places {
    taken: Mutex<VecDeque<Taken>>,
    /// Called when one is given back.
    given_back: Condvar,
    /// Threads that answer, of those that were cut off too.
    threads: AtomicUsize,
    next: AtomicU64,
}

struct Taken {
    id: u64,
    cutter: Cutter,
    /// It has asked for something.
    is_heard: bool,
}

/// A place among the connections, given back also by a panic.
struct Place {
    of: Arc<Places>,
    id: u64,
}

impl Places {
    /// A place for who has come, if need be that of who has been silent for longest; none while all have asked for something.
    fn take(places: &Arc<Places>, cutter: Cutter) -> Option<Place> {
        let mut taken = places.taken();
        if taken.len() >= CONNECTIONS_MAX {
            let silent = taken.iter().position(|other| !other.is_heard)?;
            if places.threads.load(Ordering::Relaxed) >= 2 * CONNECTIONS_MAX {
                return None;
            }
            taken.remove(silent).iter().for_each(|other| other.cutter.cut());
        }
        let id = places.next.fetch_add(1, Ordering::Relaxed);
        places.threads.fetch_add(1, Ordering::Relaxed);
        taken.push_back(Taken { id, cutter, is_heard: false });
        Some(Place { of: Arc::clone(places), id })
    }

    fn taken(&self) -> MutexGuard<'_, VecDeque<Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// It has asked for something, and keeps its place until it is answered.
    fn keep(&self) {
        self.of
            .taken()
            .iter_mut()
            .filter(|taken| taken.id == self.id)
            .for_each(|taken| taken.is_heard = true);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.taken().retain(|taken| taken.id != self.id);
        self.of.threads.fetch_sub(1, Ordering::Relaxed);
        self.of.given_back.notify_all();
    }
}

fn refuse(mut stream: Box<dyn Stream>) {
    let busy = Answer::plain("503 Service Unavailable", "too many readers at once");
    // Short enough for the socket's buffer; who does not take it goes without.
    let _ = stream.set_deadlines(ACCEPT_PAUSE).and_then(|()| stream.write_all(&busy.bytes()));
}

/// Reads one request and answers it.
fn exchange(
    mut stream: Box<dyn Stream>,
    place: &Place,
    policy: &Mutex<Policy>,
    source: &dyn Source,
) -> io::Result<()> {
    let start = Instant::now();
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    let end = loop {
        if let Some(end) = request::head_end(&head) {
            break end;
        }
        if head.len() >= REQUEST_BYTES_MAX {
            let text = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
            return send(stream, &Answer::plain("431 Request Header Fields Too Large", &text));
        }
        let left = EXCHANGE_TIME_MAX.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_deadlines(left)?;
        let length = stream.read(&mut piece)?;
        if length == 0 {
            return Ok(());
        }
        head.extend_from_slice(&piece[..length]);
    };
    place.keep();
    // What holds when it has asked.
    let policy = policy.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let answer = answer(request::parse(&head[..end]).as_ref(), &policy, source);
    send(stream, &answer)
}

/// Writes an answer within its time, however slowly it is read.
fn send(mut stream: Box<dyn Stream>, answer: &Answer) -> io::Result<()> {
    let start = Instant::now();
    let bytes = answer.bytes();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let left = EXCHANGE_TIME_MAX.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_deadlines(left)?;
        let length = stream.write(rest)?;
        rest = &rest[length..];
    }
    Ok(())
}
