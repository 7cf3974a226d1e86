//! Hot restart: a new process takes over the listening sockets and clients of the old one.
//! Promises: the old process serves until the new one is ready, and goes on serving if it never is; it stops waiting
//! when it receives a signal to exit; no listening socket is closed, nor that of the admin endpoint; clients notice
//! nothing, also where a new process is replaced before the old one has exited: it passes clients on until then. A new
//! process that ends first leaves the remaining clients to the old one.
//! Not here: dictionaries, which the new process reads from their snapshots. It inherits the lock of their directory.
//!
//! The protocol, with a file descriptor behind each `+`:
//!
//! | from | message | meaning |
//! |---|---|---|
//! | old | `listen ADDRESS` + | a listening socket |
//! | old | `state` + | a locked state directory |
//! | old | `admin ADDRESS` +, `token TOKEN`, `read-token TOKEN` | the admin endpoint |
//! | old | `backend JSON` | what an operator has changed of a backend |
//! | old | `clients COUNT SERVICE` | number of clients to come |
//! | old | `go` | that was all |
//! | new | `ready` or `failed REASON` | whether it serves from now on |
//! | old | `client WORKER SERVICE` + | a client, until the old process exits |
//! | new | `drain` | it ends: the old process keeps the remaining clients, and drains them |
//! | old | `end` | that was the last client |

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flick_admin::{Address, Server, Tokens};
use flick_net::fd_channel::{FdChannel, FdMessage};
use flick_net::{Endpoint, ListenSocket, ListenSockets};
use flick_runtime::{HandedConn, Handoff, Successor};

use rustix::process::{Pid, Signal, kill_process};

use crate::commands::run::admin;
use crate::failure::Failure;
use crate::launcher::Launcher;
use crate::settings::deprecated;
use crate::state_dir_lock::StateDirLocks;
use crate::supervise::ControlMessage;
use crate::sys;

/// Environment variable of a new process whose standard input is the channel to the old one.
pub const VARIABLE: &str = "FLICK_HOT_RESTART";
/// Longest time until a new process is ready.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// Interval at which the old process checks, while it waits, whether it must exit.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Whether this process was started for a hot restart.
pub fn is_new_process() -> bool {
    [VARIABLE, deprecated::HOT_RESTART_VARIABLE].iter().any(|name| std::env::var_os(name).is_some())
}

/// Resources that this process inherits.
pub struct InheritedResources {
    /// Listening sockets.
    pub handoff: Handoff,
    /// Locks on state directories.
    pub locks: StateDirLocks,
    /// The admin endpoint.
    pub admin: admin::InheritedAdmin,
    /// The operator's changes of backends, one line for each.
    pub overrides: Vec<String>,
}

/// Resources that this process hands to the new one.
pub struct HandedResources<'a> {
    /// Listening sockets.
    pub handoff: &'a Handoff,
    /// Locks on state directories.
    pub locks: &'a StateDirLocks,
    /// The admin endpoint, with the address as set.
    pub admin: Option<(&'a Address, &'a Server)>,
    /// The operator's changes of backends, one line for each.
    pub overrides: Vec<String>,
}

/// The old process, seen from the new one that starts.
pub struct OldProcess {
    channel: FdChannel,
    /// Its listening sockets. It removes the files of Unix sockets unless this process becomes ready.
    sockets: Vec<ListenSocket>,
}

