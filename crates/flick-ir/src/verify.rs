//! Decides whether a module may be run at all.
//! Promises: of a module without errors, both engines may assume everything below without checking it again, and
//! the memory safety of compiled code rests on it:
//! numbers of values, blocks, functions, channels, slots and constants are in range; every value is defined once,
//! before each use, and used as what it is; loops have one head and a bound, and calls no recursion; every load of the
//! message lies behind a `Need` that covers it; what was kept before a suspension is there after it; a rule sends,
//! asks and builds within the limits of an activation.
//! Refuses: to stop at the first error. Errors here are bugs of lowering, so they speak of values and blocks.

mod coverage;
mod flow;
mod program;
mod structure;
mod types;

pub use coverage::Covered;

use crate::cfg::Cfg;
use crate::data::{FuncKind, Module};
use crate::{bounds, calls};

/// One thing that is wrong with a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// Location of the error: a function or a block of it; empty for the program itself.
    pub position: String,
    /// Description of the error.
    pub message: String,
}

impl std::fmt::Display for VerifyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.position.is_empty() {
            write!(f, "{}", self.message)
        } else {
            write!(f, "{}: {}", self.position, self.message)
        }
    }
}

/// Checks a module. An empty list means that it may be run.
///
/// Cost: a few walks over the code; linear but for facts about lengths, of which a parser has few.
pub fn verify(module: &Module) -> Vec<VerifyError> {
    let mut errors = Vec::new();
    program::check(module, &mut errors);
    for (index, function) in module.functions.iter().enumerate() {
        let mut report = Report { position: format!("f{index} `{}`", function.name), errors: &mut errors };
        if structure::check(module, function, &mut report) {
            let cfg = Cfg::new(function);
            if flow::check_loops(function, &cfg, &mut report) {
                structure::check_order(function, &cfg, &mut report);
                types::check(module, function, &mut report);
                coverage::check(function, &cfg, &mut report);
                flow::check_waits(function, &cfg, &mut report);
            }
        }
    }
    if errors.is_empty() {
        work(module, &mut errors);
    }
    errors
}

/// Collects errors of one place.
struct Report<'a> {
    position: String,
    errors: &'a mut Vec<VerifyError>,
}

impl Report<'_> {
    fn add(&mut self, message: String) {
        self.errors.push(VerifyError { position: self.position.clone(), message });
    }

    /// Adds an error in block `index`.
    fn add_in(&mut self, index: usize, message: String) {
        self.errors.push(VerifyError { position: format!("{}, b{index}", self.position), message });
    }

    fn require(&mut self, condition: bool, message: impl FnOnce() -> String) {
        if !condition {
            self.add(message());
        }
    }
}

/// Recursion, work and what orders call; needs functions that are right in themselves.
fn work(module: &Module, errors: &mut Vec<VerifyError>) {
    let mut add = |index: usize, message: String| {
        errors
            .push(VerifyError { position: format!("f{index} `{}`", module.functions[index].name), message });
    };
    let order = match calls::callees_first(module) {
        Ok(order) => order,
        Err(index) => return add(index, "the function calls itself".to_owned()),
    };
    for excess in bounds::excesses(module) {
        add(excess.function, excess.message);
    }
    let mut acts = vec![false; module.functions.len()];
    for index in order {
        let function = &module.functions[index];
        let callees = calls::callees_of(function);
        let insts = || function.blocks.iter().flat_map(|block| &block.insts);
        acts[index] = callees.iter().any(|callee| acts[*callee]) || insts().any(|inst| types::acts(&inst.op));
        if function.kind == FuncKind::Order && acts[index] {
            add(index, "an Order only reads, and so does what it calls".to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
