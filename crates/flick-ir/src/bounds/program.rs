//! Bounds of a whole program: those of its functions, combined as the platform runs them.

use flick_abi::{Bounds, FuncId, RuleAction};
use flick_dict::{DictConfig, Seed};

use super::{FunctionBounds, bounds};
use crate::data::Module;

/// Needs of what one message, event or tick causes.
#[derive(Clone, Copy, Default)]
struct Need {
    steps: u64,
    sends: u64,
    out_bytes: u64,
}

impl Need {
    fn of(bounds: &FunctionBounds) -> Self {
        Self { steps: bounds.steps, sends: bounds.sends, out_bytes: bounds.all_out_bytes() }
    }

    /// One after the other; each builds in a room of its own.
    fn then(self, other: Self) -> Self {
        Self {
            steps: self.steps.saturating_add(other.steps),
            sends: self.sends.saturating_add(other.sends),
            out_bytes: self.out_bytes.max(other.out_bytes),
        }
    }

    /// One or the other.
    fn or(self, other: Self) -> Self {
        Self {
            steps: self.steps.max(other.steps),
            sends: self.sends.max(other.sends),
            out_bytes: self.out_bytes.max(other.out_bytes),
        }
    }
}

/// The needs of a program whose module is complete, spills included. Panics on recursion.
///
/// Bytes of dictionaries are those of keys and values; what the platform needs around them is its own.
pub fn program_bounds(module: &Module) -> Bounds {
    let functions = bounds(module);
    let program = &module.program;
    let need = |id: FuncId| Need::of(&functions[id.0 as usize]);
    let action = |action: RuleAction| match action {
        RuleAction::Pass { .. } => Need { sends: 1, ..Need::default() },
        RuleAction::Run { rule } => need(rule),
    };
    let mut worst = Need::default();
    for (source, channel) in program.channels.iter().enumerate() {
        let parse = channel.view.as_ref().map_or(Need::default(), |view| {
            let flags = view.reply_flags.map_or(Need::default(), need);
            let reply = need(view.parse_reply).or(need(view.parse_asked));
            need(view.parse_request).or(reply.then(flags))
        });
        // One message may match several rules of its channel: their needs add up.
        let rules = program.rules.iter().filter(|rule| rule.source == source);
        let rules = rules.fold(Need::default(), |sum, rule| sum.then(action(rule.action)));
        let merges = program
            .merges
            .iter()
            .filter(|merge| merge.source == source)
            .fold(Need::default(), |sum, merge| {
                sum.then(need(merge.order)).then(need(merge.combine)).then(action(merge.finish))
            });
        worst = worst.or(parse.then(rules).then(merges));
    }
    let others = program.handlers.iter().map(|handler| handler.rule);
    let others = others.chain(program.timers.iter().map(|timer| timer.rule)).chain(program.init_state);
    worst = others.fold(worst, |worst, rule| worst.or(need(rule)));
    let spill_words = functions.iter().map(|function| function.spill_words).max().unwrap_or(0);
    let views = program.channels.iter().filter_map(|channel| channel.view.as_ref());
    Bounds {
        session_state_bytes: session_bytes(module, &functions),
        global_state_bytes: global_bytes(module),
        head_bytes_max: views.map(|view| u64::from(view.head_bytes_max)).max().unwrap_or(0),
        steps_per_message_max: worst.steps,
        sends_per_message_max: worst.sends,
        out_bytes_max: worst.out_bytes,
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