impl OldProcess {
    /// Receives the resources of the process that started this one for a hot restart. Without such a process, the
    /// sockets that systemd has opened.
    ///
    /// Errors: a message does not follow the protocol.
    pub fn receive() -> Result<(Option<Self>, InheritedResources), Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed(format!("cannot inherit listening sockets: {}", describe(&error)))
        };
        if !is_new_process() {
            let inherited = flick_net::listen::inherited_sockets().map_err(failed)?;
            let sockets = inherited.into_iter().map(|socket| (socket.local_addr().clone(), socket));
            let (locks, admin) = (StateDirLocks::default(), admin::InheritedAdmin::default());
            let (handoff, overrides) = (handoff(sockets, Vec::new()), Vec::new());
            return Ok((None, InheritedResources { handoff, locks, admin, overrides }));
        }
        // A copy that stays open would hide from the old process that this one receives nothing more.
        let channel = FdChannel::from_fd(sys::take_stdin().map_err(failed)?);
        channel.set_timeout(Some(READY_TIME_MAX)).map_err(failed)?;
        let (mut sockets, mut shared, mut directories) = (Vec::new(), Vec::new(), Vec::new());
        let (mut admin, mut clients) = (admin::InheritedAdmin::default(), Vec::new());
        let mut overrides = Vec::new();
        loop {
            let passed = channel.receive().map_err(failed)?;
            match passed.as_ref().map(|passed| passed.text.split_once(' ').unwrap_or((&passed.text, ""))) {
                Some(("go", _)) => break,
                Some(("state", _)) => directories.extend(passed.and_then(|passed| passed.fd)),
                Some(("clients", text)) => {
                    let counted = text
                        .split_once(' ')
                        .and_then(|(count, service)| Some((service, count.parse().ok()?)));
                    clients.extend(counted.map(|(service, count): (&str, u32)| (service.to_owned(), count)));
                }
                Some(("token", token)) => admin.tokens.control = Some(token.to_owned()),
                Some(("backend", line)) => overrides.push(line.to_owned()),
                Some(("read-token", token)) => admin.tokens.read = Some(token.to_owned()),
                Some(("admin", at)) => {
                    let at: Result<Address, _> = at.parse();
                    let fd = passed.and_then(|passed| passed.fd);
                    let (Ok(at), Some(fd)) = (at, fd) else {
                        return Err(Failure::failed("the socket of the admin endpoint has no address"));
                    };
                    admin.socket = Some((at, fd));
                }
                Some(("listen", at)) => {
                    let at: Result<Endpoint, _> = at.parse();
                    let fd = passed.and_then(|passed| passed.fd);
                    let (Ok(at), Some(fd)) = (at, fd) else {
                        return Err(Failure::failed("a listening socket has no address"));
                    };
                    let socket = ListenSocket::adopt(fd).map_err(failed)?;
                    socket.release_file();
                    shared.push(socket.duplicate().map_err(failed)?);
                    sockets.push((at, socket));
                }
                // Another version may send messages that this one does not know.
                Some(_) => {}
                None => return Err(Failure::failed("the old process has exited")),
            }
        }
        let (handoff, locks) = (handoff(sockets, clients), StateDirLocks::inherited(directories));
        let resources = InheritedResources { handoff, locks, admin, overrides };
        Ok((Some(Self { channel, sockets: shared }), resources))
    }

    /// Reports to the old process that this one cannot start. The old one goes on serving.
    pub fn report_failure(&self, failure: &Failure) {
        // If this is not sent, the old process sees that this one exits.
        let _ = self.channel.send(&format!("failed {}", failure.text()), None);
    }

    /// Reports to the old process that this one serves, and receives its clients from now on.
    ///
    /// Errors: the channel to the old process fails.
    pub fn report_ready(self, control: Sender<ControlMessage>) -> std::io::Result<RunningOldProcess> {
        let Self { channel, sockets } = self;
        let channel = Arc::new(channel);
        let receiver = Arc::clone(&channel);
        channel.set_timeout(None)?;
        channel.send("ready", None)?;
        sockets.iter().for_each(ListenSocket::reclaim_file);
        drop(sockets);
        let receive_all = move || {
            receive_clients(&receiver, &control);
            // Without a control thread the process ends.
            let _ = control.send(ControlMessage::OldProcessExited);
        };
        std::thread::Builder::new().name("hot-restart".to_owned()).spawn(receive_all)?;
        Ok(RunningOldProcess { channel, hands_over: true })
    }
}

/// The old process until it exits, seen from the new one that serves.
pub struct RunningOldProcess {
    channel: Arc<FdChannel>,
    /// It hands over clients.
    hands_over: bool,
}

impl RunningOldProcess {
    /// Whether it may still hand over clients.
    pub fn hands_over(&self) -> bool {
        self.hands_over
    }

    /// Notes that it hands over no more clients.
    pub fn end_handover(&mut self) {
        self.hands_over = false;
    }

    /// Requests it to keep the remaining clients, as this process ends.
    pub fn request_drain(&self) {
        // A process that has exited has no clients.
        let _ = self.channel.send("drain", None);
    }
}

