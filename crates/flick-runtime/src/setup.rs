//! A program bound to addresses: everything about a service that does not change while it runs,
//! and the publisher of what does: the lists of backends.
//! Promises: a [`Setup`] exists only if every channel is bound, the right way round, and every limit makes sense.

mod merging;
pub(crate) mod requirements;

use std::sync::Arc;

use flick_abi::{Channel, Engine, FailureReason, FuncId, KeyLookup, Program, Protocol, RuleAction, View};
use flick_net::Endpoint;

use crate::backend_set::{BackendSetPublisher, ChannelCapacity};
use crate::config::{BackendAddress, BackendOverride};
use crate::config::{Binding, Limits, PlatformConfig, Timeouts};
use crate::limits::{RELAY_CONNS_PER_SESSION, SLOTS_PER_ELEMENT};
use crate::merge::MergeSetup;
use crate::observe::backend_log::BackendLog;
use crate::observe::counters::BackendCounters;
use crate::setup::requirements::Requirements;
use crate::tunables::Tunables;

/// Error that keeps a service from starting. The text names what was wrong and what would be right.
#[derive(Debug)]
pub enum StartError {
    /// The bindings do not fit the process.
    Binding(String),
    /// The program asks for what this platform cannot give.
    Program(String),
    /// The machine refused.
    Io {
        /// Operation that failed, as the text after "cannot".
        doing: String,
        /// Error of the system.
        error: std::io::Error,
    },
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Binding(text) | StartError::Program(text) => f.write_str(text),
            StartError::Io { doing, error } => write!(f, "cannot {doing}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A bound program.
pub struct Setup {
    /// The program.
    pub program: Arc<Program>,
    /// Its code.
    pub engine: Arc<dyn Engine>,
    /// Limits.
    pub limits: Limits,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Those of the limits that may change while the service runs. Workers read them here, not in `limits`.
    pub tunables: Arc<Tunables>,
    /// Index of the one channel that is listened on; of a process that merges: the array.
    pub listened: usize,
    /// Addresses to listen on, each with the index of its channel: another than `listened` only in a process that
    /// merges.
    pub listen: Vec<(usize, Endpoint)>,
    /// By slot of a backend: index of its channel.
    pub slots: Vec<usize>,
    /// Requests in flight on one backend of one worker; 0: no bound.
    pub max_requests_per_backend: u32,
    /// Sessions of one worker that may wait for a connection to one backend; 0: no bound.
    pub max_pending_per_backend: u32,
    /// Requests that each worker may send to another backend in a second, however few there are.
    pub retry_min_per_second: u32,
    /// Publisher of the current lists of backends.
    pub backend_sets: BackendSetPublisher,
    /// Counts of workers that have found something wrong with backends.
    pub backend_log: BackendLog,
    /// By channel: actions of its rules, in program order.
    pub actions: Vec<Vec<RuleAction>>,
    /// Look-up by a field of a client's message.
    pub lookup: Option<KeyLookup>,
    /// Resource requirements of its code.
    pub needs: Requirements,
    /// Some backends are of a protocol in which every exchange has a connection for itself.
    pub always_dedicates: bool,
    /// Each session has backend connections of its own.
    pub is_relay: bool,
    /// Longest message that is buffered whole: what the program looks at, or a short one.
    pub whole_bytes_max: u64,
    /// Bytes of buffers, over all workers.
    pub pool_memory: u64,
    /// Bytes that rings in shared memory may have, over all workers.
    pub ring_memory_max: u64,
    /// The merge, if the process is one.
    pub merge: Option<MergeSetup>,
}

impl Setup {
    /// Binds a program. Errors list the channels there are.
    pub fn new(
        program: Arc<Program>,
        engine: Arc<dyn Engine>,
        config: &PlatformConfig,
    ) -> Result<Self, StartError> {
        check_names(&program, config)?;
        if !program.merges.is_empty() {
            return merging::bind(program, engine, config);
        }
        let [listen] = config.listen.as_slice() else {
            return Err(StartError::Binding(format!(
                "a process listens on exactly one channel: give one with `--listen CHANNEL=ADDRESS`, and the others with \
                 `--connect`; the channels of `{}` are: {}",
                program.name,
                describe_channels(&program)
            )));
        };
        let listened = channel_index(&program, &listen.channel)?;
        if program.channels[listened].is_array {
            return Err(StartError::Binding(format!(
                "channel `{}` is an array: it can be connected (`--connect {0}=ADDRESS,...`), but only a process that \
                 merges listens on an array",
                listen.channel
            )));
        }
        if program.channels[listened].view.is_none() {
            return Err(StartError::Program(format!(
                "process `{}` never receives from `{}`, so nothing can be listened on for it",
                program.name, listen.channel
            )));
        }
        let bound = BoundBackends::of(&program, config)?;
        let protocol = &program.protocols[program.channels[listened].protocol];
        let is_relay = is_private(&program, protocol)?;
        let needs = Requirements::of(&program, listened, &bound.elements(), config)?;
        let mut actions = vec![Vec::new(); program.channels.len()];
        for rule in &program.rules {
            actions[rule.source].push(rule.action);
        }
        let lookup = program.rules.iter().filter(|rule| rule.source == listened).find_map(|rule| rule.lookup);
        Ok(Self {
            engine,
            limits: config.limits.clone(),
            timeouts: config.timeouts.clone(),
            tunables: Arc::new(Tunables::new(&config.limits)),
            listened,
            listen: listen.endpoints.iter().map(|at| (listened, at.clone())).collect(),
            max_requests_per_backend: share(config, config.limits.health.max_requests_per_backend),
            max_pending_per_backend: share(config, config.limits.health.max_pending_per_backend),
            retry_min_per_second: share(config, config.limits.retries.min_per_second),
            backend_log: BackendLog::new(bound.slots().len()),
            slots: bound.slots(),
            backend_sets: BackendSetPublisher::new(bound.capacities, bound.lists, bound.overrides),
            actions,
            lookup,
            needs,
            always_dedicates: backends_are_exclusive(&program),
            is_relay,
            whole_bytes_max: crate::setup::requirements::whole_bytes_max(&program),
            pool_memory: config.pool_memory(),
            ring_memory_max: config.ring_memory_max(),
            merge: None,
            program,
        })
    }

    /// Counters of all backends of one worker.
    pub fn backend_counters(&self) -> Vec<BackendCounters> {
        self.slots.iter().map(|_| BackendCounters::default()).collect()
    }

    /// Returns the parsers of a channel's messages. Panics for a channel that never receives: it delivers no message.
    pub fn view(&self, channel: usize) -> &View {
        self.program.channels[channel].view.as_ref().expect("only channels that receive deliver messages")
    }

    /// The protocol of a channel.
    pub fn protocol_of(&self, channel: usize) -> &Protocol {
        &self.program.protocols[self.program.channels[channel].protocol]
    }

    /// Whether the program receives on a channel. If not, what comes there is dropped with its framing unknown.
    pub fn receives(&self, channel: usize) -> bool {
        self.program.channels[channel].view.is_some()
    }

    /// Whether a rule takes what is received on a channel. Otherwise no client gets the replies.
    pub fn has_rule_of(&self, channel: u32) -> bool {
        !self.actions[channel as usize].is_empty()
    }

    /// Connections of one worker to one backend of a channel that are dedicated to single exchanges.
    pub fn max_dedicated_connections(&self, channel: usize) -> u32 {
        max_dedicated_connections(
            &self.limits,
            self.protocol_of(channel),
            self.is_relay,
            self.slots.len() as u32,
        )
    }

    /// The rule of a channel, if it has one rule and does nothing else.
    pub(crate) fn only_rule(&self, channel: usize) -> Option<FuncId> {
        match self.actions[channel].as_slice() {
            [RuleAction::Run { rule }] => Some(*rule),
            _ => None,
        }
    }

    /// The rule that answers all messages of clients by itself: the program has no other channel, and waits for no
    /// reply.
    pub(crate) fn answering_rule(&self) -> Option<FuncId> {
        let answers_all = self.actions.len() == 1 && !self.needs.asks && !self.is_relay;
        self.only_rule(self.listened).filter(|_| answers_all)
    }

    /// The protocol of the sessions.
    pub fn protocol(&self) -> &Protocol {
        self.protocol_of(self.listened)
    }

    /// The builder of the response to a client that is rejected before it has sent a request: the overload response,
    /// where it repeats nothing of a request.
    pub fn response_before_request(&self) -> Option<FuncId> {
        let protocol = self.protocol();
        protocol.echo.is_empty().then(|| protocol.failures[FailureReason::Overload as usize])?
    }

    /// Whether the grammar has an overload response.
    pub fn has_overload_response(&self) -> bool {
        self.merge.is_none() && self.failure(FailureReason::Overload).is_some()
    }

    /// The builder of the platform's own reply for a reason; a request that is not of the grammar in a special way is
    /// answered as any such one if the grammar has no words for that way.
    pub fn failure(&self, reason: FailureReason) -> Option<flick_abi::FuncId> {
        let failures = &self.protocol().failures;
        let general = match reason {
            FailureReason::TooLong | FailureReason::Unsupported => {
                failures[FailureReason::Malformed as usize]
            }
            FailureReason::NameTooLong => {
                failures[FailureReason::TooLong as usize].or(failures[FailureReason::Malformed as usize])
            }
            _ => None,
        };
        failures[reason as usize].or(general)
    }
}

/// The part of a worker of what an operator has said for all of them.
fn share(config: &PlatformConfig, of_all: u32) -> u32 {
    of_all.div_ceil(config.workers.max(1) as u32)
}

/// Whether sessions have backend connections of their own.
///
/// Errors: then rules cannot ask.
fn is_private(program: &Program, protocol: &Protocol) -> Result<bool, StartError> {
    if protocol.is_private() && program.rules.iter().any(|rule| rule.asks) {
        return Err(StartError::Program(format!(
            "the grammar of `{}` does not say how replies find their requests, so rules cannot ask; write \
             `%order = in_order;` or `%correlate = self.FIELD;` in the unit",
            protocol.name
        )));
    }
    Ok(protocol.is_private())
}

/// Connections of one worker to one of `backends` backends that are dedicated to exchanges or sessions.
fn max_dedicated_connections(limits: &Limits, protocol: &Protocol, is_relay: bool, backends: u32) -> u32 {
    if is_relay {
        // As many as sessions could want, but in all not many times their number.
        let sessions = limits.max_connections;
        let share = sessions.saturating_mul(RELAY_CONNS_PER_SESSION) / backends.max(1);
        share.max(limits.max_connections_per_backend).min(sessions).max(1)
    } else if protocol.exclusive {
        limits.max_connections_per_backend.max(1)
    } else {
        limits.max_dedicated_connections
    }
}

/// Bounds on the backend connections of a service, by its bindings alone.
pub(crate) struct BackendConnsMax {
    /// Sessions have backend connections of their own.
    pub are_relayed: bool,
    /// Slots of backends.
    pub backends: u64,
    /// Dedicated connections of one worker.
    pub dedicated: u64,
}

impl BackendConnsMax {
    /// Of a program whose channels have these capacities.
    pub fn of(program: &Program, config: &PlatformConfig, capacities: &[ChannelCapacity]) -> Self {
        let is_listened =
            |channel: &&Channel| config.listen.first().is_some_and(|binding| binding.channel == channel.name);
        let listened = program.channels.iter().find(is_listened);
        let are_relayed = listened.is_some_and(|channel| program.protocols[channel.protocol].is_private())
            && program.merges.is_empty();
        let backends: usize = capacities.iter().map(|capacity| capacity.slots.len()).sum();
        let dedicated_of = |(channel, capacity): (&Channel, &ChannelCapacity)| {
            let protocol = &program.protocols[channel.protocol];
            let each = max_dedicated_connections(&config.limits, protocol, are_relayed, backends as u32);
            capacity.slots.len() as u64 * u64::from(each)
        };
        let dedicated = program.channels.iter().zip(capacities).map(dedicated_of).sum();
        Self { are_relayed, backends: backends as u64, dedicated }
    }
}

/// Whether exchanges of some channel have a connection each.
pub(crate) fn backends_are_exclusive(program: &Program) -> bool {
    program.channels.iter().any(|channel| program.protocols[channel.protocol].exclusive)
}

/// The backends of all channels as they are bound at the start.
pub(crate) struct BoundBackends {
    /// By channel.
    pub capacities: Vec<ChannelCapacity>,
    /// By channel: its first list.
    pub lists: Vec<Vec<BackendAddress>>,
    /// By channel: the operator's changes of its backends.
    pub overrides: Vec<Vec<BackendOverride>>,
}

impl BoundBackends {
    /// Errors: the bindings do not fit the process.
    pub fn of(program: &Program, config: &PlatformConfig) -> Result<Self, StartError> {
        check_names(program, config)?;
        let count = program.channels.len();
        let (capacities, lists) = (vec![ChannelCapacity::default(); count], vec![Vec::new(); count]);
        let mut bound = Self { capacities, lists, overrides: vec![Vec::new(); count] };
        let mut slots = 0;
        for binding in &config.connect {
            let channel = channel_index(program, &binding.channel)?;
            check_count(program, channel, binding, config.limits.max_backends > 0)?;
            let (given, is_single) = (binding.endpoints.len() as u32, !program.channels[channel].is_array);
            let most = if is_single { 1 } else { config.limits.max_backends.max(given) };
            let changes = config.limits.max_backends > 0;
            let capacity = if changes { most * SLOTS_PER_ELEMENT } else { most };
            bound.capacities[channel] =
                ChannelCapacity { slots: slots..slots + capacity, elements_max: most, is_single };
            bound.lists[channel] = binding.members();
            bound.overrides[channel].clone_from(&binding.overrides);
            slots += capacity;
        }
        Ok(bound)
    }

    /// By slot: its channel.
    fn slots(&self) -> Vec<usize> {
        let mut slots =
            vec![0; self.capacities.iter().map(|capacity| capacity.slots.end).max().unwrap_or(0) as usize];
        for (channel, capacity) in self.capacities.iter().enumerate() {
            capacity.slots.clone().for_each(|slot| slots[slot as usize] = channel);
        }
        slots
    }

    /// By channel: how many elements it may have.
    pub fn elements(&self) -> Vec<u32> {
        self.capacities.iter().map(|capacity| capacity.elements_max).collect()
    }
}

/// `client (single, receives request, sends response)`, for error texts.
fn describe_channels(program: &Program) -> String {
    let describe = |channel: &Channel| {
        let kind = if channel.is_array { "array" } else { "single" };
        format!("`{}` ({kind}, {})", channel.name, program.directions(channel))
    };
    program.channels.iter().map(describe).collect::<Vec<_>>().join(", ")
}

fn channel_index(program: &Program, name: &str) -> Result<usize, StartError> {
    program.channels.iter().position(|channel| channel.name == name).ok_or_else(|| {
        StartError::Binding(format!(
            "process `{}` has no channel `{name}`; its channels are: {}",
            program.name,
            describe_channels(program)
        ))
    })
}

/// The options that bind a channel, and the entries of a settings file: neither an array that the process sends on nor
/// a channel that it only sends on is listened on.
fn binding_options(channel: &Channel) -> String {
    let name = &channel.name;
    let (options, tables, value) = match (channel.is_array, channel.view.is_some(), channel.sends) {
        (true, _, true) => {
            (format!("`--connect {name}=ADDRESS,ADDRESS`"), "`connect`", "[\"ADDRESS\", \"ADDRESS\"]")
        }
        (false, false, _) => (format!("`--connect {name}=ADDRESS`"), "`connect`", "\"ADDRESS\""),
        _ => (
            format!("`--listen {name}=ADDRESS` or `--connect {name}=ADDRESS`"),
            "`listen` or `connect`",
            "\"ADDRESS\"",
        ),
    };
    format!("{options}, in `flick.toml` `{name} = {value}` in {tables}")
}

fn check_names(program: &Program, config: &PlatformConfig) -> Result<(), StartError> {
    let bound: Vec<&str> = config.listen.iter().chain(&config.connect).map(|b| b.channel.as_str()).collect();
    for (at, name) in bound.iter().enumerate() {
        channel_index(program, name)?;
        if let Some(first) = bound[..at].iter().position(|other| other == name) {
            let listens = config.listen.len();
            let help = match (first < listens, at < listens) {
                (true, false) => "it either listens or connects".to_owned(),
                (listens, _) => format!(
                    "separate several addresses with commas: `--{} {name}=A,B`",
                    if listens { "listen" } else { "connect" }
                ),
            };
            return Err(StartError::Binding(format!("channel `{name}` is bound twice; {help}")));
        }
    }
    let is_missing = |channel: &&Channel| !bound.contains(&channel.name.as_str());
    let missing: Vec<&Channel> = program.channels.iter().filter(is_missing).collect();
    if missing.len() > 1 {
        let names: Vec<String> = missing.iter().map(|channel| format!("`{}`", channel.name)).collect();
        // Most services listen at single channels that they receive from, and connect to arrays.
        let options = missing.iter().map(|channel| match (channel.is_array, channel.view.is_some()) {
            (true, _) => format!("--connect {}=ADDRESS,ADDRESS", channel.name),
            (false, false) => format!("--connect {}=ADDRESS", channel.name),
            (false, true) => format!("--listen {}=ADDRESS", channel.name),
        });
        return Err(StartError::Binding(format!(
            "channels {} of process `{}` are not bound; give each an address with `--listen` or `--connect`, such as \
             `{}`. Its channels are: {}",
            names.join(", "),
            program.name,
            options.collect::<Vec<_>>().join(" "),
            describe_channels(program)
        )));
    }
    if let Some(first) = missing.first() {
        return Err(StartError::Binding(format!(
            "channel `{}` of process `{}` is not bound; give it {}. Its channels are: {}",
            first.name,
            program.name,
            binding_options(first),
            describe_channels(program)
        )));
    }
    let changes = config.limits.max_backends > 0;
    let is_nothing = |binding: &&Binding| !changes && binding.endpoints.is_empty();
    let unbound = config.connect.iter().find(is_nothing);
    if let Some(empty) = config.listen.iter().find(|binding| binding.endpoints.is_empty()).or(unbound) {
        return Err(StartError::Binding(format!("channel `{}` is bound to no address", empty.channel)));
    }
    Ok(())
}

fn check_count(
    program: &Program,
    channel: usize,
    binding: &Binding,
    changes: bool,
) -> Result<(), StartError> {
    let (name, count) = (&binding.channel, binding.endpoints.len());
    if !program.channels[channel].is_array && count != 1 && !(changes && count == 0) {
        return Err(StartError::Binding(format!(
            "channel `{name}` is a single channel but was given {count} addresses"
        )));
    }
    let most = flick_abi::limits::CHANNEL_ELEMENTS_MAX;
    if count > most {
        return Err(StartError::Binding(format!(
            "channel `{name}` was given {count} addresses; at most {most} work"
        )));
    }
    Ok(())
}
