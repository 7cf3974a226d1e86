//! Call graph of a module: an order of its functions in which callees come first.

use crate::data::{Function, Module, Op};

/// Functions in an order in which each comes after all it calls. `Err`: a function that calls itself, perhaps
/// through others. Panics when a call names a function that does not exist.
pub fn callees_first(module: &Module) -> Result<Vec<usize>, usize> {
    let mut order = Vec::with_capacity(module.functions.len());
    // 0 new, 1 open, 2 closed.
    let mut marks = vec![0_u8; module.functions.len()];
    for root in 0..module.functions.len() {
        let mut stack = vec![(root, None)];
        while let Some((index, callees)) = stack.last_mut() {
            let index = *index;
            if marks[index] == 2 {
                stack.pop();
                continue;
            }
            marks[index] = 1;
            let callees: &mut Vec<usize> =
                callees.get_or_insert_with(|| callees_of(&module.functions[index]));
            match callees.pop() {
                None => {
                    marks[index] = 2;
                    order.push(index);
                    stack.pop();
                }
                Some(callee) if marks[callee] == 1 => return Err(callee),
                Some(callee) => stack.push((callee, None)),
            }
        }
    }
    Ok(order)
}

/// Functions that `function` calls, once for each call.
pub fn callees_of(function: &Function) -> Vec<usize> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    insts
        .filter_map(|inst| if let Op::Call { func, .. } = &inst.op { Some(func.0 as usize) } else { None })
        .collect()
}