/// Receives clients of the old process until it exits. A client whose descriptor this process could not take is lost:
/// the kernel has closed it.
fn receive_clients(channel: &FdChannel, control: &Sender<ControlMessage>) {
    let mut lost = 0_u64;
    while let Ok(Some(FdMessage { text, fd })) = channel.receive() {
        if text == "end" {
            // As above.
            let _ = control.send(ControlMessage::NoMoreClients);
            continue;
        }
        let mut words = text.splitn(3, ' ');
        let (kind, worker, service) = (words.next(), words.next(), words.next());
        let worker = worker.and_then(|worker| worker.parse().ok());
        let (Some("client"), Some(worker), Some(service)) = (kind, worker, service) else {
            tracing::warn!(text, "unexpected message from the old process");
            continue;
        };
        let Some(socket) = fd else {
            if lost == 0 {
                tracing::warn!("lost a client of the old process: no descriptor is free; raise the limit");
            }
            lost += 1;
            continue;
        };
        let client = ControlMessage::Client { service: service.to_owned(), worker, socket };
        if control.send(client).is_err() {
            break;
        }
    }
    if lost > 0 {
        tracing::warn!(clients = lost, "lost clients of the old process: no descriptor was free");
    }
}

/// Groups sockets by the address as set, in their order.
fn handoff(
    sockets: impl IntoIterator<Item = (Endpoint, ListenSocket)>,
    clients: Vec<(String, u32)>,
) -> Handoff {
    let mut found: Vec<(Endpoint, Vec<ListenSocket>)> = Vec::new();
    for (at, socket) in sockets {
        // Two services may have set port 0; the port that each was given tells their sockets apart.
        let is_same = |(known, of): &&mut (Endpoint, Vec<ListenSocket>)| {
            *known == at && of.first().is_none_or(|first| first.local_addr() == socket.local_addr())
        };
        match found.iter_mut().find(is_same) {
            Some((_, of)) => of.push(socket),
            None => found.push((at, vec![socket])),
        }
    }
    let sockets = found.into_iter().map(|(at, sockets)| (at, ListenSockets::of(sockets)));
    Handoff::of_sockets(sockets.collect(), clients)
}

/// The new process, seen from the old one.
pub struct NewProcess {
    pid: u32,
    clients: ClientSender,
    sends: JoinHandle<()>,
}

/// The queue of the thread that sends clients. `None`: the new process gets no more.
type ClientSender = Arc<Mutex<Option<Sender<QueuedClient>>>>;

/// A client that is to be sent.
struct QueuedClient {
    service: String,
    worker: usize,
    socket: OwnedFd,
}

impl NewProcess {
    /// Lets the launcher start the new process, hands that the resources, and waits until it is ready. The control
    /// thread gets a message when the new process ends.
    ///
    /// Errors: why it is not ready, or that this process must exit meanwhile; nothing has changed then.
    pub fn start(
        launcher: &Launcher,
        resources: &HandedResources<'_>,
        control: Sender<ControlMessage>,
        must_exit: &mut dyn FnMut() -> bool,
    ) -> Result<Self, String> {
        let failed = |doing: &str, error: std::io::Error| format!("cannot {doing}: {error}");
        let (near, far) =
            FdChannel::pair().map_err(|error| failed("create a channel to the new process", error))?;
        // This process keeps no copy of the other end, so that an exit of the new process is visible.
        let pid = launcher.launch(far.into_fd())?;
        if let Err(error) = hand_over(&near, launcher, resources, must_exit) {
            launcher.kill();
            return Err(error);
        }
        Self::begin_handover(near, pid, control).map_err(|error| {
            launcher.kill();
            failed("start a thread", error)
        })
    }

