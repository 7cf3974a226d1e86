//! Resources that the code of a program needs of each worker: memory for suspended rules, for state, for handlers;
//! computed from its bounds and its bindings, once, before it starts.
//! Promises: a program that could need more than the limits allow does not start; the error names what is too much.

use flick_abi::limits::{
    ASKS_MAX, BUILT_BYTES_MAX, MESSAGES_MAX, SENDS_MAX, SPILL_WORDS_MAX, STATE_WORDS_MAX,
};
use flick_abi::{Event, FuncId, Program, Start};

use flick_buffers::limits::BUFS_MAX;
use flick_buffers::{HUGE_BYTES, LARGE_BYTES};

use crate::config::{Limits, PlatformConfig};
use crate::limits::{HUGE_MIN, HUGE_SHARE, SUSPENDED_RULES_MIN, WHOLE_BYTES_MAX};
use crate::observe::edge_counters::StartId;
use crate::rules::suspended::RuleFootprint;
use crate::setup::StartError;

/// Resource requirements of a program's code.
#[derive(Clone, Debug)]
pub struct Requirements {
    /// Rules that wait, over all workers; 0 when the program has no rule that may wait.
    pub max_suspended_rules: u32,
    /// Capacity for each of them.
    pub shape: RuleFootprint,
    /// Words of state of each session.
    pub state_words: usize,
    /// Entries of the in-flight table that one message may need.
    pub entries_per_message: usize,
    /// Running a rule twice on one message would be seen.
    pub has_effects: bool,
    /// No rule depends on which backend it picks: a retry may go to another one.
    pub picks_are_free: bool,
    /// Rules of the listened channel may suspend themselves.
    pub asks: bool,
    /// By channel: its handlers, by event.
    handlers: Vec<Handlers>,
}

/// Kinds of events.
const EVENTS: usize = 5;

/// Of a channel: by event the rule that handles it, and the edge on which it starts.
type Handlers = [Option<(FuncId, StartId)>; EVENTS];

impl Requirements {
    /// Computes what `program` needs when its channels have `elements` elements.
    ///
    /// Errors: what it asks for that this platform cannot give, or not with these limits.
    pub fn of(
        program: &Program,
        listened: usize,
        elements: &[u32],
        config: &PlatformConfig,
    ) -> Result<Self, StartError> {
        if let Some(rule) = program.rules.iter().find(|rule| rule.asks && rule.source != listened) {
            return Err(StartError::Program(format!(
                "a rule of channel `{}` asks, but only rules of the channel that is listened on (`{}`) and timers \
                 (`every`) may: a reply cannot wait for another",
                program.channels[rule.source].name, program.channels[listened].name
            )));
        }
        let shape = shape_of(program, elements)?;
        let handlers = handlers_of(program)?;
        huge_buffers(program, config)?;
        let asks = program.rules.iter().any(|rule| rule.asks);
        let (state_words, bounds) = (program.state_words as usize, &program.bounds);
        assert!(state_words <= STATE_WORDS_MAX, "the checker bounds the state of a session");
        let sends = match bounds.sends_per_message_max {
            0 => SENDS_MAX,
            sends => (sends as usize).min(SENDS_MAX),
        };
        let needs = Self {
            max_suspended_rules: suspended_rules_of(program, &config.limits, &shape),
            shape,
            state_words,
            entries_per_message: sends + shape.asks_at_once + 1,
            has_effects: state_words > 0 || asks || !program.dicts.is_empty() || !program.counters.is_empty(),
            picks_are_free: state_words == 0 && !asks && program.dicts.is_empty(),
            asks,
            handlers,
        };
        needs.check_memory(program, config)?;
        Ok(needs)
    }

    /// The handler of an event on a channel.
    pub fn handler(&self, event: Event, channel: usize) -> Option<(FuncId, StartId)> {
        self.handlers[channel][event as usize]
    }

    /// Returns the number of suspended rules that one of `workers` has capacity for.
    pub fn suspended_rules_of_worker(&self, workers: usize) -> usize {
        (self.max_suspended_rules as usize).div_ceil(workers)
    }

    /// Requests that one of `workers` may have in flight: its share, and at least what one message needs.
    pub fn requests_of_worker(&self, max_inflight_requests: u32, workers: usize) -> usize {
        (max_inflight_requests as usize / workers).max(self.entries_per_message)
    }

    /// Memory for state, in bytes: that of sessions, and that of activations that wait.
    fn state_bytes(&self, max_connections: u32) -> (u64, u64) {
        let words = self.state_words as u64 * 8;
        let suspended_rules = u64::from(self.max_suspended_rules) * (self.shape.bytes() + words);
        (u64::from(max_connections) * words, suspended_rules)
    }

    fn check_memory(&self, program: &Program, config: &PlatformConfig) -> Result<(), StartError> {
        let limits = &config.limits;
        let (sessions, suspended_rules) = self.state_bytes(limits.max_connections);
        let dicts = crate::state::dict_bytes(program);
        let total = sessions.saturating_add(suspended_rules).saturating_add(dicts);
        if total <= limits.max_state_memory {
            return Ok(());
        }
        Err(StartError::Program(format!(
            "process `{}` may need {total} bytes of state, but {} are allowed (`--max-state-memory`): sessions ({} of {} bytes \
             of `local`s), activations that wait ({} of {} bytes), and dictionaries with {dicts} bytes; lower \
             `--max-connections`, `--max-suspended-rules` or the dictionaries' `max`, or allow more",
            program.name,
            limits.max_state_memory,
            limits.max_connections,
            self.state_words * 8,
            self.max_suspended_rules,
            self.shape.bytes() + self.state_words as u64 * 8,
        )))
    }
}

