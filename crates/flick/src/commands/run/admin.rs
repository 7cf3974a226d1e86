//! The admin endpoint of a running process: converts the platform's counters to the state of `flick-admin`.
//! Promises: changes nothing but tunables; the new process of an upgrade inherits the socket of the endpoint and, if it
//! may not read the token file, the token.

use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flick_abi::Program;
use flick_admin::limits::{TOKEN_BYTES_MAX, TOKEN_BYTES_MIN};
use flick_admin::state::{
    BackendConnection, BackendStats, CounterValue, Edge, Graph, Service, Session, Task, TunableNanos,
    WorkerReport,
};
use flick_admin::{Address, Config, Server, Tokens};
use flick_compiler::open_source;
use flick_ir::data::Module;
use flick_ir::graph::{self, EdgeKind};
use flick_net::{Endpoint, Handle, PeerAddr, TransportKind};
use flick_runtime::edge_counters::EdgeTotals;
use flick_runtime::session_list::{BackendConnInfo, SessionInfo};
use flick_runtime::tunables::{TunableChanges, TunableValues};
use flick_runtime::{ServiceStats, StatsSnapshot, Totals};
use tracing::{info, warn};

use super::observed_state::ObservedState;
use crate::descriptors;
use crate::failure::{Failure, start_help};
use crate::settings::{Period, Settings, TokenFile};

/// Platform counters that are gauges.
const GAUGES: &[&str] =
    &["connections_open", "shm_connections_open", "shm_processes", "shm_ring_bytes", "shm_upgraded_open"];

/// Counters of thread time, which a service that does not share its threads does not maintain.
const OF_SHARED_THREADS: &[&str] = &["loops", "busy_ns", "cpu_throttled"];

/// Counters by status class, which a service whose protocol has no status does not maintain.
const BY_STATUS: &[&str] =
    &["responses_1xx", "responses_2xx", "responses_3xx", "responses_4xx", "responses_5xx"];

/// The permission of a file that lets every user read it.
const OTHERS_READ: u32 = 0o004;

/// A service of the current generation.
pub struct ObservedService {
    watch: ServiceStats,
    graph: graph::TaskGraph,
}

impl ObservedService {
    /// The service behind `watch`, which runs `module`.
    pub fn new(watch: ServiceStats, module: &Module) -> Self {
        Self { watch, graph: graph::graph(module) }
    }

    /// Its counters.
    pub fn watch(&self) -> &ServiceStats {
        &self.watch
    }

    /// Its counters, without the task graph.
    pub fn into_watch(self) -> ServiceStats {
        self.watch
    }

    /// Whether the service is ready for clients. Errors: why not.
    pub fn ready(&self) -> Result<(), String> {
        if self.watch.is_draining() {
            return Err(format!("{} is draining", self.watch.name()));
        }
        if let Some(channel) = self.watch.channels_without_backends().first() {
            return Err(format!("{}: `{channel}` has no backends", self.watch.name()));
        }
        let snapshot = self.watch.snapshot();
        let workers = snapshot.workers.len() as u64;
        let listed = || snapshot.backends.iter().filter(|backend| !backend.is_draining);
        let all = |channel: &str, predicate: &dyn Fn(&BackendStats) -> bool| {
            listed().filter(|backend| backend.channel == channel).all(predicate)
        };
        for BackendStats { channel, .. } in listed() {
            if all(channel, &|backend| backend.is_monitored && backend.workers_connected == 0) {
                return Err(format!("{}: no backend of `{channel}` is up", self.watch.name()));
            }
            if all(channel, &|backend| {
                backend.workers_ejected >= workers || backend.is_monitored && backend.workers_connected == 0
            }) {
                let name = self.watch.name();
                return Err(format!("{name}: every backend of `{channel}` is ejected or down"));
            }
        }
        Ok(())
    }

    /// The state of the service. `is_alone`: it does not share its threads.
    pub fn service(&self, snapshot: &StatsSnapshot, is_alone: bool) -> Service {
        let watch = &self.watch;
        let has_status = watch.has_status();
        let mut backends = snapshot.backends.clone();
        for backend in &mut backends {
            if let Ok(address) = backend.address.parse() {
                backend.address = descriptors::shown(address).to_string();
            }
        }
        let is_counted = |name: &str| {
            !(is_alone && OF_SHARED_THREADS.contains(&name) || !has_status && BY_STATUS.contains(&name))
        };
        Service {
            name: watch.name().to_owned(),
            channel: watch.listened().to_owned(),
            listens: watch
                .addresses()
                .iter()
                .map(|(channel, at)| (channel.clone(), descriptors::shown(at.clone()).to_string()))
                .collect(),
            io: watch.io().to_owned(),
            max_connections: watch.max_connections().into(),
            counters: counters(&snapshot.totals, &is_counted),
            times: snapshot.times.clone(),
            workers: snapshot.workers.iter().map(|each| worker(each, &is_counted)).collect(),
            backends,
            program: watch.state().counters(),
            dictionaries: watch.state().dict_reports(),
            tunables: tunables(&watch.tunables().get()),
            graph: tasks(&self.graph, |edge| {
                counted(watch.program(), snapshot.edge_counters.as_ref()?, edge)
            }),
        }
    }
}

