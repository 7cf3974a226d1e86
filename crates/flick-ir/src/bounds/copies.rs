//! Loops that copy a message piece by piece from front to back: all rounds together copy no more than the message has.
//! Promises: what is said to be copied once for each time that a loop is entered is so in every run; an engine stops
//! a copy whose end lies before its start or behind the head.
//! Source: the loop's own place `p` goes from the end of each copied piece to that of the next, so that lengths
//! telescope.

use std::collections::{BTreeMap, BTreeSet};

use crate::cfg::{Cfg, Loop, successors};
use crate::data::{Binary, BlockId, Function, Op, Terminator, Value};

/// The copies of a function whose rounds are bounded together.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// By block and index in it: how often the loop goes round at most.
    insts: BTreeMap<(BlockId, usize), u64>,
    /// Blocks from which such a loop is entered, once for each such copy.
    pub(super) entries: Vec<BlockId>,
}

impl Copies {
    /// Finds them.
    pub(super) fn new(function: &Function, cfg: &Cfg, loops: &[Loop]) -> Self {
        let mut copies = Self::default();
        let defined = definitions(function);
        for found in loops {
            let head = &function.blocks[found.head.0 as usize];
            for (index, param) in head.params.iter().enumerate() {
                let Some(copy) = only_copy(function, found, *param) else { continue };
                // In a loop of its own inside this one it would be made several times a round.
                let around = loops.iter().filter(|around| around.body.contains(&copy.0));
                if around.map(|around| around.body.len()).min() != Some(found.body.len()) {
                    continue;
                }
                let next = Next { function, cfg, found, index, position: *param, copy, defined: &defined };
                if next.goes_on_behind() {
                    copies.insts.insert(copy, head.trips_max.map_or(1, u64::from).max(1));
                    let before = cfg.predecessors[found.head.0 as usize].iter().copied();
                    copies.entries.extend(before.filter(|from| !cfg.is_backward(*from, found.head)));
                }
            }
        }
        copies
    }

    /// Returns the number of iterations of a copy's loop, if they are bounded together.
    pub(super) fn rounds(&self, block: BlockId, inst: usize) -> Option<u64> {
        self.insts.get(&(block, inst)).copied()
    }
}

/// Operations by the values that they define.
fn definitions(function: &Function) -> BTreeMap<Value, &Op> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    insts.filter_map(|inst| Some((inst.result?, &inst.op))).collect()
}

/// The end of a copy of a message that starts at `position`.
fn copied_from(op: &Op, position: Value) -> Option<Value> {
    match op {
        Op::EmitMessage { start, end } | Op::EmitMessageOf { start, end, .. } if *start == position => {
            Some(*end)
        }
        _ => None,
    }
}

/// The one copy in a loop that starts at a place of the loop.
fn only_copy(function: &Function, found: &Loop, position: Value) -> Option<(BlockId, usize)> {
    let body: BTreeSet<BlockId> = found.body.iter().copied().collect();
    let insts = body.iter().flat_map(|block| {
        let insts = function.blocks[block.0 as usize].insts.iter().enumerate();
        insts.map(|(index, inst)| ((*block, index), inst))
    });
    let mut copies = insts.filter(|(_, inst)| copied_from(&inst.op, position).is_some());
    let first = copies.next()?.0;
    copies.next().is_none().then_some(first)
}

/// Check of the value that a position of a loop has in the next iteration.
struct Next<'a> {
    function: &'a Function,
    cfg: &'a Cfg,
    found: &'a Loop,
    /// Index of the position in the parameters of the loop's head.
    index: usize,
    position: Value,
    copy: (BlockId, usize),
    defined: &'a BTreeMap<Value, &'a Op>,
}

impl Next<'_> {
    /// Whether it stays where nothing was copied, and else is not before the end of what was.
    fn goes_on_behind(&self) -> bool {
        let inst = &self.function.blocks[self.copy.0.0 as usize].insts[self.copy.1];
        let (Some(end), Some(condition)) = (copied_from(&inst.op, self.position), self.condition()) else {
            return false;
        };
        let backward = self.cfg.predecessors[self.found.head.0 as usize].iter();
        let mut backward = backward.filter(|from| self.cfg.is_backward(**from, self.found.head)).peekable();
        backward.peek().is_some()
            && backward.all(|from| {
                let edges = successors(&self.function.blocks[from.0 as usize].end);
                let mut edges = edges.iter().filter(|(target, _)| *target == self.found.head);
                edges.all(|(_, args)| self.is_behind(args[self.index], end, condition))
            })
    }

    /// Returns the condition under which the copy is made.
    fn condition(&self) -> Option<Value> {
        let block = self.copy.0;
        let [from] = self.cfg.predecessors[block.0 as usize].as_slice() else { return None };
        match &self.function.blocks[from.0 as usize].end {
            Terminator::Branch { cond, then, otherwise } if then.0 == block && otherwise.0 != block => {
                Some(*cond)
            }
            _ => None,
        }
    }

    /// `select condition, end + len x, position`.
    fn is_behind(&self, next: Value, end: Value, condition: Value) -> bool {
        let Some(Op::Select { cond, a, b }) = self.defined.get(&next) else { return false };
        let is_end = *a == end
            || match self.defined.get(a) {
                Some(Op::Binary(Binary::Add, from, len)) => {
                    *from == end && matches!(self.defined.get(len), Some(Op::Len(_)))
                }
                _ => false,
            };
        *cond == condition && *b == self.position && is_end
    }
}

#[cfg(test)]
mod tests {
    use crate::bounds::bounds;
    use crate::text;

    /// Bytes that a loop of 100 rounds builds which copies from `v4` to `end` where `copies` holds, and goes on at
    /// `next`.
    fn check(end: &str, copies: &str, next: &str, built: u64) {
        let text = format!(
            r#"program "p" {{ channel "c" single protocol 0 }} fn f0 rule "r" {{
            b0(v0: frame, v1: uint): v2: int = const 0 jump b1(v2, v2)
            b1(v3: int, v4: int) loop 100: v5: int = const 9 v6: bool = lt_s v3, v5 branch v6, b2, b5
            b2(): v7: bytes = const_bytes 0, 1 v8: int = bytes_offset v7 v9: int = len v7
              v10: int = add v8, v9 v11: bool = lt_s v4, v3 branch {copies}, b3, b4
            b3(): emit_message v4, {end} jump b4
            b4(): v12: int = select v11, {next}, v4 v13: int = add v3, v9 jump b1(v13, v12)
            b5(): return
            }}"#
        );
        let module = text::parse(&text).unwrap_or_else(|error| panic!("{error:?} in {text}"));
        assert_eq!(bounds(&module)[0].out_bytes, built, "to {end} where {copies}, then {next}");
    }

    #[test]
    fn pieces_from_front_to_back_are_no_longer_than_the_message() {
        let head = flick_abi::limits::HEAD_BYTES_MAX as u64;
        check("v8", "v11", "v10", head);
        check("v8", "v11", "v8", head);
        // Where it goes on in front of what was copied, or copies where it does not go on, each round may copy all.
        check("v8", "v11", "v9", 100 * head);
        check("v8", "v6", "v10", 100 * head);
        check("v10", "v11", "v8", 100 * head);
    }
}
