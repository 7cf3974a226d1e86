//! `flick check`: checks a program, and computes its resource bounds.

mod bounds;
mod json;

pub use bounds::bytes as size_text;

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Args, FromArgMatches};
use flick_check::{counted, hir};
use flick_compiler::{Input, MESSAGE_WORK_MAX, check, lower, over_budget};

use super::run::Run;
use crate::failure::{Failure, Outcome};
use crate::report;
use bounds::ResourceBounds;
use json::CheckResult;

/// Check a program, or the settings and all their programs.
#[derive(Debug, Args)]
pub struct Check {
    /// Program, or settings file (`flick.toml`), to check
    file: PathBuf,
    /// Print the resource bounds of each process: memory, work per message, sizes
    #[arg(long)]
    bounds: bool,
    /// Work for one message, in steps of about half a nanosecond, above which a program is rejected; 0 allows any
    #[arg(long, value_name = "STEPS", default_value_t = MESSAGE_WORK_MAX)]
    max_message_work: u64,
    /// Print one JSON object, with all diagnostics
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Checks the program and prints the result. Errors of the program exit with 1.
    pub fn run(self) -> Outcome {
        if self.file.extension().is_some_and(|extension| extension == "toml") {
            return self.check_settings();
        }
        let mut checked = match Input::file(&self.file).and_then(|input| check(&input)) {
            Ok(checked) => checked,
            Err(failure) if self.json => {
                let (file, error) = (self.file.display().to_string(), failure.to_string());
                crate::console::sayln!("{}", CheckResult::unread(&file, &error).text());
                return Err(Failure::reported());
            }
            Err(failure) => return Err(failure.into()),
        };
        let mut bounds = Vec::new();
        let mut rejections = Vec::new();
        let programs = checked.program.iter().flat_map(hir::Program::each);
        for program in programs.filter(|program| program.process.is_some()) {
            match lower(program, &checked.sources) {
                Ok(module) => {
                    if self.bounds {
                        bounds.push(ResourceBounds::of(&module, &checked.sources));
                    }
                    rejections.extend(over_budget(&module, &checked.sources, self.max_message_work));
                }
                Err(diagnostics) => rejections.extend(diagnostics),
            }
        }
        if !rejections.is_empty() {
            rejections.retain(|diagnostic| !checked.diagnostics.contains(diagnostic));
            checked.diagnostics.extend(rejections);
            checked.program = None;
        }
        let program = checked.program.as_ref();
        if self.json {
            let result = CheckResult::new(program, &bounds, &checked.diagnostics, &checked.sources);
            crate::console::sayln!("{}", result.text());
            return if program.is_none() { Err(Failure::reported()) } else { Ok(()) };
        }
        report::report(&checked.diagnostics, &checked.sources);
        let Some(program) = program else { return Err(Failure::reported()) };
        for program in program.each() {
            crate::console::sayln!("{}", summary(program));
        }
        for bounds in bounds {
            crate::console::say!("{}", bounds.text());
        }
        Ok(())
    }
}

impl Check {
    /// As `flick run --check --config FILE`.
    fn check_settings(&self) -> Outcome {
        if self.bounds || self.json {
            return Err(Failure::usage("`--bounds` and `--json` are for a program, not for a settings file"));
        }
        let config: [&OsStr; 4] =
            ["run".as_ref(), "--check".as_ref(), "--config".as_ref(), self.file.as_ref()];
        let matches = Run::augment_args(clap::Command::new("run")).get_matches_from(config);
        let run = Run::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))?;
        run.run()
    }
}

/// The summary of a program that is right: its processes, or its units if it is a library.
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
    text.push_str(&format!("  {}", counted(process.rules.len(), "rule")));
    text
}
