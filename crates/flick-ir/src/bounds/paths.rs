//! Longest paths through the blocks of a function, loops counted as often as they may go round.
//! Source: longest path in an acyclic graph; a loop is its head, with what one round costs times its bound, inner loops
//! first. That is exact for costs of blocks, and needs loops whose head dominates them.

use std::collections::BTreeMap;

use crate::cfg::{Cfg, Loop, successors};
use crate::data::{BlockId, Function};

/// The shape that costs are summed over.
pub(super) struct Paths<'a> {
    function: &'a Function,
    cfg: &'a Cfg,
    loops: &'a [Loop],
}

/// The next block of the costliest iteration of a loop, by block of its body.
type Round = BTreeMap<BlockId, Option<BlockId>>;

/// The result for one kind of cost.
pub(super) struct Longest {
    /// Cost from the entry to the end of the function.
    pub(super) total: u64,
    /// The next block of the costliest path, by block.
    next: Vec<Option<BlockId>>,
    /// By loop.
    rounds: Vec<Round>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(function: &'a Function, cfg: &'a Cfg, loops: &'a [Loop]) -> Self {
        Self { function, cfg, loops }
    }

    /// Times that a loop goes round for each time it is entered.
    fn trips(&self, found: &Loop) -> u64 {
        self.function.blocks[found.head.0 as usize].trips_max.map_or(u64::MAX, u64::from)
    }

    /// Blocks that follow without going round.
    fn forward(&self, block: BlockId) -> impl Iterator<Item = BlockId> {
        let targets = successors(&self.function.blocks[block.0 as usize].end);
        targets
            .into_iter()
            .map(|(target, _)| target)
            .filter(move |target| !self.cfg.is_backward(block, *target))
    }

    /// The costliest way, `own` being the cost of each block.
    pub(super) fn longest(&self, own: &[u64]) -> Longest {
        let mut weights = own.to_vec();
        let mut rounds = Vec::new();
        for found in self.loops {
            let (cost, round) = self.round(found, own, &weights);
            let head = &mut weights[found.head.0 as usize];
            *head = head.saturating_add(cost.saturating_mul(self.trips(found)));
            rounds.push(round);
        }
        let (total, next) = self
            .longest_to_end(&weights, false)
            .or_else(|| self.longest_to_end(&weights, true))
            .unwrap_or_default();
        Longest { total, next, rounds }
    }

    /// Returns the cost of the longest path from a block that is no head of a loop through the blocks of `body`,
    /// which are in order.
    pub(super) fn part(&self, head: BlockId, body: &[BlockId], own: &[u64]) -> u64 {
        let mut weights = own.to_vec();
        for found in self.loops.iter().filter(|found| body.contains(&found.head)) {
            let (cost, _) = self.round(found, own, &weights);
            let head = &mut weights[found.head.0 as usize];
            *head = head.saturating_add(cost.saturating_mul(self.trips(found)));
        }
        self.round(&Loop { head, latches: Vec::new(), body: body.to_vec() }, own, &weights).0
    }

    /// Returns the longest path from the entry to an end. A block that only leads back to the head of a loop leads to
    /// no end: it is counted as a part of that loop's round. With `may_stop`, a function without an end stops after
    /// its last round.
    fn longest_to_end(&self, weights: &[u64], may_stop: bool) -> Option<(u64, Vec<Option<BlockId>>)> {
        let mut from: Vec<Option<u64>> = vec![None; weights.len()];
        let mut next = vec![None; weights.len()];
        for block in self.cfg.order.iter().rev() {
            let index = block.0 as usize;
            let targets = self.forward(*block).filter(|target| from[target.0 as usize].is_some());
            next[index] = targets.max_by_key(|target| from[target.0 as usize]);
            let is_end = may_stop || successors(&self.function.blocks[index].end).is_empty();
            let after = next[index].and_then(|next: BlockId| from[next.0 as usize]).or(is_end.then_some(0));
            from[index] = after.map(|after| after.saturating_add(weights[index]));
        }
        Some((from[0]?, next))
    }

    /// The costliest way from the head of a loop round to where it jumps back.
    fn round(&self, found: &Loop, own: &[u64], weights: &[u64]) -> (u64, Round) {
        // What is not in the body has no cost here.
        let mut costs = vec![None; own.len()];
        let mut round = Round::new();
        for block in found.body.iter().rev() {
            let inside = self.forward(*block).filter(|target| costs[target.0 as usize].is_some());
            let next = inside.max_by_key(|target| costs[target.0 as usize]);
            let after = next.and_then(|next| costs[next.0 as usize]).unwrap_or(0);
            let here = if *block == found.head { own } else { weights }[block.0 as usize];
            costs[block.0 as usize] = Some(here.saturating_add(after));
            round.insert(*block, next);
        }
        (costs[found.head.0 as usize].unwrap_or(0), round)
    }

    /// Returns how often each block is on the costliest path.
    pub(super) fn counts(&self, longest: &Longest) -> Vec<u64> {
        let mut counts = vec![0_u64; self.function.blocks.len()];
        let mut at = Some(BlockId(0));
        while let Some(block) = at {
            counts[block.0 as usize] += 1;
            at = longest.next[block.0 as usize];
        }
        // Outer loops first, because their rounds lead to the heads of inner ones.
        for (found, round) in self.loops.iter().zip(&longest.rounds).rev() {
            let times = counts[found.head.0 as usize].saturating_mul(self.trips(found));
            let mut at = Some(found.head);
            while let Some(block) = at {
                let count = &mut counts[block.0 as usize];
                *count = count.saturating_add(times);
                at = round.get(&block).copied().flatten();
            }
        }
        counts
    }
}
