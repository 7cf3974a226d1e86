//! Endpoints that are descriptors of the process: `stdin:`, `stdout:`, `fd:N` and `pipe:PATH`.
//! Promises: the service sees an ordinary connection, with back-pressure and half-close; a thread per descriptor copies
//! between it and shared memory within the process, so that files, which no event loop can wait for, work too. Bytes
//! keep their order: such a process has one worker.
//! Refuses: reloads and upgrades, which would need two readers of one descriptor.

mod copying;
mod rings;
mod validation;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flick_check::counted;
use flick_net::{Continuation, DescriptorAddr, Endpoint, ListenSocket, ListenSockets};
use flick_runtime::{Binding, ExitReport, PlatformConfig, ServiceConfig};
use flick_shm::pairing::{PairListener, PairPolicy};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FileType, OFlags, fstat};
use signal_hook::consts::SIGPIPE;

use crate::failure::Failure;
use crate::supervise::ControlMessage;
use crate::sys;
use rings::{RingOffer, Upstream};
pub use validation::check;

/// Stands for "never" where the platform wants a duration: an input may pause, and a reader may stop, for any time.
pub const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most client connections of a service that listens on descriptors only.
pub const FILTER_CONNECTIONS_MAX: u32 = 64;

/// Most requests in flight of such a service, which is a relay and has none.
pub const FILTER_REQUESTS_MAX: u32 = 1024;

/// Number of standard output.
const STDOUT: u32 = 1;
/// Number of standard error.
const STDERR: u32 = 2;

/// The end of a descriptor's work.
#[derive(Debug)]
pub enum DescriptorEvent {
    /// An input has ended and the service has taken all of it; its first bytes.
    InputEnded(InputFront),
    /// The service has closed the connection of this input before its end; its first bytes.
    InputRefused(DescriptorAddr, InputFront),
    /// An output has written everything.
    OutputEnded,
    /// The reader of an output is gone.
    OutputClosed,
    /// Reading or writing failed.
    Failed(String),
}

/// The first bytes of an input, by which formats are known; 0 behind its end.
pub type InputFront = [u8; 4];

/// Formats that are taken for what a filter reads, by their first bytes.
const KNOWN_FORMATS: [(&[u8], &str); 6] = [
    (&[0x0a, 0x0d, 0x0d, 0x0a], "pcapng; convert it with `editcap -F pcap IN OUT` or `tcpdump -r IN -w OUT`"),
    (&[0xa1, 0xb2, 0xc3, 0xd4], BIG_ENDIAN),
    (&[0xa1, 0xb2, 0x3c, 0x4d], BIG_ENDIAN),
    (&[0xd4, 0xc3, 0xb2, 0xa1], LITTLE_ENDIAN),
    (&[0x4d, 0x3c, 0xb2, 0xa1], LITTLE_ENDIAN),
    (&[0x1f, 0x8b], "gzip; decompress it first"),
];
const BIG_ENDIAN: &str =
    "a big-endian packet capture; the library `pcap_big` reads those, `pcap` little-endian ones";
const LITTLE_ENDIAN: &str =
    "a little-endian packet capture; the library `pcap` reads those, `pcap_big` big-endian ones";

/// The descriptors of all services, opened.
#[derive(Default)]
pub struct Descriptors {
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    /// Each one, with the name that the service knows it by.
    names: Vec<(String, DescriptorAddr)>,
    /// Services that listen on nothing else.
    filters: Vec<String>,
    /// Pipes of this process may be left for rings: the option `--shm`.
    uses_rings: bool,
    /// Sockets at which services listen for inputs.
    sockets: Vec<(Endpoint, ListenSockets)>,
}

/// A descriptor that is read.
struct Input {
    at: DescriptorAddr,
    file: OwnedFd,
    /// The service listens at `shm:` and this name.
    name: String,
    /// Another process that writes to the same pipe may connect here.
    offer: Option<RingOffer>,
    /// The service reads the rings of such a process.
    continuation: Continuation,
}

/// A descriptor that is written to.
enum Output {
    /// By a thread that receives from the service.
    Copied { at: DescriptorAddr, file: OwnedFd, listener: PairListener },
    /// By the process that reads the pipe, which receives from the service through rings.
    Rings(Upstream),
}

/// Descriptors whose threads run.
#[derive(Default)]
pub struct RunningDescriptors {
    inputs: usize,
    outputs: usize,
    /// Readable once no input is to be read any more.
    stop_inputs: Option<Arc<OwnedFd>>,
    /// Readable once no service will connect to an output any more.
    stop_outputs: Option<Arc<OwnedFd>>,
    filters: Vec<String>,
    /// The first input whose connection the service has closed.
    refused: Option<DescriptorAddr>,
    /// First bytes of the inputs that have ended.
    fronts: Vec<InputFront>,
}

