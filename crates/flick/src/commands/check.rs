//! `flick check`: checks programs, and computes their resource bounds.

mod bounds;
mod json;

pub use bounds::bytes as size_text;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Args, FromArgMatches};
use flick_check::{counted, hir};
use flick_compiler::{Input, MESSAGE_WORK_MAX, check, lower, over_budget};

use super::run::Run;
use crate::failure::{Failure, Outcome};
use crate::report;
use bounds::ResourceBounds;
use json::CheckResult;

/// Check programs, or the settings and all their programs, each file on its own.
#[derive(Debug, Args)]
pub struct Check {
    /// Program, or settings file (`flick.toml`), to check; several are checked one after another
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the resource bounds of each process: memory, work per message, sizes
    #[arg(long)]
    bounds: bool,
    /// Work for one message, in steps of about half a nanosecond, above which a program is rejected; 0 allows any
    #[arg(long, value_name = "STEPS", default_value_t = MESSAGE_WORK_MAX)]
    max_message_work: u64,
    /// Print one JSON object for each file, on a line of its own, with all its diagnostics
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Checks the files and prints the results. Errors of a program exit with 1, and so does any error of several
    /// files.
    pub fn run(self) -> Outcome {
        let is_settings = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "toml");
        if self.bounds && self.files.iter().any(is_settings) {
            return Err(Failure::usage("`--bounds` is for a program, not for a settings file"));
        }
        let check =
            |file| if is_settings(file) { self.check_settings(file) } else { self.check_program(file) };
        if let [file] = &self.files[..] {
            return check(file);
        }
        let mut outcome = Ok(());
        for file in &self.files {
            if let Err(failure) = check(file) {
                failure.report();
                outcome = Err(Failure::reported());
            }
        }
        outcome
    }

    fn check_program(&self, file: &Path) -> Outcome {
        let mut checked = match Input::file(file).and_then(|input| check(&input)) {
            Ok(checked) => checked,
            Err(failure) if self.json => {
                let (file, error) = (file.display().to_string(), failure.to_string());
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
            let file = file.display().to_string();
            let result = CheckResult::new(&file, program, &bounds, &checked.diagnostics, &checked.sources);
            crate::console::sayln!("{}", result.text());
            return if program.is_none() { Err(Failure::reported()) } else { Ok(()) };
        }
        report::report(&checked.diagnostics, &checked.sources);
        let Some(program) = program else { return Err(Failure::reported()) };
        let name = if self.files.len() > 1 { format!("{}: ", file.display()) } else { String::new() };
        for program in program.each() {
            crate::console::sayln!("{name}{}", summary(program));
        }
        for bounds in bounds {
            crate::console::say!("{}", bounds.text());
        }
        Ok(())
    }

    /// As `flick run --check --config FILE`.
    fn check_settings(&self, file: &Path) -> Outcome {
        let config: [&OsStr; 4] = ["run".as_ref(), "--check".as_ref(), "--config".as_ref(), file.as_ref()];
        let matches = Run::augment_args(clap::Command::new("run")).get_matches_from(config);
        let run = Run::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))?;
        if !self.json {
            return run.run(None);
        }
        let failure = run.check().err();
        let error = failure.as_ref().map(Failure::text);
        let name = file.display().to_string();
        crate::console::sayln!("{}", CheckResult::of_settings(&name, error.as_deref()).text());
        failure.map_or(Ok(()), |failure| Err(failure.without_message()))
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
