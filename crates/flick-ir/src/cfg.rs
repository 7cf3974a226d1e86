//! Control-flow graph of a function: the edges and the order of its blocks, dominators and loops.
//! Promises: total on any function whose block numbers are in range; unreachable blocks appear in no order.
//! Source: Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm"; natural loops as in any book on compilers.

use crate::data::{Block, BlockId, Function, Terminator, Value};

/// The edges and order of one function's blocks.
#[derive(Clone, Debug)]
pub struct Cfg {
    /// Reachable blocks in reverse postorder: each after all its predecessors, but for the ends of loops.
    pub order: Vec<BlockId>,
    /// Predecessors among the reachable blocks, by block.
    pub predecessors: Vec<Vec<BlockId>>,
    /// Closest strict dominator, by block; `None` for the entry and for unreachable blocks.
    pub idom: Vec<Option<BlockId>>,
    /// Whether some block can be reached from itself.
    pub has_cycle: bool,
    /// The index of each block in `order`.
    position: Vec<Option<u32>>,
    /// First and last number of the part of the dominator tree below each block.
    span: Vec<(u32, u32)>,
}

/// A loop: its head and what goes round with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The block that dominates the rest.
    pub head: BlockId,
    /// Blocks that jump back to the head.
    pub latches: Vec<BlockId>,
    /// All blocks from which the head is reached without leaving, the head among them, in `Cfg::order`.
    pub body: Vec<BlockId>,
}

impl Cfg {
    /// Computes all of it. Panics when a terminator names a block that does not exist.
    pub fn new(function: &Function) -> Self {
        Self::new_of(&function.blocks)
    }

    /// As [`Cfg::new`], of the blocks alone.
    pub fn new_of(blocks: &[Block]) -> Self {
        let (order, has_cycle) = reverse_postorder(blocks);
        let mut position = vec![None; blocks.len()];
        for (index, block) in order.iter().enumerate() {
            position[block.0 as usize] = Some(index as u32);
        }
        let mut predecessors = vec![Vec::new(); blocks.len()];
        for block in &order {
            for (target, _) in successors(&blocks[block.0 as usize].end) {
                predecessors[target.0 as usize].push(*block);
            }
        }
        let (idom, span) = (vec![None; blocks.len()], vec![(0, 0); blocks.len()]);
        let mut cfg = Self { order, predecessors, idom, has_cycle, position, span };
        cfg.find_dominators();
        cfg.number_tree();
        cfg
    }

    /// Whether a path from the entry leads to `block`.
    pub fn is_reachable(&self, block: BlockId) -> bool {
        self.position[block.0 as usize].is_some()
    }

    /// Whether every path to `below` goes through `above`; a block dominates itself. False for unreachable blocks.
    pub fn dominates(&self, above: BlockId, below: BlockId) -> bool {
        let (first, last) = self.span[above.0 as usize];
        let number = self.span[below.0 as usize].0;
        self.is_reachable(above) && self.is_reachable(below) && (first..=last).contains(&number)
    }

    /// Whether the edge goes against the order: every cycle has such an edge.
    pub fn is_backward(&self, from: BlockId, to: BlockId) -> bool {
        self.position[from.0 as usize] >= self.position[to.0 as usize]
    }

    /// The loops whose head dominates them, inner ones before those around them.
    pub fn loops(&self) -> Vec<Loop> {
        let mut loops = Vec::new();
        for head in &self.order {
            let is_latch = |from: &&BlockId| self.is_backward(**from, *head) && self.dominates(*head, **from);
            let predecessors = &self.predecessors[head.0 as usize];
            let mut latches: Vec<BlockId> = predecessors.iter().filter(is_latch).copied().collect();
            latches.dedup();
            if !latches.is_empty() {
                let body = self.loop_body(*head, &latches);
                loops.push(Loop { head: *head, latches, body });
            }
        }
        // What is inside another loop has fewer blocks than that.
        loops.sort_by_key(|found| found.body.len());
        loops
    }

    fn loop_body(&self, head: BlockId, latches: &[BlockId]) -> Vec<BlockId> {
        let mut is_inside = vec![false; self.position.len()];
        is_inside[head.0 as usize] = true;
        let mut open = latches.to_vec();
        let mut body = vec![head];
        while let Some(block) = open.pop() {
            if !std::mem::replace(&mut is_inside[block.0 as usize], true) {
                body.push(block);
                open.extend(&self.predecessors[block.0 as usize]);
            }
        }
        body.sort_by_key(|block| self.position[block.0 as usize]);
        body
    }

