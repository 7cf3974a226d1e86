//! One process takes another's place: a new binary, or the same one, with the listening sockets and clients of the old.
//! Promises: the old process serves until the new one says that it is ready, and goes on if it never does; it waits for it no
//! longer than until it is told to end; no listening socket is ever closed meanwhile, nor that of the admin side; a client
//! that changes hands notices nothing.
//! Refuses: dictionaries, which go by their snapshots, if they have any; the directory that these are in changes hands while
//! it is held, so that nobody else gets it meanwhile.
//!
//! What is said, each with a descriptor where it is about one: from the old, `listen ADDRESS`, `state`, `admin ADDRESS`,
//! `token TOKEN` and `go`; from the new, `ready` or `failed WHY`; from the old again `client WORKER SERVICE`, until it ends.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flick_admin::{Address, Server};
use flick_net::passage::{Passage, Passed};
use flick_net::{Endpoint, ListenSocket, ListenSockets};
use flick_runtime::{Estate, Handed, Heir};

use rustix::process::{Pid, Signal, kill_process};

use crate::commands::run::admin;
use crate::failure::Failure;
use crate::holding::Held;
use crate::supervise::Call;

/// Set in a process whose standard input is the way to the process whose place it takes.
pub const VARIABLE: &str = "FLICK_TAKEOVER";
/// How long a new process may take until it is ready.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// How long what ends the old one may stay unheard meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the process before leaves.
pub struct Legacy {
    /// Listening sockets.
    pub estate: Estate,
    /// Directories that are held.
    pub held: Held,
    /// The admin side.
    pub admin: admin::Inherited,
}

/// What this process leaves.
pub struct Bequest<'a> {
    /// Listening sockets.
    pub estate: &'a Estate,
    /// Directories that are held.
    pub held: &'a Held,
    /// The admin side, where it was asked for.
    pub admin: Option<(&'a Address, &'a Server)>,
}

/// The new side: the process whose place this one takes.
pub struct Predecessor {
    passage: Passage,
    /// Its listening sockets, whose files stay its own until this process is ready.
    sockets: Vec<ListenSocket>,
}

