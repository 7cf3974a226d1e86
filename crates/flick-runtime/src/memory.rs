//! How much memory a service may need at most, part by part, before it starts.
//! Promises: an upper bound over all inputs; every part names the setting or declaration that makes it smaller.
//! Refuses: to know the machine; whoever starts the service compares.

use flick_abi::{Frame, Program};

use crate::backend::Link;
use crate::config::PlatformConfig;
use crate::ledger::Request;
use crate::limits::{ACCESS_ENTRIES_MAX, ACCESS_RECORD_BYTES_MAX, ACCESS_RING_BYTES};
use crate::needs::{activations_of, shape_of};
use crate::roster::Room;
use crate::session::Session;
use crate::setup::{BoundBackends, LinksMax, StartError, backends_are_exclusive};
use crate::state::dict_bytes_of;

/// A part of a service's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// For people: "the dictionary `hits`".
    pub what: String,
    /// At most.
    pub bytes: u64,
    /// Addresses that are set apart for it, touched or not: each worker has tables for all of it.
    pub addresses: u64,
    /// What makes it smaller: "lower `--buffers`".
    pub knob: String,
    /// It is there once for all processes of a program.
    pub of_program: bool,
}

/// All parts, largest first.
///
/// Errors: the bindings do not fit the process, or its code asks for what the platform cannot give.
pub fn parts(program: &Program, config: &PlatformConfig) -> Result<Vec<Part>, StartError> {
    let limits = &config.limits;
    let bound = BoundBackends::of(program, config)?;
    let shape = shape_of(program, &bound.elements())?;
    let activations_max = activations_of(program, limits, &shape);
    let locals = u64::from(program.state_words) * size_of::<u64>() as u64;
    let per_session = (size_of::<Session>() + SESSION_QUEUE_BYTES) as u64;
    let (sessions, workers) = (u64::from(limits.places()), config.workers.max(1) as u64);
    let tables = sessions * per_session + u64::from(limits.requests_max) * size_of::<Request>() as u64;
    let guests = if limits.connections_per_address_max > 0 { sessions * GUEST_BYTES } else { 0 };
    let session_locals = sessions * locals;
    let activations = u64::from(activations_max) * (shape.bytes() + locals);
    let mut out = vec![
        Part {
            what: "network buffers".to_owned(),
            bytes: limits.buffer_bytes,
            addresses: limits.buffer_bytes,
            knob: "lower `--buffers`".to_owned(),
            of_program: false,
        },
        Part {
            what: format!("tables of {} sessions and {} requests", limits.sessions_max, limits.requests_max),
            bytes: tables + guests,
            addresses: tables * workers + guests,
            knob: "lower `--sessions-max` or `--requests-max`".to_owned(),
            of_program: false,
        },
        Part {
            what: format!("`local`s of {} sessions", limits.sessions_max),
            bytes: session_locals,
            addresses: session_locals * workers,
            knob: "lower `--sessions-max`, or keep less in each session".to_owned(),
            of_program: false,
        },
        Part {
            what: format!("{} activations that wait for replies", activations_max),
            bytes: activations,
            addresses: activations * workers,
            knob: "lower `--activations-max`, or build less before an `ask`".to_owned(),
            of_program: false,
        },
    ];
    out.extend(program.dicts.iter().map(|dict| Part {
        what: format!("the dictionary `{}`", dict.name),
        bytes: dict_bytes_of(dict),
        addresses: dict_bytes_of(dict),
        of_program: true,
        knob: match dict.bytes_max {
            Some(bytes) => format!("declare it with fewer bytes than `{bytes} bytes`"),
            None => format!(
                "declare it with fewer entries than `max {0} entries`, or bound its memory: `max {0} entries, 64MiB bytes`",
                dict.entries_max
            ),
        },
    }));
    if config.access.is_some() {
        out.push(Part {
            what: "the access log".to_owned(),
            bytes: workers * ACCESS_BYTES,
            addresses: workers * ACCESS_BYTES,
            knob: "lower `--workers`, or keep no access log".to_owned(),
            of_program: false,
        });
    }
    out.extend(exchanges(program, config, &bound.rooms));
    out.retain(|part| part.bytes > 0);
    out.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    Ok(out)
}

/// Connections that are lent to exchanges or sessions, and the parsers' states of their bodies; nothing for protocols whose
/// requests share connections.
fn exchanges(program: &Program, config: &PlatformConfig, rooms: &[Room]) -> Option<Part> {
    let limits = &config.limits;
    let most = LinksMax::of(program, config, rooms);
    if !backends_are_exclusive(program) && !most.are_private {
        return None;
    }
    let workers = config.workers.max(1) as u64;
    let links = most.lent * workers;
    let sessions = u64::from(limits.places());
    let bytes_of = |bodies: u64| links * size_of::<Link>() as u64 + bodies * size_of::<Frame>() as u64;
    Some(Part {
        what: format!("{links} backend connections of single exchanges or sessions, and bodies under way"),
        bytes: bytes_of(sessions + links),
        addresses: bytes_of(sessions * workers + links),
        knob: "lower `--exclusive-links-max` or `--sessions-max`".to_owned(),
        of_program: false,
    })
}

/// What queues and lists of a worker hold for each session, beside the session itself; generous.
const SESSION_QUEUE_BYTES: usize = 512;
/// What a worker has for the access log: its ring, and the requests under way that will be in it; generous.
const ACCESS_BYTES: u64 = (ACCESS_RING_BYTES + ACCESS_ENTRIES_MAX * ACCESS_RECORD_BYTES_MAX) as u64;
/// What a table of addresses holds for each session; generous.
const GUEST_BYTES: u64 = 192;
