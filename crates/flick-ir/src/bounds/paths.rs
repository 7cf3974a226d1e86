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
    trips: Vec<Trips>,
    /// By block: the innermost loop that it is in.
    innermost: Vec<Option<usize>>,
}

/// The number of rounds of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trips {
    /// Most rounds for each time that it is entered; of a loop with a `root`, for each time that its root is.
    pub(super) max: u64,
    /// The outermost of the loops that advance in the message, each directly inside the next, by index.
    pub(super) root: Option<usize>,
    /// Bytes that the root passes at most.
    pub(super) bytes: u64,
    /// Bytes that each round passes at least, of a loop with a `root`.
    least: u64,
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
    /// By loop: how often it goes round, as in [`Trips`].
    times: Vec<u64>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(function: &'a Function, cfg: &'a Cfg, loops: &'a [Loop]) -> Self {
        let mut innermost = vec![None; function.blocks.len()];
        for (index, block) in
            loops.iter().enumerate().flat_map(|(at, found)| found.body.iter().map(move |b| (at, b)))
        {
            innermost[block.0 as usize].get_or_insert(index);
        }
        Self { function, cfg, loops, trips: all_trips(function, loops), innermost }
    }

    /// Returns the innermost loop that a block is in, and how often that goes round.
    pub(super) fn innermost(&self, block: BlockId) -> Option<(usize, Trips)> {
        let index = self.innermost[block.0 as usize]?;
        Some((index, self.trips[index]))
    }

    /// Returns the root of a loop; see [`Trips`].
    pub(super) fn root_of(&self, index: usize) -> Option<usize> {
        self.trips[index].root
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
        self.longest_with(own, &vec![0; self.loops.len()])
    }

    /// As `longest`; `once` is what each loop costs whenever it is entered, however often it goes round.
    pub(super) fn longest_with(&self, own: &[u64], once: &[u64]) -> Longest {
        let mut weights = own.to_vec();
        let (mut rounds, mut costs) = (Vec::new(), Vec::new());
        let mut times: Vec<u64> = self.trips.iter().map(|trips| trips.max).collect();
        for (index, (found, trips)) in self.loops.iter().zip(&self.trips).enumerate() {
            let (cost, round) = self.round(found, own, &weights);
            rounds.push(round);
            costs.push(cost);
            let all = match trips.root {
                None => cost.saturating_mul(trips.max),
                Some(root) if root == index => {
                    self.share(root, &costs, &mut times).saturating_add(once[root])
                }
                // All rounds of all times that it is entered count where the outermost one is.
                Some(_) => continue,
            };
            let head = &mut weights[found.head.0 as usize];
            *head = head.saturating_add(all);
        }
        let (total, next) = self
            .longest_to_end(&weights, false)
            .or_else(|| self.longest_to_end(&weights, true))
            .unwrap_or_default();
        Longest { total, next, rounds, times }
    }

    /// Returns what all rounds of the loops with a root cost at most: they share its bytes, of which those loops get
    /// most whose rounds cost most for each byte.
    fn share(&self, root: usize, costs: &[u64], times: &mut [u64]) -> u64 {
        let mut together: Vec<usize> =
            (0..=root).filter(|index| self.trips[*index].root == Some(root)).collect();
        let scaled = |cost: usize, by: usize| u128::from(costs[cost]) * u128::from(self.trips[by].least);
        together.sort_by(|one, other| scaled(*other, *one).cmp(&scaled(*one, *other)));
        let (mut left, mut all) = (self.trips[root].bytes, 0_u64);
        for index in together {
            let least = self.trips[index].least;
            times[index] = self.trips[index].max.min(left.div_ceil(least));
            left = left.saturating_sub(times[index].saturating_mul(least));
            all = all.saturating_add(costs[index].saturating_mul(times[index]));
        }
        all
    }

    /// Returns the cost of the costliest way once around a loop.
    pub(super) fn once_around(&self, index: usize, own: &[u64]) -> u64 {
        self.round(&self.loops[index], own, own).0
    }

    /// Returns the cost of the longest path from a block that is no head of a loop through the blocks of `body`,
    /// which are in order.
    pub(super) fn part(&self, head: BlockId, body: &[BlockId], own: &[u64]) -> u64 {
        let mut weights = own.to_vec();
        for found in self.loops.iter().filter(|found| body.contains(&found.head)) {
            let (cost, _) = self.round(found, own, &weights);
            let head = &mut weights[found.head.0 as usize];
            *head = head.saturating_add(cost.saturating_mul(trips_of(self.function, found)));
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

    /// Returns how often each block is on the costliest path, and how often each loop is entered on it.
    pub(super) fn counts(&self, longest: &Longest) -> (Vec<u64>, Vec<u64>) {
        let mut entered = vec![0; self.loops.len()];
        let mut counts = vec![0_u64; self.function.blocks.len()];
        let mut at = Some(BlockId(0));
        while let Some(block) = at {
            counts[block.0 as usize] += 1;
            at = longest.next[block.0 as usize];
        }
        // Outer loops first, because their rounds lead to the heads of inner ones.
        for (index, (found, round)) in self.loops.iter().zip(&longest.rounds).enumerate().rev() {
            entered[index] = counts[found.head.0 as usize];
            let root = self.trips[index].root.unwrap_or(index);
            let times = entered[root].saturating_mul(longest.times[index]);
            let mut at = Some(found.head);
            while let Some(block) = at {
                let count = &mut counts[block.0 as usize];
                *count = count.saturating_add(times);
                at = round.get(&block).copied().flatten();
            }
        }
        (counts, entered)
    }
}

/// Times that a loop goes round for each time it is entered.
fn trips_of(function: &Function, found: &Loop) -> u64 {
    function.blocks[found.head.0 as usize].trips_max.map_or(u64::MAX, u64::from)
}

/// Returns the number of rounds of each loop. Rounds that advance in the message together pass over it once, so that
/// there are no more of them than fit, however often an inner loop is entered.
fn all_trips(function: &Function, loops: &[Loop]) -> Vec<Trips> {
    let each = |found: &Loop| Trips { max: trips_of(function, found), root: None, bytes: 0, least: 1 };
    let mut all: Vec<Trips> = loops.iter().map(each).collect();
    // Outer loops first.
    for (index, found) in loops.iter().enumerate().rev() {
        let Some(advance) = function.blocks[found.head.0 as usize].advance else { continue };
        let around = (index + 1..loops.len()).find(|around| loops[*around].body.contains(&found.head));
        let around = around.map(|around| all[around]).filter(|around| around.root.is_some());
        let own = &mut all[index];
        own.root = Some(around.and_then(|around| around.root).unwrap_or(index));
        own.least = u64::from(advance.least.max(1));
        own.bytes = around.map_or(u64::from(advance.most), |around| around.bytes);
        // It is entered once in each round of the loop around it, and once behind the last.
        let entered = around.map_or(1, |around| around.max.saturating_add(1));
        own.max = own.max.saturating_mul(entered).min(u64::from(advance.rounds_max()));
    }
    all
}
