//! How much memory a service may need at most, part by part, before it starts.
//! Promises: an upper bound over all inputs; every part names the setting or declaration that makes it smaller.
//! Refuses: to know the machine; whoever starts the service compares.

use flick_abi::Program;

use crate::config::PlatformConfig;
use crate::ledger::Request;
use crate::needs::{activations_of, shape_of};
use crate::session::Session;
use crate::setup::{StartError, elements_of};
use crate::state::dict_bytes_of;

/// A part of a service's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// For people: "the dictionary `hits`".
    pub what: String,
    /// At most.
    pub bytes: u64,
    /// What makes it smaller: "lower `--buffers`".
    pub knob: String,
}

/// All parts, largest first.
///
/// Errors: the bindings do not fit the process, or its code asks for what the platform cannot give.
pub fn parts(program: &Program, config: &PlatformConfig) -> Result<Vec<Part>, StartError> {
    let limits = &config.limits;
    let elements = elements_of(program, config)?;
    let shape = shape_of(program, &elements)?;
    let activations_max = activations_of(program, limits, &shape);
    let locals = u64::from(program.state_words) * size_of::<u64>() as u64;
    let per_session = (size_of::<Session>() + SESSION_QUEUE_BYTES) as u64;
    let tables = u64::from(limits.sessions_max) * per_session
        + u64::from(limits.requests_max) * size_of::<Request>() as u64;
    let mut out = vec![
        Part {
            what: "network buffers".to_owned(),
            bytes: limits.buffer_bytes,
            knob: "lower `--buffers`".to_owned(),
        },
        Part {
            what: format!("tables of {} sessions and {} requests", limits.sessions_max, limits.requests_max),
            bytes: tables,
            knob: "lower `--sessions-max` or `--requests-max`".to_owned(),
        },
        Part {
            what: format!("`local`s of {} sessions", limits.sessions_max),
            bytes: u64::from(limits.sessions_max) * locals,
            knob: "lower `--sessions-max`, or keep less in each session".to_owned(),
        },
        Part {
            what: format!("{} activations that wait for replies", activations_max),
            bytes: u64::from(activations_max) * (shape.bytes() + locals),
            knob: "lower `--activations-max`, or build less before an `ask`".to_owned(),
        },
    ];
    out.extend(program.dicts.iter().map(|dict| Part {
        what: format!("the dictionary `{}`", dict.name),
        bytes: dict_bytes_of(dict),
        knob: match dict.bytes_max {
            Some(bytes) => format!("declare it with fewer bytes than `{bytes} bytes`"),
            None => format!(
                "declare it with fewer entries than `max {0} entries`, or bound its memory: `max {0} entries, 64MiB bytes`",
                dict.entries_max
            ),
        },
    }));
    out.retain(|part| part.bytes > 0);
    out.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    Ok(out)
}

/// What queues and lists of a worker hold for each session, beside the session itself; generous.
const SESSION_QUEUE_BYTES: usize = 512;
