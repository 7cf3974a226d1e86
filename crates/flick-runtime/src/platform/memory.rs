//! Memory that a service may need at most, part by part, computed before it starts.
//! Promises: an upper bound over all inputs; every part names the setting or declaration that makes it smaller.
//! Refuses: to know the machine; `flick run` compares.

use flick_abi::{Frame, Program};
use flick_net::limits::SHM_PAIR_MEMORY_FACTOR;

use crate::backend_set::ChannelCapacity;
use crate::config::PlatformConfig;
use crate::downstream::client::ClientConn;
use crate::inflight::InflightRequest;
use crate::limits::{ACCESS_ENTRIES_MAX, ACCESS_PLAIN_RECORD_BYTES_MAX, ACCESS_RING_BYTES};
use crate::observe::access_log::AccessLog;
use crate::setup::requirements::{shape_of, suspended_rules_of};
use crate::setup::{BackendConnsMax, BoundBackends, StartError, backends_are_exclusive};
use crate::state::dict_bytes_of;
use crate::upstream::conn::BackendConn;

/// A part of a service's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// For people: "the dictionary `hits`".
    pub what: String,
    /// At most.
    pub bytes: u64,
    /// Addresses that are set apart for it, touched or not: each worker has tables for all of it.
    pub addresses: u64,
    /// Change that makes it smaller: "lower `--buffer-memory`".
    pub remedy: String,
    /// It is there once for all processes of a program.
    pub of_program: bool,
}

/// All parts, largest first.
///
/// Errors: the bindings do not fit the process, or its code asks for what the platform cannot give.
pub fn parts(program: &Program, config: &PlatformConfig) -> Result<Vec<MemoryPart>, StartError> {
    let limits = &config.limits;
    let bound = BoundBackends::of(program, config)?;
    let shape = shape_of(program, &bound.elements())?;
    let max_suspended_rules = suspended_rules_of(program, limits, &shape);
    let locals = u64::from(program.state_words) * size_of::<u64>() as u64;
    let per_session = (size_of::<ClientConn>() + SESSION_QUEUE_BYTES) as u64;
    let (sessions, workers) = (u64::from(limits.session_slots()), config.workers.max(1) as u64);
    let tables = sessions * per_session
        + u64::from(limits.max_inflight_requests) * size_of::<InflightRequest>() as u64;
    let connection_limits = if limits.max_connections_per_ip > 0 { sessions * IP_COUNT_BYTES } else { 0 };
    let session_locals = sessions * locals;
    let suspended_rules = u64::from(max_suspended_rules) * (shape.bytes() + locals);
    let mut out = vec![
        of_buffers("network buffers", config.pool_memory()),
        of_buffers("rings in shared memory", config.ring_memory()),
        of_pairs(config),
        MemoryPart {
            what: format!(
                "tables of sessions ({}) and requests ({})",
                limits.max_connections, limits.max_inflight_requests
            ),
            bytes: tables + connection_limits,
            addresses: tables * workers + connection_limits,
            remedy: "lower `--max-connections` or `--max-inflight-requests`".to_owned(),
            of_program: false,
        },
        MemoryPart {
            what: format!("`local`s of {} sessions", limits.max_connections),
            bytes: session_locals,
            addresses: session_locals * workers,
            remedy: "lower `--max-connections`, or keep less in each session".to_owned(),
            of_program: false,
        },
        MemoryPart {
            what: format!("{} activations that wait for replies", max_suspended_rules),
            bytes: suspended_rules,
            addresses: suspended_rules * workers,
            remedy: "lower `--max-suspended-rules`, or build less before an `ask`".to_owned(),
            of_program: false,
        },
    ];
    out.extend(program.dicts.iter().map(of_dict));
    if config.access.is_some() {
        let fields = program.protocols.iter().map(|protocol| protocol.log_fields.len()).max();
        let bytes = workers * (ACCESS_BYTES + AccessLog::bytes_of_fields(fields.unwrap_or_default()));
        out.push(MemoryPart {
            what: "the access log".to_owned(),
            bytes,
            addresses: bytes,
            remedy: "lower `--workers`, or keep no access log".to_owned(),
            of_program: false,
        });
    }
    out.extend(exchanges(program, config, &bound.capacities));
    out.retain(|part| part.bytes > 0);
    out.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    Ok(out)
}

/// Memory that follows from `--buffer-memory`.
fn of_buffers(what: &str, bytes: u64) -> MemoryPart {
    MemoryPart {
        what: what.to_owned(),
        bytes,
        addresses: bytes,
        remedy: "lower `--buffer-memory`".to_owned(),
        of_program: false,
    }
}

/// Memory of other processes that the service is paired with. Without an address `shm:NAME` it is there because
/// connections of sockets may move to shared memory.
fn of_pairs(config: &PlatformConfig) -> MemoryPart {
    let bytes = config.ring_memory() * SHM_PAIR_MEMORY_FACTOR;
    let mut part = of_buffers("rings and tables of paired processes in shared memory", bytes);
    if !config.is_at_shm() {
        part.what.push_str(", to which connections of TCP and Unix sockets move");
        part.remedy.push_str(", or set `--shm pipes`");
    }
    part
}

/// The memory of a dictionary.
fn of_dict(dict: &flick_abi::Dict) -> MemoryPart {
    let bytes = dict_bytes_of(dict);
    let remedy = match dict.bytes_max {
        Some(bytes) => format!("declare it with fewer bytes than `{bytes} bytes`"),
        None => format!(
            "declare it with fewer entries than `max {0} entries`, or bound its memory: `max {0} entries, 64MiB bytes`",
            dict.entries_max
        ),
    };
    MemoryPart {
        what: format!("the dictionary `{}`", dict.name),
        bytes,
        addresses: bytes,
        remedy,
        of_program: true,
    }
}

/// Connections dedicated to exchanges or sessions, and the parser states of their bodies; nothing for protocols whose
/// requests share connections.
fn exchanges(
    program: &Program,
    config: &PlatformConfig,
    capacities: &[ChannelCapacity],
) -> Option<MemoryPart> {
    let limits = &config.limits;
    let most = BackendConnsMax::of(program, config, capacities);
    if !backends_are_exclusive(program) && !most.are_relayed {
        return None;
    }
    let workers = config.workers.max(1) as u64;
    let backend_conns = most.dedicated * workers;
    let sessions = u64::from(limits.session_slots());
    let bytes_of =
        |bodies: u64| backend_conns * size_of::<BackendConn>() as u64 + bodies * size_of::<Frame>() as u64;
    let what = match backend_conns {
        0 => "bodies in flight".to_owned(),
        _ => format!(
            "{backend_conns} backend connections of single exchanges or sessions, and bodies in flight"
        ),
    };
    Some(MemoryPart {
        what,
        bytes: bytes_of(sessions + backend_conns),
        addresses: bytes_of(sessions * workers + backend_conns),
        remedy: "lower `--max-connections-per-backend` or `--max-connections`".to_owned(),
        of_program: false,
    })
}

/// Memory of a worker's queues and lists for each session, besides the session itself; an upper bound.
const SESSION_QUEUE_BYTES: usize = 512;
/// Memory of a worker for the access log: its ring and the requests in flight that will be in it; an upper bound.
const ACCESS_BYTES: u64 = (ACCESS_RING_BYTES + ACCESS_ENTRIES_MAX * ACCESS_PLAIN_RECORD_BYTES_MAX) as u64;
/// Memory of the table of client addresses for each session; an upper bound.
const IP_COUNT_BYTES: u64 = 192;