impl Predecessor {
    /// The process that started this one to take its place, if one did, with what it leaves; without one, the sockets that
    /// systemd has opened.
    ///
    /// Errors: what comes is not what should.
    pub fn meet() -> Result<(Option<Self>, Legacy), Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed(format!("cannot take listening sockets over: {}", said(&error)))
        };
        if std::env::var_os(VARIABLE).is_none() {
            let inherited = flick_net::passage::inherited().map_err(failed)?;
            let asked = inherited.into_iter().map(|socket| (socket.local_addr().clone(), socket));
            let (held, admin) = (Held::default(), admin::Inherited::default());
            return Ok((None, Legacy { estate: estate(asked, Vec::new()), held, admin }));
        }
        let passage = Passage::of(std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
        passage.set_patience(Some(READY_TIME_MAX)).map_err(failed)?;
        let (mut sockets, mut shared, mut directories) = (Vec::new(), Vec::new(), Vec::new());
        let (mut admin, mut clients) = (admin::Inherited::default(), Vec::new());
        loop {
            let passed = passage.receive().map_err(failed)?;
            match passed.as_ref().map(|passed| passed.text.split_once(' ').unwrap_or((&passed.text, ""))) {
                Some(("go", _)) => break,
                Some(("state", _)) => directories.extend(passed.and_then(|passed| passed.fd)),
                Some(("clients", text)) => {
                    let counted = text
                        .split_once(' ')
                        .and_then(|(count, service)| Some((service, count.parse().ok()?)));
                    clients.extend(counted.map(|(service, count): (&str, u32)| (service.to_owned(), count)));
                }
                Some(("token", token)) => admin.token = Some(token.to_owned()),
                Some(("admin", at)) => {
                    let at: Result<Address, _> = at.parse();
                    let fd = passed.and_then(|passed| passed.fd);
                    let (Ok(at), Some(fd)) = (at, fd) else {
                        return Err(Failure::failed("the admin side's socket came without its address"));
                    };
                    admin.socket = Some((at, fd));
                }
                Some(("listen", at)) => {
                    let at: Result<Endpoint, _> = at.parse();
                    let fd = passed.and_then(|passed| passed.fd);
                    let (Ok(at), Some(fd)) = (at, fd) else {
                        return Err(Failure::failed("a listening socket came without its address"));
                    };
                    let socket = ListenSocket::adopt(fd).map_err(failed)?;
                    socket.give_away();
                    shared.push(socket.duplicate().map_err(failed)?);
                    sockets.push((at, socket));
                }
                // A later version may leave what this one does not know.
                Some(_) => {}
                None => return Err(Failure::failed("the process whose place this one takes has gone")),
            }
        }
        let (estate, held) = (estate(sockets, clients), Held::inherited(directories));
        Ok((Some(Self { passage, sockets: shared }), Legacy { estate, held, admin }))
    }

    /// Tells that this process does not start, and why. The old one goes on.
    pub fn refuse(&self, failure: &Failure) {
        // It notices our end in any case.
        let _ = self.passage.send(&format!("failed {}", failure.text()), None);
    }

    /// Tells that this process serves, and takes the other's clients in from here on.
    ///
    /// Errors: the system's.
    pub fn succeed(self, calls: Sender<Call>) -> std::io::Result<()> {
        let Self { passage, sockets } = self;
        passage.set_patience(None)?;
        passage.send("ready", None)?;
        sockets.iter().for_each(ListenSocket::take_over);
        drop(sockets);
        let take_in = move || {
            while let Ok(Some(Passed { text, fd })) = passage.receive() {
                let mut words = text.splitn(3, ' ');
                let (kind, worker, service) = (words.next(), words.next(), words.next());
                let worker = worker.and_then(|worker| worker.parse().ok());
                let (Some("client"), Some(worker), Some(service), Some(socket)) = (kind, worker, service, fd)
                else {
                    tracing::warn!(text, "the process before this one says what it should not");
                    return;
                };
                let call = Call::Client { service: service.to_owned(), worker, socket };
                if calls.send(call).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("takeover".to_owned()).spawn(take_in)?;
        Ok(())
    }
}

/// Sockets by the addresses that were asked for, in their order.
fn estate(
    sockets: impl IntoIterator<Item = (Endpoint, ListenSocket)>,
    clients: Vec<(String, u32)>,
) -> Estate {
    let mut found: Vec<(Endpoint, Vec<ListenSocket>)> = Vec::new();
    for (at, socket) in sockets {
        // Two services may have asked for any port: theirs are told apart by the one they got.
        let is_same = |(known, of): &&mut (Endpoint, Vec<ListenSocket>)| {
            *known == at && of.first().is_none_or(|first| first.local_addr() == socket.local_addr())
        };
        match found.iter_mut().find(is_same) {
            Some((_, of)) => of.push(socket),
            None => found.push((at, vec![socket])),
        }
    }
    let sockets = found.into_iter().map(|(at, sockets)| (at, ListenSockets::of(sockets)));
    Estate::of_sockets(sockets.collect(), clients)
}

/// The old side: the process that takes this one's place and is ready.
pub struct Successor {
    pid: u32,
    clients: Sender<Option<(String, OwnedFd)>>,
    sends: JoinHandle<()>,
}

impl Successor {
    /// Starts `program` with `arguments`, gives it what this process leaves, and waits until it is ready, or until this one is
    /// to end.
    ///
    /// Errors: why there is none; nothing has changed then.
    pub fn start(
        program: &PathBuf,
        arguments: &[std::ffi::OsString],
        bequest: &Bequest<'_>,
        is_to_end: &mut dyn FnMut() -> bool,
    ) -> Result<Self, String> {
        let failed = |doing: &str, error: std::io::Error| format!("cannot {doing}: {error}");
        let (near, far) = Passage::pair().map_err(|error| failed("make a way to a new process", error))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::from(far.into_fd())).env(VARIABLE, "1");
        command.env_remove("LISTEN_PID").env_remove("LISTEN_FDS");
        let child =
            command.spawn().map_err(|error| failed(&format!("start {}", program.display()), error))?;
        // The child's end is closed here with the command, so that its end is noticed.
        drop(command);
        let pid = child.id();
        match offer(&near, bequest, is_to_end) {
            Ok(()) => {}
            Err(why) => {
                give_up(child);
                return Err(why);
            }
        }
        let (clients, waiting) = mpsc::channel::<Option<(String, OwnedFd)>>();
        let send = move || {
            while let Ok(Some((text, socket))) = waiting.recv() {
                if near.send(&text, Some(socket.as_fd())).is_err() {
                    return;
                }
            }
        };
        match std::thread::Builder::new().name("successor".to_owned()).spawn(send) {
            Ok(sends) => Ok(Self { pid, clients, sends }),
            Err(error) => {
                give_up(child);
                Err(failed("start a thread", error))
            }
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Passes a signal on to it. Nobody else has its number: it is our child, and nobody waits for it.
    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
            // Who has gone needs none.
            let _ = kill_process(pid, signal);
        }
    }

    /// Where the clients of a service go.
    pub fn heir_of(&self, service: &str) -> Arc<dyn Heir> {
        Arc::new(Abroad { service: service.to_owned(), clients: Mutex::new(self.clients.clone()) })
    }

    /// Waits until it has all that was left for it.
    pub fn finish(self) {
        // Who has gone needs nothing more.
        let _ = self.clients.send(None);
        let _ = self.sends.join();
    }
}