    /// Starts the threads that send clients and await the end of the new process. Clients that cannot be sent come back
    /// to the control thread.
    ///
    /// Errors: a thread cannot be started.
    fn begin_handover(
        channel: FdChannel,
        pid: u32,
        control: Sender<ControlMessage>,
    ) -> std::io::Result<Self> {
        let (sender, waiting) = mpsc::channel();
        let clients: ClientSender = Arc::new(Mutex::new(Some(sender)));
        let (queue, channel, returns) = (Arc::clone(&clients), Arc::new(channel), control.clone());
        let receiver = Arc::clone(&channel);
        let send = move || match send_clients(&channel, &waiting) {
            // A process that has exited waits for no client.
            Ok(()) => drop(channel.send("end", None)),
            Err(unsent) => {
                end_handover(&queue);
                for QueuedClient { service, worker, socket } in std::iter::once(unsent).chain(waiting) {
                    // Without a control thread the process ends.
                    let _ = returns.send(ControlMessage::Client { service, worker, socket });
                }
            }
        };
        let receive = move || {
            while let Ok(Some(FdMessage { text, .. })) = receiver.receive() {
                if text == "drain" {
                    break;
                }
            }
            // As above.
            let _ = control.send(ControlMessage::NewProcessEnds);
        };
        let spawn = |run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name("hot-restart".to_owned()).spawn(run)
        };
        spawn(Box::new(receive))?;
        Ok(Self { pid, clients, sends: spawn(Box::new(send))? })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Forwards a signal to it. The launcher has not waited for it, so no other process has its id.
    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
            // A process that has exited needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    /// The destination of a service's clients.
    pub fn successor_of(&self, service: &str) -> Arc<dyn Successor> {
        Arc::new(RemoteService { service: service.to_owned(), clients: Arc::clone(&self.clients) })
    }

    /// Sends it a client that the predecessor of this process has handed over too late for the workers here.
    pub fn adopt_client(&self, service: &str, worker: usize, socket: OwnedFd) {
        // A process that has exited serves no client.
        let _ = queue_client(&self.clients, QueuedClient { service: service.to_owned(), worker, socket });
    }

    /// Hands it no more clients, and reports that to it behind those that are queued.
    pub fn end_handover(&self) {
        end_handover(&self.clients);
    }

