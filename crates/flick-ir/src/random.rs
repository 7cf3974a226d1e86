//! Random modules that are well-formed, with messages and frames to run them on; for tests that compare engines.
//! Promises: the same seed gives the same module for ever on every machine; nearly all pass the verifier, and no
//! input makes them break an invariant that engines panic on.
//! Refuses: to look like programs. They are dense in the operations and corners that real ones rarely touch.
//! Source: typed generation top-down, as in Csmith and cranelift-fuzzgen.

mod body;
mod frame_lists;
mod host;
mod run;
mod wide;

use flick_abi::frame::SLOT_TOTAL;
use flick_abi::limits::FRAME_HEAD_SLOTS;
use flick_abi::{
    Bounds, BytesRef, Channel, Counter, Dict, Evict, Frame, FuncId, Program, Region, Rule, RuleAction, Units,
    View,
};

use crate::data::{FuncKind, Function, Module};
use crate::passes::spill;

pub use host::MockHost;
pub use run::{
    Record, record_order, record_parser, record_rule, record_rule_through, record_rule_with, record_rules,
};

/// The parser of a random module.
pub const PARSER: FuncId = FuncId(0);
/// The builder of a random module.
pub const BUILDER: FuncId = FuncId(1);
/// The rule of a random module.
pub const RULE: FuncId = FuncId(4);
/// The order of a random module.
pub const ORDER: FuncId = FuncId(5);

/// Slots that random functions use for numbers.
const NUMBER_SLOTS: std::ops::Range<u16> = FRAME_HEAD_SLOTS as u16..FRAME_HEAD_SLOTS as u16 + 6;
/// Slots that random functions use for booleans.
const BOOL_SLOTS: std::ops::Range<u16> = NUMBER_SLOTS.end..NUMBER_SLOTS.end + 2;
/// Slots that random functions use for bytes.
const BYTES_SLOTS: std::ops::Range<u16> = BOOL_SLOTS.end..BOOL_SLOTS.end + 4;
/// Shortest message that [`message`] makes for a rule.
const MESSAGE_BYTES_MIN: usize = 8;
/// Longest message that [`message`] makes.
const MESSAGE_BYTES_MAX: usize = 40;
/// Longest value of a dictionary of a random module.
const VALUE_BYTES_MAX: u32 = 32;
/// Words of state that hold a number each.
const STATE_NUMBERS: u32 = 4;
/// Words of state where bytes start, with their bounds.
const STATE_BYTES: [(u32, u32); 2] = [(4, 40), (10, 20)];
/// Words of state.
const STATE_WORDS: u32 = 14;
/// Classes of a random module.
const CLASSES: usize = 3;
/// Constant bytes of a random module.
const CONSTS_BYTES: usize = 24;

/// A small generator of random numbers.
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any word.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `items`. Panics when there is none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// A word that is likely to sit in a corner: small, a power of two, an extreme, or anything.
    pub fn corner(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(4) as u64,
            1 => (self.below(9) as u64).wrapping_sub(4),
            2 => self.pick(&[i64::MIN as u64, i64::MAX as u64, u64::MAX, u64::from(u32::MAX), 1 << 32]),
            3 => 1_u64 << self.below(64),
            4 => self.below(64) as u64,
            _ => self.word(),
        }
    }
}

/// A module with one parser (`f0`), one builder (`f1`), two helpers (`f2`, `f3`), one rule (`f4`) and one order (`f5`).
pub fn module(seed: u64) -> Module {
    let mut module = plain_module(seed);
    spill::run(&mut module);
    module
}

