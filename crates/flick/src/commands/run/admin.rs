//! The admin side of a running service: what the platform counts, in the words of `flick-admin`.
//! Promises: reads only; what it shows of a service is one moment of it, as far as counters of several threads can be. A
//! process that takes another's place has the socket and, where the file is not its own to read, the token of that one.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use flick_abi::Program;
use flick_admin::limits::TOKEN_BYTES_MAX;
use flick_admin::state::{
    Backend, Counter, Dictionary, Edge, Graph, Service, Session, Task, TaskRuns, Times, Worker,
};
use flick_admin::{Address, Config, Server};
use flick_ir::data::Module;
use flick_ir::graph::{self, EdgeKind};
use flick_net::PeerAddr;
use flick_runtime::census::Listed;
use flick_runtime::ways::WayTotals;
use flick_runtime::{BackendTotals, Snapshot, Totals, Watch};
use tracing::{info, warn};

use super::seen::Seen;
use crate::failure::Failure;
use crate::settings::Settings;

/// Counters of the platform that go down too.
const GAUGES: &[&str] = &["sessions_open"];

/// Counters of a thread's time: of a service that has its threads for itself nobody counts them.
const OF_SHARED_THREADS: &[&str] = &["turns", "busy_ns", "share_waits"];

/// One service to show.
pub struct View {
    watch: Watch,
    graph: graph::Graph,
}

impl View {
    /// Of this service, which runs this module.
    pub fn new(watch: Watch, module: &Module) -> Self {
        Self { watch, graph: graph::graph(module) }
    }

    /// What is counted.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// What is counted, alone.
    pub fn into_watch(self) -> Watch {
        self.watch
    }

    /// Whether new clients should come. Errors: why not.
    pub fn ready(&self) -> Result<(), String> {
        if self.watch.is_draining() {
            return Err(format!("{} is draining", self.watch.name()));
        }
        if let Some(channel) = self.watch.channels_without_backends().first() {
            return Err(format!("{}: `{channel}` has no backends", self.watch.name()));
        }
        let snapshot = self.watch.snapshot();
        let workers = snapshot.workers.len() as u64;
        let listed = || snapshot.backends.iter().filter(|backend| !backend.is_leaving);
        let are_all = |channel: &str, is_so: &dyn Fn(&BackendTotals) -> bool| {
            listed().filter(|backend| backend.channel == channel).all(is_so)
        };
        for BackendTotals { channel, .. } in listed() {
            if are_all(channel, &|backend| backend.is_watched && backend.up == 0) {
                return Err(format!("{}: no backend of `{channel}` is up", self.watch.name()));
            }
            if are_all(channel, &|backend| backend.out >= workers || backend.is_watched && backend.up == 0) {
                return Err(format!("{}: every backend of `{channel}` is out or down", self.watch.name()));
            }
        }
        Ok(())
    }

    /// The service, with these counts; without those of a thread's time where nobody counts them.
    pub fn service(&self, snapshot: &Snapshot, is_alone: bool) -> Service {
        let watch = &self.watch;
        Service {
            name: watch.name().to_owned(),
            channel: watch.listened().to_owned(),
            listens: watch
                .addresses()
                .iter()
                .map(|(channel, at)| (channel.clone(), at.to_string()))
                .collect(),
            io: watch.io().to_owned(),
            sessions_max: watch.sessions_max().into(),
            counters: counters(&snapshot.totals, is_alone),
            times: times(&snapshot.times),
            workers: snapshot.workers.iter().map(|each| worker(each, is_alone)).collect(),
            backends: snapshot.backends.iter().map(backend).collect(),
            program: program(watch),
            dictionaries: dictionaries(watch),
            graph: tasks(&self.graph, |edge| counted(watch.program(), snapshot.ways.as_ref()?, edge)),
        }
    }
}

/// What the process before leaves of its admin side.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Where it was asked for, and the socket that listens there.
    pub socket: Option<(Address, OwnedFd)>,
    /// What a reader of the state must show.
    pub token: Option<String>,
}

/// Opens the admin side, if one is asked for: what comes waits until it is told to serve.
///
/// Errors: its address cannot be had, or others could read it.
pub fn open(settings: &Settings, inherited: Inherited, source: Arc<Seen>) -> Result<Option<Server>, Failure> {
    let Some(address) = settings.admin.clone() else { return Ok(None) };
    let opened = inherited.socket.filter(|(at, _)| *at == address).map(|(_, socket)| socket);
    let shown = address.to_string();
    let config = Config { address, token: inherited.token };
    let server = Server::open(config, opened, source).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => Failure::usage(format!(
            "{error}; give one with --admin-token-file FILE, or listen on this machine only"
        )),
        _ => Failure::failed(format!("cannot show the admin side on {shown}: {error}")),
    })?;
    info!(address = %server.address(), "admin");
    Ok(Some(server))
}

/// The token that readers must show, if they must.
///
/// Errors: as of [`token_in`], shown where the settings file names it.
pub fn token(settings: &Settings, known: Option<String>) -> Result<Option<String>, Failure> {
    let token = settings.admin_token_file.as_deref().map(|path| token_in(path, known));
    token.transpose().map_err(|failure| settings.at_token(failure))
}

