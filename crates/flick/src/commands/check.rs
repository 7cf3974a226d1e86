//! `flick check`: whether a program is right, and what it needs.

mod bounds;
mod costliest;
mod json;

pub use bounds::bytes as amount;

use std::path::PathBuf;

use clap::Args;
use flick_check::hir;

use crate::failure::{Failure, Outcome};
use crate::{compile, report};

/// Says whether a program is right.
#[derive(Debug, Args)]
pub struct Check {
    /// The program
    file: PathBuf,
    /// Also say what each process needs: memory, work for a message, sizes
    #[arg(long)]
    bounds: bool,
    /// Write one JSON object to stdout, mistakes included
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Checks and tells. Mistakes of the program end it with 1.
    pub fn run(self) -> Outcome {
        let mut checked = compile::check_file(&self.file)?;
        let mut needs = Vec::new();
        let mut refused = Vec::new();
        let programs = checked.program.iter().flat_map(hir::Program::each);
        for program in programs.filter(|program| program.process.is_some()) {
            match compile::lowered(program, &checked.sources) {
                Ok(module) if self.bounds => needs.push(bounds::Needs::of(&module, &checked.sources)),
                Ok(_) => {}
                Err(told) => refused.extend(told),
            }
        }
        if !refused.is_empty() {
            refused.retain(|told| !checked.diagnostics.contains(told));
            checked.diagnostics.extend(refused);
            checked.program = None;
        }
        let program = checked.program.as_ref();
        if self.json {
            let told = json::Told::new(program, &needs, &checked.diagnostics, &checked.sources);
            crate::console::sayln!("{}", told.text());
            return if program.is_none() { Err(Failure::reported()) } else { Ok(()) };
        }
        report::report(&checked.diagnostics, &checked.sources);
        let Some(program) = program else { return Err(Failure::reported()) };
        for program in program.each() {
            crate::console::sayln!("{}", summary(program));
        }
        for needs in needs {
            crate::console::say!("{}", needs.text());
        }
        Ok(())
    }
}

/// `ok: process `memcached`: client (receives cmd, sends cmd), ...`.
fn summary(program: &hir::Program) -> String {
    let Some(process) = &program.process else {
        let names: Vec<_> = program.units.iter().map(|unit| format!("`{}`", unit.name)).collect();
        let what = if names.is_empty() {
            "no process and no unit".to_owned()
        } else {
            format!("units {}", names.join(", "))
        };
        return format!("ok: a library with {what}");
    };
    let mut text = format!("ok: process `{}`\n", process.name);
    for channel in &process.channels {
        let unit = |id: Option<hir::UnitId>| id.map(|id| program.units[id.0 as usize].name.as_str());
        let directions = match (unit(channel.receives), unit(channel.sends)) {
            (Some(receives), Some(sends)) => format!("receives {receives}, sends {sends}"),
            (Some(receives), None) => format!("receives {receives}"),
            (None, Some(sends)) => format!("sends {sends}"),
            (None, None) => "carries nothing".to_owned(),
        };
        let array = if channel.is_array { "[]" } else { "" };
        text.push_str(&format!("  {}{array}: {directions}\n", channel.name));
    }
    let rules = process.rules.len();
    text.push_str(&format!("  {rules} {}", if rules == 1 { "rule" } else { "rules" }));
    text
}