/// As [`module`], before what rules need across suspensions is kept.
pub fn plain_module(seed: u64) -> Module {
    let mut rng = Rng::new(seed);
    let (parse_request, parse_reply) = (FuncId(0), FuncId(0));
    let head_bytes_max = MESSAGE_BYTES_MAX as u32;
    let view = View {
        parse_request,
        parse_reply,
        parse_asked: parse_reply,
        reply_flags: None,
        head_bytes_max,
        first: None,
    };
    let channel = |name: &str, is_array| Channel {
        name: name.to_owned(),
        is_array,
        view: Some(view.clone()),
        sends: true,
        protocol: 0,
        units: Units::default(),
    };
    let dict = |name: &str| Dict {
        name: name.to_owned(),
        entries_max: 64,
        bytes_max: None,
        key_bytes_max: 64,
        value_bytes_max: VALUE_BYTES_MAX,
        expire_ns: None,
        evict: Evict::Nothing,
        snapshot: None,
        layout: 1,
    };
    let counter = |name: &str, is_gauge| Counter { name: name.to_owned(), is_gauge };
    let program = Program {
        name: format!("random_{seed}"),
        channels: vec![channel("client", false), channel("backends", true)],
        rules: vec![Rule { source: 0, action: RuleAction::Run { rule: RULE }, asks: true, lookup: None }],
        protocols: Vec::new(),
        merges: Vec::new(),
        handlers: Vec::new(),
        timers: Vec::new(),
        dicts: vec![dict("one"), dict("two")],
        counters: vec![counter("counter", false), counter("gauge", true)],
        state_words: STATE_WORDS,
        init_state: None,
        bounds: Bounds::default(),
    };
    // Few different bytes, so that prefixes and substrings are found.
    let consts = (0..CONSTS_BYTES).map(|_| rng.pick(b"aab\x00,")).collect();
    let classes =
        vec![class(|_| rng.chance(50)), class(|byte| byte < 128 && byte != b','), class(|byte| byte == b'a')];
    let mut functions: Vec<Function> = Vec::new();
    for kind in [
        FuncKind::Parser,
        FuncKind::Builder,
        FuncKind::Helper,
        FuncKind::Helper,
        FuncKind::Rule,
        FuncKind::Order,
    ] {
        let function = body::function(&mut rng, kind, &functions);
        functions.push(function);
    }
    Module { program, functions, consts, classes }
}

/// The bytes that a condition holds for.
fn class(mut is_member: impl FnMut(u8) -> bool) -> [u64; 4] {
    let mut class = [0; 4];
    for byte in (0..=255_u8).filter(|byte| is_member(*byte)) {
        class[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    class
}

/// A message: bytes of the same few kinds, at least as long as rules may assume.
pub fn message(rng: &mut Rng) -> Vec<u8> {
    let len = MESSAGE_BYTES_MIN + rng.below(MESSAGE_BYTES_MAX - MESSAGE_BYTES_MIN + 1);
    (0..len)
        .map(|_| if rng.chance(80) { rng.pick(b"aaab\x00\x01\x04,:\r\n%4") } else { rng.word() as u8 })
        .collect()
}

/// A frame as a parser of `message` might have left it: corner numbers, and bytes inside the message.
pub fn frame(rng: &mut Rng, message: &[u8]) -> Frame {
    let mut frame = Frame::new();
    for slot in NUMBER_SLOTS.chain(BOOL_SLOTS) {
        frame.slots[usize::from(slot)] = if rng.chance(50) { 0 } else { rng.corner() };
    }
    for slot in BYTES_SLOTS {
        let start = rng.below(message.len() + 1);
        let len = rng.below(message.len() - start + 1) as u32;
        frame.slots[usize::from(slot)] = BytesRef::new(Region::Message, start as u64, len).0;
    }
    frame.slots[SLOT_TOTAL] = (message.len() + rng.below(5) / 4) as u64;
    for _ in 0..rng.below(4) {
        let start = rng.below(message.len() + 1);
        let end = start + rng.below((message.len() - start).min(4) + 1);
        frame.push_item(BytesRef::new(Region::Message, start as u64, (end - start) as u32).0);
        if rng.chance(40) {
            frame.cut(start as u64, end as u64);
        }
    }
    frame
}

/// A frame before the first byte, with numbers left over from an earlier message.
pub fn fresh_frame(rng: &mut Rng) -> Frame {
    let mut frame = frame(rng, &[]);
    frame.restart();
    frame
}

/// Seeds of this crate's own tests: `FLICK_IR_MODULES` asks for more, `FLICK_IR_SEED` for others.
#[cfg(test)]
pub(crate) fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("the variable is a number"))
    };
    let first = number("FLICK_IR_SEED", 0);
    first..first + number("FLICK_IR_MODULES", 1_000)
}

#[cfg(test)]
mod tests {
    use super::module;
    use crate::{text, verify};

    #[test]
    fn random_modules_are_well_formed_and_survive_their_text() {
        let seeds = 500;
        let mut refused = 0;
        for seed in 0..seeds {
            let module = module(seed);
            let printed = text::print(&module);
            let read =
                text::parse(&printed).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{printed}"));
            assert_eq!(text::print(&read), printed, "seed {seed}");
            assert_eq!(format!("{read:?}"), format!("{module:?}"), "seed {seed}");
            let errors = verify(&module);
            refused += u64::from(!errors.is_empty());
            if let Some(error) = errors.first() {
                println!("seed {seed}: {error}\n{printed}");
            }
        }
        assert!(refused * 20 <= seeds, "the verifier refuses {refused} of {seeds}");
    }
}