    fn find_dominators(&mut self) {
        // Each round settles at least the blocks of one more loop around another; without loops one is enough.
        for _ in 0..=self.order.len() {
            let mut changed = false;
            for index in 1..self.order.len() {
                let block = self.order[index];
                let mut common = None;
                for predecessor in &self.predecessors[block.0 as usize] {
                    // The end of a loop has no dominator yet in the first round.
                    if predecessor.0 == 0 || self.idom[predecessor.0 as usize].is_some() {
                        common = Some(match common {
                            None => *predecessor,
                            Some(common) => self.common_dominator(common, *predecessor),
                        });
                    }
                }
                changed |= common != self.idom[block.0 as usize];
                self.idom[block.0 as usize] = common;
            }
            if !changed || !self.has_cycle {
                break;
            }
        }
    }

    fn common_dominator(&self, mut a: BlockId, mut b: BlockId) -> BlockId {
        while a != b {
            // The later of the two cannot dominate the other.
            let later =
                if self.position[a.0 as usize] > self.position[b.0 as usize] { &mut a } else { &mut b };
            *later = self.idom[later.0 as usize].expect("two reachable blocks have a dominator in common");
        }
        a
    }

    /// Numbers the dominator tree from the root, so that what is below a block is a span of numbers.
    fn number_tree(&mut self) {
        let mut children = vec![Vec::new(); self.position.len()];
        for block in self.order.iter().skip(1) {
            if let Some(parent) = self.idom[block.0 as usize] {
                children[parent.0 as usize].push(*block);
            }
        }
        let mut next = 0;
        let mut stack = vec![(BlockId(0), 0)];
        while let Some((block, visited)) = stack.last_mut() {
            let (index, child) = (block.0 as usize, children[block.0 as usize].get(*visited).copied());
            if *visited == 0 {
                self.span[index].0 = next;
                next += 1;
            }
            *visited += 1;
            if let Some(child) = child {
                stack.push((child, 0));
            } else {
                self.span[index].1 = next - 1;
                stack.pop();
            }
        }
    }
}

/// Returns the successors of a block, with their arguments.
pub fn successors(end: &Terminator) -> Vec<(BlockId, &[Value])> {
    match end {
        Terminator::Jump(target, args) => vec![(*target, args)],
        Terminator::Branch { then, otherwise, .. } => {
            vec![(then.0, &then.1[..]), (otherwise.0, &otherwise.1[..])]
        }
        Terminator::Switch { cases, default, .. } => {
            let targets = cases.iter().map(|(_, target)| *target).chain([*default]);
            targets.map(|target| (target, &[][..])).collect()
        }
        Terminator::Need { then, .. } | Terminator::Suspend { then, .. } => vec![(*then, &[])],
        Terminator::Done | Terminator::Fault { .. } | Terminator::Return(_) => Vec::new(),
    }
}

/// Reachable blocks in reverse postorder, and whether the walk met a block that was still open.
fn reverse_postorder(blocks: &[Block]) -> (Vec<BlockId>, bool) {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Closed,
    }
    let mut marks = vec![Mark::New; blocks.len()];
    let mut order = Vec::with_capacity(blocks.len());
    let mut has_cycle = false;
    // A stack of our own: a program may have more blocks in a row than a thread's stack has room for.
    let mut stack = vec![(BlockId(0), successors(&blocks[0].end), 0)];
    marks[0] = Mark::Open;
    while let Some((block, targets, next)) = stack.last_mut() {
        let Some((target, _)) = targets.get(*next).copied() else {
            marks[block.0 as usize] = Mark::Closed;
            order.push(*block);
            stack.pop();
            continue;
        };
        *next += 1;
        match marks[target.0 as usize] {
            Mark::New => {
                marks[target.0 as usize] = Mark::Open;
                stack.push((target, successors(&blocks[target.0 as usize].end), 0));
            }
            Mark::Open => has_cycle = true,
            Mark::Closed => {}
        }
    }
    order.reverse();
    (order, has_cycle)
}