/// Offers what this process leaves, and waits for the answer.
fn offer(
    passage: &Passage,
    bequest: &Bequest<'_>,
    is_to_end: &mut dyn FnMut() -> bool,
) -> Result<(), String> {
    let gone = |error: std::io::Error| format!("the new process has gone: {error}");
    passage.set_patience(Some(LOOK_EVERY)).map_err(gone)?;
    let begun = Instant::now();
    let mut wait = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock if is_to_end() => {
            Err("this one is told to end, and waits for the new process no longer".to_owned())
        }
        ErrorKind::WouldBlock if begun.elapsed() < READY_TIME_MAX => Ok(()),
        ErrorKind::WouldBlock => Err(format!("the new process was not ready: {}", said(&error))),
        _ => Err(gone(error)),
    };
    let mut send = |text: &str, fd: Option<BorrowedFd<'_>>| {
        while let Err(error) = passage.send(text, fd) {
            wait(error)?;
        }
        Ok::<(), String>(())
    };
    for (at, sockets) in bequest.estate.sockets() {
        for socket in sockets.iter() {
            send(&format!("listen {at}"), Some(socket.as_fd()))?;
        }
    }
    for directory in bequest.held.directories() {
        send("state", Some(directory))?;
    }
    if let Some((at, admin)) = bequest.admin {
        send(&format!("admin {at}"), Some(admin.socket()))?;
        if let Some(token) = admin.token() {
            send(&format!("token {token}"), None)?;
        }
    }
    for (service, count) in bequest.estate.clients() {
        send(&format!("clients {count} {service}"), None)?;
    }
    send("go", None)?;
    let answer = loop {
        match passage.receive() {
            Ok(answer) => break answer,
            Err(error) => wait(error)?,
        }
    };
    match answer {
        Some(passed) if passed.text == "ready" => passage.set_patience(None).map_err(gone),
        Some(passed) => Err(passed.text.strip_prefix("failed ").unwrap_or(&passed.text).to_owned()),
        None => Err("the new process ended before it was ready; its log says why".to_owned()),
    }
}

/// The system reports a time-out as an operation that would block.
fn said(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock => format!("it said nothing for {READY_TIME_MAX:?}"),
        _ => error.to_string(),
    }
}

/// Ends a process that is not wanted after all.
fn give_up(mut child: Child) {
    // One that has ended already cannot be killed; after `wait` it is gone in any case.
    let _ = child.kill();
    let _ = child.wait();
}

/// A service of the process that takes our place.
#[derive(Debug)]
struct Abroad {
    service: String,
    clients: Mutex<Sender<Option<(String, OwnedFd)>>>,
}

impl Heir for Abroad {
    fn take(&self, worker: usize, client: Handed) -> Result<(), Handed> {
        let Handed { socket, peer, is_counted } = client;
        let text = format!("client {worker} {}", self.service);
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.send(Some((text, socket))).map_err(|unsent| match unsent.0 {
            Some((_, socket)) => Handed { socket, peer, is_counted },
            None => panic!("what comes back is what was sent"),
        })
    }
}