/// The admin endpoint of the old process of an upgrade.
#[derive(Debug, Default)]
pub struct InheritedAdmin {
    /// Its address as set, and the listening socket.
    pub socket: Option<(Address, OwnedFd)>,
    /// Its tokens.
    pub tokens: Tokens,
}

/// Opens the admin endpoint, if one is set. Requests wait until `Server::serve`.
///
/// Errors: its address is not available; other machines could reach it without a token.
pub fn open(
    settings: &Settings,
    inherited: InheritedAdmin,
    observed: Arc<ObservedState>,
) -> Result<Option<Server>, Failure> {
    let Some(address) = settings.admin.clone() else { return Ok(None) };
    let opened = inherited.socket.filter(|(at, _)| *at == address).map(|(_, socket)| socket);
    let shown = address.to_string();
    let config = Config { address, tokens: inherited.tokens };
    let server = Server::open(config, opened, observed).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => {
            Failure::usage(format!("{error}; set --admin-token-file FILE, or listen on the loopback"))
        }
        _ => {
            let help = start_help(&error);
            Failure::failed(format!("cannot open the admin endpoint at {shown}: {error}{help}"))
        }
    })?;
    info!(address = %server.address(), "admin endpoint");
    Ok(Some(server))
}

/// The tokens of the admin endpoint that are set.
///
/// Errors: as [`token_in`], reported at the line of the settings file; both tokens are the same.
pub fn tokens(settings: &Settings, known: Tokens) -> Result<Tokens, Failure> {
    let read = |file: &Option<TokenFile>, known: Option<String>| {
        let token =
            file.as_ref().map(|file| token_in(&file.path, known).map_err(|failure| file.located(failure)));
        token.transpose()
    };
    let tokens = Tokens {
        control: read(&settings.admin_token_file, known.control)?,
        read: read(&settings.admin_read_token_file, known.read)?,
    };
    if tokens.control.is_some() && tokens.control == tokens.read {
        return Err(Failure::usage("the token that may only read is the one that may change something"));
    }
    Ok(tokens)
}

/// Reads the token in a file, or keeps the `known` one if the user that flick switched to may not read the file.
///
/// Errors: the file cannot be read or has no token.
fn token_in(path: &Path, known: Option<String>) -> Result<String, Failure> {
    let is_denied = || open_source(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    match known {
        Some(known) if is_denied() => {
            let path = path.display();
            warn!(%path, "cannot read the token file; the token stays the same");
            Ok(known)
        }
        _ => read_token(path),
    }
}

/// Reads a token from the first line of a file.
///
/// Errors: the file cannot be read, every user of this machine can read it, or it has no token.
pub fn read_token(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let unread = |error| Failure::usage(format!("cannot read the token in {shown}: {error}"));
    let file = open_source(path).map_err(unread)?;
    if file.metadata().map_err(unread)?.mode() & OTHERS_READ != 0 {
        return Err(Failure::usage(format!(
            "every user of this machine can read the token in {shown}; run `chmod o= {shown}`"
        )));
    }
    let mut text = String::new();
    file.take(2 * TOKEN_BYTES_MAX as u64).read_to_string(&mut text).map_err(unread)?;
    let token = text.lines().next().unwrap_or("").trim();
    let is_visible = token.bytes().all(|byte| byte.is_ascii_graphic());
    if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) || !is_visible {
        return Err(Failure::usage(format!(
            "{shown} has no token: its first line must be {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable ASCII \
             characters, such as `openssl rand -hex 32` prints"
        )));
    }
    Ok(token.to_owned())
}

fn counters(totals: &Totals, is_counted: &dyn Fn(&str) -> bool) -> Vec<CounterValue> {
    let each = totals.entries().into_iter().zip(Totals::meanings());
    let each = each.filter(|((name, _), _)| is_counted(name));
    each.map(|((name, value), (_, help))| CounterValue {
        name: name.to_owned(),
        help: (*help).to_owned(),
        is_gauge: GAUGES.contains(&name),
        value: value as i64,
    })
    .collect()
}

fn worker(worker: &flick_runtime::WorkerTotals, is_counted: &dyn Fn(&str) -> bool) -> WorkerReport {
    let values = worker.totals.entries().into_iter().filter(|(name, _)| is_counted(name));
    let values = values.map(|(_, value)| value as i64);
    WorkerReport {
        values: values.collect(),
        times: worker.times.clone(),
        slices: worker.slices.clone(),
        tasks: worker.tasks.clone(),
    }
}

fn tunables(values: &TunableValues) -> TunableNanos {
    let nanos = |value: Duration| u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
    TunableNanos {
        busy_poll_ns: nanos(values.busy_poll),
        batch_delay_max_ns: nanos(values.batch_delay_max),
        time_slice_ns: nanos(values.time_slice),
        overload_queue_delay_ns: nanos(values.overload_queue_delay),
    }
}