/// Returns the number of suspended rules that a service has capacity for: as many as it may have, or, where each needs
/// much, as many as its memory for state holds; a client whose request needs one more waits.
pub(crate) fn suspended_rules_of(program: &Program, limits: &Limits, shape: &RuleFootprint) -> u32 {
    let asks = program.rules.iter().any(|rule| rule.asks);
    if !asks && program.handlers.is_empty() && program.timers.is_empty() {
        return 0;
    }
    let locals = u64::from(program.state_words) * size_of::<u64>() as u64;
    let others = u64::from(limits.max_connections) * locals + crate::state::dict_bytes(program);
    let fit = limits.max_state_memory.saturating_sub(others) / (shape.bytes() + locals);
    let fit = u32::try_from(fit).unwrap_or(u32::MAX).max(SUSPENDED_RULES_MIN);
    limits.max_suspended_rules.max(1).min(fit)
}

/// Longest message of a program that is buffered whole: what the program looks at, or a short one.
pub(crate) fn whole_bytes_max(program: &Program) -> u64 {
    let views = program.channels.iter().filter_map(|channel| channel.view.as_ref());
    views.map(|view| u64::from(view.head_bytes_max)).fold(WHOLE_BYTES_MAX, u64::max)
}

/// Huge buffers of each worker: none, unless the program looks at more of a message than a large buffer holds.
///
/// Errors: so little memory for buffers that there are fewer than [`HUGE_MIN`].
pub(crate) fn huge_buffers(program: &Program, config: &PlatformConfig) -> Result<u32, StartError> {
    let whole = whole_bytes_max(program);
    if whole <= u64::from(LARGE_BYTES) {
        return Ok(0);
    }
    let (bytes, workers) = (config.limits.buffer_memory, config.workers.max(1) as u64);
    let count = huge_count(whole, bytes / workers);
    if u64::from(count) < HUGE_MIN {
        return Err(StartError::Program(format!(
            "process `{}` looks at up to {whole} bytes of a message, so each worker needs {HUGE_MIN} buffers of \
             {HUGE_BYTES} bytes, but with {bytes} bytes for buffers (`--buffer-memory`) there are {count}; allow at least {} \
             bytes, or lower the bounds of what it looks at",
            program.name,
            HUGE_MIN * u64::from(HUGE_BYTES) * HUGE_SHARE * workers
        )));
    }
    Ok(count)
}

/// Huge buffers of a worker with `worker_bytes` of buffer memory, if its program needs any.
pub(crate) fn huge_count(whole_bytes_max: u64, worker_bytes: u64) -> u32 {
    if whole_bytes_max <= u64::from(LARGE_BYTES) {
        return 0;
    }
    u32::try_from(worker_bytes / HUGE_SHARE / u64::from(HUGE_BYTES)).unwrap_or(u32::MAX).min(BUFS_MAX)
}

/// Returns the capacity that one activation of a rule that asks needs.
pub(crate) fn shape_of(program: &Program, elements: &[u32]) -> Result<RuleFootprint, StartError> {
    let bounds = &program.bounds;
    let longest = elements.iter().enumerate().max_by_key(|(_, count)| **count);
    let (channel, longest) = longest.map_or((0, 0), |(channel, count)| (channel, *count as usize));
    let per_array = bounds.array_asks_max as usize;
    if per_array > 0 && longest > ASKS_MAX {
        return Err(StartError::Program(format!(
            "channel `{}` has {longest} elements, and this program asks all elements of an array at once: at most {ASKS_MAX} \
             can be asked",
            program.channels[channel].name
        )));
    }
    let asks = bounds.asks_max as usize + per_array * longest;
    if asks >= MESSAGES_MAX {
        return Err(StartError::Program(format!(
            "one message may ask {asks} times with these {longest} elements of `{}`; at most {} replies are kept",
            program.channels[channel].name,
            MESSAGES_MAX - 1
        )));
    }
    if asks == 0 {
        return Ok(RuleFootprint::default());
    }
    let spill_words = bounds.spill_words as usize;
    let out_bytes = bounds.kept_bytes_max as usize;
    assert!(spill_words <= SPILL_WORDS_MAX, "the checker bounds what an activation keeps");
    assert!(out_bytes <= BUILT_BYTES_MAX, "the checker bounds what an activation builds");
    Ok(RuleFootprint { asks, asks_at_once: asks.min(ASKS_MAX), spill_words, out_bytes })
}

fn handlers_of(program: &Program) -> Result<Vec<Handlers>, StartError> {
    let mut handlers = vec![[None; EVENTS]; program.channels.len()];
    for (index, handler) in program.handlers.iter().enumerate() {
        let slot = &mut handlers[handler.channel][handler.event as usize];
        if slot.replace((handler.rule, StartId::of(program, Start::Handler(index)))).is_some() {
            return Err(StartError::Program(format!(
                "process `{}` handles one event of channel `{}` twice; one handler may do both",
                program.name, program.channels[handler.channel].name
            )));
        }
    }
    Ok(handlers)
}

#[cfg(test)]
mod tests {
    use super::EVENTS;
    use flick_abi::Event;

    #[test]
    fn every_event_has_a_handler_slot() {
        for event in [Event::Closed, Event::Broken, Event::Refused, Event::TimedOut, Event::Malformed] {
            assert!((event as usize) < EVENTS);
        }
    }
}