/// The token in a file; one that is known from before where a user who has been become may not read the file.
///
/// Errors: there is none.
fn token_in(path: &Path, known: Option<String>) -> Result<String, Failure> {
    let is_denied = || File::open(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    match known {
        Some(known) if is_denied() => {
            let path = path.display();
            warn!(%path, "this process may not read the token any more: the one before holds");
            Ok(known)
        }
        _ => read_token(path),
    }
}

/// Reads the first line of a file.
pub fn read_token(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read the token in {}: {error}", path.display())))?;
    let token = text.lines().next().unwrap_or("").trim();
    let is_visible = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !is_visible {
        return Err(Failure::usage(format!(
            "{} holds no token: its first line must be 1 to {TOKEN_BYTES_MAX} visible characters of ASCII",
            path.display()
        )));
    }
    Ok(token.to_owned())
}

fn is_counted(name: &str, is_alone: bool) -> bool {
    !is_alone || !OF_SHARED_THREADS.contains(&name)
}

fn counters(totals: &Totals, is_alone: bool) -> Vec<Counter> {
    let each = totals.entries().into_iter().zip(Totals::meanings());
    let each = each.filter(|((name, _), _)| is_counted(name, is_alone));
    each.map(|((name, value), (_, help))| Counter {
        name: name.to_owned(),
        help: (*help).to_owned(),
        is_gauge: GAUGES.contains(&name),
        value: value as i64,
    })
    .collect()
}

fn times(times: &flick_runtime::latencies::Times) -> Times {
    Times { sum_ns: times.sum_ns(), buckets: times.filled().collect() }
}

fn worker(worker: &flick_runtime::WorkerTotals, is_alone: bool) -> Worker {
    let values = worker.totals.entries().into_iter().filter(|(name, _)| is_counted(name, is_alone));
    let values = values.map(|(_, value)| value as i64);
    let tasks = worker.tasks.iter().zip(flick_runtime::tasks::KINDS).map(|(totals, (_, kind))| TaskRuns {
        kind: kind.to_owned(),
        runs: totals.runs,
        busy_ns: totals.busy_ns,
        slices_exceeded: totals.slices_exceeded,
        stolen: totals.stolen,
    });
    Worker {
        values: values.collect(),
        times: times(&worker.times),
        slices: times(&worker.slices),
        tasks: tasks.collect(),
    }
}

fn backend(backend: &flick_runtime::BackendTotals) -> Backend {
    Backend {
        channel: backend.channel.clone(),
        element: backend.element,
        address: backend.endpoint.to_string(),
        requests: backend.requests,
        failures: backend.failures,
        up: backend.up,
        is_leaving: backend.is_leaving,
        out: backend.out,
        failing: backend.failing,
        ejections: backend.ejections,
        check_failures: backend.check_failures,
        shed: backend.shed,
        is_watched: backend.is_watched,
        times: times(&backend.times),
    }
}

/// A client of this service.
pub fn session(service: &str, listed: &Listed) -> Session {
    let client = match listed.client {
        PeerAddr::Tcp(address) => address.to_string(),
        PeerAddr::Unix => "unix".to_owned(),
    };
    Session {
        service: service.to_owned(),
        worker: listed.worker as u64,
        client,
        age_ms: listed.age_ms,
        quiet_ms: listed.quiet_ms,
        state: listed.state.to_owned(),
        under_way: listed.under_way.into(),
        bytes_in: listed.bytes_in,
        bytes_out: listed.bytes_out,
    }
}

fn program(watch: &Watch) -> Vec<Counter> {
    let each = watch.state().counters().into_iter();
    each.map(|counter| Counter {
        name: counter.name,
        help: String::new(),
        is_gauge: counter.is_gauge,
        value: counter.value,
    })
    .collect()
}

fn dictionaries(watch: &Watch) -> Vec<Dictionary> {
    let each = watch.state().dict_reports().into_iter();
    each.map(|dict| Dictionary {
        name: dict.name,
        entries: dict.entries,
        entries_max: dict.entries_max,
        bytes: dict.bytes,
        hits: dict.hits,
        misses: dict.misses,
        evictions: dict.evictions,
        expirations: dict.expirations,
        refusals: dict.refusals,
    })
    .collect()
}

/// A task graph in the words of the admin side, with counts on its edges.
fn tasks(graph: &graph::Graph, count: impl Fn(&graph::Edge) -> Option<u64>) -> Graph {
    let task = |task: &graph::Task| Task {
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
    let edge = |edge: &graph::Edge| Edge {
        from: edge.from,
        to: edge.to,
        kind: kind(edge.kind).to_owned(),
        count: count(edge),
    };
    Graph { tasks: graph.tasks.iter().map(task).collect(), edges: graph.edges.iter().map(edge).collect() }
}

/// Puts its count on an edge along which messages go.
fn counted(program: &Program, ways: &WayTotals, edge: &graph::Edge) -> Option<u64> {
    match (edge.kind, edge.channel) {
        (EdgeKind::Keeps, _) => None,
        (EdgeKind::Sends, None) => Some(ways.started(program, edge.start)),
        (EdgeKind::Sends, Some(channel)) => Some(ways.sent(program, edge.start, channel)),
        (EdgeKind::Asks, channel) => Some(ways.asked(program, edge.start, channel?)),
    }
}