/// Parses changes of tunables, written as in the settings.
///
/// Errors: a name is unknown, a value is not a duration, or there is none.
pub fn tunable_changes(changes: &[(&str, &str)]) -> Result<TunableChanges, String> {
    const NAMES: &str = "`busy_poll`, `batch_delay_max`, `time_slice` and `overload_queue_delay`";
    if changes.is_empty() {
        return Err(format!("no tunable is given; the tunables are {NAMES}"));
    }
    let mut parsed = TunableChanges::default();
    for (name, value) in changes {
        let target = match *name {
            "busy_poll" => &mut parsed.busy_poll,
            "batch_delay_max" => &mut parsed.batch_delay_max,
            "time_slice" => &mut parsed.time_slice,
            "overload_queue_delay" => &mut parsed.overload_queue_delay,
            other => return Err(format!("`{other}` is not a tunable; the tunables are {NAMES}")),
        };
        *target = Some(value.parse::<Period>()?.0);
    }
    Ok(parsed)
}

/// Name of a connection of a service's worker.
pub fn conn_id(worker: usize, conn: Handle) -> String {
    format!("{worker}.{}.{}", conn.index, conn.generation)
}

/// Parses a name of [`conn_id`].
pub fn parse_conn_id(text: &str) -> Option<(usize, Handle)> {
    let mut parts = text.split('.');
    let worker = parts.next()?.parse().ok()?;
    let (index, generation) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some((worker, Handle { index, generation }))
}

/// Name of a transport, why it is no other one, and wake-ups. `of_kernel`: the kernel's between these addresses.
fn transport(transport: TransportKind, of_kernel: &str) -> (String, String, u64) {
    let (name, plain_reason, wake_ups) = match transport {
        TransportKind::Kernel(reason) => (of_kernel, reason.name(), 0),
        TransportKind::SharedMemory { wake_ups } => ("shm", "", wake_ups),
        TransportKind::Upgraded { wake_ups } => ("upgraded", "", wake_ups),
    };
    (name.to_owned(), plain_reason.to_owned(), wake_ups)
}

/// A connection of a service to a backend.
pub fn backend_connection(watch: &ServiceStats, listed: &BackendConnInfo) -> BackendConnection {
    let (channel, address) = watch.backend_at(listed.slot).unzip();
    let of_kernel = if matches!(address, Some(Endpoint::Unix(_))) { "unix" } else { "tcp" };
    let (transport, plain_reason, wake_ups) = transport(listed.transport, of_kernel);
    BackendConnection {
        id: conn_id(listed.worker, listed.conn),
        service: watch.name().to_owned(),
        worker: listed.worker as u64,
        channel: channel.unwrap_or_default().to_owned(),
        backend: address.map(|address| descriptors::shown(address).to_string()).unwrap_or_default(),
        transport,
        plain_reason,
        wake_ups,
        inflight: listed.inflight.into(),
        bytes_in: listed.bytes_in,
        bytes_out: listed.bytes_out,
    }
}

/// A client of a service.
pub fn session(service: &str, listed: &SessionInfo) -> Session {
    let of_kernel = if matches!(listed.client, PeerAddr::Unix) { "unix" } else { "tcp" };
    let (transport, plain_reason, wake_ups) = transport(listed.transport, of_kernel);
    Session {
        service: service.to_owned(),
        worker: listed.worker as u64,
        id: conn_id(listed.worker, listed.conn),
        client: listed.client.to_string(),
        transport,
        plain_reason,
        wake_ups,
        age_ms: listed.age_ms,
        idle_ms: listed.idle_ms,
        state: listed.state.to_owned(),
        inflight: listed.inflight.into(),
        bytes_in: listed.bytes_in,
        bytes_out: listed.bytes_out,
    }
}

/// Converts a task graph, with counts on its edges.
fn tasks(graph: &graph::TaskGraph, count: impl Fn(&graph::GraphEdge) -> Option<u64>) -> Graph {
    let task = |task: &graph::GraphTask| Task {
        role: task.kind.role().to_owned(),
        name: task.name.clone(),
        detail: task.detail.clone(),
        column: task.kind.column() as u8,
    };
    let kind = |kind: EdgeKind| match kind {
        EdgeKind::Sends => "sends",
        EdgeKind::Asks => "asks",
        EdgeKind::Keeps => "keeps",
    };
    let edge = |edge: &graph::GraphEdge| Edge {
        from: edge.from,
        to: edge.to,
        kind: kind(edge.kind).to_owned(),
        count: count(edge),
    };
    Graph { tasks: graph.tasks.iter().map(task).collect(), edges: graph.edges.iter().map(edge).collect() }
}

/// Count of messages along an edge; `None` for an edge to state.
fn counted(program: &Program, counters: &EdgeTotals, edge: &graph::GraphEdge) -> Option<u64> {
    match (edge.kind, edge.channel) {
        (EdgeKind::Keeps, _) => None,
        (EdgeKind::Sends, None) => Some(counters.started(program, edge.start)),
        (EdgeKind::Sends, Some(channel)) => Some(counters.sent(program, edge.start, channel)),
        (EdgeKind::Asks, channel) => Some(counters.asked(program, edge.start, channel?)),
    }
}