/// Names of the descriptors of this process, for its log.
static NAMES: OnceLock<Vec<(String, DescriptorAddr)>> = OnceLock::new();

/// Returns whether a service has a descriptor among its addresses.
pub fn uses_descriptors(config: &PlatformConfig) -> bool {
    let endpoints = config.listen.iter().chain(&config.connect).flat_map(|binding| &binding.endpoints);
    endpoints.into_iter().any(|endpoint| matches!(endpoint, Endpoint::Descriptor(_)))
}

/// Returns whether a service that listens there is a filter: its clients are descriptors.
pub fn is_filter(listen: &[Binding]) -> bool {
    let mut endpoints = listen.iter().flat_map(|binding| &binding.endpoints);
    !listen.is_empty() && endpoints.all(|endpoint| matches!(endpoint, Endpoint::Descriptor(_)))
}

/// Returns the address as the user wrote it.
pub fn shown(address: Endpoint) -> Endpoint {
    let Endpoint::Shm(name) = &address else { return address };
    let known = NAMES.get().and_then(|names| names.iter().find(|(own, _)| own == name));
    known.map_or(address.clone(), |(_, at)| Endpoint::Descriptor(at.clone()))
}

/// Refuses a reload or an upgrade if this process uses descriptors, or the `next` services would.
pub fn forbid_successor(next: &[ServiceConfig]) -> Result<(), Failure> {
    let is_used = NAMES.get().is_some_and(|names| !names.is_empty());
    if !is_used && !next.iter().any(|service| uses_descriptors(&service.config)) {
        return Ok(());
    }
    Err(Failure::failed(
        "a service with an endpoint `stdin:`, `stdout:`, `fd:` or `pipe:` cannot be reloaded or upgraded",
    ))
}

/// Adapts settings that suit servers: bytes keep their order, and no time ends a filter.
fn adapt(config: &mut PlatformConfig) {
    // Filters of one chain would share a core.
    (config.workers, config.pin) = (1, false);
    config.limits.overload_queue_delay = Duration::ZERO;
    let timeouts = &mut config.timeouts;
    (timeouts.client_request, timeouts.client_write, timeouts.stream_idle) = (NEVER, NEVER, NEVER);
    (timeouts.response, timeouts.queue) = (Some(NEVER), Some(Duration::ZERO));
    (timeouts.retry, timeouts.total) = (Duration::ZERO, Duration::ZERO);
}

impl Descriptors {
    /// Opens the descriptors that the services name, and gives the services addresses of shared memory instead.
    /// [`check`] has accepted them; a file to write to is emptied in [`Descriptors::start`].
    ///
    /// Errors: a file cannot be opened.
    pub fn open(services: &mut [ServiceConfig], uses_rings: bool) -> Result<Self, Failure> {
        let mut opened = Self { uses_rings, ..Self::default() };
        if !services.iter().any(|service| uses_descriptors(&service.config)) {
            return Ok(opened);
        }
        for ServiceConfig { name, config, .. } in services {
            // Workers and cores are those of the first service.
            adapt(config);
            if is_filter(&config.listen) {
                opened.filters.push(name.clone());
            }
            for endpoint in config.listen.iter_mut().flat_map(|binding| &mut binding.endpoints) {
                if let Endpoint::Descriptor(at) = endpoint {
                    *endpoint = Endpoint::Shm(opened.open_input(at.clone())?);
                }
            }
            for endpoint in config.connect.iter_mut().flat_map(|binding| &mut binding.endpoints) {
                if let Endpoint::Descriptor(at) = endpoint {
                    *endpoint = Endpoint::Shm(opened.open_output(at.clone())?);
                }
            }
        }
        let _ = NAMES.set(opened.names.clone());
        Ok(opened)
    }

    fn open_input(&mut self, at: DescriptorAddr) -> Result<String, Failure> {
        let file = take(&at, "reading", |path| {
            // A FIFO without a writer opens at once, and is readable when one has come and gone.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let mut options = OpenOptions::new();
            std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
            options.read(true).open(path)
        })?;
        let name = self.name(&at);
        let offer = if self.uses_rings { RingOffer::of(file.as_fd()) } else { None };
        let failed = |error| Failure::failed(format!("cannot listen for `{at}`: {error}"));
        let continuation = Continuation::new().map_err(failed)?;
        let endpoint = Endpoint::Shm(name.clone());
        let socket = ListenSocket::open(&endpoint).map_err(failed)?.with_continuation(continuation.clone());
        self.sockets.push((endpoint, ListenSockets::of(vec![socket])));
        self.inputs.push(Input { at, file, name: name.clone(), offer, continuation });
        Ok(name)
    }

