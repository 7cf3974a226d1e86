//! What all functions of one program share while they are lowered.

use std::collections::{BTreeMap, BTreeSet};

use flick_check::hir::{Channel, Expr, ExprKind, FieldId, Program, Ty, UnitId};

use crate::parse::plan::{Role, plan};
use crate::unit::UnitInfo;
use crate::walk::{keys_of, walk_block};

/// The program and what is known of its grammars.
#[derive(Debug)]
pub struct Context<'p> {
    /// The checked program.
    pub program: &'p Program,
    units: Vec<UnitInfo<'p>>,
}

impl<'p> Context<'p> {
    /// Analyses a checked program.
    pub fn new(program: &'p Program) -> Self {
        let mut units: Vec<UnitInfo<'p>> = program
            .units
            .iter()
            .enumerate()
            .map(|(index, unit)| UnitInfo::new(UnitId(index as u32), unit))
            .collect();
        for (unit, changed) in updates(program) {
            units[unit as usize].note_updates(&changed);
        }
        for info in &mut units {
            let mut keys: BTreeSet<_> = info.echo().into_iter().map(crate::unit::Key::Field).collect();
            for (_, build) in &info.unit.facts.on {
                keys.extend(keys_of(build));
            }
            let channels = program.process.iter().flat_map(|process| &process.channels);
            for channel in channels.filter(|channel| channel.receives == Some(info.id)) {
                for role in [Role::Request, Role::Reply] {
                    keys.extend(plan(info, role, channel).stored(info, role));
                }
            }
            info.assign_slots(&keys);
        }
        Self { program, units }
    }

    /// What is known of a grammar.
    pub fn unit(&self, unit: UnitId) -> &UnitInfo<'p> {
        &self.units[unit.0 as usize]
    }

    /// Channels of the process.
    pub fn channels(&self) -> &'p [Channel] {
        self.program.process.as_ref().map_or(&[], |process| &process.channels)
    }
}

/// The fields that any record update of the program replaces, by grammar.
fn updates(program: &Program) -> BTreeMap<u32, BTreeSet<FieldId>> {
    let mut changed: BTreeMap<u32, BTreeSet<FieldId>> = BTreeMap::new();
    let mut visit = |expr: &Expr| {
        if let (ExprKind::With(_, fields), Ty::Record(unit)) = (&expr.kind, &expr.ty) {
            changed.entry(unit.0).or_default().extend(fields.iter().map(|(field, _)| *field));
        }
    };
    for fun in &program.funs {
        walk_block(&fun.body, &mut visit);
    }
    for rule in program.process.iter().flat_map(|process| &process.rules) {
        walk_block(&rule.body, &mut visit);
    }
    changed
}