    /// Waits until all clients were sent to it, or `must_end` says that this process waits no longer: the new one may
    /// be stopped.
    pub fn finish(self, mut must_end: impl FnMut() -> bool) {
        self.end_handover();
        while !self.sends.is_finished() {
            if must_end() {
                tracing::warn!(
                    process = self.pid,
                    "the new process does not take clients; closing the remaining ones"
                );
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Sends queued clients until there are no more. Errors: the client that could not be sent.
fn send_clients(channel: &FdChannel, waiting: &Receiver<QueuedClient>) -> Result<(), QueuedClient> {
    for client in waiting {
        let text = format!("client {} {}", client.worker, client.service);
        if channel.send(&text, Some(client.socket.as_fd())).is_err() {
            return Err(client);
        }
    }
    Ok(())
}

/// Queues a client for the new process. Errors: the client, because that gets no more.
fn queue_client(clients: &ClientSender, client: QueuedClient) -> Result<(), QueuedClient> {
    match &*clients.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(sender) => sender.send(client).map_err(|unsent| unsent.0),
        None => Err(client),
    }
}

fn end_handover(clients: &ClientSender) {
    clients.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Sends the resources, and waits for the answer.
fn hand_over(
    channel: &FdChannel,
    launcher: &Launcher,
    resources: &HandedResources<'_>,
    must_exit: &mut dyn FnMut() -> bool,
) -> Result<(), String> {
    let exited = |error: std::io::Error| exit_text(launcher, Some(error));
    channel.set_timeout(Some(POLL_INTERVAL)).map_err(exited)?;
    let start = Instant::now();
    let mut wait = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock if must_exit() => {
            Err("this process must exit and no longer waits for the new one".to_owned())
        }
        ErrorKind::WouldBlock if start.elapsed() < READY_TIME_MAX => Ok(()),
        ErrorKind::WouldBlock => Err(format!("the new process is not ready: {}", describe(&error))),
        _ => Err(exited(error)),
    };
    let mut send = |text: &str, fd: Option<BorrowedFd<'_>>| {
        while let Err(error) = channel.send(text, fd) {
            wait(error)?;
        }
        Ok::<(), String>(())
    };
    for (at, sockets) in resources.handoff.sockets() {
        for socket in sockets.iter() {
            send(&format!("listen {at}"), Some(socket.as_fd()))?;
        }
    }
    for directory in resources.locks.directories() {
        send("state", Some(directory))?;
    }
    if let Some((at, admin)) = resources.admin {
        send(&format!("admin {at}"), Some(admin.socket()))?;
        let Tokens { control, read } = admin.tokens();
        for (name, token) in [("token", control), ("read-token", read)] {
            token.map_or(Ok(()), |token| send(&format!("{name} {token}"), None))?;
        }
    }
    for line in &resources.overrides {
        send(&format!("backend {line}"), None)?;
    }
    for (service, count) in resources.handoff.clients() {
        send(&format!("clients {count} {service}"), None)?;
    }
    send("go", None)?;
    let answer = loop {
        match channel.receive() {
            Ok(answer) => break answer,
            Err(error) => wait(error)?,
        }
    };
    match answer {
        Some(passed) if passed.text == "ready" => channel.set_timeout(None).map_err(exited),
        Some(passed) => Err(passed.text.strip_prefix("failed ").unwrap_or(&passed.text).to_owned()),
        None => Err(exit_text(launcher, None)),
    }
}

/// Describes the end of a new process whose channel is closed, or failed with this error.
fn exit_text(launcher: &Launcher, error: Option<std::io::Error>) -> String {
    if let Some(status) = launcher.exit_status() {
        return format!("the new process exited before it was ready ({status}); see its log");
    }
    let why = error.map_or_else(String::new, |error| format!(" ({error})"));
    format!("the new process closed the channel to this one before it was ready{why}; see its log")
}

/// Describes an error; the system reports a timeout as an operation that would block.
fn describe(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock => format!("no message within {READY_TIME_MAX:?}"),
        _ => error.to_string(),
    }
}

/// A service of the new process.
#[derive(Debug)]
struct RemoteService {
    service: String,
    clients: ClientSender,
}

impl Successor for RemoteService {
    fn take(&self, worker: usize, client: HandedConn) -> Result<(), HandedConn> {
        let HandedConn { socket, peer, counted } = client;
        queue_client(&self.clients, QueuedClient { service: self.service.clone(), worker, socket })
            .map_err(|QueuedClient { socket, .. }| HandedConn { socket, peer, counted })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::{ControlMessage, FdChannel, NewProcess, receive_clients};

    /// More than a channel holds.
    const CLIENTS: usize = 600;
    const LIMIT: Duration = Duration::from_millis(100);

    fn client() -> OwnedFd {
        UnixStream::pair().expect("a pair of sockets").0.into()
    }

    fn begin_handover() -> (NewProcess, FdChannel, mpsc::Receiver<ControlMessage>) {
        let (near, far) = FdChannel::pair().expect("a pair of sockets");
        let (control, messages) = mpsc::channel();
        let new_process = NewProcess::begin_handover(near, 1, control).expect("threads start");
        (0..CLIENTS).for_each(|worker| new_process.adopt_client("one", worker, client()));
        (new_process, far, messages)
    }

    #[test]
    fn old_process_waited_forever_for_a_new_one_that_takes_no_clients() {
        let (new_process, far, _messages) = begin_handover();
        let (done, has_ended) = mpsc::channel();
        std::thread::spawn(move || {
            let start = Instant::now();
            new_process.finish(|| start.elapsed() >= LIMIT);
            done.send(()).expect("the test waits");
        });
        assert!(has_ended.recv_timeout(100 * LIMIT).is_ok(), "it still waits");
        drop(far);
    }

    #[test]
    fn clients_that_a_dead_new_process_had_not_received_were_dropped() {
        let (new_process, far, messages) = begin_handover();
        let first = far.receive().expect("it arrives").expect("there are more");
        assert_eq!(first.text, "client 0 one");
        drop(far);
        new_process.finish(|| false);
        let workers = messages.iter().filter_map(|message| match message {
            ControlMessage::Client { worker, .. } => Some(worker),
            _ => None,
        });
        let workers: Vec<usize> = workers.collect();
        let begin = workers.first().copied().expect("some could not be sent");
        assert!(begin < CLIENTS && workers.iter().copied().eq(begin..CLIENTS), "{workers:?}");
    }

    #[test]
    fn client_without_a_descriptor_ended_the_handover_of_the_others() {
        let (near, far) = FdChannel::pair().expect("a pair of sockets");
        let (control, messages) = mpsc::channel();
        far.send("client 0 one", None).expect("the other end is open");
        far.send("client 1 one", Some(client().as_fd())).expect("the other end is open");
        drop(far);
        receive_clients(&near, &control);
        let received = messages.try_recv();
        assert!(matches!(received, Ok(ControlMessage::Client { worker: 1, .. })), "{received:?}");
    }
}