    fn open_output(&mut self, at: DescriptorAddr) -> Result<String, Failure> {
        let file = take(&at, "writing", |path| {
            OpenOptions::new().write(true).create(true).truncate(false).open(path)
        })?;
        if self.uses_rings
            && let Some(upstream) = Upstream::find(file.as_fd())
        {
            let name = upstream.name().to_owned();
            self.names.push((name.clone(), at));
            self.outputs.push(Output::Rings(upstream));
            return Ok(name);
        }
        let name = self.name(&at);
        let listener = PairListener::bind(&name, PairPolicy::SameUser);
        let listener =
            listener.map_err(|error| Failure::failed(format!("cannot listen for `{at}`: {error}")))?;
        self.outputs.push(Output::Copied { at, file, listener });
        Ok(name)
    }

    /// A fresh name in shared memory for `at`.
    fn name(&mut self, at: &DescriptorAddr) -> String {
        let name = flick_net::internal_shm_name();
        self.names.push((name.clone(), at.clone()));
        name
    }

    /// Takes the sockets at which services listen for inputs.
    pub fn take_sockets(&mut self) -> Vec<(Endpoint, ListenSockets)> {
        std::mem::take(&mut self.sockets)
    }

    /// Empties the files to write to and starts the threads, once the services listen.
    ///
    /// Errors: a thread or a descriptor cannot be created, or a file not be emptied.
    pub fn start(self, events: &Sender<ControlMessage>) -> Result<RunningDescriptors, Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::failed(format!("cannot start to copy: {error}"));
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        if inputs + outputs == 0 {
            return Ok(RunningDescriptors::default());
        }
        let new_event = || eventfd(0, EventfdFlags::CLOEXEC).map(Arc::new).map_err(|error| failed(&error));
        let (stop_inputs, stop_outputs) = (new_event()?, new_event()?);
        let start = |work: Box<dyn FnOnce() -> DescriptorEvent + Send>| {
            let events = events.clone();
            let report = move || {
                // Without a control thread the process ends.
                let _ = events.send(ControlMessage::Descriptor(work()));
            };
            std::thread::Builder::new()
                .name("descriptor".to_owned())
                .spawn(report)
                .map_err(|error| failed(&error))
        };
        for input in self.inputs {
            let stop = Arc::clone(&stop_inputs);
            start(Box::new(move || copying::input(input, &stop)))?;
        }
        for output in self.outputs {
            let stop = Arc::clone(&stop_outputs);
            match output {
                Output::Copied { at, file, listener } => {
                    empty(&at, &file)?;
                    start(Box::new(move || copying::output(&at, &file, &listener, &stop)))?;
                }
                Output::Rings(upstream) => {
                    start(Box::new(move || upstream.watch(&stop)))?;
                }
            }
        }
        Ok(RunningDescriptors {
            inputs,
            outputs,
            stop_inputs: Some(stop_inputs),
            stop_outputs: Some(stop_outputs),
            filters: self.filters,
            refused: None,
            fronts: Vec::new(),
        })
    }
}

