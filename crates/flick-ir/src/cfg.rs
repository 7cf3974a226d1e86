//! Which block follows which, in what order to visit them, and which comes before which on every path.
//! Promises: total on any function whose block numbers are in range; unreachable blocks appear in no order.
//! Source: Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm"; one pass suffices without cycles.

use crate::data::{Block, BlockId, Function, Terminator, Value};

/// The edges and order of one function's blocks.
#[derive(Clone, Debug)]
pub struct Cfg {
    /// Reachable blocks, each after all its predecessors where there is no cycle.
    pub order: Vec<BlockId>,
    /// Predecessors among the reachable blocks, by block.
    pub predecessors: Vec<Vec<BlockId>>,
    /// Closest strict dominator, by block; `None` for the entry and for unreachable blocks.
    pub idom: Vec<Option<BlockId>>,
    /// Whether some block can be reached from itself.
    pub has_cycle: bool,
    position: Vec<Option<u32>>,
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
        let mut cfg = Self { order, predecessors, idom: vec![None; position.len()], has_cycle, position };
        if !has_cycle {
            cfg.find_dominators();
        }
        cfg
    }

    /// Whether a path from the entry leads to `block`.
    pub fn is_reachable(&self, block: BlockId) -> bool {
        self.position[block.0 as usize].is_some()
    }

    /// Whether every path to `below` goes through `above`; a block dominates itself. False for unreachable blocks
    /// and wherever there is a cycle.
    pub fn dominates(&self, above: BlockId, below: BlockId) -> bool {
        let mut at = Some(below);
        while let Some(block) = at {
            if block == above {
                return self.is_reachable(below);
            }
            at = self.idom[block.0 as usize];
        }
        false
    }

    fn find_dominators(&mut self) {
        for index in 1..self.order.len() {
            let block = self.order[index];
            let predecessors = &self.predecessors[block.0 as usize];
            let mut common = predecessors[0];
            for predecessor in &predecessors[1..] {
                common = self.common_dominator(common, *predecessor);
            }
            self.idom[block.0 as usize] = Some(common);
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
}

/// Where a block may go on, with the values handed over.
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
