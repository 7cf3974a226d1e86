//! Bounds of a whole program: those of its functions, combined as the platform runs them.

use flick_abi::{Bounds, FuncId, RuleAction};
use flick_dict::{DictConfig, Seed};

use super::{FunctionBounds, bounds, is_ask};
use crate::data::Module;

/// Something that makes functions run: a message, an event or a timer.
#[derive(Clone, Default)]
pub(super) struct Trigger {
    /// The functions, one after the other; each builds in a room of its own.
    pub(super) functions: Vec<FuncId>,
    /// Messages that are sent without a function.
    passes: u64,
}

impl Trigger {
    fn of(functions: Vec<FuncId>) -> Self {
        Self { functions, passes: 0 }
    }

    fn then(mut self, action: RuleAction) -> Self {
        match action {
            RuleAction::Pass { .. } => self.passes += 1,
            RuleAction::Run { rule } => self.functions.push(rule),
        }
        self
    }

    /// Steps of all its functions.
    pub(super) fn steps(&self, bounds: &[FunctionBounds]) -> u64 {
        self.sum(bounds, FunctionBounds::all_steps)
    }

    fn sum(&self, bounds: &[FunctionBounds], of: impl Fn(&FunctionBounds) -> u64) -> u64 {
        self.functions.iter().map(|id| of(&bounds[id.0 as usize])).fold(0, u64::saturating_add)
    }
}

/// Returns everything that makes functions of a module run.
pub(super) fn triggers(module: &Module) -> Vec<Trigger> {
    let program = &module.program;
    let insts = module.functions.iter().flat_map(|function| &function.blocks).flat_map(|block| &block.insts);
    let asks = insts.into_iter().any(is_ask);
    let mut triggers = Vec::new();
    for (source, channel) in program.channels.iter().enumerate() {
        let mut parsers = vec![Vec::new()];
        if let Some(view) = &channel.view {
            let flags = view.reply_flags;
            parsers = vec![vec![view.parse_request], [view.parse_reply].into_iter().chain(flags).collect()];
            // Replies are taken in one piece only by a rule that asks for them.
            parsers.extend(asks.then(|| [view.parse_asked].into_iter().chain(flags).collect()));
        }
        for parser in parsers {
            // One message may match several rules of its channel: their needs add up.
            let mut trigger = Trigger::of(parser);
            for rule in program.rules.iter().filter(|rule| rule.source == source) {
                trigger = trigger.then(rule.action);
            }
            for merge in program.merges.iter().filter(|merge| merge.source == source) {
                trigger.functions.extend([merge.order, merge.combine]);
                trigger = trigger.then(merge.finish);
            }
            triggers.push(trigger);
        }
    }
    let others = program.handlers.iter().map(|handler| handler.rule);
    let others = others.chain(program.timers.iter().map(|timer| timer.rule)).chain(program.init_state);
    triggers.extend(others.map(|rule| Trigger::of(vec![rule])));
    triggers
}

/// The needs of a program whose module is complete, spills included. Panics on recursion.
///
/// Bytes of dictionaries are those of keys and values; what the platform needs around them is its own.
pub fn program_bounds(module: &Module) -> Bounds {
    let functions = bounds(module);
    let program = &module.program;
    let triggers = triggers(module);
    let most_of = |of: &dyn Fn(&Trigger) -> u64| triggers.iter().map(of).max().unwrap_or(0);
    let out_bytes = |id: &FuncId| functions[id.0 as usize].all_out_bytes();
    let spill_words = functions.iter().map(|function| function.spill_words).max().unwrap_or(0);
    let views = program.channels.iter().filter_map(|channel| channel.view.as_ref());
    Bounds {
        session_state_bytes: session_bytes(module, &functions),
        global_state_bytes: global_bytes(module),
        head_bytes_max: views.map(|view| u64::from(view.head_bytes_max)).max().unwrap_or(0),
        steps_per_message_max: most_of(&|trigger| trigger.steps(&functions)),
        sends_per_message_max: most_of(&|trigger| {
            trigger.sum(&functions, |bounds| bounds.sends).saturating_add(trigger.passes)
        }),
        out_bytes_max: most_of(&|trigger| trigger.functions.iter().map(out_bytes).max().unwrap_or(0)),
        kept_bytes_max: functions.iter().map(|function| function.kept_bytes).max().unwrap_or(0),
        spill_words,
        asks_max: most(&functions, |function| function.asks),
        array_asks_max: most(&functions, |function| function.array_asks),
    }
}

fn most(functions: &[FunctionBounds], of: impl Fn(&FunctionBounds) -> u64) -> u32 {
    functions.iter().map(of).max().map_or(0, |most| u32::try_from(most).unwrap_or(u32::MAX))
}

/// Locals, and what a waiting activation keeps: words and output.
fn session_bytes(module: &Module, functions: &[FunctionBounds]) -> u64 {
    let waits = module.functions.iter().zip(functions).filter(|(function, _)| function.suspends());
    let kept = waits.map(|(_, bounds)| (8 * u64::from(bounds.spill_words)).saturating_add(bounds.kept_bytes));
    (8 * u64::from(module.program.state_words)).saturating_add(kept.max().unwrap_or(0))
}

/// Bytes of the program's globals: what the dictionaries will allocate, to the byte, and room for counters.
fn global_bytes(module: &Module) -> u64 {
    let dicts = module.program.dicts.iter();
    let dicts = dicts.map(|dict| flick_dict::memory_bytes(&DictConfig::of(dict, Seed::Random)));
    dicts.fold(COUNTER_BYTES * module.program.counters.len() as u64, u64::saturating_add)
}

/// Bytes of a counter or gauge: a cache line of its own, and a word for each of some workers.
const COUNTER_BYTES: u64 = 128;