/// Returns whether this is a file, not a pipe or another stream.
fn is_file(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Empties a file that is named by its path, as `>` of a shell does.
fn empty(at: &DescriptorAddr, file: &OwnedFd) -> Result<(), Failure> {
    if matches!(at, DescriptorAddr::Pipe(_)) && is_file(file) {
        let emptied = rustix::fs::ftruncate(file, 0);
        emptied.map_err(|error| Failure::failed(format!("cannot empty `{at}`: {error}")))?;
    }
    Ok(())
}

/// Takes over an inherited descriptor, or opens a file.
fn take(
    at: &DescriptorAddr,
    purpose: &str,
    open: impl FnOnce(&Path) -> std::io::Result<File>,
) -> Result<OwnedFd, Failure> {
    let file = match at {
        DescriptorAddr::Pipe(path) => open(path).map(OwnedFd::from),
        _ => sys::inherited_descriptor(number_of(at).unwrap_or_default()).map_err(std::io::Error::from),
    };
    file.map_err(|error| Failure::usage(format!("cannot open `{at}` for {purpose}: {error}")))
}

/// Number of an inherited descriptor.
fn number_of(at: &DescriptorAddr) -> Option<u32> {
    match at {
        DescriptorAddr::Stdin => Some(0),
        DescriptorAddr::Stdout => Some(1),
        DescriptorAddr::Fd(number) => Some(*number),
        DescriptorAddr::Pipe(_) => None,
    }
}

impl RunningDescriptors {
    /// Notes an event. Returns whether more events of inputs are to come, or none ever was.
    ///
    /// Errors: the event ends the process. A reader that is gone ends it without a message, as SIGPIPE does.
    pub fn note(&mut self, event: DescriptorEvent) -> Result<bool, Failure> {
        match event {
            DescriptorEvent::InputEnded(front) => {
                self.inputs -= 1;
                self.fronts.push(front);
            }
            DescriptorEvent::InputRefused(at, front) => {
                self.inputs -= 1;
                self.fronts.push(front);
                self.refused.get_or_insert(at);
            }
            DescriptorEvent::OutputEnded => {
                self.outputs -= 1;
                return Ok(true);
            }
            DescriptorEvent::OutputClosed => return Err(Failure::signal(SIGPIPE)),
            DescriptorEvent::Failed(text) => return Err(Failure::failed(text)),
        }
        Ok(self.inputs > 0)
    }

    /// Checks that the inputs were taken completely, by what the services have counted. A signal, `stopped_by`, may
    /// have stopped the reading inside a message.
    ///
    /// Errors: what was wrong with the input, or with its way.
    pub fn check(&self, report: &ExitReport, stopped_by: Option<i32>) -> Result<(), Failure> {
        let lost = report.lost_backends.iter().find(|(service, ..)| self.filters.contains(service));
        if let Some((service, address, why)) = lost {
            let address = shown(address.clone());
            return Err(Failure::failed(format!("`{service}` lost its output {address}: {why}")));
        }
        for (name, totals) in report.services.iter().filter(|(name, _)| self.filters.contains(name)) {
            let lost =
                totals.errors_unavailable + totals.errors_timeout + totals.errors_overload + totals.exhausted;
            let text = if let (1.., Some(signal)) = (totals.truncated, stopped_by) {
                tracing::warn!("`{name}` was stopped inside a message of its input");
                return Err(Failure::signal(signal));
            } else if totals.truncated > 0 {
                format!("the input of `{name}` ends inside a message")
            } else if totals.protocol_errors_client > 0 {
                let detail = self.malformed_detail(totals.requests);
                format!("the input of `{name}` is malformed: a message violates its grammar{detail}")
            } else if lost > 0 {
                format!("`{name}` could not deliver {lost} messages")
            } else {
                continue;
            };
            return Err(Failure::failed(text));
        }
        let refused = self.refused.as_ref();
        refused.map_or(Ok(()), |at| Err(Failure::failed(format!("the service closed `{at}` before its end"))))
    }

    /// Returns more about a malformed input: how many messages before were `taken`; if none was, the known format
    /// that it begins like. An input of the right format may be damaged further on.
    fn malformed_detail(&self, taken: u64) -> String {
        if taken > 0 {
            return format!("; it follows {}", counted(taken, "good message"));
        }
        let is_known = |front: &[u8]| self.fronts.iter().any(|known| known.starts_with(front));
        let known = KNOWN_FORMATS.iter().find(|(front, _)| is_known(front));
        known.map(|(_, what)| format!("; it begins like {what}")).unwrap_or_default()
    }

    /// Says that filters were stopped with input that they had read and not written.
    ///
    /// Errors: there is a filter.
    pub fn check_cut(&self) -> Result<(), Failure> {
        let Some(name) = self.filters.first() else { return Ok(()) };
        Err(Failure::failed(format!(
            "`{name}` was stopped before it had written all input that it had read: its output may end inside a message"
        )))
    }

    /// Lets the inputs end behind what was read of them.
    pub fn stop_inputs(&self) {
        signal_event(self.stop_inputs.as_deref());
    }

    /// Whether inputs have not ended.
    pub fn has_inputs(&self) -> bool {
        self.inputs > 0
    }

    /// Lets the outputs end behind what the services have sent, which have ended.
    pub fn stop_outputs(&self) {
        signal_event(self.stop_outputs.as_deref());
    }

    /// Whether outputs have not ended.
    pub fn has_outputs(&self) -> bool {
        self.outputs > 0
    }
}

fn signal_event(event: Option<&OwnedFd>) {
    if let Some(event) = event {
        // A counter of eventfd(2) that is 0 takes a 1.
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
    }
}
